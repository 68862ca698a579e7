"""Each form of a workload, read from a small file of our own."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ctld.sim.reading import read_trace
from ctld.sim.swf import LATER
from muster.errors import InvalidInput, MusterError, NotFound

DATA = Path(__file__).parents[3] / "data" / "sim"


def test_swf_takes_requested_processors_and_caps_nothing_yet() -> None:
    trace = read_trace(DATA / "small.swf")
    assert [job.label for job in trace.jobs] == ["1", "2", "3", "6"]
    assert [job.submitted_at - 1_700_000_000 for job in trace.jobs] == [0, 10, 20, 50]
    assert [job.ask.ntasks for job in trace.jobs] == [4, 2, 3, 1]
    assert [job.limit_seconds for job in trace.jobs] == [200, 60, 30, 300]
    assert [job.runtime for job in trace.jobs] == [100, 50, 30, 500]
    assert [job.waited for job in trace.jobs] == [0, 90, 80, 0]
    assert trace.jobs[3].user == "user3" and trace.jobs[3].ask.account == "group2"
    assert trace.dropped == {"never ran": 1, "no processors": 1}
    assert [(group.names, group.cpus) for group in trace.nodes] == [("n[1-4]", 1)]


def test_swf_in_gzip_is_the_same(tmp_path: Path) -> None:
    packed = tmp_path / "small.swf.gz"
    packed.write_bytes(gzip.compress((DATA / "small.swf").read_bytes()))
    assert read_trace(packed).jobs == read_trace(DATA / "small.swf").jobs


def test_swf_that_begins_at_0_is_moved_away_from_0(tmp_path: Path) -> None:
    file = tmp_path / "x.swf"
    file.write_text("1 5 -1 10 2 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    trace = read_trace(file)
    assert trace.jobs[0].submitted_at == LATER + 5
    assert trace.jobs[0].limit_seconds == 10
    assert trace.nodes == ()


def test_swf_with_shapes_and_machines() -> None:
    trace = read_trace(DATA / "shapes.swf")
    first, second = (job.ask for job in trace.jobs)
    assert (first.nodes, first.ntasks_per_node, first.mem, first.constraint, first.exclusive) == (
        [2, 2], 8, 8192, "big", "node",
    )  # fmt: skip
    assert (second.nodes, second.ntasks, second.mem, second.constraint) == ([1, 1], 2, 101, None)
    assert [(one.names, one.cpus, one.memory_mib, one.features) for one in trace.nodes] == [
        ("big[1-3]", 8, 8192, ("big",)),
        ("small1", 4, 1024, ("small",)),
    ]


def test_sacct_reads_columns_by_name_and_leaves_steps_out() -> None:
    trace = read_trace(DATA / "jobs.sacct")
    assert [job.label for job in trace.jobs] == ["104", "101", "102_7"]
    old, first, second = trace.jobs
    assert (first.ask.nodes, first.ask.ntasks, first.ask.cpus_per_task, first.ask.gpus_per_node, first.ask.mem) == (
        [2, 2], 2, 8, "h100:2", 32768,
    )  # fmt: skip
    assert (first.ask.partition, first.ask.account, first.ask.qos, first.user) == ("batch", "physics", "normal", "anna")
    assert (first.runtime, first.limit_seconds, first.waited, first.begin_at) == (3600, 7200, 30, 0)
    assert (second.ask.mem_per_cpu, second.ask.cpus_per_task, second.limit_seconds) == (2048, 3, 600)
    assert second.begin_at - second.submitted_at == 600 and second.waited == 600
    assert (old.ask.mem, old.ask.ntasks, old.ask.cpus_per_task, old.limit_seconds) == (1536, 5, 1, -1)
    assert trace.dropped == {"still running or never ran": 1}


def test_sacct_keeps_what_ran_for_less_than_a_second_and_leaves_out_what_runs(tmp_path: Path) -> None:
    file = tmp_path / "w.txt"
    at = "2026-05-01T08:00:00"
    file.write_text(
        "JobID|Submit|Start|End|Elapsed|State\n"
        f"1|{at}|{at}|{at}|00:00:00|COMPLETED\n"
        f"2|{at}|{at}|{at}|00:00:00|FAILED\n"
        f"3|{at}|{at}|{at}|00:00:00|CANCELLED by 0\n"
        f"4|{at}|{at}|Unknown|01:00:00|RUNNING\n"
        f"5|{at}|{at}|2026-05-01T07:00:00||COMPLETED\n"
    )
    trace = read_trace(file)
    assert [(job.label, job.runtime) for job in trace.jobs] == [("1", 0), ("2", 0)]
    assert trace.dropped == {"still running or never ran": 3}


def test_sbatch_lines_go_through_the_options_of_sbatch() -> None:
    trace = read_trace(DATA / "site_week.events")
    assert [(job.label, job.user, job.submitted_at - LATER) for job in trace.jobs] == [
        ("job_1", "anna", 10),
        ("job_2", "ben", 11),
        ("job_3", "ben", 11),
    ]
    first, second, third = trace.jobs
    assert (first.ask.nodes, first.ask.ntasks, first.ask.mem, first.ask.partition) == ([1, 1], 4, 1000, "main")
    assert (first.runtime, first.limit_seconds) == (120, 300)
    assert second.ask is third.ask
    assert (second.ask.constraint, second.ask.gres, second.limit_seconds) == ("fast", "gpu:1", 86400)
    assert trace.nodes[1].partitions == ("main", "gpu") and trace.nodes[1].features == ("fast", "ib")
    assert trace.dropped == {"never ran": 1}


def test_sbatch_lines_may_place_bundles(tmp_path: Path) -> None:
    file = tmp_path / "placed.events"
    options = "--bundle=cpus=3,gpus=1:2 --place=strict-spread --switches=1@5"
    file.write_text(f"-dt 1 -e submit_batch_job | -sim-walltime 5 {options} x.job\n")
    ask = read_trace(file).jobs[0].ask
    assert (ask.ntasks, ask.cpus_per_task, ask.gpus_per_task, ask.ntasks_per_node) == (2, 3, "1", 1)
    assert ask.switches == "1@5"


def test_philly_rounds_run_times_up_to_usual_limits() -> None:
    trace = read_trace(DATA / "philly.csv")
    assert [job.limit_seconds for job in trace.jobs] == [900, 2000000, 3600]
    assert [job.ask.gpus_per_node for job in trace.jobs] == ["1", "8", "6"]
    assert trace.jobs[2].ask.nodes == [2, 2]
    assert trace.dropped == {"no GPUs": 1}


def test_philly_jobs_that_end_before_they_begin_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "philly.csv"
    day = "2017-10-01 12:00:00"
    file.write_text(f"submit_time,duration_s,num_gpus,vc\n{day},-5,1,a\n{day},5,0,a\n{day},5,1,a\n")
    trace = read_trace(file)
    assert (len(trace.jobs), trace.dropped) == (1, {"never ran": 1, "no GPUs": 1})


def test_openb_reads_models_that_the_nodes_have() -> None:
    trace = read_trace(DATA / "openb.csv")
    whole, part = trace.jobs
    assert (whole.ask.cpus_per_task, whole.ask.mem, whole.ask.gpus_per_node) == (12, 16384, "1")
    assert (whole.runtime, whole.limit_seconds, whole.waited) == (990, 3600, 10)
    assert (part.ask.cpus_per_task, part.ask.constraint) == (2, "P100")
    assert [(one.names, one.cpus, one.gpus, one.gpu_type) for one in trace.nodes] == [
        ("node-0", 32, 0, ""),
        ("node-1", 16, 2, "P100"),
    ]
    assert trace.dropped == {"never ran": 1}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("1 2 3 4 5 6\n", 1, "6 columns where the Standard Workload Format has 18"),
        ("1 0 0 5 1 -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n1 0 0 5 x -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n", 2, "column 5"),
        ("JobID|Submit|Start|Elapsed\n1|yesterday|2026-05-01T08:00:00|00:01:00\n", 2, "Submit is 'yesterday'"),
        ("JobID|Submit|Start|Elapsed\n1|2026-05-01T08:00:00|2026-05-01T08:00:00|soon\n", 2, "Elapsed is 'soon'"),
        ("JobID|Submit|Start|Elapsed\n1|2026-05-01T08:00:00\n", 2, "2 columns where the header has 4"),
        ("JobID|Submit|Elapsed\n", 1, "no column Start"),
        ("JobID|Submit|Start\n", 1, "no column Elapsed"),
        ("-dt 1 -e submit_batch_job | -sim-walltime 5 -n 1 x.job\n-dt ?\n", 2, "not a submission"),
        ("-dt 1 -e submit_batch_job | -sim-walltime 5 --nonsense x.job\n", 1, "unrecognized option"),
        ("-dt 1.2.3 -e submit_batch_job | -sim-walltime 5 -n 1 x.job\n", 1, "not a submission"),
        ("-dt 1 -e submit_batch_job | -sim-walltime 5-5 -n 1 x.job\n", 1, "not a submission"),
        ("submit_time,duration_s,num_gpus,vc\n2017-10-01 12:00:00,inf,1,a\n", 2, "not a job"),
        ("submit_time,duration_s,num_gpus,vc\nnow,1,1,a\n", 2, "not a job"),
        ("name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\na,1,x,0,0,1\n", 2, "not a task"),
        ("JobID|Submit|Start|Elapsed\n1|\u00b2|2026-05-01T08:00:00|00:01:00\n", 2, "Submit is"),
        ("JobID|Submit|Start|Elapsed|NNodes\n1|5|5|1|\u00b2\n", 2, "NNodes is"),
        (f"JobID|Submit|Start|Elapsed|NNodes\n1|5|5|1|{'9' * 5000}\n", 2, "NNodes is"),
        (f"JobID|Submit|Start|Elapsed|ReqMem\n1|5|5|1|{'9' * 400}.5M\n", 2, "ReqMem is"),
        (f"-dt {'9' * 400} -e submit_batch_job | -sim-walltime 5 -n 1 x.job\n", 1, "not a submission"),
        ("name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\na,1,1,0,0,1e999\n", 2, "not a task"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, line: int, words: str) -> None:
    file = tmp_path / "w.txt"
    file.write_text(text)
    with pytest.raises(MusterError) as caught:
        read_trace(file)
    assert f"{file}:{line}: " in caught.value.sentence
    assert words in caught.value.sentence
    assert caught.value.hint


@pytest.mark.parametrize("content", [b"", b"hello world\n", b"a,b,c\n1,2,3\n", b"\xff\xfe\x00", b"\x1f\x8bnot really"])
def test_what_is_no_workload_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "w"
    file.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        read_trace(file)
    assert str(file) in caught.value.sentence and "\n" not in caught.value.sentence and caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        f"1 {10**18} 0 5 1 -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n",
        f"1 0 0 {10**18} 1 -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n",
        f"1 0 0 5 1 -1 -1 1 {10**22} -1 1 1 1 -1 1 -1 -1 -1\n",
        f"1 0 {10**22} 5 1 -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n",
        f"JobID|Submit|Eligible|Start|Elapsed\n1|5|{10**17}|5|1\n",
        "submit_time,duration_s,num_gpus,vc\n2017-10-01 12:00:00,1e22,1,a\n",
        f"submit_time,duration_s,num_gpus,vc\n2017-10-01 12:00:00,1,1,{'a' * 200_000}\n",
    ],
)
def test_what_no_column_holds_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "w"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=r"is over \d+ seconds|is no table") as caught:
        read_trace(file)
    assert str(file) in caught.value.sentence and caught.value.hint


def test_a_node_that_nobody_has_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.swf"
    file.write_text(f"; MaxProcs: {10**12}\n1 0 0 5 1 -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(InvalidInput, match="node n1 has 1000000000000 CPUs, not 0 to") as caught:
        read_trace(file)
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        read_trace(tmp_path / "none.swf")


def test_a_machines_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.swf").write_text((DATA / "shapes.swf").read_text())
    (tmp_path / "x.swf.machines").write_text("0\tbig\tmany\n")
    with pytest.raises(InvalidInput, match=r"x.swf.machines:1: not a machine"):
        read_trace(tmp_path / "x.swf")

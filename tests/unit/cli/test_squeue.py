"""squeue against a served state: layouts byte for byte, filters, errors and exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctld.core.apply.indexes import put
from ctld.core.model import Allocation, FineRequest, GpuRequest, Job, NodeShare, Step
from ctld.core.plan import Plan, Wait
from ctld.core.state import State
from muster.ids import JobId, StepId, UnixTime
from muster.states import COMPLETING, REQUEUED, JobState, Reason
from tests.builders import NOON, a_job, a_partition, a_spec, a_state
from tests.served import Served, StandingClock, run, served
from tests.serving import SOURCE

HEADER = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
STATES = (
    "pending,running,suspended,completed,cancelled,failed,timeout,node_fail,preempted,boot_fail,deadline,out_of_memory,"
    "completing,configuring,expediting,resizing,resv_del_hold,requeued,requeue_fed,requeue_hold,revoked,signaling,"
    "special_exit,stage_out,stopped"
)


def running(job: Job, nodes: tuple[int, ...], *, since: int = NOON, **fields: object) -> Job:
    from msgspec.structs import replace

    shares = tuple(NodeShare(node=node, cpus=2, cores=(0, 1), memory_mib=1024, gpus=(0, 1)) for node in nodes)
    changed: dict[str, object] = {
        "state": int(JobState.RUNNING),
        "started_at": UnixTime(since),
        "alloc": Allocation(partition=job.spec.partitions[0], shares=shares),
        **fields,
    }
    return replace(job, **changed)


def a_cluster() -> State:
    state = a_state(
        8, partitions=(a_partition("gpu", nodes=8, default=True), a_partition("dark", nodes=1, hidden=True))
    )
    alice: dict[str, Any] = {"user": "alice", "uid": 1000, "group": "users", "gid": 100, "partitions": ("gpu",)}
    for job in (
        a_job(101, spec=a_spec(name="trainarray", array=(5, 9), **alice), priority=50, array_limit=2),
        running(a_job(102, spec=a_spec(name="train2", nodes_min=2, **alice), limit_seconds=1800), (0, 1)),
        a_job(103, spec=a_spec(name="wide", user="bob", uid=1001, partitions=("gpu",), account="lab"), priority=70),
        running(
            a_job(104, spec=a_spec(name="broken", **alice)),
            (2,),
            state=int(JobState.FAILED),
            ended_at=UnixTime(NOON + 3),
            reason="NonZeroExitCode",
            exit_status=256,
        ),
        running(
            a_job(105, spec=a_spec(name="leaving", **alice)),
            (3,),
            state=int(JobState.COMPLETED),
            flags=COMPLETING,
            completing=(3,),
            ended_at=UnixTime(NOON + 4),
        ),
        a_job(106, spec=a_spec(name="unseen", user="bob", uid=1001, partitions=("dark",)), priority=60),
    ):
        put(state, None, job)
    state.steps[102] = {
        0: Step(
            job_id=JobId(102),
            step_id=StepId(0),
            name="work",
            uid=1000,
            created_at=UnixTime(NOON + 2),
            shares=state.jobs[102].alloc.shares,  # type: ignore[union-attr]
            ntasks=4,
        )
    }
    state.next_job_id = JobId(200)
    return state


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    waits = {
        101: Wait(Reason.ARRAY_LIMIT),
        103: Wait(Reason.NODE_NOT_AVAIL, "ReqNodeNotAvail, UnavailableNodes:n3", UnixTime(NOON + 3600), (4, 5)),
    }
    with served(
        a_cluster(),
        tmp_path_factory.mktemp("squeue"),
        overlay=Plan(made_at=NOON, waits=waits),
        clock=StandingClock(UnixTime(NOON + 4)),
    ) as serving:
        yield serving


def test_the_default_layout_is_slurms_and_sorted_by_partition_state_and_priority(cluster: Served) -> None:
    assert cluster.out("squeue") == HEADER + (
        "               103       gpu     wide      bob PD       0:00      1 (ReqNodeNotAvail, UnavailableNodes:n3)\n"
        "       101_[5-9%2]       gpu trainarr    alice PD       0:00      1 (JobArrayTaskLimit)\n"
        "               102       gpu   train2    alice  R       0:04      2 n[1-2]\n"
        "               105       gpu  leaving    alice CG       0:04      1 n4\n"
    )


def test_the_long_layout_begins_with_the_date(cluster: Served) -> None:
    date, header, row = cluster.out("squeue", "-l", "-j", "102").splitlines()
    assert len(date) == len("Thu May 01 13:00:00 2026")
    assert date.split()[0] in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    assert (
        header == "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)"
    )
    assert row == "               102       gpu   train2    alice  RUNNING       0:04     30:00      2 n[1-2]"


def test_start_shows_what_is_planned_for_pending_jobs(cluster: Served) -> None:
    assert cluster.out("squeue", "--start", "-u", "1001") == (
        "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           "
        "NODELIST(REASON)\n"
        "               103       gpu     wide      bob PD 2025-06-15T16:06:40      1 n[5-6]               "
        "(ReqNodeNotAvail, UnavailableNodes:n3)\n"
    )


def test_steps_lists_the_batch_script_and_the_numbered_ones(cluster: Served) -> None:
    assert cluster.out("squeue", "-s") == (
        "         STEPID     NAME PARTITION     USER      TIME NODELIST\n"
        "      102.batch    batch       gpu    alice      0:04 n1\n"
        "          102.0     work       gpu    alice      0:02 n[1-2]\n"
    )
    assert cluster.out("squeue", "-h", "-s102.0", "-o", "%i %l") == "102.0 UNLIMITED\n"
    assert cluster.out("squeue", "-hs", "102.7") == ""


def test_letters_take_widths_sides_and_text_between(cluster: Served) -> None:
    # B-06 and clients: text is copied to the header too, values are cut to their width.
    assert (
        cluster.out("squeue", "-j", "102", "-o", "<%A>%.5u|%3N|%2M %%") == "<JOBID> USER|NOD|TI \n<102>alice|n[1|0: \n"
    )
    assert cluster.out("squeue", "-hj102", "-o", "%p %Q %m %k %b %E %K %F") == (
        "0.00000002328306 100 0 (null) N/A (null) N/A 102\n"
    )


def test_an_unknown_letter_is_told_and_printed_as_it_stands(cluster: Served) -> None:
    done = cluster.run("squeue", "-j102", "-o", "%-8i|%i")
    assert (done.returncode, done.stdout) == (0, "%-8i|JOBID\n%-8i|102\n")
    assert done.stderr == "squeue: error: Invalid job format specification: -\n"


def test_names_are_twenty_wide_unless_told_otherwise(cluster: Served) -> None:
    assert cluster.out("squeue", "-j", "102", "-O", "JobID,numnodes:5|,State:.9,Name:") == (
        "JOBID               NODES|    STATENAME\n102                 2    |  RUNNINGtrain2\n"
    )
    done = cluster.run("squeue", "-j", "102", "-O", "Runtime,nodelist:")
    assert (done.returncode, done.stdout) == (0, "NODELIST\nn[1-2]\n")
    assert done.stderr == "squeue: error: Invalid job format specification: Runtime\n"


def test_a_user_is_a_name_or_a_number_and_a_wrong_one_is_dropped(cluster: Served) -> None:  # B-20
    assert cluster.out("squeue", "-hu", "1001", "-o", "%i") == "103\n"
    assert cluster.out("squeue", "-hu", "root", "-o", "%i") == ""
    done = cluster.run("squeue", "-u", "no-such-user")
    assert (done.returncode, done.stdout, done.stderr) == (0, HEADER, "squeue: error: Invalid user: no-such-user\n\n")
    done = cluster.run("squeue", "-hu", "no-such-user,1001", "-o", "%i")
    assert (done.returncode, done.stdout) == (0, "103\n")


def test_an_unknown_node_is_an_error_that_names_it(cluster: Served) -> None:  # B-20
    done = cluster.run("squeue", "-w", "n1,zz9")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "squeue: error: Invalid node name zz9\n")
    assert cluster.out("squeue", "-hw", "n[2-3]", "-o", "%i") == "102\n"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("-t", "all", "-S", "i"), "101_[5-9%2] 102 103 104 105"),
        (("-t", "failed,cg", "-S", "-i"), "105 104"),
        (("-t", "PD"), "103 101_[5-9%2]"),
        (("-p", "dark"), ""),
        (("-ap", "dark"), "106"),
        (("-A", "lab"), "103"),
        (("-q", "normal", "-n", "wide,train2"), "103 102"),
        (("-p", "nowhere"), ""),
        (("-r", "-t", "PD", "-u", "1000"), "101_5 101_6 101_7 101_8 101_9"),
        (("-j", "101_6"), "101_[6%2]"),
        (("-j", "101_77"), ""),
        (("-j", "101,102"), "101_[5-9%2] 102"),
        (("-t", "R", "-j"), "102"),
    ],
)
def test_filters_are_the_controllers_work(cluster: Served, argv: tuple[str, ...], shown: str) -> None:
    assert cluster.out("squeue", "-h", "-o", "%i", *argv).split() == shown.split()


def test_a_job_that_was_known_is_over_and_one_never_issued_is_an_error(cluster: Served) -> None:  # N-07
    assert cluster.out("squeue", "-j", "104") == HEADER  # finished, still in memory
    assert cluster.out("squeue", "-j", "150") == HEADER  # issued once, purged
    assert cluster.out("squeue", "-j", "104,999") == HEADER
    done = cluster.run("squeue", "-j", "999")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "slurm_load_jobs error: Invalid job id specified\n"


def test_failed_jobs_show_their_reason_in_the_place_of_nodes(cluster: Served) -> None:
    assert (
        cluster.out("squeue", "-hj", "104", "-t", "all", "-o", "%t %R %M %r")
        == "F (NonZeroExitCode) 0:03 NonZeroExitCode\n"
    )


@pytest.mark.parametrize(
    ("argv", "code", "out", "err"),
    [
        (("-Z",), 1, "", "squeue: invalid option -- 'Z'\nTry \"squeue --help\" for more information\n"),
        (("--foo",), 1, "", "squeue: unrecognized option '--foo'\nTry \"squeue --help\" for more information\n"),
        (("-j", "abc"), 1, "", "squeue: error: Invalid job id: abc\n"),
        (("-S", "x,!"), 1, "", "squeue: error: Invalid sort specification: !\n"),
        (
            ("-t", "xyz"),
            1,
            "",
            f"squeue: error: Invalid job state specified: xyz\nsqueue: error: Valid job states include: {STATES}\n\n",
        ),
        (
            ("-l", "-o", "%i"),
            1,
            "",
            "squeue: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.\n",
        ),
        (("--json",), 1, "", "squeue: error: --json is not supported by this release of Muster\n"),
    ],
)
def test_refusals_are_worded_as_slurms(cluster: Served, argv: tuple[str, ...], code: int, out: str, err: str) -> None:
    done = cluster.run("squeue", *argv)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_a_stray_word_gives_the_usage_and_its_name(cluster: Served) -> None:
    done = cluster.run("squeue", "-j", "102", "103")
    assert done.returncode == 1
    assert done.stdout.startswith("Usage: squeue ")
    assert "--federation" not in done.stdout  # what is refused is not offered
    assert done.stderr == "squeue: error: Unrecognized option: 103\n"


def test_the_environment_gives_defaults_that_options_override(cluster: Served) -> None:
    assert cluster.out("squeue", "-h", SQUEUE_FORMAT="%i", SQUEUE_USERS="1001") == "103\n"
    assert cluster.out("squeue", "-hu1000", "-tR", "-o", "%j", SQUEUE_FORMAT="%i", SQUEUE_USERS="1001") == "train2\n"
    assert cluster.out("squeue", "-h", SQUEUE_FORMAT2="jobid:4,state:", SQUEUE_STATES="RUNNING") == "102 RUNNING\n"
    assert cluster.out("squeue", "-h", SQUEUE_SORT="-j", SQUEUE_FORMAT="%j", SQUEUE_PARTITION="gpu").split() == [
        "wide",
        "trainarray",
        "train2",
        "leaving",
    ]


def test_another_cluster_is_refused_and_this_one_named(cluster: Served) -> None:
    assert cluster.out("squeue", "-M", "cluster", "-j", "150") == "CLUSTER: cluster\n" + HEADER
    done = cluster.run("squeue", "-M", "mars")
    assert done.returncode == 1
    assert done.stderr == (
        "squeue: error: No cluster 'mars' known by database.\n"
        "squeue: this controller speaks for the cluster 'cluster' only\n"
        "squeue: fatal: Could not get cluster information\n"
    )


def test_without_a_controller_the_library_says_so(tmp_path: Path) -> None:
    done = run("squeue", socket=tmp_path / "nobody")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first == "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    assert str(tmp_path / "nobody") in second


def test_the_text_of_array_members_is_cut_as_slurm_cuts_it(tmp_path: Path) -> None:
    state = a_state()
    spread = tuple(number for first in range(0, 90, 3) for number in (first, first + 1))
    put(state, None, a_job(7, spec=a_spec(array=spread)))
    state.next_job_id = JobId(8)
    with served(state, tmp_path) as serving:
        short = serving.out("squeue", "-ho", "%i")
        assert short == "7_[0-1,3-4,6-7,9-10,12-13,15-16\n"
        assert len(short) == 31 + 1
        whole = serving.out("squeue", "-ho", "%i", SLURM_BITSTR_LEN="0")
        assert whole == f"7_[{','.join(f'{first}-{first + 1}' for first in range(0, 90, 3))}]\n"


def test_what_a_job_asks_of_sockets_cores_and_licences_is_shown(tmp_path: Path) -> None:
    state = a_state(2)
    fine = FineRequest(
        sockets_per_node=2, threads_per_core=1, ntasks_per_core=3, ntasks_per_socket=4, thread_spec=5,
        gpus_per_socket=(GpuRequest("", 1),),
    )  # fmt: skip
    put(state, None, a_job(1, spec=a_spec(fine=fine, licenses="matlab:2", time_min_minutes=90)))
    put(state, None, a_job(2, spec=a_spec(fine=FineRequest(core_spec=1))))
    put(state, None, a_job(3, spec=a_spec()))
    with served(state, tmp_path, clock=StandingClock(NOON)) as serving:
        assert serving.out("squeue", "-h", "-Si", "-o", "%H|%I|%J|%z|%W|%X").splitlines() == [
            "2|*|1|2:*:1|matlab:2|5 Threads",
            "*|*|*|*:*:*|(null)|1",
            "*|*|*|*:*:*|(null)|N/A",
        ]
        names = "mintime:.9,ntpercore:.4,ntpersocket:.4,tres-per-socket:.12,licensesalloc:.7"
        assert serving.out("squeue", "-h", "-Si", "-O", names).splitlines() == [
            "  1:30:00   3   4  gres/gpu:1 (null)",
            *["      N/A N/A N/A         N/A (null)"] * 2,
        ]


def test_columns_of_placement_say_what_was_asked_for(tmp_path: Path) -> None:
    state = a_state()
    asked = a_spec(switches=2, switches_wait_seconds=90, segment=4, contiguous=True, prefer="avx")
    put(state, None, a_job(1, spec=asked))
    put(state, None, a_job(2, spec=a_spec()))
    with served(state, tmp_path, clock=StandingClock(NOON)) as serving:
        names = "reqswitch:.2,wait4switch:.4,segmentsize:.4,prefer:.7,contiguous:.2"
        assert serving.out("squeue", "-h", "-Si", "-O", names).splitlines() == [
            " 2  90   4    avx 1",
            " 0   0 N/A (null) 0",
        ]
        assert serving.out("squeue", "-h", "-Si", "-o", "%O").split() == ["1", "0"]


def test_many_ids_travel_in_the_body_of_the_question(cluster: Served) -> None:
    ids = ",".join(str(number) for number in range(102, 5000))
    assert cluster.out("squeue", "-h", "-tall", "-Si", "-o", "%i", "-j", ids).split() == ["102", "103", "104", "105"]


def test_a_requeued_job_waits_again_while_its_old_run_is_cleaned_up(tmp_path: Path) -> None:
    state = a_state(partitions=(a_partition("main"), a_partition("other", nodes=1)))
    job = a_job(1, spec=a_spec(partitions=("main", "other")), begin_at=UnixTime(NOON + 120), eligible_at=UnixTime(0))
    put(state, None, running(job, (0,), state=int(JobState.PENDING), flags=COMPLETING | REQUEUED, completing=(0,)))
    state.next_job_id = JobId(2)
    with served(state, tmp_path) as serving:
        assert serving.out("squeue", "-ho", "%i %P %t %M %R %S") == (
            "1 main,other CG 0:00 (BeginTime) 2025-06-15T15:08:40\n"
        )
        assert serving.out("squeue", "-ho", "%i", "-w", "n1") == "1\n"
        assert serving.out("squeue", "-ho", "%i", "-w", "n2") == ""


def test_iterate_prints_again_until_it_is_ended(cluster: Served) -> None:
    start = f"import sys; sys.path[:0] = [{str(SOURCE)!r}]; from cli.squeue import main; sys.exit(main(sys.argv[1:]))"
    environment = {"MUSTER_SOCKET": str(cluster.socket), "TZ": "UTC"}
    command = [sys.executable, "-I", "-S", "-c", start, "-i", "1", "-j", "150"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(5)]
        finally:
            process.terminate()
    assert [lines[1], lines[2], lines[4]] == [HEADER, "\n", HEADER]
    assert len(lines[0]) == len(lines[3]) == len("Thu May 01 13:00:00 2026\n")


def test_version_and_states_are_told_without_a_controller(tmp_path: Path) -> None:
    assert run("squeue", "-V", socket=tmp_path / "x").stdout.startswith("slurm 26.05.0 (muster ")
    assert run("squeue", "--helpstate", socket=tmp_path / "x").stdout == STATES.replace(",", "\n") + "\n"
    helped = run("squeue", "--help", socket=tmp_path / "x")
    assert helped.returncode == 0
    assert "--states" in helped.stdout

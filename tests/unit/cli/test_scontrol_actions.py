"""scontrol's keywords that change something, against a controller."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ctld.core.model import UNLIMITED, Caller
from muster.ids import NO_TASK
from muster.states import JobState
from tests.builders import ADMIN
from tests.serving import Ran, Served, ended, started

SILENT = (0, "", "")
SOMEBODY = Caller(uid=4321, gid=4321)


@pytest.fixture
def jobs(served: Served) -> Served:
    """Jobs 1 (one, pending), 2 (two, running), 3 (three, over), and array 4 (0-3, pending)."""
    for name in ("one", "two", "three"):
        assert served.run("sbatch", "-J", name, "-t", "60", "--wrap", "true").code == 0
    assert served.run("sbatch", "-J", "four", "--array=0-3", "--wrap", "true").code == 0
    started(served, 2)
    started(served, 3)
    ended(served, 3)
    return served


def scontrol(served: Served, *words: str, cwd: Path | None = None) -> Ran:
    return served.run("scontrol_actions:run", *words, cwd=cwd)


def test_hold_and_release_are_silent_and_set_the_priority(jobs: Served) -> None:
    before = jobs.job(1).priority
    assert scontrol(jobs, "hold", "1", "2") == SILENT
    assert [(jobs.job(i).hold, jobs.job(i).priority) for i in (1, 2)] == [("user", 0), ("user", 0)]
    assert scontrol(jobs, "release", "1,2") == SILENT
    assert (jobs.job(1).hold, jobs.job(1).priority) == ("", before)


def test_an_administrators_hold_is_not_for_the_owner_to_release_but_uhold_is(jobs: Served) -> None:
    jobs.caller = ADMIN if os.getuid() else Caller(uid=77, gid=77, admin=True)
    assert scontrol(jobs, "hold", "1") == SILENT
    assert scontrol(jobs, "uhold", "2") == SILENT
    jobs.caller = None
    refused = scontrol(jobs, "release", "1")
    assert (refused.code, refused.lines[:2]) == (
        1,
        ["Access/permission denied for job 1", "slurm_suspend error:Access/permission denied"],
    )
    assert scontrol(jobs, "release", "2") == SILENT
    assert (jobs.job(1).hold, jobs.job(2).hold) == ("admin", "")


def test_hold_works_for_a_whole_array_and_then_for_one_member_and_the_other_way_round(jobs: Served) -> None:
    def held() -> dict[int, bool]:
        """Array index (-1: the rest) -> held."""
        records = [jobs.job(i) for i in sorted(jobs.state.by_array[4])]
        assert all((job.priority == 0) == bool(job.hold) for job in records)
        return {job.array_task_id: bool(job.hold) for job in records}

    assert scontrol(jobs, "hold", "4") == SILENT
    assert held() == {NO_TASK: True}
    assert scontrol(jobs, "release", "4_2") == SILENT
    assert held() == {NO_TASK: True, 2: False}
    assert scontrol(jobs, "release", "4") == SILENT
    assert held() == {NO_TASK: False, 2: False}
    assert scontrol(jobs, "hold", "4_0") == SILENT
    assert held() == {NO_TASK: False, 2: False, 0: True}
    assert scontrol(jobs, "hold", "4") == SILENT
    assert held() == {NO_TASK: True, 2: True, 0: True}


def test_unknown_jobs_are_named_in_slurms_lines(jobs: Served) -> None:
    for keyword in ("hold", "release", "uhold"):
        assert scontrol(jobs, keyword, "999") == (
            1,
            "",
            "Invalid job id specified for job 999\nslurm_suspend error:Invalid job id specified\n",
        )
    assert scontrol(jobs, "hold", "4_[7]") == (1, "", "4_[7]: Invalid job id specified\n")
    assert scontrol(jobs, "hold", "4_7") == (1, "", "4_[7]: Invalid job id specified\n")
    assert scontrol(jobs, "requeue", "999") == (1, "", "Invalid job id specified for job 999\n")
    assert scontrol(jobs, "update", "JobId=999", "comment=x") == (1, "", "Invalid job id specified for job 999\n")
    assert scontrol(jobs, "hold", "x").lines[0] == "JobID includes unexpected non-numeric characters for job x"


def test_those_that_can_be_changed_are_and_the_exit_code_tells_of_the_others(jobs: Served) -> None:
    done = scontrol(jobs, "hold", "999,1", "998")
    assert done.code == 1
    assert [line for line in done.lines if " for job " in line] == [
        "Invalid job id specified for job 999",
        "Invalid job id specified for job 998",
    ]
    assert jobs.job(1).hold == "user"


def test_jobs_are_named_by_name_too(jobs: Served) -> None:
    assert scontrol(jobs, "hold", "jobname=one") == SILENT
    assert jobs.job(1).hold == "user"
    assert scontrol(jobs, "release", "name=one") == SILENT
    assert jobs.job(1).hold == ""
    assert scontrol(jobs, "hold", "name=nobody").lines[0] == "Invalid job id specified for job nobody"


def test_requeue_works_for_running_and_finished_jobs_and_not_for_pending_ones(jobs: Served) -> None:
    assert scontrol(jobs, "requeue", "2", "3") == SILENT
    kill = jobs.job(2).kill
    assert kill is not None
    assert kill.requeue
    ended(jobs, 2, 15)
    for job_id in (2, 3):
        job = jobs.job(job_id)
        assert (job.state, job.restarts, job.hold) == (JobState.PENDING, 1, "")
    assert scontrol(jobs, "requeue", "1") == (1, "", "Job is pending execution for job 1\n")


def test_requeuehold_holds_too(jobs: Served) -> None:
    assert scontrol(jobs, "requeuehold", "3") == SILENT
    job = jobs.job(3)
    assert (job.restarts, job.priority, job.state_text) == (1, 0, "job requeued in held state")


def test_a_job_that_may_not_be_requeued_is_refused(jobs: Served) -> None:
    assert jobs.run("sbatch", "--no-requeue", "--wrap", "true").code == 0
    started(jobs, 5)
    done = scontrol(jobs, "requeue", "5")
    assert (done.code, done.lines[0]) == (1, "Requested operation is presently disabled for job 5")


def test_update_changes_the_fields_named_and_no_others(jobs: Served) -> None:
    assert scontrol(
        jobs, "update", "JobId=1", "TimeLimit=1:30:00", "comment=a = b", "Nice=7", "name=new", "Requeue=0"
    ) == (SILENT)
    job = jobs.job(1)
    assert (job.limit_seconds, job.spec.comment, job.nice, job.spec.name, job.spec.requeue) == (
        5400,
        "a = b",
        7,
        "new",
        False,
    )
    assert job.spec.partitions == ("main",)
    assert scontrol(jobs, "update", "job", "1", "timel=+10") == SILENT
    assert jobs.job(1).limit_seconds == 6000
    assert scontrol(jobs, "update", "job=1", "timelimit=-10") == SILENT
    assert jobs.job(1).limit_seconds == 5400
    assert scontrol(jobs, "update", "job=1", "timelimit=UNLIMITED", "nice") == SILENT
    assert (jobs.job(1).limit_seconds, jobs.job(1).nice) == (UNLIMITED, 100)
    assert scontrol(jobs, "update", "JobName=two", "comment=x") == SILENT
    assert jobs.job(2).spec.comment == "x"
    assert scontrol(jobs, "update", "JobId=1,2", "comment=y") == SILENT
    assert [jobs.job(i).spec.comment for i in (1, 2)] == ["y", "y"]
    assert scontrol(jobs, "update", "jobid=1", "dependency=afterany:2") == SILENT
    assert [clause.kind for clause in jobs.job(1).clauses] == ["afterany"]
    assert scontrol(jobs, "update", "jobid=1", "dependency=") == SILENT
    assert jobs.job(1).clauses == ()
    assert scontrol(jobs, "update", "jobid=1", "starttime=2100-01-01T00:00:00") == SILENT
    assert jobs.job(1).begin_at > 4_000_000_000
    assert scontrol(jobs, "update", "jobid=4", "ArrayTaskThrottle=2") == SILENT
    assert jobs.job(4).array_limit == 2
    assert scontrol(jobs, "update", "jobid=1", "switches=2@10", "contiguous=yes") == SILENT
    request = jobs.job(1).spec.request
    assert (request.switches, request.switches_wait_seconds, request.contiguous) == (2, 600, True)
    assert scontrol(jobs, "update", "jobid=1", "switches=0", "con=0", "prefer=", "segmentsize=0", "topology=") == SILENT
    request = jobs.job(1).spec.request
    assert (request.switches, request.contiguous, request.segment, request.topology) == (0, False, 0, "")


def test_a_text_that_is_no_utf8_is_refused(jobs: Served) -> None:
    done = scontrol(jobs, "update", "jobid=1", os.fsdecode(b"comment=caf\xe9"))
    assert done == (1, "", "scontrol: error: the value of comment is not valid UTF-8 text\n")


def test_updating_one_member_of_an_array_splits_it_off(jobs: Served) -> None:
    assert scontrol(jobs, "update", "JobId=4_2", "name=split") == SILENT
    assert (jobs.job(5).array_job_id, jobs.job(5).array_task_id, jobs.job(5).spec.name) == (4, 2, "split")
    assert (jobs.job(4).array_pending, jobs.job(4).spec.name) == ((0, 1, 3, 3), "four")
    assert scontrol(jobs, "update", "JobId=5", "comment=own id") == SILENT
    assert jobs.job(5).spec.comment == "own id"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], ["too few arguments for update keyword"]),
        (
            ["foo=1"],
            [
                "No valid entity in update command",
                'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"',
            ],
        ),
        (["jobid=1"], ["No changes specified"]),
        (["jobid=1", "Foo=1"], ["Update of this parameter is not supported: Foo=1", "Request aborted"]),
        (["jobid=1", "Account=x"], ["Update of this parameter is not supported: Account=x", "Request aborted"]),
        (["jobid=1", "timelimit=5m"], ["scontrol: error: Invalid TimeLimit value"]),
        (["jobid=1", "timelimit="], ["scontrol: error: Invalid TimeLimit value"]),
        (["jobid=1", "timelimit=+UNLIMITED"], ["scontrol: error: Invalid TimeLimit value"]),
        (["jobid=1", "starttime=soon"], ["Invalid time specification (pos=0): soon", "No changes specified"]),
        (
            ["jobid=1", "requeue=2"],
            ["scontrol: error: Invalid value in requeue=2: write a number from 0 to 1"],
        ),
        (["jobid=2", "partition=main"], ["Job is no longer pending execution for job 2"]),
        (["jobid=3", "comment=x"], ["Job has already finished for job 3"]),
        (["jobid=1", "dependency=what:1"], ["Job dependency problem for job 1"]),
        (
            ["jobid=1", "priority=5"],
            ["Changes to job priority are not persistent, change nice instead for job 1"],
        ),
        (["jobid=2", "timelimit=2:00:00"], ["Access/permission denied for job 2"]),
        (
            ["jobid=1", "priority=infinite"],
            ["Changes to job priority are not persistent, change nice instead for job 1"],
        ),
        (["jobid=1", "sitefactor=5"], ["Access/permission denied for job 1"]),
        (["jobid=1", "topology=required:rack"], ["Requested topology configuration is not available for job 1"]),
        (["jobid=1", "switches=x"], ["--switches=x has no number of switches of at least 1 for job 1"]),
        (["jobid=1", "contiguous=x"], ["scontrol: error: Invalid value in contiguous=x: write yes or no"]),
        (["jobid=1", "nice=-5"], ["Access/permission denied for job 1"]),
        (["jobid=1", "timelimit=-90"], ["Requested time limit is invalid (missing or exceeds some limit) for job 1"]),
        (
            ["PartitionName=main", "State=DOWN"],
            ["scontrol: error: update of a partition is not supported by this release of Muster"],
        ),
        (
            ["ReservationName=r", "Duration=1"],
            ["slurm_update error: Invalid user id"],
        ),
    ],
)
def test_updates_that_are_refused(jobs: Served, words: list[str], lines: list[str]) -> None:
    done = scontrol(jobs, "update", *words)
    assert (done.code, done.out) == (1, "")
    # Behind Slurm's lines there may be one of ours that says what would help.
    assert done.lines[: len(lines)] == lines
    assert all(line.startswith("scontrol: ") for line in done.lines[len(lines) :])


def test_the_job_of_somebody_else_is_not_touched(jobs: Served) -> None:
    jobs.caller = SOMEBODY
    for keyword in (["hold"], ["release"], ["update", "comment=x"]):
        job = "jobid=1" if keyword[0] == "update" else "1"
        done = scontrol(jobs, keyword[0], job, *keyword[1:])
        assert (done.code, done.lines[0]) == (1, "Invalid user id for job 1")
    assert scontrol(jobs, "requeue", "2").lines[0] == "Access/permission denied for job 2"
    assert scontrol(jobs, "write", "batch_script", "1", "-") == (
        1,
        "",
        "job script retrieval failed: Access/permission denied\n",
    )
    assert (jobs.job(1).hold, jobs.job(1).spec.comment, jobs.job(2).kill) == ("", "", None)


def test_nodes_are_changed_by_administrators_only(jobs: Served) -> None:
    words = ("update", "NodeName=n[1-2]", "State=DRAIN", "Reason=two words")
    assert scontrol(jobs, *words) == (1, "", "slurm_update error: Invalid user id\n")
    jobs.caller = ADMIN
    assert scontrol(jobs, *words) == SILENT
    assert [(node.drain, node.reason) for node in jobs.state.nodes[:3]] == [
        (True, "two words"),
        (True, "two words"),
        (False, ""),
    ]
    assert scontrol(jobs, "update", "node=n1", "state=resume") == SILENT
    assert not jobs.state.nodes[0].drain
    assert scontrol(jobs, "update", "nodename=n4", "weight=7", "features=a,b") == SILENT
    assert (jobs.state.nodes[3].spec.weight, jobs.state.nodes[3].spec.features) == (7, ("a", "b"))


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["NodeName=n1", "State=DRAIN"], ["You must specify a reason when DOWNING or DRAINING a node. Request denied"]),
        (["NodeName=n1", "State=FAIL"], ["You must specify a reason when DOWNING or DRAINING a node. Request denied"]),
        (["NodeName=zz", "State=RESUME"], ["slurm_update error: Invalid node name specified"]),
        (["NodeName=n1", "State=RESUME"], ["slurm_update error: Invalid node state transition"]),
        (["NodeName=n1", "Foo=1"], ["Update of this parameter is not supported: Foo=1", "Request aborted"]),
        (
            ["NodeName=n1", "State=SLEEPY"],
            [
                "Invalid input: State=SLEEPY",
                "Request aborted",
                "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN",
                "Not all states are valid given a node's prior state",
            ],
        ),
    ],
)
def test_changes_of_nodes_that_are_refused(jobs: Served, words: list[str], lines: list[str]) -> None:
    jobs.caller = ADMIN
    done = scontrol(jobs, "update", *words)
    assert (done.code, done.lines[: len(lines)]) == (1, lines)


def test_the_script_of_a_job_is_written_as_it_was(jobs: Served, tmp_path: Path) -> None:
    data = b"#!/bin/sh\necho \xff\n"
    (tmp_path / "job.sh").write_bytes(data)
    jobs.run("sbatch", str(tmp_path / "job.sh"), cwd=tmp_path)
    assert scontrol(jobs, "write", "batch_script", "5", cwd=tmp_path) == (
        0,
        "batch script for job 5 written to slurm-5.sh\n",
        "",
    )
    assert (tmp_path / "slurm-5.sh").read_bytes() == data
    assert scontrol(jobs, "write", "batch", "1", "-").out.endswith("\n\ntrue\n")
    assert scontrol(jobs, "write", "batch_script", "99") == (
        0,
        "",
        "job script retrieval failed: Invalid job id specified\n",
    )
    assert scontrol(jobs, "write", "batch_script", "5", "no/such/file", cwd=tmp_path).err == (
        "scontrol: error: cannot write no/such/file: No such file or directory\n"
    )
    assert scontrol(jobs, "write", "batch_script").err == "too few arguments for keyword:write\n"


def test_shutdown_is_for_administrators(jobs: Served) -> None:
    assert scontrol(jobs, "shutdown") == (1, "", "slurm_shutdown error: Access/permission denied\n")
    assert not jobs.stopped.is_set()
    jobs.caller = ADMIN
    assert scontrol(jobs, "shutdown", "slurmd").code == 1
    assert not jobs.stopped.is_set()
    assert scontrol(jobs, "shutdown", "slurmctld") == SILENT
    assert jobs.stopped.is_set()


@pytest.mark.parametrize("keyword", ["top", "reboot", "notify", "token"])
def test_keywords_that_are_not_there_yet_are_refused_by_name(jobs: Served, keyword: str) -> None:
    assert scontrol(jobs, keyword, "1") == (
        1,
        "",
        f"scontrol: error: {keyword} is not supported by this release of Muster\n",
    )


@pytest.mark.parametrize("words", [["requeue", "incomplete", "2"], ["requeuehold", "State=SpecialExit", "2"]])
def test_variants_of_requeue_that_are_not_there_yet_are_refused_by_name(jobs: Served, words: list[str]) -> None:
    done = scontrol(jobs, *words)
    assert done.code == 1
    assert f"{words[0]} {words[1]} is not supported" in done.err
    assert jobs.job(2).kill is None


@pytest.mark.parametrize(
    "words", [["hold", "999"], ["update", "jobid=1", "x=1"], ["suspend", "1"], ["release"], ["requeue", "1"]]
)
def test_quiet_leaves_only_the_exit_code(jobs: Served, words: list[str]) -> None:
    call = "import sys; sys.path[:0] = [sys.argv[1]]; from cli.scontrol_actions import run; "
    import subprocess
    import sys

    from tests.serving import SOURCE

    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            call + "sys.exit(run(sys.argv[2], sys.argv[3:], True))",
            str(SOURCE),
            *words,
        ],
        env={"MUSTER_SOCKET": str(jobs.path)},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")

"""srun against real daemons: sizes, output, input, exit codes, signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from muster.errors import Denied
from tests.e2e.conftest import User, acting_as, until


def test_runs_one_task_and_gives_its_output(user: User) -> None:
    assert user.ok("srun", "echo", "hello world") == "hello world\n"


def test_spreads_tasks_over_nodes_with_labels(user: User) -> None:
    out = user.ok("srun", "-N2", "-n4", "-l", "bash", "-c", "echo $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME")
    assert sorted(out.splitlines()) == [
        "0: 0 of 4 on node1",
        "1: 1 of 4 on node1",
        "2: 2 of 4 on node2",
        "3: 3 of 4 on node2",
    ]


def test_labels_are_right_aligned_and_lines_stay_whole(user: User) -> None:
    out = user.ok("srun", "-n11", "-l", "bash", "-c", "for i in 1 2 3; do echo $i; done").splitlines()
    assert len(out) == 33
    assert " 0: 1" in out
    assert "10: 3" in out
    assert all(line[:4].strip().rstrip(":").isdecimal() for line in out)


def test_places_tasks_on_named_nodes_and_keeps_off_excluded_ones(user: User) -> None:
    assert user.ok("srun", "-w", "node2", "printenv", "SLURMD_NODENAME") == "node2\n"
    assert user.ok("srun", "-x", "node1", "printenv", "SLURMD_NODENAME") == "node2\n"


def test_distribution_places_ranks_by_nodes(user: User) -> None:
    script = "echo $SLURM_PROCID $SLURMD_NODENAME"
    cyclic = user.ok("srun", "-N2", "-n4", "-m", "cyclic", "bash", "-c", script)
    assert sorted(cyclic.splitlines()) == ["0 node1", "1 node2", "2 node1", "3 node2"]
    block = user.ok("srun", "-N2", "-n4", "-m", "block", "bash", "-c", script)
    assert sorted(block.splitlines()) == ["0 node1", "1 node1", "2 node2", "3 node2"]
    refused = user.run("srun", "-n2", "-m", "block:cyclic", "true")
    assert refused.code == 1
    assert "--distribution=block:cyclic is not supported by this release of Muster" in refused.err


def test_cpus_per_task_are_told_to_the_task(user: User) -> None:
    script = "echo $SLURM_CPUS_PER_TASK $SLURM_CPUS_ON_NODE $SLURM_NTASKS"
    assert user.ok("srun", "-n2", "-c3", "-N1", "bash", "-c", script).splitlines() == ["3 6 2"] * 2


@pytest.mark.parametrize(
    ("tasks", "script", "code"),
    [
        (1, "exit 7", 7),
        (3, "exit $SLURM_PROCID", 2),
        (2, "test $SLURM_PROCID = 0 && exit 5; kill -TERM $$", 143),
        (2, "test $SLURM_PROCID = 0 && exit 9; kill -KILL $$", 137),
    ],
)
def test_exit_code_is_the_highest_and_a_signal_dominates(user: User, tasks: int, script: str, code: int) -> None:
    done = user.run("srun", f"-n{tasks}", "bash", "-c", script)
    assert done.code == code
    assert "srun: error: node1: task" in done.err


def test_each_way_of_failing_is_said_once_with_its_tasks(user: User) -> None:
    done = user.run("srun", "-n4", "bash", "-c", "exit $((SLURM_PROCID % 2 * 3))")
    assert done.code == 3
    assert done.err == "srun: error: node1: tasks 1,3: Exited with exit code 3\n"


def test_a_missing_program_ends_with_errno(user: User) -> None:
    done = user.run("srun", "no-such-program")
    assert done.code == 2
    assert "error: execve(): no-such-program: No such file or directory" in done.err


def test_no_command_is_an_error(user: User) -> None:
    done = user.run("srun", "-n1")
    assert (done.code, done.err) == (1, "srun: fatal: No command given to execute.\n")


def test_input_goes_to_all_tasks_or_to_one(user: User) -> None:
    assert sorted(user.ok("srun", "-n2", "-l", "cat", stdin="ein Wort\n").splitlines()) == [
        "0: ein Wort",
        "1: ein Wort",
    ]
    assert user.ok("srun", "-n2", "-l", "-i1", "cat", stdin="ein Wort\n") == "1: ein Wort\n"
    assert user.ok("srun", "-n2", "-l", "-i", "none", "cat", stdin="ein Wort\n") == ""
    (user.folder / "in").write_text("aus der Datei\n")
    assert user.ok("srun", "-n1", "-i", "in", "cat") == "aus der Datei\n"


def test_output_goes_to_files_by_pattern(user: User) -> None:
    assert user.ok("srun", "-n2", "-o", "out-%t.txt", "bash", "-c", "echo $SLURM_PROCID; echo err >&2") == ""
    assert (user.folder / "out-0.txt").read_text() == "0\nerr\n"
    assert (user.folder / "out-1.txt").read_text() == "1\nerr\n"
    user.ok("srun", "-n2", "-o", "made/%j.out", "-e", "%j.err", "bash", "-c", "echo o; echo e >&2")
    assert [path.read_text() for path in (user.folder / "made").iterdir()] == ["o\no\n"]
    assert [path.read_text() for path in user.folder.glob("*.err")] == ["e\ne\n"]
    done = user.run("srun", "-o", "/proc/nothing/here", "true")
    assert done.code == 1
    assert "srun: error: Could not open stdout file:" in done.err


def test_output_that_cannot_be_written_is_a_failure(user: User) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            ["srun", "echo", "lost"], cwd=user.folder, env=user.environment, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "srun: error: cannot write the output of tasks: No space left on device\n"


def test_large_output_arrives_whole(user: User) -> None:
    out = user.ok("srun", "-n2", "bash", "-c", "seq 1 200000")
    assert out.count("\n") == 400000


def test_kill_on_bad_exit_ends_the_others(user: User) -> None:
    done = user.run("srun", "-n2", "-K", "bash", "-c", "test $SLURM_PROCID = 0 && exit 1; sleep 300", timeout=40)
    assert done.code == 143
    assert "srun: error: node1: task 0: Exited with exit code 1" in done.err
    assert "DUE TO TASK FAILURE ***" in done.err
    assert "Terminated" in done.err


def test_immediate_gives_up_at_once_and_leaves_nothing(user: User) -> None:
    blocker = user.submit("--exclusive", "-N2", script="#!/bin/sh\nsleep 300\n")
    user.wait_for(blocker, "RUNNING")
    done = user.run("srun", "--immediate", "true")
    assert done.code == 1
    assert "srun: error: Unable to allocate resources: Requested nodes are busy" in done.err
    assert user.ok("squeue", "-h", "-t", "PD") == ""
    user.ok("scancel", str(blocker))


def test_waits_for_resources_and_says_so(user: User) -> None:
    blocker = user.submit("--exclusive", "-N2", script="#!/bin/sh\nsleep 300\n")
    user.wait_for(blocker, "RUNNING")
    waiting = user.start("srun", "echo", "at last")
    assert waiting.stderr is not None
    queued = waiting.stderr.readline()
    job = user.ok("squeue", "-h", "-t", "PD", "-o", "%A").strip()
    assert queued == f"srun: job {job} queued and waiting for resources\n"
    user.ok("scancel", str(blocker))
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (0, "at last\n")
    assert err == f"srun: job {job} has been allocated resources\n"


def test_interrupting_a_waiting_srun_revokes_its_job(user: User) -> None:
    blocker = user.submit("--exclusive", "-N2", script="#!/bin/sh\nsleep 300\n")
    user.wait_for(blocker, "RUNNING")
    waiting = user.start("srun", "true")
    job = until(lambda: user.ok("squeue", "-h", "-t", "PD", "-o", "%A").strip(), "srun's job in the queue")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert f"srun: Job allocation {job} has been revoked" in err
    assert user.ok("squeue", "-h", "-t", "PD") == ""
    user.ok("scancel", str(blocker))


def running_srun(user: User, tmp_path: Path, *options: str, script: str) -> subprocess.Popen[str]:
    """Start srun and return once its task runs."""
    started = user.start("srun", *options, "bash", "-c", f"touch {tmp_path}/runs; {script}")
    until((tmp_path / "runs").exists, "the task to run", user.describe)
    return started


def test_a_first_interrupt_reports_and_a_second_ends(user: User, tmp_path: Path) -> None:
    started = running_srun(user, tmp_path, script="sleep 300")
    started.send_signal(signal.SIGINT)
    assert started.stderr is not None
    assert started.stderr.readline() == "srun: interrupt (one more within 1 sec to abort)\n"
    assert "task 0: running" in started.stderr.readline()
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode in (130, 137)
    assert "srun: sending Ctrl-C to StepId=" in err
    # KillWait=2, and two more.
    assert "srun: Job step aborted: Waiting up to 4 seconds for job step to finish." in err


def test_other_signals_are_forwarded(user: User, tmp_path: Path) -> None:
    started = running_srun(user, tmp_path, script="trap 'echo got it; exit 4' USR1; sleep 300 & wait")
    started.send_signal(signal.SIGUSR1)
    out, _ = started.communicate(timeout=60)
    assert (started.returncode, out) == (4, "got it\n")


def test_terminating_srun_ends_the_step(user: User, tmp_path: Path) -> None:
    started = running_srun(user, tmp_path, script="sleep 300")
    started.terminate()
    _, err = started.communicate(timeout=60)
    assert started.returncode == 137
    assert "srun: forcing job termination" in err
    until(lambda: not user.ok("squeue", "-h"), "the job to be gone", user.describe)


def test_a_step_in_a_job_uses_its_sizes_and_numbers(user: User) -> None:
    job = user.submit(
        "-N2",
        "-n4",
        "-o",
        "job.out",
        script="#!/bin/bash\nsrun -l printenv SLURM_STEP_ID\nsrun -n1 -N1 printenv SLURM_STEP_ID SLURM_JOB_ID\n",
    )
    assert user.ended(job) == "COMPLETED"
    lines = (user.folder / "job.out").read_text().splitlines()
    assert sorted(lines[:4]) == ["0: 0", "1: 0", "2: 0", "3: 0"]
    assert lines[4:] == ["1", str(job)]


def test_an_explicit_memory_option_replaces_the_inherited_one(user: User) -> None:
    job = user.submit(
        "--mem-per-cpu=100",
        "-o",
        "job.out",
        script="#!/bin/bash\nsrun --mem=50 echo step\nsbatch --mem=1G -o /dev/null --wrap true\n",
    )
    assert user.ended(job) == "COMPLETED"
    out = (user.folder / "job.out").read_text()
    assert out.startswith("step\nSubmitted batch job ")


def test_unknown_jobs_are_named(user: User) -> None:
    done = user.run("srun", "--jobid=999999", "true")
    assert done.code == 1
    assert "srun: error: Unable to confirm allocation for job 999999: Invalid job id specified" in done.err


def test_two_concurrent_steps_share_or_wait(user: User) -> None:
    job = user.submit(
        "-n2",
        "-N1",
        "-o",
        "job.out",
        script="#!/bin/bash\nsrun -n1 --exact sleep 1 &\nsrun -n1 --exact sleep 1 &\nwait\nsrun -n2 echo both\n",
    )
    assert user.ended(job) == "COMPLETED"
    assert (user.folder / "job.out").read_text() == "both\nboth\n"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user, which needs root")
def test_another_user_can_neither_make_nor_attach_to_a_step(user: User) -> None:
    job = user.submit(script="#!/bin/sh\nsrun sleep 300\n")
    user.wait_for(job, "RUNNING")
    until(
        lambda: user.ok("squeue", "-h", "-s", "-j", str(job), "-o", "%i").count(f"{job}.0"), "the step", user.describe
    )
    with acting_as(65534):
        with pytest.raises(Denied):
            user.cluster.client().call("POST", f"/v1/jobs/{job}/steps", {"name": "x", "argv": ["id"]})
        with pytest.raises(Denied):
            user.cluster.client().call("POST", f"/v1/jobs/{job}/steps/0/signal?signal=KILL")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(f"{user.cluster.node_socket('node1')}.io")
            connection.sendall(json.dumps({"job": job, "run": 0, "step": 0, "node": "node1"}).encode() + b"\n")
            assert b"error" in connection.recv(4096)
    assert user.state(job) == "RUNNING"
    user.ok("scancel", str(job))

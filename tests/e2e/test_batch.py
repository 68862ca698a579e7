"""Batch jobs on real daemons: surroundings, files, ends, limits, requeue, nodes, and what is shown meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import GOING_ON, Done, User, running, until

PLAN = Plan(
    nodes=2,
    cpus=8,
    memory_mib=16000,
    gpus="h100:4",
    extra="KillWait=2\nSchedulerParameters=requeue_delay=0\n",
)
QUIET = ("-o", "/dev/null")
FOREVER = "#!/bin/sh\nsleep 300\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes."""
    yield from running(PLAN)


@pytest.fixture(scope="module")
def timed(cluster: Cluster, bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[User, dict[str, int]]:
    """Jobs that need their minute to reach a limit: submitted with the first test, looked at by the last one."""
    user = User(cluster, bin_dir, tmp_path_factory.mktemp("timed"))
    scripts = {
        "plain": "#!/bin/bash\nsleep 300\n",
        "step": "#!/bin/bash\ntrap : TERM\nsrun --mem=0 sleep 300\necho told\n",
        "trap": "#!/bin/bash\ntrap 'echo told; exit 4' TERM\nwhile :; do sleep 0.1; done\n",
        "deaf": "#!/bin/bash\ntrap 'echo told' TERM\nwhile :; do sleep 0.1; done\n",
    }
    jobs = {
        name: user.submit("-n1", "--mem=10", "-t1", "-o", f"{name}.out", script=script)
        for name, script in scripts.items()
    }
    return user, jobs


@pytest.fixture(autouse=True)
def started_early(timed: tuple[User, dict[str, int]]) -> None:
    """Have the minute run from the first test on."""


def field(user: User, job: int | str, letters: str) -> str:
    """Give columns of squeue for a job in any state."""
    return user.ok("squeue", "-h", "-t", "all", "-j", str(job), "-o", letters).rstrip("\n")


def shown(user: User, job: int | str) -> dict[str, str]:
    """Give the fields of `scontrol -o show job`; a value with blanks is cut at the first."""
    words = user.ok("scontrol", "-o", "show", "job", str(job)).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def text_of(user: User, job: int, name: str, state: str = "COMPLETED") -> str:
    """Wait until a job has ended and give one of its files."""
    assert user.ended(job) == state, user.describe()
    return (user.folder / name).read_text()


def shell(user: User, script: str) -> Done:
    """Run a shell script as the user, with the commands on its path."""
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=user.folder,
        env=user.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def variables(path: Path) -> dict[str, str]:
    """Read what `env -0` wrote, but for what the test's own surroundings bring."""
    entries = (entry.partition("=") for entry in path.read_text().split("\0") if entry)
    ours = ("SLURM", "CUDA", "MUSTER", "ROCR", "GPU_", "ENVIRONMENT", "HOSTNAME", "TMPDIR", "PMI")
    return {name: value for name, _, value in entries if name.startswith(ours)}


# What a job finds around itself.


def test_a_plain_job_finds_exactly_these_variables(user: User) -> None:
    job = user.submit("-J", "plain", *QUIET, script="#!/bin/sh\nenv -0 > env\n")
    assert user.ended(job) == "COMPLETED"
    found = variables(user.folder / "env")
    begun = int(found.pop("SLURM_JOB_START_TIME"))
    assert abs(begun - time.time()) < 60
    assert int(found.pop("SLURM_TASK_PID")) > 1
    host = os.uname().nodename.partition(".")[0]
    assert found == {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": "node1",
        "MUSTER_SOCKET": str(user.cluster.node_socket("node1")),
        "SLURMD_NODENAME": "node1",
        "SLURM_TOPOLOGY_ADDR": "node1",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURM_CLUSTER_NAME": "muster",
        "SLURM_CONF": str(user.cluster.config),
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": str(job),
        "SLURM_JOB_CPUS_PER_NODE": "1",
        "SLURM_JOB_GID": str(os.getegid()),
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NAME": "plain",
        "SLURM_JOB_NODELIST": "node1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_QOS": "normal",
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_JOB_USER": user.environment["USER"],
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "node1",
        "SLURM_PROCID": "0",
        "SLURM_STEPID": "-5",
        "SLURM_STEP_ID": "-5",
        "SLURM_SUBMIT_DIR": str(user.folder),
        "SLURM_SUBMIT_HOST": host,
        "SLURM_TASKS_PER_NODE": "1",
        "SLURM_UMASK": found["SLURM_UMASK"],
        "TMPDIR": "/tmp",
    }


RICH = ("-N2", "-n3", "-c2", "--gres=gpu:2", "-t", "30", "--mem=1G", "-A", "lab", "--ntasks-per-node=2", "-J", "rich")


def test_a_job_with_sizes_and_gpus_and_its_steps_find_exactly_these(user: User) -> None:
    script = "#!/bin/sh\nenv -0 > batch\nsrun sh -c 'env -0 > step$SLURM_PROCID'\n"
    job = user.submit(*RICH, *QUIET, script=script)
    assert user.ended(job) == "COMPLETED", user.describe()
    batch = variables(user.folder / "batch")
    begun = int(batch.pop("SLURM_JOB_START_TIME"))
    batch.pop("SLURM_TASK_PID")
    common = {
        "SLURM_CLUSTER_NAME": "muster",
        "SLURM_CONF": str(user.cluster.config),
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_GPUS_ON_NODE": "2",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_JOBID": str(job),
        "SLURM_JOB_ACCOUNT": "lab",
        "SLURM_JOB_CPUS_PER_NODE": "4,2",
        "SLURM_JOB_END_TIME": str(begun + 1800),
        "SLURM_JOB_GID": str(os.getegid()),
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NAME": "rich",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_QOS": "normal",
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_JOB_USER": user.environment["USER"],
        "SLURM_MEM_PER_NODE": "1024",
        "SLURM_NNODES": "2",
        "SLURM_NODELIST": "node[1-2]",
        "SLURM_NPROCS": "3",
        "SLURM_NTASKS": "3",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_SUBMIT_DIR": str(user.folder),
        "SLURM_SUBMIT_HOST": os.uname().nodename.partition(".")[0],
        "SLURM_TASKS_PER_NODE": "2,1",
        "SLURM_TRES_PER_TASK": "cpu=2",
        "SLURM_UMASK": batch["SLURM_UMASK"],
        "TMPDIR": "/tmp",
    }
    assert batch == {
        **common,
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": "node1",
        "MUSTER_SOCKET": str(user.cluster.node_socket("node1")),
        "SLURMD_NODENAME": "node1",
        "SLURM_TOPOLOGY_ADDR": "node1",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_GTIDS": "0",
        "SLURM_JOB_GPUS": "0,1",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_STEPID": "-5",
        "SLURM_STEP_ID": "-5",
    }
    places = {0: ("node1", 0, "0,1", 0, "4"), 1: ("node1", 1, "0,1", 0, "4"), 2: ("node2", 0, "2", 1, "2")}
    for rank, (node, local, ranks, index, cpus) in places.items():
        step = variables(user.folder / f"step{rank}")
        address = step.pop("SLURM_LAUNCH_NODE_IPADDR")
        assert re.fullmatch(r"\d+(\.\d+){3}", address)
        assert step.pop("SLURM_SRUN_COMM_HOST") == address
        assert step.pop("SLURM_JOB_GROUP")
        assert step.pop("SLURM_JOB_START_TIME") == str(begun)
        assert int(step.pop("SLURM_TASK_PID")) > 1
        assert step == {
            **common,
            # The batch script's own, which srun passes on like any other.
            "ENVIRONMENT": "BATCH",
            "HOSTNAME": "node1",
            "SLURM_JOB_GPUS": "0,1",
            "MUSTER_SOCKET": str(user.cluster.node_socket(node)),
            "SLURMD_NODENAME": node,
            "SLURM_TOPOLOGY_ADDR": node,
            "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
            "SLURM_CPUS_ON_NODE": cpus,
            "SLURM_GTIDS": ranks,
            "SLURM_LOCALID": str(local),
            "SLURM_NODEID": str(index),
            "SLURM_PROCID": str(rank),
            "SLURM_STEPID": "0",
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_GPUS": "0,1",
            "SLURM_STEP_NODELIST": "node[1-2]",
            "SLURM_STEP_NUM_NODES": "2",
            "SLURM_STEP_NUM_TASKS": "3",
            "SLURM_STEP_TASKS_PER_NODE": "2,1",
        }


def test_options_that_a_job_sees_again(user: User) -> None:
    job = user.submit(
        *("--gpus-per-node=2", "--mem-per-cpu=100", "--open-mode=append", "--export=ALL,X=1", *QUIET),
        script="#!/bin/sh\nenv -0 > env\n",
    )
    assert user.ended(job) == "COMPLETED"
    found = variables(user.folder / "env")
    assert found["SLURM_GPUS_PER_NODE"] == "2"
    assert found["SLURM_MEM_PER_CPU"] == "100"
    assert found["SLURM_EXPORT_ENV"] == "ALL,X=1"
    assert "SLURM_NTASKS" not in found
    assert "SLURM_CPUS_PER_TASK" not in found


def test_members_of_an_array_know_their_place(user: User) -> None:
    array = user.submit("--array=2-8:3", *QUIET, script="#!/bin/sh\nenv -0 > env$SLURM_ARRAY_TASK_ID\n")
    for index in (2, 5, 8):
        assert user.ended(f"{array}_{index}") == "COMPLETED"
        found = variables(user.folder / f"env{index}")
        assert {name: value for name, value in found.items() if "ARRAY" in name} == {
            "SLURM_ARRAY_JOB_ID": str(array),
            "SLURM_ARRAY_TASK_COUNT": "3",
            "SLURM_ARRAY_TASK_ID": str(index),
            "SLURM_ARRAY_TASK_MAX": "8",
            "SLURM_ARRAY_TASK_MIN": "2",
            "SLURM_ARRAY_TASK_STEP": "3",
        }
        assert found["SLURM_JOB_ID"] == field(user, f"{array}_{index}", "%A")


def test_the_working_directory_and_its_fallback(user: User) -> None:
    (user.folder / "here").mkdir()
    assert text_of(user, user.submit("-D", "here", "-o", "pwd", script="#!/bin/sh\npwd\n"), "here/pwd") == (
        f"{user.folder}/here\n"
    )
    job = user.submit("-D", "/no/such/place", "-o", f"{user.folder}/fallback", script="#!/bin/sh\npwd\n")
    lines = text_of(user, job, "fallback").splitlines()
    message = (
        r"\[[-0-9T:.]{23}\] error: couldn't chdir to `/no/such/place': No such file or directory: going to /tmp instead"
    )
    assert re.fullmatch(message, lines[0])
    assert lines[-1] == "/tmp"


def test_umask_and_limits_go_with_the_job(user: User) -> None:
    (user.folder / "job.sh").write_text(
        "#!/bin/bash\numask; ulimit -S -n; ulimit -S -c; touch made; srun bash -c 'umask; ulimit -n'\n"
    )
    done = shell(user, "umask 027; ulimit -S -n 300; ulimit -S -c 0; sbatch --parsable -o limits job.sh")
    assert (done.code, done.err) == (0, "")
    assert text_of(user, int(done.out), "limits") == "0027\n300\n0\n0027\n300\n"
    assert (user.folder / "limits").stat().st_mode & 0o777 == 0o640
    assert (user.folder / "made").stat().st_mode & 0o777 == 0o640
    done = shell(user, "ulimit -S -n 300; sbatch --parsable --propagate=NONE -o unlimited job.sh")
    assert text_of(user, int(done.out), "unlimited").split()[1] != "300"
    done = shell(user, "ulimit -S -n 300; sbatch --parsable --propagate=NOFILE -o nofile job.sh")
    assert text_of(user, int(done.out), "nofile").split()[1] == "300"


# Files.


def test_patterns_of_a_batch_jobs_files(user: User) -> None:
    me = user.environment["USER"]
    pattern = "f-%A.%a.%J.%j.%N.%n.%s.%t.%u.%x.%6j.%%.%q"
    job = user.submit("-J", "nm", "-o", pattern, script="#!/bin/sh\necho x\n")
    assert user.ended(job) == "COMPLETED"
    assert [path.name for path in user.folder.iterdir()] == [
        f"f-{job}.4294967294.{job}.{job}.node1.0.batch.0.{me}.nm.{job:06}.%.%q"
    ]


def test_patterns_of_arrays_and_the_default_name(user: User) -> None:
    array = user.submit("--array=1,12", script="#!/bin/sh\necho $SLURM_ARRAY_TASK_ID\n")
    padded = user.submit("--array=1,12", "-o", "m-%A-%3a-%b", script="#!/bin/sh\necho $SLURM_ARRAY_TASK_ID\n")
    plain = user.submit(script="#!/bin/sh\necho plain\n")
    for job in (array, padded):
        for index in (1, 12):
            assert user.ended(f"{job}_{index}") == "COMPLETED"
    assert text_of(user, plain, f"slurm-{plain}.out") == "plain\n"
    assert (user.folder / f"slurm-{array}_1.out").read_text() == "1\n"
    assert (user.folder / f"slurm-{array}_12.out").read_text() == "12\n"
    assert (user.folder / f"m-{padded}-001-1").read_text() == "1\n"
    assert (user.folder / f"m-{padded}-012-2").read_text() == "12\n"


def test_patterns_of_a_steps_files(user: User) -> None:
    script = "#!/bin/sh\nsrun -N2 -n2 -o 's-%J-%s-%N-%n-%t-%x' printenv SLURM_PROCID\n"
    job = user.submit("-N2", "-n2", "-J", "nm", *QUIET, script=script)
    assert user.ended(job) == "COMPLETED"
    assert {path.name: path.read_text() for path in user.folder.iterdir()} == {
        f"s-{job}.0-0-node1-0-0-nm": "0\n",
        f"s-{job}.0-0-node2-1-1-nm": "1\n",
    }


def test_a_backslash_turns_patterns_off(user: User) -> None:
    assert text_of(user, user.submit("-o", "\\raw-%j", script="#!/bin/sh\necho raw\n"), "raw-%j") == "raw\n"


def test_append_and_truncate(user: User) -> None:
    for mode, kept in (("append", "before\n"), ("truncate", ""), ("a", "before\n"), ("t", "")):
        (user.folder / "out").write_text("before\n")
        job = user.submit("-o", "out", f"--open-mode={mode}", script="#!/bin/sh\necho after\n")
        assert text_of(user, job, "out") == f"{kept}after\n"


def test_output_of_script_and_steps_in_one_file_is_not_overwritten(user: User) -> None:
    script = "#!/bin/sh\nfor i in 1 2 3; do echo shell $i; srun echo step $i; echo error $i >&2; done\n"
    expected = "".join(f"shell {n}\nstep {n}\nerror {n}\n" for n in (1, 2, 3))
    assert text_of(user, user.submit("-o", "one", script=script), "one") == expected


# Ends.


@pytest.mark.parametrize(
    ("script", "state", "code", "reason"),
    [
        ("exit 0", "COMPLETED", "0:0", "None"),
        ("exit 1", "FAILED", "1:0", "NonZeroExitCode"),
        ("exit 255", "FAILED", "255:0", "NonZeroExitCode"),
        ("kill -TERM $$", "FAILED", "0:15", "RaisedSignal:15(Terminated)"),
        ("kill -KILL $$", "FAILED", "0:9", "RaisedSignal:9(Killed)"),
        ("kill -SEGV $$", "FAILED", "0:11", "RaisedSignal:11(Segmentation fault)"),
        ("nosuchcommand", "FAILED", "127:0", "NonZeroExitCode"),
        ("/etc/passwd", "FAILED", "126:0", "NonZeroExitCode"),
    ],
)
def test_exit_codes_and_signals(user: User, script: str, state: str, code: str, reason: str) -> None:
    job = user.submit(*QUIET, script=f"#!/bin/bash\n{script}\n")
    assert user.ended(job) == state
    found = shown(user, job)
    assert (found["ExitCode"].removesuffix("+core"), found["Reason"]) == (code, reason.replace(" ", "_"))
    assert user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "state,exitcode") == f"{state}|{code}\n"
    if state == "FAILED":
        assert field(user, job, "%R") == f"({reason})"


def test_the_derived_exit_code_is_the_highest_of_the_steps(user: User) -> None:
    script = "#!/bin/bash\nsrun bash -c 'exit 3'\nsrun bash -c 'exit 7'\nsrun bash -c 'kill -9 $$'\nexit 0\n"
    job = user.submit(*QUIET, script=script)
    assert user.ended(job) == "COMPLETED"
    assert "DerivedExitCode=7:0" in user.ok("scontrol", "-d", "show", "job", str(job))
    rows = user.ok("sacct", "-n", "-P", "-j", str(job), "-o", "jobid,state,exitcode,derivedexitcode").splitlines()
    assert rows == [
        f"{job}|COMPLETED|0:0|7:0",
        f"{job}.batch|COMPLETED|0:0|",
        f"{job}.0|FAILED|3:0|",
        f"{job}.1|FAILED|7:0|",
        f"{job}.2|CANCELLED|0:9|",
    ]


def test_a_missing_interpreter_is_named(user: User) -> None:
    job = user.submit("-o", "out", script="#!/no/such/shell\ntrue\n")
    text = text_of(user, job, "out", "FAILED")
    assert re.fullmatch(
        r"\[[-0-9T:.]{23}\] error: execve\(\): bad interpreter\(/no/such/shell\): No such file or directory\n", text
    )
    assert shown(user, job)["ExitCode"] == "2:0"


def test_cancelling_a_running_and_a_pending_job(user: User) -> None:
    running_job = user.submit("-o", "out", script=FOREVER)
    pending = user.submit("-H", *QUIET)
    user.wait_for(running_job, "RUNNING")
    until((user.folder / "out").exists, "the output file", user.describe)
    assert user.ok("scancel", str(running_job), str(pending)) == ""
    assert user.ended(running_job) == "CANCELLED"
    assert user.ended(pending) == "CANCELLED"
    assert (shown(user, running_job)["ExitCode"], shown(user, pending)["ExitCode"]) == ("0:15", "0:0")
    text = (user.folder / "out").read_text()
    assert re.search(
        rf"\*\*\* JOB {running_job} ON node1 CANCELLED AT [-0-9T:]{{19}} DUE to SIGNAL Terminated \*\*\*", text
    )
    assert user.ok("squeue", "-h", "-j", str(running_job)) == ""


def test_grandchildren_in_a_session_of_their_own_end_with_the_job(user: User) -> None:
    script = (
        "#!/bin/bash\n"
        "setsid bash -c 'echo $$ > escaped; trap \"\" TERM HUP; exec sleep 301' </dev/null >/dev/null 2>&1 &\n"
        "setsid setsid nohup bash -c '(echo $BASHPID > deeper; exec sleep 302) & disown; exit' &\n"
        "while ! test -s escaped || ! test -s deeper; do sleep 0.05; done\n"
    )
    job = user.submit(*QUIET, script=script)
    assert user.ended(job) == "COMPLETED"
    for name in ("escaped", "deeper"):
        pid = int((user.folder / name).read_text())
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"{name} to end", user.describe)  # type: ignore[misc]


# Signals, requeue, hold, arrays, dependencies.


def test_a_warning_signal_reaches_the_shell_or_the_steps(user: User) -> None:
    loop = "while ! test -e over; do sleep 0.1; done"
    shell_job = user.submit(
        *("-t1", "--mem=10", "--signal=B:USR1@55", "-o", "shell.out"),
        script=f"#!/bin/bash\ntrap 'echo warned; exit 6' USR1\n{loop}\n",
    )
    step_script = (
        "#!/bin/bash\ntrap 'echo shell warned' USR1\n"
        f"srun --mem=0 bash -c 'trap \"echo step warned; exit 0\" USR1; {loop}'\n"
    )
    step_job = user.submit("-t1", "--mem=10", "--signal=USR1@55", "-o", "step.out", script=step_script)
    assert text_of(user, shell_job, "shell.out", "FAILED") == "warned\n"
    assert shown(user, shell_job)["ExitCode"] == "6:0"
    # All processes of the step hear it: bash tells of the sleep that it waited for, before its own trap or after.
    assert "step warned" in text_of(user, step_job, "step.out").splitlines()
    assert "shell warned" not in (user.folder / "step.out").read_text()
    assert "RunTime=00:00:0" in user.ok("scontrol", "show", "job", str(shell_job))


def test_requeue_runs_from_the_beginning_with_a_count(user: User) -> None:
    script = '#!/bin/bash\necho run ${SLURM_RESTART_COUNT-first}\ntest -n "$SLURM_RESTART_COUNT" || sleep 300\n'
    job = user.submit("--requeue", "-o", "out-%r", script=script)
    until(
        lambda: (user.folder / "out-0").exists() and (user.folder / "out-0").read_text(), "the first run", user.describe
    )
    user.ok("scontrol", "requeue", str(job))
    assert user.ended(job) == "COMPLETED"
    found = shown(user, job)
    assert (found["Restarts"], found["Requeue"], found["JobState"]) == ("1", "1", "COMPLETED")
    assert (user.folder / "out-1").read_text() == "run 1\n"
    first = (user.folder / "out-0").read_text()
    assert first.startswith("run first\n")
    assert re.search(rf"\*\*\* JOB {job} ON node1 CANCELLED AT [-0-9T:]{{19}} DUE TO JOB REQUEUE \*\*\*", first)


def test_requeue_truncates_the_output_unless_it_appends(user: User) -> None:
    script = "#!/bin/bash\necho run ${SLURM_RESTART_COUNT-0}\n"
    for mode, text in (("truncate", "run 1\n"), ("append", "run 0\nrun 1\n")):
        job = user.submit("--requeue", f"--open-mode={mode}", "-o", mode, script=script)
        assert user.ended(job) == "COMPLETED"
        user.ok("scontrol", "requeue", str(job))
        until(lambda job=job: shown(user, job)["Restarts"] == "1", "the restart", user.describe)  # type: ignore[misc]
        assert text_of(user, job, mode) == text


def test_requeuehold_waits_to_be_released(user: User) -> None:
    job = user.submit("--requeue", *QUIET, script='#!/bin/sh\ntest -n "$SLURM_RESTART_COUNT" || sleep 300\n')
    user.wait_for(job, "RUNNING")
    user.ok("scontrol", "requeuehold", str(job))
    user.wait_for(job, "PENDING")
    assert field(user, job, "%Q") == "0"
    user.ok("scontrol", "release", str(job))
    assert user.ended(job) == "COMPLETED"


def test_hold_and_release(user: User) -> None:
    job = user.submit("-H", *QUIET)
    assert field(user, job, "%T %r %Q") == "PENDING JobHeldUser 0"
    assert shown(user, job)["Reason"] == "JobHeldUser"
    user.ok("scontrol", "release", str(job))
    assert user.ended(job) == "COMPLETED"
    done = user.run("scontrol", "hold", "999999")
    assert (done.code, done.out) == (1, "")
    assert done.err == "Invalid job id specified for job 999999\nslurm_suspend error:Invalid job id specified\n"


def test_the_limit_of_an_array_holds_and_can_be_changed(user: User) -> None:
    script = f"#!/bin/bash\nwhile ! test -e {user.folder}/go; do sleep 0.1; done\n"
    array = user.submit("--mem=10", "--array=1-5%2", *QUIET, script=script)

    def count(state: str) -> int:
        return len(user.ok("squeue", "-h", "-r", "-j", str(array), "-t", state, "-o", "%i").split())

    until(lambda: count("R") == 2, "two to run", user.describe)
    until(
        lambda: field(user, array, "%i %r").splitlines()[0] == f"{array}_[3-5%2] JobArrayTaskLimit",
        "the reason",
        user.describe,
    )
    user.ok("scontrol", "update", f"JobId={array}", "ArrayTaskThrottle=3")
    until(lambda: count("R") == 3, "three to run", user.describe)
    (user.folder / "go").touch()
    for index in range(1, 6):
        assert user.ended(f"{array}_{index}") == "COMPLETED"


def test_dependencies_on_failure_start_and_name(user: User) -> None:
    fails = user.submit("--mem=10", "-H", *QUIET, script="#!/bin/sh\nexit 1\n")
    not_ok = user.submit("--mem=10", "-d", f"afternotok:{fails}", *QUIET)
    any_end = user.submit("--mem=10", "-d", f"{fails}", *QUIET)
    started = user.submit("--mem=10", "-d", f"after:{fails}", *QUIET)
    assert shown(user, not_ok)["Dependency"] == f"afternotok:{fails}(unfulfilled)"
    assert field(user, any_end, "%E") == f"afterany:{fails}(unfulfilled)"
    user.ok("scontrol", "release", str(fails))
    for job in (not_ok, any_end, started):
        assert user.ended(job) == "COMPLETED"
    assert shown(user, not_ok)["Dependency"] == "(null)"
    refused = user.run("sbatch", "-d", "afterok:999999", "--wrap", "true")
    assert refused.err.splitlines()[0] == "sbatch: error: Batch job submission failed: Job dependency problem"


# Nodes.


@pytest.fixture
def mended(user: User) -> Iterator[None]:
    """Have node2 back at the end, whatever the test did to it."""
    yield
    user.run("scontrol", "update", "NodeName=node2", "State=RESUME")
    user.run("scancel", "-w", "node2", "--me")
    until(lambda: node_state(user, "node2") == "idle", "node2 to be idle", user.describe)


def node_state(user: User, node: str) -> str:
    """Give a node's state as sinfo shows it."""
    return user.ok("sinfo", "-h", "-n", node, "-o", "%t").split("\n")[0]


@pytest.mark.usefixtures("mended")
def test_a_drained_node_ends_its_job_and_takes_no_other(user: User) -> None:
    script = f"#!/bin/bash\nwhile ! test -e {user.folder}/go; do sleep 0.1; done\n"
    job = user.submit("-w", "node2", *QUIET, script=script)
    user.wait_for(job, "RUNNING")
    user.ok("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=bad fan")
    assert node_state(user, "node2") == "drng"
    assert "State=MIXED+DRAIN " in user.ok("scontrol", "show", "node", "node2")
    waiting = user.submit("-w", "node2", *QUIET)
    until(lambda: field(user, waiting, "%r").startswith("ReqNodeNotAvail"), "the reason", user.describe)
    assert field(user, waiting, "%R") == "(ReqNodeNotAvail, UnavailableNodes:node2)"
    assert shown(user, waiting)["Reason"] == "ReqNodeNotAvail,_UnavailableNodes:node2"
    (user.folder / "go").touch()
    assert user.ended(job) == "COMPLETED"
    until(lambda: node_state(user, "node2") == "drain", "node2 to be drained", user.describe)
    rows = user.ok("sinfo", "-R").splitlines()
    assert rows[0] == "REASON               USER      TIMESTAMP           NODELIST"
    assert re.fullmatch(r"bad fan {14}\S+ +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d node2", rows[1])
    assert re.search(r"   Reason=bad fan \[\S+@[-0-9T:]{19}\]\n", user.ok("scontrol", "show", "node", "node2"))
    user.ok("scontrol", "update", "NodeName=node2", "State=RESUME")
    assert user.ended(waiting) == "COMPLETED"
    until(lambda: node_state(user, "node2") == "idle", "node2 to be idle", user.describe)


@pytest.mark.usefixtures("mended")
def test_a_node_set_down_fails_or_requeues_its_jobs(user: User) -> None:
    fails = user.submit("-w", "node2", "--no-requeue", "-o", "fails", "--mem=10", script=FOREVER)
    again = user.submit(
        *("-w", "node2", "--requeue", "--mem=10", *QUIET),
        script='#!/bin/sh\ntest -n "$SLURM_RESTART_COUNT" || sleep 300\n',
    )
    for job in (fails, again):
        user.wait_for(job, "RUNNING")
    until((user.folder / "fails").exists, "the output file", user.describe)
    user.ok("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=gone")
    assert user.ended(fails) == "NODE_FAIL"
    found = shown(user, fails)
    assert (found["Reason"], found["FailedNode"], found["ExitCode"]) == ("NodeDown", "node2", "0:1")
    assert field(user, fails, "%R") == "node2"
    row = user.ok("sacct", "-X", "-n", "-P", "-j", str(fails), "-o", "state,exitcode,failednode")
    assert row == "NODE_FAIL|1:0|node2\n"
    user.wait_for(again, "PENDING")
    assert shown(user, again)["Restarts"] == "1"
    assert node_state(user, "node2") == "down"
    until(
        lambda: "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***" in (user.folder / "fails").read_text(),
        "the message",
        user.describe,
    )
    user.ok("scontrol", "update", "NodeName=node2", "State=RESUME")
    assert user.ended(again) == "COMPLETED"
    until(lambda: node_state(user, "node2") == "idle", "node2 to be idle", user.describe)


# What is shown, byte for byte.


def test_the_queue_as_it_is_shown(user: User) -> None:
    name = user.environment["USER"]
    job = user.submit("-N2", "--exclusive", "-J", "a-long-name", "-t", "2:00:00", *QUIET, script=FOREVER)
    user.wait_for(job, "RUNNING")
    array = user.submit("-H", "--array=1-3%2", "-J", "arr", *QUIET)
    waiting = user.submit("-J", "later", *QUIET)
    until(lambda: field(user, waiting, "%r") == "Resources", "the reason", user.describe)
    lines = user.ok("squeue", "-j", f"{job},{array},{waiting}").splitlines()
    assert lines[0] == "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    used = lines[-1].split()[5]
    assert lines[1:] == [
        f"{waiting:>18}       gpu    later {name:>8} PD       0:00      1 (Resources)",
        f"{array}_[1-3%2]".rjust(18) + f"       gpu      arr {name:>8} PD       0:00      1 (JobHeldUser)",
        f"{job:>18}       gpu a-long-n {name:>8}  R {used:>10}      2 node[1-2]",
    ]
    long = user.ok("squeue", "-l", "-j", str(job)).splitlines()
    assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}", long[0])
    assert long[1] == (
        "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)"
    )
    used = long[2].split()[5]
    assert long[2] == f"{job:>18}       gpu a-long-n {name:>8}  RUNNING {used:>10}   2:00:00      2 node[1-2]"
    steps = user.ok("squeue", "-s", "-j", str(job)).splitlines()
    assert steps[0] == "         STEPID     NAME PARTITION     USER      TIME NODELIST"
    assert steps[1].split()[0] == f"{job}.batch"
    assert user.ok("sinfo") == (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*         up   infinite      2  alloc node[1-2]\n"
    )
    assert user.ok("sinfo", "-s") == (
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\ngpu*         up   infinite          2/0/0/2 node[1-2]\n"
    )
    user.ok("scancel", str(job), str(array), str(waiting))
    user.ended(job)


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["squeue", "-v", "-h", "-u", "root"], ["-h", "-u = root"]),
        (["sinfo", "-h", "--verbose", "-p", "gpu"], ["-h", "-p = gpu"]),
        (["sacct", "-n", "-v", "-o", "jobid"], ["-n", "-o = jobid"]),
        (["scontrol", "-v", "-o", "show", "config"], ["-o"]),
    ],
)
def test_verbose_queries_say_what_they_ask_of_whom(user: User, argv: list[str], options: list[str]) -> None:
    done = user.run(*argv)
    lines = [f"{argv[0]}: option {option}" for option in options]
    assert done.code == 0
    assert done.err.splitlines()[:-1] == lines
    assert done.err.splitlines()[-1].startswith(f"{argv[0]}: asking the controller at /")


def test_a_record_as_it_is_shown(user: User) -> None:
    name, gid = user.environment["USER"], os.getegid()
    job = user.submit("-J", "shown", "-N2", "-n4", "-t", "30", "--mem=1G", "--gres=gpu:2", "-o", "x-%j", script=FOREVER)
    user.wait_for(job, "RUNNING")
    lines = user.ok("scontrol", "show", "job", str(job)).splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
    host = os.uname().nodename.partition(".")[0]
    patterns = [
        rf"JobId={job} JobName=shown",
        rf"   UserId={name}\({os.geteuid()}\) GroupId=\S+\({gid}\) MCS_label=N/A",
        r"   Priority=\d+ Nice=0 Account=\(null\) QOS=normal",
        r"   JobState=RUNNING Reason=None Dependency=\(null\)",
        r"   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0",
        r"   RunTime=00:00:\d\d TimeLimit=00:30:00 TimeMin=N/A",
        rf"   SubmitTime={stamp} EligibleTime={stamp}",
        rf"   AccrueTime={stamp}",
        rf"   StartTime={stamp} EndTime={stamp} Deadline=N/A",
        rf"   SuspendTime=None SecsPreSuspend=0 LastSchedEval={stamp} Scheduler=(Main|Backfill)",
        rf"   Partition=gpu AllocNode:Sid={host}:\d+",
        r"   ReqNodeList=\(null\) ExcNodeList=\(null\)",
        r"   NodeList=node\[1-2\]",
        r"   BatchHost=node1",
        r"   NumNodes=2 NumCPUs=4 NumTasks=4 CPUs/Task=1 ReqB:S:C:T=0:0:\*:\*",
        r"   ReqTRES=cpu=4,mem=2G,node=2,billing=4,gres/gpu=4",
        r"   AllocTRES=cpu=4,mem=2G,node=2,billing=4,gres/gpu=4,gres/gpu:h100=4",
        r"   Socks/Node=\* NtasksPerN:B:S:C=0:0:\*:\* CoreSpec=\*",
        r"   MinCPUsNode=1 MinMemoryNode=1G MinTmpDiskNode=0",
        r"   Features=\(null\) DelayBoot=00:00:00",
        r"   OverSubscribe=OK Exclusive=NO Contiguous=0 Licenses=\(null\) LicensesAlloc=\(null\) Network=\(null\)",
        r"   Command=\(null\)",
        r"   SubmitLine=sbatch --parsable -J shown -N2 -n4 -t 30 --mem=1G --gres=gpu:2 -o x-%j",
        rf"   WorkDir={user.folder}",
        r"   StdErr=",
        r"   StdIn=/dev/null",
        rf"   StdOut={user.folder}/x-{job}",
        r"   TresPerNode=gres/gpu:2",
        r"",
    ]
    patterns[20] = patterns[20].replace("OverSubscribe=OK", "OverSubscribe=(OK|NO)")
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)

    def as_expected() -> bool:
        # The jobs that wait for their limits may still be there, with a CPU and 10 MiB each.
        others = len(user.ok("squeue", "-h", "-w", "node1", "-t", "R,CG", "-o", "%i").split()) - 1
        node = user.ok("scontrol", "show", "node", "node1")
        memory = f"{1024 + 10 * others}M" if others else "1G"
        return (
            f"   CPUAlloc={2 + others} CPUEfctv=8 CPUTot=8 " in node
            and "   State=MIXED ThreadsPerCore=1 " in node
            and f"   AllocTRES=cpu={2 + others},mem={memory},gres/gpu=2,gres/gpu:h100=2\n" in node
        )

    until(as_expected, "the node's record", lambda: user.ok("scontrol", "show", "node", "node1"))
    user.ok("scancel", str(job))
    user.ended(job)


# Purging, on a cluster of its own.


@pytest.fixture
def forgetful(bin_dir: Path, tmp_path: Path) -> Iterator[User]:
    """Somebody on a cluster that forgets finished jobs after two seconds."""
    for own in running(replace(PLAN, nodes=1, extra="MinJobAge=2\n")):
        yield User(own, bin_dir, tmp_path)


def test_a_finished_job_is_purged_after_min_job_age_and_stays_in_the_history(forgetful: User) -> None:
    user = forgetful
    job = user.submit(*QUIET)
    held = user.submit("-H", *QUIET)
    header = user.ok("squeue", "-j", str(held)).splitlines()[0] + "\n"
    until(lambda: user.run("scontrol", "show", "job", str(job)).code == 1, "the job to be purged", user.describe)
    # Issued once, so it is no unknown id.
    assert user.ok("squeue", "-t", "all", "-j", str(job)) == header
    assert user.run("scontrol", "show", "job", str(job)).err == "slurm_load_jobs error: Invalid job id specified\n"
    assert user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "jobid,state") == f"{job}|COMPLETED\n"
    assert user.state(held) == "PENDING"
    gone = user.run("sbatch", "-d", f"afterok:{job}", "--wrap", "true")
    assert "Job dependency problem" in gone.err
    after = user.submit("-d", f"afterany:{job}", *QUIET)
    until(
        lambda: user.ok("sacct", "-X", "-n", "-P", "-j", str(after), "-o", "state") == "COMPLETED\n",
        "the job after it to end",
        user.describe,
    )


def test_the_time_limit(timed: tuple[User, dict[str, int]]) -> None:
    user, jobs = timed
    for name, job in jobs.items():
        deadline = time.monotonic() + 90
        while user.state(job) in GOING_ON and time.monotonic() < deadline:
            time.sleep(0.2)
        assert user.state(job) == "TIMEOUT", name
        assert field(user, job, "%t %r") == "TO TimeLimit"
        text = (user.folder / f"{name}.out").read_text()
        stamps = rf"JOB {job} ON node1 CANCELLED AT [-0-9T:]{{19}}"
        assert re.search(rf"\[[-0-9T:.]{{23}}\] error: \*\*\* {stamps} DUE TO TIME LIMIT \*\*\*\n", text)
        assert ("told\n" in text) == (name != "plain")
        assert user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "state,exitcode") == "TIMEOUT|0:0\n"
        assert 60 <= elapsed_seconds(user, job) < 75
    assert elapsed_seconds(user, jobs["deaf"]) >= 62, "KillWait passes before SIGKILL"
    assert field(user, jobs["deaf"], "%L") == "INVALID"
    batch = user.ok("sacct", "-n", "-P", "-j", f"{jobs['trap']}.batch", "-o", "state,exitcode")
    assert batch == "FAILED|4:0\n"
    step = user.ok("sacct", "-n", "-P", "-j", f"{jobs['step']}.0", "-o", "state,exitcode").strip()
    assert step in ("CANCELLED|0:15", "CANCELLED|0:9")
    text = (user.folder / "step.out").read_text()
    stamp = f"STEP {jobs['step']}\\.0 ON node1 CANCELLED AT [-0-9T:]{{19}}"
    assert re.search(rf"\*\*\* {stamp} DUE TO TIME LIMIT \*\*\*\n", text)


def elapsed_seconds(user: User, job: int) -> int:
    """Give how long a job ran."""
    return int(user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "elapsedraw"))

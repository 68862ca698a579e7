"""Daemons that stop, die and come back: what runs goes on, what ended meanwhile is reported right, nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

TIMEOUT_SECONDS = 10
"""Agents dial a controller that was away at least every 7 s."""
PLAN = Plan(
    nodes=2,
    cpus=8,
    memory_mib=16000,
    gpus="",
    extra=f"KillWait=2\nMinJobAge=300\nSlurmdTimeout={TIMEOUT_SECONDS}\nSchedulerParameters=requeue_delay=1\n",
)

GATED = """#!/bin/sh
echo "$SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}" >> ran
read go < gate
exit 4
"""
"""Runs until somebody opens the gate."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster whose nodes are given up after ten seconds of silence."""
    yield from running(PLAN)


@pytest.fixture
def gate(user: User) -> Callable[[], None]:
    """A gate in the user's folder; call it to let one job through."""
    path = user.folder / "gate"
    os.mkfifo(path)

    def let_through() -> None:
        with path.open("w") as pipe:
            pipe.write("go\n")

    return let_through


def kill(cluster: Cluster, daemon: str) -> None:
    """kill -9, and wait until it is gone."""
    pid = cluster.pid(daemon)
    assert pid, f"{daemon} does not run"
    os.kill(pid, signal.SIGKILL)
    until(lambda: not cluster.pid(daemon), f"{daemon} to be gone")


def start(cluster: Cluster, *daemons: str) -> None:
    """Start daemons again, and wait until the cluster is whole."""
    plan = cluster.plan()
    assert plan is not None
    for daemon in daemons:
        cluster.start(daemon, plan)
    until(lambda: whole(cluster), f"{daemons} to be back")


def whole(cluster: Cluster) -> bool:
    """Tell whether all nodes are connected and accounting follows."""
    if not cluster.answers():
        return False
    found = cluster.client().call("GET", "/v1/status")
    return bool(found["accounting"]) and all(node["connected"] for node in found["nodes"])


def history(user: User, job: int) -> list[str]:
    """Give sacct's lines of a job: all its runs, without steps."""
    return user.ok("sacct", "-n", "-P", "-X", "-D", "-j", str(job), "-o", "JobID,State,ExitCode").splitlines()


def gated_job(user: User, *options: str) -> int:
    """Start a job that waits at the gate."""
    job = user.submit("-o", "none", "--mem=100", *options, script=GATED)
    ran = user.folder / "ran"
    until(lambda: ran.exists() and f"{job} 0\n" in ran.read_text(), f"job {job} to run", user.describe)
    return job


def test_a_job_outlives_its_agent_and_ends_as_it_ended(cluster: Cluster, user: User, gate: Callable[[], None]) -> None:
    job = gated_job(user, "-w", "node1")
    kill(cluster, "node1")
    start(cluster, "node1")
    assert user.state(job) == "RUNNING"
    gate()
    assert user.ended(job) == "FAILED"
    assert history(user, job) == [f"{job}|FAILED|4:0"]
    assert (user.folder / "ran").read_text() == f"{job} 0\n"


def test_a_job_that_ends_without_its_agent_is_reported_by_the_next(
    cluster: Cluster, user: User, gate: Callable[[], None]
) -> None:
    job = gated_job(user, "-w", "node1")
    kill(cluster, "node1")
    gate()
    until(lambda: list((cluster.folder / "spool/node1/steps").glob(f"{job}.0.*/result")), "the job to end")
    assert user.state(job) == "RUNNING"
    start(cluster, "node1")
    assert user.ended(job) == "FAILED"
    assert history(user, job) == [f"{job}|FAILED|4:0"]
    assert (user.folder / "ran").read_text() == f"{job} 0\n"


def test_an_agent_stopped_politely_returns_with_its_job(cluster: Cluster, user: User, gate: Callable[[], None]) -> None:
    job = gated_job(user, "-w", "node2")
    assert cluster.stop("node2")
    start(cluster, "node2")
    assert user.ok("sinfo", "-h", "-n", "node2", "-o", "%T").strip() == "mixed"
    gate()
    assert user.ended(job) == "FAILED"
    assert (user.folder / "ran").read_text() == f"{job} 0\n"


def test_srun_goes_on_while_the_controller_restarts_and_gets_the_code(
    cluster: Cluster, user: User, gate: Callable[[], None]
) -> None:
    task = "echo up >> ran; [ $SLURM_PROCID = 1 ] || read go < gate; echo out; exit 5"
    command = user.start("srun", "-N2", "--mem=100", "sh", "-c", task)
    ran = user.folder / "ran"
    until(lambda: ran.exists() and ran.read_text().count("up") == 2, "the tasks to run", user.describe)
    kill(cluster, "ctld")
    gate()
    start(cluster, "ctld")
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (5, "out\nout\n"), err
    assert ran.read_text() == "up\nup\n"


def test_a_job_steps_on_while_the_controller_is_away(cluster: Cluster, user: User, gate: Callable[[], None]) -> None:
    script = GATED.replace("exit 4", "srun sh -c 'echo $SLURM_STEP_ID >> steps; exit 3'")
    job = user.submit("-o", "err", "--mem=100", script=script)
    ran = user.folder / "ran"
    until(ran.exists, "the job to run", user.describe)
    kill(cluster, "ctld")
    gate()  # its srun finds no controller, for longer than commands wait
    until_no_controller_is_given_up()
    start(cluster, "ctld")
    assert user.ended(job) == "FAILED"
    assert history(user, job) == [f"{job}|FAILED|3:0"]
    assert (user.folder / "steps").read_text() == "0\n"


def until_no_controller_is_given_up() -> None:
    """Let more time pass than the relay and commands have patience."""
    deadline = time.monotonic() + 7
    until(lambda: time.monotonic() > deadline, "patience to end")


def test_pending_held_and_dependent_jobs_outlive_the_controller(
    cluster: Cluster, user: User, gate: Callable[[], None]
) -> None:
    running_job = gated_job(user)
    small = ("-o", "none", "--mem=100")
    held = user.submit(*small, "-H")
    after = user.submit(*small, f"--dependency=afternotok:{running_job}")
    never = user.submit(*small, f"--dependency=afterok:{running_job}", "--kill-on-invalid-dep=yes")
    later = user.submit(*small, "--begin=now+1hour")
    array = user.submit(*small, "-H", "--array=1-5%2")
    columns = ("squeue", "-h", "-o", "%i|%T|%r|%E|%y|%S")
    before = until(lambda: found if "Dependency" in (found := user.ok(*columns)) else "", "reasons to be given")
    kill(cluster, "ctld")
    start(cluster, "ctld")
    until(lambda: user.ok(*columns) == before, "the same to be shown", lambda: before + user.describe())
    gate()
    assert user.ended(running_job) == "FAILED"
    assert user.ended(after) == "COMPLETED"
    assert user.ended(never) == "CANCELLED"
    user.ok("scontrol", "release", str(held))
    assert user.ended(held) == "COMPLETED"
    assert user.state(later) == "PENDING"
    user.ok("scancel", str(later), str(array))


def test_a_cluster_put_down_with_its_jobs_finds_them_again(
    cluster: Cluster, user: User, gate: Callable[[], None]
) -> None:
    job = gated_job(user)
    home = {"MUSTER_HOME": str(cluster.folder)}
    plan = cluster.plan()
    assert plan is not None
    assert user.run("muster", "down", "--keep-jobs", env=home).code == 0
    assert not any(cluster.pid(daemon) for daemon in cluster.daemons(plan))
    done = user.run("muster", "up", env=home)
    assert done.code == 0, done
    assert user.state(job) == "RUNNING"
    gate()
    assert user.ended(job) == "FAILED"
    assert history(user, job) == [f"{job}|FAILED|4:0"]
    assert (user.folder / "ran").read_text() == f"{job} 0\n"


def test_a_controller_that_was_away_condemns_no_node(cluster: Cluster, user: User, gate: Callable[[], None]) -> None:
    """Twice the time-out without a controller (and then without agents) is no reason to give nodes up."""
    job = gated_job(user)
    kill(cluster, "ctld")
    away_until = time.monotonic() + 2 * TIMEOUT_SECONDS
    until(lambda: time.monotonic() > away_until, "twice the time-out to pass")
    since = cluster.log("ctld").stat().st_size
    start(cluster, "ctld")
    assert user.state(job) == "RUNNING"
    assert set(user.ok("sinfo", "-h", "-N", "-o", "%T").split()) <= {"idle", "mixed"}
    gate()
    assert user.ended(job) == "FAILED"
    assert (user.folder / "ran").read_text() == f"{job} 0\n"
    assert "DOWN" not in cluster.log("ctld").read_text()[since:]


def test_an_agent_silent_for_the_time_out_is_down_and_its_job_is_requeued_elsewhere(
    cluster: Cluster, user: User, gate: Callable[[], None]
) -> None:
    """The other side of the coin: and what the lost agent still has is ended when it returns."""
    job = gated_job(user, "-w", "node1", "--requeue")
    old = until(lambda: list((cluster.folder / "spool/node1/steps").glob(f"{job}.0.*")), "the step's folder")
    kill(cluster, "node1")
    until(lambda: "down" in user.ok("sinfo", "-h", "-n", "node1", "-o", "%T"), "node1 to be down", user.describe)
    until(lambda: user.state(job) == "PENDING", "the job to be requeued", user.describe)
    start(cluster, "node1")
    until(lambda: not old[0].exists(), "the old run to be ended", user.describe)
    assert user.ok("sinfo", "-h", "-n", "node1", "-o", "%T").strip() in ("idle", "mixed")
    user.wait_for(job, "RUNNING")
    ran = user.folder / "ran"
    until(lambda: ran.read_text() == f"{job} 0\n{job} 1\n", "the second run", user.describe)
    gate()
    assert user.ended(job) == "FAILED"
    assert history(user, job) == [f"{job}|NODE_FAIL|1:0", f"{job}|FAILED|4:0"]


def test_a_node_taken_out_of_the_configuration_ends_what_it_runs(
    cluster: Cluster, user: User, gate: Callable[[], None]
) -> None:
    """The controller ends the job without asking its agent, which must not let the processes go on."""
    job = user.submit("-o", "none", "-w", "node2", "--no-requeue", script="#!/bin/sh\necho $$ > pid\nread go < gate\n")
    pid = user.folder / "pid"
    until(lambda: pid.exists() and pid.read_text(), "the job to run", user.describe)
    plan = cluster.plan()
    assert plan is not None
    complete = cluster.config.read_text()
    ports = re.compile(r"NodeName=node\[1-2\] (.*) Port=(\d+)-\d+")
    assert cluster.stop("ctld")
    cluster.config.write_text(ports.sub(r"NodeName=node1 \1 Port=\2", complete))
    try:
        cluster.start("ctld", plan)
        until(cluster.answers, "the controller to answer")
        assert user.ended(job) == "NODE_FAIL"
        until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the job's shell to be ended")
    finally:
        assert cluster.stop("ctld")
        cluster.config.write_text(complete)
        start(cluster, "ctld")


def test_history_answers_without_dbd_and_is_whole_after_it(cluster: Cluster, user: User) -> None:
    jobs = [user.submit("-o", "none", "--mem=100", script="#!/bin/sh\nexit 6\n") for _ in range(2)]
    for job in jobs:
        user.ended(job)
    kill(cluster, "dbd")
    jobs.append(user.submit("-o", "none", "--mem=100", script="#!/bin/sh\nexit 6\n"))
    user.ended(jobs[-1])
    names = ",".join(map(str, jobs))
    asked = ("sacct", "-n", "-P", "-X", "-D", "-j", names, "-o", "JobID,State,ExitCode")
    expected = [f"{job}|FAILED|6:0" for job in jobs]
    done = user.run(*asked)
    assert (done.code, done.out.splitlines()) == (0, expected), done
    assert "accounting" in done.err, "a warning says that this may not be all"
    start(cluster, "dbd")
    until(lambda: user.run(*asked).err == "", "dbd to answer again", user.describe)
    assert user.ok(*asked).splitlines() == expected


def test_a_damaged_byte_in_the_journal_is_refused_by_name(bin_dir: Path, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="me"))
    cluster = Cluster(folder)
    try:
        plan = cluster.up(Plan(nodes=1, cpus=4, memory_mib=4000, gpus="", accounting=False), lambda line: None)
        user = User(cluster, bin_dir, tmp_path)
        job = user.submit("-o", "none", "--mem=100")
        user.ended(job)
        kill(cluster, "ctld")
        [segment] = (folder / "state").glob("journal-*.log")
        whole_file = segment.read_bytes()
        place = len(whole_file) // 2
        segment.write_bytes(whole_file[:place] + bytes([whole_file[place] ^ 1]) + whole_file[place + 1 :])
        cluster.start("ctld", plan)
        until(lambda: not cluster.pid("ctld"), "the controller to refuse")
        last = cluster.log("ctld").read_text().splitlines()[-1]
        assert segment.name in last and "record" in last, last
        assert "Traceback" not in cluster.log("ctld").read_text()
        # Nothing was changed by the attempt, and the healthy file is taken.
        segment.write_bytes(whole_file)
        cluster.start("ctld", plan)
        until(cluster.answers, "the controller")
        assert user.state(job) == "COMPLETED"
    finally:
        known = cluster.plan()
        for daemon in reversed(cluster.daemons(known)) if known else ():
            cluster.stop(daemon, seconds=10)
        shutil.rmtree(folder)

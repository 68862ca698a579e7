"""kill -9 of everything, at any moment: nothing that was acknowledged is lost, nothing runs twice, nothing is stuck.

Clients submit 2,000 jobs (single ones over the controller's and an agent's sockets, arrays by sbatch, some with srun
steps) while ctld, dbd, agents and zygotes are killed and started again. Each job writes what it is and how it will end
into a ledger; what squeue, sacct and the database say afterwards must be the ledger's story.

MUSTER_KILL_SEED repeats a run's choices (not its timing, which is the kernel's).
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

CLIENT = Path(__file__).with_name("kill9_client.py")
PLAN = Plan(nodes=4, cpus=16, memory_mib=64000, gpus="", extra="KillWait=2\nMinJobAge=3600\n")
SINGLES = 1000
SINGLES_WITH_STEPS = 60
ARRAYS = 14
ARRAY_MEMBERS = 75
STEP_ARRAY_MEMBERS = 30
ENDLESS_MEMBERS = 30
LEAST_JOBS = 2000
KILLS = 30
SECONDS_BETWEEN_KILLS = 1.0
LONGEST_DOWN_SECONDS = 1.5
END_SECONDS = 90.0
"""How long everything may take to end once nothing is killed any more; a stuck job never does."""
CODES = (0, 3, 0, 1, 0, 7, 0, 200)

ARRAY_SCRIPT = """#!/bin/sh
set -- {codes}
shift $((SLURM_ARRAY_TASK_ID % {count}))
line="$SLURM_JOB_ID $SLURM_ARRAY_TASK_ID ${{SLURM_RESTART_COUNT:-0}} $1"
echo "$line" >> own/{name}.$SLURM_ARRAY_TASK_ID
echo "$line" >> ledger
{body}
exit $1
"""
ARRAY_NAP = "case $SLURM_ARRAY_TASK_ID in *3) sleep 0.5;; *7) sleep 1.5;; esac"
ARRAY_STEP = """srun sh -c 'echo "$SLURM_JOB_ID $SLURM_STEP_ID $SLURM_PROCID '$1'" >> steps; sleep 0.3; exit '$1
code=$?
[ $code = $1 ] || echo "$SLURM_JOB_ID $code" >> wrong"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster of its own: it is not left as it was."""
    yield from running(PLAN)


@dataclass(slots=True)
class Tormentor:
    """Kills and starts daemons in a thread of its own until told to stop; then all run."""

    cluster: Cluster
    dice: random.Random
    clients: list[subprocess.Popen[str]]
    kills: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    down: dict[str, float] = field(default_factory=dict)
    """Daemon -> when it is to be started again."""

    def run(self) -> None:
        """Do it."""
        try:
            plan = self.cluster.plan()
            assert plan is not None
            next_kill = time.monotonic() + 1.0
            while not self.stop.wait(0.02):
                now = time.monotonic()
                for daemon in [one for one, when in self.down.items() if when <= now]:
                    del self.down[daemon]
                    self.cluster.start(daemon, plan)
                for daemon in self.cluster.daemons(plan):
                    if daemon not in self.down and not self.cluster.pid(daemon):
                        log = self.cluster.log(daemon).read_text(errors="replace")
                        raise AssertionError(f"{daemon} ended by itself:\n{log[-2000:]}")
                if now >= next_kill:
                    next_kill = now + self.dice.uniform(0.1, 2 * SECONDS_BETWEEN_KILLS)
                    # Now and then several at once, as when a host dies.
                    for _ in range(self.dice.choice((1, 1, 1, 1, 2, 3))):
                        self._kill(self._victim(plan))
            for daemon in self.down:
                self.cluster.start(daemon, plan)
        except BaseException as failure:
            self.failures.append(failure)
            # Clients that find no controller would wait for it for ever.
            for client in self.clients:
                client.kill()

    def _victim(self, plan: Plan) -> str:
        node = self.dice.choice(plan.node_names)
        return self.dice.choice(("ctld", "ctld", "ctld", "dbd", "dbd", node, node, node, *[f"zygote of {node}"] * 3))

    def _kill(self, victim: str) -> None:
        pid = self.cluster.pid(victim) if not victim.startswith("zygote") else self._zygote(victim.rpartition(" ")[2])
        if not pid:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills[victim] += 1
        if not victim.startswith("zygote"):
            os.waitpid(pid, 0)
            wait = self.dice.choice((0.0, 0.0, self.dice.random() * LONGEST_DOWN_SECONDS))
            self.down.setdefault(victim, time.monotonic() + wait)

    def _zygote(self, node: str) -> int:
        """Give the zygote's pid. The stepds that it forks have its command line; only it is the agent's child."""
        agent = self.cluster.pid(node)
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                with suppress(OSError):
                    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent == agent and b"noded.launch.zygote" in (process / "cmdline").read_bytes():
                        return int(process.name)
        return 0


def persist(user: User, *argv: str, stdin: str | None = None) -> str:
    """Type a command again until the controller was there for it. What has been done already must do no harm."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        done = user.run(*argv, stdin=stdin)
        if done.code == 0:
            return done.out
        assert "Unable to contact slurm controller" in done.err and time.monotonic() < deadline, done
        time.sleep(0.2)


def submit_arrays(user: User, dice: random.Random) -> list[tuple[str, int, int]]:
    """Submit the arrays by sbatch, and give (job name, members, id) of each; id 0: nobody can say."""
    told: list[tuple[str, int, int]] = []
    number = acknowledged = 0
    while acknowledged <= ARRAYS:
        assert number < 4 * ARRAYS, told
        name = f"array{number}"
        with_steps = number == ARRAYS // 2
        members = STEP_ARRAY_MEMBERS if with_steps else ARRAY_MEMBERS
        script = ARRAY_SCRIPT.format(
            codes=" ".join(map(str, CODES)), count=len(CODES), name=name, body=ARRAY_STEP if with_steps else ARRAY_NAP
        )
        limit = dice.choice(("", "%20"))
        done = user.run(
            "sbatch", "--parsable", "-J", name, "-o", "none", "--mem=100", "-t", "10",
            f"--array=0-{members - 1}{limit}",
            stdin=script, env={"MUSTER_PATIENCE": "30"},
        )  # fmt: skip
        told.append((name, members, int(done.out) if done.code == 0 else 0))
        assert done.code == 0 or "Unable to contact slurm controller" in done.err, done
        number, acknowledged = number + 1, acknowledged + (done.code == 0)
        time.sleep(dice.random() * 2.5)
    return told


def test_kill_nine_of_anything_loses_and_doubles_nothing(cluster: Cluster, user: User) -> None:
    seed = int(os.environ.get("MUSTER_KILL_SEED") or random.randrange(1 << 30))
    print(f"\nMUSTER_KILL_SEED={seed}")
    dice = random.Random(seed)
    began, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    folder = user.folder
    (folder / "own").mkdir()
    # One client speaks to the controller, one to an agent, as a login host's users do.
    clients = [
        subprocess.Popen(
            [sys.executable, str(CLIENT), str(path), str(SINGLES // 2), str(dice.randrange(1 << 30)), name, str(folder),
             str(SINGLES_WITH_STEPS // 2)],
            env=user.environment, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for name, path in (("direct", cluster.socket), ("relayed", cluster.node_socket("node2")))
    ]  # fmt: skip
    tormentor = Tormentor(cluster, random.Random(dice.random()), clients)
    thread = threading.Thread(target=tormentor.run)
    thread.start()
    try:
        # Submitted in any case at least once; they would run for ever, and are cancelled while things are killed.
        persist(
            user, "sbatch", "-J", "endless", "-o", "none", "--mem=100", f"--array=1-{ENDLESS_MEMBERS}",
            stdin="#!/bin/sh\necho $SLURM_JOB_ID >> endless\ntrap '' TERM\nsleep 1000\nsleep 1000\n",
        )  # fmt: skip
        arrays = submit_arrays(user, dice)
        persist(user, "scancel", "--name=endless")
        for client in clients:
            _, said = client.communicate(timeout=120)
            assert client.returncode == 0, (said, tormentor.failures)
        until(lambda: tormentor.kills.total() >= KILLS or tormentor.failures, "enough kills")
    finally:
        tormentor.stop.set()
        thread.join()
        for client in clients:
            client.kill()
            client.wait()
    assert not tormentor.failures, tormentor.failures
    submitted = time.monotonic()

    queue = wait_for_the_end(user)
    ended = time.monotonic()
    judge(user, queue, told_of(folder), arrays)
    queue = {job.job_id: job for job in queue.values() if job.name != "endless"}
    wait_for_clean_nodes(cluster, user)
    compare_accounting(cluster, user, queue)
    after_one_more_kill(cluster, user, queue)

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(queue)} jobs, {tormentor.kills.total()} kills {dict(sorted(tormentor.kills.items()))}; submitting "
        f"{submitted - began:.1f} s, all ended {ended - submitted:.1f} s later, {time.monotonic() - began:.1f} s in "
        f"all; CPU of commands and killed daemons {used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime:.0f} s"
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A job as squeue shows it."""

    job_id: int
    array_job_id: int
    task: str
    name: str
    state: str
    reason: str
    status: int


def rows(user: User) -> dict[int, Row]:
    """Give all jobs by id, as squeue shows them."""
    done = user.run(
        "squeue", "-h", "-r", "-t", "all", "-O", "jobid:|,arrayjobid:|,arraytaskid:|,name:|,state:|,reason:|,exit_code:"
    )
    assert done.code == 0, done
    found = [line.split("|") for line in done.out.splitlines()]
    jobs = [
        Row(int(a), int(b), "-" if task == "N/A" else task, name, state, reason, wait_status(code))
        for a, b, task, name, state, reason, code in found
    ]
    assert len({job.job_id for job in jobs}) == len(jobs)
    return {job.job_id: job for job in jobs}


def wait_status(text: str) -> int:
    """Read `3:0`, an exit code and a signal."""
    code, _, signo = text.partition(":")
    return int(code) << 8 | int(signo)


def wait_for_the_end(user: User) -> dict[int, Row]:
    """Wait until every job has ended."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        open_jobs = user.run("squeue", "-h", "-r").out.splitlines()
        if not open_jobs:
            return rows(user)
        if time.monotonic() > deadline:
            pytest.fail(f"stuck after {END_SECONDS:.0f} s:\n" + "\n".join(open_jobs[:20]) + user.describe())
        time.sleep(0.3)


def told_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Give what the clients were told: job name -> (code, job id); id 0: nobody can say."""
    told = {}
    for file in folder.glob("told.*"):
        for line in file.read_text().splitlines():
            name, code, job_id = line.split()
            told[name] = (int(code), 0 if job_id == "-" else int(job_id))
    return told


def judge(
    user: User, queue: dict[int, Row], singles: dict[str, tuple[int, int]], arrays: list[tuple[str, int, int]]
) -> None:
    """Compare the queue with what clients were told and with what the jobs wrote."""
    folder = user.folder
    by_name: dict[str, list[Row]] = {}
    for job in queue.values():
        by_name.setdefault(job.name, []).append(job)
    assert len(singles) == SINGLES and len(queue) >= LEAST_JOBS
    acknowledged = 0
    for name, (code, job_id) in singles.items():
        found = by_name.pop(name, [])
        if job_id:
            acknowledged += 1
            assert [job.job_id for job in found] == [job_id], f"{name} was acknowledged as {job_id}: {found}"
        assert len(found) <= 1, f"{name} is there twice: {found}"
        for job in found:
            assert job.status == code << 8, (job, code)
    for name, members, job_id in arrays:
        found = by_name.pop(name, [])
        if job_id:
            acknowledged += members
            assert {job.array_job_id for job in found} == {job_id}, f"{name} was acknowledged as {job_id}: {found[:3]}"
        if found:
            assert sorted(int(job.task) for job in found) == list(range(members)), name
        for job in found:
            assert job.status == CODES[int(job.task) % len(CODES)] << 8, job
    endless = by_name.pop("endless")
    assert {job.state for job in endless} == {"CANCELLED"} and len(endless) % ENDLESS_MEMBERS == 0, endless[:3]
    begun = Counter((folder / "endless").read_text().split())
    assert set(begun.values()) == {1} and set(begun) <= {str(job.job_id) for job in endless}, begun
    assert not by_name, f"nobody submitted these: {list(by_name.items())[:3]}"

    queue = {job.job_id: job for job in queue.values() if job.name != "endless"}
    ledger = [line.split() for line in (folder / "ledger").read_text().splitlines()]
    assert all(len(entry) == 4 for entry in ledger), [entry for entry in ledger if len(entry) != 4]
    ran = Counter(int(entry[0]) for entry in ledger)
    twice = {job_id: [entry for entry in ledger if int(entry[0]) == job_id] for job_id, n in ran.items() if n > 1}
    assert not twice, f"ran twice: {twice}"
    never = [queue[job_id] for job_id in queue.keys() - ran.keys()]
    assert not never, f"{len(never)} never ran: {never[:5]}"
    assert not ran.keys() - queue.keys(), f"ran, but nobody knows them: {sorted(ran.keys() - queue.keys())[:5]}"
    for number, task, restarts, exit_code in ledger:
        job = queue[int(number)]
        state = "COMPLETED" if exit_code == "0" else "FAILED"
        assert (job.task, "0", job.state, job.status) == (task, restarts, state, int(exit_code) << 8), (job, restarts)
        own = folder / "own" / (job.name if task == "-" else f"{job.name}.{task}")
        assert own.read_text() == f"{number} {task} {restarts} {exit_code}\n", own
    wrong = folder / "wrong"
    assert not wrong.exists(), f"srun gave another code than its tasks (job, code): {wrong.read_text()}" + "".join(
        f"{file.name}: {file.read_text()}" for file in sorted((folder / "own").glob("*.err")) if file.stat().st_size
    )
    steps = Counter(tuple(line.split()[:3]) for line in (folder / "steps").read_text().splitlines())
    assert steps and max(steps.values()) == 1, f"tasks that ran twice: {[key for key, n in steps.items() if n > 1]}"
    assert {key[1] for key in steps} == {"0"}, "no step was made twice"
    print(f"{acknowledged} acknowledged, {len(queue)} found, {len(steps)} tasks of steps")


def wait_for_clean_nodes(cluster: Cluster, user: User) -> None:
    """Wait until no step's folder and no job's process is left."""

    def folders() -> list[str]:
        return [str(one) for one in (cluster.folder / "spool").glob("*/steps/*")]

    until(lambda: not folders(), "the spools to be empty", lambda: f"{folders()[:10]}\n{user.describe()}")
    until(lambda: not processes_of_jobs(cluster), "jobs' processes to end", lambda: str(processes_of_jobs(cluster)))


def processes_of_jobs(cluster: Cluster) -> list[str]:
    """Give the processes that have a job's environment of this cluster."""
    found = []
    mark = b"MUSTER_SOCKET=" + bytes(cluster.folder)
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                words = (process / "environ").read_bytes().split(b"\0")
                if any(word.startswith(mark) for word in words) and any(
                    word.startswith(b"SLURM_JOB_ID=") for word in words
                ):
                    found.append(f"{process.name} {(process / 'cmdline').read_bytes().decode(errors='replace')}")
    return found


def compare_accounting(cluster: Cluster, user: User, queue: dict[int, Row]) -> None:
    """sacct's rows and the database's are the queue's, each once."""
    database = sqlite3.connect(f"file:{cluster.folder}/accounting.db?mode=ro", uri=True)
    try:
        count = "SELECT count(*) FROM runs WHERE name != 'endless'"
        until(lambda: database.execute(count).fetchone()[0] >= len(queue), "dbd to have all runs", user.describe)
        kept = database.execute("SELECT job_id, run, state, exit_status FROM runs WHERE name != 'endless'").fetchall()
    finally:
        database.close()
    expected = sorted((job.job_id, 0, job.state, job.status) for job in queue.values())
    assert sorted(kept) == expected, sorted(set(kept) ^ set(expected))[:10]
    shown = user.ok("sacct", "-n", "-P", "-X", "-D", "-o", "JobIDRaw,JobID,JobName,State,ExitCode")
    shown_lines = [line for line in shown.splitlines() if "|endless|" not in line]
    told = sorted(
        f"{job.job_id}|{job.job_id if job.task == '-' else f'{job.array_job_id}_{job.task}'}|{job.name}|{job.state}|"
        f"{job.status >> 8}:0"
        for job in queue.values()
    )
    assert sorted(shown_lines) == told


def after_one_more_kill(cluster: Cluster, user: User, queue: dict[int, Row]) -> None:
    """The controller tells the same when it comes up from its journal once more."""
    plan = cluster.plan()
    assert plan is not None
    pid = cluster.pid("ctld")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    cluster.start("ctld", plan)
    after = {job.job_id: job for job in rows(user).values() if job.name != "endless"}
    assert after == queue

"""Real daemons on the loopback: a cluster in a temporary folder, and the commands as users type them.

A fixture owns its processes: it fails the test when a daemon died by itself, and leaves none behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from cli.cluster import Cluster, Plan
from muster.launchers import write_all

SOURCE = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 60.0
GOING_ON = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
Found = TypeVar("Found")

SMALL = Plan(nodes=2, cpus=8, memory_mib=16000, gpus="h100:4", extra="KillWait=2\nMinJobAge=300\n")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class User:
    """Types commands in a folder of its own, speaking to one cluster."""

    def __init__(self, cluster: Cluster, bin_dir: Path, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.environment = {
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "HOME": str(folder),
            "USER": os.environ.get("USER", "root"),
            "MUSTER_SOCKET": str(cluster.socket),
            "LANG": "C.UTF-8",
        }
        self._bin = bin_dir

    def run(self, *argv: str, stdin: str | None = None, env: dict[str, str] | None = None, timeout: float = 60) -> Done:
        """Run a command to its end, whatever its exit code."""
        done = subprocess.run(
            [str(self._bin / argv[0]), *argv[1:]],
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *argv: str, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
        """Run a command that must succeed and say nothing on stderr; give its output."""
        done = self.run(*argv, stdin=stdin, env=env)
        assert (done.code, done.err) == (0, ""), f"{argv}: {done}"
        return done.out

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command and leave it running; the caller ends it."""
        return subprocess.Popen(
            [str(self._bin / argv[0]), *argv[1:]],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, *options: str, script: str = "#!/bin/sh\ntrue\n") -> int:
        """Submit a script and give the job's id."""
        return int(self.ok("sbatch", "--parsable", *options, stdin=script))

    def state(self, job: int | str) -> str:
        """Give a job's state word; empty when it is not in memory."""
        return self.ok("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").strip()

    def wait_for(self, job: int | str, *states: str) -> str:
        """Wait until a job is in one of these states."""
        return until(
            lambda: state if (state := self.state(job)) in states else "", f"job {job} to be {states}", self.describe
        )

    def ended(self, job: int | str) -> str:
        """Wait until a job has ended and give its state."""
        return until(
            lambda: "" if (state := self.state(job)) in GOING_ON else state,
            f"job {job} to end",
            self.describe,
        )

    def describe(self) -> str:
        """Give what helps to understand a failed wait."""
        queue = self.run("squeue", "-t", "all").out
        logs = "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            for log in sorted((self.cluster.folder / "log").iterdir())
        )
        return f"{queue}\n{logs}"


def until(condition: Callable[[], Found], what: str, describe: Callable[[], str] = str) -> Found:
    """Wait until a condition gives something true, and give that; fails after a minute, saying what was waited for."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"waited {WAIT_SECONDS:.0f} s for {what}\n{describe()}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands, as an installation has them."""
    folder = tmp_path_factory.mktemp("bin")
    write_all(folder, python=Path(sys.executable), source=SOURCE)
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of two small virtual nodes, for the tests of a module."""
    yield from running(SMALL)


@pytest.fixture
def user(cluster: Cluster, bin_dir: Path, tmp_path: Path) -> User:
    """Somebody who types commands."""
    return User(cluster, bin_dir, tmp_path)


def running(plan: Plan, kind: type[Cluster] = Cluster) -> Iterator[Cluster]:
    """Have a cluster for a while; fails when one of its daemons died by itself.

    `kind`: a Cluster that writes more configuration.
    """
    folder = Path(tempfile.mkdtemp(prefix="me"))
    made = kind(folder)
    try:
        known = made.up(plan, lambda line: None)
        yield made
        dead = [daemon for daemon in made.daemons(known) if not made.pid(daemon)]
        logs = {daemon: made.log(daemon).read_text(errors="replace")[-3000:] for daemon in dead}
        made.down(lambda line: None)
        assert not dead, f"daemons died by themselves: {logs}"
        assert not left_behind(folder), f"processes were left behind: {left_behind(folder)}"
    finally:
        known_plan = made.plan()
        for daemon in reversed(made.daemons(known_plan)) if known_plan is not None else ():
            made.stop(daemon, seconds=5)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Be another user as far as the kernel tells the other side of a socket; needs root."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def left_behind(folder: Path) -> list[str]:
    """Give the command lines of processes that name this folder."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or int(process.name) == os.getpid():
            continue
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(f"{process.name} {words}")
    return found

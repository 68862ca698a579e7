"""What the figures share: the form of a result, references of this machine, clusters for a while."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.cluster import Cluster, Plan

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
Value = float | dict[str, float]


def note(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a measurement found."""

    value: Value
    spread: Value
    """Largest minus smallest of the repetitions, as `value` is built."""
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: how it is measured and what is asked of it."""

    name: str
    what: str
    unit: str
    bar: Value
    moonshot: Value | None
    better: str
    """lower | higher."""
    measure: Callable[[bool], Taken]
    """Called with True for a tenth of the work."""

    def take(self, *, quick: bool) -> dict[str, Any]:
        """Measure, and give the object that is printed."""
        taken = self.measure(quick)
        return {
            "name": self.name,
            "value": taken.value,
            "unit": self.unit,
            "bar": self.bar,
            "moonshot": self.moonshot,
            "better": self.better,
            # The bar is for all the work: a tenth of it would pass where all of it fails.
            "bar_met": None if quick else self._met(taken.value),
            "spread": taken.spread,
            "detail": {**taken.detail, "quick": quick},
        }

    def _met(self, value: Value) -> bool:
        if isinstance(value, dict) and isinstance(self.bar, dict):
            return all(self._reaches(value[name], self.bar[name]) for name in self.bar)
        assert isinstance(value, float | int)
        assert isinstance(self.bar, float | int)
        return self._reaches(value, self.bar)

    def _reaches(self, value: float, bar: float) -> bool:
        return value <= bar if self.better == "lower" else value >= bar


def median(values: Sequence[float]) -> float:
    """Give the median."""
    return float(statistics.median(values))


def rounded(value: float) -> float:
    """Give four significant digits."""
    return float(f"{value:.4g}")


def wall_ms(argv: Sequence[str], repetitions: int, environment: dict[str, str] | None = None) -> list[float]:
    """Run a command so often and give the wall time of each in ms; a failing command ends the benchmark."""
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        done = subprocess.run(argv, capture_output=True, env=environment, check=False)
        times.append((time.perf_counter() - began) * 1000)
        if done.returncode:
            raise SystemExit(f"bench: {' '.join(argv)} failed: {done.stderr.decode()}")
    return times


def bare_python_ms(repetitions: int) -> float:
    """Start a bare interpreter: the floor of every command."""
    return median(wall_ms([str(BIN / "python"), "-I", "-S", "-c", "pass"], repetitions))


_SPAWN = """
import os, time
n = %d
began = time.perf_counter()
for _ in range(n):
    os.waitpid(os.posix_spawn("/bin/bash", ["bash", "-c", "true"], {}), 0)
print(n / (time.perf_counter() - began))
"""


def bare_spawn_rate(count: int) -> float:
    """Runs a second of `bash -c true` that a bare interpreter starts and waits for, one after the other."""
    done = subprocess.run(
        [str(BIN / "python"), "-I", "-S", "-c", _SPAWN % count], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def bare_sync_rate(folder: Path, count: int) -> float:
    """Loops a second of appending 4 KiB and fdatasync."""
    data = os.urandom(4096)
    descriptor = os.open(folder / "sync-floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        began = time.perf_counter()
        for _ in range(count):
            os.write(descriptor, data)
            os.fdatasync(descriptor)
        return count / (time.perf_counter() - began)
    finally:
        os.close(descriptor)
        os.unlink(folder / "sync-floor")


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def cluster(plan: Plan, *, only_controller: bool = False) -> Iterator[Cluster]:
    """Have a cluster for a while, in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="mb"))
    made = Cluster(folder)
    try:
        if only_controller:
            plan = made.make(plan)
            made.start("ctld", plan)
            until(made.answers, "the controller answers")
        else:
            made.up(plan, lambda line: None)
        yield made
    finally:
        known = made.plan()
        if known is not None:
            for daemon in reversed(made.daemons(known)):
                made.stop(daemon)
        shutil.rmtree(folder, ignore_errors=True)


def until(condition: Callable[[], bool], what: str, *, seconds: float = 120.0, pause: float = 0.02) -> None:
    """Wait for a condition; the benchmark ends when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"bench: waited {seconds:.0f} s in vain: {what}")
        time.sleep(pause)


def environment_of(made: Cluster) -> dict[str, str]:
    """Give the environment in which commands speak to this cluster."""
    return {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(made.folder), "MUSTER_SOCKET": str(made.socket)}


def framed(json: bytes, script: bytes, environment: bytes) -> bytes:
    """Make the body of a submission."""
    return b"MSTR1 %d %d %d\n" % (len(json), len(script), len(environment)) + json + script + environment

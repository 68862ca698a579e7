"""A recorded workload: what was asked, when, and how long it really ran; and how its load is changed for a trial."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.api import JobRequest

NO_LIMIT = -1
CLONE_SPREAD_SECONDS = 3600
"""A job that is doubled to raise the load comes again within this time."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Times are seconds since the epoch."""

    label: str
    """As the trace names it."""
    submitted_at: int
    runtime: int
    """Seconds that it really ran."""
    ask: JobRequest
    """What was asked for, as a submission; one object for all jobs that ask alike."""
    limit_seconds: int | None = None
    """None: as the partition says; -1: none."""
    user: str = "user"
    begin_at: int = 0
    """First time it may start (0: at once)."""
    waited: int = -1
    """Seconds that it waited when it was recorded; -1: not known."""


@dataclass(frozen=True, slots=True)
class TraceNodes:
    """Nodes of one kind, as a trace or its companion file names them."""

    names: str
    """A host list."""
    cpus: int
    memory_mib: int = 0
    """0: the trace does not say, and memory is not looked at."""
    gpus: int = 0
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """Empty: the one partition of the machine."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, and the machine where the trace knows it."""

    name: str
    jobs: tuple[TraceJob, ...]
    nodes: tuple[TraceNodes, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    """Why rows were left out -> how many."""


class Asks:
    """Gives equal requests the same object, so that a trace of a hundred thousand jobs has a few hundred."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], JobRequest] = {}

    def get(self, **options: object) -> JobRequest:
        """Give the request with these options."""
        key = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = JobRequest(**options)  # type: ignore[arg-type]  # Names are the fields' own.
        return known


def in_order(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """Sort by time of submission; jobs of one second stay as they are."""
    return tuple(sorted(jobs, key=lambda job: job.submitted_at))


def with_exact_limits(trace: Trace) -> Trace:
    """Give every job its true run time as its limit: what a perfect estimate would change."""
    jobs = tuple(replace(job, limit_seconds=max(1, job.runtime)) for job in trace.jobs)
    return replace(trace, jobs=jobs)


def with_load(trace: Trace, factor: float, seed: int) -> Trace:
    """Take part of the jobs, or have some come twice, so that the load is `factor` times what it was.

    The rhythm of days and weeks stays, which stretching the time would not leave.
    """
    dice = random.Random(seed)
    jobs: list[TraceJob] = []
    for job in trace.jobs:
        times = int(factor) + (dice.random() < factor - int(factor))
        for clone in range(times):
            later = dice.randrange(CLONE_SPREAD_SECONDS) if clone else 0
            jobs.append(replace(job, submitted_at=job.submitted_at + later) if later else job)
    return replace(trace, jobs=in_order(jobs))


def first_jobs(trace: Trace, count: int) -> Trace:
    """Cut the trace behind its first jobs."""
    return replace(trace, jobs=trace.jobs[:count])

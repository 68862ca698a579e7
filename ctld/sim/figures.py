"""What a replay says: utilisation, waits, slowdowns, starvation, efficiency, and how good the planned starts were.

Definitions. Wait: from the submission (or the begin time) to the last start. Bounded slowdown (Feitelson 1997):
`max(1, (wait + run) / max(run, 10 s))`. Utilisation: what ran between the first and the last submission over what there
was, so that neither an empty machine before nor a drained queue behind counts. Efficiency: beyond.md B4, of useful
over held resource-seconds; in a replay only runs that were ended to make room are lost.
Jobs that were cancelled to make room count as jobs that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from ctld.sim.machine import Machine
from ctld.sim.replay import Ints, Outcome

BOUND_SECONDS = 10
CLOSE_SHARE = 0.1
CLOSE_SECONDS = 60
"""A planned start is close when the job started at most this share of the predicted wait, or this time, from it."""
_CPU_CLASSES = (1, 8, 64, 512)
_GPU_CLASSES = (1, 4, 8, 64)


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits (seconds) and bounded slowdowns of some jobs."""

    jobs: int
    wait_mean: float
    wait_median: float
    wait_p95: float
    wait_max: float
    slowdown_mean: float
    slowdown_p95: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a replay; shares are between 0 and 1, times are seconds."""

    jobs: int
    ran: int
    refused: int
    never_started: int
    cancelled: int
    """Ended to make room, for good."""
    span: int
    """From the first to the last submission."""
    makespan: int
    """From the first submission to the last end."""
    utilisation_cpu: float
    utilisation_gpu: float | None
    """None: no GPUs."""
    waits: Waits
    recorded_wait_mean: float | None
    """As the trace has it; None: it does not say."""
    efficiency: float
    """η of beyond.md B4, by GPU-seconds where there are GPUs, else by CPU-seconds."""
    backfilled: float
    """Share of the jobs that ran."""
    promised: int
    """Jobs with a planned start before they started."""
    promise_kept: float | None
    """Share of those that started no later than was first planned."""
    promise_close: float | None
    """Share that started close to it (10 % of the predicted wait, or a minute)."""
    promise_error_mean: float | None
    """Mean distance, seconds."""
    over_max_queue_wait: int | None
    """Jobs that waited longer than max_queue_wait; None: it is not set."""
    stale_starts: int
    """Starts that the core refused: 0 unless Muster has a fault."""
    passes: int
    cpu_seconds: float
    plan_seconds: float
    by_account: dict[str, Waits] = field(default_factory=dict)
    by_user: dict[str, Waits] = field(default_factory=dict)
    by_size: dict[str, Waits] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Give the figures as plain data."""
        return asdict(self)


class Columns:
    """An outcome as numpy columns, of the jobs that ran."""

    def __init__(self, outcome: Outcome) -> None:
        start = np.array(outcome.start, np.int64)
        end = np.array(outcome.end, np.int64)
        self.ran: Ints = np.flatnonzero((start >= 0) & (end >= 0))
        """Places in the workload."""
        ready = np.array([max(job.submitted_at, job.begin_at) for job in outcome.jobs], np.int64)
        self.start, self.end = start[self.ran], end[self.ran]
        self.wait: Ints = np.maximum(0, self.start - ready[self.ran])
        self.run: Ints = self.end - self.start
        self.cpus: Ints = np.array(outcome.cpus, np.int64)[self.ran]
        self.gpus: Ints = np.array(outcome.gpus, np.int64)[self.ran]
        self.slowdown = np.maximum(1.0, (self.wait + self.run) / np.maximum(self.run, BOUND_SECONDS))

    def waits(self, chosen: Ints | None = None) -> Waits:
        """Sum up some of the jobs (all)."""
        wait = self.wait if chosen is None else self.wait[chosen]
        slowdown = self.slowdown if chosen is None else self.slowdown[chosen]
        if not len(wait):
            return Waits(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return Waits(
            len(wait),
            float(wait.mean()),
            float(np.median(wait)),
            float(np.percentile(wait, 95)),
            float(wait.max()),
            float(slowdown.mean()),
            float(np.percentile(slowdown, 95)),
        )


def efficiency(compute: float, gang_wait: float, preempted: float, cleanup: float) -> float:
    """Give η of beyond.md B4; 1 when nothing ran."""
    held = compute + gang_wait + preempted + cleanup
    return compute / held if held else 1.0


def size_class(cpus: int, gpus: int) -> str:
    """Name the size of a job: by GPUs where it has any, else by CPUs."""
    bounds, amount, unit = (_GPU_CLASSES, gpus, "GPU") if gpus else (_CPU_CLASSES, cpus, "CPU")
    low = 1
    for bound in bounds:
        if amount <= bound:
            return f"{bound} {unit}{'s' if bound > 1 else ''}" if low == bound else f"{low}-{bound} {unit}s"
        low = bound + 1
    return f"{low}+ {unit}s"


def figures(machine: Machine, outcome: Outcome) -> Figures:
    """Work out all figures of a replay."""
    columns = Columns(outcome)
    jobs = outcome.jobs
    first, last = (jobs[0].submitted_at, jobs[-1].submitted_at) if jobs else (0, 0)
    busy = np.clip(np.minimum(columns.end, last) - np.maximum(columns.start, first), 0, None)
    span = max(1, last - first)
    cancelled = np.array(outcome.cancelled, np.bool_)[columns.ran]
    lost = np.array(outcome.lost_seconds, np.int64)[columns.ran] + np.where(cancelled, columns.run, 0)
    useful = np.where(cancelled, 0, columns.run)
    units = columns.gpus if machine.gpus else columns.cpus
    recorded = [job.waited for job in jobs if job.waited >= 0]
    refused = sum(outcome.refused.values())
    promises = _promises(outcome)
    bound = _max_queue_wait(machine)
    accounts = [jobs[place].ask.account or "" for place in columns.ran]
    users = [jobs[place].user for place in columns.ran]
    sizes = [size_class(cpus, gpus) for cpus, gpus in zip(columns.cpus.tolist(), columns.gpus.tolist(), strict=True)]
    by_size = _grouped(columns, sizes)
    order = [size_class(bound, 0) for bound in (*_CPU_CLASSES, _CPU_CLASSES[-1] + 1)]
    order += [size_class(0, bound) for bound in (*_GPU_CLASSES, _GPU_CLASSES[-1] + 1)]
    return Figures(
        jobs=len(jobs),
        ran=len(columns.ran),
        refused=refused,
        never_started=len(jobs) - len(columns.ran) - refused,
        cancelled=int(cancelled.sum()),
        span=last - first,
        makespan=int(columns.end.max()) - first if len(columns.ran) else 0,
        utilisation_cpu=float((busy * columns.cpus).sum() / span / max(1, machine.cpus)),
        utilisation_gpu=float((busy * columns.gpus).sum() / span / machine.gpus) if machine.gpus else None,
        waits=columns.waits(),
        recorded_wait_mean=float(np.mean(recorded)) if recorded else None,
        efficiency=efficiency(float((useful * units).sum()), 0.0, float((lost * units).sum()), 0.0),
        backfilled=float(np.array(outcome.backfilled)[columns.ran].mean()) if len(columns.ran) else 0.0,
        promised=promises[0],
        promise_kept=promises[1],
        promise_close=promises[2],
        promise_error_mean=promises[3],
        over_max_queue_wait=None if bound is None else int((columns.wait > bound).sum()),
        stale_starts=outcome.stale_starts,
        passes=outcome.passes,
        cpu_seconds=outcome.cpu_seconds,
        plan_seconds=outcome.plan_seconds,
        by_account=_sorted(_grouped(columns, accounts)),
        by_user=_sorted(_grouped(columns, users)),
        by_size={name: by_size[name] for name in order if name in by_size},
        refusals=dict(outcome.refused),
    )


def _promises(outcome: Outcome) -> tuple[int, float | None, float | None, float | None]:
    """Judge the first planned starts: how many, share kept, share close, mean distance."""
    start = np.array(outcome.start, np.int64)
    promised = np.array(outcome.promised, np.int64)
    made = np.array(outcome.promised_at, np.int64)
    judged = np.flatnonzero((promised >= 0) & (start >= 0))
    if not len(judged):
        return 0, None, None, None
    late = start[judged] - promised[judged]
    room = np.maximum(CLOSE_SECONDS, CLOSE_SHARE * (promised[judged] - made[judged]))
    distance = np.abs(late)
    return len(judged), float((late <= 0).mean()), float((distance <= room).mean()), float(distance.mean())


def _grouped(columns: Columns, names: Sequence[str]) -> dict[str, Waits]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return {name: columns.waits(np.array(chosen, np.int64)) for name, chosen in places.items() if name}


def _sorted(groups: dict[str, Waits]) -> dict[str, Waits]:
    """Put the groups with the most jobs first."""
    return dict(sorted(groups.items(), key=lambda one: (-one[1].jobs, one[0])))


def _max_queue_wait(machine: Machine) -> int | None:
    longest = machine.command.settings.max_queue_wait_seconds
    return longest if longest >= 0 else None


def busy_steps(outcome: Outcome, amount: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Give what was in use as a step function: times, and the amount from each time on."""
    changes: dict[int, int] = {}
    for place, start in enumerate(outcome.start):
        if start >= 0 and outcome.end[place] > start:
            changes[start] = changes.get(start, 0) + amount(place)
            changes[outcome.end[place]] = changes.get(outcome.end[place], 0) - amount(place)
    return _steps(changes)


def queue_steps(outcome: Outcome) -> tuple[list[int], list[int]]:
    """Give the number of waiting jobs as a step function."""
    changes: dict[int, int] = {}
    for job, start in zip(outcome.jobs, outcome.start, strict=True):
        ready = max(job.submitted_at, job.begin_at)
        if start > ready:
            changes[ready] = changes.get(ready, 0) + 1
            changes[start] = changes.get(start, 0) - 1
    return _steps(changes)


def _steps(changes: dict[int, int]) -> tuple[list[int], list[int]]:
    times = sorted(changes)
    return times, np.cumsum([changes[time] for time in times]).tolist() if times else []

"""What the controller has done since its start or the last reset, counted: what sdiag shows.

One object; the scheduling loop tells it of its passes, the door of its calls, and it follows the durable events for
the jobs. As in Slurm the counters start anew at midnight UTC, those of calls and of all backfilled jobs only when an
administrator resets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ctld.core import ranges
from ctld.core.events import ArrayTasksCancelled, Event, JobFinished, JobStarted, JobSubmitted
from ctld.core.plan import Plan
from muster.clock import Clock
from muster.ids import UnixTime
from muster.states import JobState

DAY_SECONDS = 86_400
MOST_USERS = 1000
"""Users whose calls are counted one by one; calls of later ones count by their kind only."""
_CANCELLED = (JobState.CANCELLED, JobState.PREEMPTED)


@dataclass(slots=True)
class Cycles:
    """Cycles of one scheduler: times in microseconds."""

    count: int = 0
    last: int = 0
    longest: int = 0
    total: int = 0
    last_depth: int = 0
    depth: int = 0
    """Jobs looked at, of all cycles."""
    last_queue: int = 0
    """Jobs that could start as far as holds, dependencies and begin times go, before the last cycle."""
    queue: int = 0
    last_table: int = 0
    """Jobs that the last cycle gave a place in the calendar."""
    table: int = 0
    last_at: int = 0
    """Unix time; 0: never."""
    whole: int = 0
    """Cycles that came to the end of the queue."""
    out_of_time: int = 0
    """Cycles whose time was over before that."""

    def note(self, *, seconds: float, depth: int, queue: int, at: UnixTime, complete: bool, table: int = 0) -> None:
        """Take one cycle in."""
        self.last = round(seconds * 1e6)
        self.longest = max(self.longest, self.last)
        self.total += self.last
        self.last_depth, self.last_queue, self.last_table, self.last_at = depth, queue, table, at
        self.whole += complete
        self.out_of_time += not complete
        self.depth += depth
        self.table += table
        self.queue += queue
        self.count += 1


@dataclass(slots=True)
class Calls:
    """Calls of one kind, or of one user: times in microseconds from a call's coming to its answer, waits for the
    journal included."""

    count: int = 0
    last: int = 0
    longest: int = 0
    total: int = 0

    def note(self, microseconds: int) -> None:
        """Take one call in."""
        self.count += 1
        self.last = microseconds
        self.longest = max(self.longest, microseconds)
        self.total += microseconds


@dataclass(slots=True)
class Jobs:
    """Jobs since the last reset; a member of an array counts as one."""

    submitted: int = 0
    started: int = 0
    """Runs: a job that was requeued starts again."""
    completed: int = 0
    cancelled: int = 0
    """Preempted for good included."""
    failed: int = 0
    """Any other end: a non-zero exit, a time limit, a deadline, memory, a node."""


@dataclass(slots=True)
class _Daily:
    """What starts anew every day."""

    since: UnixTime
    jobs: Jobs = field(default_factory=Jobs)
    passes: Cycles = field(default_factory=Cycles)
    """Passes of the loop: the main scheduler."""
    deep: Cycles = field(default_factory=Cycles)
    """Plans of the whole calendar by the planner process, as Slurm's backfill makes them beside its main scheduler."""
    backfilled: int = 0
    stale: int = 0
    """Starts that the calendar had planned for now and that could not be any more when it came."""


class Statistics:
    """Counts; nothing here is kept over a restart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._daily = _Daily(clock.now())
        self.backfilled = 0
        """Jobs that were started behind one that waits, since the start or a reset by hand."""
        self.kinds: dict[tuple[str, str], Calls] = {}
        """Calls by method and pattern of their route."""
        self.users: dict[int, Calls] = {}
        """Calls by uid, of at most MOST_USERS."""
        self.planning = False
        """The planner process is at work on a calendar."""
        self.open_calls = 0
        """Calls that have come and have no answer yet."""

    @property
    def day(self) -> _Daily:
        """What counts from the last reset or the last midnight UTC, whichever is later."""
        now = self._clock.now()
        if now // DAY_SECONDS != self._daily.since // DAY_SECONDS:
            self._daily = _Daily(now)
        return self._daily

    def reset(self) -> None:
        """Count everything anew."""
        self._daily = _Daily(self._clock.now())
        self.backfilled = 0
        self.kinds.clear()
        self.users.clear()

    def take(self, batch: Sequence[tuple[int, Event]]) -> None:
        """Count the jobs of durable events (a `Store` subscriber)."""
        jobs = self.day.jobs
        for _, event in batch:
            if isinstance(event, JobSubmitted):
                array = event.job.spec.array
                jobs.submitted += array.size if array is not None else 1
            elif isinstance(event, JobStarted):
                jobs.started += 1
                if event.alloc.planned_by == "Backfill":
                    self.backfilled += 1
                    self._daily.backfilled += 1
            elif isinstance(event, JobFinished):
                _end(jobs, event.state, 1)
            elif isinstance(event, ArrayTasksCancelled):
                _end(jobs, event.state, ranges.count(event.tasks))

    def planned(self, made: Plan, *, seconds: float, queue: int) -> None:
        """Count a pass of the loop. `queue`: jobs that could start when it began."""
        self.day.passes.note(
            seconds=seconds, depth=made.looked_at, queue=queue, at=made.made_at, complete=made.complete
        )

    def called(self, method: str, pattern: str, uid: int, seconds: float) -> None:
        """Count a call that has been answered."""
        microseconds = round(seconds * 1e6)
        self.kinds.setdefault((method, pattern), Calls()).note(microseconds)
        user = self.users.get(uid)
        if user is None and len(self.users) < MOST_USERS:
            user = self.users[uid] = Calls()
        if user is not None:
            user.note(microseconds)


def _end(jobs: Jobs, state: int, count: int) -> None:
    if state == JobState.COMPLETED:
        jobs.completed += count
    elif state in _CANCELLED:
        jobs.cancelled += count
    else:
        jobs.failed += count

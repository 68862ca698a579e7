"""What a scheduling pass gives back: starts, and for the jobs that wait a typed reason and a planned start.

Starts become events (after a check against the state of that moment). Waits are an overlay: swapped in whole,
never journaled, rebuilt after a restart. Jobs of one class that wait for the same reason need no entry each:
the pass names the reason of a class, and `Plan.wait_of` finds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ctld.core.model import NodeShare
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import Reason

_UNKNOWN = UnixTime(0)


@dataclass(frozen=True, slots=True)
class Start:
    """Start this job now on these nodes. `task_id`: the member to split off the pending array `job_id`."""

    job_id: JobId
    partition: str
    shares: tuple[NodeShare, ...]
    """In node-table order, with tasks placed."""
    task_id: int = NO_TASK
    planned_by: str = "Main"
    reservation: str = ""
    """The advance reservation that it is to run in."""
    licenses: str = ""
    """What it holds while it runs: `a:2,b:1`."""
    limit_seconds: int = 0
    """Limit of the run where --time-min lets it be shorter than asked for; 0: as asked for."""


@dataclass(frozen=True, slots=True)
class LimitNumbers:
    """The limit that a job runs into: what `explain` says about it."""

    limit: str
    """As sacctmgr writes it: GrpTRES, MaxJobsPerUser, ..."""
    tres: str
    """Empty where jobs or time are limited."""
    of: str
    """Whose it is: `account physics`, `QOS high`, `user ada in account physics`."""
    most: int
    """The limit itself: MiB, minutes, or a number."""
    used: int
    """Of it, by others."""
    asked: int
    """By this job; 0 where what is used leaves nothing, -1 for no time limit."""

    def sentence(self) -> str:
        """Say it: `GrpTRES cpu of account physics is 100: 96 are in use, 8 more are asked for`."""
        what = f"{self.limit} {self.tres}".rstrip()
        asked = "no limit" if self.asked < 0 else str(self.asked)
        if not self.used:
            return f"{what} of {self.of} is {self.most}: {asked} is asked for"
        return f"{what} of {self.of} is {self.most}: {self.used} in use, {asked} more asked for"


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that has to go (or to stand still) for another job."""

    job_id: JobId
    run: int
    """Its restarts: a later run is not meant."""
    mode: str
    """CANCEL | REQUEUE | SUSPEND."""
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Preempt:
    """Make room for a job that found none, and promise it what it needs of that."""

    job_id: JobId
    partition: str
    shares: tuple[NodeShare, ...]
    """In node-table order, with tasks placed: where it starts once the victims have gone."""
    victims: tuple[Victim, ...]
    task_id: int = NO_TASK


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits, and when it is planned to start (0: not known)."""

    reason: Reason
    text: str = ""
    """Free text that replaces the reason where it is shown (`ReqNodeNotAvail, UnavailableNodes:n[3-4]`)."""
    start_at: UnixTime = _UNKNOWN
    nodes: tuple[int, ...] = ()
    limit: LimitNumbers | None = None
    """Of a limit of an association or a QOS."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One pass over the queue."""

    made_at: UnixTime
    starts: tuple[Start, ...] = ()
    waits: dict[int, Wait] = field(default_factory=dict)
    """By job id: for the jobs that were looked at one by one (heads, held ones, special reasons)."""
    class_waits: dict[int, Wait] = field(default_factory=dict)
    """By class id (`State.queue`): for all other pending jobs of the class."""
    complete: bool = True
    """False: the budget ran out; call again in the next turn."""
    preemptions: tuple[Preempt, ...] = ()
    looked_at: int = field(default=0, compare=False)
    """Jobs for which a place was looked for: fewer where a memory knows that there is none."""

"""The newest calendar as an overlay: for each waiting job when and where it is planned to start, as long as that holds.

An overlay is swapped in whole and never journaled. It names the event that it was made on; what it says of a job that
has started, ended or changed since is not given any more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.sched.calendar import Planned
from muster.ids import UnixTime
from muster.states import JobState, Reason

_PENDING = int(JobState.PENDING)
_NEVER = UnixTime(0)


class Foreseen:
    """What one calendar says.

    In columns: an object for each of a hundred thousand jobs would be looked at by the collector of garbage again and
    again, and letting go of them all would hold the loop for 30 ms.

    Attributes:
        number: the event that it was made on; 0: there is no calendar yet.
        made_at: when that was.
        past_window: jobs whose start is further away than bf_window looks.
    """

    def __init__(self, number: int = 0, made_at: UnixTime = _NEVER) -> None:
        self.number = number
        self.made_at = made_at
        self.past_window = 0
        self._places: dict[int, int] = {}
        """Job id -> place in the columns."""
        self._jobs: list[Job] = []
        """The records that the plan is about."""
        self._starts = array("q")
        self._nodes = array("i")
        """Of all jobs, one after the other ..."""
        self._bounds = array("q", (0,))
        """... those of a place begin here, and end where those of the next one begin."""
        self._partitions: list[str] = []
        self._names: dict[str, str] = {}
        self._waits: dict[int, Wait] = {}
        """By place."""

    def __len__(self) -> int:
        return len(self._places)

    def take(self, planned: Iterable[tuple[int, Planned]], then: Mapping[int, Job], now: Mapping[int, Job]) -> None:
        """Take a part of a calendar in, without what has become untrue while it was made.

        Args:
            planned: by job id.
            then: the records of all jobs that it was made on.
            now: the records of all jobs.
        """
        for number, one in planned:
            before, job = then.get(number), now.get(number)
            if before is None or job is None or not _waits_as(before, job):
                continue
            if one.wait is not None:
                self._waits[len(self._jobs)] = one.wait
            self._places[number] = len(self._jobs)
            self._jobs.append(job)
            self._starts.append(one.start_at)
            self._nodes.extend(one.nodes)
            self._bounds.append(len(self._nodes))
            self._partitions.append(self._names.setdefault(one.partition, one.partition))

    def of(self, state: State, number: int) -> Planned | None:
        """Give what is planned for a job; None where nothing is known, or no longer."""
        place = self._places.get(number)
        job = state.jobs.get(number)
        if place is None or job is None or not _waits_as(self._jobs[place], job):
            return None
        nodes = self._nodes[self._bounds[place] : self._bounds[place + 1]]
        return Planned(UnixTime(self._starts[place]), tuple(nodes), self._partitions[place], self._waits.get(place))


def with_planned(wait: Wait, planned: Planned | None, at: UnixTime) -> Wait:
    """Fill up what the event pass says of a job that waits with what the calendar says.

    The event pass is the newer of the two wherever it gives a start. A start that should have been before `at` is shown
    as being due now.
    """
    if planned is None or wait.start_at:
        return wait
    if planned.start_at:
        return Wait(wait.reason, wait.text, UnixTime(max(planned.start_at, at)), planned.nodes, wait.limit)
    if planned.wait is not None and wait.reason is Reason.PRIORITY and not wait.text:
        return planned.wait
    return wait


def _waits_as(before: Job, job: Job) -> bool:
    """Tell whether a job still waits for what it waited for: a plan made for it then is one for it now."""
    return before is job or (
        job.state == _PENDING
        and before.spec is job.spec
        and before.limit_seconds == job.limit_seconds
        and before.array_pending == job.array_pending
        and before.array_limit == job.array_limit
        and before.eligible_at == job.eligible_at
        and before.begin_at == job.begin_at
        and before.clauses == job.clauses
        and before.hold == job.hold
        and before.priority == job.priority
        and before.nice == job.nice
        and before.restarts == job.restarts
    )

"""The newest calendar as an overlay: for each waiting job when and where it is planned to start, as long as that holds.

An overlay is swapped in whole and never journaled. It names the event that it was made on; what it says of a job that
has started, ended or changed since is not given any more.
"""

from __future__ import annotations

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

    Attributes:
        number: the event that it was made on; 0: there is no calendar yet.
        made_at: when that was.
        past_window: jobs whose start is further away than bf_window looks.
    """

    def __init__(self, number: int = 0, made_at: UnixTime = _NEVER) -> None:
        self.number = number
        self.made_at = made_at
        self.past_window = 0
        self._entries: dict[int, tuple[Job, Planned]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, planned: Iterable[tuple[int, Planned]], then: Mapping[int, Job], now: Mapping[int, Job]) -> None:
        """Take a part of a calendar in, without what has become untrue while it was made.

        Args:
            planned: by job id.
            then: the records of all jobs that it was made on.
            now: the records of all jobs.
        """
        for number, one in planned:
            before, job = then.get(number), now.get(number)
            if before is not None and job is not None and _waits_as(before, job):
                self._entries[number] = (job, one)

    def of(self, state: State, number: int) -> Planned | None:
        """Give what is planned for a job; None where nothing is known, or no longer."""
        entry = self._entries.get(number)
        if entry is None:
            return None
        job = state.jobs.get(number)
        return entry[1] if job is not None and _waits_as(entry[0], job) else None


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

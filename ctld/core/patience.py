"""How long jobs may wait (SchedulerParameters=max_queue_wait, MaxQueueWait of a QOS), and which have waited longer.

A job past its longest wait stands in front of all others of its partition tier, so that the first reservation there is
its own: from then on what runs has to end, and nothing new may be in its way. Of several the one that is past the
longest stands first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from ctld.core.model import Job

_BITS = 34
"""Unix times fit."""
_SPARE = 1024
"""Most entries of jobs that are gone, beside as many as there are jobs."""
LATE = (1 << _BITS) + (1 << 32)
"""Standings of late jobs lie above this less the greatest time, and so above every priority."""


class Patience:
    """Kept with the queue, as an overlay: neither journaled nor in checkpoints.

    Args:
        longest: seconds that a job of any QOS may wait; below 0: no bound.
        by_qos: seconds by name of QOS, where it has a bound of its own.
        late: jobs known to be past their wait -> when they came to be.
    """

    __slots__ = ("_by_qos", "_due", "_heap", "_longest", "late")

    def __init__(
        self, longest: int = -1, by_qos: Mapping[str, int] | None = None, late: Mapping[int, int] | None = None
    ) -> None:
        self._longest = longest
        self._by_qos = dict(by_qos or {})
        self._due: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self.late: dict[int, int] = dict(late or {})
        """Queued jobs past their longest wait -> since when (Unix time)."""

    @property
    def bounds(self) -> tuple[int, Mapping[str, int]]:
        """The bound of all jobs, and those by QOS."""
        return self._longest, self._by_qos

    def longest(self, job: Job) -> int:
        """Give the seconds that a job may wait; below 0: no bound. The QOS' own bound counts before the cluster's."""
        return self._by_qos.get(job.spec.qos, self._longest)

    def watch(self, job: Job) -> None:
        """Take in a job that comes to the queue. Its wait begins when it could first start, and anew with a release;
        where an accrue limit keeps its age from counting, it does not count either."""
        longest = self.longest(job)
        due = max(job.eligible_at, job.accrues_at) + longest if longest >= 0 <= job.accrues_at else 0
        if self.late and self.late.get(job.id, due) != due:
            del self.late[job.id]
        if due:
            self._due[job.id] = due
            heappush(self._heap, (due, job.id))
            if len(self._heap) > 2 * len(self._due) + _SPARE:  # Of those that left and came back.
                self._heap = [(due, job_id) for job_id, due in self._due.items() if job_id not in self.late]
                heapify(self._heap)

    def forget(self, job_id: int) -> None:
        """Let go of a job that leaves the queue."""
        if self._due:
            self._due.pop(job_id, None)
            self.late.pop(job_id, None)

    def overdue(self, at: int) -> Iterator[int]:
        """Give the jobs that have come to be late by now, each once, and note them."""
        heap, dues, late = self._heap, self._due, self.late
        while heap and heap[0][0] <= at:
            due, job_id = heappop(heap)
            if dues.get(job_id) == due and job_id not in late:
                late[job_id] = due
                yield job_id

    def standing(self, job_id: int, priority: int) -> int:
        """Give what orders a job where its priority does otherwise: above every priority once it is late."""
        due = self.late.get(job_id)
        return priority if due is None else LATE - due

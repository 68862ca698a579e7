"""Job ids and first priorities."""

from __future__ import annotations

from ctld.core.cluster import Settings
from ctld.core.state import State
from muster.errors import Refused
from muster.ids import JobId
from muster.slurm_errors import slurm_text

TOP_PRIORITY = 4294901760
"""Priorities of jobs that wait in order of submission count down from here (priority/basic)."""
LARGEST_PRIORITY = 4294967293
"""What `--priority=TOP` gives."""


class JobIds:
    """Hands out job ids: counting up, from MaxJobId back to FirstJobId, never one that is in memory."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._next = int(state.next_job_id)
        self._taken: set[int] = set()

    def note(self, job_id: int) -> None:
        """Count an id as used that an event not yet applied carries."""
        self._taken.add(job_id)
        if job_id == self._next:
            self._next = following(job_id, self._state.settings)

    def take(self) -> JobId:
        """Give the next free id."""
        settings = self._state.settings
        candidate = self._next
        if not settings.first_job_id <= candidate <= settings.max_job_id:
            candidate = settings.first_job_id
        first = candidate
        while candidate in self._state.jobs or candidate in self._taken:
            candidate = following(candidate, settings)
            if candidate == first:
                raise Refused(slurm_text(2007), "every job id up to MaxJobId is in use", slurm_code=2007)
        self._taken.add(candidate)
        self._next = following(candidate, settings)
        return JobId(candidate)


def following(job_id: int, settings: Settings) -> int:
    """Give the id that comes after `job_id`."""
    return job_id + 1 if job_id < settings.max_job_id else settings.first_job_id


def first_priority(job_id: int, nice: int = 0) -> int:
    """Give the priority of a job that nobody gave one: submission order, less its nice value; at least 1."""
    return min(max(1, TOP_PRIORITY - job_id - nice), LARGEST_PRIORITY)

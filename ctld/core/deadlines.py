"""Jobs by the time at which they next need attention, sorted; adding and removing cost microseconds."""

from __future__ import annotations

from collections.abc import Iterator

from ctld.core.queue import SortedKeys
from muster.ids import UnixTime

_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1


class Deadlines:
    """One time for each job that has one: exact, so that nothing stale is ever looked at."""

    def __init__(self) -> None:
        self._keys = SortedKeys()
        self._times: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def set(self, job_id: int, time: int) -> None:
        """Note the time at which a job is due; 0 takes it out."""
        before = self._times.get(job_id, 0)
        if before == time:
            return
        if before:
            self._keys.remove(before << _ID_BITS | job_id)
            if not time:
                del self._times[job_id]
                return
        self._times[job_id] = time
        self._keys.insert(time << _ID_BITS | job_id)

    def due(self, at: UnixTime) -> Iterator[int]:
        """Walk the ids of jobs that are due at `at`, earliest first."""
        bound = (at + 1) << _ID_BITS
        for key in self._keys:
            if key >= bound:
                return
            yield key & _ID_MASK

    def times(self) -> dict[int, int]:
        """Give job id -> time, for comparing two of them."""
        return dict(self._times)

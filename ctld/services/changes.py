"""Who waits for a change of which job: calls that are answered as soon as it happens."""

from __future__ import annotations

import asyncio

from muster.errors import Unavailable

MOST_WAITING = 20_000
"""Calls that may wait at once; more are told to come back."""


class Changes:
    """Waiting calls by job id; `wake` is for a subscriber of the store.

    No wake-up is lost to who looks at the state and calls `of` without an await in between: events are delivered in
    turns of the loop of their own, after the state has changed.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        """Tell whether anybody waits."""
        return self._count > 0

    async def of(self, job_id: int, seconds: float) -> None:
        """Return when the job is woken for, or after so many seconds.

        Raises:
            Unavailable: too many wait already.
        """
        if self._count >= MOST_WAITING:
            raise Unavailable(f"{MOST_WAITING} calls wait for jobs already", "ask again in a few seconds")
        happened = asyncio.Event()
        waiting = self._waiting.setdefault(job_id, set())
        waiting.add(happened)
        self._count += 1
        try:
            async with asyncio.timeout(seconds):
                await happened.wait()
        except TimeoutError:
            pass  # the caller hears how things stand now
        finally:
            self._count -= 1
            waiting.discard(happened)
            if not waiting and self._waiting.get(job_id) is waiting:
                del self._waiting[job_id]

    def wake(self, job_id: int) -> None:
        """Wake who waits for this job."""
        for happened in self._waiting.get(job_id, ()):
            happened.set()

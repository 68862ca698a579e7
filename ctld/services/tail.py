"""The newest outcomes, kept in memory: what sacct can be told before dbd has taken it, or while dbd is away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from ctld.core.events import Event, decode
from ctld.services.outcomes import Outcome, outcome_in, outcome_of
from ctld.store.ports import JournalPort
from ctld.store.threads import in_thread
from muster.errors import NotFound

MAX_OUTCOMES = 20_000
"""About 40 MiB; what is older is dbd's, or missing while that is away."""
_CHUNK_EVENTS = 20_000


class Tail:
    """A bounded run of outcomes without gaps.

    Attributes:
        from_number: the first event that is covered; everything since is in `outcomes`.
        from_time: when that event happened (Unix time); 0 while the log is empty.
        filled: set once the journal has been read.
    """

    def __init__(self, journal: JournalPort, *, bound: int = MAX_OUTCOMES) -> None:
        self._journal = journal
        self._bound = bound
        self._outcomes: deque[Outcome] = deque()
        self._meanwhile: list[tuple[int, Event]] = []
        self.from_number = 1
        self.from_time = 0
        self.filled = asyncio.Event()

    def take(self, events: Sequence[tuple[int, Event]]) -> None:
        """Take durable events; a subscriber of the store."""
        if not self.filled.is_set():
            self._meanwhile.extend(events)
            return
        if not self.from_time:
            self.from_time = events[0][1].at
        for number, event in events:
            found = outcome_of(number, event)
            if found is not None:
                self._keep(found)

    def outcomes(self) -> list[Outcome]:
        """Give a copy, oldest first."""
        return list(self._outcomes)

    async def fill(self) -> None:
        """Read what the journal holds, in a thread, and then what has come meanwhile."""
        while not self.filled.is_set():
            self._outcomes.clear()
            self.from_number, self.from_time = self._journal.first_number, 0
            last = self.from_number - 1
            try:
                events = self._journal.read_events(self.from_number)
                ended = False
                while not ended:
                    found, first_time, last, ended = await in_thread(_read_chunk, events, last)
                    self.from_time = self.from_time or first_time
                    for outcome in found:
                        self._keep(outcome)
            except NotFound:
                continue  # pruned while it was being read: from its new beginning then
            self.filled.set()
            rest = [pair for pair in self._meanwhile if pair[0] > last]
            self._meanwhile.clear()
            if rest:
                self.take(rest)

    def _keep(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if len(self._outcomes) > self._bound:
            dropped = self._outcomes.popleft()
            self.from_number, self.from_time = dropped.number + 1, dropped.at


def _read_chunk(events: Iterator[tuple[int, bytes]], after: int) -> tuple[list[Outcome], int, int, bool]:
    """Read on: outcomes, time of the first event read, number of the last, whether the end was reached."""
    outcomes: list[Outcome] = []
    first_time, number = 0, after
    for read, (number, payload) in enumerate(events, 1):
        if read == 1:
            first_time = decode(payload).at
        found = outcome_in(number, payload)
        if found is not None:
            outcomes.append(found)
        if read >= _CHUNK_EVENTS:
            return outcomes, first_time, number, False
    return outcomes, first_time, number, True

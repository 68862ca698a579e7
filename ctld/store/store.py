"""The single writer: decides, applies and journals in one breath, and answers once durable.

Loops that act on the world subscribe here; they see events only when those are on disk, in order. Those that only
think (the scheduler) may look at the state at once: what they decide is journaled behind what they saw.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ctld.core.apply import apply
from ctld.core.commands import Command
from ctld.core.decide import decide
from ctld.core.events import Event, encode
from ctld.core.state import State
from ctld.store.ports import JournalPort
from muster.errors import Unavailable
from muster.ids import UnixTime

log = logging.getLogger("ctld.store")

Subscriber = Callable[[Sequence[tuple[int, Event]]], None]
"""Called in the loop with (number, event) pairs that have become durable; must not raise or wait."""


class Store:
    """The state, its journal, and who follows."""

    def __init__(self, state: State, journal: JournalPort) -> None:
        self.state = state
        self.journal = journal
        self._undelivered: deque[tuple[int, Event]] = deque()
        self._subscribers: list[Subscriber] = []
        self._watchers: list[Callable[[], None]] = []
        self._failure_callbacks: list[Callable[[Exception], None]] = []
        self._failure: Exception | None = None
        journal.on_durable(self._deliver)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have durable events delivered, from the next one on."""
        self._subscribers.append(subscriber)

    def on_change(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called whenever the state has changed, durable or not (to wake a loop)."""
        self._watchers.append(watcher)

    def on_failure(self, callback: Callable[[Exception], None]) -> None:
        """Have `callback` called, once, when the state or what follows it can no longer be trusted: a bug."""
        self._failure_callbacks.append(callback)

    def post(
        self, command: Command, *, at: UnixTime, blobs: Sequence[tuple[bytes, bytes]] = ()
    ) -> tuple[Sequence[Event], Awaitable[int] | None]:
        """Decide and apply now; give the events and an awaitable for their being durable (None: nothing happened).

        Raises what `decide` raises: a refused command changes nothing. Unavailable once the store has failed.
        """
        if self._failure is not None:
            raise Unavailable("the controller ends because of a bug", "see its log")
        state = self.state
        events = decide(state, command, at)
        if not events:
            return events, None
        first = self.journal.last_queued + 1
        try:
            for event in events:
                apply(state, event)
            written = self.journal.append([encode(event) for event in events], blobs)
        except Exception as error:
            # The state may have changed and the journal has nothing of it: what is decided on it from here on
            # would be journaled and could not be replayed. Better down than wrong.
            self._fail(error)
            raise
        # No await stands above this line: no other command can decide on a state that is about to change, and a
        # caller who is cancelled below cannot take back what is queued.
        self._undelivered.extend(enumerate(events, first))
        for watcher in self._watchers:
            watcher()
        return events, written

    async def commit(
        self, command: Command, *, at: UnixTime, blobs: Sequence[tuple[bytes, bytes]] = ()
    ) -> Sequence[Event]:
        """Decide, apply, and return once durable; a refused command changes nothing."""
        events, written = self.post(command, at=at, blobs=blobs)
        if written is not None:
            await written
        return events

    async def settled(self) -> None:
        """Return once all that the state shows now is durable; reads are answered after it."""
        journal = self.journal
        if journal.last_durable < journal.last_queued:
            await journal.wait_durable(journal.last_queued)

    def _deliver(self, number: int) -> None:
        undelivered = self._undelivered
        if not undelivered or undelivered[0][0] > number:
            return
        batch: list[tuple[int, Event]] = []
        while undelivered and undelivered[0][0] <= number:
            batch.append(undelivered.popleft())
        for subscriber in self._subscribers:
            try:
                subscriber(batch)
            except Exception as error:
                # The others hear of it all the same; this one has missed events, which a restart makes good.
                log.exception("a bug in what follows the events %d to %d", batch[0][0], batch[-1][0])
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            for callback in self._failure_callbacks:
                callback(error)

"""What the planner process is told: a copy of the state, then the durable events and what is computed beside them.

All of it is made and sent in slices, so that neither a large state nor a burst of events holds the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from ctld.core.apply.sections import dump
from ctld.core.events import Event, encode
from ctld.core.model import Record
from ctld.loops.links import Links
from ctld.planner.frames import ENCODE, NUMBER, Kind, Order, Priorities, event_frame, frame
from ctld.store.store import Store
from muster.ids import UnixTime

SLICE_SECONDS = 0.002
PAUSE_SECONDS = 0.001
"""Left to others after each slice."""
WRITE_BYTES = 1 << 18
MAX_QUEUED = 100_000
"""Events kept for a planner that is busy; beyond, it gets a new copy instead."""
PRIORITIES_AT_ONCE = 5_000


class Writer(Protocol):
    """The way to the process, as asyncio.StreamWriter has it."""

    def write(self, data: bytes) -> object:
        """Queue bytes."""

    async def drain(self) -> object:
        """Return once there is room for more."""


class Feed:
    """Events for one planner process after the other.

    Attributes:
        up_to: number of the newest durable event.
        changes: events since the last order.
        wake: set by an event.
    """

    def __init__(self, store: Store, links: Links, *, max_queued: int = MAX_QUEUED) -> None:
        self._store = store
        self._links = links
        self._max_queued = max_queued
        self._queue: deque[tuple[int, Event]] = deque()
        self._after = 0
        """The copy is the state after this event: it may become durable, and come, only later."""
        self._ranked = False
        """The planner was told computed priorities."""
        self.copied = False
        """The planner has a copy, and all events behind it are in the queue."""
        self.up_to = store.journal.last_durable
        self.changes = 0
        self.wake = asyncio.Event()
        store.subscribe(self._take)
        links.on_change(self._changed)

    def close(self) -> None:
        """Nobody listens: keep nothing."""
        self._queue.clear()
        self.copied = False
        self._store.state.queue.changed = None

    async def copy(self, writer: Writer) -> None:
        """Send the state as it is now; events behind it are kept from this moment on."""
        store, queue = self._store, self._store.state.queue
        # No await among these: all must be of one moment.
        number = self._after = store.journal.last_queued
        sections = dump(store.state)
        priorities = dict(queue.priorities)
        queue.changed = {}
        self._queue.clear()
        self._ranked = bool(priorities)
        self.copied = True
        await _send(writer, _copy_frames(number, sections))
        await _send(writer, _priority_frames(priorities, anew=False))

    async def bring(self, writer: Writer, number: int) -> bool:
        """Send what is known up to event `number`, once that is durable; False where too much came: a copy is due."""
        while self.up_to < number:
            self.wake.clear()
            await self.wake.wait()
        if not self.copied:
            return False
        await _send(writer, self._event_frames(number))
        if not self.copied:
            return False
        # Behind the events: a member that was split off inherits what its array had then, unless it is in here itself.
        # Those of jobs that have ended since are not.
        queue = self._store.state.queue
        changed, queue.changed = queue.changed or {}, {}
        anew = self._ranked and not queue.priorities
        if anew:
            changed = {}
        self._ranked = bool(queue.priorities)
        if changed or anew:
            await _send(writer, _priority_frames(changed, anew=anew))
        return self.copied

    async def order(self, writer: Writer, at: UnixTime, most_seconds: float, reachable: bytes) -> None:
        """Have a calendar made of what was brought."""
        self.changes = 0
        writer.write(frame(Kind.ORDER, ENCODE(Order(at, reachable, most_seconds))))
        await writer.drain()

    def reachable(self) -> bytes:
        """Give the nodes whose streams are up, as an order names them."""
        return np.packbits(self._links.reachable(len(self._store.state.nodes))).tobytes()

    def _take(self, batch: Sequence[tuple[int, Event]]) -> None:
        self.up_to = batch[-1][0]
        self._changed(len(batch))
        if not self.copied:
            return
        self._queue.extend(batch)
        if len(self._queue) > self._max_queued:
            self.close()

    def _changed(self, count: int = 1) -> None:
        self.changes += count
        self.wake.set()

    def _event_frames(self, number: int) -> Iterator[bytes]:
        queue = self._queue
        while queue and queue[0][0] <= number:
            at, event = queue.popleft()
            if at > self._after:
                yield event_frame(at, encode(event))


def _copy_frames(number: int, sections: Iterable[tuple[str, Iterator[Record]]]) -> Iterator[bytes]:
    yield frame(Kind.COPY, NUMBER.pack(number))
    for name, records in sections:
        yield frame(Kind.SECTION, name.encode())
        for record in records:
            yield frame(Kind.RECORD, ENCODE(record))
    yield frame(Kind.COPIED)


def _priority_frames(values: dict[int, int], *, anew: bool) -> Iterator[bytes]:
    pairs = iter(values.items())
    while True:
        some = dict(islice(pairs, PRIORITIES_AT_ONCE))
        if not some and not anew:
            return
        yield frame(Kind.PRIORITIES, ENCODE(Priorities(some, anew)))
        anew = False


async def _send(writer: Writer, frames: Iterable[bytes]) -> None:
    buffer = bytearray()
    until = time.perf_counter() + SLICE_SECONDS
    for one in frames:
        buffer += one
        if time.perf_counter() >= until or len(buffer) >= WRITE_BYTES:
            writer.write(bytes(buffer))
            buffer.clear()
            await writer.drain()
            await asyncio.sleep(PAUSE_SECONDS)
            until = time.perf_counter() + SLICE_SECONDS
    writer.write(bytes(buffer))
    await writer.drain()

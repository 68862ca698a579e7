"""The controller's disk: what is on it survives; what was only queued does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from ctld.core.apply import apply
from ctld.core.apply.sections import SECTION_TYPES, dump, load
from ctld.core.events import decode
from ctld.core.state import State
from ctld.store.blobfile import hash_of
from muster.errors import NotFound
from tests.sim.timeline import Timeline, Waiting

Checkpoint = tuple[int, list[tuple[str, list[bytes]]]]


@dataclass(slots=True)
class Disk:
    """What survives."""

    events: list[bytes] = field(default_factory=list)
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None

    def write_checkpoint(self, state: State, number: int) -> None:
        """Keep the state after event `number`."""
        encode = msgspec.msgpack.encode
        self.checkpoint = number, [(name, [encode(record) for record in records]) for name, records in dump(state)]

    def restored(self, *, use_checkpoint: bool = True) -> State:
        """Give the state that the disk tells."""
        after, state = 0, State()
        if use_checkpoint and self.checkpoint is not None:
            after, sections = self.checkpoint
            state = load(
                (name, [msgspec.msgpack.decode(record, type=SECTION_TYPES[name]) for record in records])
                for name, records in sections
            )
        for payload in self.events[after:]:
            apply(state, decode(payload))
        return state


@dataclass(slots=True)
class _Group:
    """What one append brought: kept whole or not at all."""

    payloads: Sequence[bytes]
    blobs: Sequence[tuple[bytes, bytes]]
    last: int


class _Durable(Waiting):
    """An event's being on disk."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __await__(self) -> Generator[Waiting, None, int]:  # type: ignore[override]
        yield from super().__await__()
        return self._number


class SlowJournal:
    """A JournalPort whose writes take a drawn time, all that queued in the meantime as one."""

    def __init__(self, disk: Disk, timeline: Timeline, rng: random.Random) -> None:
        self.disk = disk
        self._timeline = timeline
        self._rng = rng
        self._queue: list[_Group] = []
        self._writing: list[_Group] = []
        self._pending_blobs: dict[bytes, bytes] = {}
        self._last_queued = self._last_durable = len(disk.events)
        self._callbacks: list[Callable[[int], None]] = []
        self._waiting: list[tuple[int, Waiting]] = []
        self.stalled = 0.0
        """Seconds by which the next write is late."""
        self.dead = False

    @property
    def log_id(self) -> str:
        """Any."""
        return "00" * 8

    @property
    def first_number(self) -> int:
        """Nothing is ever pruned here."""
        return 1

    @property
    def last_queued(self) -> int:
        """Number of the last event appended."""
        return self._last_queued

    @property
    def last_durable(self) -> int:
        """Number of the last event on disk, as the controller knows."""
        return self._last_durable

    def append(self, payloads: Sequence[bytes], blobs: Sequence[tuple[bytes, bytes]] = ()) -> _Durable:
        """Queue events as one."""
        assert payloads, "an append has at least one event"
        self._last_queued += len(payloads)
        self._pending_blobs.update(blobs)
        self._queue.append(_Group(payloads, blobs, self._last_queued))
        if not self._writing:
            self._write()
        durable = _Durable(self._last_queued)
        self._waiting.append((self._last_queued, durable))
        return durable

    async def wait_durable(self, number: int) -> None:
        """Return once event `number` is on disk."""
        assert number <= self._last_queued, f"event {number} has not been appended"
        if number > self._last_durable:
            waiting = Waiting()
            self._waiting.append((number, waiting))
            await waiting

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called after each write."""
        self._callbacks.append(callback)

    def on_failure(self, callback: Callable[[Exception], None]) -> None:
        """This disk does not fail."""

    def read_events(self, from_number: int) -> Iterator[tuple[int, bytes]]:
        """Iterate the durable events."""
        yield from enumerate(self.disk.events[from_number - 1 : self._last_durable], from_number)

    def ensure_room(self, nbytes: int) -> None:
        """There is always room."""

    async def prune(self, upto_number: int) -> None:
        """Everything is kept: the end of a simulation looks at all of it."""

    async def close(self) -> None:
        """Nothing to do."""

    def put_blob(self, data: bytes) -> tuple[bytes, tuple[bytes, bytes] | None]:
        """Give the hash of `data`, and what to append where it is new."""
        digest = hash_of(data)
        known = digest in self.disk.blobs or digest in self._pending_blobs
        return digest, None if known else (digest, data)

    def get_blob(self, digest: bytes) -> bytes:
        """Give a blob, durable or not."""
        data = self.disk.blobs.get(digest) or self._pending_blobs.get(digest)
        if data is None:
            raise NotFound(f"no blob {digest.hex()} is stored")
        return data

    def crash(self) -> int:
        """End here. Of the write under way a part may have reached the disk unnoticed; give how many events did."""
        self.dead = True
        before = len(self.disk.events)
        for group in self._writing[: self._rng.randint(0, len(self._writing))]:
            self._keep(group)
        return len(self.disk.events) - before

    def unwritten(self) -> list[bytes]:
        """Give the events that are not known to be durable, in order."""
        return [payload for group in (*self._writing, *self._queue) for payload in group.payloads]

    def _write(self) -> None:
        self._writing, self._queue = self._queue, []
        delay = self._rng.uniform(0.0005, 0.006) + self.stalled
        self.stalled = 0.0
        self._timeline.after(delay, self._written)

    def _written(self) -> None:
        if self.dead:
            return
        for group in self._writing:
            self._keep(group)
            self._last_durable = group.last
        self._writing = []
        if self._queue:
            self._write()
        durable = self._last_durable
        for callback in self._callbacks:
            callback(durable)
        ready = [waiting for number, waiting in self._waiting if number <= durable]
        self._waiting = [pair for pair in self._waiting if pair[0] > durable]
        for waiting in ready:
            waiting.end()

    def _keep(self, group: _Group) -> None:
        self.disk.events.extend(group.payloads)
        self.disk.blobs.update(group.blobs)
        for digest, _ in group.blobs:
            self._pending_blobs.pop(digest, None)

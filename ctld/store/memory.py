"""A journal and a blob store in memory, for tests and the simulator: durable at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence

from ctld.store.blobfile import hash_of
from muster.errors import NotFound


class _Done(Awaitable[int]):
    """An awaitable that has its result already and needs no loop."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def __await__(self) -> Generator[None, None, int]:
        return self._number
        yield


class MemoryJournal:
    """A JournalPort that forgets everything with the process.

    Attributes:
        events: payload of each event since `first_number`.
        blobs: bytes of each blob by hash.
    """

    def __init__(self, *, after: int = 0, log_id: str = "00" * 8) -> None:
        self.events: list[bytes] = []
        self.blobs: dict[bytes, bytes] = {}
        self.first_number = after + 1
        self._log_id = log_id
        self._callbacks: list[Callable[[int], None]] = []
        self._telling = False

    @property
    def log_id(self) -> str:
        """The id given when it was made."""
        return self._log_id

    @property
    def last_queued(self) -> int:
        """Number of the last event appended."""
        return self.first_number + len(self.events) - 1

    @property
    def last_durable(self) -> int:
        """The same: memory is as durable as it gets here."""
        return self.last_queued

    def append(self, payloads: Sequence[bytes], blobs: Sequence[tuple[bytes, bytes]] = ()) -> Awaitable[int]:
        """Keep events and blobs; the awaitable is done already."""
        assert payloads, "an append has at least one event"
        self.events.extend(payloads)
        self.blobs.update(blobs)
        if self._callbacks and not self._telling:
            try:
                asyncio.get_running_loop().call_soon(self._tell)
                self._telling = True
            except RuntimeError:  # no loop runs: a plain synchronous test
                self._tell()
        return _Done(self.last_queued)

    async def wait_durable(self, number: int) -> None:
        """Return at once."""
        assert number <= self.last_queued, f"event {number} has not been appended"

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called in the loop's next turn after appends (at once where no loop runs)."""
        self._callbacks.append(callback)

    def on_failure(self, callback: Callable[[Exception], None]) -> None:
        """Memory does not fail; `callback` is never called."""

    def read_events(self, from_number: int) -> Iterator[tuple[int, bytes]]:
        """Iterate the events from `from_number` that are there when the iteration begins."""
        if from_number < self.first_number:
            raise NotFound(
                f"event {from_number} is no longer in the journal, which begins with event {self.first_number}"
            )
        yield from enumerate(self.events[from_number - self.first_number :], from_number)

    def _tell(self) -> None:
        self._telling = False
        for callback in self._callbacks:
            callback(self.last_queued)

    def ensure_room(self, nbytes: int) -> None:
        """There is always room."""

    async def prune(self, upto_number: int) -> None:
        """Forget the events up to `upto_number`."""
        gone = max(0, min(upto_number + 1 - self.first_number, len(self.events)))
        del self.events[:gone]
        self.first_number += gone

    async def close(self) -> None:
        """Nothing to do."""


class MemoryBlobs:
    """A BlobPort over the blobs of a MemoryJournal."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    def put(self, data: bytes) -> tuple[bytes, tuple[bytes, bytes] | None]:
        """The hash of `data`, and what to append where it is new."""
        digest = hash_of(data)
        return digest, None if digest in self._journal.blobs else (digest, data)

    def get(self, digest: bytes) -> bytes:
        """The bytes of that hash; NotFound if there are none."""
        try:
            return self._journal.blobs[digest]
        except KeyError:
            raise NotFound(f"no blob {digest.hex()} is stored") from None

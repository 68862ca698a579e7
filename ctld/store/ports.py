"""What the single writer asks of a journal, and what a journal tells of the blobs that pass through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

BlobPlaced = Callable[[bytes, int, int, int, bytes | None], None]
"""Told of each blob: (hash, first number of its segment, offset of its record, number of its event, its bytes).

The bytes are None when the blob was read back from disk, where it can be read again.
"""


class JournalPort(Protocol):
    """The numbered, durable log of events."""

    @property
    def log_id(self) -> str:
        """16 hex digits drawn when the log was begun; numbers of two logs are never compared."""

    @property
    def first_number(self) -> int:
        """Number of the first event that is still kept."""

    @property
    def last_queued(self) -> int:
        """Number of the last event appended; 0 before the first."""

    @property
    def last_durable(self) -> int:
        """Number of the last event on disk."""

    def append(self, payloads: Sequence[bytes], blobs: Sequence[tuple[bytes, bytes]] = ()) -> Awaitable[int]:
        """Queue events, and blobs (hash, bytes) in front of them, in one go and as one: all are kept or none.

        Returns an awaitable that gives the last of their numbers once all are on disk, and raises Unavailable once
        the journal has failed. Needs no await to be queued; who is cancelled while waiting takes nothing back.
        """

    async def wait_durable(self, number: int) -> None:
        """Return once event `number`, which must have been appended, is on disk."""

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called in the loop with the last durable number, after each batch."""

    def on_failure(self, callback: Callable[[Exception], None]) -> None:
        """Have `callback` called in the loop, once, when the journal cannot be written any more."""

    def read_events(self, from_number: int) -> Iterator[tuple[int, bytes]]:
        """Iterate the events from `from_number` on that are durable now; NotFound where they were pruned."""

    def ensure_room(self, nbytes: int) -> None:
        """Raise Unavailable where `nbytes` more cannot be taken without touching the reserve."""

    async def prune(self, upto_number: int) -> None:
        """Remove what holds only events up to `upto_number`."""

    async def close(self) -> None:
        """Bring what is queued to disk and stop."""


class BlobPort(Protocol):
    """Scripts and environments by content hash."""

    def put(self, data: bytes) -> tuple[bytes, tuple[bytes, bytes] | None]:
        """Hash `data`; give its hash and, where it is new, the record to append in front of the event that names it.

        Put and append without an await in between.
        """

    def get(self, digest: bytes) -> bytes:
        """The bytes of a blob; NotFound where it is not stored, Damaged where they are not what was stored."""

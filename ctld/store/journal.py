"""The journal: every event, numbered and on disk before anyone is answered.

Group commit: `append` queues in the loop, one thread writes whatever queued while its previous fdatasync ran, with one
write and one fdatasync, and tells the loop once. Offsets are given out when queueing, so the place of a blob is known
at once. A write that fails ends it all: what the disk then holds is unknown (a second fsync may report success for
pages that the kernel dropped), so nothing is acknowledged any more and the daemon has to go down.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from secrets import randbits
from typing import NamedTuple, Protocol

from ctld.store.ports import BlobPlaced
from ctld.store.recovery import Recovery, create_log
from ctld.store.segments import (
    HEADER_BYTES,
    MAX_LAG,
    MAX_PAYLOAD_BYTES,
    RECORD_BYTES,
    Header,
    Segment,
    blob_record,
    create_segment,
    event_record,
    read_events,
    segment_path,
)
from muster.errors import NotFound, TooLarge, Unavailable

log = logging.getLogger(__name__)

SEGMENT_BYTES = 64 << 20
FREE_SPACE_RESERVE = 64 << 20
ROOM_CHECK_SECONDS = 0.5

MAX_BATCH_BYTES = 8 << 20
"""A batch takes in no further append beyond this, so that one fdatasync stays short."""

MAX_QUEUED_BYTES = 64 << 20
"""`ensure_room` refuses while more than this waits for the disk."""


class Disk(Protocol):
    """The calls that can fail or block: real in the daemon, faulty in tests."""

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`, or raise OSError."""

    def sync(self, fd: int) -> None:
        """Return once the file's data is on stable storage, or raise OSError."""

    def free_bytes(self, directory: Path) -> int:
        """What an ordinary user could still write there."""


class RealDisk:
    """The kernel's files."""

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """A short write (a nearly full disk) is gone on with, until the kernel names the error."""
        done = os.pwrite(fd, data, offset)
        while done < len(data):
            done += os.pwrite(fd, memoryview(data)[done:], offset + done)

    def sync(self, fd: int) -> None:
        """fdatasync: the size is brought to disk too where it changed, times are not."""
        os.fdatasync(fd)

    def free_bytes(self, directory: Path) -> int:
        """From statvfs, without the file system's own reserve for root."""
        space = os.statvfs(directory)
        return space.f_bavail * space.f_frsize


class _Queued(NamedTuple):
    """One append on its way to disk."""

    segment: Segment
    header: Header
    offset: int
    last_number: int
    parts: list[bytes]
    nbytes: int
    written: asyncio.Future[int]


class Journal:
    """One daemon's journal, open for appending; belongs to the loop that `start` ran in.

    Typical use:
        recovery = Journal.recover(directory, after=checkpoint.number, on_blob=blobs.placed)
        for number, payload in recovery: ...
        journal = Journal.start(recovery)

    Every method is to be called in the loop's thread, but `read_events`, which any thread may use.
    """

    def __init__(
        self,
        recovery: Recovery,
        *,
        segment_bytes: int,
        free_space_reserve: int,
        disk: Disk,
    ) -> None:
        self.directory = recovery.directory
        self._lock = recovery.lock
        self._log_id = recovery.log_id
        self._on_blob: BlobPlaced | None = recovery.on_blob
        self._segments = recovery.segments
        self._tail = self._segments[-1]
        self._header = recovery.headers[-1]
        self._segment_bytes = segment_bytes
        self._reserve = free_space_reserve
        self._disk = disk
        self._last_queued = self._last_durable = recovery.last_number
        self._queued_bytes = 0
        self._durable_callbacks: list[Callable[[int], None]] = []
        self._failure_callbacks: list[Callable[[Exception], None]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._failure: Unavailable | None = None
        self._closed = False
        self._free = 0
        self._free_at = float("-inf")

        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Queued] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._idle = False
        self._leave = False
        self._open_segment = self._tail
        self._fd = os.open(segment_path(self.directory, self._tail.first), os.O_RDWR | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    @staticmethod
    def recover(directory: Path, *, after: int = 0, log_id: str = "", on_blob: BlobPlaced | None = None) -> Recovery:
        """Lock the directory and read what it holds behind event `after`; see `Recovery`."""
        return Recovery(directory, after=after, log_id=log_id, on_blob=on_blob)

    @classmethod
    def start(
        cls,
        recovery: Recovery,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        free_space_reserve: int = FREE_SPACE_RESERVE,
        disk: Disk | None = None,
    ) -> Journal:
        """Go on behind a recovery that has been read to its end: cut off the torn tail, begin a log where none is.

        Args:
            recovery: its lock, and its `on_blob` for the blobs to come, pass over to the journal.
            segment_bytes: a new segment begins once one would grow beyond this.
            free_space_reserve: bytes that `ensure_room` leaves to running jobs.
            disk: for tests.
        """
        assert recovery.finished, "read the recovery to its end before starting on it"
        directory = recovery.directory
        if torn := recovery.torn:
            log.warning(
                "%s: cut off %d bytes at offset %d: the end of an append that a crash left unfinished "
                "and nobody was answered (record %d)",
                torn.path,
                torn.nbytes,
                torn.offset,
                torn.number,
            )
            fd = os.open(torn.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(fd, torn.offset)
                os.fsync(fd)
            finally:
                os.close(fd)
        for name in os.listdir(directory):
            if name.endswith(".new") and name.startswith(("journal-", "blobs-", "checkpoint-")):
                os.unlink(directory / name)  # a crash came before it was whole
        if not recovery.segments:
            create_log(directory)
            recovery._open()
        return cls(
            recovery,
            segment_bytes=segment_bytes,
            free_space_reserve=free_space_reserve,
            disk=disk or RealDisk(),
        )

    @property
    def log_id(self) -> str:
        """16 hex digits drawn when the log was begun."""
        return self._log_id

    @property
    def first_number(self) -> int:
        """Number of the first event that is still kept."""
        return self._segments[0].first

    @property
    def last_queued(self) -> int:
        """Number of the last event appended; 0 before the first."""
        return self._last_queued

    @property
    def last_durable(self) -> int:
        """Number of the last event on disk."""
        return self._last_durable

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.end for segment in self._segments)

    def append(self, payloads: Sequence[bytes], blobs: Sequence[tuple[bytes, bytes]] = ()) -> asyncio.Future[int]:
        """Queue events, and blobs (hash, bytes) in front of them, in one go and as one: all are kept or none.

        Returns a future of the last event's number. It resolves once everything up to there is on disk, and raises
        Unavailable if the journal has failed. About 5 us and the checksum (1 us for 2 KiB).
        """
        written = self._loop.create_future()
        if self._failure is not None or self._closed:
            written.set_exception(self._failure or Unavailable(f"the journal in {self.directory} is closed"))
            written.exception()  # taken note of, also where nobody awaits it
            return written
        assert payloads, "an append has at least one event"
        first = self._last_queued + 1
        nbytes = 0
        for payload in payloads:
            nbytes += RECORD_BYTES + len(payload)
        for digest, data in blobs:
            nbytes += RECORD_BYTES + len(digest) + len(data)
        if nbytes > MAX_PAYLOAD_BYTES:
            raise TooLarge(f"{nbytes} bytes are too many for one journal entry (at most {MAX_PAYLOAD_BYTES})")

        segment = self._tail
        if segment.end + nbytes > self._segment_bytes and segment.end > HEADER_BYTES:
            segment = self._tail = Segment(first)
            self._segments = [*self._segments, segment]  # a new list: readers in threads hold the old one
            self._header = Header(first, self._log_id, randbits(32))
        salt = self._header.salt
        offset = start = segment.end
        durable = self._last_durable
        lag = min(first - durable, MAX_LAG)
        parts: list[bytes] = []
        for digest, data in blobs:
            parts += blob_record(salt, first, lag, digest, data)
            if self._on_blob is not None:
                self._on_blob(digest, segment.first, offset, first, data)
            offset += RECORD_BYTES + len(digest) + len(data)
        number = last = first + len(payloads) - 1
        if last == first:
            parts += event_record(salt, first, lag, payloads[0], more=False)
        else:
            for number, payload in enumerate(payloads, first):
                lag = min(number - durable, MAX_LAG)
                parts += event_record(salt, number, lag, payload, more=number != last)
        segment.note(first, start)
        segment.end = start + nbytes
        self._last_queued = last
        self._queued_bytes += nbytes
        self._queue.append(_Queued(segment, self._header, start, last, parts, nbytes, written))
        if self._idle:
            self._idle = False
            self._wake.put(None)
        return written

    async def wait_durable(self, number: int) -> None:
        """Return once event `number`, which must have been appended, is on disk.

        Raises:
            Unavailable: the journal failed before it was.
        """
        if number <= self._last_durable:
            return
        assert number <= self._last_queued, f"event {number} has not been appended"
        if self._failure is not None:
            raise self._failure
        reached = self._loop.create_future()
        self._waiting.append((number, reached))
        await reached

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called in the loop with the last durable number, after each batch."""
        self._durable_callbacks.append(callback)

    def on_failure(self, callback: Callable[[Exception], None]) -> None:
        """Have `callback` called in the loop, once, when the journal cannot be written any more."""
        self._failure_callbacks.append(callback)

    def read_events(self, from_number: int) -> Iterator[tuple[int, bytes]]:
        """Iterate the events from `from_number` on that were durable when the iteration began.

        Reads the files, a MiB at a time, in the calling thread; segments pruned meanwhile are still read if they
        were begun.

        Raises:
            NotFound: `from_number` has been pruned.
            Damaged: a record does not check.
        """
        segments, upto = self._segments, self._last_durable
        if from_number < segments[0].first:
            raise NotFound(
                f"event {from_number} is no longer in the journal, which begins with event {segments[0].first}",
                "begin again from a checkpoint",
            )
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is not None and following.first <= from_number:
                continue
            if segment.first > upto:
                return
            try:
                for number, payload, _behind in read_events(
                    segment_path(self.directory, segment.first),
                    segment.offset_before(from_number),
                    from_number=from_number,
                    upto_number=upto,
                ):
                    yield number, payload
            except FileNotFoundError:
                raise NotFound(
                    f"event {max(from_number, segment.first)} was pruned from the journal while it was being read",
                    "begin again from a checkpoint",
                ) from None

    def ensure_room(self, nbytes: int) -> None:
        """Raise Unavailable where `nbytes` more would go into the reserve, or the disk cannot keep up.

        The file system is asked at most twice a second; in between, what was queued is subtracted.
        """
        now = time.monotonic()
        if now - self._free_at >= ROOM_CHECK_SECONDS:
            self._free = self._disk.free_bytes(self.directory) - self._queued_bytes
            self._free_at = now
        if self._free - nbytes < self._reserve:
            raise Unavailable(
                f"the disk of {self.directory} is nearly full: {max(self._free, 0) >> 20} MiB are left, "
                f"of which {self._reserve >> 20} MiB are kept for running jobs",
                "free some space there, or ask the administrator to",
            )
        if self._queued_bytes + nbytes > MAX_QUEUED_BYTES:
            raise Unavailable(
                f"the disk of {self.directory} is too slow: {self._queued_bytes >> 20} MiB wait to be written",
                "try again in a few seconds",
            )
        self._free -= nbytes

    async def prune(self, upto_number: int) -> None:
        """Remove the segments that hold only events up to `upto_number`, never the last one."""
        upto_number = min(upto_number, self._last_durable)
        keep = 0
        while keep + 1 < len(self._segments) and self._segments[keep + 1].first <= upto_number + 1:
            keep += 1
        gone, self._segments = self._segments[:keep], self._segments[keep:]
        for segment in gone:  # in order: what is left after a crash in between has no gap
            await asyncio.to_thread(os.unlink, segment_path(self.directory, segment.first))

    async def close(self) -> None:
        """Bring what is queued to disk, stop the thread and free the directory; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._leave = True
        self._wake.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)  # what the thread told the loop last is taken in before
        os.close(self._fd)
        self._lock.release()

    # The writer thread.

    def _write_all(self) -> None:
        """Write batch after batch until told to leave, or until the disk refuses."""
        queue = self._queue
        while True:
            batch: list[_Queued] = []
            nbytes = 0
            while queue and nbytes < MAX_BATCH_BYTES:
                queued = queue.popleft()
                batch.append(queued)
                nbytes += queued.nbytes
            if not batch:
                if self._leave:
                    return
                self._idle = True
                if queue or self._leave:  # came between the last look and the flag
                    self._idle = False
                    continue
                self._wake.get()
                self._idle = False
                continue
            try:
                self._write(batch)
            except Exception as error:
                self._tell(self._fail, error, batch)
                return
            self._tell(self._resolve, batch, nbytes)

    def _tell(self, *call: object) -> None:
        """Have the loop call; a loop that was closed under the journal has nobody left to be told."""
        try:
            self._loop.call_soon_threadsafe(*call)  # type: ignore[arg-type]  # the first is a function
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _write(self, batch: list[_Queued]) -> None:
        """One write and one fdatasync; more only where a segment ends within the batch."""
        begin = 0
        while begin < len(batch):
            segment = batch[begin].segment
            end = begin + 1
            while end < len(batch) and batch[end].segment is segment:
                end += 1
            if segment is not self._open_segment:
                fd = create_segment(self.directory, batch[begin].header)
                os.close(self._fd)
                self._fd, self._open_segment = fd, segment
            if end - begin == 1:
                data = b"".join(batch[begin].parts)
            else:
                data = b"".join([part for queued in batch[begin:end] for part in queued.parts])
            self._disk.write(self._fd, data, batch[begin].offset)
            self._disk.sync(self._fd)
            begin = end

    # Back in the loop.

    def _resolve(self, batch: list[_Queued], nbytes: int) -> None:
        self._queued_bytes -= nbytes
        durable = self._last_durable = batch[-1].last_number
        for queued in batch:
            if not queued.written.done():
                queued.written.set_result(queued.last_number)
        if self._waiting:
            still = []
            for number, reached in self._waiting:
                if number > durable:
                    still.append((number, reached))
                elif not reached.done():
                    reached.set_result(None)
            self._waiting = still
        for callback in self._durable_callbacks:
            callback(durable)

    def _fail(self, error: Exception, batch: list[_Queued]) -> None:
        failure = Unavailable(f"the journal in {self.directory} cannot be written: {error}")
        failure.__cause__ = error
        self._failure = failure
        log.critical("%s", failure)
        lost: list[asyncio.Future[int] | asyncio.Future[None]] = [queued.written for queued in batch]
        lost += [queued.written for queued in self._queue]
        lost += [reached for _number, reached in self._waiting]
        self._queue.clear()
        self._waiting.clear()
        for future in lost:
            if not future.done():
                future.set_exception(failure)
                future.exception()  # taken note of: `on_failure` reports it, also where nobody awaits this one
        for callback in self._failure_callbacks:
            callback(error)

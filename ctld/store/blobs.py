"""Scripts and environments, each stored once, by content hash.

A new blob goes into the journal, in front of the event that names it. A checkpoint moves the blobs that are still
named out of the segments that it will let go, into a blob file; a blob that nobody names is forgotten then. In memory
is only where each one lies: about 160 bytes a blob (a dict of 16-byte hashes to ints).

Files are let go by `prune`, with the same number as the journal's segments: that of the older of the two checkpoints
kept, so that a fall back to it finds every blob that it names.
"""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Collection, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ctld.store.blobfile import BlobFileWriter, blob_files, hash_of, read_blob, read_index, retired_path
from ctld.store.segments import segment_path
from ctld.store.threads import in_thread
from muster.errors import Damaged, NotFound

CACHE_BYTES = 8 << 20
SLICE_BYTES = 4 << 20
SLICE_SECONDS = 0.002

OFFSET_BITS = 40
OFFSET_MASK = (1 << OFFSET_BITS) - 1


@dataclass(slots=True)
class _File:
    """A file that holds blobs.

    Attributes:
        path: a segment or a blob file.
        segment: which of the two.
        total: records of a blob file.
        until: a compaction has emptied it: no checkpoint from this number on needs it.
        serial: of a blob file.
        gone: removed.
    """

    path: Path
    segment: bool
    total: int = 0
    fd: int = -1
    until: int | None = None
    serial: int = 0
    gone: bool = False

    def open(self) -> int:
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self.fd

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _Held(NamedTuple):
    """What one file holds of the live blobs."""

    digests: list[bytes]
    offsets: array[int]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did: blobs moved to a blob file, blobs forgotten."""

    moved: int
    forgotten: int


class BlobStore:
    """The blobs of one state directory. Every method is to be called in the loop's thread.

    Wire it to the journal: `Journal.recover(..., on_blob=blobs.placed)`, `journal.on_durable(blobs.durable)`.

    Args:
        directory: that of the journal; blob files found there are taken in (their index only).
        cache_bytes: bound of the cache of blobs read lately.

    Raises:
        Damaged: a blob file's index does not check.
    """

    def __init__(self, directory: Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._directory = directory
        self._files: list[_File] = []
        self._slots: dict[int, int] = {}  # first number of a segment -> its place in _files
        self._index: dict[bytes, int] = {}
        self._unwritten: dict[bytes, tuple[int, bytes]] = {}
        self._unwritten_order: deque[tuple[int, bytes]] = deque()
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._cache_bytes = cache_bytes
        self._next_serial = 1
        self._compacting = False
        self._live: Collection[bytes] | None = None
        self._fresh: set[bytes] = set()
        if directory.is_dir():
            for path, serial, until in blob_files(directory):  # what lies in several is taken from the last
                self._take_in(path, serial, until)

    def __len__(self) -> int:
        """How many blobs are stored."""
        return len(self._index)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._index

    def put(self, data: bytes) -> tuple[bytes, tuple[bytes, bytes] | None]:
        """Hash `data`; give its hash and, where it is new, the record to append in front of the event that names it.

        Changes nothing: the blob is stored once it is appended, so a submission refused later leaves no trace.
        Put and append without an await in between: only then is what `put` found here still kept.
        """
        digest = hash_of(data)
        if digest not in self._index:
            return digest, (digest, data)
        if self._compacting and digest not in self._fresh and (self._live is None or digest not in self._live):
            return digest, (digest, data)  # about to be forgotten: nobody named it when the checkpoint began
        return digest, None

    def get(self, digest: bytes) -> bytes:
        """The bytes of a blob, checked by its hash. About 10 us from the page cache.

        Raises:
            NotFound: it is not stored.
            Damaged: its bytes are not those that were stored (file and hash named).
        """
        cached = self._cache.get(digest)
        if cached is not None:
            self._cache.move_to_end(digest)
            return cached
        unwritten = self._unwritten.get(digest)
        if unwritten is not None:
            return unwritten[1]
        place = self._index.get(digest)
        if place is None:
            raise NotFound(f"no blob {digest.hex()} is stored in {self._directory}")
        file = self._files[place >> OFFSET_BITS]
        try:
            data = read_blob(file.open(), file.path, place & OFFSET_MASK, digest)
        except OSError as error:
            raise Damaged(f"{file.path}: blob {digest.hex()} cannot be read: {error.strerror}") from error
        self._remember(digest, data)
        return data

    def placed(self, digest: bytes, segment: int, offset: int, number: int, data: bytes | None) -> None:
        """Take note of a blob in the journal (a `BlobPlaced`); `data` while it is not yet on disk."""
        slot = self._slots.get(segment)
        if slot is None:
            slot = self._slots[segment] = len(self._files)
            self._files.append(_File(segment_path(self._directory, segment), segment=True))
        self._index[digest] = slot << OFFSET_BITS | offset
        if self._compacting:
            self._fresh.add(digest)
        if data is not None:
            self._unwritten[digest] = number, data
            self._unwritten_order.append((number, digest))

    def durable(self, number: int) -> None:
        """Drop the bytes that are on disk now from memory; for `journal.on_durable`."""
        order = self._unwritten_order
        while order and order[0][0] <= number:
            appended, digest = order.popleft()
            if self._unwritten.get(digest, (0, b""))[0] == appended:  # else it was appended once more behind
                del self._unwritten[digest]

    def begin_compaction(self) -> None:
        """Call together with the snapshot that a checkpoint is made of, with no await in between.

        From here on, a blob that is put again counts as stored only if the snapshot names it.
        """
        assert not self._compacting, "one compaction at a time"
        self._compacting = True
        self._live = None
        self._fresh = set()

    def cancel_compaction(self) -> None:
        """Where `compact` will not be called after all."""
        self._compacting = False
        self._live = None
        self._fresh = set()

    async def compact(self, live: Collection[bytes], *, number: int) -> Compaction:
        """Move the blobs that the snapshot of event `number` names out of the journal; forget the others.

        Await it before the checkpoint is written. Blob files that are less than half alive, or no larger than what
        is moved anyway, are rewritten too: so there are few of them, and each blob is moved a logarithmic number of
        times. Copies in a thread, 4 MiB at a time, and holds the loop at most 2 ms at a time. On an error (disk
        full, a damaged blob) everything stays where it was.

        Args:
            live: hashes that the snapshot names; a set.
            number: the snapshot's last event, which must be durable.

        Raises:
            Damaged: a blob to be moved does not match its hash.
            OSError: the file cannot be written.
        """
        assert self._compacting, "begin_compaction comes first, together with the snapshot"
        try:
            self._live = live
            in_use = [slot for slot, file in enumerate(self._files) if not file.segment and file.until is None]
            held, forgotten = await self._sort_out(live)
            moving = self._choose(held)
            moved = await self._move(moving, held) if moving else 0
            for slot in in_use:
                if slot in moving or slot not in held:
                    await self._retire(self._files[slot], number)
            for file in self._files:
                if file.segment or file.until is not None:
                    file.close()  # a segment that is still read is opened again
        finally:
            self.cancel_compaction()
        return Compaction(moved, forgotten)

    async def prune(self, number: int) -> None:
        """Remove the blob files that no checkpoint from `number` on needs.

        To be called behind a compaction and its checkpoint, never at start: until a compaction has been, a new
        submission may share a blob of a file that is kept for the older checkpoint only.
        """
        for file in self._files:
            if file.until is not None and file.until <= number and not file.gone:
                file.gone = True
                file.close()
                await in_thread(os.unlink, file.path)

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()

    def _take_in(self, path: Path, serial: int, until: int | None) -> None:
        """Add the index of a blob file found at start."""
        base = len(self._files) << OFFSET_BITS
        found = [(digest, base | offset) for digest, offset in read_index(path)]
        self._index.update(found)
        self._files.append(_File(path, segment=False, total=len(found), serial=serial, until=until))
        self._next_serial = max(self._next_serial, serial + 1)

    async def _retire(self, file: _File, number: int) -> None:
        """Have a file's name say how long it is kept, so that a restart knows it too."""
        retired = retired_path(self._directory, file.serial, number)
        await in_thread(os.rename, file.path, retired)
        file.path, file.until = retired, number

    def _remember(self, digest: bytes, data: bytes) -> None:
        """Keep a blob that was read in the cache, within its bound."""
        if len(data) > self._cache_bytes // 4:
            return
        self._cache[digest] = data
        self._cached_bytes += len(data)
        while self._cached_bytes > self._cache_bytes:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= len(dropped)

    async def _sort_out(self, live: Collection[bytes]) -> tuple[dict[int, _Held], int]:
        """Forget the blobs that are not live; give the others by the file that holds them."""
        held: dict[int, _Held] = {}
        forgotten = 0
        index = self._index
        pause = _Pause()
        for digest in list(index):
            if pause.due():
                await pause.take()
            if digest in self._fresh:
                continue  # appended behind the snapshot, in a segment that stays
            if digest not in live:
                del index[digest]
                forgotten += 1
                continue
            place = index[digest]
            slot = place >> OFFSET_BITS
            if slot not in held:
                held[slot] = _Held([], array("Q"))
            held[slot].digests.append(digest)
            held[slot].offsets.append(place & OFFSET_MASK)
        return held, forgotten

    def _choose(self, held: dict[int, _Held]) -> set[int]:
        """Which files to empty: every segment, and the blob files that are not worth keeping."""
        files = self._files
        moving = {slot for slot in held if files[slot].segment or files[slot].until is not None}
        moved = sum(len(held[slot].digests) for slot in moving)
        for slot in sorted(held.keys() - moving, key=lambda slot: len(held[slot].digests)):
            alive = len(held[slot].digests)
            if alive * 2 < files[slot].total or alive <= moved:
                moving.add(slot)
                moved += alive
        return moving

    async def _move(self, moving: set[int], held: dict[int, _Held]) -> int:
        """Copy what the files in `moving` hold into a new blob file, then look for it there."""
        writer = BlobFileWriter(self._directory, self._next_serial)
        sources = _sources([(self._files[slot].path, held[slot]) for slot in sorted(moving)])
        try:
            while await in_thread(writer.copy, sources, SLICE_BYTES):
                pass
            await in_thread(writer.finish)
        except BaseException:
            writer.abandon()
            raise
        finally:
            sources.close()
        slot = len(self._files)
        self._files.append(_File(writer.path, segment=False, total=len(writer.digests), serial=self._next_serial))
        self._next_serial += 1
        pause = _Pause()
        for digest, offset in zip(writer.digests, writer.offsets, strict=True):
            if digest not in self._fresh:
                self._index[digest] = slot << OFFSET_BITS | offset
            if pause.due():
                await pause.take()
        return len(writer.digests)


class _Pause:
    """Lets others have the loop after each 2 ms of work."""

    __slots__ = ("_count", "_since")

    def __init__(self) -> None:
        self._count = 0
        self._since = time.perf_counter()

    def due(self) -> bool:
        self._count += 1
        return self._count % 64 == 0 and time.perf_counter() - self._since > SLICE_SECONDS

    async def take(self) -> None:
        await asyncio.sleep(0)
        self._since = time.perf_counter()


def _sources(files: list[tuple[Path, _Held]]) -> Generator[tuple[int, Path, int, bytes], None, None]:
    """What `BlobFileWriter.copy` takes, one file open at a time (the loop's own descriptors stay the loop's)."""
    for path, held in files:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for digest, offset in zip(held.digests, held.offsets, strict=True):
                yield fd, path, offset, digest
        finally:
            os.close(fd)

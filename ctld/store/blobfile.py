"""Blob files `blobs-<n>.dat`: what a checkpoint moves out of the journal, with an index at the end.

One that a later compaction has emptied is kept for the older checkpoint, as `blobs-<n>.until-<event number>.dat`.

    header   magic 8, version u32, crc32 u32
    record   as a BLOB of the journal (segments.py), salt and number 0
    index    for each record: hash 16, offset u64
    trailer  magic 8, index offset u64, count u64, crc32 of the index u32, crc32 of the trailer u32

A restart reads the index alone: 100,000 scripts and environments are 5 MB of it, not 600 MB of records. The records
are checked by their hash whenever one is read.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from ctld.store.segments import BLOB, KIND, MAX_PAYLOAD_BYTES, RECORD, RECORD_BYTES, blob_record, sync_directory
from muster.errors import Damaged, InvalidInput

HASH_BYTES = 16

MAGIC = b"MUSTERBL"
VERSION = 1
HEADER = struct.Struct("<8sII")
ENTRY = struct.Struct("<16sQ")
TRAILER = struct.Struct("<8sQQI")
TRAILER_CRC = struct.Struct("<I")
TRAILER_BYTES = TRAILER.size + TRAILER_CRC.size

FIRST_READ_BYTES = 8192
"""Most scripts and environments come whole with the first read."""


def hash_of(data: bytes) -> bytes:
    """The content hash: blake2b of 16 bytes."""
    return blake2b(data, digest_size=HASH_BYTES).digest()


def blob_path(directory: Path, serial: int) -> Path:
    """The blob file numbered `serial`."""
    return directory / f"blobs-{serial}.dat"


def retired_path(directory: Path, serial: int, until: int) -> Path:
    """Its name once a compaction has emptied it: no checkpoint from event `until` on needs it."""
    return directory / f"blobs-{serial}.until-{until}.dat"


def blob_files(directory: Path) -> list[tuple[Path, int, int | None]]:
    """The blob files in `directory` as (path, serial, until): the retired ones first, then by serial."""
    found: list[tuple[Path, int, int | None]] = []
    for name in os.listdir(directory):
        if name.startswith("blobs-") and name.endswith(".dat"):
            serial, dot, until = name[6:-4].partition(".until-")
            if serial.isdigit() and until.isdigit() == bool(dot):
                found.append((directory / name, int(serial), int(until) if dot else None))
    return sorted(found, key=lambda file: (file[2] is None, file[1]))


def read_blob(fd: int, path: Path, offset: int, digest: bytes) -> bytes:
    """Read the blob whose record is at `offset` of a blob file or segment, checked by its hash.

    Raises:
        Damaged: the bytes are not those that were stored.
    """
    data = os.pread(fd, FIRST_READ_BYTES, offset)
    if len(data) >= RECORD_BYTES:
        _mark, _crc, length, _lag, _number, kind, hashed = RECORD.unpack_from(data)
        size = RECORD_BYTES + length
        if kind & KIND == BLOB and hashed == len(digest) <= length <= MAX_PAYLOAD_BYTES:
            while len(data) < size:
                more = os.pread(fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
            content = data[RECORD_BYTES + hashed : size]
            if len(data) >= size and blake2b(content, digest_size=hashed).digest() == digest:
                return content
    raise Damaged(
        f"{path}: blob {digest.hex()} at offset {offset} is damaged (its bytes do not match its hash)",
        "restore this file from a copy",
    )


def read_index(path: Path) -> Iterator[tuple[bytes, int]]:
    """Read (hash, offset) of each blob of a file, checked before the first is given.

    Raises:
        Damaged: the header, the index or the trailer does not check.
        InvalidInput: another version of Muster wrote it.
    """
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size or not head.startswith(MAGIC):
            raise Damaged(f"{path}: the header at offset 0 is damaged", "restore this file from a copy")
        _magic, version, crc = HEADER.unpack(head)
        if zlib.crc32(head[:-4]) != crc:
            raise Damaged(f"{path}: the header at offset 0 is damaged", "restore this file from a copy")
        if version != VERSION:
            raise InvalidInput(
                f"{path}: blob file format {version}, but this version of Muster reads {VERSION}",
                "use the version of Muster that wrote it",
            )
        size = file.seek(0, os.SEEK_END)
        at = size - TRAILER_BYTES
        file.seek(max(at, 0))
        trailer = file.read(TRAILER_BYTES)
        if at < HEADER.size or zlib.crc32(trailer[:-4]) != TRAILER_CRC.unpack_from(trailer, TRAILER.size)[0]:
            raise Damaged(f"{path}: the trailer at offset {max(at, 0)} is damaged", "restore this file from a copy")
        magic, begin, count, index_crc = TRAILER.unpack_from(trailer)
        if magic != MAGIC or begin + count * ENTRY.size != at:
            raise Damaged(f"{path}: the trailer at offset {at} is damaged", "restore this file from a copy")
        file.seek(begin)
        index = file.read(at - begin)
        if zlib.crc32(index) != index_crc:
            raise Damaged(f"{path}: the index at offset {begin} is damaged", "restore this file from a copy")
    yield from ENTRY.iter_unpack(index)


class BlobFileWriter:
    """Writes one blob file, slice by slice; it appears under its name, durable, with `finish`.

    Used from one thread at a time. Each slice is synced: dirty data that pile up would be waited for by the
    journal's next fdatasync (one ext4 transaction holds both).
    """

    def __init__(self, directory: Path, serial: int) -> None:
        self.path = blob_path(directory, serial)
        self._unborn = self.path.with_suffix(".new")
        head = HEADER.pack(MAGIC, VERSION, 0)[:-4]
        self._fd = os.open(self._unborn, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._write(head + TRAILER_CRC.pack(zlib.crc32(head)))
        self._end = HEADER.size
        self._index = bytearray()
        self.digests: list[bytes] = []
        self.offsets: list[int] = []

    def copy(self, sources: Iterator[tuple[int, Path, int, bytes]], nbytes: int) -> bool:
        """Take over about `nbytes` of blobs (descriptor, path, offset, hash), each checked, and bring them to disk.

        Returns whether there may be more of them.
        """
        parts: list[bytes] = []
        until = self._end + nbytes
        for fd, path, offset, digest in sources:
            data = read_blob(fd, path, offset, digest)
            parts += blob_record(0, 0, 0, digest, data)
            self.digests.append(digest)
            self.offsets.append(self._end)
            self._index += ENTRY.pack(digest, self._end)
            self._end += RECORD_BYTES + len(digest) + len(data)
            if self._end >= until:
                break
        self._write(b"".join(parts))
        os.fdatasync(self._fd)
        return self._end >= until

    def finish(self) -> None:
        """Add index and trailer, and make the file appear."""
        trailer = TRAILER.pack(MAGIC, self._end, len(self.digests), zlib.crc32(self._index))
        self._write(bytes(self._index) + trailer + TRAILER_CRC.pack(zlib.crc32(trailer)))
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        os.rename(self._unborn, self.path)
        sync_directory(self.path.parent)

    def abandon(self) -> None:
        """Leave nothing behind of a file that was not finished."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._unborn.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

"""The format of a journal segment on disk: its header, its records, and how a record is checked.

A segment `journal-<number of its first event, 20 digits>.log` is a header and then records without gaps:

    header   magic 8, version u32, salt u32, first event number u64, log id 8 bytes, crc32 u32 (of all before it)
    record   mark 4, crc32 u32, length u32, lag u32, number u64, kind u8, hash length u8, payload (`length` bytes)

All integers are little-endian. The CRC covers everything behind it and starts from the segment's random salt: a
user's script that contains the bytes of a record can therefore never be taken for one. A BLOB's payload is its
content hash and then its bytes, and it bears the number of the event that it stands in front of. `lag` says how far
behind the durable end was when the record was queued (number - last durable event): what tells bytes that were
acknowledged and then damaged from a tail that never was. Records of one append form a group, all or nothing: each but
the last has the OPEN bit set.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.errors import Damaged, InvalidInput

MAGIC = b"MUSTERJL"
VERSION = 1
HEADER = struct.Struct("<8sIIQ8s")
HEADER_CRC = struct.Struct("<I")
HEADER_BYTES = HEADER.size + HEADER_CRC.size

MARK = b"\xf5Mu\xe2"
FRAME = struct.Struct("<4sI")
BODY = struct.Struct("<IIQBB")
RECORD = struct.Struct("<4sIIIQBB")
RECORD_BYTES = RECORD.size
assert FRAME.size + BODY.size == RECORD_BYTES

EVENT = 1
BLOB = 2
OPEN = 0x80
"""Set in `kind` on every record of an append but the last."""
KIND = 0x7F

MAX_PAYLOAD_BYTES = 1 << 30
"""A payload above this is refused when appended, and a length above it is damage when read."""
MAX_LAG = 0xFFFFFFFF

READ_BYTES = 1 << 20


def segment_path(directory: Path, first: int) -> Path:
    """The file whose first event is numbered `first`."""
    return directory / f"journal-{first:020d}.log"


def segment_numbers(directory: Path) -> list[int]:
    """First event numbers of the segments in `directory`, ascending; other files are left out."""
    return sorted(
        int(name[8:28])
        for name in os.listdir(directory)
        if len(name) == 32 and name.startswith("journal-") and name.endswith(".log") and name[8:28].isdigit()
    )


def first_number(directory: Path) -> int | None:
    """The number of the first event that the journal in `directory` still has; None if it has no segment."""
    if not directory.is_dir():
        return None
    return next(iter(segment_numbers(directory)), None)


@dataclass(frozen=True, slots=True)
class Header:
    """What a segment says about itself."""

    first: int
    log_id: str
    salt: int

    def encode(self) -> bytes:
        """The bytes that open the file."""
        head = HEADER.pack(MAGIC, VERSION, self.salt, self.first, bytes.fromhex(self.log_id))
        return head + HEADER_CRC.pack(zlib.crc32(head))


def read_header(path: Path) -> Header:
    """Read and check the header of a segment.

    Raises:
        Damaged: it is cut short, its checksum is wrong, or it is not that of the file's name.
        InvalidInput: another version of Muster wrote it.
    """
    with open(path, "rb") as file:
        data = file.read(HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        raise Damaged(f"{path}: the header at offset 0 is cut short ({len(data)} of {HEADER_BYTES} bytes)")
    magic, version, salt, first, log_id = HEADER.unpack_from(data)
    if zlib.crc32(data[: HEADER.size]) != HEADER_CRC.unpack_from(data, HEADER.size)[0] or magic != MAGIC:
        raise Damaged(f"{path}: the header at offset 0 is damaged (its checksum does not match)")
    if version != VERSION:
        raise InvalidInput(
            f"{path}: journal format {version}, but this version of Muster reads {VERSION}",
            "use the version of Muster that wrote it",
        )
    if segment_path(path.parent, first) != path:
        raise Damaged(f"{path}: the header names record {first} as the first, the file name another one")
    return Header(first, log_id.hex(), salt)


def create_segment(directory: Path, header: Header) -> int:
    """Make a segment with its header on disk, the name included; returns the descriptor, open to read and write.

    It is written under another name first, so that a segment without a whole header is always damage.
    """
    path = segment_path(directory, header.first)
    unborn = path.with_suffix(".new")
    fd = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, header.encode())
        os.fsync(fd)
        os.rename(unborn, path)
        sync_directory(directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def sync_directory(directory: Path) -> None:
    """Bring the names in `directory` to disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def event_record(salt: int, number: int, lag: int, payload: bytes, *, more: bool) -> tuple[bytes, bytes]:
    """The two parts of an EVENT record; `more`: others of the same append follow."""
    body = BODY.pack(len(payload), lag, number, EVENT | OPEN if more else EVENT, 0)
    return FRAME.pack(MARK, zlib.crc32(payload, zlib.crc32(body, salt))) + body, payload


def blob_record(salt: int, number: int, lag: int, digest: bytes, data: bytes) -> tuple[bytes, bytes]:
    """The two parts of a BLOB record; `number` is that of the first event of its append."""
    body = BODY.pack(len(digest) + len(data), lag, number, BLOB | OPEN, len(digest)) + digest
    return FRAME.pack(MARK, zlib.crc32(data, zlib.crc32(body, salt))) + body, data


def read_events(path: Path, offset: int, *, from_number: int, upto_number: int) -> Iterator[tuple[int, bytes, int]]:
    """Read the events `from_number` to `upto_number` of one segment, as (number, payload, offset behind it).

    `offset` is that of a record at or before `from_number` (HEADER_BYTES always is). Blobs are stepped over unread.
    Only what is known to be durable may be asked for: whatever does not check is damage.
    """
    header = read_header(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        buffer, base, pos = b"", offset, 0
        while True:
            if len(buffer) - pos < RECORD_BYTES:
                buffer, base, pos = os.pread(fd, READ_BYTES, base + pos), base + pos, 0
                if not buffer:
                    return
                if len(buffer) < RECORD_BYTES:
                    raise Damaged(f"{path}: the record at offset {base} is cut short")
            mark, crc, length, _lag, number, kind, _hashed = RECORD.unpack_from(buffer, pos)
            if mark != MARK or length > MAX_PAYLOAD_BYTES:
                raise Damaged(f"{path}: the record at offset {base + pos} is damaged (it does not begin as one)")
            if number > upto_number:
                return
            size = RECORD_BYTES + length
            if kind & KIND == EVENT and number >= from_number:
                if len(buffer) - pos < size:
                    buffer, base, pos = os.pread(fd, max(size, READ_BYTES), base + pos), base + pos, 0
                if len(buffer) < size or zlib.crc32(buffer[pos + 8 : pos + size], header.salt) != crc:
                    raise Damaged(
                        f"{path}: record {number} at offset {base + pos} is damaged (its checksum does not match)"
                    )
                yield number, buffer[pos + RECORD_BYTES : pos + size], base + pos + size
                if number == upto_number:
                    return
            pos += size
            if pos > len(buffer):
                buffer, base, pos = b"", base + pos, 0
    finally:
        os.close(fd)


MARK_EVERY_BYTES = 256 * 1024


class Segment:
    """What a running daemon knows of one segment: where it ends, and where some of its records are.

    Attributes:
        first: number of its first event.
        end: bytes written or queued, header included.
    """

    __slots__ = ("_numbers", "_offsets", "end", "first")

    def __init__(self, first: int, end: int = HEADER_BYTES) -> None:
        self.first = first
        self.end = end
        self._numbers = array("Q", [first])
        self._offsets = array("Q", [HEADER_BYTES])

    def note(self, number: int, offset: int) -> None:
        """Remember where the append begins whose first event is `number`, about once in 256 KiB."""
        if offset - self._offsets[-1] >= MARK_EVERY_BYTES:
            self._offsets.append(offset)
            self._numbers.append(number)  # last: a reader in a thread finds an offset for each number

    def offset_before(self, number: int) -> int:
        """Offset of a record at or before event `number`, the nearest that is remembered."""
        return self._offsets[bisect_right(self._numbers, number) - 1]

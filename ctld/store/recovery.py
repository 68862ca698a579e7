"""Reading the journal back at start: every event in order, every place of a blob, and what a crash cut off.

A crash can leave the end of the last segment unfinished: that was never acknowledged, and is cut off. Anything else
that does not check is damage, and refused by name: to go on would lose what users were told is safe.

How the two are told apart, when a record of the last segment does not check: with no valid record behind it, it is a
torn tail. With one behind it that says that the bad one was durable already (`lag`), it is damage. In between lies the
power loss in the middle of one large write, of which the disk kept later sectors but not earlier ones; those read as
zeros. So it is torn if whole sectors of it are zeros, else damage.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import randbits, token_hex

from ctld.store.lock import DirectoryLock
from ctld.store.ports import BlobPlaced
from ctld.store.segments import (
    BLOB,
    EVENT,
    HEADER_BYTES,
    KIND,
    MARK,
    MAX_PAYLOAD_BYTES,
    OPEN,
    RECORD,
    RECORD_BYTES,
    Header,
    Segment,
    create_segment,
    read_header,
    segment_numbers,
    segment_path,
    sync_directory,
)
from muster.errors import Damaged

log = logging.getLogger(__name__)

SECTOR = 512


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of the last segment that a crash left unfinished.

    Attributes:
        path: the segment.
        offset: where the unfinished append begins.
        nbytes: how much lies behind, to be cut off.
        number: what its first event would have been.
    """

    path: Path
    offset: int
    nbytes: int
    number: int


class Recovery:
    """The journal of one directory, locked and being read; iterate it once, to the end.

    It changes nothing on disk (a torn tail is cut off by `Journal.start`). Iterating gives (number, payload) of each
    event behind `after`, in order without a gap, and calls `on_blob` for each blob on the way. Costs about a second
    for 600 MB: blobs are checked but never copied.

    Args:
        directory: made (mode 0700) if it does not exist.
        after: the last event that the caller has already, from its checkpoint; 0: none.
        log_id: the checkpoint's; empty: any log will do.
        on_blob: told of each blob found in the segments that are read.

    Raises:
        Refused: another daemon has the directory.
        Damaged: the journal does not reach from `after` on, or a record does not check (file, record, offset named).
    """

    def __init__(self, directory: Path, *, after: int = 0, log_id: str = "", on_blob: BlobPlaced | None = None) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.after = after
        self.on_blob = on_blob
        self.lock = DirectoryLock(directory)
        self.last_number = after
        self.torn: TornTail | None = None
        self.finished = False
        self.segments: list[Segment] = []
        self.headers: list[Header] = []
        try:
            self._open()
            if log_id and self.headers and log_id != self.log_id:
                raise Damaged(
                    f"{directory}: the checkpoint belongs to log {log_id}, the journal to log {self.log_id}",
                    "keep checkpoint and journal of one log together",
                )
        except BaseException:
            self.close()
            raise

    @property
    def log_id(self) -> str:
        """The log's identity; empty while the directory holds no log."""
        return self.headers[-1].log_id if self.headers else ""

    def close(self) -> None:
        """Give the directory free again, where `Journal.start` has not taken it over."""
        self.lock.release()

    def _open(self) -> None:
        """Read all headers and find the segment to start in."""
        firsts = segment_numbers(self.directory)
        for first in firsts:
            path = segment_path(self.directory, first)
            header = read_header(path)
            if self.headers and header.log_id != self.log_id:
                raise Damaged(
                    f"{path}: belongs to log {header.log_id}, the segments before it to log {self.log_id}",
                    "keep the segments of one log only in the state directory",
                )
            self.headers.append(header)
            self.segments.append(Segment(first, os.stat(path).st_size))
        if not firsts and self.after:
            raise Damaged(
                f"{self.directory}: the checkpoint covers up to record {self.after}, but there is no journal",
                "restore the journal-*.log files that belong to it",
            )
        if firsts and firsts[0] > self.after + 1:
            raise Damaged(
                f"{segment_path(self.directory, firsts[0])}: the journal begins at record {firsts[0]}, "
                f"but record {self.after + 1} is needed",
                "restore the segments before it, or the checkpoint that covers them",
            )

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        start = max((i for i, s in enumerate(self.segments) if s.first <= self.after + 1), default=0)
        if self.segments:
            self.last_number = self.segments[start].first - 1
        for index in range(start, len(self.segments)):
            segment = self.segments[index]
            if segment.first != self.last_number + 1:
                raise Damaged(
                    f"{segment_path(self.directory, segment.first)}: begins with record {segment.first}, "
                    f"but the segment before it ends with record {self.last_number}",
                    "a segment is missing; restore it",
                )
            yield from self._scan(segment, self.headers[index], last=index == len(self.segments) - 1)
        if self.last_number < self.after:
            raise Damaged(
                f"{self.directory}: the journal ends with record {self.last_number}, "
                f"but the checkpoint covers up to record {self.after}",
                "restore the end of the journal, or start from an older checkpoint",
            )
        self.finished = True

    def _scan(self, segment: Segment, header: Header, *, last: bool) -> Iterator[tuple[int, bytes]]:
        """Give the events of one segment, group by group; at a record that does not check, judge."""
        path = segment_path(self.directory, segment.first)
        buffer = read_whole(path, segment.end)
        view = memoryview(buffer)
        size, salt, after, on_blob, crc32 = len(buffer), header.salt, self.after, self.on_blob, zlib.crc32
        unpack = RECORD.unpack_from
        pos = group_at = HEADER_BYTES
        due = self.last_number + 1
        group: list[tuple[int, bytes]] = []
        blobs: list[tuple[bytes, int, int]] = []
        while pos < size:
            if size - pos < RECORD_BYTES:
                break
            mark, crc, length, _lag, number, kind, hashed = unpack(buffer, pos)
            end = pos + RECORD_BYTES + length
            if mark != MARK or length > MAX_PAYLOAD_BYTES or end > size or crc32(view[pos + 8 : end], salt) != crc:
                break
            if number != due:
                raise Damaged(f"{path}: the record at offset {pos} is numbered {number}, but {due} is due")
            if kind & KIND == EVENT:
                if number > after:
                    group.append((number, buffer[pos + RECORD_BYTES : end]))
                due += 1
            elif kind & KIND == BLOB:
                blobs.append((bytes(view[pos + RECORD_BYTES : pos + RECORD_BYTES + hashed]), pos, number))
            else:
                raise Damaged(f"{path}: record {number} at offset {pos} is of unknown kind {kind & KIND}")
            pos = end
            if kind & OPEN:
                continue
            segment.note(self.last_number + 1, group_at)
            if on_blob is not None:
                for digest, offset, number in blobs:
                    on_blob(digest, segment.first, offset, number, None)
            self.last_number = due - 1
            yield from group
            group.clear()
            blobs.clear()
            group_at = pos
        if group_at < size:
            self._judge(path, buffer, header, bad=pos, due=due, group_at=group_at, last=last)
        segment.end = group_at

    def _judge(
        self, path: Path, buffer: bytes, header: Header, *, bad: int, due: int, group_at: int, last: bool
    ) -> None:
        """Note the torn tail that begins at `bad`, or raise that it is damage."""
        size = len(buffer)
        what = (
            f"{path}: record {due} at offset {bad} is damaged"
            if bad < size
            else f"{path}: record {due} is missing at offset {bad}"
        )
        cure = "restore this file from a copy; cutting it there would lose what was acknowledged"
        if not last:
            raise Damaged(f"{what}, and later segments follow", cure)
        behind = list(_valid_records(buffer, bad + 1, header.salt, due))
        if behind and (
            any(number - lag >= due for _at, number, lag in behind) or not _never_written(buffer, bad, behind[0][0])
        ):
            at, number, _lag = behind[0]
            raise Damaged(f"{what} (a valid record {number} follows at offset {at})", cure)
        self.torn = TornTail(path, group_at, size - group_at, self.last_number + 1)


def read_whole(path: Path, size: int) -> bytes:
    """All `size` bytes of a segment.

    Reading, and not mapping: a disk error under a map kills the process by SIGBUS, here it raises OSError.
    """
    with open(path, "rb", buffering=0) as file:
        data = file.read(size)
        while data is not None and len(data) < size:  # one read stops at 2 GiB, and where a signal came
            more = file.read(size - len(data))
            if not more:
                break
            data += more
    return data or b""


def _valid_records(buffer: bytes, start: int, salt: int, due: int) -> Iterator[tuple[int, int, int]]:
    """Find the records from `start` on that check, as (offset, number, lag)."""
    at = buffer.find(MARK, start)
    while at >= 0:
        step = at + 1
        if len(buffer) - at >= RECORD_BYTES:
            _mark, crc, length, lag, number, _kind, _hashed = RECORD.unpack_from(buffer, at)
            end = at + RECORD_BYTES + length
            if number >= due and end <= len(buffer) and zlib.crc32(memoryview(buffer)[at + 8 : end], salt) == crc:
                yield at, number, lag
                step = end
        at = buffer.find(MARK, step)


def _never_written(buffer: bytes, start: int, stop: int) -> bool:
    """Whether a disk sector between `start` and `stop` reads as zeros, as those do that never got there."""
    boundary = start + -start % SECTOR
    head = buffer[start : min(start + RECORD_BYTES, boundary, stop)]
    if len(head) >= len(MARK) and not any(head):
        return True
    zeros = bytes(SECTOR)
    return any(buffer[at : at + SECTOR] == zeros for at in range(boundary, stop - SECTOR + 1, SECTOR))


def create_log(directory: Path, *, first: int = 1, log_id: str = "") -> str:
    """Begin a log in an empty directory, durably; returns its id.

    Args:
        directory: must exist.
        first: the number of its first event; above 1 for a standby that begins behind a checkpoint it was sent.
        log_id: 16 hex digits of the log that is taken over; empty: a new one is drawn.
    """
    log_id = log_id or token_hex(8)
    os.close(create_segment(directory, Header(first, log_id, randbits(32))))
    sync_directory(directory.parent)  # the directory may be new itself
    return log_id

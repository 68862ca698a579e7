"""Checkpoints: the whole state after one event, in a file that a restart begins from.

    header   magic 8, version u32, event number u64, log id 8 bytes, crc32 u32
    record   crc32 u32, length u32, payload; a section begins with a record whose length has the top bit set: its name
    trailer  a record of the same form, length with the top two bits set: count of records u64, crc32 of all before u32

A file `checkpoint-<event number, 20 digits>.dat` appears whole and durable, or not at all. The newest two are kept:
should the newest be damaged, the older one and the journal from there on give the same state.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ctld.store.segments import first_number, sync_directory
from ctld.store.threads import in_thread
from muster.errors import Damaged, InvalidInput, MusterError

log = logging.getLogger(__name__)

MAGIC = b"MUSTERCP"
VERSION = 1
HEADER = struct.Struct("<8sIQ8s")
CRC = struct.Struct("<I")
HEADER_BYTES = HEADER.size + CRC.size
RECORD = struct.Struct("<II")
TRAILER = struct.Struct("<QI")

SECTION = 1 << 31
END = 3 << 30
LENGTH = (1 << 30) - 1

KEPT = 2
SLICE_SECONDS = 0.002
PAUSE_SECONDS = 0.001
WRITE_BYTES = 1 << 20
SYNC_BYTES = 8 << 20
"""Dirty data beyond this are synced on the way: the journal's next fdatasync may have to wait for them."""

Sections = Iterable[tuple[str, Iterable[bytes]]]
"""Named sequences of records, in the order in which `Checkpoint.sections` gives them back."""


def checkpoint_path(directory: Path, number: int) -> Path:
    """The checkpoint of the state after event `number`."""
    return directory / f"checkpoint-{number:020d}.dat"


def checkpoint_numbers(directory: Path) -> list[int]:
    """Event numbers of the checkpoints in `directory`, ascending."""
    if not directory.is_dir():
        return []
    return sorted(
        int(name[11:31])
        for name in os.listdir(directory)
        if len(name) == 35 and name.startswith("checkpoint-") and name.endswith(".dat") and name[11:31].isdigit()
    )


def write(directory: Path, number: int, sections: Sections, *, log_id: str) -> int:
    """Write the checkpoint of event `number` in the calling thread; returns up to where the journal may be pruned.

    That is the number of the older of the two checkpoints kept, 0 while there is only one.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    writer = _Writer(directory, number, log_id)
    try:
        for name, records in sections:
            writer.begin_section(name)
            for record in records:
                writer.add(record)
                if len(writer.buffer) >= WRITE_BYTES:
                    writer.flush(writer.take())
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


async def write_sliced(
    directory: Path,
    number: int,
    sections: Sections,
    *,
    log_id: str,
    slice_seconds: float = SLICE_SECONDS,
    pause_seconds: float = PAUSE_SECONDS,
) -> int:
    """As `write`, from the loop: the records are made in slices of at most `slice_seconds`, the bytes go in a thread.

    `sections` are iterated in the loop's thread, a record at a time, so they should be generators over a shallow copy
    of the state. One record that takes longer to make holds the loop for that long.

    Args:
        slice_seconds: work between two turns of the loop.
        pause_seconds: left to others after each slice, so that answers wait for at most one.
    """
    writer = _Writer(directory, number, log_id)
    try:
        until = time.perf_counter() + slice_seconds
        for name, records in sections:
            writer.begin_section(name)
            for record in records:
                writer.add(record)
                if time.perf_counter() >= until or len(writer.buffer) >= WRITE_BYTES:
                    if len(writer.buffer) >= WRITE_BYTES:
                        await in_thread(writer.flush, writer.take())
                    else:
                        await asyncio.sleep(pause_seconds)
                    until = time.perf_counter() + slice_seconds
        return await in_thread(writer.finish)
    except BaseException:
        writer.abandon()
        raise


class _Writer:
    """One checkpoint being written. `add` is for the loop; `flush` and `finish` block."""

    def __init__(self, directory: Path, number: int, log_id: str) -> None:
        self._directory = directory
        self._path = checkpoint_path(directory, number)
        self._unborn = self._path.with_suffix(".new")
        self._fd = os.open(self._unborn, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._count = 0
        self._whole = 0
        self._unsynced = 0
        head = HEADER.pack(MAGIC, VERSION, number, bytes.fromhex(log_id))
        self.buffer = bytearray(head + CRC.pack(zlib.crc32(head)))

    def begin_section(self, name: str) -> None:
        self._put(name.encode(), SECTION)

    def add(self, record: bytes) -> None:
        assert len(record) <= LENGTH, "a record is below 1 GiB"
        self._put(record, 0)
        self._count += 1

    def _put(self, payload: bytes, mark: int) -> None:
        length = len(payload) | mark
        self.buffer += RECORD.pack(zlib.crc32(payload, length), length)
        self.buffer += payload

    def take(self) -> bytearray:
        """What is to be flushed; adding goes on in a new buffer."""
        full, self.buffer = self.buffer, bytearray()
        return full

    def flush(self, data: bytearray) -> None:
        self._whole = zlib.crc32(data, self._whole)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self._unsynced += len(data)
        if self._unsynced >= SYNC_BYTES:
            os.fdatasync(self._fd)
            self._unsynced = 0

    def finish(self) -> int:
        """Make it appear, and remove what is older than the two newest."""
        self.flush(self.take())
        self._put(TRAILER.pack(self._count, self._whole), END)
        self.flush(self.take())
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        os.rename(self._unborn, self._path)
        sync_directory(self._directory)
        numbers = checkpoint_numbers(self._directory)
        for old in numbers[:-KEPT]:
            checkpoint_path(self._directory, old).unlink()
        return numbers[-KEPT] if len(numbers) >= KEPT else 0

    def abandon(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._unborn.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that has been read and checked as a whole.

    Attributes:
        path: its file.
        number: the event that it is the state after.
        log_id: the log that it belongs to; that of the journal beside it, or the two do not belong together.
        data: the file's bytes.
    """

    path: Path
    number: int
    log_id: str
    data: bytes

    def sections(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Give name and records of each section, in order; a section's records are to be used up before the next."""
        at = HEADER_BYTES
        while True:
            _crc, length = RECORD.unpack_from(self.data, at)
            if length & END == END:
                return
            begin = at + RECORD.size
            name = self.data[begin : begin + (length & LENGTH)].decode()
            reader = _SectionReader(self.data, begin + (length & LENGTH))
            yield name, reader
            for _ in reader:
                pass
            at = reader.at


class _SectionReader:
    """Iterates the records of one section, and knows where the next one begins."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        _crc, length = RECORD.unpack_from(self._data, self.at)
        if length > LENGTH:
            raise StopIteration
        begin = self.at + RECORD.size
        self.at = begin + length
        return self._data[begin : self.at]


def load(directory: Path) -> Checkpoint | None:
    """Read the newest good checkpoint that the journal in `directory` goes on from; None where there is none to need.

    A damaged one is logged and set aside (`.damaged` behind its name), and the older one taken, or the whole journal,
    if the journal still reaches back there.

    Raises:
        Damaged: there are checkpoints, but none is good with a journal that goes on from it.
        InvalidInput: another version of Muster wrote it.
    """
    numbers = checkpoint_numbers(directory)
    begins = first_number(directory)
    damage: MusterError | None = None
    damaged: list[Path] = []
    found: Checkpoint | None = None
    for number in reversed(numbers):
        try:
            checkpoint = read(checkpoint_path(directory, number))
        except Damaged as error:
            log.error("%s", error)
            damage = damage or error
            damaged.append(checkpoint_path(directory, number))
            continue
        if damage is not None and (begins is None or begins > number + 1):
            raise Damaged(
                f"{damage.sentence}, and the journal no longer reaches back to the older checkpoint of event {number}",
                damage.hint,
            ) from damage
        found = checkpoint
        break
    if found is None and damage is not None and begins != 1:
        raise damage
    for path in damaged:  # else it would count as one of the two to fall back to
        path.rename(path.with_suffix(".dat.damaged"))
    return found


def read(path: Path) -> Checkpoint:
    """Read one checkpoint and check all of it.

    Raises:
        Damaged: naming the file, the record and its offset.
        InvalidInput: another version of Muster wrote it.
    """
    cure = "restore this file from a copy, or remove it if the journal reaches back to the one before it"
    data = path.read_bytes()
    if len(data) < HEADER_BYTES:
        raise Damaged(f"{path}: the header at offset 0 is cut short", cure)
    magic, version, number, log_id = HEADER.unpack_from(data)
    if magic != MAGIC or zlib.crc32(data[: HEADER.size]) != CRC.unpack_from(data, HEADER.size)[0]:
        raise Damaged(f"{path}: the header at offset 0 is damaged", cure)
    if version != VERSION:
        raise InvalidInput(
            f"{path}: checkpoint format {version}, but this version of Muster reads {VERSION}",
            "use the version of Muster that wrote it",
        )
    if checkpoint_path(path.parent, number) != path:
        raise Damaged(f"{path}: the header says event {number}, the file name another one", cure)
    end = len(data) - RECORD.size - TRAILER.size
    if end >= HEADER_BYTES:
        crc, length = RECORD.unpack_from(data, end)
        trailer = data[end + RECORD.size :]
        if (
            length == END | TRAILER.size
            and zlib.crc32(trailer, length) == crc
            and zlib.crc32(memoryview(data)[:end]) == TRAILER.unpack(trailer)[1]
        ):
            return Checkpoint(path, number, log_id.hex(), data)
    raise Damaged(f"{path}: {_first_bad(data)}", cure)


def _first_bad(data: bytes) -> str:
    """Say where a checkpoint that does not check as a whole goes wrong."""
    at, count, section = HEADER_BYTES, 0, ""
    while at + RECORD.size <= len(data):
        crc, length = RECORD.unpack_from(data, at)
        payload = data[at + RECORD.size : at + RECORD.size + (length & LENGTH)]
        where = f"record {count + 1} at offset {at}" + (f" (section {section})" if section else "")
        if len(payload) < length & LENGTH or zlib.crc32(payload, length) != crc:
            return f"{where} is damaged (its checksum does not match)"
        if length & END == END:
            return f"the trailer at offset {at} does not match the {count} records before it"
        if length & SECTION:
            section = payload.decode("utf-8", "replace")
        else:
            count += 1
        at += RECORD.size + len(payload)
    return f"the file ends after {count} records at offset {len(data)}, without its trailer"

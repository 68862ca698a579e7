from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import zlib
from hashlib import blake2b
from pathlib import Path

import pytest

from ctld.store.journal import Journal, RealDisk
from ctld.store.recovery import create_log
from ctld.store.segments import HEADER_BYTES, segment_numbers, segment_path
from muster.errors import Damaged, InvalidInput, NotFound, Refused, Unavailable


def opened(directory: Path, **options: object) -> Journal:
    """A journal started behind all that the directory holds."""
    recovery = Journal.recover(directory)
    for _ in recovery:
        pass
    return Journal.start(recovery, **options)  # type: ignore[arg-type]


def stored(directory: Path, after: int = 0) -> list[tuple[int, bytes]]:
    """The events that a restart would find."""
    recovery = Journal.recover(directory, after=after)
    try:
        return list(recovery)
    finally:
        recovery.close()


def a_blob(data: bytes) -> tuple[bytes, bytes]:
    return blake2b(data, digest_size=16).digest(), data


class HeldDisk(RealDisk):
    """Counts syncs, and holds each back while `gate` is clear."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.syncs = 0
        self.writes: list[int] = []

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self.writes.append(len(data))
        super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        self.entered.set()
        assert self.gate.wait(10), "the test never let the disk go on"
        super().sync(fd)
        self.syncs += 1


class FullDisk(RealDisk):
    """Takes `good` writes, then fails each."""

    def __init__(self, good: int, error: int = errno.ENOSPC, *, at_sync: bool = False) -> None:
        self.good = good
        self.error = error
        self.at_sync = at_sync

    def write(self, fd: int, data: bytes, offset: int) -> None:
        if self.good == 0 and not self.at_sync:
            super().write(fd, data[: len(data) // 2], offset)
            raise OSError(self.error, os.strerror(self.error))
        super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        if self.good == 0:
            raise OSError(self.error, os.strerror(self.error))
        self.good -= 1
        super().sync(fd)


class LastBytes(RealDisk):
    """Has `free` bytes left, and counts who asks."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.asked = 0

    def free_bytes(self, directory: Path) -> int:
        self.asked += 1
        return self.free


async def test_what_was_acknowledged_is_read_back_in_order(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert await journal.append([b"one"]) == 1
    assert await journal.append([b"two", b"three"], [a_blob(b"#!/bin/sh\n")]) == 3
    assert (journal.last_queued, journal.last_durable) == (3, 3)
    await journal.close()
    assert stored(tmp_path) == [(1, b"one"), (2, b"two"), (3, b"three")]
    assert stored(tmp_path, after=2) == [(3, b"three")]


async def test_goes_on_with_the_next_number_after_a_restart(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.append([b"one"])
    log_id = journal.log_id
    await journal.close()
    journal = opened(tmp_path)
    assert journal.log_id == log_id
    assert len(log_id) == 16
    assert await journal.append([b"two"]) == 2
    await journal.close()
    assert stored(tmp_path) == [(1, b"one"), (2, b"two")]


async def test_two_directories_get_two_log_ids(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "a"), opened(tmp_path / "b")
    assert first.log_id != second.log_id
    await first.close()
    await second.close()


async def test_what_queues_during_one_sync_shares_the_next(tmp_path: Path) -> None:
    disk = HeldDisk()
    journal = opened(tmp_path, disk=disk)
    first = journal.append([b"first"])
    await asyncio.to_thread(disk.entered.wait, 10)
    others = [journal.append([b"%d" % n]) for n in range(50)]
    disk.gate.set()
    assert await first == 1
    assert await asyncio.gather(*others) == list(range(2, 52))
    assert disk.syncs == 2
    assert len(disk.writes) == 2
    await journal.close()


async def test_nothing_is_acknowledged_before_it_is_synced(tmp_path: Path) -> None:
    disk = HeldDisk()
    journal = opened(tmp_path, disk=disk)
    seen: list[int] = []
    journal.on_durable(seen.append)
    written = journal.append([b"x"])
    waiting = asyncio.ensure_future(journal.wait_durable(1))
    await asyncio.to_thread(disk.entered.wait, 10)
    assert os.stat(segment_path(tmp_path, 1)).st_size > HEADER_BYTES  # written, but not yet on disk
    assert (written.done(), waiting.done(), seen, journal.last_durable) == (False, False, [], 0)
    assert list(journal.read_events(1)) == []
    disk.gate.set()
    await waiting
    assert (await written, seen, journal.last_durable) == (1, [1], 1)
    assert list(journal.read_events(1)) == [(1, b"x")]
    await journal.close()


async def test_a_caller_who_is_cancelled_takes_nothing_back(tmp_path: Path) -> None:
    disk = HeldDisk()
    journal = opened(tmp_path, disk=disk)
    first, second = journal.append([b"first"]), journal.append([b"second"])
    first.cancel()
    disk.gate.set()
    assert await second == 2
    await journal.close()
    assert stored(tmp_path) == [(1, b"first"), (2, b"second")]


async def test_close_brings_to_disk_what_is_queued(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    written = [journal.append([b"%d" % n]) for n in range(100)]
    await journal.close()
    assert all(future.done() for future in written)
    assert len(stored(tmp_path)) == 100
    with pytest.raises(Unavailable, match="is closed"):
        await journal.append([b"late"])


@pytest.mark.parametrize("at_sync", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_failed_write_ends_all_acknowledgement(tmp_path: Path, code: int, at_sync: bool) -> None:
    journal = opened(tmp_path, disk=FullDisk(1, code, at_sync=at_sync))
    failures: list[Exception] = []
    journal.on_failure(failures.append)
    assert await journal.append([b"good"]) == 1
    bad = journal.append([b"bad"])
    waiting = asyncio.ensure_future(journal.wait_durable(2))
    with pytest.raises(Unavailable, match=f"cannot be written: .*{os.strerror(code)}"):
        await bad
    with pytest.raises(Unavailable, match="cannot be written"):
        await waiting
    with pytest.raises(Unavailable, match="cannot be written"):
        await journal.append([b"later"])
    with pytest.raises(Unavailable, match="cannot be written"):
        await journal.wait_durable(2)
    assert [type(failure) for failure in failures] == [OSError]
    assert journal.last_durable == 1
    await journal.close()
    assert stored(tmp_path)[0] == (1, b"good")


async def test_a_half_written_append_is_cut_off_at_the_next_start_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(tmp_path, disk=FullDisk(1))
    await journal.append([b"good"])
    offset = os.stat(segment_path(tmp_path, 1)).st_size
    with pytest.raises(Unavailable):
        await journal.append([b"lost", b"too"], [a_blob(b"x" * 5000)])
    await journal.close()
    with caplog.at_level(logging.WARNING):
        journal = opened(tmp_path)
    assert f"{segment_path(tmp_path, 1)}: cut off" in caplog.text
    assert f"at offset {offset}" in caplog.text
    assert await journal.append([b"second"]) == 2
    await journal.close()
    assert stored(tmp_path) == [(1, b"good"), (2, b"second")]


async def test_events_of_one_append_come_back_all_or_none(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.append([b"one"])
    begun = os.stat(segment_path(tmp_path, 1)).st_size
    await journal.append([b"two", b"three", b"four"])
    await journal.close()
    path = segment_path(tmp_path, 1)
    whole = path.read_bytes()
    for cut in range(begun, len(whole)):
        path.write_bytes(whole[:cut])
        assert stored(tmp_path) == [(1, b"one")]


async def test_begins_a_new_segment_by_size_and_reads_across(tmp_path: Path) -> None:
    journal = opened(tmp_path, segment_bytes=1000)
    payloads = [bytes([n]) * 100 for n in range(40)]
    await asyncio.gather(*(journal.append([payload]) for payload in payloads))
    assert len(segment_numbers(tmp_path)) > 4
    assert all(os.stat(segment_path(tmp_path, n)).st_size <= 1000 for n in segment_numbers(tmp_path))
    assert list(journal.read_events(1)) == list(enumerate(payloads, 1))
    assert journal.size_bytes == sum(os.stat(segment_path(tmp_path, n)).st_size for n in segment_numbers(tmp_path))
    await journal.close()
    assert stored(tmp_path) == list(enumerate(payloads, 1))
    assert stored(tmp_path, after=25) == list(enumerate(payloads, 1))[25:]


async def test_an_append_larger_than_a_segment_is_kept_whole(tmp_path: Path) -> None:
    journal = opened(tmp_path, segment_bytes=1000)
    await journal.append([b"small"])
    await journal.append([b"x" * 5000])
    await journal.append([b"small"])
    await journal.close()
    assert segment_numbers(tmp_path) == [1, 2, 3]
    assert stored(tmp_path) == [(1, b"small"), (2, b"x" * 5000), (3, b"small")]


async def test_prune_removes_only_what_is_wholly_covered(tmp_path: Path) -> None:
    journal = opened(tmp_path, segment_bytes=1000)
    for n in range(40):
        await journal.append([bytes([n]) * 100])
    firsts = segment_numbers(tmp_path)
    await journal.prune(firsts[2] - 2)  # one event of the second segment is not covered
    assert segment_numbers(tmp_path) == firsts[1:]
    await journal.prune(firsts[2] - 1)
    assert segment_numbers(tmp_path) == firsts[2:]
    assert journal.first_number == firsts[2]
    with pytest.raises(NotFound, match=f"event 1 is no longer .* begins with event {firsts[2]}"):
        next(journal.read_events(1))
    await journal.prune(10_000)
    assert segment_numbers(tmp_path) == firsts[-1:]
    assert await journal.append([b"on"]) == 41
    await journal.close()
    with pytest.raises(Damaged, match=f"begins at record {firsts[-1]}, but record 1 is needed"):
        stored(tmp_path)
    assert stored(tmp_path, after=40) == [(41, b"on")]


async def test_a_second_daemon_is_refused_by_the_pid_of_the_first(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(Refused, match=f"{tmp_path} is in use by process {os.getpid()}"):
        Journal.recover(tmp_path)
    await journal.close()
    Journal.recover(tmp_path).close()


async def test_a_follower_reads_while_the_writer_appends(tmp_path: Path) -> None:
    journal = opened(tmp_path, segment_bytes=20_000)
    taken: list[tuple[int, bytes]] = []
    over = threading.Event()

    def follow() -> None:
        while not (over.is_set() and len(taken) >= journal.last_durable):
            taken.extend(journal.read_events(taken[-1][0] + 1 if taken else 1))

    following = asyncio.ensure_future(asyncio.to_thread(follow))
    for n in range(300):
        await journal.append([b"%d" % n, b"and"], [a_blob(b"%d" % n * 50)])
    over.set()
    await following
    assert [number for number, _ in taken] == list(range(1, 601))
    assert [payload for _, payload in taken[::2]] == [b"%d" % n for n in range(300)]
    await journal.close()


async def test_a_read_from_the_middle_gives_just_the_rest(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    payloads = [os.urandom(90_000) for _ in range(40)]
    for payload in payloads:
        await journal.append([payload, b"small"], [a_blob(payload[:5000])])
    for begin in (1, 2, 3, 40, 79, 80):
        assert list(journal.read_events(begin)) == [
            (n + 1, b"small" if n % 2 else payloads[n // 2]) for n in range(begin - 1, 80)
        ]
    assert list(journal.read_events(81)) == []
    await journal.close()


async def test_reading_a_damaged_event_names_it(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.append([b"one"])
    await journal.append([b"a payload to damage"])
    path = segment_path(tmp_path, 1)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=rf"{path}: record 2 at offset \d+ is damaged"):
        list(journal.read_events(1))
    await journal.close()


async def test_a_nearly_full_disk_is_refused_in_one_sentence_and_asked_rarely(tmp_path: Path) -> None:
    disk = LastBytes(free=(64 << 20) + 10_000)
    journal = opened(tmp_path, disk=disk)
    journal.ensure_room(6000)
    with pytest.raises(Unavailable, match="nearly full: 64 MiB are left, of which 64 MiB are kept"):
        journal.ensure_room(6000)
    for _ in range(100):
        journal.ensure_room(10)
    assert disk.asked == 1
    await journal.close()


async def test_a_disk_that_cannot_keep_up_is_refused(tmp_path: Path) -> None:
    disk = HeldDisk()
    journal = opened(tmp_path, disk=disk)
    journal.append([bytes(60 << 20)])
    journal.ensure_room(1 << 20)
    with pytest.raises(Unavailable, match="too slow: 60 MiB wait"):
        journal.ensure_room(5 << 20)
    disk.gate.set()
    await journal.close()


async def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    journal = opened(tmp_path, segment_bytes=1000)
    for n in range(40):
        await journal.append([bytes([n]) * 100])
    await journal.close()
    firsts = segment_numbers(tmp_path)
    os.unlink(segment_path(tmp_path, firsts[1]))
    with pytest.raises(Damaged, match=f"begins with record {firsts[2]}, but .* ends with record {firsts[1] - 1}"):
        stored(tmp_path)


async def test_a_journal_behind_its_checkpoint_is_refused(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.append([b"one"])
    await journal.close()
    with pytest.raises(Damaged, match="ends with record 1, but the checkpoint covers up to record 5"):
        stored(tmp_path, after=5)
    with pytest.raises(Damaged, match="covers up to record 5, but there is no journal"):
        stored(tmp_path / "empty", after=5)


async def test_a_segment_of_another_log_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        journal = opened(tmp_path / name, segment_bytes=500)
        for n in range(20):
            await journal.append([bytes([n]) * 100])
        await journal.close()
    second = segment_numbers(tmp_path / "a")[1]
    segment_path(tmp_path / "a", second).write_bytes(segment_path(tmp_path / "b", second).read_bytes())
    with pytest.raises(Damaged, match="belongs to log"):
        stored(tmp_path / "a")


async def test_a_newer_format_is_refused_by_its_version(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.close()
    path = segment_path(tmp_path, 1)
    data = bytearray(path.read_bytes())
    data[8] = 9
    data[HEADER_BYTES - 4 : HEADER_BYTES] = zlib.crc32(data[: HEADER_BYTES - 4]).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match="journal format 9"):
        stored(tmp_path)


async def test_a_power_loss_that_kept_later_sectors_only_is_a_torn_tail(tmp_path: Path) -> None:
    disk = HeldDisk()
    disk.gate.set()
    journal = opened(tmp_path, disk=disk)
    await journal.append([b"kept"])
    disk.gate.clear()
    disk.entered.clear()
    first = journal.append([b"held"])
    await asyncio.to_thread(disk.entered.wait, 10)
    batch = [journal.append([os.urandom(700)]) for _ in range(12)]
    disk.gate.set()
    await asyncio.gather(first, *batch)
    await journal.close()
    path = segment_path(tmp_path, 1)
    whole = path.read_bytes()
    for sector in range(2048, 8192, 512):  # inside the batch that was written as one
        path.write_bytes(whole[:sector] + bytes(512) + whole[sector + 512 :])
        found = stored(tmp_path)
        assert found[:2] == [(1, b"kept"), (2, b"held")]
        assert 3 <= len(found) < 14
    # Zeros where later records say that they came after an acknowledgement are damage.
    path.write_bytes(whole[:HEADER_BYTES] + bytes(29) + whole[HEADER_BYTES + 29 :])
    with pytest.raises(Damaged, match="record 1 at offset"):
        stored(tmp_path)


async def test_a_script_that_contains_a_journal_record_is_not_taken_for_one(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.append([b"one"])
    await journal.append([b"two"])
    await journal.close()
    hostile = segment_path(tmp_path, 1).read_bytes()[HEADER_BYTES:]
    journal = opened(tmp_path / "victim")
    await journal.append([b"one"])
    await journal.append([b"two"], [a_blob(hostile)])
    await journal.close()
    path = segment_path(tmp_path / "victim", 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])  # torn: what lies in the blob must not count as "a valid record follows"
    assert stored(tmp_path / "victim") == [(1, b"one")]


async def test_a_checkpoint_of_another_log_is_refused(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    log_id = journal.log_id
    await journal.close()
    Journal.recover(tmp_path, log_id=log_id).close()
    with pytest.raises(Damaged, match=f"belongs to log {'0' * 16}, the journal to log {log_id}"):
        Journal.recover(tmp_path, log_id="0" * 16)


async def test_files_that_a_crash_left_unborn_are_swept(tmp_path: Path) -> None:
    for name in ("journal-00000000000000000009.new", "blobs-3.new", f"checkpoint-{9:020d}.new"):
        (tmp_path / name).write_bytes(b"half")
    journal = opened(tmp_path)
    assert not list(tmp_path.glob("*.new"))
    await journal.close()


async def test_a_standby_begins_behind_a_checkpoint_in_the_same_log(tmp_path: Path) -> None:
    create_log(tmp_path, first=101, log_id="00112233445566ff")
    recovery = Journal.recover(tmp_path, after=100, log_id="00112233445566ff")
    assert list(recovery) == []
    journal = Journal.start(recovery)
    assert await journal.append([b"next"]) == 101
    await journal.close()

"""When checkpoints are written, and what one that cannot be written costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ctld.loops.checkpoints import Checkpoints
from ctld.store.memory import MemoryJournal


class SizedMemory(MemoryJournal):
    looks = 0

    @property
    def size_bytes(self) -> int:
        self.looks += 1
        return sum(map(len, self.events))


class Directory:
    """Stands for a state directory: notes the checkpoints asked for."""

    def __init__(self, replayed_bytes: int = 0) -> None:
        self.journal = SizedMemory()
        self.replayed_bytes = replayed_bytes
        self.written: list[int] = []
        self.trouble: Exception | None = None
        self.under_way = 0
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def checkpoint(self, held_from: Callable[[], int]) -> None:
        assert not self.under_way, "two at a time"
        self.under_way += 1
        self.asked.set()
        try:
            await self.go_on.wait()
        finally:
            await asyncio.sleep(0)  # cleaning up takes a turn
            self.under_way -= 1
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        self.written.append(self.journal.last_queued)


def running(directory: Directory, **fields: float) -> asyncio.Task[None]:
    checkpoints = Checkpoints(directory, lambda: 1, look_seconds=0.001, journal_bytes=100, **fields)
    return asyncio.create_task(checkpoints.run())


async def looked(directory: Directory) -> None:
    """Return once the size was looked at a few times more."""
    upto = directory.journal.looks + 4
    async with asyncio.timeout(5):
        while directory.journal.looks < upto:
            await asyncio.sleep(0.001)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_one_is_due_once_the_journal_has_grown() -> None:
    directory = Directory()
    task = running(directory)
    await directory.journal.append([bytes(99)])
    await looked(directory)
    assert directory.written == []
    await directory.journal.append([b"x"])
    async with asyncio.timeout(5):
        await directory.asked.wait()
    await looked(directory)
    assert directory.written == [2]
    await ended(task)


async def test_what_was_replayed_at_the_start_counts() -> None:
    directory = Directory(replayed_bytes=100)
    await directory.journal.append([bytes(100)])
    task = running(directory)
    async with asyncio.timeout(5):
        await directory.asked.wait()
    await ended(task)


async def test_one_that_cannot_be_written_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    directory = Directory()
    directory.trouble = OSError(28, "No space left on device")
    task = running(directory, retry_seconds=0.001)
    await directory.journal.append([bytes(100)])
    async with asyncio.timeout(5):
        while not directory.written:
            await asyncio.sleep(0.001)
    assert "No space left on device" in caplog.text
    await ended(task)


async def test_nothing_is_written_when_nothing_happened() -> None:
    directory = Directory()
    checkpoints = Checkpoints(directory, lambda: 1)
    assert await checkpoints.write()
    assert directory.written == []
    await directory.journal.append([b"x"])
    assert await checkpoints.write()
    assert await checkpoints.write()
    assert directory.written == [1]


async def test_the_last_one_waits_for_one_that_was_broken_off() -> None:
    directory = Directory()
    directory.go_on.clear()
    checkpoints = Checkpoints(directory, lambda: 1)
    await directory.journal.append([b"x"])
    first = asyncio.create_task(checkpoints.write())
    await directory.asked.wait()
    first.cancel()
    last = asyncio.create_task(checkpoints.write())
    directory.go_on.set()
    assert await last
    assert directory.written == [1]
    assert first.cancelled()

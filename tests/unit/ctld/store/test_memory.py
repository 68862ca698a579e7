from __future__ import annotations

import asyncio

import pytest

from ctld.store.memory import MemoryBlobs, MemoryJournal
from ctld.store.ports import BlobPort, JournalPort
from muster.errors import NotFound


async def test_is_durable_at_once_and_tells_so_in_the_next_turn() -> None:
    journal: JournalPort = MemoryJournal()
    seen: list[int] = []
    journal.on_durable(seen.append)
    assert await journal.append([b"one", b"two"]) == 2
    assert await journal.append([b"three"]) == 3
    assert (journal.last_queued, journal.last_durable, seen) == (3, 3, [])
    await asyncio.sleep(0)
    assert seen == [3]
    assert list(journal.read_events(2)) == [(2, b"two"), (3, b"three")]
    await journal.close()


async def test_prune_forgets_and_the_numbers_go_on() -> None:
    journal = MemoryJournal(after=10)
    await journal.append([b"a", b"b", b"c"])
    await journal.prune(12)
    assert list(journal.read_events(13)) == [(13, b"c")]
    with pytest.raises(NotFound, match="event 12 is no longer"):
        next(journal.read_events(12))
    assert await journal.append([b"d"]) == 14


def test_works_without_a_loop() -> None:
    journal = MemoryJournal()
    seen: list[int] = []
    journal.on_durable(seen.append)
    journal.append([b"one"])
    assert (journal.events, seen) == ([b"one"], [1])


async def test_blobs_are_kept_once_appended() -> None:
    journal = MemoryJournal()
    blobs: BlobPort = MemoryBlobs(journal)
    digest, record = blobs.put(b"data")
    assert record == (digest, b"data")
    with pytest.raises(NotFound):
        blobs.get(digest)
    await journal.append([b"event"], [record])
    assert blobs.put(b"data") == (digest, None)
    assert blobs.get(digest) == b"data"

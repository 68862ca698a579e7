from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ctld.store.blobfile import blob_files, blob_path, hash_of
from ctld.store.blobs import BlobStore
from ctld.store.journal import Journal
from ctld.store.segments import segment_numbers, segment_path
from muster.errors import Damaged, NotFound


class Both:
    """A journal with its blob store, and restarts of the two."""

    def __init__(self, directory: Path, *, segment_bytes: int = 3000) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.start(after=0)

    def start(self, *, after: int) -> None:
        self.blobs = BlobStore(self.directory, cache_bytes=4000)
        recovery = Journal.recover(self.directory, after=after, on_blob=self.blobs.placed)
        for _ in recovery:
            pass
        self.journal = Journal.start(recovery, segment_bytes=self.segment_bytes)
        self.journal.on_durable(self.blobs.durable)

    async def restart(self, *, after: int = 0) -> None:
        await self.close()
        self.start(after=after)

    async def submit(self, data: bytes) -> bytes:
        digest, record = self.blobs.put(data)
        await self.journal.append([b"submitted " + digest], [record] if record else [])
        return digest

    async def checkpoint(self, live: set[bytes]) -> int:
        """What a checkpoint does to the files; returns its number."""
        number = self.journal.last_queued
        self.blobs.begin_compaction()
        await self.journal.wait_durable(number)
        await self.blobs.compact(live, number=number)
        return number

    async def prune(self, number: int) -> None:
        await self.journal.prune(number)
        await self.blobs.prune(number)

    async def close(self) -> None:
        await self.journal.close()
        self.blobs.close()


def script(n: int, size: int = 500) -> bytes:
    return b"#!/bin/sh\n# %d\n" % n + b"echo\n" * (size // 5)


async def test_gives_back_what_was_submitted_also_after_a_restart(tmp_path: Path) -> None:
    both = Both(tmp_path)
    wanted = {await both.submit(data): data for data in [*(script(n) for n in range(20)), b"", bytes(100_000)]}
    assert {digest: both.blobs.get(digest) for digest in wanted} == wanted
    await both.restart()
    assert len(both.blobs) == 22
    assert {digest: both.blobs.get(digest) for digest in wanted} == wanted
    await both.close()


async def test_the_same_bytes_are_stored_once(tmp_path: Path) -> None:
    both = Both(tmp_path)
    digest, record = both.blobs.put(script(1))
    assert (digest, record) == (hash_of(script(1)), (digest, script(1)))
    assert both.blobs.put(script(1))[1] == record  # nothing was appended yet: a refused submission leaves no trace
    await both.submit(script(1))
    assert both.blobs.put(script(1)) == (digest, None)
    await both.close()


async def test_a_blob_is_there_before_it_is_on_disk(tmp_path: Path) -> None:
    both = Both(tmp_path)
    digest, record = both.blobs.put(script(1))
    assert record is not None
    written = both.journal.append([b"x"], [record])
    assert both.blobs.get(digest) == script(1)
    await written
    assert both.blobs.get(digest) == script(1)
    assert not both.blobs._unwritten
    await both.close()


async def test_an_unknown_hash_is_named(tmp_path: Path) -> None:
    both = Both(tmp_path)
    with pytest.raises(NotFound, match=f"no blob {hash_of(b'x').hex()}"):
        both.blobs.get(hash_of(b"x"))
    await both.close()


@pytest.mark.parametrize("moved", [False, True])
async def test_damage_is_named_by_file_and_hash(tmp_path: Path, moved: bool) -> None:
    both = Both(tmp_path, segment_bytes=1 << 20)
    digest = await both.submit(script(1))
    path = segment_path(tmp_path, 1)
    if moved:
        await both.checkpoint({digest})
        path = blob_path(tmp_path, 1)
    path.write_bytes(path.read_bytes().replace(b"# 1\n", b"# 2\n"))
    with pytest.raises(Damaged, match=f"{path}: blob {digest.hex()} at offset"):
        both.blobs.get(digest)
    os.truncate(path, 40)
    with pytest.raises(Damaged, match=f"{path}: blob {digest.hex()} at offset"):
        both.blobs.get(digest)
    await both.close()


async def test_a_checkpoint_moves_the_live_and_forgets_the_rest(tmp_path: Path) -> None:
    both = Both(tmp_path)
    digests = [await both.submit(script(n)) for n in range(40)]
    live = set(digests[::2])
    number = await both.checkpoint(live)
    await both.prune(number)
    assert len(segment_numbers(tmp_path)) == 1
    for restarted in (False, True):
        if restarted:
            await both.restart(after=number)
        for n, digest in enumerate(digests):
            if digest in live:
                assert both.blobs.get(digest) == script(n)
        if not restarted:
            for digest in digests[1::2]:
                with pytest.raises(NotFound):
                    both.blobs.get(digest)
    await both.close()


async def test_a_fall_back_to_the_older_checkpoint_finds_every_blob_it_names(tmp_path: Path) -> None:
    both = Both(tmp_path)
    live: set[bytes] = set()
    older = newer = 0
    was_live: set[bytes] = set()
    for turn in range(12):
        since_older = set(live)
        for n in range(15):
            live.add(await both.submit(script(turn * 100 + n)))
        older, was_live = newer, since_older
        for digest in sorted(live)[: 8 + turn % 5]:
            live.discard(digest)
        newer = await both.checkpoint(live)
        await both.prune(older)
        # Restarting from the older one: what it names, and what came behind it, must be there.
        await both.restart(after=older)
        for digest in was_live | live:
            assert hash_of(both.blobs.get(digest)) == digest
        await both.restart(after=newer)
        for digest in live:
            assert hash_of(both.blobs.get(digest)) == digest
        assert len(blob_files(tmp_path)) <= 7
    await both.close()


async def test_few_files_however_many_checkpoints(tmp_path: Path) -> None:
    both = Both(tmp_path)
    live: set[bytes] = set()
    before = 0
    for turn in range(64):
        live |= {await both.submit(script(turn * 10 + n, 50)) for n in range(3)}
        number = await both.checkpoint(live)
        await both.prune(before)
        before = number
    assert len(blob_files(tmp_path)) <= 8  # 64 of one size: at most 6, and one more when all merge
    await both.restart(after=before)
    for digest in live:
        assert hash_of(both.blobs.get(digest)) == digest
    await both.close()


async def test_a_blob_put_again_while_it_is_being_forgotten_is_stored_anew(tmp_path: Path) -> None:
    both = Both(tmp_path)
    digests = [await both.submit(script(n)) for n in range(30)]
    number = both.journal.last_queued
    both.blobs.begin_compaction()
    assert both.blobs.put(script(0))[1] is not None  # the snapshot may not name it
    await both.submit(script(0))
    assert both.blobs.put(script(0))[1] is None
    compaction = asyncio.ensure_future(both.blobs.compact({digests[5]}, number=number))
    while not compaction.done():
        await asyncio.sleep(0)
        if not compaction.done():
            assert both.blobs.put(script(5))[1] is None
            await both.submit(script(7))
    assert (await compaction).moved == 1
    await both.prune(number)
    await both.restart(after=number)
    assert both.blobs.get(digests[0]) == script(0)
    assert both.blobs.get(digests[5]) == script(5)
    assert both.blobs.get(digests[7]) == script(7)
    await both.close()


async def test_a_failed_compaction_leaves_everything_where_it_was(tmp_path: Path) -> None:
    both = Both(tmp_path, segment_bytes=1 << 20)
    digests = [await both.submit(script(n)) for n in range(10)]
    path = segment_path(tmp_path, 1)
    path.write_bytes(path.read_bytes().replace(b"# 4\n", b"# x\n"))
    with pytest.raises(Damaged, match=f"blob {digests[4].hex()}"):
        await both.checkpoint(set(digests))
    assert blob_files(tmp_path) == []
    assert not list(tmp_path.glob("*.new"))
    assert both.blobs.get(digests[3]) == script(3)
    both.blobs.begin_compaction()  # and the next one may try again
    both.blobs.cancel_compaction()
    await both.close()


async def test_damage_to_the_index_of_a_blob_file_refuses_to_start(tmp_path: Path) -> None:
    both = Both(tmp_path)
    digest = await both.submit(b"data")
    await both.checkpoint({digest})
    await both.close()
    path = blob_path(tmp_path, 1)
    whole = path.read_bytes()
    record = range(16, 16 + 26 + 16 + 4)
    for at in set(range(len(whole))) - set(record):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(Damaged, match=rf"{path}: the \w+ at offset \d+ is damaged"):
            BlobStore(tmp_path)
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(Damaged, match=rf"{path}: the \w+ at offset \d+ is damaged"):
            BlobStore(tmp_path)


async def test_the_cache_stays_within_its_bound(tmp_path: Path) -> None:
    both = Both(tmp_path)
    digests = [await both.submit(script(n, 300)) for n in range(50)] + [await both.submit(bytes(3000))]
    for digest in digests:
        both.blobs.get(digest)
    assert 3000 < both.blobs._cached_bytes <= 4000
    assert both.blobs._cached_bytes == sum(map(len, both.blobs._cache.values()))
    await both.close()


async def test_a_cancelled_compaction_leaves_everything_where_it_was(tmp_path: Path) -> None:
    both = Both(tmp_path)
    digests = [await both.submit(script(n, 50_000)) for n in range(60)]
    for turns in range(12):
        checkpoint = asyncio.ensure_future(both.checkpoint(set(digests)))
        for _ in range(turns):
            await asyncio.sleep(0)
        checkpoint.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checkpoint
        assert not list(tmp_path.glob("*.new"))
        assert [hash_of(both.blobs.get(digest)) for digest in digests] == digests
    await both.close()

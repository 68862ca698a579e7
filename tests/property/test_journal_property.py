"""The journal against every cut and flip, and against random batches."""

from __future__ import annotations

import asyncio
import tempfile
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctld.store.journal import Journal
from ctld.store.segments import HEADER_BYTES, segment_numbers, segment_path
from muster.errors import Damaged

Batch = tuple[list[bytes], list[bytes]]

batches: st.SearchStrategy[list[Batch]] = st.lists(
    st.tuples(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.lists(st.binary(max_size=900), max_size=2)),
    max_size=12,
)


def written(directory: Path, asked: list[Batch], *, together: bool = False, segment_bytes: int = 2000) -> list[int]:
    """Append the batches, one by one or all at once; returns the offsets at which each ended in its segment."""

    async def write() -> list[int]:
        recovery = Journal.recover(directory)
        assert list(recovery) == []
        journal = Journal.start(recovery, segment_bytes=segment_bytes)
        ends = []
        futures = []
        for payloads, blobs in asked:
            hashed = [(blake2b(data, digest_size=16).digest(), data) for data in blobs]
            futures.append(journal.append(payloads, hashed))
            if not together:
                await futures[-1]
                ends.append(segment_path(directory, segment_numbers(directory)[-1]).stat().st_size)
        await asyncio.gather(*futures)
        await journal.close()
        return ends

    return asyncio.run(write())


def stored(directory: Path) -> list[tuple[int, bytes]]:
    """The events that a restart would find."""
    recovery = Journal.recover(directory)
    try:
        return list(recovery)
    finally:
        recovery.close()


def numbered(asked: list[Batch]) -> list[tuple[int, bytes]]:
    return list(enumerate([payload for payloads, _ in asked for payload in payloads], 1))


@settings(max_examples=60, deadline=None)
@given(batches, st.booleans(), st.integers(200, 5000))
def test_random_batches_come_back_equal(asked: list[Batch], together: bool, segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        written(directory, asked, together=together, segment_bytes=segment_bytes)
        blobs: dict[bytes, bytes] = {}

        def place(digest: bytes, first: int, offset: int, _number: int, _data: bytes | None) -> None:
            data = segment_path(directory, first).read_bytes()[offset:]
            blobs[digest] = data

        recovery = Journal.recover(directory, on_blob=place)
        assert list(recovery) == numbered(asked)
        recovery.close()
        for _, wanted in asked:
            for data in wanted:
                digest = blake2b(data, digest_size=16).digest()
                assert blobs[digest][26 : 26 + 16 + len(data)] == digest + data


@settings(max_examples=15, deadline=None)
@given(batches.filter(bool))
def test_every_cut_in_the_last_append_recovers_what_stood_before_it(asked: list[Batch]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        ends = written(directory, asked)
        path = segment_path(directory, segment_numbers(directory)[-1])
        whole = path.read_bytes()
        begun = ends[-2] if len(ends) > 1 and ends[-2] < ends[-1] else HEADER_BYTES
        if path != segment_path(directory, 1) and numbered(asked[:-1])[-1][0] < int(path.name[8:28]):
            begun = HEADER_BYTES  # the last append began a segment of its own
        for cut in range(begun, len(whole)):
            path.write_bytes(whole[:cut])
            assert stored(directory) == numbered(asked[:-1]), f"cut at {cut}"


@settings(max_examples=40, deadline=None)
@given(batches.filter(bool), st.booleans(), st.data())
def test_a_flip_before_the_last_append_is_refused_by_name(
    asked: list[Batch], together: bool, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        written(directory, [*asked, ([b"the last one"], [])], together=together)
        path = segment_path(directory, data.draw(st.sampled_from(segment_numbers(directory))))
        whole = path.read_bytes()
        last = path == segment_path(directory, segment_numbers(directory)[-1])
        at = data.draw(st.integers(0, len(whole) - 1 - (26 + len(b"the last one") if last else 0)))
        flipped = bytearray(whole)
        flipped[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(flipped)
        with pytest.raises(Damaged, match=rf"{path}: .* at offset \d+"):
            stored(directory)


def test_every_single_flip_of_a_small_journal_is_refused(tmp_path: Path) -> None:
    asked: list[Batch] = [([b"one"], []), ([b"two", b"three"], [b"#!/bin/sh\nsleep 1\n"]), ([b"four"], [b"A=1\0"])]
    ends = written(tmp_path, asked, segment_bytes=10_000)
    path = segment_path(tmp_path, 1)
    whole = path.read_bytes()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x41
        path.write_bytes(flipped)
        if at < ends[-1] - 26 - len(b"four"):
            with pytest.raises(Damaged, match=rf"{path}: .* at offset \d+"):
                stored(tmp_path)
        else:  # the very last record: nothing valid follows, so nothing tells it from a torn one
            assert stored(tmp_path) == numbered(asked[:-1])

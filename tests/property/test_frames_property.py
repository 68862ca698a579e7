"""Frames survive any cut of the byte stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import frames

KINDS = (frames.STDOUT, frames.STDERR, frames.EXITED, frames.DONE, frames.MESSAGE, frames.STDIN, frames.STDIN_END)
FRAME = st.tuples(st.sampled_from(KINDS), st.integers(0, 0xFFFFFFFF), st.binary(max_size=300))


@given(st.lists(FRAME, max_size=12), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_what_is_packed_is_read_however_it_is_cut(sent: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frames.pack(kind, rank, data) for kind, rank, data in sent)
    reader = frames.Reader()
    got: list[tuple[int, int, bytes]] = []
    at = turn = 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == sent


@given(st.integers(frames.MAX_BYTES + 1, 0xFFFFFFFF))
def test_a_length_over_the_bound_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="over the bound"):
        list(frames.Reader().feed(frames.HEADER.pack(frames.STDOUT, 0, length)))

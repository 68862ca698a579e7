"""What is to be said to a node, and who is there."""

from __future__ import annotations

import pytest

from ctld.loops import links
from ctld.loops.links import Link, Links
from muster.errors import NotFound
from muster.v1 import node_pb2

BLOBS = {b"s" * 16: b"#!/bin/sh\n", b"e" * 16: b"A=b\0"}


def a_launch(
    job_id: int, *, script: bytes = b"s" * 16, environment: bytes = b"e" * 16, step_id: int = 0
) -> node_pb2.Launch:
    return node_pb2.Launch(job_id=job_id, run=0, step_id=step_id, script=script, environment=environment)


async def test_orders_pile_up_to_one_message() -> None:
    link = Link(0, "n1", BLOBS.__getitem__)
    link.launch(a_launch(1))
    link.launch(a_launch(2))
    link.end_run(node_pb2.EndRun(job_id=3))
    link.end_step(node_pb2.EndStep(job_id=3, step_id=1))
    link.signal(node_pb2.SignalOrder(serial=5))
    link.forget(4, 0, 0)
    assert link.wake.is_set()
    orders = link.take()
    assert orders is not None
    assert [one.job_id for one in orders.launch] == [1, 2]
    assert (len(orders.end_run), len(orders.end_step), len(orders.signal), len(orders.forget)) == (1, 1, 1, 1)
    assert not link.wake.is_set()
    assert link.take() is None


async def test_a_blob_is_sent_once_a_stream() -> None:
    link = Link(0, "n1", BLOBS.__getitem__)
    link.launch(a_launch(1))
    first = link.take()
    link.launch(a_launch(2))
    second = link.take()
    assert first is not None
    assert second is not None
    assert {blob.data for blob in first.blobs} == {b"#!/bin/sh\n", b"A=b\0"}
    assert list(second.blobs) == []
    link.dropped(b"s" * 16)
    link.launch(a_launch(3))
    third = link.take()
    assert third is not None
    assert [blob.data for blob in third.blobs] == [b"#!/bin/sh\n"]


async def test_a_launch_under_way_is_not_said_again() -> None:
    link = Link(0, "n1", BLOBS.__getitem__, lambda: 12.0)
    link.launch(a_launch(1))
    link.launch(a_launch(1))
    orders = link.take()
    assert orders is not None
    assert len(orders.launch) == 1
    assert link.launched == {(1, 0, 0): 12.0}


async def test_what_the_wire_cannot_take_goes_into_the_next_message() -> None:
    sizes = {bytes([number]) * 16: bytes(3 << 20) for number in range(1, 8)}
    link = Link(0, "n1", sizes.__getitem__)
    for number in range(1, 8):
        link.launch(a_launch(number, script=bytes([number]) * 16, environment=b""))
    link.end_run(node_pb2.EndRun(job_id=7))
    messages = []
    while link.wake.is_set():
        message = link.take()
        assert message is not None
        messages.append(message)
    assert [[one.job_id for one in message.launch] for message in messages] == [[1, 2, 3], [4, 5, 6], [7]]
    # Each message has the blobs of its own launches, and what was ordered later stays behind them.
    assert [len(message.blobs) for message in messages] == [3, 3, 1]
    assert [len(message.end_run) for message in messages] == [0, 0, 1]


async def test_many_small_launches_are_cut_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_LAUNCHES", 2)
    link = Link(0, "n1", BLOBS.__getitem__)
    for number in range(5):
        link.launch(a_launch(number))
    taken = [link.take() for _ in range(4)]
    assert [None if one is None else len(one.launch) for one in taken] == [2, 2, 1, None]


async def test_a_blob_that_cannot_be_read_leaves_no_trace() -> None:
    def read(digest: bytes) -> bytes:
        if digest == b"e" * 16:
            raise NotFound("gone")
        return BLOBS[digest]

    link = Link(0, "n1", read)
    with pytest.raises(NotFound):
        link.launch(a_launch(1))
    assert link.take() is None
    assert not link.launched
    link.launch(a_launch(2, environment=b""))
    orders = link.take()
    assert orders is not None
    assert len(orders.blobs) == 1


async def test_a_newer_link_of_a_node_closes_the_older_and_outlives_its_end() -> None:
    now = [1.0]
    known = Links(monotonic=lambda: now[0])
    changes: list[int] = []
    known.on_change(lambda: changes.append(len(known.up)))
    older, newer = (Link(3, "n4", BLOBS.__getitem__) for _ in range(2))
    known.opened(older)
    known.opened(newer)
    assert (older.closed, older.wake.is_set(), newer.closed) == (True, True, False)
    known.lost(older)
    assert known.up == {3: newer}
    now[0] = 5.0
    known.lost(newer)
    assert known.up == {}
    assert known.pulse(3).heard == 5.0
    assert changes == [1, 1, 0]


async def test_a_node_never_heard_of_counts_from_the_start() -> None:
    known = Links(monotonic=lambda: 42.0)
    assert known.pulse(9).heard == 42.0


async def test_reachable_nodes_are_those_with_a_stream() -> None:
    known = Links()
    for node in (0, 2, 9):
        known.opened(Link(node, f"n{node}", BLOBS.__getitem__))
    assert known.reachable(4).tolist() == [True, False, True, False]
    assert Links().reachable(2).tolist() == [False, False]

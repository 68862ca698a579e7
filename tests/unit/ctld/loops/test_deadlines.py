"""Time passing: limits, silence, launches that were not begun."""

from __future__ import annotations

import logging

import msgspec
import pytest

from ctld.core.commands import RegisterNode
from ctld.loops import wire
from ctld.loops.deadlines import RELAUNCH_SECONDS, Deadlines
from ctld.loops.links import HEARTBEAT_SECONDS
from muster.ids import UnixTime
from tests.builders import NOON
from tests.nodestream import BATCH, Desk, a_registration


def a_look(desk: Desk) -> Deadlines:
    return Deadlines(desk.store, desk.links, desk.dispatcher, desk.clock)


def registered(desk: Desk, *names: str) -> None:
    for name in names:
        desk.post(RegisterNode(name=name, facts=wire.node_facts(a_registration(name)), runs=frozenset()))


async def test_a_node_is_down_after_a_whole_time_out_of_silence(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    registered(desk, "n1", "n2")
    timeout = desk.state.settings.node_timeout_seconds
    looking = a_look(desk)
    desk.link(0)
    look_each_second(desk, looking, timeout)
    assert looking.silent_nodes() == ()
    desk.links.pulse(0).heard = desk.now
    desk.now = timeout + 1
    assert looking.silent_nodes() == (1,)
    with caplog.at_level(logging.ERROR):
        looking.look()
    assert [node.down for node in desk.state.nodes] == [False, True]
    assert "no word from n2" in caplog.text
    assert looking.silent_nodes() == ()


def look_each_second(desk: Desk, looking: Deadlines, until: float) -> None:
    while desk.now < until:
        desk.now += 1
        looking.look()


async def test_an_agent_that_hangs_with_its_stream_up_is_lost_and_has_to_register_anew() -> None:
    desk = Desk()
    registered(desk, "n1")
    looking = a_look(desk)
    link = desk.link(0)
    timeout = desk.state.settings.node_timeout_seconds
    look_each_second(desk, looking, timeout)
    assert not desk.state.nodes[0].down
    look_each_second(desk, looking, timeout + 1)
    assert desk.state.nodes[0].down
    assert link.closed
    assert 0 not in desk.links.up


async def test_a_time_out_below_two_heartbeats_does_not_lose_a_node_between_them() -> None:
    desk = Desk()
    registered(desk, "n1")
    desk.state.settings = msgspec.structs.replace(desk.state.settings, node_timeout_seconds=1)
    looking = a_look(desk)
    desk.link(0)
    look_each_second(desk, looking, 2 * HEARTBEAT_SECONDS)
    assert not desk.state.nodes[0].down
    look_each_second(desk, looking, 2 * HEARTBEAT_SECONDS + 1)
    assert desk.state.nodes[0].down


async def test_a_controller_that_stood_still_gives_its_nodes_a_whole_time_out_from_then() -> None:
    desk = Desk()
    registered(desk, "n1", "n2")
    looking = a_look(desk)
    desk.link(0)
    timeout = desk.state.settings.node_timeout_seconds
    desk.now = 10.0 * timeout
    looking.look()
    assert [node.down for node in desk.state.nodes] == [False, False]
    look_each_second(desk, looking, 11.0 * timeout + 1)
    assert [node.down for node in desk.state.nodes] == [True, True]


async def test_a_node_whose_stream_ends_has_a_whole_time_out_from_then() -> None:
    desk = Desk()
    registered(desk, "n1")
    looking = a_look(desk)
    link = desk.link(0)
    desk.now = 1000.0
    desk.links.lost(link)
    timeout = desk.state.settings.node_timeout_seconds
    desk.now = 1000.0 + timeout
    assert looking.silent_nodes() == ()
    desk.now += 1
    assert looking.silent_nodes() == (0,)


async def test_a_node_that_never_registered_is_not_lost_and_a_time_out_of_0_never_ends() -> None:
    desk = Desk()
    desk.now = 1e9
    assert a_look(desk).silent_nodes() == ()
    registered(desk, "n1")
    desk.state.settings = msgspec.structs.replace(desk.state.settings, node_timeout_seconds=0)
    assert a_look(desk).silent_nodes() == ()


async def test_a_job_over_its_limit_is_ended() -> None:
    desk = Desk()
    link = desk.link(0)
    job = desk.running(0, time_limit_minutes=1)
    link.take()
    desk.clock.at = UnixTime(NOON + 3600)
    a_look(desk).look()
    desk.journal.release()
    orders = link.take()
    assert orders is not None
    assert [one.job_id for one in orders.end_run] == [job]


async def test_a_launch_that_was_not_begun_is_sent_again() -> None:
    desk = Desk()
    link = desk.link(0)
    job = desk.running(0)
    link.take()
    desk.now = RELAUNCH_SECONDS
    a_look(desk).look()
    orders = link.take()
    assert orders is not None
    assert [(one.job_id, one.step_id) for one in orders.launch] == [(job, BATCH)]

"""Node streams over real gRPC: who may register, what is said when, and what the end of a stream costs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.states import JobState
from muster.v1 import node_pb2
from tests.nodestream import BATCH, Desk, a_registration, an_end


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_node_registers_and_gets_what_it_is_owed(tmp_path: Path) -> None:
    desk = Desk()
    job = desk.running()
    async with desk.served(tmp_path) as dial:
        agent = dial()
        said = await agent.register()
        assert said is not None
        assert (said.registered.node_index, said.registered.heartbeat_seconds) == (0, 10)
        orders = await agent.orders()
        assert [(one.job_id, one.run, one.step_id) for one in orders.launch] == [(job, 0, BATCH)]
        assert sorted(blob.data for blob in orders.blobs) == [b"#!/bin/sh\n", b"A=b\0"]
        assert 0 in desk.links.up
        await agent.leave()
        await until(lambda: 0 not in desk.links.up)


async def test_a_second_registration_ends_the_first_stream(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.served(tmp_path) as dial:
        first = dial()
        assert await first.register() is not None
        second = dial()
        assert await second.register() is not None
        assert await first.hear() is None
        assert await first.call.code() is not None
        # The old stream's end is not taken for the new one's.
        assert desk.links.up[0].name == "n1"
        desk.running()
        assert len((await second.orders()).launch) == 1


@pytest.mark.parametrize(
    ("certificate", "role", "final"), [("n2", "compute", True), ("n1", "accounting", True), ("n1", "controller", True)]
)
async def test_a_certificate_speaks_for_its_own_node_alone(
    tmp_path: Path, certificate: str, role: str, final: bool
) -> None:
    desk = Desk()
    async with desk.served(tmp_path) as dial:
        said = await dial("n1", certificate=certificate, role=role).register()
        assert said is not None
        assert said.refusal.final is final
        assert f"{role}/{certificate}" in said.refusal.sentence
        assert not desk.links.up


async def test_a_node_that_is_not_configured_may_ask_again(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.served(tmp_path) as dial:
        said = await dial("n77").register()
        assert said is not None
        assert not said.refusal.final
        assert said.refusal.unknown
        assert "n77" in said.refusal.sentence


async def test_another_protocol_is_refused_by_number(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.served(tmp_path) as dial:
        said = await dial().register(protocol=7)
        assert said is not None
        assert "protocol 7" in said.refusal.sentence


async def test_a_stream_that_begins_with_something_else_is_ended(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.served(tmp_path) as dial:
        agent = dial()
        await agent.say(heartbeat=node_pb2.Heartbeat(load_x100=5))
        assert await agent.hear() is None


async def test_an_end_is_committed_before_the_node_may_forget_it(tmp_path: Path) -> None:
    desk = Desk()
    job = desk.running()
    async with desk.served(tmp_path) as dial:
        agent = dial()
        await agent.register()
        await agent.orders()
        desk.journal.holding = True
        await agent.say(report=node_pb2.Report(ended=[an_end(job)]))
        await until(lambda: desk.state.jobs[job].state == JobState.COMPLETED)
        desk.journal.release()
        forgotten = False
        while not forgotten:  # the order to clean up comes in between
            forgotten = [(job, 0, BATCH)] == [
                (one.job_id, one.run, one.step_id) for one in (await agent.orders()).forget
            ]


async def test_a_stream_that_ends_while_a_report_is_committed_loses_nothing(tmp_path: Path) -> None:
    desk = Desk()
    jobs = [desk.running(), desk.running()]
    async with desk.served(tmp_path) as dial:
        agent = dial()
        await agent.register()
        await agent.orders()
        desk.journal.holding = True
        await agent.say(report=node_pb2.Report(ended=[an_end(job, status=256) for job in jobs]))
        await until(lambda: desk.state.jobs[jobs[1]].state == JobState.FAILED)
        await agent.leave()
        await until(lambda: not desk.links.up)
        desk.journal.holding = False
        desk.journal.release()
        assert [desk.state.jobs[job].state for job in jobs] == [JobState.FAILED, JobState.FAILED]
        # Not having heard that it is safe, the node says it again, and may forget it then.
        again = dial()
        await again.register(runs=[node_pb2.RunHere(job_id=job, run=0, step_id=BATCH) for job in jobs])
        ends = desk.journal.last_queued
        await again.say(report=node_pb2.Report(ended=[an_end(job, status=256) for job in jobs]))
        forgotten: set[int] = set()
        while forgotten != set(jobs):
            forgotten |= {one.job_id for one in (await again.orders()).forget}
        assert desk.journal.last_queued == ends


async def test_nothing_of_a_registration_is_sent_before_it_is_durable() -> None:
    desk = Desk()
    desk.journal.holding = True
    registering = asyncio.create_task(desk.service.register(a_registration()))
    await until(lambda: desk.journal.last_queued)
    # A job starts that the disk does not hold yet when the registration is answered.
    desk.journal.release(desk.journal.last_queued)
    job = desk.running()
    await until(lambda: 0 in desk.links.up)
    assert not registering.done()
    desk.journal.release()
    link, _ = await registering
    orders = link.take()
    assert orders is not None
    assert [launch.job_id for launch in orders.launch] == [job]
    assert link.take() is None


async def test_a_registration_ends_while_others_never_stop_writing() -> None:
    desk = Desk()
    desk.journal.holding = True
    registering = asyncio.create_task(desk.service.register(a_registration()))
    for _ in range(20):  # whenever something becomes durable, something else is queued already
        await asyncio.sleep(0)
        upto = desk.journal.last_queued
        desk.submit()
        desk.journal.release(upto)
    await asyncio.sleep(0)
    assert registering.done()


async def test_a_registration_whose_journal_fails_leaves_no_link() -> None:
    desk = Desk()
    desk.journal.holding = True
    registering = asyncio.create_task(desk.service.register(a_registration()))
    await until(lambda: desk.journal.last_queued)
    desk.submit()
    desk.journal.release(1)
    await until(lambda: desk.links.up)
    desk.journal.fail()
    with pytest.raises(Exception, match="no space"):
        await registering
    assert not desk.links.up


async def test_what_cannot_be_stored_is_not_forgotten() -> None:
    desk = Desk()
    job = desk.running()
    link = desk.link()
    desk.journal.holding = True
    reporting = asyncio.create_task(
        desk.service.read(link, node_pb2.NodeMessage(report=node_pb2.Report(ended=[an_end(job)])))
    )
    await until(lambda: desk.state.jobs[job].state == JobState.COMPLETED)
    desk.journal.fail()
    with pytest.raises(Exception, match="no space"):
        await reporting
    orders = link.take()
    assert orders is None or not orders.forget


async def test_a_report_of_an_unknown_job_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    link = desk.link()
    with caplog.at_level(logging.WARNING):
        await desk.service.read(link, node_pb2.NodeMessage(report=node_pb2.Report(ended=[an_end(4711)])))
    orders = link.take()
    assert orders is not None
    assert [one.job_id for one in orders.forget] == [4711]


async def test_missing_blobs_are_sent_again_to_the_node_that_lacks_them() -> None:
    desk = Desk()
    here, there = desk.link(0), desk.link(1)
    job = desk.running(0)
    other = desk.running(1, script=b"#!/bin/sh\nother\n")
    first = here.take()
    assert first is not None
    assert there.take() is not None
    digest = first.launch[0].script
    await desk.service.read(here, node_pb2.NodeMessage(report=node_pb2.Report(missing_blobs=[digest])))
    again = here.take()
    assert again is not None
    assert [launch.job_id for launch in again.launch] == [job]
    assert [blob.hash for blob in again.blobs] == [digest]
    assert there.take() is None, f"job {other} of the other node was launched again"


async def test_a_heartbeat_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    link = desk.link()
    desk.now = 7.0
    beat = node_pb2.Heartbeat(load_x100=150, free_memory_mib=99, sent_at_ms=1)
    with caplog.at_level(logging.WARNING):
        await desk.service.read(link, node_pb2.NodeMessage(heartbeat=beat))
        await desk.service.read(link, node_pb2.NodeMessage(heartbeat=beat))
    pulse = desk.links.pulse(0)
    assert (pulse.heard, pulse.load_x100, pulse.free_memory_mib) == (7.0, 150, 99)
    # A clock that is wrong is said once, not with each beat.
    assert [record.message for record in caplog.records if "clock of node n1" in record.message][1:] == []
    assert any("behind" in record.message for record in caplog.records)

"""Each order once while a stream lives, everything that is owed when one comes up, signals with an answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ctld.core.commands import Cancel, CancelStep, FinishBatch, FinishStep, Requeue, UpdateNode
from ctld.core.model import StepResult, TaskResult
from ctld.loops.links import Link
from muster.errors import NotFound, Unavailable
from muster.ids import JobId, StepId
from muster.v1 import node_pb2
from tests.builders import ADMIN, USER
from tests.nodestream import BATCH, Desk


def launches(link: Link) -> list[tuple[int, int, int]]:
    orders = link.take()
    return [] if orders is None else [(one.job_id, one.run, one.step_id) for one in orders.launch]


def taken(link: Link) -> node_pb2.Orders:
    return link.take() or node_pb2.Orders()


def requeued(desk: Desk, job: int) -> None:
    """Send a running job back to the queue; its script ends by the signal."""
    desk.post(Requeue(JobId(job), ADMIN))
    desk.post(FinishBatch(JobId(job), 0, StepResult(node=0, tasks=(TaskResult(0, 15),))))


async def test_a_job_is_launched_once_on_its_first_node_when_its_start_is_durable() -> None:
    desk = Desk()
    links = desk.link(0), desk.link(1)
    desk.journal.holding = True
    job = desk.running(0, 1)
    assert launches(links[0]) == []
    desk.journal.release()
    assert launches(links[0]) == [(job, 0, BATCH)]
    assert launches(links[1]) == []
    desk.journal.release()
    assert launches(links[0]) == []


async def test_a_run_that_is_to_be_ended_is_not_begun_any_more() -> None:
    desk = Desk()
    link = desk.link()
    desk.journal.holding = True
    job = desk.running(0)
    desk.post(Cancel(JobId(job), USER))
    desk.journal.release()
    orders = taken(link)
    assert list(orders.launch) == []
    assert [one.job_id for one in orders.end_run] == [job]


async def test_a_job_without_a_script_launches_nothing() -> None:
    desk = Desk()
    link = desk.link()
    desk.running(0, script=b"")
    assert launches(link) == []


async def test_a_step_is_launched_on_each_of_its_nodes() -> None:
    desk = Desk()
    links = desk.link(0), desk.link(1)
    job = desk.running(0, 1, script=b"")
    step = desk.step(job)
    assert [launches(link) for link in links] == [[(job, 0, step)], [(job, 0, step)]]


async def test_an_end_is_ordered_on_every_node() -> None:
    desk = Desk()
    links = desk.link(0), desk.link(1)
    job = desk.running(0, 1)
    for link in links:
        link.take()
    desk.post(Cancel(JobId(job), USER))
    ends = [taken(link).end_run for link in links]
    assert [[(one.job_id, one.run) for one in end] for end in ends] == [
        [(job, 0)],
        [(job, 0)],
    ]


async def test_a_requeued_run_is_cleaned_up_by_its_own_number() -> None:
    desk = Desk()
    desk.link(0)
    link = desk.link(1)
    job = desk.running(0, 1)
    requeued(desk, job)
    assert desk.state.jobs[job].restarts == 1
    assert {(one.job_id, one.run) for one in taken(link).end_run} == {(job, 0)}


async def test_what_is_left_of_a_run_whose_node_failed_is_told_so() -> None:
    desk = Desk()
    desk.link(0)
    link = desk.link(1)
    job = desk.running(0, 1)
    link.take()
    desk.post(UpdateNode((0,), ADMIN, state="DOWN", reason="gone"))
    assert [(one.job_id, one.run, one.why) for one in taken(link).end_run] == [
        (job, 0, "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    ]


async def test_a_cancelled_step_is_ended_where_it_still_runs() -> None:
    desk = Desk()
    links = desk.link(0), desk.link(1)
    job = desk.running(0, 1, script=b"")
    step = desk.step(job)
    result = StepResult(node=0, tasks=(TaskResult(0, 0),))
    desk.post(FinishStep(JobId(job), 0, StepId(step), result))
    for link in links:
        link.take()
    desk.post(CancelStep(JobId(job), StepId(step), USER))
    assert [[one.step_id for one in taken(link).end_step] for link in links] == [[], [step]]


async def test_a_node_that_comes_up_hears_all_that_it_is_owed_and_nothing_that_it_has() -> None:
    desk = Desk()
    has, lacks = desk.running(0), desk.running(0)
    cancelled = desk.running(0)
    desk.post(Cancel(JobId(cancelled), USER))
    step = desk.step(has)
    elsewhere = desk.running(1)
    link = desk.link(0)
    known = {(has, 0, BATCH): True, (cancelled, 0, BATCH): True, (4711, 0, BATCH): False, (elsewhere, 0, 3): True}
    desk.dispatcher.owed(link, known)
    orders = taken(link)
    assert {(one.job_id, one.step_id) for one in orders.launch} == {(lacks, BATCH), (has, step)}
    # What nobody knows, or has elsewhere, is ended at once and forgotten.
    assert {(one.job_id, one.now) for one in orders.end_run} == {(cancelled, False), (4711, True), (elsewhere, True)}
    assert {one.job_id for one in orders.forget} == {4711, elsewhere}


async def test_a_node_that_comes_up_again_is_owed_the_same() -> None:
    desk = Desk()
    job = desk.running(0)
    for _ in range(2):
        link = desk.link(0)
        desk.dispatcher.owed(link, {})
        assert launches(link) == [(job, 0, BATCH)]
        desk.links.lost(link)


async def test_a_launch_that_was_not_begun_is_sent_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    link = desk.link()
    begun, silent = desk.running(0), desk.running(0)
    step = desk.step(silent)
    link.take()
    link.launched.pop((begun, 0, BATCH))
    desk.now = 29.0
    desk.dispatcher.overdue(30.0)
    assert launches(link) == []
    desk.now = 30.0
    with caplog.at_level(logging.WARNING):
        desk.dispatcher.overdue(30.0)
    assert launches(link) == [(silent, 0, BATCH), (silent, 0, step)]
    assert f"JobId={silent}" in caplog.text
    desk.now = 31.0
    desk.dispatcher.overdue(30.0)
    assert launches(link) == []


async def test_a_launch_of_a_run_that_ended_is_not_sent_again() -> None:
    desk = Desk()
    link = desk.link()
    job = desk.running(0)
    link.take()
    requeued(desk, job)
    link.take()
    desk.now = 60.0
    desk.dispatcher.overdue(30.0)
    assert launches(link) == []
    assert not link.launched


async def test_a_script_that_cannot_be_read_keeps_nothing_else_back(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    lost, good = desk.submit(script=b"#!/bin/sh\nlost\n"), desk.submit()

    def read(digest: bytes) -> bytes:
        if digest == desk.state.jobs[lost].spec.script:
            raise NotFound("no blob is stored")
        return desk.blobs.get(digest)

    link = Link(0, "n1", read)
    desk.links.opened(link)
    desk.start(lost)
    desk.start(good)
    assert launches(link) == [(good, 0, BATCH)]
    assert f"JobId={lost} " in caplog.text
    fresh = Link(0, "n1", read)
    desk.dispatcher.owed(fresh, {})
    assert launches(fresh) == [(good, 0, BATCH)]


async def test_a_signal_is_answered_once_every_node_has_sent_it() -> None:
    desk = Desk(signal_seconds=10)
    links = desk.link(0), desk.link(1)
    job = desk.running(0, 1)
    for link in links:
        link.take()
    sending = asyncio.create_task(desk.dispatcher.signal(desk.state.jobs[job], 10, "steps"))
    await asyncio.sleep(0)
    serials = [one.serial for link in links for one in taken(link).signal]
    assert len(set(serials)) == 2
    desk.dispatcher.signalled(serials[:1])
    desk.dispatcher.signalled([*serials[:1], 99])
    await asyncio.sleep(0)
    assert not sending.done()
    desk.dispatcher.signalled(serials[1:])
    await sending


async def test_a_signal_that_is_not_answered_is_given_up() -> None:
    desk = Desk(signal_seconds=0.01)
    link = desk.link()
    job = desk.running(0)
    link.take()
    with pytest.raises(Unavailable) as caught:
        await desk.dispatcher.signal(desk.state.jobs[job], 10, "batch")
    assert caught.value.slurm_code == 5004
    assert [one.scope for one in taken(link).signal] == ["batch"]
    assert not desk.dispatcher._signals


async def test_a_signal_is_sent_to_no_node_when_one_is_away() -> None:
    desk = Desk()
    link = desk.link(0)
    job = desk.running(0, 1)
    link.take()
    with pytest.raises(Unavailable, match="Communication connection failure"):
        await desk.dispatcher.signal(desk.state.jobs[job], 10, "all")
    assert not taken(link).signal
    assert not desk.dispatcher._signals


async def test_a_steps_signal_goes_to_the_nodes_that_still_run_it() -> None:
    desk = Desk()
    links = desk.link(0), desk.link(1)
    job = desk.running(0, 1, script=b"")
    step = desk.step(job)
    desk.post(FinishStep(JobId(job), 0, StepId(step), StepResult(node=0, tasks=(TaskResult(0, 0),))))
    for link in links:
        link.take()
    sending = asyncio.create_task(desk.dispatcher.signal(desk.state.jobs[job], 15, "step", step))
    await asyncio.sleep(0)
    assert not taken(links[0]).signal
    desk.dispatcher.signalled([one.serial for one in taken(links[1]).signal])
    await sending


async def test_who_stops_waiting_for_a_signal_leaves_nothing_behind() -> None:
    desk = Desk(signal_seconds=10)
    desk.link()
    job = desk.running(0)
    sending = asyncio.create_task(desk.dispatcher.signal(desk.state.jobs[job], 10, "batch"))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert not desk.dispatcher._signals

"""The planner's copy: the state of the moment, and from then on all that happens, once and in order."""

from __future__ import annotations

import asyncio

import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import Cancel, Hold, UpdateNode
from ctld.loops.feed import Feed
from ctld.planner.frames import Kind
from muster.errors import Damaged
from muster.ids import JobId, UnixTime
from tests.builders import ADMIN, NOON, USER, a_state
from tests.nodestream import Desk
from tests.planning import Standing, records_of


async def a_copy(desk: Desk, feed: Feed) -> Standing:
    planner = Standing()
    await feed.copy(planner.written)
    return planner


async def brought(desk: Desk, feed: Feed, planner: Standing) -> None:
    assert await feed.bring(planner.written, desk.journal.last_queued)
    assert planner.work() == []


async def test_the_copy_is_the_state_and_follows_it() -> None:
    desk = Desk()
    desk.running(0)
    waiting = desk.submit()
    feed = Feed(desk.store, desk.links)
    planner = await a_copy(desk, feed)
    planner.work()
    assert records_of(planner.state) == records_of(desk.state)
    desk.post(Hold(JobId(waiting), by=ADMIN))
    desk.post(UpdateNode((1,), ADMIN, state="DRAIN", reason="disk"))
    array = desk.submit(array=(1, 5))
    desk.post(Cancel(JobId(array), by=USER, tasks=(2, 2)))
    await brought(desk, feed, planner)
    assert records_of(planner.state) == records_of(desk.state)
    assert planner.state.queue.contents() == desk.state.queue.contents()
    assert planner.server.copy.number == desk.journal.last_queued


async def test_an_event_that_is_in_the_copy_already_is_not_brought_when_it_becomes_durable() -> None:
    desk = Desk()
    feed = Feed(desk.store, desk.links)
    desk.journal.holding = True
    desk.submit()
    planner = await a_copy(desk, feed)
    desk.submit()
    bringing = asyncio.create_task(feed.bring(planner.written, desk.journal.last_queued))
    await asyncio.sleep(0)
    assert not bringing.done(), "the second submission is not durable yet"
    desk.journal.release()
    assert await bringing
    assert planner.written.kinds().count(Kind.EVENT) == 1
    planner.work()
    assert records_of(planner.state) == records_of(desk.state)


async def test_only_what_was_asked_for_is_brought() -> None:
    desk = Desk()
    feed = Feed(desk.store, desk.links)
    planner = await a_copy(desk, feed)
    desk.submit()
    number = desk.journal.last_queued
    desk.submit()
    assert await feed.bring(planner.written, number)
    planner.work()
    assert (planner.server.copy.number, len(planner.state.jobs)) == (number, 1)


async def test_computed_priorities_come_along_and_their_changes_too() -> None:
    desk = Desk()
    jobs = [desk.submit() for _ in range(3)]
    queue = desk.state.queue
    queue.reprioritise(dict(zip(jobs, (10, 30, 20), strict=True)))
    feed = Feed(desk.store, desk.links)
    planner = await a_copy(desk, feed)
    planner.work()
    assert planner.state.queue.contents() == queue.contents()
    queue.reprioritise({jobs[0]: 99})
    desk.post(Cancel(JobId(jobs[1]), by=USER))
    await brought(desk, feed, planner)
    assert planner.state.queue.contents() == queue.contents()
    assert planner.state.queue.priorities == queue.priorities == {jobs[0]: 99, jobs[2]: 20}


async def test_priorities_that_are_no_longer_computed_are_forgotten() -> None:
    desk = Desk()
    first, second = desk.submit(), desk.submit()
    queue = desk.state.queue
    queue.reprioritise({first: 1, second: 2})
    feed = Feed(desk.store, desk.links)
    planner = await a_copy(desk, feed)
    planner.work()
    queue.reprioritise({number: desk.state.jobs[number].priority for number in (first, second)})
    queue.priorities.clear()
    await brought(desk, feed, planner)
    assert planner.state.queue.priorities == {}
    assert planner.state.queue.contents() == queue.contents()


async def test_a_planner_that_is_too_slow_gets_a_new_copy() -> None:
    desk = Desk()
    feed = Feed(desk.store, desk.links, max_queued=2)
    planner = await a_copy(desk, feed)
    for _ in range(3):
        desk.submit()
    assert not await feed.bring(planner.written, desk.journal.last_queued)
    await feed.copy(planner.written)
    desk.submit()
    await brought(desk, feed, planner)
    assert records_of(planner.state) == records_of(desk.state)


async def test_nothing_is_kept_for_a_planner_that_has_gone() -> None:
    desk = Desk()
    feed = Feed(desk.store, desk.links)
    await a_copy(desk, feed)
    feed.close()
    desk.submit()
    assert desk.state.queue.changed is None
    planner = await a_copy(desk, feed)
    await brought(desk, feed, planner)
    assert Kind.EVENT not in planner.written.kinds()
    assert records_of(planner.state) == records_of(desk.state)


async def test_an_event_that_is_not_the_next_one_is_damage() -> None:
    desk = Desk()
    feed = Feed(desk.store, desk.links)
    planner = await a_copy(desk, feed)
    desk.submit()
    await feed.bring(planner.written, desk.journal.last_queued)
    planner.written.data += planner.written.data[-200:]
    planner.server.copy.number = 5
    with pytest.raises(Damaged):
        planner.work()


async def test_a_plan_is_made_of_what_was_brought_and_of_the_nodes_that_answer() -> None:
    desk = Desk(nodes=2)
    first, second = desk.submit(cpus_per_task=64), desk.submit(cpus_per_task=64)
    desk.link(1)
    feed = Feed(desk.store, desk.links)
    planner = await a_copy(desk, feed)
    await feed.order(planner.written, UnixTime(NOON), 60.0, feed.reachable())
    ((planned, summary),) = planner.work()
    assert (planned[first].start_at, planned[first].nodes) == (NOON, (1,))
    assert planned[second].start_at != NOON
    assert (summary.number, summary.queue, summary.depth, summary.complete) == (desk.journal.last_queued, 2, 2, True)


async def test_a_job_past_its_longest_wait_is_planned_first() -> None:
    desk = Desk(state=a_state(1, settings=Settings(require_registration=False, max_queue_wait_seconds=60)))
    desk.link(0)
    late = desk.submit(cpus_per_task=64, time_limit_minutes=60)
    feed = Feed(desk.store, desk.links)
    planner = await a_copy(desk, feed)
    desk.state.queue.reprioritise({late: 1})
    early = desk.submit(cpus_per_task=64, time_limit_minutes=60)
    assert await feed.bring(planner.written, desk.journal.last_queued)
    for waited, first in ((30, early), (90, late)):
        await feed.order(planner.written, UnixTime(NOON + waited), 60.0, feed.reachable())
        ((planned, _),) = planner.work()
        assert min(planned, key=lambda job: planned[job].start_at) == first

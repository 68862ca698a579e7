"""The scheduling loop: woken by changes, a few passes for many, and on where a budget ran out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ctld.core.commands import UpdateNode
from ctld.loops import schedule
from ctld.loops.schedule import Scheduler
from muster.states import JobState
from tests.builders import ADMIN
from tests.nodestream import Desk


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def states(desk: Desk, *jobs: int) -> list[int]:
    return [desk.state.jobs[job].state for job in jobs]


async def test_what_fits_is_started_on_nodes_that_can_be_reached() -> None:
    desk = Desk()
    scheduler = Scheduler(desk.store, desk.links, desk.clock)
    job = desk.submit()
    assert scheduler.cycle()
    assert states(desk, job) == [JobState.PENDING]
    desk.link(1)
    assert scheduler.cycle()
    alloc = desk.state.jobs[job].alloc
    assert alloc is not None
    assert [share.node for share in alloc.shares] == [1]
    assert scheduler.passes == 2
    assert [start.job_id for start in scheduler.overlay.starts] == [job]


async def test_a_submission_and_a_node_wake_the_loop() -> None:
    desk = Desk()
    scheduler = Scheduler(desk.store, desk.links, desk.clock)
    loop = asyncio.create_task(scheduler.run())
    job = desk.submit()
    await until(lambda: scheduler.passes)
    assert states(desk, job) == [JobState.PENDING]
    desk.link(0)
    await until(lambda: states(desk, job) == [JobState.RUNNING])
    await stopped(loop)


async def test_many_changes_are_a_few_passes() -> None:
    desk = Desk()
    scheduler = Scheduler(desk.store, desk.links, desk.clock)
    loop = asyncio.create_task(scheduler.run())
    for _ in range(300):
        desk.submit()
        await asyncio.sleep(0)
    await until(lambda: scheduler.passes)
    assert scheduler.passes < 100
    await stopped(loop)


async def test_a_pass_that_ran_out_of_its_budget_goes_on_at_once() -> None:
    desk = Desk()
    desk.link(0)
    ticks = 0.0

    def stopwatch() -> float:
        nonlocal ticks
        ticks += schedule.BUDGET_SECONDS / 3
        return ticks

    scheduler = Scheduler(desk.store, desk.links, desk.clock, stopwatch)
    jobs = [desk.submit(cpus_per_task=number + 1, memory_per_cpu_mib=1) for number in range(8)]
    loop = asyncio.create_task(scheduler.run())
    await until(lambda: JobState.PENDING not in states(desk, *jobs))
    assert scheduler.passes > 1
    await stopped(loop)


async def test_a_pass_is_made_now_and_then_without_a_change() -> None:
    desk = Desk()
    scheduler = Scheduler(desk.store, desk.links, desk.clock)
    loop = asyncio.create_task(scheduler.run())
    await until(lambda: scheduler.passes >= 1)
    await stopped(loop)


async def test_a_drained_node_starts_nothing() -> None:
    desk = Desk(1)
    desk.link(0)
    desk.post(UpdateNode((0,), ADMIN, state="DRAIN", reason="x"))
    job = desk.submit()
    scheduler = Scheduler(desk.store, desk.links, desk.clock)
    assert scheduler.cycle()
    assert states(desk, job) == [JobState.PENDING]

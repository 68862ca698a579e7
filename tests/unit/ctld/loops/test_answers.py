"""Answers of the planner: shown whole and at once, started only on a queue that has not moved on."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from ctld.core.commands import UpdateJob
from ctld.loops.answers import Answers
from ctld.loops.feed import Feed
from ctld.loops.statistics import Statistics
from ctld.planner.frames import Kind, frame
from muster.errors import Damaged
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import ADMIN, NOON
from tests.nodestream import Desk
from tests.planning import Standing


class Asked:
    """A desk, and a planner without a process that answers when a test says so."""

    def __init__(self, nodes: int = 1) -> None:
        self.desk = Desk(nodes=nodes)
        self.links = [self.desk.link(node) for node in range(nodes)]
        self.statistics = Statistics(self.desk.clock)
        self.answers = Answers(self.desk.store, self.desk.links, self.desk.clock, self.statistics)
        self.planner = Standing()

    async def order(self) -> None:
        """Have a plan of this moment made."""
        feed = Feed(self.desk.store, self.desk.links)
        await feed.copy(self.planner.written)
        self.answers.expect()
        await feed.order(self.planner.written, UnixTime(NOON), 60.0, feed.reachable())
        self.planner.work()

    async def answer(self, data: bytes | None = None) -> None:
        """Let the answer come, and the end of the stream behind it."""
        reader = asyncio.StreamReader()
        reader.feed_data(self.planner.answered if data is None else data)
        reader.feed_eof()
        with pytest.raises(asyncio.IncompleteReadError):
            await self.answers.read(reader)

    def states(self, *jobs: int) -> list[int]:
        """Give the states of jobs."""
        return [self.desk.state.jobs[job].state for job in jobs]


async def test_what_is_planned_for_now_is_started_and_the_rest_is_shown() -> None:
    asked = Asked()
    jobs = [asked.desk.submit(cpus_per_task=64, time_limit_minutes=5) for _ in range(2)]
    await asked.order()
    await asked.answer()
    assert asked.states(*jobs) == [JobState.RUNNING, JobState.PENDING]
    alloc = asked.desk.state.jobs[jobs[0]].alloc
    assert alloc is not None
    assert alloc.planned_by == "Backfill"
    later = asked.answers.foreseen.of(asked.desk.state, jobs[1])
    assert later is not None
    assert (later.start_at, asked.answers.cycles, asked.statistics.day.stale) == (NOON + 300, 1, 0)
    assert asked.answers.complete.is_set()


@pytest.mark.parametrize("change", ["a job came", "a job goes first now", "the node went"])
async def test_a_start_on_a_state_that_has_moved_on_is_stale(change: str) -> None:
    asked = Asked()
    job = asked.desk.submit(cpus_per_task=64)
    behind = asked.desk.submit(cpus_per_task=64)
    await asked.order()
    if change == "a job came":
        asked.desk.submit(cpus_per_task=64)
    elif change == "a job goes first now":
        asked.desk.post(UpdateJob(JobId(behind), ADMIN, priority=4294967293))
    else:
        asked.desk.links.lost(asked.links[0])
    await asked.answer()
    assert asked.states(job, behind) == [JobState.PENDING, JobState.PENDING]
    assert asked.statistics.day.stale == 1


async def test_a_start_that_has_been_made_meanwhile_is_not_stale() -> None:
    asked = Asked()
    job = asked.desk.submit()
    await asked.order()
    asked.desk.start(job, 0)
    await asked.answer()
    assert asked.statistics.day.stale == 0
    assert asked.answers.foreseen.of(asked.desk.state, job) is None


async def test_nothing_is_started_where_the_configuration_has_no_backfill() -> None:
    asked = Asked()
    state = asked.desk.state
    state.settings = structs.replace(state.settings, backfill=False)
    job = asked.desk.submit(cpus_per_task=64)
    await asked.order()
    await asked.answer()
    assert asked.states(job) == [JobState.PENDING]


async def test_half_an_answer_changes_nothing() -> None:
    asked = Asked()
    asked.desk.submit(cpus_per_task=64)
    await asked.order()
    await asked.answer(asked.planner.answered[:-1])
    assert (asked.answers.cycles, len(asked.answers.foreseen)) == (0, 0)
    assert not asked.answers.complete.is_set()


async def test_an_order_is_no_answer() -> None:
    asked = Asked()
    with pytest.raises(Damaged, match="the planner sent a frame ORDER"):
        await asked.answer(frame(Kind.ORDER))

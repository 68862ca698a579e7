"""The planner's copy of the state is the state, after any commands, whenever it is brought up to date."""

from __future__ import annotations

import asyncio
import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctld.core import invariants
from ctld.core.commands import Command
from ctld.loops.feed import Feed
from ctld.loops.links import Links
from ctld.store.memory import MemoryJournal
from ctld.store.store import Store
from muster.errors import MusterError
from muster.ids import UnixTime
from muster.states import JobState
from tests.planning import Standing, records_of
from tests.property.test_replay_property import World


class Stored(World):
    """A world whose events go through a store."""

    store: Store | None = None

    def do(self, command: Command) -> None:
        """Decide, apply and journal."""
        if self.store is None:
            self.store = Store(self.state, MemoryJournal())
        try:
            self.store.post(command, at=UnixTime(self.at))
        except MusterError:
            self.seen["refused"] += 1

    def rank(self, dice: random.Random) -> None:
        """Compute a priority for some jobs anew, as the priority loop does."""
        waiting = [
            job.id
            for job in self.state.jobs.values()
            if job.state <= JobState.SUSPENDED and job.priority and not job.priority_set
        ]
        some = dice.sample(waiting, min(3, len(waiting)))
        self.state.queue.reprioritise({number: dice.randrange(1, 1000) for number in some})


async def follow(seed: int, steps: int) -> None:
    world, dice = Stored(seed), random.Random(seed)
    for _ in range(dice.randrange(20)):
        world.step()
    assert world.store is not None
    feed = Feed(world.store, Links())
    planner = Standing()
    await feed.copy(planner.written)
    for _ in range(steps):
        world.step()
        if dice.random() < 0.2:
            world.rank(dice)
        await asyncio.sleep(0)
        if dice.random() < 0.1:
            assert await feed.bring(planner.written, world.store.journal.last_queued)
            planner.work()
            compare(world, planner)
    assert await feed.bring(planner.written, world.store.journal.last_queued)
    planner.work()
    compare(world, planner)
    invariants.check(planner.state)


def compare(world: Stored, planner: Standing) -> None:
    assert records_of(planner.state) == records_of(world.state)
    assert planner.state.queue.contents() == world.state.queue.contents()
    assert planner.state.queue.priorities == world.state.queue.priorities


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120))
@example(seed=906, steps=60)  # A member that was split off before its array had a computed priority.
def test_the_copy_is_the_state(seed: int, steps: int) -> None:
    asyncio.run(follow(seed, steps))

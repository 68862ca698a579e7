"""The scheduling loop: woken by changes, plans in the loop under a budget, commits what may start.

Wake-ups are coalesced: a thousand submissions cause a few passes. A pass that runs out of its budget goes on in the
next turn of the loop, so nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ctld.core.commands import ApplyPlan
from ctld.core.plan import Plan
from ctld.loops.links import Links
from ctld.loops.statistics import Statistics
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from ctld.store.store import Store
from muster.clock import Clock

log = logging.getLogger("ctld.schedule")

BUDGET_SECONDS = 0.005
"""Longest stretch of planning in one turn of the loop."""
LEAST_GAP_SECONDS = 0.002
MOST_GAP_SECONDS = 0.05
IDLE_SECONDS = 1.0
"""A pass is made at least so often: begin times and time limits of running jobs move without an event."""


class Scheduler:
    """Owns the overlay: the newest plan's reasons and planned starts."""

    def __init__(
        self,
        store: Store,
        links: Links,
        clock: Clock,
        stopwatch: Callable[[], float] = time.perf_counter,
        statistics: Statistics | None = None,
    ) -> None:
        self._store = store
        self._links = links
        self._clock = clock
        self._stopwatch = stopwatch
        self._statistics = statistics or Statistics(clock)
        self._memory = PlanMemory()
        self._wake = asyncio.Event()
        self.overlay = Plan(made_at=clock.now())
        self.passes = 0
        self.last_seconds = 0.0
        store.on_change(self._wake.set)
        links.on_change(self._wake.set)

    @property
    def memory(self) -> PlanMemory:
        """What the last pass left behind."""
        return self._memory

    async def run(self) -> None:
        """Plan whenever something changed, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            complete = self.cycle()
            # A pass that took long is followed by a longer pause: planning never takes over half of the loop.
            await asyncio.sleep(min(MOST_GAP_SECONDS, max(LEAST_GAP_SECONDS, self.last_seconds)) if complete else 0)
            if not complete:
                self._wake.set()

    def cycle(self) -> bool:
        """Make one pass and start what it chose; False when its budget ran out before the end of the queue."""
        stopwatch = self._stopwatch
        began = stopwatch()
        state = self._store.state
        at = self._clock.now()
        queue = len(state.queue)
        state.queue.hasten(at)
        made = plan(
            state,
            at,
            reachable=self._links.reachable(len(state.nodes)),
            spent=lambda: stopwatch() - began > BUDGET_SECONDS,
            memory=self._memory,
        )
        if made.starts or made.preemptions:
            # What the starts change wakes the loop again; nobody waits for their being durable here.
            self._store.post(ApplyPlan(made), at=at)
        self.overlay = made
        self.passes += 1
        self.last_seconds = stopwatch() - began
        self._statistics.planned(made, seconds=self.last_seconds, queue=queue)
        return made.complete

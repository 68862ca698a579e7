"""Keeps computed priorities up: all of them every PriorityCalcPeriod, and those of jobs that come or change at once.

A pass goes through the pending jobs in slices of at most 5 ms of the loop; until it reaches a job, that job keeps its
place. It also notices when a period of PriorityUsageResetPeriod began, and has usage forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ctld.core.accounts import Accounts
from ctld.core.commands import GrantAccrual, ResetUsage
from ctld.core.model import Job
from ctld.sched.accrual import limits_accrual, slots
from ctld.sched.fairshare import FairShare, fairshare
from ctld.sched.priority import Ranking, Terms
from ctld.store.store import Store
from muster.clock import Clock
from muster.ids import UnixTime

log = logging.getLogger("ctld.priority")

SLICE_SECONDS = 0.005
"""Longest stretch of a pass in one turn of the loop."""
SLOTS_AT_ONCE = 128
"""Jobs whose slots of accrue limits change with one event."""
MANY_ASSOCIATIONS = 1000
"""From so many on, fairshare is computed in a thread: it takes about 10 ms."""


class Priorities:
    """Owns the computed priorities of the store's queue."""

    def __init__(self, store: Store, clock: Clock, stopwatch: Callable[[], float] = time.perf_counter) -> None:
        self._store = store
        self._clock = clock
        self._stopwatch = stopwatch
        self._ranking = Ranking()
        self._wake = asyncio.Event()
        self.passes = 0
        self._limited = True
        """Accrue limits held when slots were last given; at the start it is not known."""
        store.on_change(self._changed)

    @property
    def shares(self) -> dict[int, FairShare]:
        """Association id -> fairshare of the last pass; empty while fairshare has no weight."""
        weigher = self._ranking.weigher
        return dict(weigher.shares) if weigher is not None else {}

    def all_terms(self, job: Job) -> list[Terms]:
        """Give the terms of each pair of partition and QOS that a job may use; none where its priority is not
        computed."""
        return self._ranking.terms(self._store.state, job)

    def prime(self) -> None:
        """Compute all priorities at once, before the first scheduling pass; PriorityUsageResetPeriod=NOW is now."""
        if self._store.state.settings.priority.usage_reset == "NOW":
            self._store.post(ResetUsage(), at=self._clock.now())
        for _ in self._ranking.passing(self._store.state, self._clock.now()):
            pass
        self.passes += 1

    async def run(self) -> None:
        """Compute them anew every period, and when what they hang on has changed, until cancelled."""
        while True:
            period = self._store.state.settings.priority.calc_period_seconds
            try:
                async with asyncio.timeout(period):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self._reset_usage()
            await self._accrue()
            await self._pass()

    async def _pass(self) -> None:
        state, at, stopwatch = self._store.state, self._clock.now(), self._stopwatch
        settings, accounts = state.settings.priority, state.accounts
        usage = self._ranking.usage(state, at)
        if len(usage) < MANY_ASSOCIATIONS:
            shares = fairshare(accounts, usage, settings.flags, settings.dampening)
        else:
            shares = await asyncio.to_thread(fairshare, accounts, usage, settings.flags, settings.dampening)
            if state.accounts is not accounts:
                self._wake.set()
                return
        began = stopwatch()
        for _ in self._ranking.passing(state, at, shares if settings.fairshare else {}):
            if stopwatch() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = stopwatch()
        self.passes += 1

    async def _accrue(self) -> None:
        """Give the slots of accrue limits; once there is no such limit any more, to all."""
        state = self._store.state
        settings, accounts = state.settings, state.accounts
        limited = "limits" in settings.accounting_enforce and limits_accrual(accounts)
        if "ACCRUE_ALWAYS" in settings.priority.flags or not (limited or self._limited):
            return
        self._limited = limited
        # Records are frozen: the thread sees the jobs of this moment.
        begin, stop = await asyncio.to_thread(slots, list(state.jobs.values()), accounts if limited else Accounts())
        for first in range(0, max(len(begin), len(stop)), SLOTS_AT_ONCE):
            part = slice(first, first + SLOTS_AT_ONCE)
            self._store.post(GrantAccrual(begin[part], stop[part]), at=self._clock.now())
            await asyncio.sleep(0)

    def _changed(self) -> None:
        state = self._store.state
        if self._ranking.outdated(state):
            self._wake.set()
        self._ranking.follow(state)

    def _reset_usage(self) -> None:
        state, at = self._store.state, self._clock.now()
        period = state.settings.priority.usage_reset
        began = period_start(period, at)
        if began and state.accounts and state.usage.reset_at < began:
            log.info("PriorityUsageResetPeriod=%s: what was used is forgotten", period)
            self._store.post(ResetUsage(), at=at)


_MONTHS = {"MONTHLY": 1, "QUARTERLY": 3, "YEARLY": 12}


def period_start(period: str, now: UnixTime) -> int:
    """Give when the period began that `now` is in, in local time (scheduling.md 3.3); 0 where there is none."""
    local = time.localtime(now)
    year, month, day = local.tm_year, local.tm_mon, local.tm_mday
    if period == "WEEKLY":
        # Monday is 0: the week begins on Sunday.
        day -= (local.tm_wday + 1) % 7
    elif period in _MONTHS:
        day, month = 1, month - (month - 1) % _MONTHS[period]
    elif period != "DAILY":
        return 0
    return int(time.mktime((year, month, day, 0, 0, 0, 0, 0, -1)))

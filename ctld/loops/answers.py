"""Answers of the planner process: the calendar becomes the overlay that is shown; what it has for now is started."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from ctld.core.commands import ApplyPlan
from ctld.core.events import JobStarted
from ctld.core.model import Job
from ctld.core.plan import Plan
from ctld.loops.links import Links
from ctld.loops.statistics import Statistics
from ctld.planner.frames import HEADER, PART, STARTS, SUMMARY, Kind, Summary, opened
from ctld.sched.foreseen import Foreseen
from ctld.store.store import Store
from muster.clock import Clock
from muster.errors import Damaged


class Answers:
    """Owns the overlay of planned starts.

    Attributes:
        foreseen: the newest calendar.
        cycles: calendars made so far.
        seconds: how long the last one took.
        at: monotonic time of the last answer; minus infinity before the first.
        complete: set by the end of an answer.
    """

    def __init__(
        self,
        store: Store,
        links: Links,
        clock: Clock,
        statistics: Statistics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._links = links
        self._clock = clock
        self._statistics = statistics
        self._monotonic = monotonic
        self._then: Mapping[int, Job] = {}
        """The records of all jobs that the plan under way is made on."""
        self._queue_version = 0
        """Of the queue then."""
        self._draft = Foreseen()
        self._starts: list[bytes] = []
        """Frames, read when their turn has come: there may be ten thousand starts after a restart."""
        self.foreseen = Foreseen()
        self.cycles = 0
        self.seconds = 0.0
        self.at = -float("inf")
        self.complete = asyncio.Event()

    def expect(self) -> None:
        """Note what is now: the next answer is about that."""
        state = self._store.state
        self._then, self._queue_version = dict(state.jobs), state.queue.version
        self._draft, self._starts = Foreseen(), []
        self.complete.clear()

    def forget(self) -> None:
        """No answer comes any more; what was planned stands."""
        self._then, self._draft, self._starts = {}, Foreseen(), []
        self.at = -float("inf")

    def nothing_waits(self) -> None:
        """Nothing is planned, and nobody need be asked."""
        self.foreseen = Foreseen()

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Take answers in, one after the other.

        Raises:
            EOFError, OSError: the planner has gone.
            Damaged, msgspec.DecodeError: what it says makes no sense.
        """
        while True:
            length, kind = opened(await reader.readexactly(HEADER.size))
            payload = await reader.readexactly(length)
            if kind is Kind.PART:
                self._draft.take(PART.decode(payload).planned, self._then, self._store.state.jobs)
                # What is there already is read without a pause: give the loop its turn.
                await asyncio.sleep(0)
            elif kind is Kind.STARTS:
                self._starts.append(payload)
            elif kind is Kind.SUMMARY:
                self._take(SUMMARY.decode(payload))
                await self._carry_out()
                self.complete.set()
            else:
                raise Damaged(f"the planner sent a frame {kind.name}", "a bug")

    def _take(self, made: Summary) -> None:
        """Swap the new calendar in."""
        draft = self._draft
        draft.number, draft.made_at, draft.past_window = made.number, made.made_at, made.past_window
        self.foreseen, self._draft, self._then = draft, Foreseen(), {}
        self.at, self.seconds = self._monotonic(), made.seconds
        self.cycles += 1
        self._statistics.day.deep.note(
            seconds=made.seconds,
            depth=made.depth,
            queue=made.queue,
            table=made.table,
            at=made.made_at,
            complete=made.complete,
        )

    async def _carry_out(self) -> None:
        """Start what the calendar has planned for now and the event pass has not started.

        The writer checks each start, but not whether a job has come that goes before it: so nothing is started once the
        queue has changed otherwise than by these starts. What is left then is for the event pass, and counts as stale.
        """
        state, day = self._store.state, self._statistics.day
        parts, self._starts = self._starts, []
        for part in parts:
            await asyncio.sleep(0)
            tried = [start for start in STARTS.decode(part).starts if start.job_id in state.queue]
            day.stale += len(tried)
            if not state.settings.backfill or state.queue.version != self._queue_version:
                continue
            up = self._links.up
            fit = tuple(start for start in tried if all(share.node in up for share in start.shares))
            if fit:
                plan = Plan(self.foreseen.made_at, fit)
                events, _ = self._store.post(ApplyPlan(plan), at=self._clock.now())
                self._queue_version = state.queue.version
                day.stale -= sum(isinstance(event, JobStarted) for event in events)

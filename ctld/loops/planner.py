"""The controller's side of its planner process: starts it, feeds it, and orders plans.

The process has its own copy of the state and plans the whole queue on another core, so that nothing here waits for it.
When it ends by itself, it is started again after a pause, and planned starts stand as they were until then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import ctld
from ctld.loops.answers import Answers
from ctld.loops.feed import Feed
from ctld.loops.links import Links
from ctld.loops.statistics import Statistics
from ctld.sched.foreseen import Foreseen
from ctld.store.store import Store
from ctld.store.threads import in_thread
from muster.clock import Clock
from muster.errors import Damaged

log = logging.getLogger("ctld.planner")

INTERVAL_SECONDS = 30
"""bf_interval, where it is not set."""
REST_SECONDS = 1.0
"""After a cycle the planner rests so long at least ..."""
REST_TIMES = 10.0
"""... and so many times as long as the cycle took, up to the interval: large plans are made at regular times."""
CHANGED_SHARE = 100
"""A cycle is made before its time once events have come for a hundredth of what is planned."""
COALESCE_SECONDS = 0.05
"""A thousand submissions are looked at together."""
LOOK_SECONDS = 1.0
BRING_EVENTS = 1_000
"""So many events are brought to an idle planner before the next plan is due: then it is sooner up to date."""
MOST_SECONDS = 600.0
"""A cycle may take so long where bf_max_time is not set: longer plans are of a past that is too far away."""
ANSWER_SECONDS = 60.0
"""A planner that has not answered so long after the end of its time hangs, and is started again."""
END_SECONDS = 2.0
"""One that has closed its end has so long to say how it ended."""
FIRST_PAUSE_SECONDS = 1.0
MOST_PAUSE_SECONDS = 60.0


class Planner:
    """Owns the process.

    Args:
        interval_seconds: a new calendar is made so often; below 0: never, there is no process then.
        most_seconds: of one cycle.
        name: shown in the process list behind the command.

    Attributes:
        restarts: how often the process ended by itself.
        pid: of the process; 0 while there is none.
    """

    def __init__(
        self,
        store: Store,
        links: Links,
        clock: Clock,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        most_seconds: float = MOST_SECONDS,
        name: str = "",
        command: Sequence[str] = (sys.executable, "-m", "ctld.planner"),
        statistics: Statistics | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._interval = interval_seconds if interval_seconds < 0 else max(REST_SECONDS, interval_seconds)
        self._most = most_seconds
        self._name = name
        self._command = tuple(command)
        self._monotonic = monotonic
        self._statistics = statistics or Statistics(clock)
        self._feed = Feed(store, links)
        self._answers = Answers(store, links, clock, self._statistics, monotonic)
        self.restarts = 0
        self.pid = 0

    @property
    def foreseen(self) -> Foreseen:
        """The newest calendar."""
        return self._answers.foreseen

    @property
    def cycles(self) -> int:
        """Calendars made so far."""
        return self._answers.cycles

    async def run(self) -> None:
        """Keep a planner at work until cancelled."""
        if self._interval < 0:
            log.info("bf_interval=-1: there is no planner process, and only the first jobs get planned starts")
            return
        pause = FIRST_PAUSE_SECONDS
        while True:
            before = self.cycles
            why = await self._live()
            if self.cycles > before:
                pause = FIRST_PAUSE_SECONDS
            self.restarts += 1
            log.error("the planner process ended: %s. It is started again in %g s", why, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE_SECONDS)

    async def _live(self) -> str:
        """Start a process and work with it to its end; say what ended it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # In the loop's own thread, which lives as long as the process: the kernel kills the child when the
                # thread that started it ends. Nothing is copied (vfork): it takes a few milliseconds.
                process = subprocess.Popen(
                    [*self._command, str(theirs.fileno()), str(os.getpid()), self._name],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env={**os.environ, "PYTHONPATH": str(Path(ctld.__file__).resolve().parents[1])},
                )
            except OSError as error:
                ours.close()
                return f"it cannot be started: {error.strerror or error}"
        self.pid = process.pid
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        why, patience = "", 0.0
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._write(writer), name="planner-write")
                both.create_task(self._answers.read(reader), name="planner-read")
        except* TimeoutError:
            why = f"it gave no answer for {self._most + ANSWER_SECONDS:g} s"
        except* (OSError, EOFError):
            patience = END_SECONDS
        except* (Damaged, msgspec.DecodeError):
            log.exception("a bug in what the planner process says")
            why = "what it says makes no sense"
        finally:
            self.pid = 0
            self._statistics.planning = False
            self._feed.close()
            self._answers.forget()
            writer.transport.abort()
            code = await in_thread(_end, process, patience)
        return why or (f"signal {-code}" if code < 0 else f"exit code {code}, the log says why")

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        """Keep the copy up, and order a plan whenever one is due."""
        feed, store, answers = self._feed, self._store, self._answers
        while True:
            if not feed.copied:
                async with self._deadline():
                    await feed.copy(writer)
            await self._until_due(writer)
            async with self._deadline():
                # No await among these: the plan is made on what they say.
                number, at = store.journal.last_queued, self._clock.now()
                reachable = feed.reachable()
                answers.expect()
                if not await feed.bring(writer, number):
                    continue
                await feed.order(writer, at, self._most, reachable)
                self._statistics.planning = True
                await answers.complete.wait()
                self._statistics.planning = False

    async def _until_due(self, writer: asyncio.StreamWriter) -> None:
        """Bring events while there is nothing to plan, until it is time for the next plan."""
        feed, store, answers = self._feed, self._store, self._answers
        rest = min(self._interval, max(REST_SECONDS, REST_TIMES * answers.seconds))
        while True:
            state = store.state
            waiting = len(state.queue) + len(state.deferred)
            since = self._monotonic() - answers.at
            if not waiting:
                answers.nothing_waits()
            elif since >= self._interval or (since >= rest and feed.changes > len(self.foreseen) // CHANGED_SHARE):
                return
            feed.wake.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await feed.wake.wait()
                    await asyncio.sleep(COALESCE_SECONDS)
            except TimeoutError:
                pass
            if feed.changes > BRING_EVENTS:
                async with self._deadline():
                    if not await feed.bring(writer, feed.up_to):
                        return

    def _deadline(self) -> asyncio.Timeout:
        """Bound what hangs on the process."""
        return asyncio.timeout(self._most + ANSWER_SECONDS)


def _end(process: subprocess.Popen[bytes], patience: float) -> int:
    """Wait for the process so long, then kill it; give how it ended. Blocks."""
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()

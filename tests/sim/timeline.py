"""Virtual time: a heap of what is to happen, and coroutines of the real controller that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any, Protocol

from muster.ids import UnixTime
from tests.builders import NOON

Action = Callable[..., None]


class Timer:
    """Something that is to happen, unless it is called off."""

    __slots__ = ("action", "args")

    def __init__(self, action: Action, args: tuple[Any, ...]) -> None:
        self.action: Action | None = action
        self.args = args

    def cancel(self) -> None:
        """Call it off."""
        self.action = None


class Timeline:
    """What happens when; nothing else moves time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds since the simulation began."""
        self.happened = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0

    def after(self, delay: float, action: Action, *args: Any) -> Timer:
        """Have `action` called in `delay` seconds."""
        timer = Timer(action, args)
        self._serial += 1
        heappush(self._heap, (self.seconds + delay, self._serial, timer))
        return timer

    def run(self, until: float, done: Callable[[], bool]) -> bool:
        """Let time pass until `done` (looked at once a second) or `until`; True when it was done.

        Raises:
            AssertionError: nothing is left to happen.
        """
        look_at = self.seconds
        while self.seconds < until:
            assert self._heap, "nothing is left to happen: the simulation is dead"
            when, _, timer = heappop(self._heap)
            if when >= look_at:
                look_at = when + 1.0
                if done():
                    heappush(self._heap, (when, 0, timer))
                    return True
            if timer.action is not None:
                self.seconds = max(self.seconds, when)
                self.happened += 1
                timer.action(*timer.args)
        return False


class SimClock:
    """A wall clock, which may have been set forward."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.ahead = 0.0

    def now(self) -> UnixTime:
        """Give the time in whole seconds since the epoch."""
        return UnixTime(int(NOON + self._timeline.seconds + self.ahead))


class Awaited(Protocol):
    """What a coroutine yields while it waits: told whom to call when that is over."""

    def then(self, resume: Callable[[], None]) -> None:
        """Have `resume` called, once."""
        ...


class Tasks:
    """The coroutines of one process: they end with it, wherever they are."""

    def __init__(self) -> None:
        self._open: dict[int, Coroutine[Any, Any, None]] = {}
        self._serial = 0
        self.dead = False

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its first wait."""
        self._serial += 1
        self._open[self._serial] = coroutine
        self._go_on(self._serial)

    def kill(self) -> None:
        """End all of them where they stand; nothing of theirs runs any more."""
        self.dead = True
        for coroutine in self._open.values():
            if coroutine.cr_frame is not None and not coroutine.cr_running:  # type: ignore[attr-defined]
                coroutine.close()
        self._open.clear()

    def _go_on(self, serial: int) -> None:
        coroutine = self._open.get(serial)
        if coroutine is None or self.dead:
            return
        try:
            awaited: Awaited = coroutine.send(None)
        except StopIteration:
            self._open.pop(serial, None)
        else:
            awaited.then(lambda: self._go_on(serial))


class Waiting:
    """An awaitable that yields itself until somebody resumes it."""

    def __init__(self) -> None:
        self._resume: Callable[[], None] | None = None
        self._over = False

    def then(self, resume: Callable[[], None]) -> None:
        """Have `resume` called when it is over."""
        self._resume = resume

    def end(self) -> None:
        """Let whoever waits go on."""
        self._over = True
        if self._resume is not None:
            resume, self._resume = self._resume, None
            resume()

    def __await__(self) -> Generator[Waiting, None, None]:
        if not self._over:
            yield self

"""Streams between agents and the controller: in order and without loss while they live; what is under way when one
breaks may arrive or not, and the two sides notice at different times."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.timeline import Timeline

UP, DOWN = 0, 1
"""To the controller; to the agent."""


class Stream:
    """One connection."""

    def __init__(
        self, timeline: Timeline, rng: random.Random, doubling: float, sending: Callable[[Stream], None]
    ) -> None:
        self._timeline = timeline
        self._rng = rng
        self._sending = sending
        """Told before each message is sent."""
        self._doubling = doubling
        """Chance that a message comes a second time, some time later."""
        self._ready_at = [0.0, 0.0]
        self._cut = [float("inf"), float("inf")]
        self._closed = [False, False]
        """By receiving side."""
        self.broken = False
        self.receive: list[Callable[[Any], None]] = [lambda _: None, lambda _: None]
        self.ended: list[Callable[[], None]] = [lambda: None, lambda: None]

    def send(self, way: int, message: Any) -> None:
        """Have a message delivered behind those sent before."""
        if self.broken:
            return
        self._sending(self)
        now = self._timeline.seconds
        travels = self._rng.uniform(0.0002, 0.004) if self._rng.random() < 0.97 else self._rng.uniform(0.01, 0.8)
        arrives = max(self._ready_at[way], now + travels)
        self._ready_at[way] = arrives
        self._timeline.after(arrives - now, self._deliver, way, message)
        if self._doubling and self._rng.random() < self._doubling:
            self._timeline.after(arrives - now + self._rng.expovariate(0.5), self._deliver, way, message)

    def drop(self, *, slowly: bool = False) -> None:
        """Break the stream; `slowly`: the sides notice only by their time-outs."""
        if self.broken:
            return
        self.broken = True
        for way in (UP, DOWN):
            self._cut[way] = self._timeline.seconds + self._rng.uniform(0, 0.006)
            notice = self._rng.uniform(5, 25) if slowly else self._rng.uniform(0.001, 0.1)
            self._timeline.after(notice, self._close, way)

    def abandon(self, side: int) -> None:
        """One side's process died: it receives nothing any more, the other notices soon."""
        self._closed[side] = True
        self.drop()

    def _deliver(self, way: int, message: Any) -> None:
        if not self._closed[way] and self._timeline.seconds <= self._cut[way]:
            self.receive[way](message)

    def _close(self, way: int) -> None:
        if not self._closed[way]:
            self._closed[way] = True
            self.ended[way]()

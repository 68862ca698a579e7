"""`PreemptParameters=cost_aware`: the victims whose going loses the fewest GPU-seconds.

Lost is what a run has done since it began. GPU-seconds count first and CPU-seconds after them, so that on a cluster
without GPUs CPU-seconds decide; who stands still and goes on later loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ctld.core import ranges
from ctld.core.model import Job
from ctld.core.times import suspended_until

_CPU_BITS = 64
_EXACT = 14
"""Up to so many candidates the best set is searched for exactly ..."""
_MOST_TRIES = 600
"""... with at most so many questions whether a set makes room."""


class Loser(Protocol):
    """A candidate, as far as it matters here."""

    @property
    def lost(self) -> int:
        """What its going loses."""


Some = TypeVar("Some", bound=Loser)


def lost_work(job: Job, mode: str, at: int) -> int:
    """Give what preempting a run loses, as one number: GPU-seconds, then CPU-seconds."""
    if mode == "SUSPEND" or job.alloc is None:
        return 0
    seconds = max(0, at - job.started_at - suspended_until(job, at))
    gpus = sum(ranges.count(share.gpus) for share in job.alloc.shares if share.gpus)
    cpus = sum(share.cpus for share in job.alloc.shares)
    return (gpus * seconds << _CPU_BITS) + cpus * seconds


def fewest_lost(
    candidates: Sequence[Some], first: list[Some], makes_room: Callable[[Iterable[Some]], Any]
) -> list[Some]:
    """Give the set of victims that loses least: exact for few candidates, never worse than `first` for many.

    Args:
        candidates: all who may go.
        first: a set that makes room.
        makes_room: tells whether a set does (gives None when it does not).
    """
    cheap = sorted(candidates, key=lambda one: one.lost)
    best = _spare_costly(first, makes_room)
    low, high = 0, len(cheap)
    while high - low > 1:
        middle = (low + high) // 2
        if makes_room(cheap[:middle]) is None:
            low = middle
        else:
            high = middle
    best = _better(best, _spare_costly(cheap[:high], makes_room))
    if len(candidates) <= _EXACT:
        best = _Search(cheap[::-1], best, makes_room).best
    return best


def _sum(some: Iterable[Loser]) -> int:
    return sum(one.lost for one in some)


def _better(one: list[Some], other: list[Some]) -> list[Some]:
    return min(one, other, key=lambda some: (_sum(some), len(some)))


def _spare_costly(some: Sequence[Some], makes_room: Callable[[Iterable[Some]], Any]) -> list[Some]:
    kept = list(some)
    for one in sorted(some, key=lambda loser: -loser.lost):
        without = [other for other in kept if other is not one]
        if without and makes_room(without) is not None:
            kept = without
    return kept


class _Search(Generic[Some]):
    """Goes through the candidates, the costliest first: each is spared if that is possible at all, else taken; both
    ways are followed as long as they can beat the best."""

    def __init__(self, costly: list[Some], best: list[Some], makes_room: Callable[[Iterable[Some]], Any]) -> None:
        self.best: list[Some] = best
        self._costly = costly
        self._makes_room = makes_room
        self._bound = (_sum(best), len(best))
        self._tries = 0
        self._go(0, [])

    def _go(self, place: int, taken: list[Some]) -> None:
        cost = (_sum(taken), len(taken))
        if cost >= self._bound or self._tries >= _MOST_TRIES:
            return
        if place == len(self._costly):
            self.best, self._bound = list(taken), cost
            return
        self._tries += 1
        rest = self._costly[place + 1 :]
        if (taken or rest) and self._makes_room([*taken, *rest]) is not None:
            self._go(place + 1, taken)
        self._go(place + 1, [*taken, self._costly[place]])

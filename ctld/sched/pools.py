"""Cluster-wide numbers over time: licences, and limits of associations, QOS and partitions, as exact step functions.

Everything of which there is so much for a whole group (not for a node) is a pool with a key of its own. A job has
claims; a running or planned job holds its claims from its start to its end, and a waiting one starts when all of its
claims have room at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ctld.sched.releases import FAR
from muster.states import Reason


@dataclass(frozen=True, slots=True)
class Claim:
    """What a job takes out of one pool for as long as it holds its nodes. A job has one claim a key."""

    key: tuple[object, ...]
    """Of the pool: `("license", "matlab")`, `("GrpTRES", association, "cpu")` ..."""
    capacity: int
    """How much the pool has in all."""
    amount: int
    """How much the job takes; one of 0 finds room always, also where the pool is overdrawn."""
    reason: Reason
    """What the job waits with when the pool has no room."""


class Pools:
    """What is taken out of each pool over time."""

    def __init__(self) -> None:
        self._uses: dict[tuple[object, ...], Use] = {}

    def take(self, claims: Sequence[Claim], start: int, end: int) -> None:
        """Hold claims over [start, end); an `end` of FAR (or later) is for ever. Nothing is refused."""
        uses = self._uses
        for claim in claims:
            if claim.amount:
                use = uses.get(claim.key)
                if use is None:
                    use = uses[claim.key] = Use()
                use.add(claim.amount, start, end)

    def give(self, claims: Sequence[Claim], start: int, end: int) -> None:
        """Undo what `take` did over [start, end), or a part of its time (a job that ended early)."""
        uses = self._uses
        for claim in claims:
            if claim.amount:
                use = uses.get(claim.key)
                if use is None:
                    use = uses[claim.key] = Use()
                use.add(-claim.amount, start, end)
                if use.empty:
                    del uses[claim.key]

    def used(self, key: tuple[object, ...], at: int) -> int:
        """Give how much of a pool is taken at a time."""
        use = self._uses.get(key)
        return use.at(at) if use is not None else 0

    def short(self, claims: Sequence[Claim], at: int) -> Claim | None:
        """Give the first of the claims that has no room at `at`, None when all have."""
        for claim in claims:
            if claim.amount and self.used(claim.key, at) + claim.amount > claim.capacity:
                return claim
        return None

    def earliest(self, claims: Sequence[Claim], duration: int, not_before: int) -> int | None:
        """Give the first time from `not_before` on from which all claims have room for so many seconds (FAR: for
        ever); None: never, since one asks for more than there is or what is in the way is held for ever."""
        start = not_before
        asked: list[tuple[Use, int]] = []
        for claim in claims:
            if claim.amount:
                if claim.amount > claim.capacity:
                    return None
                use = self._uses.get(claim.key)
                if use is not None:
                    asked.append((use, claim.capacity - claim.amount))
        agreed = 0
        while agreed < len(asked):
            for use, most in asked:
                found = use.earliest(most, duration, start)
                if found is None:
                    return None
                if found > start:
                    start, agreed = found, 1
                else:
                    agreed += 1
                    if agreed >= len(asked):
                        break
        return start

    def advance(self, now: int) -> None:
        """Forget what was before `now`: answers for earlier times are no longer exact."""
        for key in [key for key, use in self._uses.items() if use.advance(now)]:
            del self._uses[key]

    def copy(self) -> Pools:
        """Give a copy that can be changed."""
        other = Pools()
        other._uses = {key: use.copy() for key, use in self._uses.items()}
        return other


class Use:
    """What is taken out of one pool: a step function of time, 0 before its first step."""

    __slots__ = ("_levels", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._levels: list[int] = []
        """[k]: from _times[k] on; neighbours differ."""

    @property
    def empty(self) -> bool:
        """Nothing is taken at any time."""
        return not self._times

    def at(self, time: int) -> int:
        """Give how much is taken at a time."""
        place = bisect_right(self._times, time) - 1
        return self._levels[place] if place >= 0 else 0

    def add(self, amount: int, start: int, end: int) -> None:
        """Take so much more (less, when negative) over [start, end)."""
        if start >= end:
            return
        first = self._cut(start)
        last = self._cut(end) if end < FAR else len(self._times)
        levels = self._levels
        levels[first:last] = [level + amount for level in levels[first:last]]
        self._join(last)
        self._join(first)

    def earliest(self, most: int, duration: int, start: int) -> int | None:
        """Give the first time from `start` on from which no more than `most` is taken for so many seconds."""
        times, levels = self._times, self._levels
        count = len(times)
        place = max(bisect_right(times, start) - 1, 0)
        while True:
            end = start + duration
            while place < count and times[place] < end and levels[place] <= most:
                place += 1
            if place == count or times[place] >= end:
                return start
            while levels[place] > most:
                place += 1
                if place == count:
                    return None
            start = times[place]

    def advance(self, now: int) -> bool:
        """Drop the steps that end by `now`; True when nothing is left."""
        gone = bisect_right(self._times, now) - 1
        if gone > 0:
            del self._times[:gone], self._levels[:gone]
        if self._times and not self._levels[0]:
            del self._times[0], self._levels[0]
        return not self._times

    def copy(self) -> Use:
        """Give a copy that can be changed."""
        other = Use()
        other._times, other._levels = self._times.copy(), self._levels.copy()
        return other

    def _cut(self, time: int) -> int:
        """Make a step begin at a time; give its place."""
        place = bisect_right(self._times, time)
        if place and self._times[place - 1] == time:
            return place - 1
        self._times.insert(place, time)
        self._levels.insert(place, self._levels[place - 1] if place else 0)
        return place

    def _join(self, place: int) -> None:
        """Drop a step that is like the one before it."""
        levels = self._levels
        if place < len(levels) and levels[place] == (levels[place - 1] if place else 0):
            del self._times[place], levels[place]

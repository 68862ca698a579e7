"""Cluster-wide numbers over time: licences, and limits of associations, QOS and partitions, as exact step functions.

Everything of which there is so much for a whole group (not for a node) is a pool with a key of its own. A job has
claims; a running or planned job holds its claims from its start to its end, and a waiting one starts when all of its
claims have room at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ctld.sched.fleet import Ints
from ctld.sched.releases import FAR
from muster.states import Reason

_NEAR = 16
"""Steps that are looked at together for the end of a time that is too full."""
_FEW = 6
"""So many changes are put among the steps one by one; more of them all together."""
_BEHIND = 256
"""Changes that may wait to be put among the steps."""


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

    def fill(self, key: tuple[object, ...], start: int, ends: Sequence[int], amounts: Sequence[int]) -> None:
        """Hold much at once out of a pool of which nothing is taken yet: from `start` on, each amount until its end."""
        assert key not in self._uses, "nothing is taken yet"
        times, much = np.array(ends, np.int64), np.array(amounts, np.int64)
        order = np.argsort(times)
        order = order[(times[order] > start) & (much[order] != 0)]
        if len(order):
            times, firsts = np.unique(times[order], return_index=True)
            self._uses[key] = Use.falling(start, times, np.add.reduceat(much[order], firsts))

    def give(self, claims: Sequence[Claim], start: int, end: int) -> None:
        """Undo what `take` did over [start, end), or a part of its time (a job that ended early)."""
        uses = self._uses
        for claim in claims:
            if claim.amount:
                use = uses.get(claim.key)
                if use is None:
                    use = uses[claim.key] = Use()
                use.add(-claim.amount, start, end)

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
    """What is taken out of one pool: a step function of time, 0 before its first step.

    Changes wait until a question cannot be answered without them: most pools never are near what they have.
    """

    __slots__ = ("_count", "_levels", "_peak", "_times", "_waiting")

    def __init__(self) -> None:
        self._count = 0
        """Steps; the columns have room for more."""
        self._times: Ints = np.zeros(_NEAR, np.int64)
        """Ascending."""
        self._levels: Ints = np.zeros(_NEAR, np.int64)
        """[k]: what is taken from _times[k] on; neighbours differ."""
        self._waiting: list[tuple[int, int, int]] = []
        """Start, end and amount of changes that are not yet among the steps."""
        self._peak = 0
        """Not less than the highest level, with what waits."""

    @classmethod
    def falling(cls, start: int, ends: Ints, amounts: Ints) -> Use:
        """Give what is taken from `start` on and given back at these times, ascending and later than that."""
        made = cls()
        levels = np.concatenate((np.cumsum(amounts[::-1])[::-1], np.zeros(1, np.int64)))
        times = np.concatenate((np.array([start]), ends[ends < FAR]))
        made._count = len(times)
        made._times = np.concatenate((times, np.zeros(_NEAR, np.int64)))
        made._levels = np.zeros(len(made._times), np.int64)
        made._levels[: made._count] = levels[: made._count]
        made._peak = int(levels[0])
        return made

    def at(self, time: int) -> int:
        """Give how much is taken at a time."""
        self._settle()
        place = int(self._times[: self._count].searchsorted(time, "right")) - 1
        return int(self._levels[place]) if place >= 0 else 0

    def add(self, amount: int, start: int, end: int) -> None:
        """Take so much more (less, when negative) over [start, end)."""
        if start >= end:
            return
        self._waiting.append((start, end, amount))
        if amount > 0:
            self._peak += amount
        if len(self._waiting) == _BEHIND:
            self._settle()

    def earliest(self, most: int, duration: int, start: int) -> int | None:
        """Give the first time from `start` on from which no more than `most` is taken for so many seconds."""
        if self._peak <= most:
            return start
        self._settle()
        if self._peak <= most:
            return start
        count = self._count
        times, levels = self._times[:count], self._levels[:count]
        while True:
            first = max(int(times.searchsorted(start, "right")) - 1, 0)
            end = int(times.searchsorted(min(start + duration, FAR), "left"))
            over = (levels[first:end] > most).nonzero()[0]
            if not len(over):
                return start
            # A start up to the last step that is too high would have that step in its time.
            place = first + int(over[-1]) + 1
            while place < count:
                some = levels[place : place + _NEAR] <= most
                step = int(some.argmax())
                place += step
                if some[step]:
                    break
                place += len(some) - step
            if place >= count:
                return None
            start = int(times[place])

    def advance(self, now: int) -> bool:
        """Drop the steps that end by `now`; True when nothing is left."""
        self._settle()
        gone = int(self._times[: self._count].searchsorted(now, "right")) - 1
        if gone > 0:
            gone += not self._levels[gone]
            self._count -= gone
            self._times, self._levels = self._times[gone:].copy(), self._levels[gone:].copy()
        self._peak = int(self._levels[: self._count].max(initial=0))
        return not self._count

    def copy(self) -> Use:
        """Give a copy that can be changed."""
        other = Use()
        other._count, other._peak, other._waiting = self._count, self._peak, self._waiting.copy()
        other._times, other._levels = self._times.copy(), self._levels.copy()
        return other

    def _settle(self) -> None:
        """Put what waits among the steps."""
        waiting = self._waiting
        if not waiting:
            return
        if len(waiting) > _FEW:
            self._merge(np.array(waiting, np.int64))
        else:
            for start, end, amount in waiting:
                first = self._cut(start)
                last = self._cut(end) if end < FAR else self._count
                self._levels[first:last] += amount
                self._join(last)
                self._join(first)
        waiting.clear()
        self._peak = int(self._levels[: self._count].max(initial=0))

    def _merge(self, new: Ints) -> None:
        """Put changes (start, end, amount) among the steps."""
        before = self._levels[: self._count]
        times = np.concatenate((self._times[: self._count], new[:, 0], new[:, 1]))
        levels = np.concatenate((np.diff(before, prepend=0), new[:, 2], -new[:, 2]))
        order = times.argsort(kind="stable")
        times, levels = times[order], levels[order].cumsum()
        kept = times < FAR
        kept[:-1] &= times[1:] != times[:-1]  # The last sum of each time counts.
        times, levels = times[kept], levels[kept]
        kept = np.diff(levels, prepend=0) != 0
        self._times, self._levels = times[kept], levels[kept]
        self._count = len(self._times)

    def _cut(self, time: int) -> int:
        """Make a step begin at a time; give its place."""
        count = self._count
        if count == len(self._times):
            more = np.zeros(count + _NEAR, np.int64)
            self._times = np.concatenate((self._times, more))
            self._levels = np.concatenate((self._levels, more))
        times, levels = self._times, self._levels
        place = int(times[:count].searchsorted(time, "right"))
        if place and times[place - 1] == time:
            return place - 1
        if place < count:
            times[place + 1 : count + 1] = times[place:count].copy()
            levels[place + 1 : count + 1] = levels[place:count].copy()
        times[place] = time
        levels[place] = levels[place - 1] if place else 0
        self._count = count + 1
        return place

    def _join(self, place: int) -> None:
        """Drop a step that is like the one before it."""
        count, times, levels = self._count, self._times, self._levels
        if place < count and levels[place] == (levels[place - 1] if place else 0):
            times[place : count - 1] = times[place + 1 : count].copy()
            levels[place : count - 1] = levels[place + 1 : count].copy()
            self._count = count - 1

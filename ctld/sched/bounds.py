"""Lower bounds of the earliest start of each node, by request and duration, as `single` remembers them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from operator import le

import numpy as np

from ctld.sched.demand import Alternative, Demand
from ctld.sched.fleet import Fleet, Ints
from ctld.sched.needs import Amount
from ctld.sched.profiles import Profiles
from ctld.sched.steps import Short
from ctld.sched.wanted import Wanted, rows_of

_LIKE = 3
"""Wants that ask for less are asked for better bounds."""


class Wants(Wanted):
    """What a share takes on each node of a set, and since when each has room for it: one for all demands that ask for
    the same there."""

    __slots__ = ("amounts", "bounds", "keys", "keys_at", "keys_seen", "late", "modest", "rank", "shared", "spans")

    def __init__(self, fleet: Fleet, nodes: Ints, demand: Demand) -> None:
        super().__init__(fleet, nodes, rows_of(demand, demand.amounts))
        gpus = np.array([kind.gpus[0] for kind in fleet.kinds], np.int64)[fleet.kind_column[nodes]]
        rank: Ints = gpus + (fleet.weight_column[nodes] << 20)
        self.rank: Ints | None = None
        """By place: weight and GPUs in all, in this order; None where all are equal."""
        if len(rank) and rank.min() != rank.max():
            self.rank = rank
        self.amounts = [(one[0], one[1] if demand.need.memory_counts else 0, *one[2]) for one in demand.amounts]
        """By kind of hardware."""
        self.shared = demand.shared
        self.modest: list[tuple[Wants, Ints | None]] = []
        """Others that ask for no more on the same nodes or more, and the places of these nodes there (None: the same):
        this one cannot start before they do."""
        self.keys: Ints
        """By place: how tight the node is now, the largest where a share has no room now."""
        self.keys_at = -1
        """The time of that."""
        self.keys_seen = 0
        """Number of the first change of the profiles that they do not know."""
        self.spans: list[int] = []
        """Durations with bounds, ascending."""
        self.bounds: dict[int, Bounds] = {}
        """By duration."""
        self.late: dict[int, Bounds] = {}
        """The same for questions about later starts than now."""

    def clear(self) -> None:
        """Forget all bounds."""
        self.spans.clear()
        self.bounds.clear()
        self.late.clear()
        self.keys_at = -1

    def find_modest(self, others: Iterable[Wants]) -> None:
        """Look for the wants most like this one, of those that ask for no more."""
        mine = [amount for one in self.amounts for amount in one]
        found: list[tuple[float, Wants, Short]] = []
        for other in others:
            theirs = [amount for one in other.amounts for amount in one]
            if other.shared == self.shared and all(map(le, theirs, mine)) and len(other.nodes) >= len(self.nodes):
                places = other.place[self.nodes]
                if not len(places) or int(places.min()) >= 0:
                    near = sum(less / more for less, more in zip(theirs, mine, strict=True) if more)
                    found.append((near, other, places))
        found.sort(key=lambda one: -one[0])
        self.modest = [
            (other, places.astype(np.int64) if len(places) < len(other.nodes) else None)
            for _, other, places in found[:_LIKE]
        ]


class Bounds:
    """For each node of a set a lower bound of the earliest start of one request and duration."""

    __slots__ = ("answer", "gains", "known", "since", "starts")

    def __init__(self, starts: Short, known: Short, gains: int, since: int) -> None:
        self.starts = starts
        """Relative; not before `since`."""
        self.known = known
        """By place: the number of the node's last change when it was judged; where that is still its last one, the
        bound is the earliest start itself. -1: only a bound."""
        self.gains = gains
        """How many of `Profiles.gains` it knows."""
        self.since = since
        """Starts before this were not looked at."""
        self.answer = 0
        """No start before this is possible."""


class Book:
    """The bounds of all requests."""

    def __init__(self, profiles: Profiles) -> None:
        self.profiles = profiles
        self.kept = 0
        """Numbers that are remembered."""
        self._generation = profiles.generation
        self._by_demand: dict[Demand, Wants] = {}
        self._by_content: dict[tuple[int, tuple[bool, bool], tuple[Amount, ...]], Wants] = {}

    def forget(self) -> None:
        """Forget everything."""
        for one in self._by_content.values():
            one.clear()  # Others may know it.
        self._by_demand.clear()
        self._by_content.clear()
        self.kept = 0

    def wants(self, demand: Demand, alternative: Alternative) -> Wants:
        """Give what an even share takes on the nodes of an alternative."""
        found = self._by_demand.get(demand)
        if found is None:
            content = (alternative.bits, (demand.need.memory_counts, demand.shared), tuple(demand.amounts))
            found = self._by_content.get(content)
            if found is None:
                found = Wants(demand.fleet, alternative.indexes, demand)
                found.find_modest(self._by_content.values())
                self._by_content[content] = found
            self._by_demand[demand] = found
        return found

    def bounds(self, wants: Wants, span: int, since: int) -> Bounds:
        """Give the bounds of a set and duration, brought up to what came free."""
        profiles = self.profiles
        if self._generation != profiles.generation:
            self._generation = profiles.generation
            for one in self._by_content.values():
                one.clear()
            self.kept = 0
        base = wants.bounds.get(span)
        if base is None:
            base = self._new(wants, span)
        if since <= profiles.relative(profiles.now):
            self._follow(wants, base, span, since)
            self._raise(base, wants, bisect_left(wants.spans, span))
            for other, places in wants.modest:
                self._raise(base, other, bisect_right(other.spans, span), places)
            return base
        late = wants.late.get(span)
        if late is None or late.since > since:
            self._follow(wants, base, span, base.since)
            late = wants.late[span] = Bounds(base.starts.copy(), base.known.copy(), base.gains, base.since)
        self._follow(wants, late, span, since)
        if late.gains == base.gains:
            np.maximum(late.starts, base.starts, out=late.starts)
        return late

    def _raise(self, bounds: Bounds, wants: Wants, at: int, places: Ints | None = None) -> None:
        """Raise bounds to those of a shorter or more modest job, that of a duration `at` in the list of its wants."""
        if at:
            near = wants.bounds[wants.spans[at - 1]]
            if near.gains == bounds.gains:
                starts = near.starts if places is None else near.starts[places]
                np.maximum(bounds.starts, starts, out=bounds.starts)

    def _new(self, wants: Wants, span: int) -> Bounds:
        """Give bounds for one more duration."""
        size = len(wants.nodes)
        self.kept += 2 * size  # Those for later starts come along.
        at = bisect_left(wants.spans, span)
        if at:
            shorter = wants.spans[at - 1]
            near = wants.bounds[shorter]
            self._follow(wants, near, shorter, near.since)
            made = Bounds(near.starts.copy(), np.full(size, -1, np.int32), near.gains, near.since)
        else:
            made = Bounds(np.zeros(size, np.int32), np.full(size, -1, np.int32), len(self.profiles.gains), 0)
        insort(wants.spans, span)
        wants.bounds[span] = made
        return made

    def _follow(self, wants: Wants, bounds: Bounds, span: int, since: int) -> None:
        """Lower the bounds of nodes where something came free, and raise those before `since`."""
        gains = self.profiles.gains
        if bounds.gains < len(gains):
            for node, begin in gains[bounds.gains :]:
                place = int(wants.place[node])
                if place >= 0:
                    lower = max(begin - span + 1, 0)
                    if lower < bounds.starts[place]:
                        bounds.starts[place] = lower
                        bounds.known[place] = -1
                        bounds.since = min(bounds.since, lower)
                        bounds.answer = 0
            bounds.gains = len(gains)
        if bounds.since != since:
            early = bounds.starts < since
            bounds.starts[early] = since
            bounds.known[early] = -1
            bounds.since = since

"""The earliest start of a job on one node, and the node.

For each node set, request and duration a lower bound of every node's earliest start is remembered. While nothing comes
free a bound stays one, so only nodes that could be the answer are judged anew, and of these only those that changed
since. A longer job starts from the bounds of the next shorter one that asks for the same.

Of the nodes that have the earliest start: the lowest weight, then the fewest free GPUs and CPUs at that start, then the
lowest index. For starts later than now only the first `AMONG` of them are compared: those of the lowest weight, the
fewest GPUs in all, the lowest index. What is remembered never changes the answer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ctld.sched.demand import Alternative, Demand
from ctld.sched.fleet import Fleet, Ints
from ctld.sched.needs import Amount
from ctld.sched.profiles import HORIZON, Profiles
from ctld.sched.steps import PAD, Short
from ctld.sched.wanted import Wanted, rows_of

NEVER = HORIZON + 1
"""Relative start where none is possible."""
AMONG = 64
"""Nodes with the same later start that are compared at most."""
_LAST = (1 << 62) - 1
"""Tightness of nodes that are out."""
_ONE_BY_ONE = 3
"""So many nodes are judged one by one, in plain Python, before batches are."""
_BATCH = 48
"""Nodes of the first batch; each later one is twice as large."""
_MANY = 16
"""From so many nodes with the same bound on, only they are judged."""
_BLOCK = 4096
"""Nodes that are judged together at most, to stay within the processor's caches."""


class Wants(Wanted):
    """What a share takes on each node of a set, and since when each has room for it: one for all demands that ask for
    the same there."""

    __slots__ = ("bounds", "late", "rank", "spans")

    def __init__(self, fleet: Fleet, nodes: Ints, demand: Demand) -> None:
        super().__init__(fleet, nodes, rows_of(demand, demand.amounts))
        gpus = np.array([kind.gpus[0] for kind in fleet.kinds], np.int64)[fleet.kind_column[nodes]]
        rank: Ints = gpus + (fleet.weight_column[nodes] << 20)
        self.rank: Ints | None = None
        """By place: weight and GPUs in all, in this order; None where all are equal."""
        if len(rank) and rank.min() != rank.max():
            self.rank = rank
        self.spans: list[int] = []
        """Durations with bounds, ascending."""
        self.bounds: dict[int, Bounds] = {}
        """By duration."""
        self.late: dict[int, Bounds] = {}
        """The same for questions about later starts than now."""


class Bounds:
    """For each node of a set a lower bound of the earliest start of one request and duration."""

    __slots__ = ("gains", "known", "since", "starts")

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


class Single:
    """Answers questions about demands that are `single`."""

    def __init__(self, profiles: Profiles, *, cached: bool) -> None:
        self.profiles = profiles
        self.cached = cached
        self.kept = 0
        """Numbers that are remembered."""
        self._generation = profiles.generation
        self._weight: Ints | None = None
        fleet = profiles.fleet
        if not fleet.one_weight:
            ranks = {weight: rank for rank, weight in enumerate(sorted(set(fleet.weight)))}
            self._weight = np.array([ranks[one] for one in fleet.weight], np.int64) << 48
        self._by_demand: dict[Demand, Wants] = {}
        self._by_content: dict[tuple[int, tuple[bool, bool], tuple[Amount, ...]], Wants] = {}

    def forget(self) -> None:
        """Forget everything."""
        self._by_demand.clear()
        self._by_content.clear()
        self.kept = 0

    def earliest(
        self, demand: Demand, span: int, since: int, barred: Mapping[int, int], last: int
    ) -> tuple[int, int] | None:
        """Give the first start (relative, from `since` to `last`) of an even share on one node, and the node."""
        wants = self._wants(demand, demand.alternatives[0])
        if not len(wants.nodes):
            return None
        held = [(place, until) for node, until in barred.items() if (place := int(wants.place[node])) >= 0]
        if not self.cached:
            starts = self._starts(wants, None, span, self._begins(wants, held, since))
            first = int(starts.min())
            if first > last:
                return None
            places = np.flatnonzero(starts == first)
            if first > self.profiles.relative(self.profiles.now):
                places = self._first(wants, places, AMONG)
            return first, self._tightest(wants, places, first)
        bounds = self._bounds(wants, span, since)
        if not held:
            return self._find(wants, bounds, span, since, last)
        # Their bounds hold for others too: these nodes are looked at on their own.
        mine = Bounds(bounds.starts.copy(), bounds.known.copy(), bounds.gains, since)
        places = np.array([place for place, _ in held])
        mine.starts[places] = self._starts(wants, places, span, self._begins(wants, held, since)[places])
        mine.known[places] = self.profiles.changed[wants.nodes[places]]
        found = self._find(wants, mine, span, since, last)
        others = np.ones(len(wants.nodes), np.bool_)
        others[places] = False
        np.copyto(bounds.starts, mine.starts, where=others)
        np.copyto(bounds.known, mine.known, where=others)
        return found

    def _begins(self, wants: Wants, held: list[tuple[int, int]], since: int) -> Short:
        """Give for each place the first start to consider."""
        begins = np.full(len(wants.nodes), since, np.int32)
        for place, until in held:
            begins[place] = max(since, self.profiles.relative(until))
        return begins

    def _find(self, wants: Wants, bounds: Bounds, span: int, since: int, last: int) -> tuple[int, int] | None:
        """Judge nodes from the least bound on until the first of them is known to be exact."""
        profiles = self.profiles
        nodes, starts, known, changed = wants.nodes, bounds.starts, bounds.known, profiles.changed
        now = profiles.relative(profiles.now)
        judged, size, width = 0, _BATCH, AMONG
        while True:
            first = int(starts.min())
            if first > last:
                return None
            places = (starts == first).nonzero()[0]
            if first == now:
                found = self._now(wants, bounds, places, span)
                if found >= 0:
                    return first, found
                continue
            if len(places) == 1:
                place = int(places[0])
                node = int(nodes[place])
                number = int(changed[node])
                if known[place] == number:
                    return first, node
                if judged < _ONE_BY_ONE:
                    judged += 1
                    known[place] = number
                    starts[place] = self._start(wants, node, span, since)
                    continue
            head = self._first(wants, places, width)
            wrong = known[head] != changed[nodes[head]]
            if not wrong[:AMONG].any():
                return first, self._tightest(wants, head[:AMONG], first)
            if len(places) > _MANY:
                these = head[wrong]
                width *= 2
            else:
                stale = known != changed[nodes]
                best = int(np.where(stale, np.int32(NEVER), starts).min())
                these = (stale & (starts <= best)).nonzero()[0]
                if len(these) > size:
                    these = these[starts[these].argpartition(size)[:size]]
                size *= 2
            starts[these] = self._starts(wants, these, span, since)
            known[these] = changed[nodes[these]]

    def _first(self, wants: Wants, places: Ints, count: int) -> Ints:
        """Give the first so many of some places (ascending) in the order in which they are compared."""
        if wants.rank is None or len(places) == 1:
            return places[:count]
        return places[wants.rank[places].argsort(kind="stable")[:count]]

    def _now(self, wants: Wants, bounds: Bounds, places: Ints, span: int) -> int:
        """Give the tightest node of those whose bound is now that is free now for so long; -1: none is, and their
        bounds are better now."""
        profiles = self.profiles
        nodes, starts, known, changed = wants.nodes, bounds.starts, bounds.known, profiles.changed
        since = profiles.relative(profiles.now)
        mine = nodes[places]
        free = profiles.free_now
        fits: npt.NDArray[np.bool_] | None = None
        for row, amounts in wants.columns:
            good = free[row - 1, mine] >= amounts[places]
            fits = good if fits is None else fits & good
        if fits is not None and not fits.all():
            bare = places[~fits]
            starts[bare] = since + 1
            known[bare] = -1
            places = places[fits]
            if not len(places):
                return -1
            mine = nodes[places]
        tightness = self._tightness(free[:, mine], mine)
        size = _BATCH
        for _ in range(_ONE_BY_ONE):
            at = int(tightness.argmin())
            if tightness[at] == _LAST:
                return -1
            place, node = int(places[at]), int(mine[at])
            number = int(changed[node])
            if known[place] == number:
                return node
            start = self._start(wants, node, span, since)
            known[place] = number
            if start == since:
                return node
            starts[place] = start
            tightness[at] = _LAST
        while True:  # The next tightest ones together, of equal ones the lowest first.
            some = np.arange(len(places))
            if len(some) > size:
                bound = np.partition(tightness, size)[size]
                some = (tightness < bound).nonzero()[0]
                if not len(some):
                    some = (tightness == bound).nonzero()[0][:size]
            some = some[tightness[some] < _LAST]
            if not len(some):
                return -1
            these = places[some]
            wrong = these[known[these] != changed[nodes[these]]]
            starts[wrong] = self._starts(wants, wrong, span, since)
            known[wrong] = changed[nodes[wrong]]
            left = some[starts[these] == since]
            if len(left):
                return int(mine[left[tightness[left].argmin()]])
            tightness[some] = _LAST
            size *= 2

    def _tightest(self, wants: Wants, places: Ints, at: int) -> int:
        """Give the tightest node of some places at a relative time, of equal ones the lowest."""
        nodes = wants.nodes[places]
        if len(nodes) == 1:
            return int(nodes[0])
        tightness = self._tightness(self.profiles.free_at(nodes, at), nodes)
        return int(nodes[tightness == tightness.min()].min())

    def _tightness(self, free: Short, nodes: Ints) -> Ints:
        """Give a number for each node, the least for the one to take."""
        tightness: Ints = (free[2].astype(np.int64) << 32) + free[0]
        if self._weight is not None:
            tightness += self._weight[nodes]
        return tightness

    def _start(self, wants: Wants, node: int, span: int, since: int) -> int:
        """Give the earliest start on one node."""
        profiles = self.profiles
        length = int(profiles.lengths[node])
        rows = profiles.data[node, :, :length].tolist()
        times = rows[0]
        wanted = wants.by_kind[profiles.fleet.kind[node]]
        start = since
        if len(wanted) == 2:
            (one, least), (two, second) = wanted
            bad = [low < least or high < second for low, high in zip(rows[one], rows[two], strict=True)]
        else:
            row, least = wanted[0]
            bad = [amount < least for amount in rows[row]]
            for row, least in wanted[1:]:
                bad = [worse or amount < least for worse, amount in zip(bad, rows[row], strict=True)]
        end = since + span
        for place in [at for at, worse in enumerate(bad) if worse]:
            if times[place] >= end:
                break
            if place + 1 == length:
                return NEVER
            following = times[place + 1]
            if following > start:
                start = following
                end = start + span
        return start

    def _starts(self, wants: Wants, places: Ints | None, span: int, since: int | Short) -> Short:
        """Give the earliest start of some places of a set (None: all)."""
        count = len(wants.nodes) if places is None else len(places)
        if count > _BLOCK:
            every = np.arange(count) if places is None else places
            cuts = [slice(low, low + _BLOCK) for low in range(0, count, _BLOCK)]
            sinces = [since if isinstance(since, int) else since[cut] for cut in cuts]
            parts = [self._starts(wants, every[cut], span, one) for cut, one in zip(cuts, sinces, strict=True)]
            return np.concatenate(parts)
        profiles = self.profiles
        nodes = wants.nodes if places is None else wants.nodes[places]
        longest = int(profiles.lengths[nodes].max(initial=1))
        times, bad = self._bad(wants, places, nodes, longest)
        ends = np.where(bad, times, np.int32(PAD))
        ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
        begins = np.maximum(times, since if isinstance(since, int) else since[:, None])
        ends -= begins
        starts: Short = np.where(ends >= span, begins, np.int32(NEVER)).min(1)
        return starts

    def _bad(self, wants: Wants, places: Ints | None, nodes: Ints, longest: int) -> tuple[Short, npt.NDArray[np.bool_]]:
        """Give the times of some nodes' steps, and whether the share has no room then."""
        block = self.profiles.data[nodes, :, :longest]
        bad: npt.NDArray[np.bool_] | None = None
        for row, amounts in wants.columns:
            short = block[:, row] < (amounts if places is None else amounts[places])[:, None]
            bad = short if bad is None else np.logical_or(bad, short, out=bad)
        assert bad is not None  # CPUs always count.
        return block[:, 0], bad

    def _bounds(self, wants: Wants, span: int, since: int) -> Bounds:
        """Give the bounds of a set and duration, brought up to what came free."""
        profiles = self.profiles
        if self._generation != profiles.generation:
            self._generation = profiles.generation
            for one in self._by_content.values():
                one.spans.clear()
                one.bounds.clear()
                one.late.clear()
            self.kept = 0
        base = wants.bounds.get(span)
        if base is None:
            base = self._new(wants, span)
        if since <= profiles.relative(profiles.now):
            self._follow(wants, base, span, since)
            return base
        late = wants.late.get(span)
        if late is None or late.since > since:
            self._follow(wants, base, span, base.since)
            late = wants.late[span] = Bounds(base.starts.copy(), base.known.copy(), base.gains, base.since)
        self._follow(wants, late, span, since)
        return late

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
            bounds.gains = len(gains)
        if bounds.since != since:
            early = bounds.starts < since
            bounds.starts[early] = since
            bounds.known[early] = -1
            bounds.since = since

    def _wants(self, demand: Demand, alternative: Alternative) -> Wants:
        """Give what an even share takes on the nodes of an alternative."""
        found = self._by_demand.get(demand)
        if found is None:
            content = (alternative.bits, (demand.need.memory_counts, demand.shared), tuple(demand.amounts))
            found = self._by_content.get(content)
            if found is None:
                found = self._by_content[content] = Wants(demand.fleet, alternative.indexes, demand)
            self._by_demand[demand] = found
        return found

"""The earliest start of a job on one node, and the node.

For each node set, request and duration a lower bound of every node's earliest start is remembered. While nothing comes
free a bound stays one, so only nodes that could be the answer are judged anew, and of these only those that changed
since. A longer job starts from the bounds of the next shorter one that asks for the same.

Of the nodes that have the earliest start: the lowest weight, then the fewest free GPUs and CPUs at that start, then the
lowest index. For starts later than now only the first `AMONG` of them are compared: those of the lowest weight, the
fewest GPUs in all, the lowest index. What is remembered never changes the answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ctld.sched.bounds import Book, Bounds, Wants
from ctld.sched.demand import Demand
from ctld.sched.fleet import Ints
from ctld.sched.profiles import HORIZON, Profiles
from ctld.sched.steps import Short

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
_NONE: Ints = np.zeros(0, np.int64)
_BLOCK = 4096
"""Nodes that are judged together at most, to stay within the processor's caches."""


class Single:
    """Answers questions about demands that are `single`."""

    def __init__(self, profiles: Profiles, *, cached: bool) -> None:
        self.profiles = profiles
        self.cached = cached
        self._book = Book(profiles)
        self._weight: Ints | None = None
        fleet = profiles.fleet
        if not fleet.one_weight:
            ranks = {weight: rank for rank, weight in enumerate(sorted(set(fleet.weight)))}
            self._weight = np.array([ranks[one] for one in fleet.weight], np.int64) << 48

    @property
    def kept(self) -> int:
        """Numbers that are remembered."""
        return self._book.kept

    def forget(self) -> None:
        """Forget everything."""
        self._book.forget()

    def earliest(
        self, demand: Demand, span: int, since: int, barred: Mapping[int, int], last: int
    ) -> tuple[int, int] | None:
        """Give the first start (relative, from `since` to `last`) of an even share on one node, and the node."""
        wants = self._book.wants(demand, demand.alternatives[0])
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
        bounds = self._book.bounds(wants, span, since)
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
        judged, size, width, tried = 0, _BATCH, AMONG, False
        while True:
            place = int(starts.argmin())
            first = int(starts[place])
            if first > last:
                return None
            if first == now:
                found = self._now(wants, bounds, span)
                if found >= 0:
                    bounds.answer = first
                    return first, found
                continue
            node = int(nodes[place])
            number = int(changed[node])
            if known[place] != number and judged < _ONE_BY_ONE:
                judged += 1
                known[place] = number
                starts[place] = self._start(wants, node, span, since)
                continue
            places = (starts == first).nonzero()[0]
            if len(places) == 1 and known[place] == number:
                bounds.answer = first
                return first, node
            head = self._first(wants, places, width)
            wrong = known[head] != changed[nodes[head]]
            if not wrong[:AMONG].any():
                bounds.answer = first
                return first, self._tightest(wants, head[:AMONG], first)
            if len(places) > _MANY:
                these = head[wrong]
                width *= 2
            else:
                stale = known != changed[nodes]
                # Nothing is possible before the last answer: what might be is judged in any case.
                again = not tried and first <= bounds.answer
                these = (stale & (starts <= bounds.answer)).nonzero()[0] if again else _NONE
                tried = True
                if not len(these):
                    best = int(np.where(stale, np.int32(NEVER), starts).min())
                    these = (stale & (starts <= best)).nonzero()[0]
                    if len(these) > size:
                        these = these[starts[these].argpartition(size)[:size]]
                    size *= 2
            starts[these] = self._starts(wants, these, span, since)
            known[these] = changed[nodes[these]]

    def _first(self, wants: Wants, places: Ints, count: int) -> Ints:
        """Give the first so many of some places (ascending) in the order in which they are compared."""
        if wants.rank is None or len(places) <= AMONG:
            return places[:count]  # So few are all compared, in any order.
        return places[wants.rank[places].argsort(kind="stable")[:count]]

    def _now(self, wants: Wants, bounds: Bounds, span: int) -> int:
        """Give the tightest node of those whose bound is now that is free now for so long; -1: none is, and their
        bounds are better now."""
        profiles = self.profiles
        nodes, starts, known, changed = wants.nodes, bounds.starts, bounds.known, profiles.changed
        since = profiles.relative(profiles.now)
        among = starts == since
        tightness = np.where(among, self._keys(wants), _LAST)
        size = _BATCH
        for _ in range(_ONE_BY_ONE):
            place = int(tightness.argmin())
            if tightness[place] == _LAST:
                break
            node = int(nodes[place])
            number = int(changed[node])
            if known[place] != number:
                starts[place] = self._start(wants, node, span, since)
                known[place] = number
            if starts[place] == since:
                return node
            tightness[place] = _LAST
        while True:  # The next tightest ones together, of equal ones the lowest first.
            some = (tightness < _LAST).nonzero()[0]
            if len(some) > size:
                mine = tightness[some]
                bound = np.partition(mine, size)[size]
                better = mine < bound
                some = some[better] if better.any() else some[mine == bound][:size]
            if not len(some):
                break
            wrong = some[known[some] != changed[nodes[some]]]
            starts[wrong] = self._starts(wants, wrong, span, since)
            known[wrong] = changed[nodes[wrong]]
            left = some[starts[some] == since]
            if len(left):
                return int(nodes[left[tightness[left].argmin()]])
            tightness[some] = _LAST
            size *= 2
        # What is left has no room even now.
        bare = (among & (starts == since)).nonzero()[0]
        if len(bare):
            starts[bare] = profiles.next_steps(nodes[bare], since)
            known[bare] = -1
        return -1

    def _keys(self, wants: Wants) -> Ints:
        """Give the tightness of each place now, `_LAST` where a share has no room now."""
        profiles = self.profiles
        if wants.keys_at != profiles.now or wants.keys_seen < profiles.log_from:
            wants.keys_at = profiles.now
            wants.keys = np.full(len(wants.nodes), _LAST)
            places = np.arange(len(wants.nodes), dtype=np.int32)
        else:
            changes = profiles.log[wants.keys_seen - profiles.log_from : profiles.log_to - profiles.log_from]
            places = wants.place[changes[changes[:, 1] <= profiles.relative(profiles.now), 0]]
            places = places[places >= 0]
        wants.keys_seen = profiles.log_to
        if len(places):
            nodes = wants.nodes[places]
            free = profiles.free_now[:, nodes]
            keys = self._tightness(free, nodes)
            for row, amounts in wants.columns:
                keys[free[row - 1] < amounts[places]] = _LAST
            wants.keys[places] = keys
        return wants.keys

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
        which, begins, ends = wants.runs(self.profiles, places)
        np.maximum(begins, since if isinstance(since, int) else since[which], out=begins)
        enough = (ends - begins >= span).nonzero()[0]
        which = which[enough]
        first = np.ones(len(which), np.bool_)
        first[1:] = which[1:] != which[:-1]
        starts: Short = np.full(count, NEVER, np.int32)
        starts[which[first]] = begins[enough[first]]
        return starts

"""The earliest start of a job in the profiles of what is free over time, and where.

The answer depends on what is free from `not_before` on and on the demand alone. What is remembered between questions
(lower bounds of each node's earliest start, by node set, request and duration) only makes it cheaper: while nothing
comes free bounds stay valid, and a change of a node puts back only the bounds whose interval it touches.

* One node: the earliest start; among the nodes that have it the lowest weight, then the fewest free GPUs and CPUs at
  that start, then the lowest index; or what `Manner` says instead, of what is free all over the interval.
* Several nodes: the earliest start at which `select.choose` finds a place in what is free all over the interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ctld.core.model import UNLIMITED
from ctld.sched.demand import Alternative, Demand
from ctld.sched.fleet import Fleet, Ints, View, bitmap
from ctld.sched.needs import Amount, amount, share_vector
from ctld.sched.profiles import HORIZON, PAD, SHUT, Profiles, Short
from ctld.sched.releases import FAR, Row
from ctld.sched.select import Pick, choose
from ctld.sched.sweep import UNBOUND, Several

NEVER = HORIZON + 1
"""Relative start where none is possible."""
LONGEST = HORIZON - 1
"""Relative duration of jobs without limit."""


MOST_KEPT = 1 << 25
"""Numbers that are remembered in all; at the bound everything is forgotten, and worked out anew as it is needed."""


@dataclass(frozen=True, slots=True)
class Found:
    """A start, and where."""

    start: int
    """FAR: only after jobs without limit have ended."""
    picks: list[Pick]
    view: View | None
    """The least that is free over the interval on the nodes that could serve, where the choice looked at it."""


class Wants:
    """What a share takes on each node of a set: one for all demands that ask for the same there."""

    __slots__ = ("bounds", "cpus", "gpus", "late", "memory", "nodes", "place")

    def __init__(self, fleet: Fleet, nodes: Ints, demand: Demand) -> None:
        amounts = demand.amounts
        kinds = fleet.kind_column[nodes]
        self.nodes = nodes
        self.place = np.full(fleet.size, -1, np.int64)
        """Node -> its place in `nodes`, -1 when it is not there."""
        self.place[nodes] = np.arange(len(nodes))
        cpus = [one[0] if not demand.shared else UNBOUND for one in amounts]
        self.cpus: Short = np.array(cpus, np.int32)[kinds]
        memory = [one[1] if demand.need.memory_counts else 0 for one in amounts]
        self.memory: Short = np.array(memory, np.int32)[kinds]
        self.gpus: list[tuple[int, Short]] = [
            (at, np.array([one[2][at] for one in amounts], np.int32)[kinds])
            for at in range(len(amounts[0][2]))
            if any(one[2][at] for one in amounts)
        ]
        """(column of the view, how many); only columns that matter."""
        self.bounds: dict[int, Bounds] = {}
        """By duration."""
        self.late: dict[int, Bounds] = {}
        """The same for questions about later starts than now."""


class Bounds:
    """For each node of a set a lower bound of the earliest start of one request and duration."""

    __slots__ = ("keys", "seen", "since")

    def __init__(self, keys: Ints, seen: int, since: int) -> None:
        self.keys = keys
        """Composed of start, weight, GPUs, CPUs (see `Search`) and 1 when it is exact; of the start alone when it is
        only a bound."""
        self.seen = seen
        """Number of the first change that it does not know."""
        self.since = since
        """Starts before this were not looked at."""


class Search:
    """Answers questions about one set of profiles, again and again while they change."""

    def __init__(self, profiles: Profiles, *, cached: bool = True) -> None:
        """`cached=False` remembers nothing, for comparisons: the answers are the same."""
        self.profiles = profiles
        self.cached = cached
        fleet = profiles.fleet
        ranks = {weight: rank for rank, weight in enumerate(sorted(set(fleet.weight)))}
        cpus = max((kind.cpus for kind in fleet.kinds), default=0).bit_length()
        gpus = max((kind.gpus[0] for kind in fleet.kinds), default=0).bit_length()
        weights = max(len(ranks) - 1, 0).bit_length()
        self._coarse = max(0, cpus + gpus + weights - 30)
        """Low bits of the CPUs that have no place in a key."""
        cpus -= self._coarse
        self._gpu_shift = 1 + cpus
        self._start_shift = 1 + cpus + gpus + weights
        self._cpus_most, self._gpus_most = (1 << cpus) - 1, (1 << gpus) - 1
        self._weight: Ints = np.array([ranks[one] for one in fleet.weight], np.int64) << (1 + cpus + gpus)
        self._several = Several(profiles, cached=cached)
        self._kept = 0
        self._by_demand: dict[tuple[Demand, int, bool], Wants] = {}
        self._by_content: dict[tuple[int, tuple[bool, bool], tuple[Amount, ...]], Wants] = {}

    def earliest(
        self,
        demand: Demand,
        duration: int,
        not_before: int,
        *,
        barred_until: Mapping[int, int] | None = None,
        window_end: int | None = None,
    ) -> Found | None:
        """Give the earliest start of a job that holds its nodes for `duration` seconds, and the nodes.

        Args:
            demand: what it needs.
            duration: seconds; UNLIMITED or FAR for a job without limit.
            not_before: earliest start to consider; an earlier time than the profiles' now counts as now.
            barred_until: nodes that belong to another user, with the end of that.
            window_end: last start to consider.

        None: no start is possible, or none up to the window's end.
        """
        if self._kept + self._several.kept > MOST_KEPT:
            self._by_demand.clear()
            self._by_content.clear()
            self._several = Several(self.profiles, cached=self.cached)
            self._kept = 0
        span = LONGEST if duration == UNLIMITED else max(1, min(duration, LONGEST))
        since = self.profiles.relative(not_before)
        last = HORIZON
        if window_end is not None:
            last = self.profiles.relative(window_end)
            if window_end < self.profiles.absolute(since):
                return None
        barred = barred_until or {}
        if not demand.single:
            return self._found(self._several.earliest(demand, span, since, barred, last))
        found = self._one(demand, span, since, barred, last)
        if found is not None:
            if found[0] <= since or not demand.need.uneven:
                return self._found_one(demand, span, found, barred)
            last = found[0] - 1
        elif not demand.need.uneven:
            return None
        several = self._several.earliest(demand, span, since, barred, last)
        if several is not None or found is None:
            return self._found(several)
        return self._found_one(demand, span, found, barred)

    def _found(self, found: tuple[int, list[Pick], View] | None) -> Found | None:
        return None if found is None else Found(self.profiles.absolute(found[0]), found[1], found[2])

    def _found_one(self, demand: Demand, span: int, found: tuple[int, int], barred: Mapping[int, int]) -> Found:
        start, node = found
        begin = self.profiles.absolute(start)
        if demand.manner.tightest:
            return Found(begin, [(node, demand.tasks, demand.need.gpus_total[0])], None)
        view = self.profiles.window(begin, min(begin + span, FAR))
        picks = choose(demand, view, bitmap(node for node, until in barred.items() if until > begin))
        assert picks is not None  # One node at least has room.
        return Found(begin, picks, view)

    # One node.

    def _one(
        self, demand: Demand, span: int, since: int, barred: Mapping[int, int], last: int
    ) -> tuple[int, int] | None:
        """Give the (relative) start and the node of an even share on one node."""
        wants = self._wants(demand, 0, demand.alternatives[0])
        if not len(wants.nodes):
            return None
        shift = self._start_shift
        held = [(place, until) for node, until in barred.items() if (place := int(wants.place[node])) >= 0]
        if not self.cached:
            begin: int | Ints = since
            if held:
                begin = np.full(len(wants.nodes), since, np.int64)
                for place, until in held:
                    begin[place] = max(since, self.profiles.relative(until))
            keys = self._keys(wants, None, span, begin)
            place = int(keys.argmin())
            start = int(keys[place]) >> shift
            return (start, int(wants.nodes[place])) if start <= last else None
        bounds = self._bounds(wants, span, since)
        keys = bounds.keys
        if held:  # Their bounds hold for others too, but these nodes are looked at on their own.
            keys = keys.copy()
            places = np.array([place for place, _ in held])
            begins = np.array([max(since, self.profiles.relative(until)) for _, until in held])
            keys[places] = self._keys(wants, places, span, begins)
        best, size = NEVER << shift, 1
        while True:
            place = int(keys.argmin())
            key = int(keys[place])
            start = key >> shift
            if start > last:
                return None
            if key & 1 and start >= since:
                return start, int(wants.nodes[place])
            if size == 1:
                batch = np.array([place])
            else:
                batch = np.flatnonzero(keys < best)
                known = keys[batch]
                batch = batch[(known & 1 == 0) | (known >> shift < since)]
                if len(batch) > size:
                    batch = batch[np.argpartition(keys[batch], size)[:size]]
            fresh = self._keys(wants, batch, span, since)
            keys[batch] = fresh
            if keys is not bounds.keys:
                bounds.keys[batch] = fresh
            best = min(best, int(fresh.min()))
            size = max(64, 4 * size)

    def _keys(self, wants: Wants, places: Ints | None, span: int, since: int | Ints) -> Ints:
        """Work out the keys of some places of a set (None: all)."""
        times, bad, block = self._steps(wants, places)
        nodes = wants.nodes if places is None else wants.nodes[places]
        begin = np.maximum(times, since if isinstance(since, int) else since[:, None])
        good = _ends(times, bad) - begin >= span
        at = np.arange(len(nodes))
        start = begin[at, good.argmax(1)].astype(np.int64)
        then = (times <= start[:, None]).sum(1) - 1
        cpus = np.clip(block[at, 1, then] >> self._coarse, 0, self._cpus_most).astype(np.int64)
        gpus = np.clip(block[at, 3, then], 0, self._gpus_most).astype(np.int64)
        start[~good.any(1)] = NEVER
        keys: Ints = (start << self._start_shift) + self._weight[nodes]
        keys += (gpus << self._gpu_shift) + (cpus << 1) + 1
        return keys

    def _bounds(self, wants: Wants, span: int, since: int) -> Bounds:
        """Give the bounds of a set and duration, brought up to the profiles."""
        base = wants.bounds.get(span)
        if base is None:
            self._kept += 2 * len(wants.nodes)  # Those for later starts come along.
            shorter = max((known for known in wants.bounds if known < span), default=0)
            if shorter:
                known = wants.bounds[shorter]
                base = Bounds(known.keys >> self._start_shift << self._start_shift, known.seen, known.since)
            else:
                base = Bounds(np.zeros(len(wants.nodes), np.int64), self.profiles.log_to, 0)
            wants.bounds[span] = base
        if since < base.since:
            base.keys[:] = 0
            base.seen = self.profiles.log_to
        self._follow(wants, base, span)
        if since <= self.profiles.now - self.profiles.origin:
            base.since = since
            return base
        late = wants.late.get(span)
        if late is None or late.since > since:
            late = wants.late[span] = Bounds(base.keys.copy(), base.seen, since)
        self._follow(wants, late, span)
        late.since = since
        return late

    def _follow(self, wants: Wants, bounds: Bounds, span: int) -> None:
        """Apply the changes of the profiles that the bounds do not know."""
        profiles, shift = self.profiles, self._start_shift
        keys, seen = bounds.keys, bounds.seen
        bounds.seen = profiles.log_to
        if seen < profiles.log_from:
            keys[:] = 0
            return
        changes = profiles.log[seen - profiles.log_from : profiles.log_to - profiles.log_from]
        if not len(changes):
            return
        places = wants.place[changes[:, 0]]
        inside = places >= 0
        if not inside.all():
            changes, places = changes[inside], places[inside]
            if not len(changes):
                return
        starts = keys[places] >> shift
        touched = places[(starts < changes[:, 2]) & (starts + span > changes[:, 1])]
        keys[touched] = keys[touched] >> shift << shift
        grown = changes[:, 3] > 0
        if grown.any():
            lower = np.maximum(changes[grown, 1].astype(np.int64) - span + 1, 0)
            np.minimum.at(keys, places[grown], lower << shift)

    def _steps(self, wants: Wants, places: Ints | None) -> tuple[Short, npt.NDArray[np.bool_], Short]:
        """Give the steps of some nodes of a set: their times, whether the share has no room then, and all."""
        profiles = self.profiles
        nodes = wants.nodes if places is None else wants.nodes[places]
        longest = int(profiles.lengths[nodes].max(initial=1))
        block = profiles.data[nodes, :, :longest]

        def column(amounts: Short) -> Short:
            return (amounts if places is None else amounts[places])[:, None]

        bad: npt.NDArray[np.bool_] = block[:, 1] < column(wants.cpus)
        bad |= block[:, 2] < column(wants.memory)
        for at, amounts in wants.gpus:
            bad |= block[:, 3 + at] < column(amounts)
        return block[:, 0], bad, block

    def _wants(self, demand: Demand, number: int, alternative: Alternative) -> Wants:
        """Give what an even share takes on the nodes of an alternative."""
        by_demand = (demand, number, True)
        found = self._by_demand.get(by_demand)
        if found is None:
            content = (alternative.bits, (demand.need.memory_counts, demand.shared), tuple(demand.amounts))
            found = self._by_content.get(content)
            if found is None:
                found = self._by_content[content] = Wants(demand.fleet, alternative.indexes, demand)
            self._by_demand[by_demand] = found
        return found


def held_rows(demand: Demand, picks: list[Pick], end: int, *, whole_nodes: bool = False) -> list[Row]:
    """Give what the picks take, as shares that come free at `end`: for `Profiles.take`.

    `whole_nodes`: take each node for the job alone, as calendars do that do not know resources (for comparisons).
    """
    need, fleet = demand.need, demand.fleet
    rows: list[Row] = []
    for node, tasks, gpus in picks:
        kind = fleet.kind[node]
        if demand.even and tasks == demand.tasks and gpus == need.gpus_total[0]:
            cpus, memory, by_column = demand.amounts[kind]
        else:
            cpus, memory, by_column = amount(need, fleet.kinds[kind], tasks, share_vector(need, gpus))
        if whole_nodes:
            cpus = SHUT
        rows.append((end, node, cpus, memory if need.memory_counts else 0, by_column))
    return rows


def _ends(times: Short, bad: npt.NDArray[np.bool_]) -> Short:
    """Give for each step the time from which there is no room next: its own time where it has none."""
    ends = np.where(bad, times, np.int32(PAD))
    found: Short = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    return found

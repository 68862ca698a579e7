"""The earliest start of a job that takes the same on each of its nodes, from the times at which each node is free.

For each request the intervals in which a node has room are kept, and made anew only for nodes that changed. A job of n
nodes for d seconds can start when n nodes are in an interval that lasts d seconds more: two sorted arrays tell when.
Only such times are tried with `select.choose_among`, which may want more than a number: one switch, neighbours ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ctld.sched.demand import Demand
from ctld.sched.fleet import Fleet, Ints, View, members
from ctld.sched.needs import Amount, Need
from ctld.sched.profiles import HORIZON, Profiles
from ctld.sched.releases import FAR
from ctld.sched.select import Pick, choose, choose_among
from ctld.sched.steps import PAD, Short
from ctld.sched.wanted import Wanted, rows_of

_BLOCK = 2048
"""Nodes that are looked at together at most, to stay within the processor's caches."""
_KNOWN = 256
"""Answers that are remembered of one request."""


def counts_nodes(need: Need, *, even: bool) -> bool:
    """Tell whether a start depends only on how many nodes have room for the smallest share, and on which."""
    if not need.uneven:
        return True
    return even and need.tasks == need.nodes == need.nodes_max and not need.gpus_total[0] and need.fine is None


class Intervals(Wanted):
    """When a share has room on each node of a set."""

    __slots__ = ("answers", "ends", "gains", "generation", "known", "starts")

    def __init__(self, fleet: Fleet, nodes: Ints, demand: Demand) -> None:
        super().__init__(fleet, nodes, rows_of(demand, demand.least))
        self.starts: Short
        """[interval, place]: relative; PAD where there is none."""
        self.ends: Short
        """[interval, place]; PAD: never, -1 where there is no interval."""
        self.known: Short
        """By place: the number of the node's last change when it was looked at."""
        self.answers: dict[tuple[int, int], int] = {}
        """(nodes, duration) -> no earlier start is possible, as long as nothing comes free."""
        self.generation = -1
        """Of the profiles, when it was looked at."""
        self.gains = 0
        """How many of `Profiles.gains` the answers know."""

    @property
    def size(self) -> int:
        """Numbers that it keeps."""
        return self.starts.size if self.generation >= 0 else 0

    def follow(self, profiles: Profiles) -> None:
        """Bring the intervals up to the profiles."""
        count = len(self.nodes)
        if self.generation != profiles.generation:
            self.generation = profiles.generation
            self.starts = np.full((2, count), PAD, np.int32)
            self.ends = np.full((2, count), -1, np.int32)
            self.known = np.full(count, -1, np.int32)
            self.answers.clear()
            self.gains = len(profiles.gains)
        if self.gains != len(profiles.gains):
            self.answers.clear()
            self.gains = len(profiles.gains)
        numbers = profiles.changed[self.nodes]
        stale = (self.known != numbers).nonzero()[0]
        for low in range(0, len(stale), _BLOCK):
            self._look(profiles, stale[low : low + _BLOCK])
        self.known = numbers

    def _look(self, profiles: Profiles, places: Ints) -> None:
        rows, begins, ends = self.runs(profiles, places)
        counts = np.bincount(rows, minlength=len(places))
        most = int(counts.max())
        if most > len(self.starts):
            more = most - len(self.starts)
            self.starts = np.concatenate((self.starts, np.full((more, len(self.nodes)), PAD, np.int32)))
            self.ends = np.concatenate((self.ends, np.full((more, len(self.nodes)), -1, np.int32)))
        numbers = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        self.starts[:, places] = PAD
        self.ends[:, places] = -1
        where = places[rows]
        self.starts[numbers, where] = begins
        self.ends[numbers, where] = ends


class Gang:
    """Answers questions about demands of which nodes are counted (`counts_nodes`)."""

    def __init__(self, profiles: Profiles, *, cached: bool) -> None:
        self.profiles = profiles
        self.cached = cached
        self.kept = 0
        """Numbers that are remembered."""
        self._by_demand: dict[Demand, Intervals] = {}
        self._by_content: dict[tuple[int, tuple[bool, bool], tuple[Amount, ...]], Intervals] = {}

    def forget(self) -> None:
        """Forget everything."""
        self._by_demand.clear()
        self._by_content.clear()
        self.kept = 0

    def earliest(
        self, demand: Demand, span: int, since: int, barred: Mapping[int, int], last: int
    ) -> tuple[int, list[Pick], View | None] | None:
        """Give the first start (relative, from `since` to `last`), the picks and, where the choice looked at it, what
        is free then."""
        intervals = self._intervals(demand)
        wanted = demand.need.nodes
        if len(intervals.nodes) < wanted:
            return None
        lower = since
        for (count, seconds), start in intervals.answers.items():
            if start > lower and count <= wanted and seconds <= span:
                lower = start
        if lower > last:
            return None
        starts = np.maximum(intervals.starts, lower)
        for node, until in barred.items():
            place = int(intervals.place[node])
            if place >= 0:
                np.maximum(starts[:, place], self.profiles.relative(until), out=starts[:, place])
        finals = intervals.ends - span
        first = True
        for start in _times(starts, finals, wanted, lower):
            if first and not barred and since <= self.profiles.relative(self.profiles.now):
                self._remember(intervals, wanted, span, start)
            first = False
            if start > last:
                return None
            fits = intervals.nodes[((starts <= start) & (finals >= start)).any(0)]
            found = self._choose(demand, fits, start, span)
            if found is not None:
                return start, *found
        return None

    def _remember(self, intervals: Intervals, wanted: int, span: int, start: int) -> None:
        if not self.cached:
            return
        if len(intervals.answers) >= _KNOWN:
            intervals.answers.clear()
        intervals.answers[wanted, span] = start

    def _choose(self, demand: Demand, fits: Ints, start: int, span: int) -> tuple[list[Pick], View | None] | None:
        """Choose among the nodes that have room."""
        begin = self.profiles.absolute(start)
        view = None
        if demand.need.nodes == 1 or not demand.manner.by_switch:
            view = self.profiles.window(begin, min(begin + span, FAR), fits)
        picks = choose_among(demand, fits, view)
        if picks is None and demand.need.uneven:  # It has rules of its own for what is near.
            view = view or self.profiles.window(begin, min(begin + span, FAR), fits)
            picks = choose(demand, view)
        return None if picks is None else (picks, view)

    def _intervals(self, demand: Demand) -> Intervals:
        """Give when a share of the demand has room, brought up to the profiles."""
        found = self._by_demand.get(demand) if self.cached else None
        if found is None:
            bits = 0
            for alternative in demand.alternatives:
                bits |= alternative.bits
            content = (bits, (demand.need.memory_counts, demand.shared), tuple(demand.least))
            found = self._by_content.get(content) if self.cached else None
            if found is None:
                found = Intervals(demand.fleet, np.array(members(bits), np.int64), demand)
            if self.cached:
                self._by_demand[demand] = self._by_content[content] = found
        before = found.size
        found.follow(self.profiles)
        self.kept += found.size - before
        return found


def _times(starts: Short, finals: Short, wanted: int, lower: int) -> Iterator[int]:
    """Give the times, ascending, at which so many nodes can begin, and at which their set is another than before.

    Args:
        starts, finals: [interval, node]: first and last start in each interval; none where the last is before the
            first.
        lower: no start is before this.
    """
    there = finals >= starts
    first = lower
    at_once = np.count_nonzero(there & (starts == lower)) >= wanted
    if at_once:
        yield first
    some = there.ravel().nonzero()[0]
    begun, ended = starts.ravel()[some], finals.ravel()[some]
    begun.sort()
    ended.sort()
    if not at_once:
        # Of those that begin together the last one tells how many have begun.
        count = np.arange(1, len(begun) + 1) - ended.searchsorted(begun)
        enough = (count >= wanted).nonzero()[0]
        if not len(enough):
            return
        first = int(begun[enough[0]])
        yield first
    # The first time was not good enough; the set changes when a node begins, and after the last start of another.
    times = np.unique(np.concatenate((begun, ended[ended < HORIZON] + 1)))
    counts = begun.searchsorted(times, "right") - ended.searchsorted(times)
    times = times[(counts >= wanted) & (times > first) & (times <= HORIZON)]
    yield from times.tolist()

"""The earliest start of a job in the profiles of what is free over time, and where.

The answer depends on what is free from `not_before` on and on the demand alone. What is remembered between questions
(see `single` and `sweep`) only makes it cheaper.

* One node: the earliest start; among the nodes that have it the lowest weight, then the fewest free GPUs and CPUs at
  that start, then the lowest index; or what `Manner` says instead, of what is free all over the interval.
* Several nodes: the earliest start at which `select.choose` finds a place in what is free all over the interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctld.core.model import UNLIMITED
from ctld.sched.demand import Demand
from ctld.sched.fleet import View, bitmap
from ctld.sched.gang import Gang, counts_nodes
from ctld.sched.needs import amount, share_vector
from ctld.sched.profiles import HORIZON, Profiles
from ctld.sched.releases import FAR, Row
from ctld.sched.select import Pick, choose
from ctld.sched.single import Single
from ctld.sched.steps import SHUT
from ctld.sched.sweep import Several

LONGEST = HORIZON - 1
"""Relative duration of jobs without limit."""


MOST_KEPT = 1 << 25
"""Numbers that are remembered in all; at the bound everything is forgotten, and worked out anew as it is needed."""


class Found(NamedTuple):
    """A start, and where. (A tuple, as one is made for every job.)"""

    start: int
    """FAR: only after jobs without limit have ended."""
    picks: list[Pick]
    view: View | None
    """The least that is free over the interval on the nodes that could serve, where the choice looked at it."""


class Search:
    """Answers questions about one set of profiles, again and again while they change."""

    def __init__(self, profiles: Profiles, *, cached: bool = True) -> None:
        """`cached=False` remembers nothing, for comparisons: the answers are the same."""
        self.profiles = profiles
        self.cached = cached
        self._single = Single(profiles, cached=cached)
        self._gang = Gang(profiles, cached=cached)
        self._several = Several(profiles, cached=cached)

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
        if self._single.kept + self._gang.kept + self._several.kept > MOST_KEPT:
            self._single.forget()
            self._gang.forget()
            self._several = Several(self.profiles, cached=self.cached)
        span = LONGEST if duration == UNLIMITED else max(1, min(duration, LONGEST))
        since = self.profiles.relative(not_before)
        last = HORIZON
        if window_end is not None:
            last = self.profiles.relative(window_end)
            if window_end < self.profiles.absolute(since):
                return None
        barred = barred_until or {}
        if not demand.single:
            if counts_nodes(demand.need, even=demand.even):
                return self._found(self._gang.earliest(demand, span, since, barred, last))
            return self._found(self._several.earliest(demand, span, since, barred, last))
        found = self._single.earliest(demand, span, since, barred, last)
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

    def _found(self, found: tuple[int, list[Pick], View | None] | None) -> Found | None:
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

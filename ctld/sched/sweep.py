"""The earliest start of a job on several nodes: a sweep over the times at which anything changes on its nodes.

Each node counts for so many units over [t, t + duration): 1 where an even share fits, else the tasks or GPUs that it
could take. Only times at which the units of all nodes suffice are tried with `select.choose`. The units are an upper
bound of what the choice may take, so that no start is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ctld.sched.demand import Demand
from ctld.sched.fleet import Ints, View, members
from ctld.sched.profiles import HORIZON, Profiles
from ctld.sched.releases import FAR
from ctld.sched.select import Pick, choose
from ctld.sched.steps import Short, least_between
from ctld.sched.wanted import UNBOUND

_TOGETHER = 512
"""Changes on the nodes of a demand that are looked at together."""


class Units:
    """How many units of a demand a node can give."""

    __slots__ = ("answers", "least", "limits", "nodes", "per_unit", "place", "step", "wanted")

    def __init__(self, demand: Demand) -> None:
        fleet, need = demand.fleet, demand.need
        bits = 0
        for alternative in demand.alternatives:
            bits |= alternative.bits
        self.nodes: Ints = np.array(members(bits), np.int64)
        self.place = np.full(fleet.size, -1, np.int64)
        self.place[self.nodes] = np.arange(len(self.nodes))
        rows = [
            (one[0] if not demand.shared else UNBOUND, one[1] if need.memory_counts else 0, *one[2])
            for one in demand.least
        ]
        self.step = min(_TOGETHER * fleet.size // max(1, len(self.nodes)), 16 * _TOGETHER)
        """Changes of all nodes among which so many are on these."""
        self.least: Short = np.array(rows, np.int32).reshape(len(rows), -1)[fleet.kind_column[self.nodes]]
        """[place, resource]: the smallest share of a node."""
        self.wanted = need.nodes
        """Units that the job needs."""
        self.per_unit: list[tuple[int, int]] = []
        """(resource, how much of it a unit takes) where units are counted; else a node that serves is a unit."""
        self.limits = 1
        """Most units on a node."""
        self.answers: dict[tuple[int, int, int], int] = {}
        """(units, most on a node, duration) -> so many are not free before this, as long as nothing comes free; one for
        all demands with units of the same size."""
        if not need.uneven:
            return
        if need.fine is not None:  # By rules of its own: any node that serves might take all.
            self.wanted = self.limits = max(need.tasks, need.nodes) if need.tasks else need.gpus_total[0]
            return
        if need.tasks:
            self.wanted = max(need.tasks, need.nodes)
            self.limits = min(need.tasks, need.tasks_cap) if need.tasks_cap else need.tasks
            if not need.overcommit:
                self.per_unit.append((0, need.cpus_per_task))
                if need.memory_counts and need.memory_per_cpu and not need.memory_each:
                    self.per_unit.append((1, need.memory_per_cpu * need.cpus_per_task))
            if need.gpus_task[0]:
                self.per_unit.append((2, need.gpus_task[0]))
        else:
            self.wanted = self.limits = need.gpus_total[0]
            self.per_unit.append((2, 1))
            if need.cpus_per_gpu:
                self.per_unit.append((0, need.cpus_per_gpu))

    @property
    def content(self) -> tuple[object, ...]:
        """What the size of a unit depends on, and where there are any."""
        return self.nodes.tobytes(), self.least.tobytes(), tuple(self.per_unit)

    def not_before(self, span: int) -> int:
        """Give a time before which there are not enough units for so long."""
        return max(
            (
                start
                for (wanted, limits, seconds), start in self.answers.items()
                # A node that may give fewer units to the other job suffices for it alone.
                if seconds <= span and wanted <= self.wanted and limits >= min(self.limits, wanted)
            ),
            default=0,
        )

    def count(self, places: Ints | None, least: Short) -> Ints:
        """Count the units of some places (None: all), given what is free there."""
        wanted = self.least if places is None else self.least[places]
        served = np.asarray((least >= wanted).all(1))
        if not self.per_unit:
            return np.where(served, self.limits, 0)
        units: Ints = np.full(len(least), self.limits, np.int64)
        for resource, amount in self.per_unit:
            np.minimum(units, least[:, resource] // amount, out=units)
        units *= served
        return units


class Sweep:
    """Where the search for one demand and duration stands: nothing before `at` is possible."""

    __slots__ = ("at", "exact", "seen", "since", "total", "units")

    def __init__(self, seen: int, since: int) -> None:
        self.at = -1
        """Relative; below 0: nothing is known."""
        self.units: Ints = np.zeros(0, np.int64)
        """By place: units over the interval from `at` on."""
        self.total = 0
        self.exact = True
        """No time at which there were enough units was passed over."""
        self.seen = seen
        """Number of the first change that it does not know."""
        self.since = since
        """Starts before this were not looked at."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a sweep."""

    demand: Demand
    units: Units
    span: int
    barred: Mapping[int, int]
    """Nodes that belong to another user, with the end of that."""
    last: int
    """Last start to consider, relative."""


class Several:
    """Answers questions about demands on several nodes, or on an uneven number of them."""

    def __init__(self, profiles: Profiles, *, cached: bool) -> None:
        self.profiles = profiles
        self.cached = cached
        self.kept = 0
        """Numbers that are remembered."""
        self._units: dict[Demand, Units] = {}
        self._answers: dict[tuple[object, ...], dict[tuple[int, int, int], int]] = {}
        self._known = (-1, 0)
        """Generation and number of gains of the profiles that the answers know."""
        self._sweeps: dict[tuple[Demand, int], Sweep] = {}
        self._late: dict[tuple[Demand, int], Sweep] = {}

    def earliest(
        self, demand: Demand, span: int, since: int, barred: Mapping[int, int], last: int
    ) -> tuple[int, list[Pick], View] | None:
        """Give the first start (relative, from `since` to `last`), the picks and what is free there then."""
        units = self._units.get(demand)
        if units is None:
            units = self._units[demand] = Units(demand)
            units.answers = self._answers.setdefault(units.content, units.answers)
        if not len(units.nodes):
            return None
        sweep = self._sweep(demand, units, span, since)
        lower = max(sweep.at, since)
        if self.cached:
            known = self.profiles.generation, len(self.profiles.gains)
            if known != self._known:
                self._known = known
                for answers in self._answers.values():
                    answers.clear()
            lower = max(lower, units.not_before(span))
        if lower > last:
            return None
        if sweep.at != lower:
            self._begin(sweep, units, span, lower)
        return self._run(sweep, Question(demand, units, span, barred, last))

    def _run(self, sweep: Sweep, ask: Question) -> tuple[int, list[Pick], View] | None:
        """Go through the changes from where the sweep stands."""
        profiles = self.profiles
        units, span, barred, last = ask.units, ask.span, ask.barred, ask.last
        more = {self.profiles.relative(until) for until in barred.values()}  # Other times to try.
        keep = True  # As long as no time was passed over only because of barred nodes.
        at, counted, total = sweep.at, sweep.units, sweep.total
        if total >= units.wanted:
            self._remember(sweep, ask, at)
            found = self._try(ask, counted, at)
            if found is not None:
                return found
            keep = not barred
            sweep.exact = sweep.exact and bool(barred)
        while at < last:
            until = min(profiles.reach(at, units.step), last)
            ended = profiles.reach(at + span - 1, units.step)
            if ended < HORIZON:  # Else few ends are left, and all of them are looked at.
                until = max(min(until, ended - span + 1), at + 1)
            places, times, gives = self._changes(units, span, at, until)
            if len(places):
                gains = gives.copy()
                same = places[1:] == places[:-1]
                gains[1:][same] -= gives[:-1][same]
                firsts = np.ones(len(places), np.bool_)
                firsts[1:] = ~same
                gains[firsts] -= counted[places[firsts]]
                order = np.argsort(times, kind="stable")
                totals = total + np.cumsum(gains[order])
                when = times[order]
                enough = totals >= units.wanted
                enough[:-1] &= when[1:] != when[:-1]
                tried = {int(when[index]): int(index) + 1 for index in np.flatnonzero(enough)}
            else:
                order, totals, when, tried = places, places, times, {}
            for time in more:
                if at < time <= until and time not in tried:
                    index = int(np.searchsorted(when, time, "right"))
                    if (int(totals[index - 1]) if index else total) >= units.wanted:
                        tried[time] = index
            if tried:
                self._remember(sweep, ask, min(tried))
            for time in sorted(tried):
                index = tried[time]
                then = counted.copy()
                then[places[order[:index]]] = gives[order[:index]]
                found = self._try(ask, then, time)
                if found is not None:
                    if keep:
                        sweep.at, sweep.units = time, then
                        sweep.total = int(totals[index - 1]) if index else total
                    return found
                keep = keep and not barred
                sweep.exact = sweep.exact and bool(barred)
            if len(places):
                counted = counted.copy()
                counted[places[order]] = gives[order]
                total = int(totals[-1])
            at = until
            if keep:
                sweep.at, sweep.units, sweep.total = at, counted, total
        if keep and at >= last == HORIZON:
            sweep.at = HORIZON + 1
        return None

    def _remember(self, sweep: Sweep, ask: Question, start: int) -> None:
        """Keep the first time at which there are enough units, if no such time was passed over."""
        profiles = self.profiles
        if sweep.exact and not ask.barred and sweep.since <= profiles.relative(profiles.now):
            ask.units.answers[ask.units.wanted, ask.units.limits, ask.span] = start

    def _try(self, ask: Question, counted: Ints, at: int) -> tuple[int, list[Pick], View] | None:
        """Let the selection choose among the nodes that have units."""
        begin = self.profiles.absolute(at)
        view = self.profiles.window(begin, min(begin + ask.span, FAR), ask.units.nodes[counted > 0])
        still = 0
        for node, until in ask.barred.items():
            if until > begin:
                still |= 1 << node
        picks = choose(ask.demand, view, still)
        return (at, picks, view) if picks is not None else None

    def _changes(self, units: Units, span: int, after: int, until: int) -> tuple[Ints, Ints, Ints]:
        """Give the changes of intervals that begin in (after, until]: place, time, units from then on; by place and
        time."""
        profiles = self.profiles
        begun, ended = profiles.moments(after, until), profiles.moments(after + span - 1, until + span - 1)
        places = units.place[np.concatenate((begun[0], ended[0]))]
        when = np.concatenate((begun[1], ended[1] - (span - 1)))
        inside = places >= 0
        if not inside.all():
            places, when = places[inside], when[inside]
        if not len(places):
            return places, when, when
        both = (places << 32) + when
        both.sort()
        places, when = both >> 32, both & 0xFFFFFFFF
        gives = units.count(places, _least(profiles, units.nodes[places], when, span))
        return places, when, gives

    def _begin(self, sweep: Sweep, units: Units, span: int, at: int) -> None:
        sweep.at = at
        sweep.units = units.count(None, self.profiles.least(units.nodes, at, at + span))
        sweep.total = int(sweep.units.sum())

    def _sweep(self, demand: Demand, units: Units, span: int, since: int) -> Sweep:
        """Give where the search stands, brought up to the profiles."""
        if not self.cached:
            return Sweep(0, since)
        profiles = self.profiles
        key = demand, span
        now = profiles.now - profiles.origin
        known = self._sweeps if since <= now else self._late
        sweep = known.get(key)
        if sweep is None or sweep.since > since:
            self.kept += len(units.nodes)
            sweep = known[key] = Sweep(profiles.log_to, since)
        self._follow(sweep, units, span)
        sweep.since = since
        return sweep

    def _follow(self, sweep: Sweep, units: Units, span: int) -> None:
        """Apply the changes of the profiles."""
        profiles = self.profiles
        seen, sweep.seen = sweep.seen, profiles.log_to
        if sweep.at < 0:
            return
        if seen < profiles.log_from:
            sweep.at, sweep.exact = -1, True
            return
        changes = profiles.log[seen - profiles.log_from : profiles.log_to - profiles.log_from]
        if not len(changes):
            return
        places = units.place[changes[:, 0]]
        grown = (changes[:, 3] > 0) & (places >= 0)
        if grown.any() and int(changes[grown, 1].min()) - span < sweep.at:
            sweep.at, sweep.exact = -1, True
            return
        if not 0 <= sweep.at <= HORIZON:
            return
        touched = (places >= 0) & (changes[:, 1] < sweep.at + span) & (changes[:, 2] > sweep.at)
        if not touched.any():
            return
        places = np.unique(places[touched])
        least = profiles.least(units.nodes[places], sweep.at, sweep.at + span)
        fresh = units.count(places, least)
        sweep.total += int(fresh.sum() - sweep.units[places].sum())
        sweep.units[places] = fresh


def _least(profiles: Profiles, nodes: Ints, starts: Ints, span: int) -> Short:
    """Give the least that is free on each node (in any order, but equal ones side by side) over an interval of its
    own."""
    fresh = np.ones(len(nodes), np.bool_)
    fresh[1:] = nodes[1:] != nodes[:-1]
    at = fresh.cumsum() - 1
    nodes = nodes[fresh]
    block = profiles.data[nodes, :, : 1 + int(profiles.lengths[nodes].max(initial=1))]
    steps = block.shape[2]
    # All times of all nodes in one ascending column.
    keys = (block[:, 0] + (np.arange(len(nodes)) << 32)[:, None]).ravel()
    own = at << 32
    low = np.maximum(keys.searchsorted(own + starts, "right") - 1 - at * steps, 0)
    high = keys.searchsorted(own + (starts + span), "left") - at * steps
    return least_between(block, at, low, np.maximum(high, low + 1))

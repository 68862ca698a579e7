"""What is free over time, for jobs outside of all advance reservations and for those of each: one set of profiles each.

Whatever is planned in one lane is taken in all of them. Where a reservation has a part of a node, its jobs and the
others have different cores, and only the memory is taken in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ctld.core import ranges
from ctld.core.apply.indexes import held_shares
from ctld.core.holds import Hold
from ctld.core.model import NodeShare
from ctld.core.reservations import Reservation, occurrences
from ctld.core.state import State
from ctld.sched.fleet import Fleet, free_view, members
from ctld.sched.kept import Kept
from ctld.sched.memory import PlanMemory
from ctld.sched.profiles import Profiles
from ctld.sched.promised import Promised
from ctld.sched.releases import FAR, Row, held_until
from ctld.sched.search import Search
from ctld.sched.steps import SHUT

LOOK_AHEAD_SECONDS = 366 * 86_400
"""So far ahead recurring reservations are looked at."""
MOST_TIMES = 100_000
"""Most steps that the times of one recurring reservation make on all its nodes (`_LEAST_TIMES` of each at least). What
comes behind the last of them is not known: nothing of others is planned there."""
_LEAST_TIMES = 16


class Lane:
    """The profiles of one group of jobs."""

    __slots__ = ("floating", "inside", "name", "narrow", "nodes", "number", "profiles", "search", "times")

    def __init__(self, number: int, inside: Reservation | None, profiles: Profiles) -> None:
        self.number = number
        self.inside = inside
        """None: outside of all reservations."""
        self.name = inside.name if inside is not None else ""
        self.profiles = profiles
        self.search = Search(profiles)
        self.nodes: frozenset[int] | None = None
        """The only ones that these jobs may have; None: all."""
        self.narrow: frozenset[int] = frozenset()
        """Nodes of which only some cores are free for these jobs."""
        self.times: list[tuple[int, int]] = []
        """Of the reservation: when its jobs may run."""
        self.floating: list[tuple[int, list[int]]] = []
        """(seconds, nodes) of reservations that always begin so much later: longer jobs never have these nodes."""


class Lanes:
    """All lanes of a calendar."""

    def __init__(
        self, state: State, memory: PlanMemory, at: int, *, promised: Promised, named: Iterable[str] = ()
    ) -> None:
        """Args:
        memory: that follows the state.
        promised: what preemptions have promised.
        named: the reservations that jobs ask for; those that draw jobs come by themselves.
        """
        self._state = state
        self._fleet: Fleet = memory.fleet
        self._at = at
        base = self._base(memory, promised)
        known = state.reservations
        self._by_name: dict[str, Lane] = {}
        self._lanes: list[Lane] = []
        self._kept_from: dict[str, frozenset[int]] = {}
        """Reservation -> nodes of which it has some cores."""
        inner = [one for one in known.values() if one.name in set(named) or one.has("MAGNETIC")]
        self._times = {one.name: self._times_of(one) for one in known.values()}
        for one in known.values():
            self._kept_from[one.name] = frozenset(part.node for part in one.parts if part.cores)
        for inside in (None, *inner):
            last = len(self._lanes) == len(inner)
            lane = Lane(len(self._lanes), inside, base if last else base.copy())
            self._lanes.append(lane)
            self._by_name[lane.name] = lane
            if known:
                self._bar(lane)

    @property
    def outside(self) -> Lane:
        """The lane of jobs outside of all reservations."""
        return self._lanes[0]

    def of(self, inside: Reservation | None) -> Lane:
        """Give a lane."""
        return self._by_name[inside.name if inside is not None else ""]

    def take(self, lane: Lane, rows: Sequence[Row], start: int, end: int) -> None:
        """Take the shares of a job of one lane in all of them."""
        if len(self._lanes) == 1:
            lane.profiles.take_all(rows, start, end)
            return
        for other in self._lanes:
            other.profiles.take_all(self._seen_by(other, lane, rows), start, end)

    def give(self, lane: Lane, rows: Sequence[Row], start: int, end: int) -> None:
        """Undo `take`."""
        for other in self._lanes:
            for row in self._seen_by(other, lane, rows):
                other.profiles.give(row, start, end)

    def _seen_by(self, other: Lane, lane: Lane, rows: Sequence[Row]) -> Sequence[Row]:
        """Give what shares of one lane take in another."""
        if other is lane:
            return rows
        if other.nodes is not None:
            rows = [row for row in rows if row[1] in other.nodes]
        apart = other.narrow
        if lane.inside is not None and not (other.inside is not None and other.inside.shares_nodes):
            apart |= lane.narrow
        if not apart:
            return rows
        none = (0,) * self._fleet.width
        return [(end, node, 0, mib, none) if node in apart else (end, node, cpus, mib, gpus)
                for end, node, cpus, mib, gpus in rows]  # fmt: skip

    def _base(self, memory: PlanMemory, promised: Promised) -> Profiles:
        """Give what is free beside what runs, is being cleaned up, or was promised."""
        state, at, fleet = self._state, self._at, self._fleet
        memory.releases.follow(state)
        profiles = Profiles(fleet, at)
        profiles.reset(free_view(fleet, state.free, 0), memory.releases.rows, at)
        profiles.close(members(memory.closed_later))
        for node in members(memory.closed_now & ~memory.closed_later):
            profiles.take((at + 1, node, SHUT, 0, (0,) * fleet.width), at, at + 1)
        Kept(state, fleet, at, profiles).keep(promised)
        return profiles

    def _times_of(self, one: Reservation) -> list[tuple[int, int]]:
        most = max(_LEAST_TIMES, MOST_TIMES // max(1, len(one.parts)))
        zone = self._state.settings.clock_changes
        return list(occurrences(one, zone, self._at, self._at + LOOK_AHEAD_SECONDS, most))

    def _bar(self, lane: Lane) -> None:
        """Take off a lane what other reservations have, and what is outside of its own."""
        inside = lane.inside
        whole: dict[int, list[tuple[int, int]]] = {}
        if inside is None or not inside.shares_nodes:
            for other in self._state.reservations.values():
                if other is inside or not other.parts:
                    continue
                if other.has("TIME_FLOAT"):
                    lane.floating.append((other.float_seconds, list(other.nodes)))
                    continue
                times = self._times[other.name]
                if other.recurs and times:
                    times = [*times[:-1], (times[-1][0], FAR)]
                for start, end in times:
                    for part in other.parts:
                        if part.cores:
                            hold = Hold(
                                other.name, start, end, part.node,
                                ranges.to_bitmap(part.cores), ranges.to_bitmap(part.gpus),
                            )  # fmt: skip
                            self._take_cores(lane, hold)
                        else:
                            whole.setdefault(part.node, []).append((start, end))
        for node, times in whole.items():
            for start, end in _merged(times):
                lane.profiles.take((end, node, SHUT, 0, (0,) * self._fleet.width), start, end)
        if inside is not None:
            lane.times = self._times[inside.name]
            if not inside.anywhere and not inside.has("FLEX"):
                lane.nodes = frozenset(inside.nodes)
                lane.profiles.close(node for node in range(self._fleet.size) if node not in lane.nodes)
                lane.narrow = self._kept_from[inside.name]
                for part in inside.parts:
                    if part.cores:
                        self._keep_only(lane, part.node, ranges.to_bitmap(part.cores), ranges.to_bitmap(part.gpus))

    def _take_cores(self, lane: Lane, hold: Hold) -> None:
        """Take a part of a node over a time, without what is held of it anyway."""
        row = self._row(hold.node, hold.cores, hold.gpus)
        lane.profiles.take(row, hold.start, hold.end)
        for until, cores, gpus in self._held_on(hold.node):
            both = self._row(hold.node, cores & hold.cores, gpus & hold.gpus)
            lane.profiles.give(both, max(hold.start, self._at), min(hold.end, until))

    def _keep_only(self, lane: Lane, node: int, cores: int, gpus: int) -> None:
        """Leave nothing but these cores and GPUs of a node to a lane: what runs on the others is no matter."""
        kind = self._fleet.kinds[self._fleet.kind[node]]
        spec = self._fleet.specs[node]
        every = sum(kind.sockets)
        lane.profiles.take(self._row(node, every & ~cores, ((1 << len(spec.gpus)) - 1) & ~gpus), self._at, FAR)
        for until, held_cores, held_gpus in self._held_on(node):
            lane.profiles.give(self._row(node, held_cores & every & ~cores, held_gpus & ~gpus), self._at, until)

    def _held_on(self, node: int) -> Iterable[tuple[int, int, int]]:
        """Give the cores and GPUs that jobs hold on a node, and until when."""
        state = self._state
        for job_id in state.node_jobs[node]:
            job = state.jobs[job_id]
            until = max(held_until(state, job), self._at + 1)
            for share in held_shares(job):
                if share.node == node:
                    yield until, ranges.to_bitmap(share.cores), ranges.to_bitmap(share.gpus)

    def _row(self, node: int, cores: int, gpus: int) -> Row:
        threads = self._fleet.kinds[self._fleet.kind[node]].threads
        counts = self._fleet.counts_of(NodeShare(node, 0, (), 0, ranges.from_bitmap(gpus)))
        return (FAR, node, cores.bit_count() * threads, 0, counts)


def _merged(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give times that do not overlap."""
    times = sorted(times)
    found: list[tuple[int, int]] = times[:1]
    for (_, _), (start, end) in pairwise(times):
        if start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found

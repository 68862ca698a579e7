"""The earliest start of one job beside all that is planned already: nodes, reservations, licences and limits together.

What starts at once is drawn with concrete cores and devices, as the event pass does it, so that both agree on it; what
starts later is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ctld.core.holds import barred as barred_by
from ctld.core.licenses import Licences
from ctld.core.limits.gate import Gate
from ctld.core.model import Job, NodeShare
from ctld.core.plan import Wait
from ctld.core.reservations import Reservation
from ctld.core.state import State
from ctld.core.times import latest_start, stretched
from ctld.sched.claimed import ARRAY, Claimed, Claims
from ctld.sched.demand import Demand
from ctld.sched.fleet import bitmap, free_view, members
from ctld.sched.lanes import LOOK_AHEAD_SECONDS, Lane, Lanes
from ctld.sched.memory import Entry, PlanMemory
from ctld.sched.place import Scratch
from ctld.sched.profiles import HORIZON
from ctld.sched.promised import Promised
from ctld.sched.releases import FAR, Row, end_of
from ctld.sched.reserved import access, waits_for_reservation
from ctld.sched.search import Found, held_rows
from ctld.sched.select import Pick, choose
from ctld.sched.tenants import Tenants
from ctld.sched.tries import due, patience_end
from muster.ids import UnixTime
from muster.states import Reason

_MOST_TRIES = 1000
"""Most times that a start is moved before it is left open."""
_RESOURCES = Wait(Reason.RESOURCES)


class Spot(NamedTuple):
    """A start that was found. (A tuple, as one is made for every job.)"""

    start: int
    end: int
    entry: Entry
    lane: Lane
    demand: Demand
    picks: Sequence[Pick]
    nodes: tuple[int, ...]
    """Those of the picks, ascending."""
    rows: Sequence[Row]
    claims: Claims
    shares: tuple[NodeShare, ...] = ()
    """With cores and devices, of a job that starts at once."""


class _Ask(NamedTuple):
    """One way in which a job may be planned."""

    entry: Entry
    job: Job
    lane: Lane
    demand: Demand
    licences: Claims
    since: int
    last: int
    """Last start to consider."""
    why: Wait | None
    """What the job waits with when it cannot start by then; None: it is past the window."""
    more: bool
    """Another way of the same kind follows: that this one fails says nothing."""


class Ahead:
    """All that is planned, and the search for the next start."""

    def __init__(
        self, state: State, at: UnixTime, memory: PlanMemory, *, named: set[str], by_user: bool, window: int | None
    ) -> None:
        """Args:
        memory: that follows the state.
        named: advance reservations that pending jobs ask for.
        by_user: some pending job may share nodes with its own user only.
        window: last start that is looked for, in seconds from now; None: any.
        """
        self._state = state
        self._at = at
        self._memory = memory
        self._window = window is not None
        self._last = at + (HORIZON - 1 if window is None else min(window, HORIZON - 1))
        self._resolution = state.settings.planning.resolution_seconds
        self._busy = state.settings.planning.busy_nodes
        self._gate = Gate(state, at) if state.limits.enforced else None
        licences = Licences(state.settings.licenses, state.free.licenses)
        self.promised = Promised(state, memory.fleet, at, memory.closed_now, gate=self._gate, licences=licences)
        self._scratch = Scratch(state, memory.fleet, free_view(memory.fleet, state.free, memory.closed_now))
        self.promised.keep_from(self._scratch)
        self._lanes = Lanes(state, memory, at, promised=self.promised, named=named)
        self.claimed = Claimed(state, at, at + LOOK_AHEAD_SECONDS)
        self._past: set[tuple[Demand, int, int]] = set()
        """(demand, seconds, lane) for which there is no start up to the last one."""
        self._tenants = Tenants(state, at, watch=by_user)

    def earliest(
        self, entries: Sequence[Entry], job: Job, *, since: dict[str, int], before: int = FAR
    ) -> Spot | Wait | None:
        """Give the earliest start of a job (or of the next member of an array) in some of its partitions.

        Args:
            entries: in the order that decides between equal starts.
            since: partition -> no start before; now, where it is not in there.
            before: only earlier starts are looked for.

        None: it lies past the window (or past `before`). A Wait: none is known, and that is why.
        """
        best: Spot | None = None
        wait: Wait | None = None
        past = False
        for entry in entries:
            bar = self.bar(entry)
            if bar is not None:
                wait = wait or bar
                continue
            floor = max(since.get(entry.partition.name, self._at), self._at)
            for ask in self._asks(entry, job, floor, before if best is None else best.start):
                if best is not None and ask.last >= best.start:
                    ask = ask._replace(last=best.start - 1)
                found = self._try(ask) if ask.last >= ask.since else ask.why
                if isinstance(found, Spot):
                    best = found
                    if best.start <= self._at:
                        return best
                elif found is None:
                    past = past or not ask.more
                elif not ask.more:
                    wait = wait or found
            if job.spec.request.reservations and best is None and wait is None and not past:
                wait = waits_for_reservation(self._state, job, self._at)
        if best is not None or past:
            return best
        return wait or _RESOURCES

    def bar(self, entry: Entry) -> Wait | None:
        """Say why no start of an entry's jobs can be foreseen; None: nothing is known against it."""
        if entry.demand is not None and self._memory.lost(entry):
            return self._memory.unavailable(entry.demand)
        return self.claimed.bar(entry)

    def passed_by(self, entry: Entry, job: Job, *, limits_only: bool) -> bool:
        """Tell whether something else than nodes keeps a job from starting now: a limit, or else licences, or the
        limit of its array."""
        seconds, at = end_of(0, entry.limit_seconds), self._at
        least = self.claimed.least(entry, job)
        if limits_only:
            limits = tuple(claim for claim in least if claim.key[0] != ARRAY)
            return self.claimed.earliest(limits, seconds, at) != at
        return all(self.claimed.earliest(least + more, seconds, at) != at for more in self.claimed.licences(job))

    def take(self, spot: Spot, job: Job) -> None:
        """Let what is planned later plan around a job."""
        uid = job.spec.uid
        self._lanes.take(spot.lane, spot.rows, spot.start, spot.end)
        self.claimed.take(spot.entry, spot.claims, spot.nodes, spot.start, spot.end)
        self._tenants.add(uid, spot.nodes, spot.start, spot.end)
        if not spot.shares:
            return
        self._scratch.take(spot.demand, spot.shares, uid)
        if self._gate is not None:
            seconds = -1 if spot.end >= FAR else spot.end - spot.start
            self._gate.took(job, spot.entry.partition.name, spot.shares, seconds)
        if spot.demand.need.user:
            self._tenants.own(uid, spot.nodes, spot.end)

    def give(self, spot: Spot, job: Job) -> None:
        """Undo `take` for a start in the future."""
        assert not spot.shares, "what starts at once is not moved"
        self._lanes.give(spot.lane, spot.rows, spot.start, spot.end)
        self.claimed.give(spot.entry, spot.claims, spot.nodes, spot.start, spot.end)
        self._tenants.remove(job.spec.uid, spot.nodes, spot.start, spot.end)
        self._past.clear()

    # The ways to try.

    def _asks(self, entry: Entry, job: Job, floor: int, before: int) -> Iterator[_Ask]:
        """Give the ways in which a job may be planned in one partition, in the order that decides between equal
        starts."""
        last = self._last
        why: Wait | None = None if self._window else _RESOURCES
        if job.spec.deadline_at and latest_start(job) < last:
            last, why = latest_start(job), Wait(Reason.DEADLINE)
        if before <= last:
            last, why = before - 1, None
        licensed = self.claimed.licences(job)
        for lane, low, high in self._ways(entry, job):
            until, reason = (high, Wait(Reason.RESERVATION)) if high < last else (last, why)
            for licences in licensed:
                for demand, begin, end in self._shapes(entry, job, max(floor, low), until):
                    yield _Ask(entry, job, lane, demand, licences, begin, end, reason, more=end != until)

    def _ways(self, entry: Entry, job: Job) -> Iterable[tuple[Lane, int, int]]:
        """Give the lanes in which a job may be planned, with the first and the last start there."""
        if self._state.reservations:
            return self._accessible(entry, job)
        return () if entry.reserved else ((self._lanes.outside, self._at, self._last),)

    def _accessible(self, entry: Entry, job: Job) -> Iterator[tuple[Lane, int, int]]:
        """`_ways` where there are advance reservations."""
        for option in access(self._state, job, self._at):
            inside = option.inside
            lane = self._lanes.of(inside)
            if inside is None:
                yield lane, self._at, self._last
            elif inside.has("FLEX"):
                yield lane, self._at, max((end for _, end in lane.times), default=0) - 1
            else:
                for start, end in lane.times:
                    yield lane, start, end - end_of(0, entry.limit_seconds)

    def _shapes(self, entry: Entry, job: Job, since: int, last: int) -> Iterable[tuple[Demand, int, int]]:
        """Give the demands with which a job may be planned, with the first and the last start of each."""
        demand, now = entry.demand, self._at
        assert demand is not None  # An entry without a demand has a bar.
        if not demand.varies and not demand.need.user:
            return ((demand, since, last),)
        asked = due(demand, job, now)
        later = asked.alone(entry.partition, entry.jobs.request)
        shapes: list[tuple[Demand, int, int]] = []
        if since <= now:
            if demand.preferred is not None:
                shapes.append((due(demand.preferred, job, now), since, now))
            if later is not asked:
                shapes.append((asked, since, now))
        shapes.append((later, since if later is asked else max(since, now + 1), last))
        if asked.manner.switches:
            lax = asked.eventual.alone(entry.partition, entry.jobs.request)
            shapes.append((lax, max(since, patience_end(asked, job, now)), last))
        return shapes

    # One way.

    def _try(self, ask: _Ask) -> Spot | Wait | None:
        entry, job, lane, demand = ask.entry, ask.job, ask.lane, ask.demand
        claims = self.claimed.least(entry, job)
        if ask.licences:
            claims += ask.licences
        seconds = end_of(0, entry.limit_seconds)
        key = (demand, seconds, lane.number)
        start: int | None = ask.since
        for _ in range(_MOST_TRIES):
            assert start is not None
            start = self.claimed.earliest(claims, seconds, start)
            if start is None:
                return self.claimed.never(claims)
            if start > ask.last or key in self._past:
                return ask.why
            barred = self._barred(ask, seconds, start)
            found = lane.search.earliest(demand, seconds, start, barred_until=barred, window_end=ask.last)
            if found is not None and found.start == self._at and demand.picky:
                bits = self._scratch.barred(demand, job.spec.uid)
                barred = {**dict.fromkeys(members(bits), self._at + 1), **barred}
                found = lane.search.earliest(demand, seconds, start, barred_until=barred, window_end=ask.last)
            if found is None:
                if ask.last == self._last and start == self._at and not barred:
                    self._past.add(key)
                return ask.why
            checked = self._checked(ask, found, claims, barred, asked=start)
            if not isinstance(checked, int):
                return checked
            start = checked
        return None if self._window else _RESOURCES

    def _checked(
        self, ask: _Ask, found: Found, least: Claims, barred: dict[int, int], *, asked: int
    ) -> Spot | Wait | int:
        """Give the start that nodes have room for, if all else has too (`least` has from `asked` on); or the
        time at which to look again."""
        entry, job, demand, start = ask.entry, ask.job, ask.demand, found.start
        now, seconds = self._at, end_of(0, entry.limit_seconds)
        if self._resolution and start > now and start % self._resolution:
            return start + self._resolution - start % self._resolution
        picks = found.picks
        if self._busy and start > now and found.view is not None:
            bits = bitmap(node for node, until in barred.items() if until > start)
            picks = choose(demand, found.view, bits, busy=True) or picks
        end = end_of(start, entry.limit_seconds)
        rows = held_rows(demand, picks, end)
        claims = least
        if self.claimed.enforced:
            given = self.claimed.given(entry, job, picks, rows, demand)
            if isinstance(given, Wait):
                return given
            claims = given + ask.licences if ask.licences else given
        if start != asked or claims != least:
            again = self.claimed.earliest(claims, seconds, start)
            if again is None:
                return self.claimed.never(claims)
            if again != start:
                return again
        nodes = tuple([pick[0] for pick in picks])
        for rule in self.claimed.node_rules(entry):
            later = self.claimed.nodes.free_from(rule, nodes, start, end)
            if later != start:
                return later if later < FAR else Wait(rule.reason)
        spot = Spot(start, end, entry, ask.lane, demand, picks, nodes, rows, claims)
        if start == now:
            drawn = self._drawn(spot, job)
            if drawn is None:
                return now + 1
            spot = drawn
        if job.spec.deadline_at and spot.end > job.spec.deadline_at:
            spot = spot._replace(end=max(int(job.spec.deadline_at), start + 60))
        return spot

    def _barred(self, ask: _Ask, seconds: int, start: int) -> dict[int, int]:
        """Give the nodes that a job may not have before a time."""
        uid, now = ask.job.spec.uid, self._at
        barred = self._tenants.foreign(uid)
        if ask.lane.floating:
            always = [nodes for after, nodes in ask.lane.floating if seconds > after]
            if always:
                barred = {**barred, **dict.fromkeys((node for nodes in always for node in nodes), FAR)}
        if ask.demand.need.user and start <= now:
            here = members(self._scratch.barred(ask.demand, uid))
            there = self._tenants.others(uid, end_of(now, ask.entry.limit_seconds))
            barred = {**dict.fromkeys((*here, *there), now + 1), **barred}
        return barred

    # What starts at once.

    def _drawn(self, spot: Spot, job: Job) -> Spot | None:
        """Give a start with concrete cores and devices, as long as its limit may be; None: there are none, or a limit
        knows better than the pools."""
        entry, demand = spot.entry, spot.demand
        shares = self._draw(spot.lane.inside, demand, spot.picks, spot.end)
        if shares is None:
            return None
        name = entry.partition.name
        if self._gate is not None and self._gate.after(job, name, shares, entry.asked_seconds) is not None:
            return None
        counts_of = self._memory.fleet.counts_of
        end = spot.end
        rows = [(end, share.node, share.cpus, share.memory_mib, counts_of(share, name)) for share in shares]
        drawn = spot._replace(shares=shares, rows=rows)
        if entry.limit_seconds != entry.asked_seconds:
            drawn = drawn._replace(end=self._stretched(drawn))
        return drawn

    def _draw(
        self, inside: Reservation | None, demand: Demand, picks: Sequence[Pick], end: int
    ) -> tuple[NodeShare, ...] | None:
        scratch = self._scratch
        if not self._state.reservations:
            return scratch.draw(demand, list(picks))
        found = barred_by(self._state, inside, self._at, end, self._memory.bars)
        kept = scratch.cores, scratch.gpus
        scratch.cores, scratch.gpus = kept[0].copy(), kept[1].copy()
        for node, _, _ in picks:
            scratch.cores[node] &= ~found.cores.get(node, 0)
            scratch.gpus[node] &= ~found.gpus.get(node, 0)
        shares = scratch.draw(demand, list(picks))
        scratch.cores, scratch.gpus = kept
        return shares

    def _stretched(self, spot: Spot) -> int:
        """Give the end of a run that was planned as short as --time-min allows: nothing that is planned is in its
        way."""
        entry, start = spot.entry, spot.start
        until = FAR
        for _, node, *amounts, counts in spot.rows:
            wanted = (*amounts, *counts)
            for time, free in spot.lane.profiles.steps(node):
                if time >= until:
                    break
                if time > start and any(have < want for have, want in zip(free, wanted, strict=True)):
                    until = time
        limit = stretched(
            entry.asked_seconds, entry.jobs.request.time_min_minutes, -1 if until >= FAR else until - start
        )
        if self.claimed.earliest(spot.claims, end_of(0, limit), start) != start:
            return spot.end
        return end_of(start, limit)

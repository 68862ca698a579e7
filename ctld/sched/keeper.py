"""Makes promises, and keeps them from pass to pass while they hold and nothing earlier is possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.sched.backfill import Guard, Reservation, earliest, is_possible, reservation_of
from ctld.sched.board import Board
from ctld.sched.book import Hold
from ctld.sched.demand import Demand
from ctld.sched.fleet import View, free_view
from ctld.sched.memory import Entry
from ctld.sched.releases import FAR, Row, Timeline, end_of
from ctld.sched.select import Pick, choose
from ctld.sched.tries import due, patience_end
from ctld.sched.wake import Place
from muster.ids import UnixTime
from muster.states import Reason

Found = tuple[int, list[Pick], View]
Begun = tuple[Timeline, View]
"""What a search begins with: what comes free when, and what is free now."""


class Keeper:
    """Of one pass."""

    def __init__(self, state: State, at: UnixTime, board: Board, guard: Guard, taken: Mapping[int, list[Row]]) -> None:
        """Args:
        guard: the promises to those that the pass has come by.
        taken: node -> shares of the pass's starts; grows with these.
        """
        self._state = state
        self._at = at
        self._board = board
        self._guard = guard
        self._taken = taken
        self.relaxed: set[int] = set()
        """Nodes of which a promise that was kept leaves more to others than before."""

    def promise(self, entry: Entry, job: Job, place: Place, old: Hold | None) -> Hold:
        """Give what is promised to a job: what was already, if that holds and is the earliest; nothing is changed but
        the promise itself.

        Args:
            place: where the job stands.
            old: what the last pass promised in the partition, to this job or another.
        """
        assert entry.demand is not None
        asked = due(entry.demand, job, self._at)
        demand = asked.alone(entry.partition, entry.jobs.request)
        if asked.manner.switches:  # Its start hangs on time too.
            return self._for_few_switches(entry, job, place, asked)
        same = (
            old is not None
            and old.job_id == job.id
            and old.limit_seconds == entry.limit_seconds
            and (old.request is entry.jobs.request or old.request == entry.jobs.request)
        )
        if same and old is not None:
            old.place = place
            if self._stands(old):
                if self._is_earliest(old) or not self._may_be_sooner(old, demand):
                    return old
                found, begun = self._search(demand)
                if found is None or (old.reservation is not None and found[0] >= old.reservation.start_at):
                    self._check(old, demand, begun)
                    return old
                return self._made(entry, job, place, found, demand=demand, begun=begun)
        found, begun = self._search(demand)
        return self._made(entry, job, place, found, demand=demand, begun=begun)

    def is_untouched(self, hold: Hold) -> bool:
        """Tell whether nothing has changed that could break a promise or make an earlier one possible."""
        made = hold.reservation
        return (
            hold.checked
            and not hold.touched
            and (made is None or made.start_at > self._at)
            and _same(self._guard.reservations, hold.before)
        )

    def _made(self, entry: Entry, job: Job, place: Place, found: Found | None, *, demand: Demand, begun: Begun) -> Hold:
        reason, made = self._lacks(entry, job), None
        wait = Wait(reason)
        if found is not None:
            made = reservation_of(demand, job.id, found, entry.limit_seconds)
            if found[0] < FAR:
                wait = Wait(reason, "", UnixTime(found[0]), tuple(pick[0] for pick in found[1]))
        hold = Hold(job.id, entry.partition.name, entry.jobs.request, entry.limit_seconds, place, made, wait)
        self._check(hold, demand, begun)
        return hold

    def _for_few_switches(self, entry: Entry, job: Job, place: Place, asked: Demand) -> Hold:
        """Promise the earliest start, with more switches than asked for where that comes first although the job has to
        have lost its patience by then."""
        demand = asked.alone(entry.partition, entry.jobs.request)
        found, begun = self._search(demand)
        lax = asked.eventual.alone(entry.partition, entry.jobs.request)
        likely, _ = self._search(lax)
        if likely is not None:
            start = max(likely[0], patience_end(asked, job, self._at))
            if found is None or found[0] > start:
                return self._made(entry, job, place, (start, *likely[1:]), demand=lax, begun=begun)
        return self._made(entry, job, place, found, demand=demand, begun=begun)

    def _lacks(self, entry: Entry, job: Job) -> Reason:
        """Say what the job waits for: nodes at all, or nodes that lie in one domain of a level that it requires."""
        assert entry.demand is not None
        asked = due(entry.demand, job, self._at)
        if asked.manner.mode != "required":
            return Reason.RESOURCES
        view = self._guard.view(self._guard.rank(end_of(self._at, entry.limit_seconds)))
        return Reason.TOPOLOGY_LEVEL if choose(asked.relaxed, view) is not None else Reason.RESOURCES

    def _stands(self, hold: Hold) -> bool:
        """Tell whether what was promised can still be had; what it leaves to others is counted anew where it
        changed."""
        made, board = hold.reservation, self._board
        before = tuple(self._guard.reservations)
        if not _same(before, hold.before):
            for one in {id(one): one for one in (*before, *hold.before)}.values():
                if not (any(one is other for other in before) and any(one is other for other in hold.before)):
                    hold.touched.update(one.spare)
            hold.before = before
        if made is None:
            return hold.checked and not hold.touched
        late = made.start_at <= self._at
        nodes: Iterable[int] = made.spare
        if hold.checked and not late:
            nodes = [node for node in hold.touched if node in made.spare]
        if late:
            self._put_off(hold, made)
        for node in nodes:
            if board.memory.closed_later >> node & 1:
                return False
            left = board.spare(self._state, self._at, hold, node, self._taken.get(node, ()))
            if any(more > less for more, less in zip(left, made.spare[node], strict=True)):
                self.relaxed.add(node)
            made.spare[node] = left
            if min(left) < 0:
                return False
        return True

    def _put_off(self, hold: Hold, made: Reservation) -> None:
        """Let a promise whose time has come, with jobs still there that were to have ended, begin in a second."""
        made.end_at += self._at + 1 - made.start_at if made.end_at < FAR else 0
        made.start_at = self._at + 1
        made.held[:] = [(made.end_at, *row[1:]) for row in made.held]
        hold.wait = Wait(hold.wait.reason, "", UnixTime(made.start_at), hold.wait.nodes)
        for other in self._board.holds.values():
            if other is not hold:
                other.touched.update(made.spare)

    def _is_earliest(self, hold: Hold) -> bool:
        """Tell whether it is sure without a search that nothing earlier is possible."""
        made, units = hold.reservation, hold.units
        if not hold.checked:
            return False
        if made is not None and units is not None:
            time = made.start_at - 1
            if time > self._at:
                for node in hold.touched:
                    place = units.place[node]
                    if place < 0:
                        continue
                    taken = self._taken.get(node, ())
                    left = self._board.later(self._state, node, time, at=self._at, before=hold.before, taken=taken)
                    closed = self._board.memory.closed_later >> node & 1
                    now = 0 if closed else units.on(self._board.fleet.kind[node], left)
                    hold.total += now - int(hold.early[place])
                    hold.early[place] = now
                if hold.total >= units.wanted:
                    return False
        hold.touched.clear()
        return True

    def _may_be_sooner(self, hold: Hold, demand: Demand) -> bool:
        """Tell whether there would be a place a second before the start: what is not possible then is not before."""
        made = hold.reservation
        if made is None or made.start_at - 1 <= self._at:
            return True
        then = _just_before(made, self._begin())
        if is_possible(demand, then):
            return True
        self._note(hold, demand, then)
        return False

    def _check(self, hold: Hold, demand: Demand, begun: Begun) -> None:
        """Count what would be there a second before the start, to see later whether that comes to suffice."""
        made = hold.reservation
        soon = made is None or made.start_at - 1 <= self._at
        self._note(hold, demand, None if made is None or soon else _just_before(made, begun))

    def _note(self, hold: Hold, demand: Demand, then: View | None) -> None:
        """Remember beside what a promise was looked at; `then`: what is free a second before its start."""
        hold.before = tuple(self._guard.reservations)
        hold.checked = True
        hold.touched.clear()
        hold.total = 0
        if hold.reservation is None:
            return
        hold.units = self._board.lines.units(demand)
        if then is None:
            hold.early = hold.units.nodes * 0
            return
        hold.early = hold.units.count(then, self._board.fleet.kind_column)
        hold.total = int(hold.early.sum())

    def _search(self, demand: Demand) -> tuple[Found | None, Begun]:
        """Find the earliest start as running jobs end, beside what was promised to others; give also what the search
        began with."""
        timeline, base = begun = self._begin()
        return earliest(demand, base, timeline, {}), begun

    def _begin(self) -> Begun:
        board, memory = self._board, self._board.memory
        if memory.closed_now == memory.closed_later:
            base = board.view.copy()
        else:
            base = free_view(board.fleet, self._state.free, memory.closed_later)
            for rows in self._taken.values():
                _take(base, rows)
        held = [row for one in self._guard.reservations for row in one.held]
        _take(base, held)
        taken = [row for rows in self._taken.values() for row in rows]
        return memory.releases.timeline(self._at, [*taken, *held]), base


def _just_before(made: Reservation, begun: Begun) -> View:
    """Give what is free a second before a promised start."""
    timeline, base = begun
    then = base.copy()
    timeline.release(then, 0, made.start_at - 1)
    return then


def _take(view: View, rows: Iterable[Row]) -> None:
    for _, node, cpus, memory, gpus in rows:
        view.cpus[node] -= cpus
        view.memory[node] -= memory
        for column, count in zip(view.gpus, gpus, strict=True):
            column[node] -= count


def _same(one: Iterable[Reservation], other: tuple[Reservation, ...]) -> bool:
    listed = list(one)
    return len(listed) == len(other) and all(mine is theirs for mine, theirs in zip(listed, other, strict=True))

"""One scheduling pass: who starts now and where, who waits and why, and what is promised to the first who wait.

Order: partition tier, then job priority, then job id. The pass looks at the heads of classes, so that its cost grows
with the classes and the starts, never with the pending jobs. The first job of a partition that has to wait gets a
reservation; what comes behind it starts only where that is not delayed (`backfill`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from ctld.core.holds import barred as barred_by
from ctld.core.licenses import Licences
from ctld.core.limits.gate import Gate
from ctld.core.model import Job, NodeShare
from ctld.core.plan import Plan, Preempt, Start, Wait
from ctld.core.state import State
from ctld.core.times import limit_end, stretched
from ctld.sched.backfill import Guard, earliest, reservation_of
from ctld.sched.board import Board
from ctld.sched.cursor import Cursor
from ctld.sched.demand import Demand
from ctld.sched.event import EventPass
from ctld.sched.fleet import View, bitmap, free_view
from ctld.sched.licenses import NO_LICENCE
from ctld.sched.limits import Thresholds
from ctld.sched.memory import PRIORITY, Entry, PlanMemory
from ctld.sched.place import Scratch
from ctld.sched.preempt import Preempting
from ctld.sched.promised import Promised
from ctld.sched.releases import FAR, Row, end_of
from ctld.sched.reserved import Barred, Gaps, Ways, blocked_text, holds, waits_for_reservation
from ctld.sched.reserved_start import earliest_between, place_around
from ctld.sched.select import Pick, choose, fits_on
from ctld.sched.tries import due, patience_end, tries
from muster.ids import UnixTime
from muster.states import Reason

_LOOK_AHEAD_SECONDS = 366 * 86_400
"""So far ahead recurring reservations are looked at for planned starts."""
Item = tuple[int, int, int, Entry]
"""A class's head in line: tier, order key, place of the partition in the job's list (unique with the key), entry."""


def never() -> bool:
    """A budget that does not run out."""
    return False


def plan(
    state: State,
    at: UnixTime,
    *,
    reachable: int | npt.NDArray[np.bool_],
    spent: Callable[[], bool] = never,
    memory: PlanMemory | None = None,
) -> Plan:
    """Make one pass over the queue; the state is not changed.

    Args:
        state: what is.
        at: now.
        reachable: the nodes whose daemons answer, as a bitmap (bit = node index) or a column of booleans.
        spent: says when the time for this pass is over; then the plan holds what was found so far, and is not
            `complete`. At least one class is looked at.
        memory: what the last pass with the same state left behind; makes this one cheaper and changes no result.
    """
    memory = memory or PlanMemory()
    memory.follow(state, reachable)
    if plain(state):
        board = _board(state, at, memory, spent)
        if board.behind:
            return Plan(at, (), board.waits, board.class_waits, False)
        if not board.lines.odd:
            made = EventPass(state, at, board).run(spent)
            memory.prune(state)
            return made
    else:
        memory.board = None
        memory.holds.clear()
    return _anew(state, at, memory, spent)


def plan_anew(
    state: State, at: UnixTime, *, reachable: int | npt.NDArray[np.bool_], memory: PlanMemory | None = None
) -> Plan:
    """Make a pass that looks at every class and keeps no promise of an earlier one; see `plan`.

    For states that no memory follows: estimates of one job, and comparisons.
    """
    memory = memory or PlanMemory()
    memory.follow(state, reachable)
    return _anew(state, at, memory, never)


def _anew(state: State, at: UnixTime, memory: PlanMemory, spent: Callable[[], bool]) -> Plan:
    one = Pass(state, at, memory)
    one.line_up()
    one.run(spent)
    if one.complete:
        one.foretell()
    memory.seen = one.scratch.view
    memory.prune(state)
    found = tuple(one.starts), one.waits, one.class_waits, one.complete, tuple(one.preemptions)
    return Plan(at, *found, looked_at=one.looked_at)


def plain(state: State) -> bool:
    """Tell whether the event pass can do it: nothing but nodes, limits and licences is to be looked at."""
    settings = state.settings
    return (
        settings.backfill
        and not settings.preemption.rule
        and not settings.limit_stops_partition
        and not (state.reservations or state.booked or state.suspended or state.free.owned)
    )


def _board(state: State, at: UnixTime, memory: PlanMemory, spent: Callable[[], bool]) -> Board:
    """Give the board that the memory keeps, or a new one, brought up to the state as far as there is time."""
    board = memory.board
    if board is None or not board.is_about(state, memory) or not board.follow(state, at, spent):
        board = memory.board = Board(state, memory)
        board.follow(state, at, spent)
    return board


class Pass:
    """One pass; its stages are `line_up`, then for each head `_start` or `_wait`."""

    def __init__(self, state: State, at: UnixTime, memory: PlanMemory) -> None:
        self.state = state
        self.at = at
        self.memory = memory
        view = free_view(memory.fleet, state.free, memory.closed_now)
        memory.thaw(view)
        self.scratch = Scratch(state, memory.fleet, view)
        self.guard = Guard(view)
        self.gate = Gate(state, at) if state.limits.enforced else None
        self.thresholds = Thresholds(state, at)
        self.licences = Licences(state.settings.licenses, state.free.licenses)
        self.promised = Promised(state, memory.fleet, at, memory.closed_now, gate=self.gate, licences=self.licences)
        self.promised.keep_from(self.scratch)
        self.starts: list[Start] = list(self.promised.starts)
        self.preemptions: list[Preempt] = []
        self._preempting = (
            Preempting(state, memory.fleet, at, memory.closed_later, self.promised.promises)
            if state.settings.preemption.rule
            else None
        )
        self.complete = True
        self.looked_at = 0
        self.waits: dict[int, Wait] = dict(self.promised.waits)
        self.class_waits: dict[int, Wait] = {}
        self._taken: list[Row] = list(self.promised.started_rows)
        """Shares of this pass's starts."""
        self._line: list[Item] = []
        self._behind: dict[str, list[Item]] = {}
        """By partition the classes that are known to find no place: only the first of them matters."""
        self._cursors: dict[int, Cursor] = {}
        self._ways: Ways | None = None
        self._gaps: Gaps | None = None
        """Times of advance reservations, made when a pass first asks."""
        self._kept_out: dict[str, tuple[Entry, Job]] = {}
        """By partition the first job that waits for the reservations of others."""
        self._closed: set[str] = set()
        """Advance reservations in which a job waits for resources."""
        self._stopped: set[str] = set()
        """Partitions in which nothing starts behind a job that a limit keeps back (assoc_limit_stop)."""
        self._blocked: set[str] = set()
        """Partitions in which a job waits for resources."""
        self._stuck: dict[int, int] = {}
        """Demand number -> least rank (see Guard) at which it found no place in this pass."""
        self._room: dict[int, int] = {}
        """Rank -> see `_room_of`."""
        self._last: tuple[Demand | None, int, int] = (None, 0, 0)
        """Demand, rank and node of the last start on one node."""

    def line_up(self) -> None:
        """Put the head of each class in line, for each partition that it may use."""
        line, behind, class_waits, entries_of = self._line, self._behind, self.class_waits, self.memory.entries
        for number, jobs in self.state.queue.classes.items():
            key = jobs.head_key
            standing = None
            for entry in entries_of(self.state, jobs):
                if entry.bar is not None:
                    standing = standing or entry.bar
                    continue
                standing = PRIORITY
                item = (entry.tier, key, entry.place, entry)
                if entry.demand.no_fit and not entry.reserved:  # type: ignore[union-attr]  # No bar: there is a demand.
                    behind.setdefault(entry.partition.name, []).append(item)
                else:
                    line.append(item)
            class_waits[number] = standing or PRIORITY
        heapify(line)
        for items in behind.values():
            heapify(items)
            heappush(line, heappop(items))

    def run(self, spent: Callable[[], bool]) -> None:
        """Go through the line, until the budget runs out."""
        line, cursors, blocked, stopped = self._line, self._cursors, self._blocked, self._stopped
        backfill = self.state.settings.backfill
        while line:
            tier, key, place, entry = heappop(line)
            name = entry.partition.name
            if name in blocked and not entry.reserved and (not backfill or self._is_stuck(entry)):
                continue
            if name in stopped:
                continue
            cursor = cursors.get(entry.jobs.id)
            if cursor is None:
                cursor = cursors[entry.jobs.id] = Cursor(self.state, entry.jobs, self.waits, self.promised)
            while cursor.key == key:
                self.looked_at += 1
                outcome = self._start(entry, cursor)
                if outcome is not True and not (outcome is False and self._make_room(entry, cursor)):
                    if outcome is False:
                        self._wait(entry, cursor)
                    else:
                        self._pass_by(entry, outcome)
                    break
                if spent():
                    self.complete = False
                    return
            else:  # The class went on to another job, which may stand behind others.
                if cursor.key:
                    heappush(line, (tier, cursor.key, place, entry))
                self._call_next(entry.partition.name)
            if line and spent():
                self.complete = False
                return

    def _is_stuck(self, entry: Entry, tried: Demand | None = None) -> bool:
        """Tell whether this pass has found already that jobs of this shape and length have no place."""
        demand = tried or entry.demand
        assert demand is not None  # Entries without a demand have a bar and are not lined up.
        if tried is None and demand.varies:
            return False
        rank = self.guard.rank(end_of(self.at, entry.limit_seconds))
        return demand.no_fit or self._stuck.get(demand.number, rank + 1) <= rank

    def _start(self, entry: Entry, cursor: Cursor) -> bool | Wait:
        """Start the job (or the member) at the cursor, if there is a place; tell whether it did, or which limit it is
        that keeps the job from starting."""
        demand, job = entry.demand, cursor.job
        assert demand is not None
        if entry.limited:
            limited = self._limited(entry, job)
            if limited is not None:
                return limited
        if not demand.varies:
            return self._place(entry, cursor, demand)
        outcome: bool | Wait = False
        for tried in tries(demand, job, self.at):
            outcome = self._place(entry, cursor, tried)
            if outcome is not False:
                break
        return outcome

    def _place(self, entry: Entry, cursor: Cursor, demand: Demand) -> bool | Wait:
        """Start the job at the cursor on what a demand says; see `_start`."""
        job, scratch = cursor.job, self.scratch
        if self._is_stuck(entry, demand):
            return False
        end = end_of(self.at, entry.limit_seconds)
        rank = self.guard.rank(end)
        view = self.guard.view(rank)
        barred = scratch.barred(demand, job.spec.uid) if scratch.owned or demand.by_node else 0
        if entry.reserved or self.state.reservations:
            ways = self._ways_of(job, end)
            if len(ways) != 1 or ways[0][0] or ways[0][1]:
                return self._start_around(entry, cursor, demand, end, ways=ways, barred=barred)
        last = self._last
        if last[0] is demand and last[1] == rank and not barred and fits_on(demand, view, last[2]):
            # The tightest node got tighter still: it stays the best.
            picks: list[Pick] | None = [(last[2], demand.tasks, demand.need.gpus_total[0])]
        elif demand.least_cpus > self._room_of(rank):
            picks = None
        else:
            picks = choose(demand, view, barred)
        shares = scratch.draw(demand, picks) if picks else None
        if shares is None:
            if not barred and not demand.by_node:
                self._stuck[demand.number] = rank
                # Remembering it for later passes takes that no reservation was in the way. Where shares are uneven
                # nearly anything that comes free may help, so that looking again is not worth it.
                if not demand.varies:
                    demand.no_fit = not rank or (not demand.need.uneven and choose(demand, scratch.view) is None)
            return False
        limited = self._limited_on(entry, job, shares)
        if limited is not None:
            return limited
        scratch.take(demand, shares, job.spec.uid)
        sticky = demand.sticky and len(shares) == 1 and not barred
        self._last = (demand, rank, shares[0].node) if sticky else (None, 0, 0)
        self._note_start(entry, cursor, shares, end)
        return True

    def _limited(self, entry: Entry, job: Job) -> Wait | None:
        """Say what keeps the job from starting on any nodes."""
        limited = None
        if entry.asked is not None and self.gate is not None:
            limited = self.thresholds.bar(entry.rules) if entry.rules is not None else None
            limited = limited or self.gate.before(job, entry.partition.name, entry.asked)
        if limited is None and entry.licenses and self.licences.free(entry.licenses) is None:
            limited = NO_LICENCE
        return limited

    def _limited_on(self, entry: Entry, job: Job, shares: tuple[NodeShare, ...]) -> Wait | None:
        """Say which limit keeps the job from starting on these nodes."""
        if self.gate is None:
            return None
        return self.gate.after(job, entry.partition.name, shares, entry.asked_seconds)

    def _start_around(
        self, entry: Entry, cursor: Cursor, demand: Demand, end: int, *, ways: list[tuple[str, Barred]], barred: int
    ) -> bool | Wait:
        """Start the job at the cursor in one of its reservations, or around those of others; see `_start`."""
        job = cursor.job
        self._last = (None, 0, 0)
        view = self.guard.view(self.guard.rank(end))
        for name, found in ways:
            if (name and name in self._closed) or demand.within(found.nodes):
                continue
            shares = place_around(
                self.scratch,
                demand,
                view,
                found,
                bits=barred,
                uid=job.spec.uid,
                check=lambda drawn: self._limited_on(entry, job, drawn),
            )
            if isinstance(shares, Wait):
                return shares
            if shares is not None:
                self._note_start(entry, cursor, shares, end, name)
                return True
        return False

    def _wait_around(self, entry: Entry, cursor: Cursor) -> bool:
        """Say why a job waits that waits for a reservation, its own or those of others: that closes no partition.
        False: it waits for something else."""
        job, number = cursor.job, entry.jobs.id
        assert entry.demand is not None
        demand = due(entry.demand, job, self.at)
        end = end_of(self.at, entry.limit_seconds)
        ways = self._ways_of(job, end)
        others = False
        if job.spec.request.reservations:
            if not ways:
                wait = waits_for_reservation(self.state, job, self.at)
                others = wait.reason is Reason.RESERVATION_INVALID
            else:
                open_yet = [name for name, _ in ways if name not in self._closed]
                wait = Wait(Reason.RESOURCES) if open_yet else PRIORITY
                self._closed.update(open_yet)
        else:
            found = ways[-1][1]
            if not found or not (demand.within(found.nodes) or self._fits_now(demand, job, end)):
                return False
            wait = blocked_text(found, demand.required_bits) or Wait(Reason.RESOURCES)
            self._kept_out.setdefault(entry.partition.name, (entry, job))
            others = self._ways is not None and self._ways.magnetic
        self.waits[job.id] = wait
        self.class_waits[number] = PRIORITY if others else replace(wait, start_at=UnixTime(0), nodes=())
        if others:  # The next job of the class may have other rights.
            cursor.next_job()
            if cursor.key:
                heappush(self._line, (entry.tier, cursor.key, entry.place, entry))
        self._call_next(entry.partition.name)
        return True

    def foretell(self) -> None:
        """Give the first job of each partition that waits for the reservations of others its planned start. Done
        last: it may take longer than a pass has, and nobody's start hangs on it."""
        for entry, job in self._kept_out.values():
            assert entry.demand is not None
            likely = self._likely(due(entry.demand, job, self.at), job, entry)[1]
            if likely is not None and likely[0] < FAR and job.id in self.waits:
                start, nodes = UnixTime(likely[0]), tuple(pick[0] for pick in likely[1])
                self.waits[job.id] = replace(self.waits[job.id], start_at=start, nodes=nodes)

    def _ways_of(self, job: Job, end: int) -> list[tuple[str, Barred]]:
        """Give the reservations in which a job may start now and run to `end`, and what is barred in each."""
        if self._ways is None:
            self._ways = Ways(self.state, self.at, self.memory.bars)
        return self._ways.of(job, end)

    def _fits_now(self, demand: Demand, job: Job, end: int) -> bool:
        """Tell whether a job would start now if nothing were reserved."""
        view = self.guard.view(self.guard.rank(end))
        return choose(demand, view, self.scratch.barred(demand, job.spec.uid)) is not None

    def _room_of(self, rank: int) -> int:
        """Give a bound on the CPUs that are free for jobs of this rank: the sum when it was first asked for, which
        only falls."""
        room = self._room.get(rank)
        if room is None:
            room = self._room[rank] = self.guard.view(rank).total_cpus()
        return room

    def _note_start(
        self, entry: Entry, cursor: Cursor, shares: tuple[NodeShare, ...], end: int, reservation: str = ""
    ) -> None:
        name = entry.partition.name
        by = "Backfill" if name in self._blocked else "Main"
        limit = self._stretched(entry, shares, end) if entry.jobs.request.time_min_minutes else 0
        end = end_of(self.at, limit) if limit else end
        held = self.licences.take(entry.licenses) if entry.licenses else ""
        self.starts.append(Start(cursor.job.id, name, shares, cursor.task, by, reservation, held, limit))
        self.waits.pop(cursor.job.id, None)
        if self.guard.reservations and self.guard.drop(cursor.job.id):
            # It waited in a partition of higher tier. What its promise kept others from is for the next pass.
            self.complete = False
            self._forget_ranks()
        if self.gate is not None:
            self.gate.took(cursor.job, name, shares, limit or entry.limit_seconds)
        fleet = self.memory.fleet
        for share in shares:
            gpus = fleet.counts_of(share, name)
            self._taken.append((end, share.node, share.cpus, share.memory_mib, gpus))
        self.guard.took(fleet, shares, end, name)
        cursor.started()

    def _stretched(self, entry: Entry, shares: tuple[NodeShare, ...], end: int) -> int:
        """Give the limit of a run that was planned as short as --time-min allows: as long as nothing is in its way."""
        asked = entry.asked_seconds
        start = self.guard.until([share.node for share in shares], end)
        until = -1 if start < 0 else start - self.at
        if self.state.reservations:
            found = barred_by(self.state, None, self.at, end_of(self.at, asked))
            if any(found.forbids(share) for share in shares):
                until = entry.limit_seconds
        return stretched(asked, entry.jobs.request.time_min_minutes, until)

    def _make_room(self, entry: Entry, cursor: Cursor) -> bool:
        """Preempt others for the job at the cursor, where it may; the job waits for them to go then."""
        name, job = entry.partition.name, cursor.job
        if self._preempting is None or name in self._blocked or entry.demand is None or self.memory.lost(entry):
            return False
        if job.spec.request.reservations:
            return False  # What is reserved for it nobody else has.
        end = end_of(self.at, entry.asked_seconds)
        closed = 0
        if self.state.reservations:
            found = barred_by(self.state, None, self.at, end)
            closed = found.nodes | bitmap([*found.cores, *found.gpus])
        rank = self.guard.rank(end)
        made = self._preempting.room_for(
            due(entry.demand, job, self.at),
            job,
            entry.partition,
            self.starts,
            task_id=cursor.task,
            bound=lambda view: self.guard.cap(view, rank),
            closed=closed,
        )
        if made is None:
            return False
        self.preemptions.append(made)
        self.waits[job.id] = self.promised.add(self.scratch, made)
        cursor.next_job()
        return True

    def _wait(self, entry: Entry, cursor: Cursor) -> None:
        """Say why the job at the cursor waits; the first one of its partition gets a reservation."""
        name, job = entry.partition.name, cursor.job
        asked = bool(job.spec.request.reservations)
        if (asked or self.state.reservations) and self._wait_around(entry, cursor):
            return
        if name in self._blocked:
            return
        if self.memory.lost(entry):
            assert entry.demand is not None
            self.class_waits[entry.jobs.id] = self.memory.unavailable(entry.demand)
            self._call_next(name)
            return
        self._blocked.add(name)
        wait = self._reserve(entry, job)
        known = self.waits.get(job.id)
        if known is None or not known.start_at or 0 < wait.start_at < known.start_at:
            self.waits[job.id] = wait

    def _pass_by(self, entry: Entry, limited: Wait) -> None:
        """Leave a class out that a limit keeps from starting: nobody behind it waits for that."""
        self.class_waits[entry.jobs.id] = limited
        if self.state.settings.limit_stops_partition and limited is not NO_LICENCE:
            self._stopped.add(entry.partition.name)
            return
        self._call_next(entry.partition.name)

    def _call_next(self, name: str) -> None:
        """Put the next class that is known to find no place in line: the one before it did not close the partition."""
        if self._behind.get(name):
            heappush(self._line, heappop(self._behind[name]))

    def _reserve(self, entry: Entry, job: Job) -> Wait:
        """Promise the job the earliest start, and guard it."""
        assert entry.demand is not None
        asked = due(entry.demand, job, self.at)
        reason = self._lacks(asked, job, entry)
        demand, found = self._likely(asked, job, entry)
        if found is None:
            return Wait(reason)
        start, picks, _ = found
        self.guard.add(reservation_of(demand, job.id, found, entry.limit_seconds))
        self._forget_ranks()
        if start >= FAR:
            return Wait(reason)
        return Wait(reason, "", UnixTime(start), tuple(pick[0] for pick in picks))

    def _lacks(self, demand: Demand, job: Job, entry: Entry) -> Reason:
        """Say what the job waits for: nodes at all, or nodes that lie in one domain of a level that it requires."""
        if demand.manner.mode != "required":
            return Reason.RESOURCES
        fits = self._fits_now(demand.relaxed, job, end_of(self.at, entry.limit_seconds))
        return Reason.TOPOLOGY_LEVEL if fits else Reason.RESOURCES

    def _likely(self, asked: Demand, job: Job, entry: Entry) -> tuple[Demand, tuple[int, list[Pick], View] | None]:
        """Find the earliest start, with more switches than asked for where that comes first although the job has to
        have lost its patience by then; and the demand that it is for."""
        demand = asked.alone(entry.partition, entry.jobs.request)
        found = self._earliest(demand, job, entry.limit_seconds)
        if not asked.manner.switches:
            return demand, found
        lax = asked.eventual.alone(entry.partition, entry.jobs.request)
        likely = self._earliest(lax, job, entry.limit_seconds)
        if likely is None:
            return demand, found
        start = max(likely[0], patience_end(asked, job, self.at))
        if found is not None and found[0] <= start:
            return demand, found
        if self._gaps is not None:
            duration = end_of(0, entry.limit_seconds)
            if not all(self._gaps.is_free(node, start, duration) for node, _, _ in likely[1]):
                return demand, found
        return lax, (start, *likely[1:])

    def _earliest(self, demand: Demand, job: Job, limit_seconds: int) -> tuple[int, list[Pick], View] | None:
        """Find the earliest start as running jobs end, beside what was promised to others."""
        base = self._base()
        held = [row for one in self.guard.reservations for row in one.held] + self.promised.rows
        for _, node, cpus, memory, gpus in held:
            base.cpus[node] -= cpus
            base.memory[node] -= memory
            for column, count in zip(base.gpus, gpus, strict=True):
                column[node] -= count
        self.memory.releases.follow(self.state)
        rows = [*self._taken, *held]
        releases, foreign = self.memory.releases, self._foreign(job.spec.uid)
        if not self.state.reservations:
            return earliest(demand, base, releases.timeline(self.at, rows), foreign)
        if self._gaps is None:
            self._gaps = Gaps(holds(self.state, self.at, self.at + _LOOK_AHEAD_SECONDS))

        def search(events: list[Row], barred_until: dict[int, int]) -> tuple[int, list[Pick], View] | None:
            return earliest(demand, base, releases.timeline(self.at, [*rows, *events]), barred_until)

        duration = end_of(0, limit_seconds)
        return earliest_between(
            self._gaps, self.at, duration=duration, barred_until=foreign, search=search, columns=len(base.gpus)
        )

    def _forget_ranks(self) -> None:
        """Drop what was noted by rank: ranks mean something else now."""
        self._stuck.clear()
        self._room.clear()

    def _base(self) -> View:
        """Give what is free now, nodes being cleaned up included."""
        memory = self.memory
        if memory.closed_now == memory.closed_later and self.promised.promises is None and not self.preemptions:
            return self.scratch.view.copy()
        base = free_view(memory.fleet, self.state.free, memory.closed_later)
        for _, node, cpus, mib, gpus in self._taken:
            base.cpus[node] -= cpus
            base.memory[node] -= mib
            for column, count in zip(base.gpus, gpus, strict=True):
                column[node] -= count
        return base

    def _foreign(self, uid: int) -> dict[int, int]:
        """Give the nodes that belong to another user, with the time at which all jobs there have ended."""
        if not self.scratch.owned:
            return {}
        until: dict[int, int] = {}
        state = self.state
        for node, owner in enumerate(self.scratch.owner):
            if owner in (-1, uid):
                continue
            jobs = [state.jobs[job_id] for job_id in state.node_jobs[node]]
            ends = [FAR if limit_end(job, self.at) < 0 else limit_end(job, self.at) for job in jobs]
            ends += [row[0] for row in self._taken if row[1] == node]
            until[node] = max(ends, default=self.at)
        return until

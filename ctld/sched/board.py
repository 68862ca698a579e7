"""What the event pass knows when it begins: the lines, what is free, the promises, and what has changed since.

Everything here follows the logs of the state. It can be thrown away at any time; the next pass then looks at all lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush

from ctld.core.changes import ChangeLog
from ctld.core.plan import Wait
from ctld.core.queue import Queue
from ctld.core.state import State
from ctld.sched.backfill import Reservation
from ctld.sched.book import Hold
from ctld.sched.cursor import Cursor
from ctld.sched.fleet import CLOSED, View, free_view, members
from ctld.sched.lines import Line, Lines
from ctld.sched.memory import PRIORITY, PlanMemory
from ctld.sched.parked import Parked
from ctld.sched.releases import FAR, Releases, Row
from ctld.sched.wake import Cap, Place
from muster.ids import UnixTime

_MANY = 4096
_EMPTY = 4
"""With more lines than the one, and than the other times the classes, all are made anew."""


class Reader:
    """Reads a log on from where it stopped."""

    __slots__ = ("_log", "_place")

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._place = log.end

    def news(self) -> list[int] | None:
        """Give what changed since the last call; None: too much to tell."""
        found = self._log.since(self._place)
        self._place = self._log.end
        return found


class Board:
    """Kept between passes by whoever keeps a `PlanMemory`."""

    def __init__(self, state: State, memory: PlanMemory) -> None:
        self.memory = memory
        self.fleet = memory.fleet
        self.releases: Releases = memory.releases
        self.lines = Lines(memory.fleet)
        self.holds: dict[str, Hold] = memory.holds
        """By partition."""
        self.view: View = free_view(memory.fleet, state.free, memory.closed_now)
        """What is free, the starts of the last pass taken off."""
        self.waits: dict[int, Wait] = {}
        self.class_waits: dict[int, Wait] = {}
        self.parked = Parked()
        self.due: list[tuple[Place, int, Line]] = []
        """A heap of lines that a pass has to look at, by where they stand (or stood: see `Line.called`)."""
        self.behind: set[int] = set()
        """Classes that are still to be looked at before a pass can be made: time ran out."""
        self.headless: set[str] = set()
        """Partitions whose first job that has to wait is to be found."""
        self.again: set[int] = set()
        """Classes that the last pass touched."""
        self.skipped: dict[int, list[int]] = {}
        """Class -> jobs at its head that wait for something of their own."""
        self.taken: set[int] = set()
        """Nodes that the last pass started jobs on."""
        self.opened: set[int] = set()
        """Nodes that have more free than before: lines may find a place there."""
        self.freed: set[int] = set()
        """Nodes of promises that were given up when it was too late to look at who could use them."""
        self._closed = memory.closed_now
        self._closed_later = memory.closed_later
        self._touched: set[int] = set()
        self._moved: set[int] = set()
        """Nodes that changed, and those of them on which runs did, since lines were last woken."""
        self._state_queue: Queue = state.queue
        self._free = state.free
        self._nodes = Reader(state.free.log)
        self._classes = Reader(state.queue.log)
        self._runs = Reader(state.run_log)
        self._moved_on = False
        """Runs began or ended: what jobs in `skipped` wait for may be there."""
        self._first = True

    def is_about(self, state: State, memory: PlanMemory) -> bool:
        """Tell whether this is still about the same queue and nodes."""
        lines = len(self.lines.all)
        return (
            state.queue is self._state_queue
            and state.free is self._free
            and memory.fleet is self.fleet
            and (lines < _MANY or lines < _EMPTY * len(state.queue.classes))  # Else most of them are empty.
        )

    def follow(self, state: State, at: UnixTime, spent: Callable[[], bool]) -> bool:
        """Bring everything up to the state, or as much of it as there is time for (see `behind`); False: too much
        changed, a new board is cheaper.

        Args:
            spent: says when the time is over; asked after each class.
        """
        changed = self._nodes.news()
        classes = self._classes.news()
        if changed is None or (classes is None and not self._first):
            return False
        touched = self._touched
        touched.update(changed, self.taken, self.freed)
        self._follow_closings()
        self._moved.update(self.releases.follow(state))
        if self._first:
            self._first = False
            touched.clear()  # The view is new.
            for hold in self.holds.values():
                hold.checked = False
            classes = list(state.queue.classes)
        behind = self.behind
        runs = self._runs.news()
        self._moved_on = self._moved_on or runs is None or bool(runs)
        if self._moved_on and not behind:  # Else they could keep a pass that has little time from ever being made.
            self._moved_on = False
            behind.update(self.skipped)
        behind.update(classes or (), self.again)
        self.again = set()
        while behind:
            self._derive(state, behind.pop())
            if behind and spent():
                return True
        self.behind = set()  # One that has been large is slow to take from for ever.
        self._follow_nodes(state, at, touched, touched | self._moved)
        self._touched, self._moved, self.taken, self.freed = set(), set(), set(), set()
        for number, line in self.parked.released(state):
            self._unpark(number, line)
        for line in self.lines.timed:
            line.awake = True
            self.consider(line)
        return True

    def _follow_closings(self) -> None:
        """Take over which nodes can be used, now and later."""
        memory = self.memory
        if memory.closed_now != self._closed:
            self._touched.update(members(memory.closed_now ^ self._closed))
            self._closed = memory.closed_now
        if memory.closed_later != self._closed_later:
            for node in members(memory.closed_later ^ self._closed_later):
                for hold in self.holds.values():
                    hold.touch(node)
            self._closed_later = memory.closed_later
            for number, line in self.parked.found_again():
                self._unpark(number, line)

    def _derive(self, state: State, number: int) -> None:
        """Find the first job of a class, and put the class where it stands."""
        for job_id in self.skipped.pop(number, ()):
            self.waits.pop(job_id, None)
        jobs = state.queue.classes.get(number)
        lines = self.lines
        before = lines.heads.get(number)
        if jobs is None:
            self.class_waits.pop(number, None)
            for line in lines.leave(number):
                self.parked.forget(number, line)
                self.stand(line)
            return
        entries = self.memory.entries(state, jobs)
        mine = lines.join(jobs, entries)
        if number not in self.class_waits:
            standing = None
            for entry in entries:
                standing = PRIORITY if entry.bar is None else standing or entry.bar
            self.class_waits[number] = standing or PRIORITY
        if not mine:
            return
        noted: dict[int, Wait] = {}
        cursor = Cursor(state, jobs, noted)
        if noted:
            self.skipped[number] = list(noted)
            self.waits.update(noted)
        key = cursor.key
        if not key:
            lines.heads.pop(number, None)
            for line in mine:
                self.stand(line)
            return
        if key != before:
            lines.heads[number] = key
            for line in mine:
                line.push(number, key)
                if number not in line.parked:
                    self.consider(line)

    def consider(self, line: Line) -> None:
        """Look at a line in this pass if its first job, which may be new there, could find a place or is to be
        promised one."""
        first = self.stand(line)
        if first is None:
            return
        place = line.standing(first[0])
        if line.awake:
            self.call(line, place)
            return
        hold = self.holds.get(line.partition)
        if hold is None or place < hold.place:
            self.call(line, place)
        if place < line.stuck:
            # What kept those behind may stand behind this one.
            if any(place < other.place < line.stuck for other in self.holds.values()):
                line.awake = True
                self.call(line, place)
            else:
                line.stuck = place

    def stand(self, line: Line) -> tuple[int, int] | None:
        """Note where the first job of a line stands; give its order key and class."""
        first = line.first(self.lines.heads)
        self.lines.table.stands(line.number, None if first is None else first[0])
        return first

    def call(self, line: Line, place: Place) -> None:
        """Have a pass look at a line whose first job stands there."""
        if line.called != place:
            line.called = place
            heappush(self.due, (place, line.number, line))

    def _unpark(self, number: int, line: Line) -> None:
        line.parked.discard(number)
        if number in self.class_waits:
            self.class_waits[number] = PRIORITY
        key = self.lines.heads.get(number)
        if key is not None and number in line.entries:
            line.push(number, key)
            self.consider(line)

    def _follow_nodes(self, state: State, at: UnixTime, touched: set[int], moved: set[int]) -> None:
        """Take over what is free on the nodes that changed, and wake the lines that may find a place there."""
        view = self.view
        columns = [view.cpus, view.memory, *view.gpus]
        for hold in self.holds.values():
            made = hold.reservation
            for node in moved:
                hold.touch(node)
                if made is not None and node in made.spare and hold.checked:
                    left = self.spare(state, at, hold, node)
                    if any(more > less for more, less in zip(left, made.spare[node], strict=True)):
                        self.freed.add(node)
                        touched.add(node)
                    made.spare[node] = left
        for node in sorted(touched):
            now = self.free_on(state, node)
            if self._closed >> node & 1:
                now[0] = CLOSED
            grown, changed = node in self.freed, False
            for column, value in zip(columns, now, strict=True):
                if column[node] != value:
                    grown, changed = grown or value > column[node], True
                    column[node] = value
            if grown or self.lines.by_node:
                self.opened.add(node)
            elif changed and self.lines.table.counts(node):
                self.fits(node, at)

    def spare(self, state: State, at: int, hold: Hold, node: int, taken: Iterable[Row] = ()) -> list[int]:
        """Give what a promise leaves of one of its nodes to jobs that outlast its start; below 0: it does not hold.

        Args:
            taken: shares of jobs that this pass has started there.
        """
        made = hold.reservation
        assert made is not None
        left = self.later(state, node, made.start_at, at=at, before=hold.before, taken=taken)
        for _, where, cpus, memory, gpus in made.held:
            if where == node:
                return [have - want for have, want in zip(left, (cpus, memory, *gpus), strict=True)]
        return left

    def later(
        self, state: State, node: int, time: int, *, at: int, before: Iterable[Reservation], taken: Iterable[Row]
    ) -> list[int]:
        """Give what is free on a node at a later time, when jobs have ended at their limits, beside promises.

        Args:
            taken: shares of jobs that this pass has started there.
        """
        left = self.free_on(state, node)
        soonest = at + 1
        rows = [(row, 1) for row in self.releases.on_node.get(node, {}).values() if max(row[0], soonest) <= time]
        rows += [(row, -1) for row in taken if row[0] > time]
        held = [row for one in before if node in one.spare for row in one.held if row[1] == node]
        rows += [(row, -1) for row in held if row[0] > time]
        for (_, _, cpus, memory, gpus), sign in rows:
            left[0] += sign * cpus
            left[1] += sign * memory
            for column, count in enumerate(gpus, 2):
                left[column] += sign * count
        return left

    def free_on(self, state: State, node: int) -> list[int]:
        """Give what is nobody's on a node: CPUs, memory, GPUs by column."""
        free = state.free
        if self.fleet.width == 1:
            return [int(free.cpus[node]), int(free.memory[node]), int(free.gpu_count[node])]
        rows = free.rows[node] if free.rows else {}
        counts = self.fleet.free_counts(node, free.cores[node], free.gpus[node], more=free.more[node], rows=rows)
        return [int(free.cpus[node]), int(free.memory[node]), *counts]

    def fits(self, node: int, at: int) -> int:
        """Follow a change of a node; give the lines that may find a place with it, as a bitmap."""
        view = self.view
        free = [int(column[node]) for column in (view.cpus, view.memory, *view.gpus)]
        caps = []
        for hold in self.holds.values():
            made = hold.reservation
            # No job outlasts what starts when those without limit have ended.
            if made is not None and node in made.spare and made.start_at < FAR:
                caps.append(Cap(hold.place, made.start_at, made.spare[node]))
        return self.lines.table.on(node, free, caps, at)

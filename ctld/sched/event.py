"""The pass after an event: looks only at those lines of waiting jobs that something has come free for.

Decides as the plain pass (`cycle.Pass`) does, with one difference: promises are kept between passes while they hold and
no earlier start is possible, whereas the plain pass makes them anew each time. It is for states without advance
reservations, preemption and nodes that are kept for one user; `plan` of `cycle` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from ctld.core.licenses import Licences
from ctld.core.limits.book import Rule
from ctld.core.limits.gate import Gate
from ctld.core.model import Job, NodeShare
from ctld.core.plan import Plan, Start, Wait
from ctld.core.state import State
from ctld.core.times import stretched
from ctld.sched.backfill import Guard
from ctld.sched.board import Board
from ctld.sched.book import Hold
from ctld.sched.cursor import Cursor
from ctld.sched.demand import Demand
from ctld.sched.keeper import Keeper
from ctld.sched.licenses import NO_LICENCE
from ctld.sched.limits import Thresholds
from ctld.sched.lines import Line
from ctld.sched.memory import Entry
from ctld.sched.openings import Openings
from ctld.sched.place import Scratch
from ctld.sched.releases import Row, end_of
from ctld.sched.select import Pick, choose, fits_within
from ctld.sched.tries import tries
from ctld.sched.wake import NOWHERE, Place
from muster.ids import UnixTime


class EventPass:
    """One pass; `run` makes it."""

    def __init__(self, state: State, at: UnixTime, board: Board) -> None:
        self.state = state
        self.at = at
        self.board = board
        self.fleet = board.fleet
        self.scratch = Scratch(state, board.fleet, board.view)
        self.guard = Guard(board.view)
        self.gate = Gate(state, at) if state.limits.enforced else None
        self.thresholds = Thresholds(state, at)
        self.licences = Licences(state.settings.licenses, state.free.licenses)
        self.starts: list[Start] = []
        self.complete = True
        self.looked_at = 0
        self._taken: dict[int, list[Row]] = {}
        """Node -> shares of this pass's starts."""
        self._keeper = Keeper(state, at, board, self.guard, self._taken)
        self._kept: list[Hold] = []
        """What this pass promises."""
        self._beheaded: set[str] = set()
        """Partitions whose promised job started elsewhere after the pass had come by."""
        self._openings = Openings(board, at)
        self._cursors: dict[int, Cursor] = {}
        self._advanced = False
        """The last step was more than to come by a promise, of which there are few, and which each pass comes by."""
        self._begun: set[int] = set()
        """Classes of which jobs were started."""
        self._noted: dict[int, dict[int, Wait]] = {}
        """Class -> what its cursor said of jobs that it left out."""
        self._reaches: list[tuple[Place, str]] = []
        """A heap of places of promised jobs, with their partitions."""
        self._blocked: set[str] = set()
        """Partitions in which a job waits for resources."""
        self._now: Place = NOWHERE
        """Where the pass is."""

    def run(self, spent: Callable[[], bool]) -> Plan:
        """Make the pass; the board is brought up to what it chose."""
        board = self.board
        for partition in board.headless:
            self._openings.behead(partition)
        for partition, hold in board.holds.items():
            heappush(self._reaches, (hold.place, partition))
        for node in sorted(board.opened):
            self._openings.open(node)
        board.opened = set()
        while self._step(spent):
            if self._advanced and spent() and (board.due or self._reaches or self._openings.foremost() is not None):
                self.complete = False
            if not self.complete:
                break
        self._leave()
        board.memory.seen = None  # The plain pass has to look at everything again.
        waits = {
            hold.job_id: board.waits[hold.job_id]
            for hold in sorted(board.holds.values(), key=lambda hold: hold.place)
            if hold.job_id in board.waits
        }
        waits.update(board.waits)  # The promised come first, in their order.
        made = tuple(self.starts), waits, board.class_waits, self.complete
        return Plan(self.at, *made, looked_at=self.looked_at)

    def _step(self, spent: Callable[[], bool]) -> bool:
        """Do what comes next in order; False: nothing is left to do."""
        self._advanced = True
        opened = self._openings.foremost()
        place = NOWHERE
        if opened is not None:
            first = opened.first(self.board.lines.heads)
            assert first is not None
            place = opened.standing(first[0])
        due = self.board.due
        reach = self._reaches[0][0] if self._reaches else None
        if reach is not None and (opened is None or reach <= place) and (not due or reach <= due[0][0]):
            self._now, partition = heappop(self._reaches)
            self._reach(partition, spent)
            self._advanced = False
        elif due and (opened is None or due[0][0] <= place):
            self._now, _, line = heappop(due)
            if line.called == self._now:
                line.called = None
            self._visit(line, spent)
        elif opened is not None:
            self._now = place
            self._visit(opened, spent)
        else:
            return False
        return True

    def _leave(self) -> None:
        """Leave the board for the next pass."""
        board = self.board
        board.headless = (set() if self.complete else board.headless - self._blocked) | self._beheaded
        board.again.update(self._begun)
        for number, noted in self._noted.items():
            board.waits.update(noted)
            board.skipped.setdefault(number, []).extend(noted)
        board.taken.update(self._taken)
        if self.complete:
            self._openings.wake_the_rest()
        else:
            board.opened = self._openings.left()
        if self._beheaded or board.freed:
            self.complete = False

    def _behead(self, partition: str) -> None:
        """Look at all lines of a partition: the first job that has to wait is to be found."""
        self.board.headless.add(partition)
        self._openings.behead(partition)

    def _reach(self, partition: str, spent: Callable[[], bool]) -> None:
        """Come to where a promised job stands."""
        hold = self.board.holds.get(partition)
        if hold is None or hold.place != self._now:
            return
        if partition not in self._blocked:
            line = self._line_of(hold)
            if line is not None and not self._waits_on(hold, line):
                self._visit(line, spent)
        if partition in self._blocked:
            if self.board.holds.get(partition) is hold and not any(hold is one for one in self._kept):
                self._give_up(hold)
        elif self.board.holds.get(partition) is hold:  # Something else than nodes keeps it from starting.
            self._give_up(hold)
            self._behead(partition)

    def _waits_on(self, hold: Hold, line: Line) -> bool:
        """See to the promise of a job for which nothing has come free; False: there is more to be looked at."""
        board = self.board
        if line.awake or line.demand.varies or self._openings.nodes(line):
            return False
        _, number = line.first(board.lines.heads) or (0, 0)
        entry, job = line.entries[number], self.state.jobs[hold.job_id]
        if (entry.limited and self._limit_of(line, entry, job) is not None) or board.memory.lost(entry):
            return False
        if self._keeper.is_untouched(hold):
            self._promised(hold)
        else:
            self._wait(line, entry, job)
        return True

    def _line_of(self, hold: Hold) -> Line | None:
        """Give the line whose first job a promise is for."""
        members = self.state.queue.class_of(hold.job_id)
        if members is None:
            return None
        for line in self.board.lines.of_class(members.id):
            if line.partition == hold.partition:
                first = line.first(self.board.lines.heads)
                if first is not None and first[1] == members.id and line.standing(first[0]) == hold.place:
                    return line
        return None

    def _visit(self, line: Line, spent: Callable[[], bool]) -> None:
        """Start the first job of a line, or say why it waits."""
        heads = self.board.lines.heads
        while True:
            first = line.first(heads)
            nodes = [] if line.awake else self._openings.nodes(line)
            if first is None or not (line.awake or nodes or line.partition not in self._blocked):
                return
            key, number = first
            if line.standing(key) != self._now:
                self._follow(line)
                return
            entry = line.entries[number]
            cursor = self._cursors.get(number)
            if cursor is None:
                noted: dict[int, Wait] = {}
                cursor = self._cursors[number] = Cursor(self.state, entry.jobs, noted)
                self._noted[number] = noted
            if cursor.key != key:
                self._moved(number, cursor)
                return
            started = self._start(line, entry, cursor, nodes)
            if started is None:
                line.parked.add(number)
                self._follow(line)
                return
            if not started:
                if line.partition not in self._blocked:
                    self._wait(line, entry, cursor.job)
                return
            if cursor.key != key:
                self._moved(number, cursor)
                return
            if spent():
                self.complete = False
                self._follow(line)
                return

    def _follow(self, line: Line) -> None:
        """Go on with the next job of a line at its place."""
        self._openings.moved()
        first = self.board.stand(line)
        if first is not None and (line.awake or line.partition not in self._blocked):
            self.board.call(line, line.standing(first[0]))

    def _moved(self, number: int, cursor: Cursor) -> None:
        """Put a class where its next job stands."""
        lines = self.board.lines
        if cursor.key:
            lines.heads[number] = cursor.key
        else:
            lines.heads.pop(number, None)
        for line in lines.of_class(number):
            if cursor.key and number not in line.parked:
                line.push(number, cursor.key)
            self._follow(line)

    def _start(self, line: Line, entry: Entry, cursor: Cursor, nodes: list[int]) -> bool | None:
        """Start the job (or the member) at the cursor, if there is a place; None: something else keeps it.

        Args:
            nodes: where a line that is not awake may find one.
        """
        job, scratch = cursor.job, self.scratch
        self.looked_at += 1
        if entry.limited and self._is_limited(line, entry, job):
            return None
        if not (line.awake or nodes):
            return False
        rank = self.guard.rank(end_of(self.at, entry.limit_seconds))
        for demand in tries(line.demand, job, self.at) if line.demand.varies else (line.demand,):
            picks = self._pick(line, demand, rank, job, nodes)
            shares = scratch.draw(demand, picks) if picks else None
            if shares is not None:
                break
        if shares is None:
            if line.awake:
                line.awake, line.stuck = False, self._now
            line.failing = picks is not None
            self.board.lines.table.judged(line.number, lambda: self.guard.view(rank))
            self._openings.failed(line)
            return False
        if self.gate is not None:
            limited = self.gate.after(job, line.partition, shares, entry.asked_seconds)
            if limited is not None:
                self.board.class_waits[entry.jobs.id] = limited
                self.board.parked.for_a_pass(entry.jobs.id, line)
                return None
        scratch.take(demand, shares, job.spec.uid)
        self._note_start(line, entry, cursor, shares)
        return True

    def _pick(self, line: Line, demand: Demand, rank: int, job: Job, nodes: list[int]) -> list[Pick] | None:
        """Choose nodes for what is tried for a job."""
        if line.awake or not line.alone or line.failing:
            barred = self.scratch.barred(demand, job.spec.uid) if demand.by_node else 0
            return choose(demand, self.guard.view(rank), barred)
        return self._tightest(demand, rank, nodes)

    def _tightest(self, demand: Demand, rank: int, nodes: list[int]) -> list[Pick] | None:
        """Choose among a few nodes as `select.best_node` does among all."""
        weight, best = self.fleet.weight, None
        for node in nodes:
            left = self.guard.least(node, rank)
            if fits_within(demand, left, node):
                key = (weight[node], left[2], left[0], node)
                best = key if best is None or key < best else best
        return None if best is None else [(best[3], demand.tasks, demand.need.gpus_total[0])]

    def _is_limited(self, line: Line, entry: Entry, job: Job) -> bool:
        """Park a class that limits or licences keep from starting."""
        board, number = self.board, entry.jobs.id
        found = self._limit_of(line, entry, job)
        if found is None:
            return False
        board.class_waits[number], rule = found
        if rule is not None and self.gate is not None and entry.asked is not None:
            board.parked.for_limit(number, line, rule, entry.asked, self.gate.count(rule.key))
        elif found[0] is NO_LICENCE:
            board.parked.for_licence(number, line, self.state.free.licenses)
        else:
            board.parked.for_a_pass(number, line)
        return True

    def _limit_of(self, line: Line, entry: Entry, job: Job) -> tuple[Wait, Rule | None] | None:
        """Give what limits or licences say that keep a job from starting, and the rule that it is, if it is one."""
        if entry.asked is not None and self.gate is not None:
            wait = self.thresholds.bar(entry.rules) if entry.rules is not None else None
            if wait is not None:
                return wait, None
            found = self.gate.rule_before(job, line.partition, entry.asked)
            if found is not None:
                return Wait(found[0].reason, limit=found[1]), found[0]
        if entry.licenses and self.licences.free(entry.licenses) is None:
            return NO_LICENCE, None
        return None

    def _note_start(self, line: Line, entry: Entry, cursor: Cursor, shares: tuple[NodeShare, ...]) -> None:
        name, job, board = line.partition, cursor.job, self.board
        by = "Backfill" if name in self._blocked else "Main"
        end = end_of(self.at, entry.limit_seconds)
        limit = 0
        if entry.jobs.request.time_min_minutes:
            start = self.guard.until([share.node for share in shares], end)
            until = -1 if start < 0 else start - self.at
            limit = stretched(entry.asked_seconds, entry.jobs.request.time_min_minutes, until)
            end = end_of(self.at, limit) if limit else end
        held = self.licences.take(entry.licenses) if entry.licenses else ""
        self.starts.append(Start(job.id, name, shares, cursor.task, by, "", held, limit))
        self._consumed(job.id)
        board.waits.pop(job.id, None)
        if self.gate is not None:
            self.gate.took(job, name, shares, limit or entry.limit_seconds)
        for share in shares:
            gpus = self.fleet.counts_of(share, name)
            row = (end, share.node, share.cpus, share.memory_mib, gpus)
            self._taken.setdefault(share.node, []).append(row)
            for hold in board.holds.values():
                hold.touch(share.node)
        self.guard.took(self.fleet, shares, end, name)
        self._openings.taken([share.node for share in shares])
        self._begun.add(entry.jobs.id)
        cursor.started()

    def _consumed(self, job_id: int) -> None:
        """Take back what was promised to a job that starts."""
        board = self.board
        for hold in [hold for hold in board.holds.values() if hold.job_id == job_id]:
            if hold.partition in self._blocked:
                # It waited in a partition of higher tier. What its promise kept those from that the pass has come by is
                # for the next pass.
                self.guard.drop(job_id)
                del board.holds[hold.partition]
                self._beheaded.add(hold.partition)
                board.freed.update(hold.nodes)
                self._open(hold.nodes)
            else:
                self._give_up(hold)
                self._behead(hold.partition)

    def _give_up(self, hold: Hold) -> None:
        """Drop a promise, and let those who stand behind it look at what it kept."""
        board = self.board
        del board.holds[hold.partition]
        self._show(hold.job_id)
        self._open(hold.nodes)

    def _open(self, nodes: Iterable[int]) -> None:
        """Wake the lines behind that may find a place on nodes of which promises now leave more."""
        for node in sorted(nodes):
            self._openings.open(node, self._now)

    def _show(self, job_id: int) -> None:
        """Show the earliest of the starts that a job is promised."""
        waits = self.board.waits
        waits.pop(job_id, None)
        for hold in sorted(self.board.holds.values(), key=lambda hold: hold.place):
            if hold.job_id == job_id:
                known, wait = waits.get(job_id), hold.wait
                if known is None or not known.start_at or 0 < wait.start_at < known.start_at:
                    waits[job_id] = wait

    def _wait(self, line: Line, entry: Entry, job: Job) -> None:
        """Promise a start to the first job of a partition that has to wait."""
        board, name = self.board, line.partition
        if board.memory.lost(entry):
            board.class_waits[entry.jobs.id] = board.memory.unavailable(line.demand)
            board.parked.for_nodes(entry.jobs.id, line)
            line.parked.add(entry.jobs.id)
            self._follow(line)
            return
        old = board.holds.get(name)
        hold = self._keeper.promise(entry, job, self._now, old)
        if hold is not old:
            board.holds[name] = hold
            if old is not None:
                self._show(old.job_id)
        self._promised(hold)
        if old is not None and hold is not old:
            self._open(old.nodes)
        self._open(self._keeper.relaxed)
        self._keeper.relaxed.clear()

    def _promised(self, hold: Hold) -> None:
        """Let those behind look at a promise that is kept or made."""
        self._blocked.add(hold.partition)
        self._openings.blocked(hold.partition)
        self._kept.append(hold)
        if hold.reservation is not None:
            self.guard.add(hold.reservation)
        if self.board.waits.get(hold.job_id) is not hold.wait:
            self._show(hold.job_id)

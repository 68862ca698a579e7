"""What jobs wait for: which dependencies are met, which never will be, and what follows from that.

A job that starts, ends, or leaves its last node touches the jobs that have a clause on it (`State.dependants`). Each
of their clauses is judged again: met (it disappears), never (it stays, marked failed), or still open. As in Slurm,
"ended" is the end of the run *and* of its cleaning up (no COMPLETING), and a failed clause stays failed whatever
becomes of its target later. A target that left memory holds nobody back.

One thing differs from Slurm, to tell bad news early: afterok on a whole array fails with the first member that
fails, and does not wait for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.decide.cancel import end_pending
from ctld.core.decide.clauses import SINGLETON, parse, problem
from ctld.core.decide.outlook import Outlook
from ctld.core.events import (
    ArrayMemberSplit,
    ArrayTasksCancelled,
    DependencyChanged,
    Event,
    JobChanged,
    JobFinished,
    JobRequeued,
    JobStarted,
    NodesReleased,
)
from ctld.core.model import Clause, Job, Ranges
from ctld.core.state import State
from muster.errors import InvalidInput
from muster.ids import NO_TASK, JobId, UnixTime
from muster.slurm_errors import slurm_text
from muster.states import SPECIAL_EXIT, JobState, Reason

_PENDING = int(JobState.PENDING)
_SUSPENDED = int(JobState.SUSPENDED)
_COMPLETED = int(JobState.COMPLETED)
_TOUCHING = (JobStarted, JobFinished, ArrayTasksCancelled, JobRequeued, NodesReleased)
_NEEDS_SUCCESS = ("afterok", "aftercorr")


# ---- asking --------------------------------------------------------------------------------------------------


def on_submit(state: State, text: str, at: UnixTime) -> tuple[tuple[Clause, ...], bool]:
    """Read the dependency of a new job and judge it: what is left to wait for, and whether any one suffices.

    Raises:
        InvalidInput: the text is wrong, or names for afterok or afternotok a job that is not known.
    """
    clauses, any_suffices = parse(text)
    return _known(Outlook(state), clauses, at, any_suffices), any_suffices


def on_update(state: State, job: Job, text: str, at: UnixTime) -> tuple[tuple[Clause, ...], bool]:
    """Do the same for a job that exists; it may not wait for itself, nor for one that waits for it.

    Raises:
        InvalidInput: see `on_submit`; `Circular job dependency` for a loop.
    """
    clauses, any_suffices = parse(text)
    if any(_names(clause, job) for clause in clauses):
        raise problem(f"job {job.array_job_id or job.id} would wait for itself")
    outlook = Outlook(state)
    if _reaches(outlook, clauses, job):
        raise InvalidInput(
            slurm_text(2071), f"one of these jobs waits, in the end, for job {job.id} itself", slurm_code=2071
        )
    return _known(outlook, clauses, at, any_suffices), any_suffices


def never_met(clauses: Sequence[Clause], any_suffices: bool) -> bool:
    """Tell whether what is left can no longer be met."""
    if not clauses:
        return False
    failed = [clause.failed for clause in clauses]
    return all(failed) if any_suffices else any(failed)


# ---- following -----------------------------------------------------------------------------------------------


def follow(state: State, events: Sequence[Event], at: UnixTime) -> list[Event]:
    """Give what follows for other jobs from events that are decided and not yet applied.

    Chains are followed to their end: a job that is cancelled because its dependency failed touches those that wait
    for it. What the events say of dependencies themselves is not said again. Costs nothing worth mention while
    nobody waits for the jobs of the events.
    """
    if not any(_touches(state, event) for event in events):
        return []
    work = _Follow(state, at)
    for event in events:
        work.take(event)
    work.run()
    return work.events


def settled(state: State, job_id: JobId, at: UnixTime) -> list[Event]:
    """Give what follows for other jobs from the present state of one job (its events are applied already)."""
    job = state.jobs.get(job_id)
    if job is None or not (state.dependants.keys() & {job_id, job.array_job_id, 0}):
        return []
    work = _Follow(state, at, scan=True)
    work.touch(_change(job))
    work.run()
    return work.events


def settled_anew(state: State, events: Sequence[Event], job: Job, at: UnixTime) -> list[Event]:
    """Give what follows at once for a job that these events submit, or give new dependencies.

    Members whose counterparts have ended part from the rest (aftercorr), a singleton that is alone is free, and a
    job whose dependency can never be met is cancelled where the job or the cluster wants that.
    """
    work = _Follow(state, at, scan=True)
    for event in events:
        work.outlook.note(event)
    job = work.outlook.job(job.id) or job
    if not job.clauses:
        return []
    work.settle(job, None)
    work.run()
    return work.events


def due(state: State, at: UnixTime, limit: int = 10_000) -> list[Event]:
    """Give what follows from time alone: `after:5+10` whose minutes have passed. At most about `limit` events."""
    work = _Follow(state, at, scan=True)
    for job_id in state.timed:
        if len(work.events) >= limit:
            break
        job = work.outlook.job(job_id)
        if job is not None and job.state == _PENDING:
            work.settle(job, None)
    work.run()
    return work.events


def _touches(state: State, event: Event) -> bool:
    """Tell quickly whether anybody could wait for the job of an event."""
    waited_for = state.dependants
    if isinstance(event, JobChanged):
        return event.name is not None and 0 in waited_for
    if not isinstance(event, _TOUCHING):
        return False
    if event.job_id in waited_for or 0 in waited_for:
        return True
    if isinstance(event, JobStarted) and event.array_job_id:
        return event.array_job_id in waited_for
    job = state.jobs.get(event.job_id)
    # A job that these same events made (a member that was split off) has no record yet.
    return job is None or job.array_job_id in waited_for


@dataclass(frozen=True, slots=True)
class _Change:
    """A job of which something changed that others may wait for."""

    job: Job
    ids: tuple[int, ...]
    """Ids by which clauses name it: its own, and its array's."""
    tasks: Ranges
    """Members of its array that it stands for."""


def _change(job: Job, tasks: Ranges | None = None) -> _Change:
    ids = (int(job.id), job.array_job_id) if job.array_job_id not in (0, job.id) else (int(job.id),)
    if tasks is None:
        tasks = (job.array_task_id, job.array_task_id) if job.array_task_id != NO_TASK else job.array_pending
    return _Change(job, ids, tasks)


class _Follow:
    """Events that follow from events, each noted before the next one is thought about."""

    def __init__(self, state: State, at: UnixTime, *, scan: bool = False) -> None:
        self.events: list[Event] = []
        self.outlook = Outlook(state)
        self._state = state
        self._at = at
        self._scan = scan
        """Look at all members of an array, not only at those that the events changed."""
        self._changes: deque[_Change] = deque()

    def take(self, event: Event) -> None:
        """Note an event that was decided elsewhere."""
        job = self.outlook.note(event)
        if job is not None:
            self.touch(_change(job, event.tasks if isinstance(event, ArrayTasksCancelled) else None))

    def touch(self, change: _Change) -> None:
        """Have everybody looked at who waits for this job."""
        self._changes.append(change)

    def run(self) -> None:
        """Look at all who wait, until nothing more follows."""
        while self._changes:
            change = self._changes.popleft()
            for job_id in change.ids:
                for job in list(self.outlook.dependants(job_id)):
                    self.settle(job, change)
            for job in self._next_singletons(change.job):
                self.settle(job, change)

    def settle(self, job: Job, change: _Change | None) -> None:
        """Judge a job's clauses again: those that the change concerns, or all."""
        job = self.outlook.job(job.id) or job
        if job.array_pending and job.array_task_id == NO_TASK and any(map(self._pairs_up, job.clauses)):
            self._settle_rest(job, change)
        else:
            self._conclude(job, self._left(job, job.clauses, change))

    # Judging.

    def _left(self, job: Job, clauses: Iterable[Clause], change: _Change | None) -> tuple[Clause, ...]:
        """Give the clauses that remain; none as soon as one is met that suffices."""
        left: list[Clause] = []
        for clause in clauses:
            if clause.failed or not _concerns(clause, job, change):
                left.append(clause)
                continue
            fate = judge(self.outlook, clause, job, self._at, scan=self._scan)
            if fate is True:
                if job.clauses_any:
                    return ()
            elif fate is False:
                left.append(replace(clause, failed=True))
            else:
                left.append(fate)
        return tuple(left)

    def _conclude(self, job: Job, left: tuple[Clause, ...]) -> None:
        """Say what became of a job's clauses, if anything."""
        never = never_met(left, job.clauses_any)
        kill = never and (job.spec.kill_invalid_depend or self._state.settings.kill_invalid_depend)
        if left != job.clauses:
            self._emit(DependencyChanged(self._at, job.id, left, never))
        if kill:
            job = self.outlook.job(job.id) or job
            self._emit(end_pending(self._state, job, self._at, reason=Reason.DEPENDENCY_NEVER))

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self.take(event)

    # aftercorr: members pair up with the members of the other array that have the same index.

    def _pairs_up(self, clause: Clause) -> bool:
        return clause.kind == "aftercorr" and not clause.failed and self.outlook.is_array(clause.job_id)

    def _settle_rest(self, rest: Job, change: _Change | None) -> None:
        """Judge an array's pending rest: members whose counterparts have ended part from those that still wait."""
        common = self._left(rest, rest.clauses, change)
        if not common:
            self._conclude(rest, ())
            return
        met: dict[Clause, Ranges] = {}
        never: dict[Clause, Ranges] = {}
        decided: Ranges = ()
        for clause in common:
            if self._pairs_up(clause):
                met[clause], never[clause] = self._counterparts(clause, rest.array_pending, change)
                decided = ranges.union(decided, ranges.union(met[clause], never[clause]))
        if not decided:
            self._conclude(rest, common)
            return

        def own(task: int) -> tuple[Clause, ...]:
            left: list[Clause] = []
            for clause in common:
                if ranges.contains(met.get(clause, ()), task):
                    if rest.clauses_any:
                        return ()
                elif ranges.contains(never.get(clause, ()), task):
                    left.append(replace(clause, failed=True))
                else:
                    left.append(clause)
            return tuple(left)

        if decided == rest.array_pending:
            fates = {own(task) for task in ranges.numbers(decided)}
            if len(fates) == 1:
                self._conclude(rest, fates.pop())
                return
        self._conclude(rest, common)
        self._part(rest.id, decided, own)

    def _part(self, rest_id: JobId, tasks: Ranges, own: Callable[[int], tuple[Clause, ...]]) -> None:
        """Give these members records of their own, with what each still waits for; the last one keeps the rest's."""
        for task in ranges.numbers(tasks):
            rest = self.outlook.job(rest_id)
            if rest is None or not ranges.contains(rest.array_pending, task):
                continue
            if ranges.count(rest.array_pending) == 1:
                self._conclude(rest, own(task))
                continue
            split = ArrayMemberSplit(self._at, rest_id, task, self.outlook.ids.take())
            self._emit(split)
            member = self.outlook.job(split.job_id)
            assert member is not None, "a member that was split off has a record"
            self._conclude(member, own(task))

    def _counterparts(self, clause: Clause, pending: Ranges, change: _Change | None) -> tuple[Ranges, Ranges]:
        """Give the pending members whose counterparts ended well, and those whose ended badly."""
        met: list[int] = []
        never: list[int] = []
        known: list[int] = []
        cancelled = ranges.intersection(self.outlook.cancelled.get(clause.job_id, ()), pending)
        changed = change is not None and clause.job_id in change.ids
        for other in [change.job] if change and changed else self.outlook.members(clause.job_id):
            task = other.array_task_id
            if task == NO_TASK and other.state > _SUSPENDED:
                cancelled = ranges.union(cancelled, ranges.intersection(other.array_pending, pending))
            if task == NO_TASK or not ranges.contains(pending, task):
                continue
            known.append(task)
            fate = _judge_job(clause, other, self._at)
            if fate is True:
                met.append(task)
            elif fate is False:
                never.append(task)
        bad = ranges.union(ranges.from_ints(never), cancelled)
        good = ranges.from_ints(met)
        if not changed:
            # Counterparts that never were or have left memory hold nobody back.
            other_rest = self.outlook.job(clause.job_id)
            there = ranges.union(ranges.from_ints(known), other_rest.array_pending if other_rest else ())
            gone = ranges.difference(ranges.difference(pending, there), bad)
            good = ranges.union(good, gone)
        return good, bad

    # singleton: one job of a name and owner at a time, in order of their ids.

    def _next_singletons(self, changed: Job) -> list[Job]:
        """Give the job (members of one array: those) that may be next in each line in which something changed.

        Only the first one needs a look: it would hold back all others.
        """
        # After a change of its name the job is in another line than before; both are looked at.
        before = self._state.jobs.get(changed.id)
        names = {changed.spec.name, before.spec.name if before else changed.spec.name}
        first: dict[str, Job] = {}
        found: list[Job] = []
        for job in sorted(self.outlook.dependants(0), key=lambda job: (job.array_job_id or job.id, job.id)):
            if job.spec.uid != changed.spec.uid or job.spec.name not in names:
                continue
            head = first.setdefault(job.spec.name, job)
            if job is head or (job.array_job_id and job.array_job_id == head.array_job_id):
                found.append(job)
        return found


def _concerns(clause: Clause, job: Job, change: _Change | None) -> bool:
    """Tell whether a change may decide a clause of `job`."""
    if change is None:
        return True
    if clause.kind == SINGLETON:
        return job.spec.uid == change.job.spec.uid
    if clause.job_id not in change.ids:
        return False
    if clause.task_id != NO_TASK:
        return ranges.contains(change.tasks, clause.task_id)
    if clause.kind == "aftercorr" and job.array_task_id != NO_TASK and change.tasks:
        return ranges.contains(change.tasks, job.array_task_id)
    return True


def judge(outlook: Outlook, clause: Clause, job: Job, at: UnixTime, *, scan: bool = True) -> bool | Clause:
    """Judge one clause of `job`: True (met), False (never), or the clause that is still to be waited for.

    `scan` False: of an array's members only those that the outlook's events changed can bring news.
    """
    if clause.failed:
        return False
    if clause.kind == SINGLETON:
        return clause if _line_is_busy(outlook, job) else True
    if clause.kind == "aftercorr" and clause.task_id == NO_TASK and outlook.is_array(clause.job_id):
        if job.array_task_id != NO_TASK:
            return _judge_member(outlook, clause, job.array_task_id, at)
        if job.array_pending:
            return clause  # Its members are judged one by one.
    return _judge_target(outlook, clause, at, scan)


def _judge_target(outlook: Outlook, clause: Clause, at: UnixTime, scan: bool) -> bool | Clause:
    if clause.task_id != NO_TASK:
        return _judge_member(outlook, clause, clause.task_id, at)
    if outlook.is_array(clause.job_id):
        return _judge_array(outlook, clause, at, scan)
    target = outlook.job(clause.job_id)
    return True if target is None else _judge_job(clause, target, at)


def _judge_job(clause: Clause, target: Job, at: UnixTime) -> bool | Clause:
    ended = target.state > _SUSPENDED
    left_all_nodes = ended and not target.completing
    if clause.kind == "after":
        if target.state == _PENDING:
            return clause
        return True if not target.started_at or at >= target.started_at + 60 * clause.minutes else clause
    if clause.kind in _NEEDS_SUCCESS:
        if ended and target.state != _COMPLETED:
            return False
    elif clause.kind == "afternotok":
        if target.flags & SPECIAL_EXIT:
            return True
        if target.state == _COMPLETED:
            return False
    return True if left_all_nodes else clause


def _judge_member(outlook: Outlook, clause: Clause, task_id: int, at: UnixTime) -> bool | Clause:
    target = outlook.member(clause.job_id, task_id)
    if target is not None:
        return _judge_job(clause, target, at)
    rest = outlook.job(clause.job_id)
    if rest is not None and ranges.contains(rest.array_pending, task_id):
        return _judge_job(clause, rest, at)  # It waits, or was cancelled with the last ones.
    if ranges.contains(outlook.cancelled.get(clause.job_id, ()), task_id):
        return clause.kind not in _NEEDS_SUCCESS
    return True


def _judge_array(outlook: Outlook, clause: Clause, at: UnixTime, scan: bool) -> bool | Clause:
    array_job_id = clause.job_id
    if clause.kind in ("afterok", "aftercorr", "afternotok"):
        news = outlook.members(array_job_id) if scan else outlook.changed_members(array_job_id)
        failed = (
            any(_SUSPENDED < member.state != _COMPLETED for member in news)
            or array_job_id in outlook.cancelled
            or (scan and outlook.state.array_status.get(array_job_id, 0) != 0)
        )
        if failed and clause.kind != "afternotok":
            return False
        if failed:
            # "One has failed" is true from now on, also when that member leaves memory before the others end.
            clause = replace(clause, kind="afterany")
    rest = outlook.job(array_job_id)
    if rest is not None and rest.state == _PENDING and rest.array_pending:
        return clause
    if clause.kind == "after":
        latest = 0
        for member in outlook.members(array_job_id):
            if member.state == _PENDING:
                return clause
            latest = max(latest, member.started_at)
        return True if at >= latest + 60 * clause.minutes else clause
    for member in outlook.members(array_job_id):
        if member.state <= _SUSPENDED or member.completing:
            return clause
    return clause.kind != "afternotok"


def _line_is_busy(outlook: Outlook, job: Job) -> bool:
    """Tell whether another job of the same name and owner runs, or waits and was submitted before."""
    state = outlook.state
    place = job.array_job_id or job.id
    for ids in (state.running, state.deferred, state.queue):
        for job_id in ids:
            other = outlook.job(job_id)
            if (
                other is not None
                and other.spec.name == job.spec.name
                and other.spec.uid == job.spec.uid
                and other.state <= _SUSPENDED
                and other.id != job.id
                and (other.state != _PENDING or (other.array_job_id or other.id) < place)
                and not (job.array_job_id and other.array_job_id == job.array_job_id)
            ):
                return True
    return False


# ---- new dependencies ----------------------------------------------------------------------------------------


def _known(outlook: Outlook, clauses: tuple[Clause, ...], at: UnixTime, any_suffices: bool) -> tuple[Clause, ...]:
    """Check that what the clauses name is known, and leave out what holds already.

    singleton and aftercorr are judged once the job has an id and its members (`settled_anew`).
    """
    left: list[Clause] = []
    met = False
    for clause in clauses:
        if clause.kind != SINGLETON:
            _check_known(outlook, clause)
        fate: bool | Clause = clause
        if clause.kind not in (SINGLETON, "aftercorr"):
            fate = _judge_target(outlook, clause, at, True)
        if fate is True:
            met = True
        elif fate is False:
            left.append(replace(clause, failed=True))
        else:
            left.append(fate)
    return () if met and any_suffices else tuple(left)


def _check_known(outlook: Outlook, clause: Clause) -> None:
    demanding = clause.kind in ("afterok", "afternotok")
    target = outlook.job(clause.job_id)
    if target is None and not outlook.is_array(clause.job_id):
        if demanding:
            raise problem(f"job {clause.job_id} is not known (never issued, or ended long ago)")
        return
    if clause.task_id == NO_TASK:
        return
    some = target or next(iter(outlook.members(clause.job_id)))
    array = some.spec.array
    if array is None or not outlook.is_array(clause.job_id):
        raise problem(f"job {clause.job_id} is no array; write {clause.kind}:{clause.job_id}")
    if not ranges.contains(array.tasks, clause.task_id):
        raise problem(f"array {clause.job_id} has no member {clause.task_id}")
    pending = target is not None and ranges.contains(target.array_pending, clause.task_id)
    if demanding and not pending and outlook.member(clause.job_id, clause.task_id) is None:
        raise problem(f"member {clause.task_id} of array {clause.job_id} ended too long ago to be known")


def _names(clause: Clause, job: Job) -> bool:
    """Tell whether a clause names this job, or one of the members that its record stands for."""
    if clause.job_id == job.array_job_id and clause.job_id:
        return clause.task_id in (NO_TASK, job.array_task_id) or ranges.contains(job.array_pending, clause.task_id)
    return clause.job_id == job.id


def _reaches(outlook: Outlook, clauses: Sequence[Clause], goal: Job) -> bool:
    """Tell whether following the clauses, and those of the jobs they name, leads to `goal`."""
    open_clauses = list(clauses)
    seen: set[tuple[int, int]] = set()
    while open_clauses:
        clause = open_clauses.pop()
        if _names(clause, goal):
            return True
        key = (clause.job_id, clause.task_id)
        if clause.job_id and key not in seen:
            seen.add(key)
            for job in _named(outlook, clause):
                open_clauses += job.clauses
    return False


def _named(outlook: Outlook, clause: Clause) -> list[Job]:
    """Give the pending records that a clause names."""
    found: list[Job | None]
    if clause.task_id != NO_TASK:
        found = [outlook.member(clause.job_id, clause.task_id) or outlook.job(clause.job_id)]
    elif outlook.is_array(clause.job_id):
        found = list(outlook.members(clause.job_id))
    else:
        found = [outlook.job(clause.job_id)]
    return [job for job in found if job is not None and job.state == _PENDING]

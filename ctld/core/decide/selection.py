"""Which records a command means: a job, a whole array, or some members of it, split off the pending rest when they
are to differ from it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.decide.numbering import JobIds
from ctld.core.decide.refusals import refused, unknown_job
from ctld.core.events import ArrayMemberSplit, Event
from ctld.core.model import Job, Ranges
from ctld.core.state import State
from muster.errors import TooLarge
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import JobState

MAX_SPLITS = 10_000
"""Most members that one command may split off an array's pending rest."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that were meant."""

    records: tuple[Job, ...]
    """Whole records, in order of id; of an array without members given also its pending rest."""
    rest: Job | None = None
    """An array's pending rest of which only `tasks` were meant, not all."""
    tasks: Ranges = ()

    @property
    def any_record(self) -> Job:
        """One of the records; they all have one owner."""
        return self.records[0] if self.records else _given(self.rest)


def _given(job: Job | None) -> Job:
    assert job is not None, "a selection is never empty"
    return job


def is_rest(job: Job) -> bool:
    """Tell whether a record stands for members of an array that have not started."""
    return job.array_task_id == NO_TASK and bool(job.array_pending) and job.state == JobState.PENDING


def select(state: State, job_id: JobId, tasks: Ranges | None) -> Selection:
    """Find what is meant by a job id and members of its array.

    Raises:
        NotFound: no such job, or none of the members.
        Refused: the members named were all cancelled together with others before any of them started.
    """
    if tasks is None:
        if job_id in state.by_array:
            return Selection(tuple(state.jobs[one] for one in sorted(state.by_array[job_id])))
        if job_id in state.jobs:
            return Selection((state.jobs[job_id],))
        raise unknown_job(state, job_id)
    found: list[Job] = []
    rest: Job | None = None
    chosen: Ranges = ()
    cancelled = False
    for one in sorted(state.by_array.get(job_id, ())):
        job = state.jobs[one]
        if job.array_task_id != NO_TASK:
            if ranges.contains(tasks, job.array_task_id):
                found.append(job)
            continue
        chosen = ranges.intersection(job.array_pending, tasks)
        if chosen == job.array_pending and chosen:
            found.append(job)
        elif chosen and job.state == JobState.PENDING:
            rest = job
        else:
            # Of a rest that was cancelled as a whole, its last members are no records that could be changed alone.
            cancelled = cancelled or bool(chosen)
    if not found and rest is None and cancelled:
        raise refused(2021)
    if not found and rest is None:
        raise unknown_job(state, job_id)
    return Selection(tuple(found), rest, chosen if rest is not None else ())


def split_off(state: State, selection: Selection, at: UnixTime) -> tuple[list[Event], list[Job]]:
    """Give the members that were meant records of their own: the events, and all selected records as they will be.

    Raises:
        TooLarge: more than MAX_SPLITS members.
    """
    rest = selection.rest
    if rest is None:
        return [], list(selection.records)
    if ranges.count(selection.tasks) > MAX_SPLITS:
        raise TooLarge(
            f"{ranges.count(selection.tasks)} members of array {rest.array_job_id} would get records of their own",
            f"one command may change {MAX_SPLITS}; name fewer, or the whole array",
        )
    ids = JobIds(state)
    events: list[Event] = []
    members: list[Job] = []
    for task in ranges.numbers(selection.tasks):
        job_id = ids.take()
        events.append(ArrayMemberSplit(at, rest.id, task, job_id))
        members.append(replace(rest, id=job_id, array_task_id=task, array_pending=()))
    return events, [*selection.records, *members]

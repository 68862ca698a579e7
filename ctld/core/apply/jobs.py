"""Events of jobs that wait: submitted, split, held, released, changed, eligible, cancelled by member,
purged."""

from __future__ import annotations

from msgspec import structs

from ctld.core import ranges
from ctld.core.apply.indexes import PENDING, SUSPENDED, put
from ctld.core.apply.intern import interned, interned_job
from ctld.core.events import (
    AccrualChanged,
    ArrayMemberSplit,
    ArrayTasksCancelled,
    DependencyChanged,
    JobBooked,
    JobChanged,
    JobEligible,
    JobHeld,
    JobReleased,
    JobsPurged,
    JobSubmitted,
)
from ctld.core.model import Job
from ctld.core.state import State
from muster.ids import JobId, UnixTime
from muster.states import REQUEUE_HOLD, RESV_DEL_HOLD, SPECIAL_EXIT, JobState, Reason


def note_id(state: State, job_id: int) -> None:
    """Go on counting behind an id that was given out; behind the largest the count begins anew."""
    settings = state.settings
    state.next_job_id = JobId(job_id + 1 if job_id < settings.max_job_id else settings.first_job_id)


def submitted(state: State, event: JobSubmitted) -> None:
    """Take a new job or array in."""
    job = event.job
    put(state, None, interned_job(state, job, interned(state, job.spec)))
    note_id(state, job.id)


def split(state: State, array_job_id: int, task_id: int, job_id: int) -> Job:
    """Take a member out of its array's pending rest and give its record, which is not yet in the state.

    Unless it is the last one: then the rest's own record becomes the member, and the caller exchanges that.
    """
    rest = state.jobs[array_job_id]
    if job_id != array_job_id:
        put(state, rest, structs.replace(rest, array_pending=ranges.without(rest.array_pending, task_id), booking=None))
        note_id(state, job_id)
    return structs.replace(rest, id=JobId(job_id), array_task_id=task_id, array_pending=(), booking=None)


def member_split(state: State, event: ArrayMemberSplit) -> None:
    """Give a pending member a record of its own."""
    old = state.jobs.get(event.job_id) if event.job_id == event.array_job_id else None
    put(state, old, split(state, event.array_job_id, event.task_id, event.job_id))


def tasks_cancelled(state: State, event: ArrayTasksCancelled) -> None:
    """Take members out of the pending rest; a record of which none is left ends, still naming the last
    ones."""
    job = state.jobs[event.job_id]
    left = ranges.difference(job.array_pending, event.tasks)
    if left:
        new = structs.replace(job, array_pending=left, booking=None)
    else:
        new = structs.replace(
            job,
            state=event.state,
            ended_at=event.at,
            exit_status=0,
            reason=event.record.reason,
            booking=None,
        )
    put(state, job, new)


def held(state: State, event: JobHeld) -> None:
    """Priority 0 until released."""
    job = state.jobs[event.job_id]
    put(state, job, structs.replace(job, hold=event.by, priority=0, priority_set=False, booking=None))


def unheld(state: State, event: JobReleased) -> None:
    """The hold and its text go; the job is eligible if nothing else stands in its way."""
    job = state.jobs[event.job_id]
    new = structs.replace(
        job,
        hold="",
        priority=event.priority,
        priority_set=event.priority_set,
        state_text="",
        reason="",
        flags=job.flags & ~(REQUEUE_HOLD | SPECIAL_EXIT | RESV_DEL_HOLD),
        accrues_at=event.at,
    )
    put(state, job, _made_eligible(new, event.at))


def changed(state: State, event: JobChanged) -> None:
    """Take the fields over that are given."""
    job = state.jobs[event.job_id]
    spec_fields = {
        name: value
        for name in ("name", "comment", "partitions", "requeue", "time_limit_minutes", "exempt", "deadline_at")
        if (value := getattr(event, name)) is not None
    }
    fields: dict[str, object] = {name: value for name in _CHANGED if (value := getattr(event, name)) is not None}
    if event.begin_at is not None:
        spec_fields["begin_at"] = event.begin_at
    request = {
        name: value for name in ("reservations", "time_min_minutes") if (value := getattr(event, name)) is not None
    }
    if event.placement is not None:
        request |= event.placement.given()
    if request:
        spec_fields["request"] = structs.replace(job.spec.request, **request)
    if spec_fields:
        fields["spec"] = interned(state, structs.replace(job.spec, **spec_fields))
    if event.clauses is not None:
        fields["reason"] = ""
    # What was promised to it was judged by what it was.
    fields["booking"] = None
    new = structs.replace(job, **fields)
    if new.state == PENDING and (event.begin_at is not None or event.clauses is not None):
        new = _made_eligible(structs.replace(new, eligible_at=UnixTime(0)), event.at)
    put(state, job, new)
    if event.array_limit is not None and job.array_job_id:
        for member_id in state.by_array[job.array_job_id]:
            member = state.jobs[member_id]
            if member.array_limit != event.array_limit and member.state <= SUSPENDED:
                put(state, member, structs.replace(member, array_limit=event.array_limit))


def accrual_changed(state: State, event: AccrualChanged) -> None:
    """Note from when each job's age counts."""
    for numbers, since in ((event.begun, event.at), (event.stopped, UnixTime(-1))):
        for number in numbers:
            job = state.jobs[number]
            put(state, job, structs.replace(job, accrues_at=since))


def booked(state: State, event: JobBooked) -> None:
    """Note what the job was promised."""
    job = state.jobs[event.job_id]
    put(state, job, structs.replace(job, booking=event.booking))


def eligible(state: State, event: JobEligible) -> None:
    """From now on only resources are missing."""
    job = state.jobs[event.job_id]
    put(state, job, structs.replace(job, eligible_at=event.at))


def dependency_changed(state: State, event: DependencyChanged) -> None:
    """Keep the clauses that are left; without any the job is eligible if nothing else stands in its way."""
    job = state.jobs[event.job_id]
    reason = str(Reason.DEPENDENCY_NEVER) if event.never else ""
    new = structs.replace(job, clauses=event.clauses, reason=reason)
    put(state, job, _made_eligible(new, event.at))


def purged(state: State, event: JobsPurged) -> None:
    """Forget ended jobs; of array members the worst outcome stays while others of the array are in memory."""
    for job_id in event.job_ids:
        job = state.jobs[job_id]
        put(state, job, None)
        array = job.array_job_id
        if not array:
            continue
        if array in state.by_array:
            status = job.exit_status
            if job.state != JobState.COMPLETED:
                status = max(status, 1)
            state.array_status[array] = max(state.array_status.get(array, 0), status)
        else:
            state.array_status.pop(array, None)


_CHANGED = (
    "limit_seconds", "nice", "priority", "priority_set", "site_factor", "begin_at", "clauses", "clauses_any",
    "array_limit",
)  # fmt: skip
"""Fields of the job itself that a change may name."""


def _made_eligible(job: Job, at: UnixTime) -> Job:
    if job.eligible_at or job.clauses or job.hold or not job.priority or job.begin_at > at:
        return job
    return structs.replace(job, eligible_at=at)

"""Events of runs: started, ordered to end, finished, requeued, released by its nodes."""

from __future__ import annotations

from msgspec import structs

from ctld.core.apply.indexes import PENDING, SUSPENDED, put
from ctld.core.apply.intern import interned_allocation, interned_number
from ctld.core.apply.jobs import split
from ctld.core.events import (
    JobFinished,
    JobPreempted,
    JobRequeued,
    JobResumed,
    JobStarted,
    JobStopped,
    JobSuspended,
    JobWarned,
    KillOrdered,
    NodesReleased,
)
from ctld.core.model import Job
from ctld.core.state import State
from ctld.core.times import suspended_until
from muster.ids import NO_TASK, UnixTime
from muster.states import COMPLETING, LAUNCH_FAILED, REQUEUE_HOLD, REQUEUED, SPECIAL_EXIT, STOPPED, JobState, Reason


def started(state: State, event: JobStarted) -> None:
    """Give the job its nodes; a member of an array's pending rest gets its record first."""
    if event.task_id == NO_TASK:
        old: Job | None = state.jobs[event.job_id]
        job = state.jobs[event.job_id]
    else:
        old = state.jobs[event.job_id] if event.job_id == event.array_job_id else None
        job = split(state, event.array_job_id, event.task_id, event.job_id)
    new = structs.replace(
        job,
        state=int(JobState.RUNNING),
        flags=0,
        eligible_at=job.eligible_at or event.at,
        started_at=event.at,
        ended_at=UnixTime(0),
        limit_seconds=interned_number(state, event.limit_seconds),
        alloc=interned_allocation(state, event.alloc),
        kill=None,
        exit_status=0,
        derived_status=0,
        reason="",
        state_text="",
        failed_node="",
        next_step=0,
        warned=False,
        preempted=None,
        booking=None,
        suspended_at=UnixTime(0),
        suspended_seconds=0,
        cpus_gone=False,
    )
    put(state, old, new)


def kill_ordered(state: State, event: KillOrdered) -> None:
    """Note the order; a stopped job is woken by it."""
    job = state.jobs[event.job_id]
    put(state, job, structs.replace(job, kill=event.kill, flags=job.flags & ~STOPPED))


def preempted(state: State, event: JobPreempted) -> None:
    """Note that the run is to go."""
    job = state.jobs[event.job_id]
    put(state, job, structs.replace(job, preempted=event.preempted))


def suspended(state: State, event: JobSuspended) -> None:
    """Let the run stand still; its CPUs are free. One that stands still already may be needed for longer."""
    job = state.jobs[event.job_id]
    fresh = job.state != SUSPENDED
    new = structs.replace(
        job,
        state=SUSPENDED,
        flags=job.flags & ~STOPPED,
        preempted=event.preempted,
        suspended_at=event.at if fresh else job.suspended_at,
    )
    put(state, job, new)


def resumed(state: State, event: JobResumed) -> None:
    """Let the run go on with its CPUs; the time that it stood still does not count."""
    job = state.jobs[event.job_id]
    new = structs.replace(
        job,
        state=int(JobState.RUNNING),
        preempted=None,
        suspended_seconds=suspended_until(job, event.at),
    )
    put(state, job, new)


def finished(state: State, event: JobFinished) -> None:
    """End the run (or the waiting), its open steps with it; nodes in `completing` stay taken until they
    release it."""
    job = state.jobs[event.job_id]
    state.steps.pop(event.job_id, None)
    # A requeued job that is cancelled while its last run is cleaned up keeps waiting for those nodes.
    completing = event.completing if job.state != PENDING else job.completing
    new = structs.replace(
        job,
        state=event.state,
        flags=(COMPLETING if completing else 0) | (LAUNCH_FAILED if event.reason == Reason.LAUNCH_FAILURE else 0),
        ended_at=event.at,
        exit_status=event.exit_status,
        derived_status=event.record.derived_status,
        reason=event.reason,
        state_text=event.state_text,
        failed_node=event.failed_node,
        completing=completing,
        booking=None,
        suspended_seconds=suspended_until(job, event.at),
        cpus_gone=bool(completing) and (job.cpus_gone or job.state == SUSPENDED),
    )
    put(state, job, new)
    _note_busy(state, job, event.at)


def requeued(state: State, event: JobRequeued) -> None:
    """Make the job pending again; nodes in `completing` stay taken until they release the last run."""
    job = state.jobs[event.job_id]
    state.steps.pop(event.job_id, None)
    completing = event.completing if PENDING < job.state <= JobState.SUSPENDED else job.completing
    ready = event.priority and not event.hold and not event.clauses and event.begin_at <= event.at
    flags = COMPLETING | REQUEUED if completing else 0
    if event.hold:
        flags |= job.flags & (REQUEUE_HOLD | SPECIAL_EXIT)
    new = structs.replace(
        job,
        state=PENDING,
        flags=flags,
        submitted_at=event.at,
        limit_seconds=_full_limit(job),
        priority=event.priority,
        priority_set=job.priority_set and event.priority == job.priority,
        hold=event.hold,
        eligible_at=event.at if ready else UnixTime(0),
        accrues_at=UnixTime(0),
        begin_at=event.begin_at,
        started_at=UnixTime(0),
        ended_at=UnixTime(0),
        clauses=event.clauses,
        restarts=job.restarts + 1,
        alloc=job.alloc if completing else None,
        kill=None,
        completing=completing,
        exit_status=0,
        derived_status=0,
        reason=event.reason,
        state_text=event.state_text,
        failed_node="",
        next_step=0,
        warned=False,
        preempted=None,
        suspended_at=UnixTime(0),
        suspended_seconds=0,
        cpus_gone=bool(completing) and (job.cpus_gone or job.state == SUSPENDED),
    )
    put(state, job, new)
    _note_busy(state, job, event.at)


def _full_limit(job: Job) -> int:
    """Give the limit of the next run: --time-min may have shortened that of the last one."""
    if job.spec.request.time_min_minutes and job.spec.time_limit_minutes > 0:
        return job.spec.time_limit_minutes * 60
    return job.limit_seconds


def released(state: State, event: NodesReleased) -> None:
    """Free these nodes of an ended run; with the last one the job is out of COMPLETING."""
    job = state.jobs[event.job_id]
    completing = tuple(node for node in job.completing if node not in event.nodes)
    if completing:
        new = structs.replace(job, completing=completing)
    else:
        new = structs.replace(
            job,
            completing=(),
            flags=job.flags & ~(COMPLETING | REQUEUED),
            alloc=None if job.state == PENDING else job.alloc,
        )
    put(state, job, new)
    _note_busy(state, job, event.at)


def warned(state: State, event: JobWarned) -> None:
    """The warning of this run was ordered."""
    job = state.jobs[event.job_id]
    put(state, job, structs.replace(job, warned=True))


def stopped(state: State, event: JobStopped) -> None:
    """Set or clear the STOPPED flag."""
    job = state.jobs[event.job_id]
    flags = job.flags | STOPPED if event.stopped else job.flags & ~STOPPED
    put(state, job, structs.replace(job, flags=flags))


def _note_busy(state: State, job: Job, at: UnixTime) -> None:
    """Note the time on nodes of the job's run that nobody holds any more."""
    if job.alloc is None:
        return
    jobs = state.node_jobs
    for share in job.alloc.shares:
        if not jobs[share.node]:
            node = state.nodes[share.node]
            state.nodes[share.node] = structs.replace(node, last_busy_at=at)

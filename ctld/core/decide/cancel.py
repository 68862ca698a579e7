"""Cancelling: jobs that wait end at once, those that run are ordered to end on their nodes."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.commands import Cancel, NoteStopped
from ctld.core.decide.refusals import denied, may_change, refused
from ctld.core.decide.selection import is_rest, select
from ctld.core.events import ArrayTasksCancelled, Event, JobFinished, JobStopped, KillOrdered
from ctld.core.model import Job, Kill, Ranges
from ctld.core.record import run_record
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import STOPPED, JobState

_CANCELLED = int(JobState.CANCELLED)


def cancel(state: State, command: Cancel, at: UnixTime) -> list[Event]:
    """End a job, a whole array, or members of it.

    Raises:
        NotFound: `Invalid job id specified`.
        Denied: the caller is neither owner nor administrator.
        Refused: `Job/step already completing or completed`, when nothing of it is left to end.
    """
    selection = select(state, command.job_id, command.tasks)
    if not may_change(selection.any_record, command.by):
        raise denied(2002, f"job {command.job_id} belongs to {selection.any_record.spec.user}")
    events: list[Event] = []
    alive = False
    for job in selection.records:
        if job.state > JobState.SUSPENDED:
            continue
        alive = True
        if job.state == JobState.PENDING:
            events.append(end_pending(state, job, at, by=command.by.uid))
        elif job.kill is None or job.kill.requeue:
            # A run that is on its way back to the queue is not to come back.
            events.append(KillOrdered(at, job.id, Kill(state=_CANCELLED, at=at, by=command.by.uid)))
    if selection.rest is not None:
        events.append(end_pending(state, selection.rest, at, by=command.by.uid, tasks=selection.tasks))
        alive = True
    if not alive:
        raise refused(2021)
    return events


def end_pending(
    state: State,
    job: Job,
    at: UnixTime,
    *,
    by: int = -1,
    tasks: Ranges | None = None,
    reason: str = "",
    end: JobState = JobState.CANCELLED,
) -> Event:
    """Give the event that ends a waiting job (or `tasks` of an array's pending rest; None: all of it)."""
    if reason:
        job = replace(job, reason=reason)
    record = run_record(state, job, word=end.name, exit_status=0, ended_at=at, cancelled_by=by, tasks=tasks)
    record = replace(record, started_at=at)  # As Slurm accounts it: begun and ended at this moment.
    if is_rest(job):
        return ArrayTasksCancelled(at, job.id, job.array_pending if tasks is None else tasks, record, int(end))
    return JobFinished(at, job.id, int(end), record, reason=reason, completing=job.completing)


def note_stopped(state: State, command: NoteStopped, at: UnixTime) -> list[Event]:
    """Note that SIGSTOP or SIGCONT went to whole jobs.

    Raises:
        NotFound, Denied: as `cancel`.
        Refused: `Job is not running`.
    """
    selection = select(state, command.job_id, None)
    if not may_change(selection.any_record, command.by):
        raise denied(2002, f"job {command.job_id} belongs to {selection.any_record.spec.user}")
    running = [job for job in selection.records if job.state == JobState.RUNNING]
    if not running:
        raise refused(2085)
    return [JobStopped(at, job.id, command.stopped) for job in running if bool(job.flags & STOPPED) != command.stopped]

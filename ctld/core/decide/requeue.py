"""Requeueing: the same job waits again, with one more restart."""

from __future__ import annotations

from ctld.core.commands import Requeue
from ctld.core.decide.ending import REQUEUED_HELD
from ctld.core.decide.hold import priority_of
from ctld.core.decide.refusals import denied, is_root_of_its_node, may_change, refused
from ctld.core.decide.selection import select
from ctld.core.events import Event, JobRequeued, KillOrdered
from ctld.core.model import Job, Kill
from ctld.core.state import State
from muster.errors import MusterError, Refused
from muster.ids import UnixTime
from muster.states import JobState


def requeue(state: State, command: Requeue, at: UnixTime) -> list[Event]:
    """Send a batch job back to the queue: one that runs is ended first, one that has ended waits again at once.

    Of an array, those that can be requeued are; it is refused when none can.

    Raises:
        NotFound: `Invalid job id specified`.
        Denied: `Access/permission denied`.
        Refused: `Job is pending execution`, `Requested operation is presently disabled` (--no-requeue),
            `Only batch jobs are accepted or processed`, `Job/step already completing or completed`.
    """
    selection = select(state, command.job_id, command.tasks)
    job = selection.any_record
    if not may_change(job, command.by) and not is_root_of_its_node(state, job, command.by):
        raise denied(2002, f"job {command.job_id} belongs to {job.spec.user}")
    events: list[Event] = []
    problems: list[MusterError] = []
    possible = False
    for job in selection.records:
        try:
            event = _requeued(state, job, command, at)
        except Refused as problem:
            problems.append(problem)
            continue
        possible = True
        if event is not None:
            events.append(event)
    if not possible:
        raise problems[0] if problems else refused(2024)
    return events


def _requeued(state: State, job: Job, command: Requeue, at: UnixTime) -> Event | None:
    """Give the event for one record; None when it is on its way already."""
    if not job.spec.batch:
        raise refused(2039)
    if job.state == JobState.PENDING:
        raise refused(2024)
    if not job.spec.requeue:
        raise refused(2037, f"job {job.id} was submitted with --no-requeue; `scontrol update` can set Requeue=1")
    if job.state <= JobState.SUSPENDED:
        if job.kill is not None and not job.kill.requeue:
            raise refused(2021)
        if job.kill is not None and job.kill.hold == command.hold:
            return None
        return KillOrdered(
            at,
            job.id,
            Kill(
                state=int(JobState.CANCELLED),
                at=at,
                by=command.by.uid,
                why="JOB REQUEUE",
                requeue=True,
                hold=command.hold,
            ),
        )
    held_by = job.hold or ("user" if command.hold else "")
    return JobRequeued(
        at,
        job.id,
        begin_at=UnixTime(at + state.settings.requeue_delay_seconds + 1),
        priority=0 if held_by else priority_of(job),
        hold=held_by,
        state_text=REQUEUED_HELD if command.hold else "",
        completing=job.completing,
    )

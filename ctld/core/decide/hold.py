"""Holding and releasing: a held job has priority 0 and stays where it is."""

from __future__ import annotations

from ctld.core.commands import Hold, Release
from ctld.core.decide.numbering import first_priority
from ctld.core.decide.refusals import denied, is_root_of_its_node, may_change, refused
from ctld.core.decide.selection import Selection, select, split_off
from ctld.core.events import Event, JobHeld, JobReleased
from ctld.core.model import Caller, Job
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import JobState


def hold(state: State, command: Hold, at: UnixTime) -> list[Event]:
    """Hold a job, an array, or members of it; a running job is held from its next requeue on.

    The owner's hold (or `as_user`) the owner may release, an administrator's only an administrator.

    Raises:
        NotFound: `Invalid job id specified`.
        Denied: `Invalid user id`, for another user's job.
        Refused: `Job has already finished`.
    """
    selection = select(state, command.job_id, command.tasks)
    _check_owner(state, selection, command.by)
    by = holder(selection.any_record, command.by, as_user=command.as_user)
    events, jobs = split_off(state, selection, at)
    events += [
        JobHeld(at, job.id, by)
        for job in jobs
        if job.state <= JobState.SUSPENDED and (job.hold != by and (job.hold != "admin" or command.by.admin))
    ]
    return events


def release(state: State, command: Release, at: UnixTime) -> list[Event]:
    """Release what is held of a job, an array, or members of it.

    Raises:
        NotFound: `Invalid job id specified`.
        Denied: `Invalid user id` for another user's job, `Access/permission denied` for an administrator's hold.
        Refused: `Job has already finished`.
    """
    selection = select(state, command.job_id, command.tasks)
    _check_owner(state, selection, command.by)
    held = [job for job in (*selection.records, selection.rest) if job is not None and job.hold]
    if any(job.hold == "admin" for job in held) and not command.by.admin:
        raise denied(2002, "an administrator holds it; only an administrator can release it")
    if selection.rest is not None and not selection.rest.hold:
        # Members that are not held need no record of their own for that.
        selection = Selection(selection.records, None, ())
    events, jobs = split_off(state, selection, at)
    events += [
        JobReleased(at, job.id, priority_of(job)) for job in jobs if job.hold and job.state <= JobState.SUSPENDED
    ]
    return events


def holder(job: Job, caller: Caller, *, as_user: bool = False) -> str:
    """Say whose hold it is when this caller holds the job: user or admin."""
    return "user" if as_user or caller.uid == job.spec.uid else "admin"


def priority_of(job: Job) -> int:
    """Give the priority of a job that is no longer held: its place in order of submission (members of an array
    have the array's)."""
    return first_priority(job.array_job_id or job.id, job.nice)


def _check_owner(state: State, selection: Selection, caller: Caller) -> None:
    job = selection.any_record
    if not may_change(job, caller) and not is_root_of_its_node(state, job, caller):
        raise denied(2010, f"job {job.array_job_id or job.id} belongs to {job.spec.user}")
    if selection.rest is None and all(one.state > JobState.SUSPENDED for one in selection.records):
        raise refused(2084)

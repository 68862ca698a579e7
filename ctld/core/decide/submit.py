"""Submission: limits and sanity. What comes through here can run some day; what cannot is refused with the reason."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.commands import Submit
from ctld.core.decide import dependency
from ctld.core.decide.admission import check_admission, check_time_min, partitions_for
from ctld.core.decide.fit import check_fit
from ctld.core.decide.membership import placed
from ctld.core.decide.numbering import JobIds, first_priority
from ctld.core.decide.policy import check_policy, check_reservation, default_limit_seconds
from ctld.core.decide.refusals import denied, invalid, refused
from ctld.core.decide.reservations import check_use
from ctld.core.events import Event, JobSubmitted
from ctld.core.model import Job, JobSpec
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import Reason


def submit(state: State, command: Submit, at: UnixTime) -> list[Event]:
    """Queue a job or an array.

    Raises:
        InvalidInput, Denied, Refused: in Slurm's words; the hint says what would help.
    """
    partitions = partitions_for(state, command.spec.partitions)
    names = tuple(partition.name for partition in partitions)
    spec = replace(command.spec, partitions=names)
    spec = placed(state, spec, command.by, qos_given=command.qos_given)
    _check_rights(command)
    check_admission(state, spec, partitions, command.by)
    check_use(state, spec, command.by)
    _check_array(state, spec)
    check_reservation(state, spec)
    check_policy(state, spec, partitions, at, new=spec.array.size if spec.array is not None else 1)
    check_fit(state, spec.request, partitions)
    clauses, any_suffices = dependency.on_submit(state, command.dependency, at)
    job_id = JobIds(state).take()
    hold = _hold(command)
    never = dependency.never_met(clauses, any_suffices)
    priority = command.priority or first_priority(job_id, command.nice)
    eligible = not (clauses or hold or spec.begin_at > at)
    job = Job(
        id=job_id,
        spec=spec,
        submitted_at=at,
        priority=0 if hold else priority,
        priority_set=bool(command.priority) and not hold,
        nice=command.nice,
        hold=hold,
        eligible_at=at if eligible else UnixTime(0),
        begin_at=spec.begin_at,
        limit_seconds=default_limit_seconds(state, spec, partitions[0]),
        array_job_id=job_id if spec.array is not None else 0,
        array_pending=spec.array.tasks if spec.array is not None else (),
        array_limit=command.array_limit if spec.array is not None else 0,
        clauses=clauses,
        clauses_any=any_suffices,
        reason=Reason.DEPENDENCY_NEVER if never else "",
    )
    check_time_min(spec.request.time_min_minutes, job.limit_seconds)
    submitted = JobSubmitted(at, job)
    if not clauses:
        return [submitted]
    return [submitted, *dependency.settled_anew(state, [submitted], job, at)]


def _check_rights(command: Submit) -> None:
    if command.by.admin:
        return
    if command.priority:
        raise denied(2002, "only administrators give a priority; --nice lowers one's own")
    if command.nice < 0:
        raise denied(2123, "only administrators give a negative nice value")


def _hold(command: Submit) -> str:
    if command.hold:
        return "user"
    if command.priority == 0:
        return "user" if command.by.uid == command.spec.uid else "admin"
    return ""


def _check_array(state: State, spec: JobSpec) -> None:
    settings = state.settings
    array = spec.array
    size = 1
    if array is not None:
        if not spec.batch:
            raise invalid(2039, "only batch jobs can be arrays")
        if not array.tasks or array.tasks[-1] >= settings.max_array_size:
            raise invalid(
                2081,
                f"the largest index is {settings.max_array_size - 1} (MaxArraySize={settings.max_array_size})",
            )
        size = array.size
    if state.members + size > settings.max_job_count:
        asked = f"an array of {size} members" if array is not None else "one more job"
        raise refused(
            2007,
            f"{state.members} jobs are in memory, {asked} would be more than MaxJobCount={settings.max_job_count}",
        )

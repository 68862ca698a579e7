"""`scontrol update JobId=`: what may be changed of a job, by whom, and while it is in which state.

Updating some members of a pending array splits them off first. Of a whole array every record that can take the
change takes it; it is refused when none can.
"""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.commands import COMPUTED, UpdateJob
from ctld.core.decide import dependency
from ctld.core.decide.admission import check_admission, check_limits, check_time_min, partitions_for
from ctld.core.decide.fit import check_fit
from ctld.core.decide.hold import holder, priority_of
from ctld.core.decide.membership import placed
from ctld.core.decide.numbering import LARGEST_PRIORITY
from ctld.core.decide.policy import check_policy, default_limit_seconds, over_wall
from ctld.core.decide.refusals import denied, invalid, may_change, refused
from ctld.core.decide.reservations import check_use
from ctld.core.decide.selection import select, split_off
from ctld.core.events import DependencyChanged, Event, JobChanged, JobHeld, JobReleased
from ctld.core.model import UNLIMITED, Job, JobSpec
from ctld.core.state import State
from muster.errors import Denied, InvalidInput, Refused
from muster.ids import UnixTime
from muster.states import JobState

_LARGEST_NICE = 2147483645


def update(state: State, command: UpdateJob, at: UnixTime) -> list[Event]:
    """Change fields of a job, an array, or members of it.

    Raises:
        NotFound: `Invalid job id specified`.
        Denied: `Invalid user id` for another user's job, `Access/permission denied` for an administrator's field.
        Refused: the job's state forbids it (`Job has already finished`, `Job is no longer pending execution`).
        InvalidInput: a value is wrong.
    """
    selection = select(state, command.job_id, command.tasks)
    owned = selection.any_record
    if not may_change(owned, command.by):
        raise denied(2010, f"job {command.job_id} belongs to {owned.spec.user}")
    if selection.rest is not None:
        # Judged before anything is split: a refusal leaves the array whole.
        _changes(state, replace(selection.rest, array_pending=selection.tasks), command, at)
    events, jobs = split_off(state, selection, at)
    problems: list[InvalidInput | Denied | Refused] = []
    accepted = False
    for job in jobs:
        try:
            changes = _changes(state, job, command, at)
        except (InvalidInput, Denied, Refused) as problem:
            problems.append(problem)
            continue
        accepted = True
        events += changes
        if command.dependency is not None:
            events += dependency.settled_anew(state, events, job, at)
    if not accepted:
        raise problems[0]
    if command.dependency is not None:
        # `decide` leaves the following to us then; a new name may free others (singleton).
        events += dependency.follow(state, events, at)
    return events


def _changes(state: State, job: Job, command: UpdateJob, at: UnixTime) -> list[Event]:
    """Give the events for one record."""
    if job.state > JobState.SUSPENDED:
        raise refused(2084)
    changed = JobChanged(at, job.id)
    after: list[Event] = []
    if command.time_limit_minutes is not None:
        changed = _time_limit(state, job, command, changed)
    if command.nice is not None:
        changed = _nice(job, command, changed)
    if command.priority is not None:
        changed, more = _priority(job, command, changed, at)
        after += more
    if command.site_factor is not None:
        if not command.by.admin:
            raise denied(2002, "only an administrator can set the site factor")
        if abs(command.site_factor) > _LARGEST_NICE:
            raise invalid(2000, f"a site factor goes from -{_LARGEST_NICE} to {_LARGEST_NICE}")
        changed = replace(changed, site_factor=command.site_factor)
    if command.begin_at is not None:
        _needs_pending(job)
        changed = replace(changed, begin_at=command.begin_at)
    if command.deadline_at is not None:
        changed = replace(changed, deadline_at=command.deadline_at)
    if command.time_min_minutes is not None:
        _needs_pending(job)
        limit = changed.limit_seconds if changed.limit_seconds is not None else job.limit_seconds
        check_time_min(command.time_min_minutes, limit)
        changed = replace(changed, time_min_minutes=command.time_min_minutes)
    if command.partition is not None:
        changed = _partition(state, job, command, changed)
    if command.reservations is not None and command.reservations != job.spec.request.reservations:
        _needs_pending(job)
        request = replace(job.spec.request, reservations=command.reservations)
        check_use(state, replace(job.spec, request=request), command.by)
        changed = replace(changed, reservations=command.reservations)
    if command.placement is not None:
        _needs_pending(job)
        names = changed.partitions or job.spec.partitions
        partitions = [state.partitions[name] for name in names if name in state.partitions]
        check_fit(state, replace(job.spec.request, **command.placement.given()), partitions)
        changed = replace(changed, placement=command.placement)
    if command.array_limit is not None:
        if not job.array_job_id:
            raise refused(2036, f"job {job.id} is no array")
        changed = replace(changed, array_limit=command.array_limit)
    if command.dependency is not None:
        changed, more = _dependency(state, job, command.dependency, changed, at)
        after += more
    changed = replace(
        changed,
        name=_changed(command.name, job.spec.name),
        comment=_changed(command.comment, job.spec.comment),
        requeue=command.requeue,
    )
    nothing = changed == JobChanged(at, job.id)
    return after if nothing else [changed, *after]


def _changed(new: str | None, old: str) -> str | None:
    return new if new != old else None


def _needs_pending(job: Job) -> None:
    if job.state != JobState.PENDING:
        raise refused(2073)


def _time_limit(state: State, job: Job, command: UpdateJob, changed: JobChanged) -> JobChanged:
    """The owner may change the limit of a waiting job, and lower that of one that runs."""
    asked = command.time_limit_minutes or UNLIMITED
    minutes = asked if asked > 0 else UNLIMITED
    seconds = minutes * 60 if minutes > 0 else UNLIMITED
    if not command.by.admin:
        if job.state != JobState.PENDING and _longer(seconds, job.limit_seconds):
            raise denied(2002, "only an administrator can lengthen the limit of a running job")
        if job.state == JobState.PENDING:
            partitions = [state.partitions[name] for name in job.spec.partitions if name in state.partitions]
            spec = replace(job.spec, time_limit_minutes=minutes)
            check_limits(state, spec, partitions)
            check_policy(state, spec, partitions, changed.at, new=0)
    exempt = _exempt(state, replace(job.spec, time_limit_minutes=minutes), command)
    return replace(changed, limit_seconds=seconds, time_limit_minutes=minutes, exempt=exempt)


def _exempt(state: State, spec: JobSpec, command: UpdateJob) -> tuple[str, ...] | None:
    """A time limit over MaxWall that an administrator gives holds; None: nothing changes."""
    kept = tuple(word for word in spec.exempt if word != "time")
    if command.by.admin and state.limits.enforced and over_wall(state, spec):
        kept = (*kept, "time")
    return kept if kept != spec.exempt else None


def _longer(seconds: int, than: int) -> bool:
    return than != UNLIMITED and (seconds == UNLIMITED or seconds > than)


def _nice(job: Job, command: UpdateJob, changed: JobChanged) -> JobChanged:
    nice = command.nice or 0
    if abs(nice) > _LARGEST_NICE:
        raise invalid(2123, f"it goes from -{_LARGEST_NICE} to {_LARGEST_NICE}")
    if nice < 0 and not command.by.admin:
        raise denied(2002, "only an administrator can give a negative nice value")
    changed = replace(changed, nice=nice)
    if job.hold or not job.priority or nice == job.nice:
        return changed
    return replace(changed, priority=min(max(1, job.priority + job.nice - nice), LARGEST_PRIORITY))


def _priority(job: Job, command: UpdateJob, changed: JobChanged, at: UnixTime) -> tuple[JobChanged, list[Event]]:
    """Priority 0 is a hold; another one only administrators give, and it releases."""
    priority = command.priority or 0
    if not priority:
        by = holder(job, command.by)
        already = job.hold in (by, "admin")
        return changed, [] if already else [JobHeld(at, job.id, by)]
    if not command.by.admin:
        raise refused(2042 if job.hold else 2095)
    by_hand = priority != COMPUTED
    if by_hand and priority > LARGEST_PRIORITY:
        raise invalid(2000, f"a priority goes from 0 to {LARGEST_PRIORITY}; INFINITE has it computed again")
    if not by_hand:
        priority = priority_of(replace(job, nice=job.nice if changed.nice is None else changed.nice))
    if job.hold:
        return replace(changed, priority=None), [JobReleased(at, job.id, priority, by_hand)]
    return replace(changed, priority=priority, priority_set=by_hand), []


def _partition(state: State, job: Job, command: UpdateJob, changed: JobChanged) -> JobChanged:
    _needs_pending(job)
    names = tuple(dict.fromkeys(name.strip() for name in (command.partition or "").split(",") if name.strip()))
    if not names:
        raise invalid(2000, "no partition is named")
    partitions = partitions_for(state, names)
    minutes = changed.time_limit_minutes
    spec = job.spec if minutes is None else replace(job.spec, time_limit_minutes=minutes)
    spec = replace(spec, partitions=names)
    placed(state, spec, command.by)
    check_admission(state, spec, partitions, command.by)
    if not command.by.admin:
        check_policy(state, spec, partitions, changed.at, new=0)
    check_fit(state, spec.request, partitions)
    changed = replace(changed, partitions=names)
    if not spec.time_limit_minutes:
        changed = replace(changed, limit_seconds=default_limit_seconds(state, spec, partitions[0]))
    return changed


def _dependency(state: State, job: Job, text: str, changed: JobChanged, at: UnixTime) -> tuple[JobChanged, list[Event]]:
    _needs_pending(job)
    clauses, any_suffices = dependency.on_update(state, job, text, at)
    changed = replace(changed, clauses=clauses, clauses_any=any_suffices)
    if dependency.never_met(clauses, any_suffices):
        return changed, [DependencyChanged(at, job.id, clauses, never=True)]
    return changed, []

"""Suspending and resuming: by an administrator's word, and of victims whose CPUs are free again."""

from __future__ import annotations

from collections.abc import Iterator

from ctld.core import ranges
from ctld.core.booked import Promises, is_ending
from ctld.core.commands import Resume, Suspend
from ctld.core.decide.refusals import denied, refused
from ctld.core.decide.selection import Selection, select
from ctld.core.events import Event, JobResumed, JobSuspended
from ctld.core.model import Job
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import JobState


def suspend(state: State, command: Suspend, at: UnixTime) -> list[Event]:
    """Let running jobs stand still; one that does already is no error. What is ending goes on to do so.

    Raises:
        NotFound: `Invalid job id specified`.
        Denied: the caller is no administrator.
        Refused: `Job is pending execution`, `Job/step already completing or completed`.
    """
    if not command.by.admin:
        raise denied(2002, "only an administrator can suspend jobs")
    selection = select(state, command.job_id, command.tasks)
    running = [
        job for job in selection.records if JobState.PENDING < job.state <= JobState.SUSPENDED and not is_ending(job)
    ]
    if not running:
        raise refused(2024 if _waits(selection) else 2021)
    return [JobSuspended(at, job.id) for job in running if job.state == JobState.RUNNING]


def resume(state: State, command: Resume, at: UnixTime) -> list[Event]:
    """Let suspended jobs go on.

    Raises:
        NotFound, Denied: as `suspend`.
        Refused: `Job is not suspended`, `Job is pending execution`, or its CPUs are another job's by now.
    """
    if not command.by.admin:
        raise denied(2002, "only an administrator can resume jobs")
    selection = select(state, command.job_id, command.tasks)
    suspended = [job for job in selection.records if job.state == JobState.SUSPENDED]
    if not suspended:
        raise refused(2024 if _waits(selection) else 2087)
    promises = Promises(state)
    events: list[Event] = []
    for job in suspended:
        in_the_way = _in_the_way(state, promises, job)
        if in_the_way:
            raise refused(2016, f"its CPUs on {in_the_way} are another job's; it can go on once that has ended")
        events.append(JobResumed(at, job.id))
    return events


def returning(state: State, at: UnixTime) -> Iterator[JobResumed]:
    """Give the events that let victims go on whose CPUs are free again, one job on a core."""
    promises = Promises(state)
    given: dict[int, int] = {}
    for job_id in sorted(state.suspended):
        job = state.jobs[job_id]
        if job.preempted is None or job.kill is not None or job.alloc is None:
            continue
        if _in_the_way(state, promises, job):
            continue
        cores = {share.node: ranges.to_bitmap(share.cores) for share in job.alloc.shares}
        if any(bits & given.get(node, 0) for node, bits in cores.items()):
            continue
        for node, bits in cores.items():
            given[node] = given.get(node, 0) | bits
        yield JobResumed(at=at, job_id=job.id)


def _in_the_way(state: State, promises: Promises, job: Job) -> str:
    """Name the node on which a suspended job's CPUs are not free, or promised to another; empty: all are."""
    assert job.alloc is not None, "a suspended job has nodes"
    free = state.free
    for share in job.alloc.shares:
        cores = ranges.to_bitmap(share.cores)
        booked = 0
        for _, other in promises.bookings.get(share.node, ()):
            booked |= ranges.to_bitmap(other.cores)
        if cores & ~free.cores[share.node] or cores & booked or share.cpus > int(free.cpus[share.node]):
            return state.nodes[share.node].spec.name
    return ""


def _waits(selection: Selection) -> bool:
    return selection.rest is not None or any(job.state == JobState.PENDING for job in selection.records)

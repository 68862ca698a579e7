"""When a run ends, and how long it stood still."""

from __future__ import annotations

from ctld.core.model import UNLIMITED, Job
from muster.ids import UnixTime
from muster.states import JobState


def suspended_until(job: Job, at: int) -> int:
    """Give how many seconds of its run a job was suspended, up to `at`."""
    if job.state == JobState.SUSPENDED:
        return job.suspended_seconds + max(0, at - job.suspended_at)
    return job.suspended_seconds


def limit_end(job: Job, at: int = 0) -> int:
    """Give the time at which a run reaches its limit; -1: never. Of one that stands still at `at` as if it went on at
    once: the time that it stands still moves its end."""
    if job.limit_seconds == UNLIMITED:
        return UNLIMITED
    return job.started_at + job.limit_seconds + suspended_until(job, at)


def planned_seconds(limit_seconds: int, time_min_minutes: int) -> int:
    """Give the limit that a job is planned with: --time-min where it is given and shorter; -1: unlimited."""
    least = time_min_minutes * 60
    return limit_seconds if not least or 0 <= limit_seconds < least else least


def least_seconds(job: Job) -> int:
    """Give the shortest limit with which a job may run; -1: unlimited."""
    return planned_seconds(job.limit_seconds, job.spec.request.time_min_minutes)


def latest_start(job: Job) -> int:
    """Give the last time at which a job with a deadline may start and still end by it; one without limit has any time
    up to it."""
    return job.spec.deadline_at - max(0, least_seconds(job))


def stretched(limit_seconds: int, time_min_minutes: int, until_seconds: int) -> int:
    """Give the limit of a run that was planned with --time-min: the largest value in whole minutes that ends within
    `until_seconds` (-1: nothing is in its way), not above the limit that was asked for (-1: none) and not below
    --time-min.
    """
    if until_seconds == UNLIMITED:
        return limit_seconds
    most = until_seconds // 60 * 60
    if limit_seconds != UNLIMITED:
        most = min(most, limit_seconds)
    return max(most, time_min_minutes * 60)


def grace_end(job: Job) -> UnixTime:
    """Give the time at which a victim's end is ordered; 0: it is none, or goes on afterwards."""
    victim = job.preempted
    return victim.ends_at if victim is not None and victim.mode != "SUSPEND" else UnixTime(0)

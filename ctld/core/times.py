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


def grace_end(job: Job) -> UnixTime:
    """Give the time at which a victim's end is ordered; 0: it is none, or goes on afterwards."""
    victim = job.preempted
    return victim.ends_at if victim is not None and victim.mode != "SUSPEND" else UnixTime(0)

"""What a job's record counts for limits: as a job, as TRES in use, as minutes that it may still use."""

from __future__ import annotations

from ctld.core.limits.load import Holding
from ctld.core.model import UNLIMITED, Job, NodeShare
from ctld.core.record import billed, licensed
from ctld.core.state import State
from muster.states import JobState

YEAR_SECONDS = 365 * 86_400
"""What a job without a time limit counts as where minutes are reserved."""


def holding(state: State, job: Job, size: int) -> Holding | None:
    """Give what a record counts; None when it has ended.

    Args:
        size: jobs that it stands for.
    """
    if job.state > JobState.SUSPENDED:
        return None
    rules = state.limits.of(job)
    if job.state == JobState.PENDING or job.alloc is None:
        return Holding(rules, size, {})
    # Minutes of a job that is being ended are given back at once.
    end = job.started_at + bounded(job.limit_seconds) if job.kill is None else 0
    shares = job.alloc.shares
    amounts = billed(state, shares, state.partitions.get(job.alloc.partition), licensed(job))
    return Holding(rules, size, amounts, tuple(share.node for share in shares), end, job.id)


def started(state: State, job: Job, partition: str, shares: tuple[NodeShare, ...], *, end: int, number: int) -> Holding:
    """Give what a job will count when it has been started so. `number` tells the starts of a plan apart: members of
    an array start from one record."""
    rules = state.limits.ruleset(job.spec.user, job.spec.account, job.spec.qos, partition)
    amounts = billed(state, shares, state.partitions.get(partition), licensed(job))
    return Holding(rules, 0, amounts, tuple(share.node for share in shares), end, number)


def bounded(limit_seconds: int) -> int:
    """Give a time limit in seconds; a year where there is none."""
    return limit_seconds if limit_seconds != UNLIMITED else YEAR_SECONDS

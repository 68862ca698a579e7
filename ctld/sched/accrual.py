"""Accrue limits: of how many waiting jobs the age counts at a time (scheduling.md 2.4).

The slots go to the oldest. Whose age has begun to count keeps its slot until it starts or ends; a job over the limit
stays at age 0. These limits never stop a job from running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ctld.core.accounts import UNSET, Accounts
from ctld.core.model import Job
from muster.states import JobState

_PENDING = int(JobState.PENDING)


def limits_accrual(accounts: Accounts) -> bool:
    """Tell whether any limit of this kind is set."""
    of_tree = (
        n for one in accounts.associations.values() for n in (one.limits.grp_jobs_accrue, one.limits.max_jobs_accrue)
    )
    of_qos = (
        n
        for one in accounts.qos.values()
        for n in (one.limits.grp_jobs_accrue, one.per_user.jobs_accrue, one.per_account.jobs_accrue)
    )
    return any(n != UNSET for n in (*of_tree, *of_qos))


def slots(jobs: Iterable[Job], accounts: Accounts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the ids of the jobs whose age begins to count now, and of those whose age must not count.

    Args:
        jobs: all jobs in memory; those that wait for resources are looked at, an array's pending rest as one.
        accounts: the tree and the QOS with their limits.
    """
    waiting = [job for job in jobs if job.state == _PENDING and job.eligible_at and job.priority and not job.hold]
    # A slot once given is kept; then it goes by age.
    waiting.sort(key=_seniority)
    used: dict[tuple[object, ...], int] = {}
    begin: list[int] = []
    stop: list[int] = []
    for job in waiting:
        scopes = list(_scopes(job, accounts))
        if all(used.get(scope, 0) < limit for scope, limit in scopes):
            for scope, _ in scopes:
                used[scope] = used.get(scope, 0) + 1
            if job.accrues_at < 0:
                begin.append(job.id)
        elif job.accrues_at >= 0:
            stop.append(job.id)
    return tuple(begin), tuple(stop)


def _seniority(job: Job) -> tuple[bool, int, int]:
    given = job.accrues_at > 0
    return not given, job.accrues_at if given else job.eligible_at, job.id


def _scopes(job: Job, accounts: Accounts) -> Iterator[tuple[tuple[object, ...], int]]:
    """Give what a job's slot counts in, each with its limit: of its QOS, else the first found up the tree."""
    spec = job.spec
    qos = accounts.qos.get(spec.qos.partition(",")[0])
    found = False
    if qos is not None:
        for scope, limit in (
            (("qos", qos.id), qos.limits.grp_jobs_accrue),
            (("qos account", qos.id, spec.account), qos.per_account.jobs_accrue),
            (("qos user", qos.id, spec.user), qos.per_user.jobs_accrue),
        ):
            if limit != UNSET:
                found = True
                yield scope, limit
    association = accounts.find(spec.user, spec.account, spec.partitions[0])
    if found or association is None:
        return
    # MaxJobsAccrue of an account is the default of what is below it: one limit for each user.
    most = accounts.limits(association.id).max_jobs_accrue
    if most != UNSET:
        yield ("user", association.id), most
    for level in accounts.path(association.id):
        if level.limits.grp_jobs_accrue != UNSET:
            yield ("group", level.id), level.limits.grp_jobs_accrue
            return

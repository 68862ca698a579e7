"""Running jobs whose group has used up what it may: they end as if their time limit was reached.

Looked at every half a minute, and not with AccountingStorageEnforce=safe: there a job starts only if what is left is
enough to its end.
"""

from __future__ import annotations

from ctld.core.events import KillOrdered
from ctld.core.limits.book import MINUTES, Rule
from ctld.core.limits.kinds import Kind
from ctld.core.limits.past import Meters
from ctld.core.model import Job, Kill
from ctld.core.record import billed, licensed
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import JobState


def overused(state: State, at: UnixTime, most: int) -> list[KillOrdered]:
    """Order the end of jobs that have run into GrpTRESMins, GrpWall or MaxTRESMinsPerJob, at most so many."""
    if not state.limits.enforced or state.limits.safe:
        return []
    meters = Meters(state)
    events: list[KillOrdered] = []
    for job_id in state.load.spenders:
        job = state.jobs[job_id]
        if job.kill is None and any(_is_over(state, meters, job, rule, at) for rule in state.limits.of(job).spent):
            kill = Kill(state=int(JobState.TIMEOUT), at=at, why="TIME LIMIT")
            events.append(KillOrdered(at=at, job_id=job.id, kill=kill))
            if len(events) >= most:
                break
    return events


def _is_over(state: State, meters: Meters, job: Job, rule: Rule, at: UnixTime) -> bool:
    if rule.kind is Kind.GRP_WALL:
        return meters.wall_minutes(rule.key, at) >= rule.limit
    assert job.alloc is not None, "a running job has nodes"
    partition = state.partitions.get(job.alloc.partition)
    amount = billed(state, job.alloc.shares, partition, licensed(job)).get(rule.tres, 0)
    if not amount:
        return False
    if rule.kind is Kind.JOB_TRES_MINUTES:
        return amount * (at - job.started_at) > rule.limit * 60
    name = str(rule.key[-1]).removesuffix(MINUTES)
    return meters.tres_minutes(rule.key[:-1], name, at) >= rule.limit

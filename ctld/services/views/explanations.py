"""`GET /v1/jobs/{job}/explanation`: why a job waits, stage by stage, as `scontrol explain job` prints it.

An array gives its pending rest and its pending members, at most MOST_RECORDS of them; a job that does not wait gives
what it does instead.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, Protocol

from ctld.core.jobids import parse_selectors
from ctld.core.model import Job
from ctld.core.plan import Plan, Wait
from ctld.core.record import nodelist
from ctld.core.state import State
from ctld.sched.explain import reason_of
from ctld.sched.explaining import explain
from ctld.sched.explanation import Blocker, Explanation, PartitionView
from ctld.sched.foreseen import Foreseen, with_planned
from ctld.sched.memory import PlanMemory
from ctld.sched.releases import FAR
from ctld.services.door import Call, Right, Route
from ctld.services.views.jobs import FIELDS, JobView
from ctld.services.views.selection import check_known, select, unknown_job
from ctld.store.store import Store
from muster import errors, hostlist
from muster.clock import Clock
from muster.ids import UnixTime
from muster.slurm_errors import slurm_text
from muster.states import JobState, Reason, state_word

MOST_RECORDS = 8
"""Explanations of one answer."""


class HasPlans(Protocol):
    """The scheduler, as far as explanations need it."""

    @property
    def overlay(self) -> Plan:
        """The newest plan."""
        ...

    @property
    def memory(self) -> PlanMemory:
        """What its last pass left behind."""
        ...


class HasForeseen(Protocol):
    """The planner, as far as views need it."""

    @property
    def foreseen(self) -> Foreseen:
        """The newest calendar."""
        ...


def routes(store: Store, scheduler: HasPlans, planner: HasForeseen, clock: Clock) -> list[Route]:
    """Give the route; every user may ask about every job, as squeue shows every job's reason."""

    async def explanation(call: Call) -> dict[str, Any]:
        state = store.state
        found = []
        for job in _records(state, call.parts["job"]):
            found.append(_shown(state, scheduler, planner.foreseen, job, clock.now()))
            await asyncio.sleep(0)  # One takes 15 ms on ten thousand nodes.
        await store.settled()
        return {"now": clock.now(), "cluster": state.settings.cluster, "explanations": found}

    return [Route("GET", "/v1/jobs/{job}/explanation", Right.ANYONE, "job", explanation)]


def _records(state: State, text: str) -> list[Job]:
    selectors = parse_selectors(text)
    if len(selectors) != 1 or selectors[0].step_id is not None:
        raise errors.InvalidInput(slurm_text(2017), f"`{text[:60]}` does not name one job", slurm_code=2017)
    found = select(state, selectors)
    if not found:
        check_known(state, selectors)
        raise unknown_job(selectors[0].job_id)
    waiting = [job for job in found if job.state == JobState.PENDING]
    return (waiting or found)[:MOST_RECORDS]


def _shown(state: State, scheduler: HasPlans, foreseen: Foreseen, job: Job, at: UnixTime) -> dict[str, Any]:
    view = JobView(state, at, lambda _: Wait(Reason.NONE))
    head = {
        "id": FIELDS["id"](view, job),
        "job_id": job.id,
        "name": job.spec.name,
        "user": job.spec.user,
        "account": job.spec.account,
        "qos": job.spec.qos,
        "state": state_word(job.state, job.flags),
        "eligible_at": job.eligible_at,
    }
    if job.state != JobState.PENDING:
        return {**head, "reason": view.reason(job), "sentence": _does_not_wait(state, view, job)}
    overlay = scheduler.overlay
    wait = with_planned(reason_of(state, overlay, job, at), foreseen.of(state, job.id), at)
    return {**head, **_explained(state, explain(state, at, scheduler.memory, job, wait, overlay=overlay))}


def _does_not_wait(state: State, view: JobView, job: Job) -> str:
    word = state_word(job.state, job.flags)
    if job.state > JobState.SUSPENDED:
        return f"it does not wait: it ended {word} after {view.used(job)} seconds"
    assert job.alloc is not None, "who runs has an allocation"
    where = f"{nodelist(state, job.alloc.shares)} in partition {job.alloc.partition}"
    return f"it does not wait: it is {word} on {where}, started by {job.alloc.planned_by}"


def _explained(state: State, found: Explanation) -> dict[str, Any]:
    wait = found.wait
    return {
        "reason": wait.reason,
        "reason_text": wait.text or wait.reason,
        "sentence": found.sentence,
        "start_at": wait.start_at,
        "nodes": _names(state, wait.nodes),
        "priority": found.priority,
        "waited_seconds": found.waited_seconds,
        "longest_wait_seconds": found.longest_seconds,
        "late": found.late,
        "stages": [asdict(one) for one in found.stages],
        "partitions": [_partition(one) for one in found.partitions],
        "blockers": [_blocker(state, one) for one in found.blockers],
        "blocking": found.blocking,
    }


def _partition(view: PartitionView) -> dict[str, Any]:
    return {
        **asdict(view),
        "limits": [{**asdict(one.numbers), "in_the_way": one.in_the_way} for one in view.limits],
    }


def _blocker(state: State, one: Blocker) -> dict[str, Any]:
    job = state.jobs[one.job_id]
    return {
        "id": one.job_id,
        "user": job.spec.user,
        "state": state_word(job.state, job.flags),
        "nodes": _names(state, one.nodes),
        # -1: it has no limit, so that nobody knows.
        "ends_at": -1 if one.ends_at >= FAR else one.ends_at,
        "starts_at": one.starts_at,
    }


def _names(state: State, nodes: tuple[int, ...]) -> str:
    return hostlist.sort_compress([state.nodes[node].spec.name for node in nodes]) if nodes else ""

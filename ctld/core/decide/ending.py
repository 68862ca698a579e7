"""How a run ends: the event for it, with the outcome of the run and of its steps."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ctld.core.events import Event, JobFinished, JobRequeued, NodeChanged
from ctld.core.model import Job, Kill, Preempted, StepResult
from ctld.core.record import TERM, batch_record, run_record, step_record
from ctld.core.state import State
from muster.ids import UnixTime
from muster.records import StepRecord
from muster.states import JobState, Reason

NODE_FAIL_STATUS = 1
"""`0:1`, as scontrol shows a job whose node failed."""
REQUEUED_HELD = "job requeued in held state"
LAUNCH_FAILED_HELD = "launch failed requeued held"

_REASONS = {
    JobState.TIMEOUT: Reason.TIME_LIMIT,
    JobState.NODE_FAIL: Reason.NODE_DOWN,
    JobState.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
}
_KEPT_WORDS = (JobState.NODE_FAIL, JobState.PREEMPTED)
"""Ends whose name the run's record keeps when the job is requeued; all others read REQUEUED."""


def may_requeue(job: Job) -> bool:
    """Tell whether a job may go back to the queue by itself."""
    return job.spec.batch and job.spec.requeue


def drain_at_fault(state: State, result: StepResult, at: UnixTime) -> list[Event]:
    """Drain a node that can begin no step: it is always free, and would eat the queue."""
    node = state.nodes[result.node]
    if not result.node_at_fault or node.down or node.drain or node.fail:
        return []
    return [NodeChanged(at=at, node=result.node, down=False, drain=True, fail=False, reason=result.error)]


def as_ordered(job: Job) -> Job:
    """Give the record of a run with its end ordered, if it was chosen as a victim and is in its grace: how it ends
    then is as its preemption says, whatever its script made of the warning."""
    victim = job.preempted
    if job.kill is not None or victim is None or victim.mode == "SUSPEND":
        return job
    return replace(job, kill=kill_of(victim, victim.at))


def kill_of(victim: Preempted, at: UnixTime) -> Kill:
    """Give the order that ends a victim whose grace is over."""
    return Kill(state=int(JobState.PREEMPTED), at=at, why="PREEMPTION", requeue=victim.mode == "REQUEUE")


def other_nodes(job: Job, *gone: int) -> tuple[int, ...]:
    """Give the nodes of a run but those on which nothing is left."""
    assert job.alloc is not None, "a run has nodes"
    return tuple(share.node for share in job.alloc.shares if share.node not in gone)


def finish(
    state: State,
    job: Job,
    at: UnixTime,
    end: JobState,
    *,
    status: int = 0,
    reason: str = "",
    state_text: str = "",
    failed_node: str = "",
    completing: tuple[int, ...] = (),
    result: StepResult | None = None,
    cancelled_by: int | None = None,
    ended_steps: frozenset[int] = frozenset(),
) -> JobFinished:
    """End a run for good.

    Args:
        status: wait status word that `scontrol show job` shows.
        completing: nodes that have yet to say that nothing is left there.
        result: how the batch step ended, where its node could say so.
        ended_steps: steps in the state whose end an event before this one tells.
        cancelled_by: uid; None: who gave the kill order, if that ends it as CANCELLED.
    """
    return JobFinished(
        at=at,
        job_id=job.id,
        state=int(end),
        record=run_record(
            state,
            job,
            word=end.name,
            exit_status=status,
            ended_at=at,
            state_text=state_text,
            failed_node=failed_node,
            cancelled_by=cancelled_by,
        ),
        steps=_step_ends(state, job, at, end, result, ended_steps),
        exit_status=status,
        reason=reason or _REASONS.get(end, ""),
        state_text=state_text,
        failed_node=failed_node,
        completing=completing,
    )


def requeue_run(
    state: State,
    job: Job,
    at: UnixTime,
    end: JobState,
    *,
    status: int = 0,
    hold: str = "",
    reason: str = "",
    state_text: str = "",
    failed_node: str = "",
    completing: tuple[int, ...] = (),
    result: StepResult | None = None,
    ended_steps: frozenset[int] = frozenset(),
) -> JobRequeued:
    """End a run and put its job back into the queue, held if it was held meanwhile or `hold` says by whom."""
    hold = hold or job.hold
    word = end.name if end in _KEPT_WORDS else "REQUEUED"
    return JobRequeued(
        at=at,
        job_id=job.id,
        begin_at=UnixTime(at + state.settings.requeue_delay_seconds + 1),
        priority=0 if hold else job.priority,
        hold=hold,
        state_text=state_text,
        reason=reason,
        record=run_record(
            state,
            job,
            word=word,
            exit_status=status,
            ended_at=at,
            state_text=state_text,
            failed_node=failed_node,
        ),
        steps=_step_ends(state, job, at, end, result, ended_steps),
        completing=completing,
    )


def end_by_kill(
    state: State,
    job: Job,
    at: UnixTime,
    *,
    status: int,
    completing: tuple[int, ...] = (),
    result: StepResult | None = None,
    ended_steps: frozenset[int] = frozenset(),
) -> JobFinished | JobRequeued:
    """End a run as its kill order says, whatever its script made of the signal."""
    kill = job.kill
    assert kill is not None, "an end was ordered"
    end = JobState(kill.state)
    if kill.requeue:
        return requeue_run(
            state,
            job,
            at,
            end,
            status=status,
            hold="user" if kill.hold else "",
            state_text=REQUEUED_HELD if kill.hold else "",
            completing=completing,
            result=result,
            ended_steps=ended_steps,
        )
    return finish(state, job, at, end, status=status, completing=completing, result=result, ended_steps=ended_steps)


def end_by_node_failure(
    state: State, job: Job, at: UnixTime, failed_node: str, *, completing: tuple[int, ...] = (), state_text: str = ""
) -> JobFinished | JobRequeued:
    """End a run because a node of it is lost: as ordered before, else requeued where allowed, else
    NODE_FAIL."""
    job = as_ordered(job)
    if job.kill is not None:
        return end_by_kill(state, job, at, status=TERM, completing=completing)
    if may_requeue(job):
        return requeue_run(
            state,
            job,
            at,
            JobState.NODE_FAIL,
            status=NODE_FAIL_STATUS,
            failed_node=failed_node,
            completing=completing,
        )
    return finish(
        state,
        job,
        at,
        JobState.NODE_FAIL,
        status=NODE_FAIL_STATUS,
        state_text=state_text,
        failed_node=failed_node,
        completing=completing,
    )


def _step_ends(  # noqa: PLR0917 - called from two places of this file only
    state: State,
    job: Job,
    at: UnixTime,
    end: JobState,
    result: StepResult | None,
    ended_steps: frozenset[int],
) -> tuple[StepRecord, ...]:
    """Records of the batch step and of the numbered steps that are still open: those end with the run."""
    # Nobody can say what became of tasks on a node that is gone: no exit code then.
    status = 0 if end == JobState.NODE_FAIL else TERM
    records: list[StepRecord] = []
    if job.spec.batch:
        records.append(batch_record(state, job, result, ended_at=at, status=status))
    open_steps: Iterable[int] = sorted(state.steps.get(job.id, {}).keys() - ended_steps)
    for step_id in open_steps:
        step = state.steps[job.id][step_id]
        records.append(step_record(state, job, step, ended_at=at, word="CANCELLED", status=status))
    return tuple(records)

"""What nodes say of runs: the batch step ended, a launch failed, a run is not known, nothing is left."""

from __future__ import annotations

from ctld.core.commands import FinishBatch, FinishStep, LoseBatch, ReleaseNode
from ctld.core.decide.ending import (
    LAUNCH_FAILED_HELD,
    as_ordered,
    drain_at_fault,
    end_by_kill,
    end_by_node_failure,
    finish,
    may_requeue,
    other_nodes,
    requeue_run,
)
from ctld.core.decide.steps import finish_step
from ctld.core.events import Event, NodesReleased
from ctld.core.model import Job, StepResult
from ctld.core.record import TERM, aggregate_status, end_of
from ctld.core.state import State
from muster.ids import JobId, StepId, UnixTime
from muster.states import JobState, Reason


def finish_batch(state: State, command: FinishBatch, at: UnixTime) -> list[Event]:
    """End a run whose batch script ended; a report of an earlier run only frees the node."""
    job, result = state.jobs.get(command.job_id), command.result
    if job is None:
        return []
    if not _runs(job, command.run):
        return _released(job, command.run, result.node, at)
    job = as_ordered(job)
    completing = other_nodes(job, result.node)
    status = aggregate_status((result,))
    if job.kill is not None and not _ended_before(job, result):
        ended_how = status if result.tasks else TERM
        return [end_by_kill(state, job, at, status=ended_how, completing=completing, result=result)]
    if result.error and not result.tasks:
        return [*drain_at_fault(state, result, at), _launch_failed(state, job, at, result, completing)]
    end, reason = end_of(status)
    return [
        finish(
            state,
            job,
            at,
            end,
            status=status,
            reason=reason,
            state_text=result.error,
            completing=completing,
            result=result,
        )
    ]


def lose_batch(state: State, command: LoseBatch, at: UnixTime) -> list[Event]:
    """End a run that its first node does not know although it stands: as if the node had failed under it."""
    job = state.jobs.get(command.job_id)
    if job is None or not _runs(job, command.run) or job.alloc is None:
        return []
    first = job.alloc.shares[0].node
    name = state.nodes[first].spec.name
    completing = other_nodes(job, first)
    return [end_by_node_failure(state, job, at, name, completing=completing, state_text=command.why)]


def release_node(state: State, command: ReleaseNode, at: UnixTime) -> list[Event]:
    """Free what an ended run had on a node.

    A run that was ordered to end and of which its node has nothing (its launch never arrived) ends by that.
    """
    job = state.jobs.get(command.job_id)
    if job is None:
        return []
    if _runs(job, command.run):
        return _never_arrived(state, job, command, at) if job.kill is not None else []
    return _released(job, command.run, command.node, at)


def _never_arrived(state: State, job: Job, command: ReleaseNode, at: UnixTime) -> list[Event]:
    # An agent reports the ends that it knows before it says that nothing is left: here there was none.
    assert job.alloc is not None, "a run has nodes"
    if job.spec.batch:
        if command.node != job.alloc.shares[0].node:
            return []
        return [end_by_kill(state, job, at, status=TERM, completing=other_nodes(job, command.node))]
    result = StepResult(node=command.node, ended_at=at, error="the node has nothing of this step")
    return finish_step(state, FinishStep(job.id, command.run, StepId(0), result), at)


def completing_run(job: Job) -> int:
    """Give the number of the run that is being cleaned up: a requeued job's record counts the next one
    already."""
    return job.restarts - 1 if job.state == JobState.PENDING else job.restarts


def _released(job: Job, run: int, node: int, at: UnixTime) -> list[Event]:
    if node not in job.completing or run != completing_run(job):
        return []
    return [NodesReleased(at=at, job_id=JobId(job.id), nodes=(node,))]


def _runs(job: Job, run: int) -> bool:
    return JobState.PENDING < job.state <= JobState.SUSPENDED and job.restarts == run


def _ended_before(job: Job, result: StepResult) -> bool:
    """Tell whether the script had ended by itself when its end was ordered (the report was on its way)."""
    return job.kill is not None and bool(result.tasks) and 0 < result.ended_at < job.kill.at


def _launch_failed(state: State, job: Job, at: UnixTime, result: StepResult, completing: tuple[int, ...]) -> Event:
    """A script that could not even be begun: back to the queue and held, so that no node eats a queue of
    jobs."""
    if not may_requeue(job):
        return finish(
            state,
            job,
            at,
            JobState.FAILED,
            status=1 << 8,
            reason=Reason.LAUNCH_FAILURE,
            state_text=result.error,
            completing=completing,
            result=result,
        )
    too_often = job.restarts >= state.settings.max_batch_requeue
    return requeue_run(
        state,
        job,
        at,
        JobState.FAILED,
        status=1 << 8,
        hold="user",
        reason=Reason.MAX_REQUEUE if too_often else "",
        state_text="" if too_often else LAUNCH_FAILED_HELD,
        completing=completing,
        result=result,
    )

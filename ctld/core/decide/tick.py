"""Time passing: limits, warnings, begin times, dependencies with minutes, purging, allocations that nobody
uses.

`State.due` knows when each job next needs a look, so a tick costs what is due and nothing else.
"""

from __future__ import annotations

from ctld.core.apply.indexes import PENDING, SUSPENDED
from ctld.core.commands import Tick
from ctld.core.decide import dependency, reservation_time
from ctld.core.decide.cancel import end_pending
from ctld.core.decide.ending import end_by_kill, finish, kill_of
from ctld.core.decide.overuse import overused
from ctld.core.decide.suspend import returning
from ctld.core.events import (
    Event,
    JobEligible,
    JobFinished,
    JobRequeued,
    JobsPurged,
    JobWarned,
    KillOrdered,
    NodesReleased,
    StepKillOrdered,
)
from ctld.core.model import Job, Kill
from ctld.core.record import TERM
from ctld.core.state import State
from ctld.core.times import latest_start, limit_end
from muster.ids import UnixTime
from muster.states import JobState, Reason

NEVER_USED = "srun did not begin its step"


def tick(state: State, command: Tick, at: UnixTime) -> list[Event]:
    """Decide what has fallen due, at most about `limit` events; the rest follows with the next tick."""
    if state.timed:
        # Alone: both this and the rest below may touch the same jobs, and each is computed against the state
        # of now.
        timed = dependency.due(state, at, command.limit)
        if timed:
            return timed
    events: list[Event] = list(returning(state, at)) if state.suspended else []
    purged: list[int] = []
    for job_id in state.due.due(at):
        if len(events) + len(purged) >= command.limit:
            break
        job = state.jobs[job_id]
        if job.completing:
            events += _given_up(state, job, at)
        elif job.state > SUSPENDED:
            purged.append(job_id)
        elif job.state == PENDING:
            if job.spec.deadline_at and at > latest_start(job):
                events.append(end_pending(state, job, at, end=JobState.DEADLINE, reason=Reason.DEADLINE))
            else:
                events.append(JobEligible(at=at, job_id=job.id))
        else:
            events += _of_running(state, job, at)
    if state.reservations:
        events += reservation_time.due(state, at)
    if command.overuse:
        ordered = {event.job_id for event in events if isinstance(event, KillOrdered | JobFinished | JobRequeued)}
        events += [event for event in overused(state, at, command.limit) if event.job_id not in ordered]
    if purged:
        events.append(JobsPurged(at=at, job_ids=tuple(purged)))
    return [*events, *dependency.follow(state, events, at)]


def _given_up(state: State, job: Job, at: UnixTime) -> list[Event]:
    """Free nodes that are DOWN and have not said in all this time that nothing is left there."""
    nodes = tuple(node for node in job.completing if state.nodes[node].down)
    return [NodesReleased(at=at, job_id=job.id, nodes=nodes)] if nodes else []


def _of_running(state: State, job: Job, at: UnixTime) -> list[Event]:
    settings = state.settings
    if not job.spec.batch and not job.next_step:
        if job.kill is not None:
            return [end_by_kill(state, job, at, status=TERM)]
        if at >= job.started_at + settings.batch_start_timeout_seconds:
            # No process was ever begun for it: nothing is left on its nodes.
            return [finish(state, job, at, JobState.CANCELLED, state_text=NEVER_USED)]
    events: list[Event] = []
    if job.spec.deadline_at and at >= job.spec.deadline_at and job.kill is None:
        kill = Kill(state=int(JobState.DEADLINE), at=at, why="TIME LIMIT")
        return [KillOrdered(at=at, job_id=job.id, kill=kill)]
    victim = job.preempted
    if victim is not None and job.kill is None and victim.mode != "SUSPEND" and at >= victim.ends_at:
        return [KillOrdered(at=at, job_id=job.id, kill=kill_of(victim, at))]
    if job.kill is None and job.limit_seconds >= 0:
        ends_at = limit_end(job)
        if settings.over_time_minutes >= 0 and at >= ends_at + 60 * settings.over_time_minutes:
            kill = Kill(state=int(JobState.TIMEOUT), at=at, why="TIME LIMIT")
            return [KillOrdered(at=at, job_id=job.id, kill=kill)]
        warning = job.spec.signal
        if warning is not None and not job.warned and at >= ends_at - warning.seconds:
            events.append(JobWarned(at=at, job_id=job.id))
    for _, step in sorted(state.steps.get(job.id, {}).items()):
        if step.kill is None and 0 <= step.limit_seconds <= at - step.created_at:
            kill = Kill(state=int(JobState.TIMEOUT), at=at, why="TIME LIMIT")
            events.append(StepKillOrdered(at=at, job_id=job.id, step_id=step.step_id, kill=kill))
    return events

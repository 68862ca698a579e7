"""Events of numbered steps."""

from __future__ import annotations

from msgspec import structs

from ctld.core.apply.indexes import due_at, put
from ctld.core.events import StepCreated, StepFinished, StepKillOrdered, StepReported
from ctld.core.state import State


def created(state: State, event: StepCreated) -> None:
    """Take the step in; its number is used up."""
    step = event.step
    state.steps.setdefault(step.job_id, {})[step.step_id] = step
    job = state.jobs[step.job_id]
    put(state, job, structs.replace(job, next_step=max(job.next_step, step.step_id + 1)))


def kill_ordered(state: State, event: StepKillOrdered) -> None:
    """Note the order on the step."""
    steps = state.steps[event.job_id]
    steps[event.step_id] = structs.replace(steps[event.step_id], kill=event.kill)
    _refresh_due(state, event.job_id)


def reported(state: State, event: StepReported) -> None:
    """Add what one node said."""
    steps = state.steps[event.job_id]
    step = steps[event.step_id]
    steps[event.step_id] = structs.replace(step, results=(*step.results, event.result))


def finished(state: State, event: StepFinished) -> None:
    """Forget the step; the job's derived exit status is the highest of its steps that were not ended by a
    signal."""
    steps = state.steps.get(event.job_id)
    if steps is not None:
        steps.pop(event.step_id, None)
        if not steps:
            del state.steps[event.job_id]
    job = state.jobs[event.job_id]
    status = event.record.exit_status
    if not status & 0x7F and status > job.derived_status:
        put(state, job, structs.replace(job, derived_status=status))
    else:
        _refresh_due(state, event.job_id)


def _refresh_due(state: State, job_id: int) -> None:
    """A step's own limit counts among the times at which its job needs a look."""
    state.due.set(job_id, due_at(state, state.jobs[job_id]))

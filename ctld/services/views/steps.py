"""A step that runs, as users see it; the batch script is shown as one, though it has no record of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ctld.core import ranges, record
from ctld.core.jobids import parse_selectors
from ctld.core.model import UNLIMITED, Job, NodeShare
from ctld.core.state import State
from ctld.services.views.jobs import Value
from muster.ids import BATCH_STEP, NO_TASK, UnixTime, step_word
from muster.states import JobState
from muster.tres import format_tres

Field = Callable[["StepView", "Shown"], Value]


@dataclass(frozen=True, slots=True)
class Shown:
    """A step and its job."""

    job: Job
    step_id: int
    name: str
    shares: tuple[NodeShare, ...]
    tasks: int
    started_at: UnixTime
    limit_seconds: int = UNLIMITED

    @property
    def is_batch(self) -> bool:
        """Whether it is the batch script."""
        return self.step_id == BATCH_STEP


class StepView:
    """Looks at steps at one moment."""

    def __init__(self, state: State, at: UnixTime) -> None:
        self.state = state
        self.at = at

    def steps(self, job: Job) -> Iterator[Shown]:
        """Give the steps of a job that runs: batch first, then by number."""
        if job.alloc is None or not JobState.PENDING < job.state <= JobState.SUSPENDED:
            return
        if job.spec.batch:
            yield Shown(job, int(BATCH_STEP), "batch", job.alloc.shares[:1], 1, job.started_at)
        for number, step in sorted(self.state.steps.get(job.id, {}).items()):
            yield Shown(job, number, step.name, step.shares, step.ntasks, step.created_at, step.limit_seconds)


def only_these(text: str | None) -> Callable[[Shown], bool] | None:
    """Read a list of step ids (`5`, `5.0`, `5_3.batch`): what tells whether a step is in it; None: all are."""
    if not text:
        return None
    selectors = parse_selectors(text)

    def wanted(shown: Shown) -> bool:
        job = shown.job
        for selector in selectors:
            if selector.step_id is not None and selector.step_id != shown.step_id:
                continue
            if selector.tasks is None and selector.job_id in (job.id, job.array_job_id):
                return True
            if (
                selector.tasks is not None
                and selector.job_id == job.array_job_id
                and ranges.contains(selector.tasks, job.array_task_id)
            ):
                return True
        return False

    return wanted


def _id(view: StepView, shown: Shown) -> Value:
    job = shown.job
    head = f"{job.array_job_id}_{job.array_task_id}" if job.array_task_id != NO_TASK else str(job.id)
    return f"{head}.{step_word(shown.step_id)}"


def _sort_id(view: StepView, shown: Shown) -> Value:
    """By job, then batch, 0, 1, ..."""
    return shown.job.id << 33 | (0 if shown.is_batch else shown.step_id + 1)


def _tres(view: StepView, shown: Shown) -> Value:
    if shown.is_batch:
        return None
    amounts = record.tres(view.state, shown.shares)
    amounts.pop("billing", None)
    if not view.state.settings.memory_consumable:
        amounts.pop("mem", None)
    return format_tres(amounts, alphabetical=True)


FIELDS: dict[str, Field] = {
    "array_job_id": lambda view, shown: shown.job.array_job_id or None,
    "array_task": lambda view, shown: shown.job.array_task_id if shown.job.array_task_id != NO_TASK else None,
    "cluster": lambda view, shown: view.state.settings.cluster,
    "cpus": lambda view, shown: 0 if shown.is_batch else sum(share.cpus for share in shown.shares),
    "id": _id,
    "id_sort": _sort_id,
    "is_batch": lambda view, shown: int(shown.is_batch),
    "job_id": lambda view, shown: shown.job.id,
    "limit": lambda view, shown: shown.limit_seconds,
    "name": lambda view, shown: shown.name,
    "nodelist": lambda view, shown: record.nodelist(view.state, shown.shares),
    "nodes": lambda view, shown: len(shown.shares),
    "partition": lambda view, shown: shown.job.alloc.partition if shown.job.alloc is not None else "",
    "started_at": lambda view, shown: shown.started_at,
    "state": lambda view, shown: JobState(shown.job.state).name,
    "step_id": lambda view, shown: shown.step_id,
    "submit_host": lambda view, shown: None if shown.is_batch else shown.job.spec.submit_host or None,
    "tasks": lambda view, shown: shown.tasks,
    "tres": _tres,
    "uid": lambda view, shown: shown.job.spec.uid,
    "used": lambda view, shown: max(0, view.at - shown.started_at),
    "user": lambda view, shown: shown.job.spec.user,
}
"""Field name -> what gives it (`GET /v1/steps?fields=id,name`)."""

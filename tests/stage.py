"""A small stage: a state, a clock, and commands that are decided and applied at once."""

from __future__ import annotations

from ctld.core import invariants
from ctld.core.apply import apply
from ctld.core.commands import ApplyPlan, Command, Submit
from ctld.core.decide import decide
from ctld.core.events import Event, JobSubmitted
from ctld.core.model import Caller, Job, JobSpec, NodeShare, StepResult, TaskResult
from ctld.core.plan import Plan, Start
from ctld.core.state import State
from muster.ids import NO_TASK, JobId, UnixTime
from tests.builders import NOON, USER, a_spec


class Stage:
    """Decides and applies; `at` is the time of the next command."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.at = int(NOON)

    def do(self, command: Command) -> list[Event]:
        """Decide, apply, check, and give the events."""
        events = decide(self.state, command, UnixTime(self.at))
        for event in events:
            apply(self.state, event)
            invariants.check_touched(self.state, event)
        invariants.check(self.state)
        return events

    def job(self, job_id: int) -> Job:
        """The record of a job."""
        return self.state.jobs[job_id]

    def submit(self, spec: JobSpec | None = None, *, by: Caller = USER, **fields: object) -> int:
        """Submit a job and give its id."""
        (event, *_) = self.do(Submit(spec=spec or a_spec(**fields), by=by))  # type: ignore[arg-type]
        assert isinstance(event, JobSubmitted)
        return event.job.id

    def start(self, job_id: int, *shares: NodeShare, task: int = NO_TASK, partition: str = "main") -> list[Event]:
        """Start a job (by default on one CPU of the first node)."""
        given = shares or (a_share(),)
        start = Start(JobId(job_id), partition, given, task)
        return self.do(ApplyPlan(Plan(made_at=UnixTime(self.at), starts=(start,))))

    def running(self, *shares: NodeShare, **fields: object) -> int:
        """Submit and start a job; give its id."""
        job_id = self.submit(**fields)  # type: ignore[arg-type]
        assert self.start(job_id, *shares)
        return job_id


def a_share(node: int = 0, *, first_core: int = 0, cpus: int = 1, tasks: int = 1, **fields: object) -> NodeShare:
    """A share of `cpus` single-thread cores from `first_core` on."""
    return NodeShare(
        node=node,
        cpus=cpus,
        cores=(first_core, first_core + cpus - 1),
        tasks=tasks,
        **fields,  # type: ignore[arg-type]
    )


def a_result(node: int = 0, *statuses: int, **fields: object) -> StepResult:
    """What a node says of a step whose tasks 0, 1, ... ended with these statuses."""
    tasks = tuple(TaskResult(rank, status) for rank, status in enumerate(statuses))
    return StepResult(node=node, tasks=tasks, **fields)  # type: ignore[arg-type]

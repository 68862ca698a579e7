"""A desk for tests of decisions: commands are decided, what follows from them too, and all is applied at once."""

from __future__ import annotations

from ctld.core import ranges
from ctld.core.apply import apply
from ctld.core.cluster import PartitionSpec, Settings
from ctld.core.commands import Command, Submit
from ctld.core.decide import decide, dependency
from ctld.core.decide.numbering import JobIds
from ctld.core.events import Event, JobFinished, JobRequeued, JobStarted, NodesReleased
from ctld.core.model import Allocation, Caller, Job, NodeShare
from ctld.core.record import run_record
from ctld.core.state import State
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import JobState
from tests.builders import NOON, USER, a_spec, a_state


class Desk:
    """A state of large nodes with the partition `main`, and what is done to it."""

    def __init__(
        self, nodes: int = 4, *, settings: Settings | None = None, partitions: tuple[PartitionSpec, ...] | None = None
    ) -> None:
        self.state: State = a_state(nodes, cpus=100_000, gpus=8, settings=settings, partitions=partitions)
        self.at: UnixTime = NOON

    def do(self, command: Command) -> list[Event]:
        """Decide a command and apply it."""
        events = decide(self.state, command, self.at)
        self._apply(events)
        return events

    def apply(self, events: list[Event]) -> list[Event]:
        """Apply events that were decided, and what follows from them."""
        events = [*events, *dependency.follow(self.state, events, self.at)]
        self._apply(events)
        return events

    def _apply(self, events: list[Event]) -> None:
        assert dependency.follow(self.state, events, self.at) == [], "what follows is said already, and once"
        for event in events:
            apply(self.state, event)

    def wait(self, seconds: int) -> list[Event]:
        """Let time pass, and give what follows from that for dependencies."""
        self.at = UnixTime(self.at + seconds)
        return self.apply(dependency.due(self.state, self.at))

    def submit(
        self,
        dependency: str = "",
        *,
        by: Caller = USER,
        nice: int = 0,
        hold: bool = False,
        priority: int | None = None,
        array_limit: int = 0,
        **fields: object,
    ) -> JobId:
        """Submit a job of `by`; array=(0, 2) makes an array. Gives its id."""
        fields.setdefault("uid", by.uid)
        spec = a_spec(**fields)  # type: ignore[arg-type]
        events = self.do(
            Submit(
                spec,
                by,
                dependency=dependency,
                nice=nice,
                hold=hold,
                priority=priority,
                array_limit=array_limit,
            )
        )
        job: Job = events[0].job  # type: ignore[union-attr]
        return job.id

    def job(self, job_id: int) -> Job:
        return self.state.jobs[job_id]

    def member(self, array: int, task: int) -> Job:
        """Give the record of a member (of the pending rest, when the member waits there)."""
        for job_id in self.state.by_array[array]:
            job = self.state.jobs[job_id]
            if job.array_task_id == task or ranges.contains(job.array_pending, task):
                return job
        raise KeyError(task)

    def can_start(self, job_id: int) -> bool:
        return job_id in self.state.queue

    def start(self, job_id: int, task: int = NO_TASK) -> JobId:
        """Start a job, or a member of a pending rest; gives the id of the run's record."""
        array_job_id, new_id = 0, JobId(job_id)
        rest = self.job(job_id)
        if task != NO_TASK:
            array_job_id = rest.array_job_id
            if rest.array_pending != (task, task):
                new_id = JobIds(self.state).take()
        alloc = Allocation("main", (NodeShare(node=0, cpus=1, cores=()),))
        self.apply([JobStarted(self.at, new_id, alloc, 3600, array_job_id, task)])
        return new_id

    def end(
        self, job_id: int, end: JobState = JobState.COMPLETED, *, status: int = 0, completing: tuple[int, ...] = ()
    ) -> list[Event]:
        """End a run."""
        record = run_record(self.state, self.job(job_id), word=end.name, exit_status=status, ended_at=self.at)
        return self.apply(
            [JobFinished(self.at, JobId(job_id), int(end), record, exit_status=status, completing=completing)]
        )

    def clean(self, job_id: int) -> list[Event]:
        """Let all nodes of an ended run say that nothing is left there."""
        return self.apply([NodesReleased(self.at, JobId(job_id), self.job(job_id).completing)])

    def requeue_run(self, job_id: int) -> list[Event]:
        """Put a running job back into the queue."""
        record = run_record(self.state, self.job(job_id), word="REQUEUED", ended_at=self.at)
        return self.apply([JobRequeued(self.at, JobId(job_id), self.at, 100, record=record)])

    def run(self, job_id: int, end: JobState = JobState.COMPLETED, task: int = NO_TASK) -> JobId:
        """Start a job and end it."""
        run_id = self.start(job_id, task)
        self.end(run_id, end, status=0 if end == JobState.COMPLETED else 256)
        return run_id

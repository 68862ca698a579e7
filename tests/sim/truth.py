"""What really happened, and whether the journal tells the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ctld.core import ranges
from ctld.core.events import (
    ArrayMemberSplit,
    ArrayTasksCancelled,
    JobFinished,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    KillOrdered,
    NodesReleased,
    StepCreated,
    StepFinished,
    decode,
)
from ctld.core.model import Allocation, Ranges
from muster.ids import BATCH_STEP, NO_TASK
from muster.records import RunRecord, StepRecord
from muster.states import JobState

Key = tuple[int, int, int]
Run = tuple[int, int]
BATCH = int(BATCH_STEP)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended on a node."""

    status: int
    by_itself: bool


@dataclass(slots=True)
class Truth:
    """What the machines did, noted as it happened."""

    begun: dict[Key, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Step -> how often it began on which node."""
    ended: dict[tuple[Key, int], Ended] = field(default_factory=dict)
    troubled: set[int] = field(default_factory=set)
    """Nodes that lost power, or were cut off."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Job id -> number of members, of submissions that were answered."""

    def note_begun(self, key: Key, node: int) -> None:
        """A step's process began."""
        self.begun[key][node] += 1
        assert self.begun[key][node] == 1, f"step {key} began twice on node {node}"

    def note_ended(self, key: Key, node: int, status: int, *, by_itself: bool) -> None:
        """A step's process ended."""
        assert (key, node) not in self.ended, f"step {key} ended twice on node {node}"
        self.ended[key, node] = Ended(status, by_itself)

    def note_trouble(self, node: int) -> None:
        """A node was lost."""
        self.troubled.add(node)


@dataclass(slots=True)
class Told:
    """What the journal says, event by event."""

    submitted: dict[int, int] = field(default_factory=dict)
    """Job id -> number of its members, as submitted."""
    started: dict[Run, JobStarted] = field(default_factory=dict)
    killed: dict[Run, KillOrdered] = field(default_factory=dict)
    records: dict[Run, list[RunRecord]] = field(default_factory=lambda: defaultdict(list))
    """Of runs that had started."""
    steps: dict[Key, Allocation | None] = field(default_factory=dict)
    step_records: dict[Key, list[StepRecord]] = field(default_factory=lambda: defaultdict(list))
    ends: Counter[int] = field(default_factory=Counter)
    """Job (array: its own id) -> members that ended for good, those requeued afterwards taken off."""
    kinds: Counter[str] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)
    """Job id -> number of its current run."""
    arrays: dict[int, int] = field(default_factory=dict)
    """Job id of a member -> its array."""
    running: dict[int, Run] = field(default_factory=dict)
    rests: dict[int, Ranges] = field(default_factory=dict)
    """Array -> members without records of their own (the last ones, when all of those were cancelled)."""


def read(events: Iterable[bytes]) -> Told:
    """Read the whole journal, checking that no job runs twice at once and that each run has one outcome."""
    told = Told()
    for payload in events:
        event = decode(payload)
        told.kinds[type(event).__name__] += 1
        match event:
            case JobSubmitted(job=job):
                assert job.id not in told.submitted, f"job id {job.id} was given out twice"
                told.submitted[job.id] = job.spec.array.size if job.spec.array is not None else 1
                if job.array_job_id:
                    told.arrays[job.id] = job.array_job_id
                    told.rests[job.id] = job.array_pending
            case ArrayMemberSplit(array_job_id=array, job_id=job_id):
                _split(told, array, event.task_id, job_id)
            case JobStarted(job_id=job_id):
                if event.task_id != NO_TASK:
                    _split(told, event.array_job_id, event.task_id, job_id)
                run = (job_id, told.runs[job_id])
                assert job_id not in told.running, f"job {job_id} starts while it runs"
                assert run not in told.started, f"run {run} starts twice"
                told.started[run] = event
                told.running[job_id] = run
            case KillOrdered(job_id=job_id):
                told.killed[job_id, told.runs[job_id]] = event
            case StepCreated(step=step):
                key = (step.job_id, told.runs[step.job_id], int(step.step_id))
                assert key not in told.steps, f"step {key} is made twice"
                told.steps[key] = None
            case StepFinished(record=step_record):
                told.step_records[step_record.job_id, step_record.run, step_record.step_id].append(step_record)
            case JobFinished(job_id=job_id, record=record):
                _run_ended(told, job_id, record, event.steps)
                told.ends[told.arrays.get(job_id, job_id)] += 1
            case JobRequeued(job_id=job_id):
                if event.record is not None:
                    _run_ended(told, job_id, event.record, event.steps)
                else:
                    assert job_id not in told.running, f"job {job_id} is requeued without an outcome of its run"
                    # A rest that was cancelled comes back with the members that were cancelled last.
                    told.ends[told.arrays.get(job_id, job_id)] -= ranges.count(told.rests.get(job_id, ())) or 1
                told.runs[job_id] += 1
            case ArrayTasksCancelled(job_id=job_id, tasks=tasks):
                told.ends[job_id] += ranges.count(tasks)
                told.rests[job_id] = ranges.difference(told.rests[job_id], tasks) or tasks
            case NodesReleased(job_id=job_id):
                assert job_id not in told.running, f"job {job_id} runs and releases nodes"
    return told


def _split(told: Told, array: int, task: int, job_id: int) -> None:
    assert ranges.contains(told.rests[array], task), f"member {task} of {array} starts, and is not in the rest"
    told.rests[array] = ranges.without(told.rests[array], task)
    told.arrays[job_id] = array
    told.runs[job_id] = told.runs[array]


def _run_ended(told: Told, job_id: int, record: RunRecord, steps: Iterable[StepRecord]) -> None:
    run = told.running.pop(job_id, None)
    if run is None:
        return
    assert (record.job_id, record.run) == run, f"run {run} ends as {record.job_id}.{record.run}"
    told.records[run].append(record)
    for step in steps:
        told.step_records[step.job_id, step.run, step.step_id].append(step)


def compare(truth: Truth, told: Told) -> None:
    """Check that everything acknowledged is there, ended, and ended as it did in the world.

    Raises:
        AssertionError: naming the job.
    """
    for job_id, members in truth.acknowledged.items():
        assert told.submitted.get(job_id) == members, f"job {job_id} was acknowledged and is lost"
    for job_id, members in told.submitted.items():
        assert told.ends[job_id] == members, f"of job {job_id} {told.ends[job_id]} of {members} members ended"
    for run in told.started:
        assert len(told.records[run]) == 1, f"run {run} has {len(told.records[run])} outcomes"
    for key in told.steps:
        assert len(told.step_records[key]) == 1, f"step {key} has {len(told.step_records[key])} outcomes"
    for key in truth.begun:
        assert key[:2] in told.started, f"{key} ran and was never started"
    for run, start in told.started.items():
        _compare_run(truth, told, run, start, told.records[run][0])
    for key, records in told.step_records.items():
        if key[2] != BATCH:
            _compare_step(truth, told, key, records[0])


def _compare_run(truth: Truth, told: Told, run: Run, start: JobStarted, record: RunRecord) -> None:
    batch: Key = (*run, BATCH)
    nodes = {share.node for share in start.alloc.shares}
    begun = truth.begun.get(batch, Counter())
    assert set(begun) <= {start.alloc.shares[0].node}, f"run {run} began on a node that it did not have"
    if batch not in told.step_records:
        assert not begun, f"run {run} has no outcome of its batch step, which ran"
        return
    assert len(told.step_records[batch]) == 1, f"run {run} has several outcomes of its batch step"
    ended = truth.ended.get((batch, start.alloc.shares[0].node))
    word = record.state
    if word in ("COMPLETED", "FAILED"):
        if ended is None:
            assert not begun or start.alloc.shares[0].node in truth.troubled, f"run {run} is {word} and has not ended"
            return
        assert record.exit_status == ended.status, f"run {run} shows {record.exit_status}, and was {ended.status}"
        assert (word == "COMPLETED") == (ended.status == 0), f"run {run} is {word} with {ended.status}"
        return
    if ended is not None and ended.by_itself and not nodes & truth.troubled and run not in told.killed:
        raise AssertionError(f"run {run} ended by itself with {ended.status} and is {word}")
    if word == JobState.NODE_FAIL.name:
        assert nodes & truth.troubled, f"run {run} is NODE_FAIL and all its nodes were well"
    else:
        assert run in told.killed or not begun or nodes & truth.troubled, f"run {run} is {word} for no reason"


def _compare_step(truth: Truth, told: Told, key: Key, record: StepRecord) -> None:
    ends = {node: truth.ended.get((key, node)) for node in truth.begun.get(key, ())}
    if record.state == "COMPLETED":
        assert ends, f"step {key} is COMPLETED and never began"
        for node, ended in ends.items():
            assert ended is not None, f"step {key} is COMPLETED and lives on node {node}"
            assert ended.status == 0, f"step {key} is COMPLETED and ended with {ended.status} on node {node}"

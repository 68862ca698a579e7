"""The jobs as they will be once some decided events are applied: what a second decision in the same breath needs.

Only what others wait for is followed: whether a job or a member of an array has started, ended, or left nothing
behind. Everything else is read from the state as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.decide.numbering import JobIds
from ctld.core.events import (
    ArrayMemberSplit,
    ArrayTasksCancelled,
    DependencyChanged,
    Event,
    JobChanged,
    JobFinished,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    NodesReleased,
)
from ctld.core.model import Job, Ranges
from ctld.core.state import State
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import JobState


class Outlook:
    """The state, and on top of it the effects of events that are decided but not yet applied."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.ids = JobIds(state)
        """Job ids for members that are split off; never one that a noted event has used."""
        self._jobs: dict[int, Job] = {}
        self._added: dict[int, list[int]] = {}
        """Array job id -> ids of members that these events made."""
        self._by_task: dict[int, dict[int, int]] = {}
        """Array job id -> member -> job id, for the arrays that were asked about."""
        self._waiting: dict[int, dict[int, None]] = {}
        """Job id -> ids of jobs submitted or changed by these events that may have a clause on it."""
        self.cancelled: dict[int, Ranges] = {}
        """Array job id -> members that these events cancelled before they had a record."""

    def job(self, job_id: int) -> Job | None:
        """Give a job as it will be; None when it is not in memory."""
        return self._jobs.get(job_id) or self.state.jobs.get(job_id)

    def members(self, array_job_id: int) -> Iterator[Job]:
        """Walk through the records of an array, its pending rest included; none for what is no array."""
        for job_id in (*self.state.by_array.get(array_job_id, ()), *self._added.get(array_job_id, ())):
            job = self.job(job_id)
            if job is not None:
                yield job

    def is_array(self, job_id: int) -> bool:
        """Tell whether the id names a whole array of which anything is in memory."""
        return job_id in self.state.by_array or job_id in self._added

    def member(self, array_job_id: int, task_id: int) -> Job | None:
        """Give the record of one member; None when it has none (pending in the rest, or gone)."""
        known = self._by_task.get(array_job_id)
        if known is None:
            known = {job.array_task_id: job.id for job in self.members(array_job_id)}
            self._by_task[array_job_id] = known
        job_id = known.get(task_id)
        return self.job(job_id) if job_id is not None else None

    def dependants(self, job_id: int) -> Iterator[Job]:
        """Walk through the pending jobs that have a clause on `job_id` (0: singleton), in order of id."""
        for other in sorted({*self.state.dependants.get(job_id, ()), *self._waiting.get(job_id, ())}):
            job = self.job(other)
            if job is not None and job.state == JobState.PENDING and any(c.job_id == job_id for c in job.clauses):
                yield job

    def changed_members(self, array_job_id: int) -> Iterator[Job]:
        """Walk through the members of an array that these events changed."""
        for job in self._jobs.values():
            if job.array_job_id == array_job_id:
                yield job

    def note(self, event: Event) -> Job | None:
        """Take an event's effect in; give the job that it may have brought nearer to what others wait for."""
        changed: Job | None
        match event:
            case JobSubmitted(job=job):
                self.ids.note(job.id)
                if job.array_job_id:
                    self._added.setdefault(job.array_job_id, []).append(job.id)
                self._keep(job)
                return None
            case JobStarted():
                changed = self._started(event)
            case ArrayMemberSplit():
                self._split(event.array_job_id, event.task_id, event.job_id)
                return None
            case JobFinished(job_id=job_id):
                changed = self._change(
                    job_id,
                    state=event.state,
                    ended_at=event.at,
                    exit_status=event.exit_status,
                    completing=event.completing,
                )
            case ArrayTasksCancelled(job_id=job_id, tasks=tasks):
                changed = self._tasks_cancelled(job_id, tasks, event.at)
            case JobRequeued(job_id=job_id):
                changed = self._change(
                    job_id,
                    state=int(JobState.PENDING),
                    completing=event.completing,
                    clauses=event.clauses,
                    begin_at=event.begin_at,
                    priority=event.priority,
                    hold=event.hold,
                )
            case NodesReleased(job_id=job_id, nodes=nodes):
                found = self.job(job_id)
                left = tuple(node for node in found.completing if node not in nodes) if found else ()
                changed = self._change(job_id, completing=left)
                if left:
                    return None
            case DependencyChanged(job_id=job_id, clauses=clauses):
                self._change(job_id, clauses=clauses)
                return None
            case JobHeld(job_id=job_id):
                self._change(job_id, hold=event.by, priority=0)
                return None
            case JobReleased(job_id=job_id):
                self._change(job_id, hold="", priority=event.priority)
                return None
            case JobChanged(job_id=job_id):
                changed = self._updated(event)
                # Only a new name can matter to others: a job of the old name waited for it (singleton).
                return changed if event.name is not None else None
            case _:
                return None
        return changed

    def _keep(self, job: Job) -> None:
        self._jobs[job.id] = job
        for clause in job.clauses:
            self._waiting.setdefault(clause.job_id, {})[job.id] = None

    def _change(self, job_id: int, **fields: object) -> Job | None:
        job = self.job(job_id)
        if job is None:
            return None
        job = replace(job, **fields)
        self._keep(job)
        return job

    def _started(self, event: JobStarted) -> Job | None:
        if event.task_id != NO_TASK:
            self._split(event.array_job_id, event.task_id, event.job_id)
        return self._change(event.job_id, state=int(JobState.RUNNING), started_at=event.at)

    def _split(self, array_job_id: int, task_id: int, job_id: JobId) -> None:
        rest = self.job(array_job_id)
        if rest is None:
            return
        self._by_task.pop(array_job_id, None)
        if job_id == array_job_id:
            self._keep(replace(rest, array_task_id=task_id, array_pending=()))
            return
        self.ids.note(job_id)
        self._added.setdefault(array_job_id, []).append(job_id)
        self._keep(replace(rest, array_pending=ranges.without(rest.array_pending, task_id)))
        self._keep(replace(rest, id=job_id, array_task_id=task_id, array_pending=()))

    def _tasks_cancelled(self, job_id: int, tasks: Ranges, at: UnixTime) -> Job | None:
        rest = self.job(job_id)
        if rest is None:
            return None
        self.cancelled[job_id] = ranges.union(self.cancelled.get(job_id, ()), tasks)
        left = ranges.difference(rest.array_pending, tasks)
        if left:
            return self._change(job_id, array_pending=left)
        return self._change(job_id, state=int(JobState.CANCELLED), ended_at=at)

    def _updated(self, event: JobChanged) -> Job | None:
        job = self.job(event.job_id)
        if job is None:
            return None
        fields: dict[str, object] = {}
        if event.clauses is not None:
            fields["clauses"] = event.clauses
            fields["clauses_any"] = bool(event.clauses_any)
        if event.begin_at is not None:
            fields["begin_at"] = event.begin_at
        if event.priority is not None:
            fields["priority"] = event.priority
        if event.name is not None:
            fields["spec"] = replace(job.spec, name=event.name)
        return self._change(event.job_id, **fields)

"""Routes that change something: submit, cancel, hold, release, requeue, update, and what goes with them.

Whose job it is, `decide` judges with the job at hand (Right.OWNER marks such routes). Where one call names several
jobs, each has its own outcome (`results`).
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ctld.core.commands import Command, Hold, Release, Requeue, Resume, Suspend, UpdateJob, UpdateNode
from ctld.core.decide.refusals import denied, may_change, unknown_job
from ctld.core.decide.selection import select
from ctld.core.jobids import Selector, parse_selector, parse_selectors, selector_text
from ctld.core.jobspec import reservation_names
from ctld.core.model import UNLIMITED, Caller
from ctld.core.placement import placement_of
from ctld.services import reservations
from ctld.services.cancelling import Cancelling, Signaller
from ctld.services.door import Call, Right, Route
from ctld.services.names import NameCache
from ctld.services.results import Result, answer
from ctld.services.submission import Submission, script_of
from ctld.services.waiting import Waiting
from ctld.store.ports import BlobPort
from ctld.store.store import Store
from muster import hostlist
from muster.api import (
    HoldRequest,
    ReleaseRequest,
    RequeueRequest,
    SuspendRequest,
    UpdateJobRequest,
    UpdateNodeRequest,
    decode,
)
from muster.clock import Clock
from muster.errors import InvalidInput, MusterError, NotFound
from muster.ids import JobId, UnixTime
from muster.slurm_errors import slurm_text
from muster.states import JobState


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes work with."""

    store: Store
    dispatcher: Signaller
    clock: Clock
    blobs: BlobPort
    shutdown: Callable[[], None]
    """Called once when an administrator asks the controller to stop."""
    names: NameCache = field(default_factory=NameCache)


def routes(context: Context) -> list[Route]:
    """Give the rows of the table."""
    jobs = _Jobs(context)
    submission = Submission(context.store, context.blobs, context.clock, context.names)
    cancelling = Cancelling(context.store, context.clock, context.dispatcher)
    return [
        Route("POST", "/v1/jobs", Right.SELF, "job", submission.submit),
        Route("POST", "/v1/jobs/cancel", Right.OWNER, "job", cancelling.cancel),
        Route("POST", "/v1/jobs/hold", Right.OWNER, "job", jobs.hold),
        Route("POST", "/v1/jobs/release", Right.OWNER, "job", jobs.release),
        Route("POST", "/v1/jobs/requeue", Right.OWNER, "job", jobs.requeue),
        Route("POST", "/v1/jobs/suspend", Right.ADMIN, "job", jobs.suspend),
        Route("POST", "/v1/jobs/resume", Right.ADMIN, "job", jobs.resume),
        Route("POST", "/v1/jobs/update", Right.OWNER, "job", jobs.update),
        Route("GET", "/v1/jobs/{job}/script", Right.OWNER, "job", jobs.script),
        Route("GET", "/v1/jobs/{job}/wait", Right.ANYONE, "job", Waiting(context.store).wait),
        Route("POST", "/v1/nodes/update", Right.ADMIN, "node", jobs.update_nodes),
        Route("POST", "/v1/shutdown", Right.ADMIN, "cluster", jobs.shutdown),
        *reservations.changing(context.store, context.clock),
    ]


class _Jobs:
    """The handlers that need no state of their own."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._clock = context.clock
        self._blobs = context.blobs
        self._stop = context.shutdown
        self._names = context.names

    async def hold(self, call: Call) -> dict[str, Any]:
        """Hold jobs; `name=<job name>` means the caller's jobs of that name."""
        request = decode(call.body, HoldRequest)
        return await self._each(
            self._selected(request.ids, call.caller),
            lambda one: Hold(one.job_id, call.caller, one.tasks, as_user=request.as_user),
        )

    async def release(self, call: Call) -> dict[str, Any]:
        """Release held jobs."""
        request = decode(call.body, ReleaseRequest)
        return await self._each(
            self._selected(request.ids, call.caller), lambda one: Release(one.job_id, call.caller, one.tasks)
        )

    async def requeue(self, call: Call) -> dict[str, Any]:
        """Send jobs back to the queue."""
        request = decode(call.body, RequeueRequest)
        return await self._each(
            self._selected(request.ids, call.caller),
            lambda one: Requeue(one.job_id, call.caller, one.tasks, hold=request.hold),
        )

    async def suspend(self, call: Call) -> dict[str, Any]:
        """Let jobs stand still."""
        request = decode(call.body, SuspendRequest)
        return await self._each(
            self._selected(request.ids, call.caller), lambda one: Suspend(one.job_id, call.caller, one.tasks)
        )

    async def resume(self, call: Call) -> dict[str, Any]:
        """Let suspended jobs go on."""
        request = decode(call.body, SuspendRequest)
        return await self._each(
            self._selected(request.ids, call.caller), lambda one: Resume(one.job_id, call.caller, one.tasks)
        )

    async def update(self, call: Call) -> dict[str, Any]:
        """Change fields of jobs."""
        request = decode(call.body, UpdateJobRequest)
        ids = request.ids if request.ids is not None else f"name={request.job_name or ''}"
        caller = call.caller
        if request.partition is not None or request.reservation is not None:
            # Whether the new partition is open to the caller may hang on a second group.
            names = await self._names.of(caller.uid, caller.gid)
            caller = replace(caller, groups=names.groups)
        return await self._each(self._selected(ids, caller), lambda one: self._updated(one, request, caller))

    def _updated(self, one: Selector, request: UpdateJobRequest, caller: Caller) -> UpdateJob:
        minutes = request.time_limit_minutes
        if request.time_limit_change_minutes is not None:
            if minutes is not None:
                raise InvalidInput("a time limit is given both as it is to be and as a change", "give one of the two")
            minutes = self._changed_limit(one, request.time_limit_change_minutes)
        return UpdateJob(
            job_id=one.job_id,
            by=caller,
            tasks=one.tasks,
            time_limit_minutes=minutes,
            nice=request.nice,
            priority=request.priority,
            site_factor=request.site_factor,
            name=request.name,
            comment=request.comment,
            begin_at=None if request.begin is None else UnixTime(request.begin),
            dependency=request.dependency,
            array_limit=request.array_limit,
            partition=request.partition,
            requeue=request.requeue,
            deadline_at=None if request.deadline is None else UnixTime(request.deadline),
            time_min_minutes=None if request.time_min_minutes is None else max(0, request.time_min_minutes),
            reservations=None if request.reservation is None else reservation_names(request.reservation),
            placement=placement_of(request),
        )

    def _changed_limit(self, one: Selector, change: int) -> int:
        """Give the limit in force with the change; of an array that of its first record."""
        seconds = select(self._store.state, one.job_id, one.tasks).any_record.limit_seconds
        if seconds == UNLIMITED:
            return UNLIMITED
        minutes = -(-seconds // 60) + change
        if minutes < 1:
            raise InvalidInput(
                slurm_text(2051),
                f"the limit is {-(-seconds // 60)} minutes, {-change} less leave none",
                slurm_code=2051,
            )
        return minutes

    async def _each(self, selectors: list[Selector], command: Callable[[Selector], Command]) -> dict[str, Any]:
        outcomes: list[Result] = []
        written: Awaitable[int] | None = None
        for one in selectors:
            outcome = Result(selector_text(one.job_id, one.tasks))
            outcomes.append(outcome)
            try:
                _, last = self._store.post(command(one), at=self._clock.now())
                written = last or written
            except MusterError as problem:
                outcome.problem = problem
        if written is not None:
            await written  # the last one: those in front of it are durable then too
        return answer(outcomes)

    def _selected(self, ids: str, caller: Caller) -> list[Selector]:
        """Read ids; a step in them is an error, `name=` and `jobname=` name the caller's jobs that have not ended."""
        key, equals, name = ids.partition("=")
        if equals and key.strip().lower() in ("name", "jobname"):
            found = list(self._of_name(name, caller))
            if not found:
                raise NotFound(slurm_text(2017), f"no job of yours is named {name[:60]!r}", slurm_code=2017)
            return found
        selectors = parse_selectors(ids)
        for one in selectors:
            if one.step_id is not None:
                raise InvalidInput(slurm_text(2017), "a job is asked for, not a step", slurm_code=2017)
        return selectors

    def _of_name(self, name: str, caller: Caller) -> Iterator[Selector]:
        seen: set[int] = set()
        for job in self._store.state.jobs.values():
            if job.spec.name != name or job.state > JobState.SUSPENDED or not may_change(job, caller):
                continue
            job_id = job.array_job_id or job.id
            if job_id not in seen:
                seen.add(job_id)
                yield Selector(JobId(job_id))

    async def script(self, call: Call) -> dict[str, Any]:
        """Give a job's script: {"script"}, or {"script_base64"} where its bytes are no UTF-8."""
        selector = parse_selector(call.parts["job"])
        state = self._store.state
        if selector.job_id not in state.jobs and selector.job_id not in state.by_array:
            raise unknown_job(state, selector.job_id)
        job = select(state, selector.job_id, selector.tasks).any_record
        if not may_change(job, call.caller):
            raise denied(2002, f"job {job.id} belongs to {job.spec.user}")
        await self._store.settled()
        data = script_of(self._blobs, job)
        try:
            return {"job_id": job.id, "script": data.decode()}
        except UnicodeDecodeError:
            return {"job_id": job.id, "script_base64": base64.b64encode(data).decode()}

    async def update_nodes(self, call: Call) -> dict[str, Any]:
        """Change nodes: all that are named (`ALL`: every node), or none."""
        request = decode(call.body, UpdateNodeRequest)
        state = self._store.state
        if request.nodes.strip().upper() == "ALL":
            indexes = list(range(len(state.nodes)))
        else:
            indexes = []
            for name in hostlist.expand(request.nodes):
                index = state.node_index.get(name)
                if index is None:
                    raise NotFound(slurm_text(2018), f"there is no node {name[:60]!r}", slurm_code=2018)
                indexes.append(index)
        features = None
        if request.features is not None:
            features = tuple(word.strip() for word in request.features.split(",") if word.strip())
        await self._store.commit(
            UpdateNode(
                tuple(indexes),
                call.caller,
                state=request.state.upper() if request.state is not None else None,
                reason=request.reason,
                weight=request.weight,
                features=features,
            ),
            at=self._clock.now(),
        )
        return {}

    async def shutdown(self, call: Call) -> dict[str, Any]:
        """Stop the controller; running jobs go on."""
        self._stop()
        return {}

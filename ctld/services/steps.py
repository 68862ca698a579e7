"""Routes for srun: making a step, signalling it, asking how it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ctld.core import ranges
from ctld.core.cluster import Settings
from ctld.core.commands import CancelStep, CreateStep, StepRequest
from ctld.core.events import Event, JobFinished, JobRequeued, StepCreated, StepFinished
from ctld.core.jobspec import parse_gpus, parse_gres
from ctld.core.model import GpuRequest, Job, Step
from ctld.core.state import State
from ctld.loops.dispatch import Dispatcher
from ctld.loops.links import Links
from ctld.loops.wire import StepLaunch, decode_step_launch, encode_step_launch, nodelist
from ctld.services import parts
from ctld.services.changes import Changes
from ctld.services.door import Call, Right, Route
from ctld.store.blobs import BlobStore
from ctld.store.store import Store
from muster import hostlist, signals
from muster.api import StepCreateRequest, decode
from muster.clock import Clock
from muster.errors import Denied, InvalidInput, NotFound, Refused
from muster.gres_text import parse_gres as parse_names
from muster.ids import JobId
from muster.slurm_errors import slurm_text
from muster.states import JobState

MOST_WAIT_SECONDS = 60.0
BUSY = 2016


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes work with."""

    store: Store
    links: Links
    dispatcher: Dispatcher
    blobs: BlobStore
    clock: Clock


class Steps:
    """The handlers, and who waits for a change of which job."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._links = context.links
        self._dispatcher = context.dispatcher
        self._blobs = context.blobs
        self._clock = context.clock
        self._changes = Changes()
        self._store.subscribe(self._notice)

    def routes(self) -> list[Route]:
        """Give the rows of the table."""
        return [
            Route("POST", "/v1/jobs/{job}/steps", Right.OWNER, "step", self.create),
            Route("POST", "/v1/jobs/{job}/steps/{step}/signal", Right.OWNER, "step", self.signal),
            Route("POST", "/v1/jobs/{job}/steps/{step}/cancel", Right.OWNER, "step", self.cancel),
            Route("GET", "/v1/jobs/{job}/steps/{step}", Right.OWNER, "step", self.show),
        ]

    async def create(self, call: Call) -> dict[str, Any]:
        """Make a step; with ?wait=SECONDS, wait so long for other steps to leave what it needs.

        A request with the token of a step that has not ended is answered with that step: its first answer was lost.
        """
        json, _, environment = parts.split(call.body)
        request = decode(json, StepCreateRequest)
        job_id = _number(call.parts["job"])
        if request.environment:
            environment = parts.joined(request.environment)
        parts.check_environment(environment)
        seconds = call.seconds("wait", most=MOST_WAIT_SECONDS)
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                return await self._create(call, JobId(job_id), request, environment)
            except Refused as refusal:
                left = deadline - asyncio.get_running_loop().time()
                if refusal.slurm_code != BUSY or left <= 0:
                    raise
                await self._changes.of(job_id, left)

    async def _create(
        self, call: Call, job_id: JobId, request: StepCreateRequest, environment: bytes
    ) -> dict[str, Any]:
        made = self._made_before(call, job_id, request.token)
        if made is not None:
            run = self._store.state.jobs[job_id].restarts
            await self._store.settled()
            return self._answer(run, made)
        digest, record = self._blobs.put(environment)
        wanted = _step_request(request, digest)
        events, written = self._store.post(
            CreateStep(job_id, call.caller, wanted),
            at=self._clock.now(),
            blobs=[record] if record is not None else (),
        )
        assert written is not None
        # Before the wait: by its end the job may be at its next run, or gone.
        run = self._store.state.jobs[job_id].restarts
        await written
        step = next(event.step for event in events if isinstance(event, StepCreated))
        return self._answer(run, step)

    def _made_before(self, call: Call, job_id: JobId, token: str) -> Step | None:
        state = self._store.state
        if not token or job_id not in state.steps:
            return None
        _job(state, job_id, call)
        for step in state.steps[job_id].values():
            if step.launch and decode_step_launch(step.launch).token == token:
                return step
        return None

    def _answer(self, run: int, step: Step) -> dict[str, Any]:
        state = self._store.state
        return {
            "step_id": step.step_id,
            "run": run,
            "ntasks": step.ntasks,
            "nodes": [self._node(place, step) for place in range(len(step.shares))],
            "nodelist": nodelist(state, step.shares),
            "kill_wait_seconds": state.settings.kill_wait_seconds,
        }

    def _node(self, place: int, step: Step) -> dict[str, Any]:
        share = step.shares[place]
        node = self._store.state.nodes[share.node]
        facts = node.facts
        return {
            "name": node.spec.name,
            "host": facts.hostname if facts is not None else node.spec.hostname,
            "addr": f"{facts.addr}:{facts.port}" if facts is not None else "",
            "io": self._links.pulse(share.node).io_socket,
            "ranks": list(ranges.numbers(step.ranks[place])),
        }

    async def signal(self, call: Call) -> dict[str, Any]:
        """Send a signal to all tasks of a step."""
        job, step = self._owned(call)
        signo = signals.parse_signal(call.query.get("signal", ""))
        await self._dispatcher.signal(job, signo, "step", int(step.step_id))
        return {}

    async def cancel(self, call: Call) -> dict[str, Any]:
        """End a step."""
        job, step = self._owned(call)
        await self._store.commit(CancelStep(job.id, step.step_id, call.caller), at=self._clock.now())
        return {}

    async def show(self, call: Call) -> dict[str, Any]:
        """Tell whether a step still runs, and which of its nodes cannot be reached."""
        await self._store.settled()
        state = self._store.state
        job = _job(state, _number(call.parts["job"]), call)
        step = state.steps.get(job.id, {}).get(_number(call.parts["step"]))
        if step is None:
            return {"running": False, "job_state": JobState(job.state).name, "lost": []}
        lost = [state.nodes[share.node].spec.name for share in step.shares if state.nodes[share.node].down]
        return {"running": job.state == JobState.RUNNING, "job_state": JobState(job.state).name, "lost": lost}

    def _owned(self, call: Call) -> tuple[Job, Step]:
        state = self._store.state
        job = _job(state, _number(call.parts["job"]), call)
        step = state.steps.get(job.id, {}).get(_number(call.parts["step"]))
        if step is None:
            raise NotFound("Invalid job id specified", f"job {job.id} has no running step {call.parts['step']}",
                           slurm_code=2017)  # fmt: skip
        return job, step

    def _notice(self, batch: Sequence[tuple[int, Event]]) -> None:
        if not self._changes:
            return
        for _, event in batch:
            if isinstance(event, StepFinished | JobFinished | JobRequeued):
                self._changes.wake(event.job_id)


def routes(context: Context) -> list[Route]:
    """Give the routes for srun."""
    return Steps(context).routes()


def _job(state: State, job_id: int, call: Call) -> Job:
    job = state.jobs.get(job_id)
    if job is None:
        raise NotFound("Invalid job id specified", slurm_code=2017)
    if not call.caller.admin and call.caller.uid != job.spec.uid:
        raise Denied("Access/permission denied", slurm_code=2002)
    return job


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 10:
        raise InvalidInput("Invalid job id specified", f"{text[:50]!r} is no number", slurm_code=2017)
    return int(text)


def _step_request(request: StepCreateRequest, environment: bytes) -> StepRequest:
    """Read srun's request; what the job gives where srun says nothing is decided with the job at hand."""
    least, most = request.nodes or (0, 0)
    launch = StepLaunch(
        work_dir=request.work_dir or "/",
        std_in=request.input or "",
        std_out=request.output or "",
        std_err=request.error or "",
        std_in_mode=request.input_mode,
        open_mode=request.open_mode or "",
        umask=request.umask,
        rlimits=dict(request.rlimits),
        label=request.label,
        unbuffered=request.unbuffered,
        launch_host=request.launch_host or "127.0.0.1",
        token=request.token,
    )
    return StepRequest(
        name=request.name,
        argv=tuple(request.argv),
        nodes_min=least,
        nodes_max=most,
        ntasks=request.ntasks or 0,
        ntasks_per_node=request.ntasks_per_node or 0,
        cpus_per_task=request.cpus_per_task or 0,
        nodelist=tuple(hostlist.expand(request.nodelist)) if request.nodelist else (),
        exclude=tuple(hostlist.expand(request.exclude)) if request.exclude else (),
        relative=-1 if request.relative is None else request.relative,
        exact=request.exact,
        overlap=request.overlap,
        gpus_per_node=_gpus_per_node(request),
        memory_mib=request.mem or 0,
        limit_minutes=max(0, request.time_limit or 0),
        kill_on_bad_exit=bool(request.kill_on_bad_exit),
        distribution=request.distribution or "",
        environment=environment,
        launch=encode_step_launch(launch),
    )


def _gpus_per_node(request: StepCreateRequest) -> int:
    """-1: all that the job has there."""
    if request.gres is not None:
        if request.gres.lower() == "none":
            return 0
        others = [name for name, _, _ in parse_names(request.gres) if name != "gpu"]
        if others:
            raise Refused(
                slurm_text(2036),
                f"--gres={others[0][:60]} is not supported for a step: without --gres it has what its job has of it",
                slurm_code=2036,
            )
        return _total(parse_gres(request.gres, Settings())[0])
    if request.gpus_per_node is not None:
        return _total(parse_gpus(request.gpus_per_node))
    return -1


def _total(gpus: tuple[GpuRequest, ...]) -> int:
    return sum(gpu.count for gpu in gpus)

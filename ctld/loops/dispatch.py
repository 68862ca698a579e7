"""Acting on the world: what durable events and the state owe to the nodes.

Every order follows from the state. While a stream lives, each is sent once, when its event is durable; when a stream
comes up (a new node, a restarted agent or controller), the node is told everything that is owed to it anew. Orders are
idempotent on the node, keyed by job, run and step.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import time
from collections.abc import Callable, Iterable, Sequence

from ctld.core.events import (
    Event,
    JobFinished,
    JobPreempted,
    JobRequeued,
    JobResumed,
    JobStarted,
    JobSuspended,
    JobWarned,
    KillOrdered,
    StepCreated,
    StepKillOrdered,
)
from ctld.core.model import Job, Step
from ctld.core.state import State
from ctld.loops import wire
from ctld.loops.links import Link, Links
from muster.errors import Damaged, NotFound, Unavailable
from muster.ids import BATCH_STEP
from muster.states import STOPPED, JobState
from muster.v1 import node_pb2

log = logging.getLogger("ctld.dispatch")

NODE_FAILURE = "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
SIGNAL_SECONDS = 10.0
"""How long a signal may take to be acknowledged by all its nodes."""

Known = dict[tuple[int, int, int], bool]
"""(job, run, step) -> still running, as a node said when it registered."""


class Dispatcher:
    """Turns durable events into orders on links."""

    def __init__(self, state: State, links: Links, *, signal_seconds: float = SIGNAL_SECONDS) -> None:
        self._state = state
        self._links = links
        self._signal_seconds = signal_seconds
        self._serials = itertools.count(int(time.time() * 1000) << 12)
        self._signals: dict[int, asyncio.Future[None]] = {}
        # Each lambda takes its own class of event, which the key of its row names: hence the ignores.
        self._react: dict[type, Callable[[int, Event], None]] = {
            JobStarted: lambda _, event: self._started(event.job_id),  # type: ignore[union-attr]
            KillOrdered: lambda _, event: self._kill(event.job_id),  # type: ignore[union-attr]
            JobPreempted: lambda _, event: self._notify(event.job_id),  # type: ignore[union-attr]
            JobSuspended: lambda _, event: self._suspend(event.job_id),  # type: ignore[union-attr]
            JobResumed: lambda _, event: self._suspend(event.job_id),  # type: ignore[union-attr]
            JobFinished: lambda _, event: self._clean(event),  # type: ignore[arg-type]
            JobRequeued: lambda _, event: self._clean(event),  # type: ignore[arg-type]
            StepCreated: lambda _, event: self._step(event.step.job_id, event.step.step_id),  # type: ignore[union-attr]
            StepKillOrdered: lambda _, event: self._end_step(event.job_id, event.step_id),  # type: ignore[union-attr]
            JobWarned: lambda _, event: self._warn(event.job_id),  # type: ignore[union-attr]
        }

    def take(self, batch: Sequence[tuple[int, Event]]) -> None:
        """Follow durable events (a subscriber of the store)."""
        react = self._react
        for number, event in batch:
            reaction = react.get(type(event))
            if reaction is not None:
                reaction(number, event)

    def owed(self, link: Link, known: Known) -> None:
        """Put down all that the state owes a node that has just come up; nothing may be sent before that is durable.

        Args:
            link: its fresh link.
            known: what the node has; a run that it has is not launched again.
        """
        state, node = self._state, link.node
        for job_id in tuple(state.node_jobs[node]):
            job = state.jobs[job_id]
            if _runs(job):
                begun = (job.id, job.restarts, int(BATCH_STEP)) in known
                # A run that is to be ended needs no beginning: the answer to EndRun ends it.
                if self._is_batch_host(job, node) and not begun and job.kill is None:
                    _launch(link, wire.batch_launch(state, job))
                for step in state.steps.get(job_id, {}).values():
                    place = _place(step, node)
                    if place is None or any(result.node == node for result in step.results):
                        continue
                    if (job.id, job.restarts, int(step.step_id)) not in known:
                        _launch(link, wire.step_launch(state, job, step, place))
                    if step.kill is not None:
                        link.end_step(_end_step(job, step))
                if job.suspended_at and job.kill is None and not job.flags & STOPPED:
                    link.signal(self._standing_still(job))
                if job.kill is not None:
                    link.end_run(_end_run(job))
            elif node in job.completing:
                link.end_run(_end_run(job))
        for job_id, run, step_id in known:
            if not self._belongs(job_id, run, node):
                link.end_run(node_pb2.EndRun(job_id=job_id, run=run, now=True))
                link.forget(job_id, run, step_id)

    async def signal(self, job: Job, signo: int, scope: str, step_id: int = 0) -> None:
        """Send a signal to a running job and return once every node of it has done so.

        Args:
            job: a running job.
            signo: the signal's number.
            scope: steps | batch | all | step.
            step_id: for scope step.

        Raises:
            Unavailable: a node cannot be reached, or did not answer in time.
        """
        assert job.alloc is not None
        shares = job.alloc.shares[:1] if scope == "batch" else job.alloc.shares
        if scope == "step" and (step := self._state.steps.get(job.id, {}).get(step_id)) is not None:
            reported = {result.node for result in step.results}
            shares = tuple(share for share in step.shares if share.node not in reported)
        links = []
        for share in shares:  # all are looked at before any is told
            link = self._links.up.get(share.node)
            if link is None:
                name = self._state.nodes[share.node].spec.name
                raise Unavailable("Communication connection failure", f"node {name} is not connected", slurm_code=1001)
            links.append(link)
        waits: dict[int, asyncio.Future[None]] = {}
        for link in links:
            serial = next(self._serials)
            waits[serial] = self._signals[serial] = asyncio.get_running_loop().create_future()
            link.signal(
                node_pb2.SignalOrder(
                    serial=serial, job_id=job.id, run=job.restarts, signo=signo, scope=scope, step_id=step_id
                )
            )
        try:
            async with asyncio.timeout(self._signal_seconds):
                for future in waits.values():
                    await future
        except TimeoutError:
            raise Unavailable("Socket timed out on send/recv operation", slurm_code=5004) from None
        finally:
            for serial in waits:
                self._signals.pop(serial, None)

    def signalled(self, serials: Iterable[int]) -> None:
        """Note that a node has carried signal orders out."""
        for serial in serials:
            waiting = self._signals.pop(serial, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def overdue(self, seconds: float, only: Link | None = None) -> None:
        """Launch again what was sent over a live stream and not begun for so long (the agent repeats nothing).

        Args:
            seconds: 0: all that was not begun yet.
            only: a link to look at alone, as its agent says that it lacks something.
        """
        now = self._links.monotonic()
        for link in self._links.up.values() if only is None else (only,):
            for key, sent in tuple(link.launched.items()):
                if now - sent >= seconds:
                    del link.launched[key]
                    self._launch_again(link, *key)

    def _launch_again(self, link: Link, job_id: int, run: int, step_id: int) -> None:
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or not _runs(job) or job.restarts != run or job.kill is not None:
            return
        if step_id == BATCH_STEP:
            launch = wire.batch_launch(state, job)
        else:
            step = state.steps.get(job_id, {}).get(step_id)
            place = None if step is None else _place(step, link.node)
            if step is None or place is None:
                return
            launch = wire.step_launch(state, job, step, place)
        log.warning("JobId=%d StepId=%d was not begun on %s: sent again", job_id, step_id, link.name)
        _launch(link, launch)

    def _started(self, job_id: int) -> None:
        job = self._state.jobs.get(job_id)
        # The state may be ahead of what is durable: a run that has ended since, or is to end, needs no launch.
        if job is None or not _runs(job) or job.alloc is None or not job.spec.batch:
            return
        if job.kill is not None:
            return
        link = self._links.up.get(job.alloc.shares[0].node)
        if link is not None:
            _launch(link, wire.batch_launch(self._state, job))

    def _kill(self, job_id: int) -> None:
        job = self._state.jobs.get(job_id)
        if job is None or job.kill is None or job.alloc is None:
            return
        for share in job.alloc.shares:
            link = self._links.up.get(share.node)
            if link is not None:
                link.end_run(_end_run(job))

    def _clean(self, event: JobFinished | JobRequeued) -> None:
        job = self._state.jobs.get(event.job_id)
        if job is None:
            return
        failed = event.record is not None and bool(event.record.failed_node)
        for node in job.completing:
            link = self._links.up.get(node)
            if link is not None:
                link.end_run(_end_run(job, node_failed=failed))

    def _step(self, job_id: int, step_id: int) -> None:
        job, step = self._state.jobs.get(job_id), self._state.steps.get(job_id, {}).get(step_id)
        if job is None or step is None or not _runs(job):
            return
        for place, share in enumerate(step.shares):
            link = self._links.up.get(share.node)
            if link is not None:
                _launch(link, wire.step_launch(self._state, job, step, place))

    def _end_step(self, job_id: int, step_id: int) -> None:
        job, step = self._state.jobs.get(job_id), self._state.steps.get(job_id, {}).get(step_id)
        if job is None or step is None or step.kill is None:
            return
        reported = {result.node for result in step.results}
        for share in step.shares:
            link = self._links.up.get(share.node)
            if link is not None and share.node not in reported:
                link.end_step(_end_step(job, step))

    def _warn(self, job_id: int) -> None:
        job = self._state.jobs.get(job_id)
        if job is None or job.alloc is None or job.spec.signal is None or job.state != JobState.RUNNING:
            return
        warning = job.spec.signal
        self._send(job, warning.signo, "batch" if warning.shell_only else "steps")

    def _notify(self, job_id: int) -> None:
        """Tell a victim that has a grace by SIGCONT and SIGTERM to its steps. (Its own signal has an event.)"""
        job = self._state.jobs.get(job_id)
        if job is None or job.preempted is None or job.kill is not None or job.state != JobState.RUNNING:
            return
        if not (self._state.settings.preemption.send_user_signal and job.spec.signal is not None):
            self._send(job, signal.SIGCONT, "steps")
            self._send(job, signal.SIGTERM, "steps")

    def _suspend(self, job_id: int) -> None:
        """Let a run stand still or go on, as the state says."""
        job = self._state.jobs.get(job_id)
        if job is None or job.kill is not None or not _runs(job):
            return
        for link in self._links_of(job):
            link.signal(self._standing_still(job))

    def _standing_still(self, job: Job) -> node_pb2.SignalOrder:
        still = job.state == JobState.SUSPENDED
        return node_pb2.SignalOrder(
            serial=next(self._serials),
            job_id=job.id,
            run=job.restarts,
            scope="suspend" if still else "resume",
            seconds=self._state.settings.preemption.suspend_grace_seconds if still else 0,
        )

    def _send(self, job: Job, signo: int, scope: str) -> None:
        for link in self._links_of(job, first_only=scope == "batch"):
            link.signal(
                node_pb2.SignalOrder(
                    serial=next(self._serials), job_id=job.id, run=job.restarts, signo=signo, scope=scope
                )
            )

    def _links_of(self, job: Job, *, first_only: bool = False) -> list[Link]:
        """Give the links to a job's nodes that are up."""
        assert job.alloc is not None, "a run has nodes"
        shares = job.alloc.shares[:1] if first_only else job.alloc.shares
        return [link for share in shares if (link := self._links.up.get(share.node)) is not None]

    def _is_batch_host(self, job: Job, node: int) -> bool:
        return job.spec.batch and job.alloc is not None and job.alloc.shares[0].node == node

    def _belongs(self, job_id: int, run: int, node: int) -> bool:
        """Tell whether a run that a node has is one that the state has there."""
        job = self._state.jobs.get(job_id)
        if job is None:
            return False
        if node in job.completing:
            return True
        return (
            _runs(job)
            and job.restarts == run
            and job.alloc is not None
            and any(share.node == node for share in job.alloc.shares)
        )


def _runs(job: Job) -> bool:
    return JobState.PENDING < job.state <= JobState.SUSPENDED


def _launch(link: Link, launch: node_pb2.Launch) -> None:
    """Order a launch. One whose script or environment cannot be read is said and left out: it must not keep the node
    from hearing of the others, nor the other followers of the journal from their events."""
    try:
        link.launch(launch)
    except (Damaged, NotFound) as error:
        log.error("JobId=%d StepId=%d cannot be launched on %s: %s", launch.job_id, launch.step_id, link.name, error)


def _place(step: Step, node: int) -> int | None:
    for place, share in enumerate(step.shares):
        if share.node == node:
            return place
    return None


def _end_run(job: Job, *, node_failed: bool = False) -> node_pb2.EndRun:
    kill = job.kill
    lost = node_failed or job.state == JobState.NODE_FAIL
    # While a requeued job still cleans up, the record already counts the next run.
    run = job.restarts - 1 if job.completing and job.state == JobState.PENDING else job.restarts
    return node_pb2.EndRun(
        job_id=job.id,
        run=run,
        why=kill.why if kill is not None else NODE_FAILURE if lost else "",
        now=kill.now if kill is not None else False,
        at=kill.at if kill is not None else 0,
    )


def _end_step(job: Job, step: Step) -> node_pb2.EndStep:
    assert step.kill is not None
    return node_pb2.EndStep(
        job_id=job.id,
        run=job.restarts,
        step_id=step.step_id,
        why=step.kill.why,
        now=step.kill.now,
        at=step.kill.at,
    )

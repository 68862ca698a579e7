"""What node agents say to the controller: registration, heartbeats, results, and people's calls that they relay."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from ctld.core.commands import Command, FinishBatch, FinishStep, RegisterNode, ReleaseNode
from ctld.core.model import Caller
from ctld.loops import wire
from ctld.loops.dispatch import Dispatcher, Known
from ctld.loops.links import HEARTBEAT_SECONDS, Link, Links
from ctld.services.door import Door
from ctld.store.store import Store
from muster import auth, errors, rpc
from muster.clock import Clock
from muster.ids import BATCH_STEP, JobId, StepId
from muster.v1 import node_pb2, node_pb2_grpc

log = logging.getLogger("ctld.nodes")

PROTOCOL = 1
SKEW_WARNING_MS = 5_000


class NodesService(node_pb2_grpc.NodesServicer):
    """One stream a node."""

    def __init__(
        self, store: Store, links: Links, dispatcher: Dispatcher, read_blob: Callable[[bytes], bytes], clock: Clock
    ) -> None:
        self._store = store
        self._links = links
        self._dispatcher = dispatcher
        self._read_blob = read_blob
        self._clock = clock

    async def Connect(  # type: ignore[override]
        self, request_iterator: AsyncIterator[node_pb2.NodeMessage], context: rpc.Context
    ) -> None:
        """Serve one agent until either side goes."""
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("body") != "register":
            return
        try:
            _check_certificate(first.register.name, rpc.peer(context))
            link, registered = await self.register(first.register)
        except errors.MusterError as error:
            log.error("a node is refused: %s", error)
            final = isinstance(error, errors.Denied)
            unknown = isinstance(error, errors.NotFound)
            refusal = node_pb2.Refusal(sentence=str(error), final=final, unknown=unknown)
            await context.write(node_pb2.ControllerMessage(refusal=refusal))
            return
        try:
            await context.write(node_pb2.ControllerMessage(registered=registered))
            await self._talk(link, request_iterator, context)
        finally:
            # The stream's end is the news: the node is not reachable from this moment on.
            self._links.lost(link)
            log.warning("node %s: its stream ended", link.name)

    async def register(self, message: node_pb2.Register) -> tuple[Link, node_pb2.Registered]:
        """Take a node's word and open its link, with everything on it that is owed to the node.

        Returns once all of that is durable, and nothing of it was sent before: what the link holds may be written.

        Raises:
            Refused: it speaks another protocol. NotFound: no such node is configured.
            Unavailable: the journal cannot be written.
        """
        if message.protocol != PROTOCOL:
            raise errors.Refused(f"node {message.name} speaks protocol {message.protocol}, this controller {PROTOCOL}")
        state = self._store.state
        runs = frozenset((run.job_id, run.run) for run in message.runs)
        known: Known = {(run.job_id, run.run, run.step_id): run.running for run in message.runs}
        ended = frozenset(
            (run.job_id, run.run) for run in message.runs if run.step_id == BATCH_STEP and not run.running
        )
        await self._store.commit(
            RegisterNode(name=message.name, facts=wire.node_facts(message), runs=runs, ended_runs=ended),
            at=self._clock.now(),
        )
        index = state.node_index[message.name]
        link = Link(index, message.name, self._read_blob, self._links.monotonic)
        pulse = self._links.pulse(index)
        pulse.io_socket = message.io_socket
        pulse.limits_off = tuple(message.limits_off)
        self._note_skew(index, message.name, message.sent_at_ms)
        # No await between these: an event is in what is owed, or reaches the link as it becomes durable, or both.
        self._links.opened(link)
        try:
            self._dispatcher.owed(link, known)
            # The state may be ahead of the disk, and while others write it always is: waiting for a moment in which
            # it is not could last for ever. So what is owed is taken down first, and sent once durable.
            await self._store.settled()
        except BaseException:
            self._links.lost(link)
            raise
        settings = state.settings
        log.info("node %s registered from %s:%d with %d runs", message.name, message.addr, message.port, len(runs))
        return link, node_pb2.Registered(
            node_index=index,
            cluster=settings.cluster,
            kill_wait_seconds=settings.kill_wait_seconds,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            append_output=settings.job_file_append,
        )

    async def _talk(self, link: Link, messages: AsyncIterator[node_pb2.NodeMessage], context: rpc.Context) -> None:
        """Read and write until the node ends the stream or a newer one of it takes over.

        Returning is what ends a stream (gRPC's asyncio servers cannot cancel a call). A report that is being
        committed then loses at most its answer: its commands were posted in one go, and the node repeats it.
        """
        reading = asyncio.create_task(self._read_all(link, messages), name=f"read {link.name}")
        try:
            while not link.closed:
                await link.wake.wait()
                orders = link.take()
                if orders is not None:
                    await context.write(node_pb2.ControllerMessage(orders=orders))
        finally:
            reading.cancel()
            await asyncio.wait([reading])
        if not reading.cancelled():
            reading.result()

    async def _read_all(self, link: Link, messages: AsyncIterator[node_pb2.NodeMessage]) -> None:
        try:
            async for message in messages:
                await self.read(link, message)
        finally:
            link.close()

    async def read(self, link: Link, message: node_pb2.NodeMessage) -> None:
        """Take one message of a registered node; returns once what it reports is durable."""
        pulse = self._links.pulse(link.node)
        pulse.heard = self._links.monotonic()
        kind = message.WhichOneof("body")
        if kind == "heartbeat":
            pulse.load_x100 = message.heartbeat.load_x100
            pulse.free_memory_mib = message.heartbeat.free_memory_mib
            self._note_skew(link.node, link.name, message.heartbeat.sent_at_ms)
        elif kind == "report":
            await self._report(link, message.report)

    async def _report(self, link: Link, report: node_pb2.Report) -> None:
        for began in report.began:
            link.launched.pop((began.job_id, began.run, began.step_id), None)
        for blob in report.missing_blobs:
            link.dropped(blob)
        if report.missing_blobs:
            # Their launches were not begun: what is owed is sent again, this time with the blobs.
            self._dispatcher.overdue(0.0, link)
        self._dispatcher.signalled(report.signalled)
        written: Awaitable[int] | None = None
        for ended in report.ended:
            link.launched.pop((ended.job_id, ended.run, ended.step_id), None)
            written = self._post(self._ending(link.node, ended)) or written
        for gone in report.gone:
            command = ReleaseNode(job_id=JobId(gone.job_id), run=gone.run, node=link.node)
            written = self._post(command) or written
        if written is not None:
            await written
        if report.ended:
            await self._store.settled()
            for ended in report.ended:
                link.forget(ended.job_id, ended.run, ended.step_id)

    def _post(self, command: Command) -> Awaitable[int] | None:
        try:
            return self._store.post(command, at=self._clock.now())[1]
        except errors.Unavailable:
            # Nothing can be stored now: the node must not be told to forget it.
            raise
        except errors.MusterError as error:
            # What a node reports is a fact; one that fits nothing any more (a purged job) is only logged.
            log.warning("%s: %s", type(command).__name__, error)
            return None

    def _ending(self, node: int, ended: node_pb2.StepEnded) -> Command:
        result = wire.step_result(node, ended)
        if ended.step_id == BATCH_STEP:
            return FinishBatch(job_id=JobId(ended.job_id), run=ended.run, result=result)
        return FinishStep(job_id=JobId(ended.job_id), run=ended.run, step_id=StepId(ended.step_id), result=result)

    def _note_skew(self, node: int, name: str, sent_at_ms: int) -> None:
        pulse = self._links.pulse(node)
        before, pulse.skew_ms = pulse.skew_ms, sent_at_ms - int(time.time() * 1000)
        if abs(pulse.skew_ms) > SKEW_WARNING_MS >= abs(before):
            way = "ahead of" if pulse.skew_ms > 0 else "behind"
            log.warning("the clock of node %s is %.1f s %s the controller's", name, abs(pulse.skew_ms) / 1000, way)


def _check_certificate(name: str, peer: auth.Peer) -> None:
    if peer.role != "compute" or peer.name != name:
        raise errors.Denied(f"the certificate {peer.role}/{peer.name} may not register a node named {name}")


class RelayService(node_pb2_grpc.RelayServicer):
    """People's calls that came to an agent's local socket."""

    def __init__(self, door: Door, name_caller: Callable[[node_pb2.CallRequest, rpc.Context], Caller]) -> None:
        self._door = door
        self._name_caller = name_caller

    async def Call(self, request: node_pb2.CallRequest, context: rpc.Context) -> node_pb2.CallReply:
        """Pass the call through the door as the caller that the agent's kernel named."""
        try:
            caller = self._name_caller(request, context)
        except errors.MusterError as error:
            await rpc.answer_error(context, error)
            raise
        answer = await self._door.answer(caller, request.method, request.path, request.body)
        return node_pb2.CallReply(status=answer.status, body=answer.body)

"""The agent's stream to the controller: registration, heartbeats and reports up, orders down.

It never ends because the controller is away: it dials again, with jitter. Steps go on meanwhile, and what they leave
is reported on the next stream.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from muster import errors, rpc
from muster.v1 import node_pb2, node_pb2_grpc
from noded import hardware
from noded.loops.reports import Outbox
from noded.loops.steps import StepKeeper

log = logging.getLogger("noded.stream")

PROTOCOL = 1
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
REGISTER_SECONDS = 30.0
"""How long the controller may take to answer a registration."""
DEFAULT_HEARTBEAT_SECONDS = 10

_Call = Any
"""grpc.aio.StreamStreamCall, whose types its stubs do not export in a usable form."""


class Refused(errors.Refused):
    """The controller will not have this agent; `final`: not later either; `unknown`: it has no such node."""

    def __init__(self, refusal: node_pb2.Refusal) -> None:
        super().__init__(refusal.sentence)
        self.final = refusal.final
        self.unknown = refusal.unknown


class Stream:
    """Dials, registers, and serves one stream after the other."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        register: Callable[[], node_pb2.Register],
        keeper: StepKeeper,
        outbox: Outbox,
        registered: Callable[[node_pb2.Registered], None],
    ) -> None:
        """Args:
        channel: to the controller.
        register: makes the registration, without runs and time.
        keeper: the steps.
        outbox: the reports.
        registered: is told what the controller says of each registration.
        """
        self._stub = node_pb2_grpc.NodesStub(channel)
        self._register = register
        self._keeper = keeper
        self._outbox = outbox
        self._registered = registered
        self._said = ""
        """The last trouble that was logged: the same one is not logged at each try."""

    async def live(self) -> None:
        """Keep a stream; raises Refused only when the controller will never have this node."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            try:
                await self._serve()
                self._trouble("the controller has ended the stream")
            except Refused as error:
                if error.final:
                    raise
                self._trouble(f"the controller refuses this node: {error}")
                if error.unknown:
                    # Their jobs have ended or run elsewhere by now.
                    self._keeper.end_all()
            except grpc.aio.AioRpcError as error:
                self._trouble(f"no stream to the controller: {rpc.from_status(error)}")
            except TimeoutError:
                self._trouble("the controller does not answer the registration")
            if time.monotonic() - began > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            # Jitter: the nodes of a cluster do not all come back in the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE_SECONDS, pause * 1.5)

    async def _serve(self) -> None:
        call: _Call = self._stub.Connect()
        try:
            async with asyncio.timeout(REGISTER_SECONDS):
                message = self._register()
                message.sent_at_ms = int(time.time() * 1000)
                for (job_id, run, step_id), running in self._keeper.steps.here():
                    message.runs.add(job_id=job_id, run=run, step_id=step_id, running=running)
                await self._write(call, node_pb2.NodeMessage(register=message))
                first = await call.read()
            if first is grpc.aio.EOF:
                await _raise_status(call)
                return
            if first.WhichOneof("body") == "refusal":
                raise Refused(first.refusal)
            registered = first.registered
            log.info("registered with the controller of cluster %s%s", registered.cluster, _state(registered))
            self._said = ""
            self._registered(registered)
            # What was not sent on the stream before is told anew from the state.
            self._outbox.clear()
            self._keeper.connected()
            await self._talk(call, registered.heartbeat_seconds or DEFAULT_HEARTBEAT_SECONDS)
        finally:
            call.cancel()

    async def _talk(self, call: _Call, heartbeat_seconds: int) -> None:
        """Read and write until the stream ends, whichever side notices first."""
        tasks = {asyncio.create_task(self._read(call)), asyncio.create_task(self._send(call, heartbeat_seconds))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, call: _Call) -> None:
        while True:
            message = await call.read()
            if message is grpc.aio.EOF:
                await _raise_status(call)
                return
            kind = message.WhichOneof("body")
            if kind == "orders":
                self._keeper.obey(message.orders)
            elif kind == "refusal":
                raise Refused(message.refusal)

    async def _send(self, call: _Call, heartbeat_seconds: int) -> None:
        outbox = self._outbox
        beat_at = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + heartbeat_seconds
                await self._write(call, node_pb2.NodeMessage(heartbeat=_heartbeat()))
            report = outbox.take()
            if report is not None:
                await self._write(call, node_pb2.NodeMessage(report=report))
                continue
            try:
                async with asyncio.timeout(beat_at - time.monotonic()):
                    await outbox.wake.wait()
            except TimeoutError:
                continue

    async def _write(self, call: _Call, message: node_pb2.NodeMessage) -> None:
        try:
            await call.write(message)
        except asyncio.InvalidStateError:
            # The call has ended: its status says why.
            await _raise_status(call)

    def _trouble(self, text: str) -> None:
        if text != self._said:
            log.warning("%s; trying again", text)
        self._said = text


def _heartbeat() -> node_pb2.Heartbeat:
    return node_pb2.Heartbeat(
        load_x100=hardware.load_x100(),
        free_memory_mib=hardware.free_memory_mib(),
        sent_at_ms=int(time.time() * 1000),
    )


async def _raise_status(call: _Call) -> None:
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
        )


def _state(registered: node_pb2.Registered) -> str:
    return f": {registered.state}" if registered.state else ""

"""A controller's side of the node streams without the rest, and agents that speak to it over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from ctld.core.commands import ApplyPlan, Command, CreateStep, StepRequest, Submit
from ctld.core.events import Event
from ctld.core.model import NodeShare
from ctld.core.plan import Plan, Start
from ctld.core.state import State
from ctld.loops.dispatch import Dispatcher
from ctld.loops.links import Link, Links
from ctld.services.nodes import PROTOCOL, NodesService
from ctld.store.memory import MemoryBlobs
from ctld.store.store import Store
from muster import auth, rpc
from muster.ids import BATCH_STEP, JobId
from muster.v1 import node_pb2, node_pb2_grpc
from tests.builders import NOON, USER, a_spec, a_state
from tests.held import HeldJournal
from tests.served import StandingClock

BATCH = int(BATCH_STEP)


class Desk:
    """State, store, links, dispatcher and the nodes' service, as the daemon puts them together."""

    def __init__(self, nodes: int = 2, *, signal_seconds: float = 0.2, state: State | None = None) -> None:
        self.state = state or a_state(nodes)
        self.journal = HeldJournal()
        self.blobs = MemoryBlobs(self.journal)
        self.store = Store(self.state, self.journal)
        self.now = 0.0
        self.links = Links(monotonic=lambda: self.now)
        self.dispatcher = Dispatcher(self.state, self.links, signal_seconds=signal_seconds)
        self.store.subscribe(self.dispatcher.take)
        self.clock = StandingClock()
        self.service = NodesService(self.store, self.links, self.dispatcher, self.blobs.get, self.clock)

    def post(self, command: Command, blobs: Sequence[tuple[bytes, bytes]] = ()) -> Sequence[Event]:
        """Decide and apply; unless the journal is held, all is durable and delivered then."""
        events, _ = self.store.post(command, at=NOON, blobs=blobs)
        if not self.journal.holding:
            self.journal.release()
        return events

    def submit(self, script: bytes = b"#!/bin/sh\n", environment: bytes = b"A=b\0", **fields: Any) -> int:
        """Submit a batch job (with `script=b""` none) and give its id."""
        records = []
        for name, data in (("script", script), ("environment", environment)):
            if data:
                digest, record = self.blobs.put(data)
                fields[name] = digest
                records += [record] if record is not None else []
        fields.setdefault("batch", bool(script))
        events = self.post(Submit(spec=a_spec(**fields), by=USER), records)
        return int(events[0].job.id)  # type: ignore[union-attr]

    def start(self, job_id: int, *nodes: int) -> int:
        """Start a pending job on a core of its own of each node."""
        shares = tuple(NodeShare(node=node, cpus=1, cores=(job_id, job_id)) for node in nodes or (0,))
        self.post(ApplyPlan(Plan(NOON, (Start(JobId(job_id), "main", shares),))))
        assert self.state.jobs[job_id].state == 1
        return job_id

    def running(self, *nodes: int, **fields: Any) -> int:
        """Submit and start a job."""
        return self.start(self.submit(**fields), *nodes)

    def step(self, job_id: int, **fields: Any) -> int:
        """Make a step of a running job on all of its nodes."""
        job = self.state.jobs[job_id]
        assert job.alloc is not None
        count = len(job.alloc.shares)
        request = StepRequest(name="s", argv=("true",), overlap=True, ntasks=count, nodes_min=count, **fields)
        events = self.post(CreateStep(JobId(job_id), USER, request))
        return int(events[0].step.step_id)  # type: ignore[union-attr]

    def link(self, node: int = 0) -> Link:
        """Give a node a live link that nobody writes."""
        link = Link(node, f"n{node + 1}", self.blobs.get, lambda: self.now)
        self.links.opened(link)
        return link

    @asynccontextmanager
    async def served(self, folder: Path) -> AsyncIterator[Callable[..., Agent]]:
        """Serve the streams; gives what dials one as a node."""
        auth.create_authority(folder)
        server = rpc.server()
        node_pb2_grpc.add_NodesServicer_to_server(self.service, server)
        port = rpc.listen(server, auth.issue(folder, "controller", "ctld"), "127.0.0.1:0")
        await server.start()
        channels = []

        def dial(name: str = "n1", *, certificate: str = "", role: str = "compute") -> Agent:
            identity = auth.issue(folder, role, certificate or name)
            channels.append(rpc.dial(identity, f"127.0.0.1:{port}", "controller"))
            return Agent(name, channels[-1])

        try:
            yield dial
        finally:
            for channel in channels:
                await channel.close()
            await server.stop(0.2)


class Agent:
    """One stream of a node."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self.name = name
        self.call: Any = node_pb2_grpc.NodesStub(channel).Connect()

    async def say(self, **body: Any) -> None:
        """Write a message."""
        await self.call.write(node_pb2.NodeMessage(**body))

    async def hear(self) -> node_pb2.ControllerMessage | None:
        """Read the next message; None: the stream is over."""
        async with asyncio.timeout(10):
            message = await self.call.read()
        return None if message is grpc.aio.EOF else message

    async def register(self, **fields: Any) -> node_pb2.ControllerMessage | None:
        """Register and give the answer."""
        message = a_registration(self.name, **fields)
        await self.say(register=message)
        return await self.hear()

    async def orders(self) -> node_pb2.Orders:
        """Read the next orders."""
        message = await self.hear()
        assert message is not None
        assert message.WhichOneof("body") == "orders"
        return message.orders

    async def leave(self) -> None:
        """Break the stream."""
        self.call.cancel()


def a_registration(name: str = "n1", **fields: Any) -> node_pb2.Register:
    """What a node of `a_state` says of itself."""
    given: dict[str, Any] = {
        "protocol": PROTOCOL,
        "name": name,
        "hostname": name,
        "addr": "127.0.0.1",
        "port": 6818,
        "boot_at": NOON - 1000,
        "agent_started_at": NOON - 10,
        "cpus": 64,
        "sockets": 1,
        "cores_per_socket": 64,
        "threads_per_core": 1,
        "memory_mib": 256_000,
        "gpus": [""] * 8,
        "sent_at_ms": 0,
        **fields,
    }
    return node_pb2.Register(**given)


def an_end(job_id: int, *, run: int = 0, step_id: int = BATCH, status: int = 0) -> node_pb2.StepEnded:
    """What a node says of a step that ended."""
    return node_pb2.StepEnded(
        job_id=job_id, run=run, step_id=step_id, tasks=[node_pb2.TaskEnded(rank=0, status=status)], ended_at=NOON + 5
    )

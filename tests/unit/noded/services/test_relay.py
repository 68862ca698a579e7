"""Relayed calls when the controller is away, or goes away under a call: what the caller may conclude differs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from muster import auth, rpc
from muster.v1 import node_pb2, node_pb2_grpc
from noded.services import relay
from noded.services.relay import Relay


class Controller(node_pb2_grpc.RelayServicer):
    """Answers calls, once it is let."""

    def __init__(self) -> None:
        self.calls: list[node_pb2.CallRequest] = []
        self.go = asyncio.Event()

    async def Call(self, request: node_pb2.CallRequest, context: Any) -> node_pb2.CallReply:
        self.calls.append(request)
        await self.go.wait()
        return node_pb2.CallReply(status=200, body=b'{"done":1}')


async def serve(folder: Path, controller: Controller, port: int = 0) -> tuple[grpc.aio.Server, int]:
    server = rpc.server()
    node_pb2_grpc.add_RelayServicer_to_server(controller, server)
    port = rpc.listen(server, auth.issue(folder, "controller", "ctld"), f"127.0.0.1:{port}")
    await server.start()
    return server, port


@asynccontextmanager
async def relaying(folder: Path, port: int) -> AsyncIterator[tuple[Path, grpc.aio.Channel]]:
    channel = rpc.dial(auth.issue(folder, "compute", "n1"), f"127.0.0.1:{port}", "controller")
    agent = Relay(channel, folder / "sock", "host")
    await agent.open()
    try:
        yield folder / "sock", channel
    finally:
        await agent.close()
        await channel.close()


async def ask(path: Path) -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: muster\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    auth.create_authority(tmp_path)
    return tmp_path


async def test_passes_a_call_on_and_its_answer_back(certificates: Path) -> None:
    controller = Controller()
    controller.go.set()
    server, port = await serve(certificates, controller)
    async with relaying(certificates, port) as (path, _):
        assert await ask(path) == (200, {"done": 1})
    [call] = controller.calls
    assert (call.method, call.path, call.body, call.host) == ("POST", "/v1/jobs", b"{}", "host")
    await server.stop(0)


async def test_waits_for_a_controller_that_restarts(certificates: Path) -> None:
    controller = Controller()
    controller.go.set()
    server, port = await serve(certificates, controller)
    async with relaying(certificates, port) as (path, channel):
        assert (await ask(path))[0] == 200
        await server.stop(0)
        # A call in the instant before the loss is noticed is one under which the controller went.
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        asked = asyncio.create_task(ask(path))
        server, _ = await serve(certificates, controller, port)
        assert (await asked)[0] == 200
    await server.stop(0)


async def test_a_controller_that_cannot_be_reached_has_taken_nothing(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 0.3)
    server, port = await serve(certificates, Controller())
    await server.stop(0)
    async with relaying(certificates, port) as (path, _):
        began = time.monotonic()
        status, answer = await ask(path)
        assert time.monotonic() - began >= 0.3
    assert (status, answer["error"]["slurm_code"]) == (503, 1800)
    assert answer["error"]["sentence"] == "Unable to contact slurm controller (connect failure)"


async def test_a_controller_that_goes_under_a_call_may_have_carried_it_out(certificates: Path) -> None:
    """sbatch repeats what met a connect failure: had this been called one, a job could be submitted twice."""
    controller = Controller()
    server, port = await serve(certificates, controller)
    async with relaying(certificates, port) as (path, _):
        asked = asyncio.create_task(ask(path))
        async with asyncio.timeout(20):
            while not controller.calls:
                await asyncio.sleep(0.01)
        await server.stop(0)
        status, answer = await asked
    assert (status, answer["error"]["slurm_code"]) == (503, 1802)
    assert answer["error"]["sentence"] == "Unable to contact slurm controller (receive failure)"
    assert len(controller.calls) == 1

"""Errors cross gRPC as what they are."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from muster import auth, rpc
from muster.errors import KINDS, MusterError, NotFound, Refused, Unavailable
from muster.v1 import node_pb2, node_pb2_grpc


class _Raising(node_pb2_grpc.RelayServicer):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def Call(self, request: node_pb2.CallRequest, context: rpc.Context) -> node_pb2.CallReply:
        if isinstance(self.error, MusterError):
            await rpc.answer_error(context, self.error)
        raise self.error


@asynccontextmanager
async def calling(folder: Path, error: Exception) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    auth.create_authority(folder)
    server = rpc.server()
    node_pb2_grpc.add_RelayServicer_to_server(_Raising(error), server)
    port = rpc.listen(server, auth.issue(folder, "controller", "ctld"), "127.0.0.1:0")
    await server.start()
    channel = rpc.dial(auth.issue(folder, "compute", "n1"), f"127.0.0.1:{port}", "controller")
    stub: Any = node_pb2_grpc.RelayStub(channel)
    try:
        yield lambda: rpc.call(lambda: stub.Call(node_pb2.CallRequest(), timeout=10))
    finally:
        await channel.close()
        await server.stop(0.1)


async def test_every_error_comes_out_as_the_same_class(tmp_path: Path) -> None:
    for kind in KINDS.values():
        async with calling(tmp_path, kind("What\nis wrong: ü €", "the cure\n", slurm_code=2017)) as call:
            with pytest.raises(MusterError) as caught:
                await call()
        heard = caught.value
        assert type(heard) is kind
        assert (heard.sentence, heard.hint, heard.slurm_code) == ("What\nis wrong: ü €", "the cure\n", 2017)


async def test_a_very_long_sentence_is_cut_and_arrives_as_its_class(tmp_path: Path) -> None:
    async with calling(tmp_path, Refused("ü" * 50_000, "h" * 50_000)) as call:
        with pytest.raises(Refused) as caught:
            await call()
    assert caught.value.sentence.startswith("ü" * 900)
    assert len(caught.value.sentence) < 2_100
    assert caught.value.hint.endswith("...")


async def test_a_bug_in_a_handler_is_no_error_of_the_house(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with calling(tmp_path, KeyError("x")) as call:
        with pytest.raises(MusterError) as caught:
            await call()
    assert type(caught.value) is MusterError
    assert "KeyError" in caplog.text


async def test_a_peer_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    auth.create_authority(tmp_path)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        async with rpc.dial(auth.issue(tmp_path, "compute", "n1"), address, "controller") as channel:
            stub: Any = node_pb2_grpc.RelayStub(channel)
            with pytest.raises(Unavailable):
                await rpc.call(lambda: stub.Call(node_pb2.CallRequest(), timeout=5))


async def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    auth.create_authority(tmp_path)
    identity = auth.issue(tmp_path, "controller", "ctld")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = rpc.server()
        with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
            rpc.listen(server, identity, f"127.0.0.1:{port}")
        await server.stop(0)


def test_a_status_of_another_program_is_read_as_well_as_can_be() -> None:
    def status(code: grpc.StatusCode, *metadata: tuple[str, str | bytes]) -> grpc.aio.AioRpcError:
        return grpc.aio.AioRpcError(
            code,
            grpc.aio.Metadata(),
            grpc.aio.Metadata(*metadata),
            details="said so",
        )

    assert type(rpc.from_status(status(grpc.StatusCode.DEADLINE_EXCEEDED))) is Unavailable
    assert type(rpc.from_status(status(grpc.StatusCode.INTERNAL))) is MusterError
    odd = rpc.from_status(status(grpc.StatusCode.INTERNAL, ("muster-code", "NEW"), ("muster-number", "x")))
    assert (type(odd), odd.slurm_code) == (MusterError, 0)
    found = rpc.from_status(status(grpc.StatusCode.NOT_FOUND, ("muster-code", NotFound.code)))
    assert type(found) is NotFound

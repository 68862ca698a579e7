"""Who a call acts for, by the way it came."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctld.core.model import Caller
from ctld.daemon import _Answer, _Relayed
from ctld.services.door import Call, Door, Right, Route
from ctld.services.nodes import RelayService
from muster import auth, rpc
from muster.errors import Denied
from muster.v1 import node_pb2, node_pb2_grpc
from tests.nodestream import Desk


async def who(call: Call) -> Caller:
    return call.caller


def a_door() -> Door:
    door = Door()
    door.add([Route("GET", "/who", Right.ANYONE, "cluster", who), Route("POST", "/stop", Right.ADMIN, "cluster", who)])
    return door


async def test_root_and_the_controllers_user_are_administrators_on_this_host() -> None:
    answer = _Answer(a_door())
    for uid, admin in ((0, True), (os.geteuid(), True), (4711, False)):
        status, body = await answer(uid, 5, "GET", "/who", b"")
        caller = msgspec.json.decode(body, type=Caller)
        assert (status, caller) == (200, Caller(uid=uid, gid=5, admin=admin, host=os.uname().nodename))
        assert (await answer(uid, 5, "POST", "/stop", b""))[0] == (200 if admin else 403)


@asynccontextmanager
async def relaying(folder: Path, desk: Desk, role: str, name: str) -> AsyncIterator[Any]:
    auth.create_authority(folder)
    server = rpc.server()
    node_pb2_grpc.add_RelayServicer_to_server(RelayService(a_door(), _Relayed(desk.state)), server)
    port = rpc.listen(server, auth.issue(folder, "controller", "ctld"), "127.0.0.1:0")
    await server.start()
    channel = rpc.dial(auth.issue(folder, role, name), f"127.0.0.1:{port}", "controller")
    try:
        yield node_pb2_grpc.RelayStub(channel)
    finally:
        await channel.close()
        await server.stop(0.1)


def a_call(uid: int, target: str = "/who", method: str = "GET") -> node_pb2.CallRequest:
    return node_pb2.CallRequest(uid=uid, gid=7, pid=1, host="n1", method=method, path=target)


async def test_a_relayed_caller_is_never_an_administrator(tmp_path: Path) -> None:
    async with relaying(tmp_path, Desk(), "compute", "n1") as stub:
        for uid in (0, os.geteuid(), 4711):
            reply = await stub.Call(a_call(uid), timeout=10)
            caller = msgspec.json.decode(reply.body, type=Caller)
            assert (reply.status, caller) == (200, Caller(uid=uid, gid=7, admin=False, host="n1"))
        assert (await stub.Call(a_call(0, "/stop", "POST"), timeout=10)).status == 403


async def test_a_host_of_another_role_relays_nothing(tmp_path: Path) -> None:
    async with relaying(tmp_path, Desk(), "accounting", "dbd") as stub:
        with pytest.raises(Denied, match="a host of role accounting relays no calls"):
            await rpc.call(lambda: stub.Call(a_call(4711), timeout=10))


class FarContext:
    """A call of node n1 that came over the network."""

    def peer(self) -> str:
        return "ipv4:10.0.0.7:5555"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_common_name": [b"compute/n1"]}


async def test_a_compute_host_speaks_for_users_with_a_job_on_it() -> None:
    desk = Desk()
    relayed = _Relayed(desk.state)
    far: Any = FarContext()
    with pytest.raises(Denied, match="Access/permission denied") as caught:
        relayed(a_call(1000), far)
    assert "user 1000 has no job on n1" in caught.value.hint
    desk.running(1)
    with pytest.raises(Denied):
        relayed(a_call(1000), far)
    desk.running(0)
    assert relayed(a_call(1000), far) == Caller(uid=1000, gid=7, admin=False, host="n1")
    with pytest.raises(Denied):
        relayed(a_call(0), far)

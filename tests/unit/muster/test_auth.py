"""Certificates: who is believed to be whom, over real TLS."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from muster import auth, rpc
from muster.auth import Identity
from muster.errors import Denied, InvalidInput
from muster.v1 import node_pb2, node_pb2_grpc


class _Relay(node_pb2_grpc.RelayServicer):
    async def Call(self, request: node_pb2.CallRequest, context: rpc.Context) -> node_pb2.CallReply:
        peer = rpc.peer(context)
        return node_pb2.CallReply(status=200, body=f"{peer.role} {peer.name} {rpc.is_local(context)}".encode())


@asynccontextmanager
async def served(identity: Identity) -> AsyncIterator[str]:
    server = rpc.server()
    node_pb2_grpc.add_RelayServicer_to_server(_Relay(), server)
    port = rpc.listen(server, identity, "127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0.1)


async def asked(channel: grpc.aio.Channel) -> bytes:
    async with channel:
        stub: Any = node_pb2_grpc.RelayStub(channel)
        reply: node_pb2.CallReply = await stub.Call(node_pb2.CallRequest(), timeout=10)
        return reply.body


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    auth.create_authority(tmp_path / "certs")
    return tmp_path / "certs"


async def test_both_sides_know_each_other_by_certificate(certs: Path) -> None:
    async with served(auth.issue(certs, "controller", "ctld")) as address:
        channel = rpc.dial(auth.issue(certs, "compute", "n1"), address, "controller")
        assert await asked(channel) == b"compute n1 True"


async def test_a_server_of_another_role_is_not_spoken_to(certs: Path) -> None:
    # A compute host that puts itself in the controller's place.
    async with served(auth.issue(certs, "compute", "n1")) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked(rpc.dial(auth.issue(certs, "compute", "n2"), address, "controller"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await asked(rpc.dial(auth.issue(certs, "compute", "n2"), address, "compute")) == b"compute n2 True"


async def test_a_certificate_of_another_authority_is_refused_by_the_server(certs: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    auth.create_authority(foreign)
    stranger = auth.issue(foreign, "compute", "n1")
    # It knows whom to trust; the server must not trust it.
    mixed = Identity(stranger.certificate, stranger.key, certs / "ca.crt")
    async with served(auth.issue(certs, "controller", "ctld")) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked(rpc.dial(mixed, address, "controller"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_of_another_authority_is_refused_by_the_client(certs: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    auth.create_authority(foreign)
    async with served(auth.issue(foreign, "controller", "ctld")) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked(rpc.dial(auth.issue(certs, "compute", "n1"), address, "controller"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_nobody_is_served_without_a_certificate(certs: Path) -> None:
    async with served(auth.issue(certs, "controller", "ctld")) as address:
        credentials = grpc.ssl_channel_credentials((certs / "ca.crt").read_bytes())
        options = [("grpc.ssl_target_name_override", "controller.muster"), ("grpc.enable_http_proxy", 0)]
        for channel in (
            grpc.aio.secure_channel(address, credentials, options=options),
            grpc.aio.insecure_channel(address, options=options[1:]),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asked(channel)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_keys_are_private_and_certificates_public(certs: Path) -> None:
    before = os.umask(0)
    try:
        identity = auth.issue(certs, "compute", "n1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(identity.key.stat().st_mode) == 0o600
    assert stat.S_IMODE((certs / "ca.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(identity.certificate.stat().st_mode) == 0o644
    assert stat.S_IMODE(certs.stat().st_mode) == 0o700
    assert not list(certs.glob("*.new"))


def test_what_a_crash_left_does_not_make_a_key_public(certs: Path) -> None:
    left = certs / "compute-n1.key.new"
    left.write_text("x")
    left.chmod(0o644)
    identity = auth.issue(certs, "compute", "n1")
    assert stat.S_IMODE(identity.key.stat().st_mode) == 0o600


def test_a_certificate_and_an_authority_are_made_once(certs: Path) -> None:
    first = auth.issue(certs, "compute", "n1").read()
    auth.create_authority(certs)
    assert auth.issue(certs, "compute", "n1").read() == first


@pytest.mark.parametrize("name", ["", "a/b", "../n1", "n 1", "n" * 57])
def test_a_name_that_no_certificate_can_bear_is_refused(certs: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="is no name for a certificate"):
        auth.issue(certs, "compute", name)


def test_the_longest_name_works(certs: Path) -> None:
    assert auth.issue(certs, "compute", "n" * 56).certificate.exists()


def test_an_unknown_role_is_refused(certs: Path) -> None:
    with pytest.raises(InvalidInput, match="unknown role 'king'"):
        auth.issue(certs, "king", "n1")


def test_a_host_without_the_authoritys_key_makes_no_certificates(certs: Path) -> None:
    (certs / "ca.key").unlink()
    with pytest.raises(InvalidInput, match=r"ca\.key: No such file"):
        auth.issue(certs, "compute", "n1")
    (certs / "ca.key").write_text("garbage")
    with pytest.raises(InvalidInput, match="cannot be read"):
        auth.issue(certs, "compute", "n1")


def test_a_missing_file_is_named(certs: Path) -> None:
    with pytest.raises(InvalidInput, match=r"compute-n9\.key"):
        auth.identity_at(certs, "compute", "n9").read()


@pytest.mark.parametrize("text", ["", "compute", "compute/", "king/n1", "/n1"])
def test_a_common_name_of_no_role_is_denied(text: str) -> None:
    with pytest.raises(Denied):
        auth.peer_of(text)


def test_a_common_name_gives_role_and_name() -> None:
    assert auth.peer_of("compute/n1") == auth.Peer("compute", "n1")

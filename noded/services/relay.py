"""People's calls on this host's socket, passed on unread to the controller with the caller that the kernel named."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import grpc
import grpc.aio

from muster import errors, rpc
from muster.local_socket import LocalSocket, refusal_body
from muster.v1 import node_pb2, node_pb2_grpc

log = logging.getLogger("noded.relay")

CONNECT_FAILURE = "Unable to contact slurm controller (connect failure)"
"""Nothing was sent: whoever asked may ask again."""
RECEIVE_FAILURE = "Unable to contact slurm controller (receive failure)"
"""The channel broke under the call: the controller may have carried it out, so it must not be repeated blindly."""
PATIENCE_SECONDS = 5.0
"""How long a controller that cannot be reached (it restarts) is waited for, as commands on its own host do."""
CALL_SECONDS = 300.0
"""Longest a call may take; clients give up earlier by themselves."""


class Relay:
    """Answers the local socket by asking the controller."""

    def __init__(self, channel: grpc.aio.Channel, path: Path, host: str) -> None:
        """Args:
        channel: to the controller.
        path: of the local socket.
        host: this machine's name, for the controller's records.
        """
        self._channel = channel
        self._call = node_pb2_grpc.RelayStub(channel).Call
        self._host = host
        self._socket = LocalSocket(path, answer_process=self._answer)

    async def open(self) -> None:
        """Listen."""
        await self._socket.open()

    async def close(self) -> None:
        """Stop listening; calls under way are finished (2 s at most)."""
        await self._socket.close()

    async def _answer(  # noqa: PLR0917 (the form of AnswerProcess)
        self, pid: int, uid: int, gid: int, method: str, target: str, body: bytes
    ) -> tuple[int, bytes]:
        request = node_pb2.CallRequest(
            uid=uid, gid=gid, pid=max(0, pid), host=self._host, method=method, path=target, body=body
        )
        if not await self._connected():
            away = errors.Unavailable(CONNECT_FAILURE, "the node's agent cannot reach it", slurm_code=1800)
            return away.http_status, refusal_body(away)
        try:
            reply = await self._call(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as failure:
            error = rpc.from_status(failure)
            if isinstance(error, errors.Unavailable) and not error.slurm_code:
                error = errors.Unavailable(RECEIVE_FAILURE, error.sentence, slurm_code=1802)
            return error.http_status, refusal_body(error)
        return reply.status, reply.body

    async def _connected(self) -> bool:
        """Wait a while for the channel; once it is there, a call that fails may have reached the controller."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (state := self._channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            return False
        return True

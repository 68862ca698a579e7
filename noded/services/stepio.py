"""Step input and output: srun's connection to the stepd, on this host or through the agent of another.

srun connects to `<socket>.io`, sends one line of JSON, `{"job":..,"run":..,"step":..,"node":name}` (with `"addr":
"host:port"` for another node's agent), gets one line back, `{"ok":true}` or `{"error":sentence}` (with `"away":true`
when that agent cannot be reached: it may be restarting), and then speaks frames (muster/frames.py) with the stepd. For
a step on this host the stepd gets the connection itself; for another one the bytes pass unread through a call between
the two agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import msgspec

from muster import errors, rpc
from muster.auth import Identity
from muster.frames import MAX_BYTES
from muster.local_socket import credentials_of
from muster.v1 import stepio_pb2, stepio_pb2_grpc
from noded.launch.watch import Watch
from noded.loops.steps import StepKeeper

log = logging.getLogger("noded.stepio")

LAUNCH_SECONDS = 60.0
"""How long a step's launch may come after srun."""
_HEADER_SECONDS = 30.0
_MOST_HEADER_BYTES = 4096
_OK = b'{"ok":true}\n'
_MOST_CONNECTIONS = 4096
_ACCEPT_AGAIN_SECONDS = 0.05
_LAST_SECONDS = 10.0
"""How long a reader may take for what is left when the other side has ended."""


class Header(msgspec.Struct, frozen=True):
    """What srun says first."""

    job: int
    run: int
    step: int
    node: str
    addr: str = ""
    """Where the agent of the node listens; not used for this one."""


class StepIo:
    """The local socket for step input and output."""

    def __init__(self, path: Path, name: str, identity: Identity, keeper: StepKeeper) -> None:
        """Args:
        path: of the socket.
        name: of this node.
        identity: shows other agents who this one is.
        keeper: the steps here.
        """
        self.path = path
        self._name = name
        self._identity = identity
        self._keeper = keeper
        self._listening: socket.socket | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._served: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen, in the place of what a former agent left."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        temporary = self.path.with_name(self.path.name + ".new")
        try:
            temporary.unlink(missing_ok=True)
            listening.bind(str(temporary))
            temporary.chmod(0o666)
            listening.listen(1024)
            temporary.rename(self.path)
        except OSError as error:
            listening.close()
            raise errors.InvalidInput(f"cannot listen on the socket {self.path}: {error.strerror or error}") from error
        self._listening = listening

    async def serve(self) -> None:
        """Take connections until cancelled."""
        assert self._listening is not None
        async with asyncio.TaskGroup() as group:
            while True:
                await self._keeper.watch.readable(self._listening.fileno())
                try:
                    connection, _ = self._listening.accept()
                except OSError as error:  # the caller is gone, or there are no descriptors left
                    log.warning("a connection for step input and output cannot be taken: %s", error)
                    await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                    continue
                if len(self._served) >= _MOST_CONNECTIONS:
                    log.error("over %d connections for step input and output: one is closed", _MOST_CONNECTIONS)
                    connection.close()
                    continue
                task = group.create_task(self._one(connection))
                self._served.add(task)
                task.add_done_callback(self._served.discard)

    async def close(self) -> None:
        """Stop listening, and close the channels to other agents."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for channel in self._channels.values():
            await channel.close()

    async def _one(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(_HEADER_SECONDS):
                line = await read_line(connection, self._keeper.watch)
            _, uid, _ = credentials_of(connection)
            try:
                header = msgspec.json.decode(line, type=Header)
            except msgspec.DecodeError as error:
                _refuse(connection, f"the first line for step input and output is wrong: {error}")
                return
            if header.node == self._name:
                key = (header.job, header.run, header.step)
                error_sentence = await self._keeper.attach(key, uid, connection, _OK, seconds=LAUNCH_SECONDS)
                if error_sentence:
                    _refuse(connection, error_sentence)
            else:
                await self._forward(connection, header, uid)
        except (TimeoutError, OSError, ValueError) as error:
            log.info("a connection for step input and output ended early: %s", error or "no first line came")
        finally:
            connection.close()

    async def _forward(self, connection: socket.socket, header: Header, uid: int) -> None:
        if not header.addr:
            _refuse(connection, f"node {header.node} is not this one ({self._name}), and no address was given")
            return
        channel = self._channels.get(header.addr)
        if channel is None:
            channel = self._channels[header.addr] = rpc.dial(self._identity, header.addr, "compute")
        call = stepio_pb2_grpc.StepIoStub(channel).Attach()
        try:
            attach = stepio_pb2.AttachTo(
                job_id=header.job, run=header.run, step_id=header.step, node=header.node, uid=uid
            )
            try:
                await call.write(stepio_pb2.IoChunk(attach=attach))
                first = await call.read()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                first = grpc.aio.EOF
            if first is grpc.aio.EOF:
                sentence, away = await _why_ended(call, header)
                _refuse(connection, sentence, away=away)
                return
            connection.sendall(_OK)
            reader, writer = await asyncio.open_unix_connection(sock=connection.dup(), limit=MAX_BYTES)
            try:
                await _race(_upwards(reader, call), _downwards(writer, call))
            finally:
                await _close(writer)
        finally:
            call.cancel()


class StepIoService(stepio_pb2_grpc.StepIoServicer):
    """What other agents ask: to be connected with a step here."""

    def __init__(self, name: str, keeper: StepKeeper) -> None:
        self._name = name
        self._keeper = keeper

    async def Attach(  # type: ignore[override]
        self, request_iterator: AsyncIterator[stepio_pb2.IoChunk], context: rpc.Context
    ) -> None:
        """Connect the call with the stepd and carry bytes both ways until either side ends."""
        try:
            peer = rpc.peer(context)
            if peer.role != "compute":
                raise errors.Denied(f"{peer.role}/{peer.name} may not attach to steps; only agents may")
            first = await anext(request_iterator, None)
            if first is None or not first.HasField("attach"):
                raise errors.InvalidInput("the first message names no step")
            ours, theirs = socket.socketpair()
            try:
                await self._attach(first.attach, theirs)
            except errors.MusterError:
                ours.close()
                raise
            finally:
                theirs.close()
        except errors.MusterError as error:
            await rpc.answer_error(context, error)
            return
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_BYTES)
        try:
            await context.write(stepio_pb2.IoChunk())
            await _race(_from_stepd(reader, context), _to_stepd(writer, request_iterator))
        finally:
            await _close(writer)

    async def _attach(self, wanted: stepio_pb2.AttachTo, connection: socket.socket) -> None:
        if wanted.node != self._name:
            raise errors.InvalidInput(f"node {wanted.node} is asked for at the agent of {self._name}")
        key = (wanted.job_id, wanted.run, wanted.step_id)
        sentence = await self._keeper.attach(key, wanted.uid, connection, b"", seconds=LAUNCH_SECONDS)
        if sentence:
            raise errors.Refused(sentence)


async def read_line(connection: socket.socket, watch: Watch) -> bytes:
    """Read up to the first newline and not a byte more: what follows is for another reader.

    Raises:
        ValueError: the connection ends before, or the line is over its bound.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        await watch.readable(connection.fileno())
        try:
            seen = connection.recv(_MOST_HEADER_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        if not seen:
            raise ValueError("the connection ended before its first line")
        end = seen.find(b"\n") + 1 or len(seen)
        line += connection.recv(end)
        if len(line) > _MOST_HEADER_BYTES:
            raise ValueError(f"the first line is longer than {_MOST_HEADER_BYTES} bytes")
    return bytes(line)


def _refuse(connection: socket.socket, sentence: str, *, away: bool = False) -> None:
    said = {"error": sentence, "away": True} if away else {"error": sentence}
    # A line fits a fresh socket's buffer; a caller that is gone already needs none.
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(said).encode() + b"\n")


async def _why_ended(call: grpc.aio.StreamStreamCall, header: Header) -> tuple[str, bool]:  # type: ignore[type-arg]
    code, details = await call.code(), await call.details()
    metadata = await call.trailing_metadata()
    failure = grpc.aio.AioRpcError(code, await call.initial_metadata(), metadata, details=details)
    error = rpc.from_status(failure)
    if isinstance(error, errors.Unavailable):
        return f"the agent of node {header.node} cannot be reached at {header.addr}: {error.sentence}", True
    return error.sentence, False


async def _race(one: object, other: object) -> None:
    """Run both until the first ends (either way); the other is cancelled. Lost connections are no errors here."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]  # type: ignore[call-overload]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is not None and not isinstance(error, OSError | grpc.aio.AioRpcError | asyncio.InvalidStateError):
                raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _upwards(reader: asyncio.StreamReader, call: grpc.aio.StreamStreamCall) -> None:  # type: ignore[type-arg]
    while data := await reader.read(MAX_BYTES):
        await call.write(stepio_pb2.IoChunk(data=data))


async def _downwards(writer: asyncio.StreamWriter, call: grpc.aio.StreamStreamCall) -> None:  # type: ignore[type-arg]
    while True:
        chunk = await call.read()
        if not isinstance(chunk, stepio_pb2.IoChunk):  # grpc.aio.EOF
            return
        writer.write(chunk.data)
        await writer.drain()


async def _from_stepd(reader: asyncio.StreamReader, context: rpc.Context) -> None:
    while data := await reader.read(MAX_BYTES):
        await context.write(stepio_pb2.IoChunk(data=data))


async def _to_stepd(writer: asyncio.StreamWriter, chunks: AsyncIterator[stepio_pb2.IoChunk]) -> None:
    async for chunk in chunks:
        writer.write(chunk.data)
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection once what was written to it has left, or its other side is gone."""
    writer.close()
    try:
        async with asyncio.timeout(_LAST_SECONDS):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        return


def io_path(local_socket: Path) -> Path:
    """Say where the socket for step input and output lies, beside an agent's local socket."""
    return Path(os.fspath(local_socket) + ".io")

"""A daemon's local socket: HTTP/1.1 over a Unix socket, the caller named by the kernel.

Commands speak to it. aiohttp's low-level server parses; what a request means is for whoever answers it: the
controller's door, or a node agent that relays. A connection may carry many requests.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from muster import errors

BACKLOG = 1024
MAX_BODY_BYTES = 32 << 20
"""A script of max_script_size, an environment, and room; larger requests are refused by name."""

IDLE_SECONDS = 300.0
"""How long a connection may stay open between two requests."""
CLOSE_SECONDS = 2.0

AnswerCall = Callable[[int, int, str, str, bytes], Awaitable[tuple[int, bytes]]]
"""(uid, gid, method, target, body) -> (HTTP status, JSON); never raises for what a caller did."""

AnswerProcess = Callable[[int, int, int, str, str, bytes], Awaitable[tuple[int, bytes]]]
"""As AnswerCall, with the caller's pid in front."""

_UCRED = struct.Struct("3i")


class LocalSocket:
    """Serves calls on a Unix socket until closed.

    Args:
        path: where it listens.
        answer: answers each call.
        answer_process: in place of `answer`, for who has to know the calling process too.
    """

    def __init__(
        self, path: Path, answer: AnswerCall | None = None, *, answer_process: AnswerProcess | None = None
    ) -> None:
        assert (answer is None) != (answer_process is None)
        self._path = path
        self._answer = answer
        self._answer_process = answer_process
        self._runner: web.ServerRunner | None = None

    async def open(self) -> None:
        """Listen; the socket is open to every user of the host. A file that a daemon left behind is replaced.

        Raises:
            InvalidInput: the path cannot be bound; says why.
            Refused: another daemon listens there.
        """
        listening = self._bind()
        try:
            server = web.Server(
                self._serve,
                max_field_size=16384,
                max_line_size=65536,
                access_log=None,
                keepalive_timeout=IDLE_SECONDS,
            )
            self._runner = web.ServerRunner(server, shutdown_timeout=CLOSE_SECONDS)
            await self._runner.setup()
            await web.SockSite(self._runner, listening, backlog=BACKLOG).start()
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Stop listening; requests being answered are finished (2 s at most).

        The file stays: to clients it says that a daemon belongs here and will be back (`muster.client`).
        """
        if self._runner is not None:
            await self._runner.cleanup()

    def _bind(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if _is_served(self._path):
                raise errors.Refused(
                    f"another daemon listens on the socket {self._path}", "stop it, or name another socket"
                )
            # Bound under a temporary name and renamed, so that clients never find a gap.
            temporary = self._path.with_name(self._path.name + ".new")
            temporary.unlink(missing_ok=True)
            listening.bind(str(temporary))
            temporary.chmod(0o666)
            listening.listen(BACKLOG)
            listening.setblocking(False)
            temporary.rename(self._path)
        except OSError as error:
            listening.close()
            raise errors.InvalidInput(f"cannot listen on the socket {self._path}: {error.strerror or error}") from error
        except BaseException:
            listening.close()
            raise
        return listening

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            pid, uid, gid = peer_of(request.protocol)
            length = request.content_length
            if length is not None and length > MAX_BODY_BYTES:
                raise errors.TooLarge(f"the request is {length} bytes, more than the {MAX_BODY_BYTES} that are taken")
            body = b""
            if request.body_exists:
                body = await _read(request)
        except errors.MusterError as error:
            response = web.Response(status=error.http_status, body=refusal_body(error), content_type="application/json")
            response.force_close()
            return response
        if self._answer_process is not None:
            status, answer = await self._answer_process(pid, uid, gid, request.method, request.raw_path, body)
        else:
            assert self._answer is not None
            status, answer = await self._answer(uid, gid, request.method, request.raw_path, body)
        return web.Response(status=status, body=answer, content_type="application/json")


async def _read(request: web.BaseRequest) -> bytes:
    """Read a body that may come in pieces, up to the bound."""
    data = bytearray()
    async for chunk in request.content.iter_any():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise errors.TooLarge(f"the request is more than the {MAX_BODY_BYTES} bytes that are taken")
    return bytes(data)


def _is_served(path: Path) -> bool:
    """Tell whether somebody listens on a socket: a daemon that ended leaves a file that refuses connections."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # its backlog is full
        except OSError:
            return False
    return True


def refusal_body(error: errors.MusterError) -> bytes:
    """Give the JSON that carries an error of the house to a client."""
    return msgspec.json.encode({"error": error.parts()})


def peer_of(protocol: RequestHandler) -> tuple[int, int, int]:
    """Ask the kernel who is on the other side of a Unix socket: (pid, uid, gid)."""
    transport = protocol.transport
    connection = None if transport is None else transport.get_extra_info("socket")
    if connection is None:
        raise errors.Unavailable("the connection is gone")
    return credentials_of(connection)


def credentials_of(connection: socket.socket) -> tuple[int, int, int]:
    """Give (pid, uid, gid) of the process that connected a Unix socket."""
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid, gid

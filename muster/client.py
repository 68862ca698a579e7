"""The user client: one request over the local socket, written by hand, with nothing imported that costs time.

The daemon behind the socket learns who calls from the kernel (SO_PEERCRED), so no name or key is sent. The socket is
MUSTER_SOCKET, else the first that is there of $XDG_RUNTIME_DIR/muster/sock, ~/.muster/sock (a cluster of `muster up`;
MUSTER_HOME names another folder) and /run/muster/sock.
"""

from __future__ import annotations

import _socket
import os
import time

from muster import errors, tinyjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SYSTEM_SOCKET = "/run/muster/sock"
CONNECT_FAILURE = "Unable to contact slurm controller (connect failure)"
RECEIVE_FAILURE = "Unable to contact slurm controller (receive failure)"
LONGEST_TARGET = 8000
"""Bytes of route and query in a request line."""
_CHUNK = 1 << 18


def socket_path() -> str:
    """Say which socket this process speaks to."""
    given = os.environ.get("MUSTER_SOCKET")
    if given:
        return given
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        path = runtime + "/muster/sock"
        if os.path.exists(path):
            return path
    path = _own_folder() + "/sock"
    return path if os.path.exists(path) else SYSTEM_SOCKET


def _own_folder() -> str:
    given = os.environ.get("MUSTER_HOME")
    if given:
        return given
    home = os.environ.get("HOME")
    if not home:
        import pwd

        # Some clients strip the environment of what they start.
        home = pwd.getpwuid(os.getuid()).pw_dir
    return home + "/.muster"


def call(
    method: str, path: str, body: Any = None, *, timeout_seconds: float = 60.0, patience_seconds: float | None = None
) -> Any:
    """Make one call and give the answer's JSON.

    Args:
        method: GET or POST.
        path: route and query, already percent-encoded.
        body: bytes as they stand, or a value to send as JSON.
        timeout_seconds: longest silence of the daemon while it answers.
        patience_seconds: how long to go on trying to connect when nobody listens (a daemon that restarts); the
            request itself is sent once at most, since it may have been carried out. Default: MUSTER_PATIENCE or 5.

    Raises:
        errors.MusterError: the daemon's refusal as its class; Unavailable with Slurm's words when it is not there.
    """
    data = body if isinstance(body, bytes) else b"" if body is None else tinyjson.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: muster\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = _connect(timeout_seconds, patience_seconds)
    try:
        try:
            connection.sendall(head.encode() + data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it answered and closed before the end of a request that is too large: the answer says so
        status, answer = _receive(connection)
    except OSError as error:
        raise errors.Unavailable(
            RECEIVE_FAILURE, f"{socket_path()}: {error.strerror or error}", slurm_code=1802
        ) from error
    finally:
        connection.close()
    try:
        value = tinyjson.loads(answer.decode()) if answer else None
    except ValueError:
        raise errors.Unavailable(RECEIVE_FAILURE, "the answer is no JSON", slurm_code=1802) from None
    if status >= 400:
        raise _refusal(status, value)
    return value


def ask(route: str, query: Mapping[str, str]) -> Any:
    """Make a GET with a query: in the request line, or in the body where that would be too long (many ids)."""
    target = route + "?" + "&".join([f"{name}={quote(text)}" for name, text in query.items()])
    return call("GET", route, query) if len(target) > LONGEST_TARGET else call("GET", target)


def call_retrying(method: str, path: str, body: Any = None, *, seconds: float = 10.0) -> Any:
    """Make a call that may be repeated (it reads, or is idempotent) until the controller can be reached again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call(method, path, body)
        except errors.Unavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


def patience() -> float:
    """Give the seconds for which a daemon that restarts is waited for: MUSTER_PATIENCE, else 5.

    Raises:
        errors.InvalidInput: the variable holds no number.
    """
    text = os.environ.get("MUSTER_PATIENCE") or "5"
    try:
        return float(text)
    except ValueError:
        raise errors.InvalidInput(f"MUSTER_PATIENCE={text} is no number of seconds") from None


def quote(text: str) -> str:
    """Percent-encode a value for a path or query."""
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~,:"
    if all(letter in plain for letter in text):
        return text
    return "".join(
        chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape")
    )


def _connect(timeout_seconds: float, patience_seconds: float | None) -> _socket.socket:
    deadline = time.monotonic() + (patience() if patience_seconds is None else patience_seconds)
    path = socket_path()
    while True:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(path)
            return connection
        except FileNotFoundError as error:
            connection.close()
            # No socket at all: no daemon was ever here (one that restarts leaves its socket behind).
            raise errors.Unavailable(
                CONNECT_FAILURE,
                f"no socket {path}: is Muster running on this host? `muster up` starts it, MUSTER_SOCKET names another",
                slurm_code=1800,
            ) from error
        except OSError as error:
            connection.close()
            # EAGAIN: the daemon's backlog is full; ECONNREFUSED: it restarts.
            if time.monotonic() >= deadline or isinstance(error, PermissionError):
                raise errors.Unavailable(
                    CONNECT_FAILURE, f"{path}: {error.strerror or error}", slurm_code=1800
                ) from error
            time.sleep(0.05)


def _receive(connection: _socket.socket) -> tuple[int, bytes]:
    """Read one response that has a Content-Length or ends with the connection."""
    parts: list[bytes] = []
    got = b""
    while b"\r\n\r\n" not in got:
        chunk = connection.recv(_CHUNK)
        if not chunk:
            raise OSError(0, "the connection ended before the answer")
        got += chunk
    head, _, rest = got.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = -1
    try:
        status = int(lines[0].split()[1])
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
    except (IndexError, ValueError):
        raise OSError(0, "the answer is no HTTP: what listens there?") from None
    parts.append(rest)
    size = len(rest)
    while length < 0 or size < length:
        chunk = connection.recv(_CHUNK)
        if not chunk:
            if length >= 0:
                raise OSError(0, "the connection ended inside the answer")
            break
        parts.append(chunk)
        size += len(chunk)
    return status, b"".join(parts)


def _refusal(status: int, value: Any) -> errors.MusterError:
    said = value.get("error") if isinstance(value, dict) else None
    if not isinstance(said, dict):
        return errors.MusterError(f"the daemon answered with HTTP status {status}")
    return errors.from_wire(
        str(said.get("code")), str(said.get("sentence")), str(said.get("hint", "")), int(said.get("slurm_code", 0))
    )

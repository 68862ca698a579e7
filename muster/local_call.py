"""Calls to a given local socket, for tools that speak to more than one (`muster`, tests, benchmarks)."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from muster import errors


class LocalClient:
    """One connection after the other to one socket."""

    def __init__(self, path: Path, *, timeout_seconds: float = 30.0) -> None:
        self._path = path
        self._timeout = timeout_seconds

    def call(self, method: str, target: str, body: Any = None) -> Any:
        """Make one call and give the answer's JSON; raises the error that the daemon answered, or Unavailable."""
        connection = _Connection(str(self._path), self._timeout)
        try:
            connection.request(method, target, None if body is None else json.dumps(body))
            with connection.getresponse() as answer:
                if answer.length is None:
                    # Daemons say how long an answer is; without it one that was cut off looks whole.
                    raise http.client.IncompleteRead(b"")
                text = answer.read()
                status = answer.status
        except OSError as error:
            raise errors.Unavailable(f"cannot reach {self._path}: {error.strerror or error}") from error
        except http.client.HTTPException as error:
            raise errors.Unavailable(f"{self._path} answers torn: {type(error).__name__}") from error
        finally:
            connection.close()
        try:
            value: Any = json.loads(text) if text else None
        except ValueError as error:
            raise errors.Unavailable(f"{self._path} answers no JSON: what listens there?") from error
        if status < 400:
            return value
        said = value.get("error") if isinstance(value, dict) else None
        if not isinstance(said, dict):
            raise errors.MusterError(f"{self._path} answers with HTTP status {status}")
        raise errors.from_wire(
            str(said.get("code")), str(said.get("sentence")), str(said.get("hint", "")), int(said.get("slurm_code", 0))
        )


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("muster", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

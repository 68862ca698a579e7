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
            answer = connection.getresponse()
            text = answer.read()
            status = answer.status
        except OSError as error:
            raise errors.Unavailable(f"cannot reach {self._path}: {error.strerror or error}") from error
        finally:
            connection.close()
        value: Any = json.loads(text) if text else None
        if status >= 400:
            said = value["error"]
            raise errors.from_wire(said["code"], said["sentence"], said.get("hint", ""), said.get("slurm_code", 0))
        return value


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("muster", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

"""One client process that keeps connections open and submits on all of them: speaks HTTP by hand, counts answers."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import framed


class Connection:
    """One open connection with at most one request under way."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.buffer = b""

    def send(self, target: str, body: bytes) -> None:
        """Send one POST."""
        head = f"POST {target} HTTP/1.1\r\nHost: muster\r\nContent-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)

    def receive(self) -> bytes | None:
        """Give the answer's body once it is whole."""
        got = self.socket.recv(65536)
        if not got:
            raise SystemExit("bench: the daemon closed a connection")
        self.buffer += got
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(rest) < length:
            return None
        self.buffer = rest[length:]
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise SystemExit(f"bench: refused: {rest[:300].decode()}")
        return rest[:length]


def submission(number: int, *, held: bool, script_bytes: int = 2048, environment_bytes: int = 4096) -> bytes:
    """Make one submission with a script and an environment of its own."""
    request = json.dumps({"job_name": "load", "hold": held, "work_dir": "/tmp"}).encode()
    script = f"#!/bin/sh\n# {number}\ntrue\n".encode().ljust(script_bytes - 1, b"#") + b"\n"
    value = f"NUMBER={number}\0FILL=".encode()
    environment = value + b"x" * (environment_bytes - len(value) - 1) + b"\0"
    return framed(request, script, environment)


def submit(path: Path, count: int, *, connections: int = 16, make: Callable[[int], bytes]) -> tuple[float, list[int]]:
    """Submit `count` jobs over open connections, each request waiting for its answer; give (seconds, ids)."""
    opened = [Connection(path) for _ in range(connections)]
    bodies = [make(number) for number in range(count)]
    poller = select.poll()
    by_descriptor = {}
    for one in opened:
        by_descriptor[one.socket.fileno()] = one
        poller.register(one.socket, select.POLLIN)
    ids: list[int] = []
    sent = 0
    began = time.perf_counter()
    for one in opened:
        if sent < count:
            one.send("/v1/jobs", bodies[sent])
            sent += 1
    while len(ids) < count:
        for descriptor, _ in poller.poll(60_000):
            answer = by_descriptor[descriptor].receive()
            if answer is None:
                continue
            ids.append(int(json.loads(answer)["job_id"]))
            if sent < count:
                by_descriptor[descriptor].send("/v1/jobs", bodies[sent])
                sent += 1
    seconds = time.perf_counter() - began
    for one in opened:
        one.socket.close()
    return seconds, ids

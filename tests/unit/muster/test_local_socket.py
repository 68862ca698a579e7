"""A daemon's local socket: bounds, many requests, clients that are slow or go away, files that others left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from muster import local_socket
from muster.errors import InvalidInput, MusterError, Refused, TooLarge
from muster.local_call import LocalClient
from muster.local_socket import LocalSocket


class Answers:
    """Answers what it was asked, and remembers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, str, str, bytes]] = []
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: Exception | None = None

    async def __call__(self, uid: int, gid: int, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        self.asked.append((uid, gid, method, target, body))
        self.began.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return 200, json.dumps({"size": len(body), "target": target}).encode()


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def path(tmp_path: Path, answers: Answers) -> AsyncIterator[Path]:
    served = LocalSocket(tmp_path / "sock", answers)
    await served.open()
    yield tmp_path / "sock"
    answers.go_on.set()
    # Whatever a client did before, another is served.
    assert await fetch(tmp_path / "sock", b"POST /last HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}") == 200
    await served.close()


async def response(reader: asyncio.StreamReader) -> tuple[int, Any]:
    async with asyncio.timeout(20):
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = next(int(line.partition(b":")[2]) for line in head if line.lower().startswith(b"content-length"))
        return int(head[0].split()[1]), json.loads(await reader.readexactly(length))


async def fetch(path: Path, data: bytes) -> int:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    status, _ = await response(reader)
    writer.close()
    await writer.wait_closed()
    return status


def a_post(target: str, body: bytes) -> bytes:
    return f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def test_the_kernel_names_the_caller(path: Path, answers: Answers) -> None:
    assert await fetch(path, a_post("/v1/x%20y?a=b", b"hello")) == 200
    assert answers.asked == [(os.getuid(), os.getgid(), "POST", "/v1/x%20y?a=b", b"hello")]


async def test_who_asks_for_the_process_gets_its_pid(tmp_path: Path) -> None:
    asked: list[int] = []

    async def answer(pid: int, *_: object) -> tuple[int, bytes]:
        asked.append(pid)
        return 200, b"{}"

    served = LocalSocket(tmp_path / "sock", answer_process=answer)
    await served.open()
    assert await fetch(tmp_path / "sock", a_post("/", b"")) == 200
    assert asked == [os.getpid()]
    await served.close()


async def test_every_user_of_the_host_may_connect(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


async def test_one_connection_carries_many_requests_in_order(path: Path, answers: Answers) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"".join(a_post(f"/{number}", b"x" * number) for number in range(50)))  # none waits for an answer
    got = [await response(reader) for _ in range(50)]
    assert got == [(200, {"size": number, "target": f"/{number}"}) for number in range(50)]
    assert len(answers.asked) == 50
    writer.close()
    await writer.wait_closed()


async def test_a_body_in_pieces_is_put_together(path: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await writer.drain()
    writer.write(b"4\r\ndefg\r\n0\r\n\r\n")
    assert await response(reader) == (200, {"size": 7, "target": "/"})
    writer.close()
    await writer.wait_closed()


async def test_a_body_over_the_bound_is_refused_by_its_announcement(
    path: Path, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_socket, "MAX_BODY_BYTES", 100)
    assert await fetch(path, a_post("/", bytes(100))) == 200
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n")
    status, said = await response(reader)
    assert (status, said["error"]["code"]) == (413, "TOO_LARGE")
    assert "101 bytes, more than the 100" in said["error"]["sentence"]
    assert len(answers.asked) == 1
    assert await reader.read() == b""  # and the connection is closed
    writer.close()


async def test_pieces_over_the_bound_are_refused_where_they_pass_it(
    path: Path, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_socket, "MAX_BODY_BYTES", 100)
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"33\r\n" + bytes(0x33) + b"\r\n32\r\n" + bytes(0x32) + b"\r\n")  # 101 bytes, and more to come
    status, _ = await response(reader)
    assert status == 413
    assert not answers.asked
    writer.close()


async def test_a_client_hears_of_the_bound_though_it_was_still_sending(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster import client

    monkeypatch.setattr(local_socket, "MAX_BODY_BYTES", 1000)
    monkeypatch.setenv("MUSTER_SOCKET", str(path))
    with pytest.raises(TooLarge, match="more than the 1000"):
        await asyncio.to_thread(client.call, "POST", "/", bytes(8 << 20))


async def test_a_slow_client_keeps_nobody_waiting(path: Path, answers: Answers) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    for part in (b"POST /slow HT", b"TP/1.1\r\nHost: x\r\nContent-Le", b"ngth: 3\r\n\r\na"):
        writer.write(part)
        await writer.drain()
        assert await fetch(path, a_post("/quick", b"")) == 200
    writer.write(b"bc")
    assert await response(reader) == (200, {"size": 3, "target": "/slow"})
    writer.close()


@pytest.mark.parametrize("data", [b"", b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"])
async def test_a_client_that_goes_away_before_its_request_is_whole_is_forgotten(
    path: Path, answers: Answers, data: bytes
) -> None:
    _, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert not answers.asked


async def test_what_a_client_asked_for_is_done_though_it_left(path: Path, answers: Answers) -> None:
    answers.go_on.clear()
    _, writer = await asyncio.open_unix_connection(str(path))
    writer.write(a_post("/done", b""))
    async with asyncio.timeout(10):
        await answers.began.wait()
    writer.transport.abort()
    answers.go_on.set()
    assert await fetch(path, a_post("/next", b"")) == 200
    assert [target for _, _, _, target, _ in answers.asked] == ["/done", "/next"]


async def test_closing_finishes_what_is_being_answered_and_leaves_the_file(tmp_path: Path, answers: Answers) -> None:
    path = tmp_path / "sock"
    served = LocalSocket(path, answers)
    await served.open()
    answers.go_on.clear()
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(a_post("/", b""))
    await answers.began.wait()
    closing = asyncio.create_task(served.close())
    await asyncio.sleep(0)
    answers.go_on.set()
    assert (await response(reader))[0] == 200
    await closing
    writer.close()
    # The file says that a daemon belongs here; who connects is refused.
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(str(path))


async def test_a_socket_that_a_daemon_left_is_replaced(tmp_path: Path, answers: Answers) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
        dead.listen()
    (tmp_path / "sock.new").touch()
    before = path.stat().st_ino
    served = LocalSocket(path, answers)
    await served.open()
    assert path.stat().st_ino != before
    assert await fetch(path, a_post("/", b"")) == 200
    assert sorted(os.listdir(tmp_path)) == ["sock"]
    await served.close()


async def test_a_socket_that_is_served_is_not_taken_over(path: Path, answers: Answers) -> None:
    with pytest.raises(Refused, match="another daemon listens"):
        await LocalSocket(path, answers).open()
    assert await fetch(path, a_post("/", b"")) == 200


@pytest.mark.parametrize(
    ("name", "said"),
    [("missing/sock", "No such file or directory"), ("x" * 120, "AF_UNIX path too long")],
)
async def test_a_path_that_cannot_be_bound_is_said(tmp_path: Path, answers: Answers, name: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        await LocalSocket(tmp_path / name, answers).open()


async def test_a_bug_in_the_answering_side_ends_one_request(
    path: Path, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    answers.error = KeyError("bug")
    with pytest.raises(MusterError):
        await asyncio.to_thread(LocalClient(path).call, "GET", "/")
    answers.error = None
    assert "KeyError" in caplog.text

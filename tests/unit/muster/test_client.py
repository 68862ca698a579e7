"""The user client and its sibling: one request, answered whole or an error that says what is the matter."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from muster import client
from muster.errors import KINDS, InvalidInput, MusterError, Unavailable
from muster.local_call import LocalClient
from muster.local_socket import refusal_body

ROOT = Path(__file__).resolve().parents[3]


class Daemon:
    """Answers connections with bytes as they stand, one after the other."""

    def __init__(self, path: Path, *answers: bytes) -> None:
        self.requests: list[bytes] = []
        self._answers = list(answers)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        self._listening.settimeout(20)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._listening.accept()
            with connection:
                connection.settimeout(20)
                self.requests.append(_request(connection))
                with suppress(BrokenPipeError):  # it has heard enough
                    for place in range(0, len(answer), 7):  # in small pieces
                        connection.sendall(answer[place : place + 7])

    def end(self) -> None:
        self._thread.join(20)
        self._listening.close()
        assert not self._thread.is_alive(), "not all answers were asked for"


def _request(connection: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            while len(body) < int(line.partition(b":")[2]):
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def answering(path: Path, *answers: bytes) -> Iterator[Daemon]:
    daemon = Daemon(path, *answers)
    try:
        yield daemon
    finally:
        daemon.end()


def an_answer(body: bytes, *, status: int = 200, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 %d Said\r\nX-Y: z\r\ncontent-LENGTH:%d\r\n\r\n" % (status, size) + body


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSTER_SOCKET", str(tmp_path / "sock"))
    monkeypatch.setenv("MUSTER_PATIENCE", "0")
    return tmp_path / "sock"


Call = Callable[..., object]


def local(*arguments: object) -> object:
    import os

    return LocalClient(Path(os.environ["MUSTER_SOCKET"])).call(*arguments)  # type: ignore[arg-type]


both = pytest.mark.parametrize("call", [client.call, local], ids=["client", "local_call"])


@both
def test_a_request_is_sent_whole_and_its_answer_read(path: Path, call: Call) -> None:
    with answering(path, an_answer(b'{"a": [1, "\xc3\xbc"]}')) as daemon:
        assert call("POST", "/v1/x?y=z", {"name": "ü"}) == {"a": [1, "ü"]}
    head, _, body = daemon.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/x?y=z HTTP/1.1\r\n")
    assert body in ('{"name":"ü"}'.encode(), b'{"name": "\\u00fc"}')


def test_bytes_are_sent_as_they_stand(path: Path) -> None:
    with answering(path, an_answer(b"")) as daemon:
        assert client.call("POST", "/", b"\xff\0") is None
    assert daemon.requests[0].endswith(b"\r\n\r\n\xff\0")


def test_an_answer_without_a_length_ends_with_the_connection(path: Path) -> None:
    with answering(path, b"HTTP/1.1 200 OK\r\n\r\n[1,2]"):
        assert client.call("GET", "/") == [1, 2]


def test_an_answer_of_many_pieces_is_put_together(path: Path) -> None:
    text = b'"' + b"x" * 700_000 + b'"'
    with answering(path, an_answer(text)):
        assert client.call("GET", "/") == "x" * 700_000


@both
def test_every_refusal_comes_out_as_the_same_class(path: Path, call: Call) -> None:
    for kind in KINDS.values():
        error = kind("what is wrong: ü", "the cure", slurm_code=2017)
        refused = an_answer(refusal_body(error), status=kind.http_status)
        with answering(path, refused), pytest.raises(MusterError) as caught:
            call("GET", "/")
        path.unlink()
        heard = caught.value
        assert (type(heard), heard.sentence, heard.hint, heard.slurm_code) == (
            kind,
            "what is wrong: ü",
            "the cure",
            2017,
        )


@both
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        an_answer(b'{"a": 1}', length=500),
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",
        an_answer(b"<html>"),
        an_answer(b"\xff\xfe"),
        an_answer(b"<html>", status=500),
    ],
    ids=["nothing", "head", "body", "ssh", "empty", "length", "html", "bytes", "html of an error"],
)
def test_a_torn_or_foreign_answer_is_a_receive_failure(path: Path, call: Call, answer: bytes) -> None:
    with answering(path, answer) as daemon, pytest.raises(Unavailable) as caught:
        call("GET", "/")
    # Sent once: the request may have been carried out.
    assert len(daemon.requests) == 1
    if call is client.call:
        assert (caught.value.sentence, caught.value.slurm_code) == (client.RECEIVE_FAILURE, 1802)


@both
@pytest.mark.parametrize("body", [b"[]", b'{"error": 5}', b"null"])
def test_a_failure_without_a_reason_names_the_status(path: Path, call: Call, body: bytes) -> None:
    with answering(path, an_answer(body, status=502)), pytest.raises(MusterError, match="HTTP status 502"):
        call("GET", "/")


def test_silence_ends_after_the_time_out(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(Unavailable, match="receive failure") as caught:
            client.call("GET", "/", timeout_seconds=0.05)
        assert "timed out" in caught.value.hint


def test_no_socket_at_all_is_said_at_once(path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="connect failure") as caught:
        client.call("GET", "/", patience_seconds=30)
    assert time.monotonic() - began < 5
    assert (str(path) in caught.value.hint, caught.value.slurm_code) == (True, 1800)


def test_a_daemon_that_restarts_is_waited_for(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(client.call("GET", "/", patience_seconds=20)))
    thread.start()
    assert thread.is_alive()
    path_new = path.with_name("new")
    daemon = Daemon(path_new, an_answer(b"5"))
    path_new.rename(path)
    thread.join(20)
    daemon.end()
    assert found == [5]


def test_patience_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with pytest.raises(Unavailable, match="connect failure") as caught:
        client.call("GET", "/", patience_seconds=0.1)
    assert "Connection refused" in caught.value.hint
    monkeypatch.setenv("MUSTER_PATIENCE", "soon")
    with pytest.raises(InvalidInput, match="MUSTER_PATIENCE=soon"):
        client.call("GET", "/")


def test_a_call_that_may_be_repeated_is(path: Path) -> None:
    with answering(path, b"", b"", an_answer(b"7")) as daemon:
        assert client.call_retrying("GET", "/", seconds=20) == 7
    assert len(daemon.requests) == 3


def test_repeating_ends(path: Path) -> None:
    with pytest.raises(Unavailable):
        client.call_retrying("GET", "/", seconds=0)


def test_a_socket_that_is_not_there_is_unavailable_to_tools(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        LocalClient(tmp_path / "none").call("GET", "/")


def test_the_socket_is_the_first_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_SOCKET", "XDG_RUNTIME_DIR", "MUSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert client.socket_path() == "/run/muster/sock"
    own = tmp_path / "home" / ".muster" / "sock"
    own.parent.mkdir(parents=True)
    own.touch()
    assert client.socket_path() == str(own)
    other = tmp_path / "other" / "sock"
    other.parent.mkdir()
    monkeypatch.setenv("MUSTER_HOME", str(other.parent))
    assert client.socket_path() == "/run/muster/sock"
    other.touch()
    assert client.socket_path() == str(other)
    runtime = tmp_path / "run" / "muster" / "sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert client.socket_path() == str(other)
    runtime.parent.mkdir(parents=True)
    runtime.touch()
    assert client.socket_path() == str(runtime)
    # What is said outright is taken, there or not.
    monkeypatch.setenv("MUSTER_SOCKET", "/nowhere")
    assert client.socket_path() == "/nowhere"


def test_a_stripped_environment_finds_the_home_of_the_user() -> None:
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from muster import client; print(client._own_folder())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], env={}, capture_output=True, text=True, check=True, timeout=20
    )
    import os
    import pwd

    assert done.stdout.strip() == pwd.getpwuid(os.getuid()).pw_dir + "/.muster"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a-b_c.d~e,f:1", "a-b_c.d~e,f:1"),
        ("a b/c?d&e=f%", "a%20b%2Fc%3Fd%26e%3Df%25"),
        ("ü\n", "%C3%BC%0A"),
        ("\udcff", "%FF"),
        ("", ""),
    ],
)
def test_values_are_percent_encoded(text: str, quoted: str) -> None:
    assert client.quote(text) == quoted

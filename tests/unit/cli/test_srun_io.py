"""srun's side of step input and output: lines, labels, long lines, lost nodes."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from cli import srun_io
from cli.srun_io import Node, Outputs, Session
from muster import frames
from muster.errors import Unavailable


class Sink:
    """A file that outputs are written to."""

    def __init__(self, folder: Path, *, label_width: int = 0, only_out: int = -1) -> None:
        self.path = folder / "out"
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.outputs = Outputs(
            self.descriptor, self.descriptor, label_width=label_width, only_out=only_out, only_err=-1
        )

    def text(self) -> bytes:
        return self.path.read_bytes()


def test_lines_are_printed_whole_and_the_rest_at_the_end(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    sink.outputs.put(frames.STDOUT, 0, b"one\ntw")
    sink.outputs.put(frames.STDOUT, 1, b"other\n")
    assert sink.text() == b"one\nother\n"
    sink.outputs.put(frames.STDOUT, 0, b"o\nthree")
    assert sink.text() == b"one\nother\ntwo\n"
    sink.outputs.flush()
    assert sink.text() == b"one\nother\ntwo\nthree"


def test_labels_stand_before_lines_and_not_after_carriage_returns(tmp_path: Path) -> None:
    sink = Sink(tmp_path, label_width=2)
    sink.outputs.put(frames.STDOUT, 3, b" 10%\r 20%\r\nlast\n\n")
    sink.outputs.put(frames.STDOUT, 3, b"unfinished")
    sink.outputs.flush()
    assert sink.text() == b" 3:  10%\r 20%\r\n 3: last\n 3: \n 3: unfinished\n"


@pytest.mark.parametrize("label_width", [0, 1])
def test_a_line_without_end_is_printed_in_parts(
    tmp_path: Path, label_width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(srun_io, "_LONGEST_LINE", 10)
    sink = Sink(tmp_path, label_width=label_width)
    for _ in range(5):
        sink.outputs.put(frames.STDOUT, 0, b"12345")
    assert sink.text() == (b"0: 1234512345\n" * 2 if label_width else b"12345" * 4)
    sink.outputs.put(frames.STDOUT, 0, b"\n")
    sink.outputs.flush()
    assert sink.text().endswith(b"0: 12345\n" if label_width else b"12345\n")


def test_only_one_tasks_output_is_shown_where_asked(tmp_path: Path) -> None:
    sink = Sink(tmp_path, only_out=1)
    sink.outputs.put(frames.STDOUT, 0, b"no\n")
    sink.outputs.put(frames.STDOUT, 1, b"yes\n")
    sink.outputs.put(frames.STDERR, 0, b"error\n")
    assert sink.text() == b"yes\nerror\n"


def test_output_that_cannot_be_written_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    outputs = Outputs(full, full, label_width=0, only_out=-1, only_err=-1)
    outputs.put(frames.STDOUT, 0, b"a\n")
    outputs.put(frames.STDOUT, 0, b"b\n")
    os.close(full)
    assert capfd.readouterr().err == "srun: error: cannot write the output of tasks: No space left on device\n"


def test_a_reader_that_left_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outputs = Outputs(writing, writing, label_width=0, only_out=-1, only_err=-1)
    outputs.put(frames.STDOUT, 0, b"a\n")
    os.close(writing)
    assert capfd.readouterr().err == ""


class Step:
    """Nodes whose supervisors the test plays, and what the session said."""

    def __init__(self, folder: Path, names: dict[str, list[int]], *, stdin: int = -1) -> None:
        self.sink = Sink(folder)
        self.far: dict[str, socket.socket] = {}
        self.nodes = []
        self.exits: list[tuple[str, int, int]] = []
        self.messages: list[str] = []
        self.failures: list[tuple[str, str]] = []
        self.lost: list[str] | None = []
        self.looks = 0
        for name, ranks in names.items():
            node = Node({"name": name, "ranks": ranks, "io": "", "host": name, "addr": ""})
            near, self.far[name] = socket.socketpair()
            near.setblocking(False)
            node.connection = near
            self.nodes.append(node)
        self.signals, self._ring = os.pipe()
        self.session = Session(
            self.nodes,
            self.sink.outputs,
            stdin=stdin,
            stdin_rank=frames.ALL,
            on_exit=lambda node, rank, status: self.exits.append((node.name, rank, status)),
            on_message=self.messages.append,
            on_failure=lambda node, why: self.failures.append((node.name, why)),
            on_signal=lambda number: None,
            look=self.look,
            again=self.again,
            signals=self.signals,
        )

    def look(self) -> list[str] | None:
        self.looks += 1
        return self.lost

    def again(self, node: Node) -> None:
        raise Unavailable("away")

    def say(self, name: str, *sent: tuple[int, int, bytes]) -> None:
        self.far[name].sendall(b"".join(frames.pack(kind, rank, data) for kind, rank, data in sent))

    def run(self) -> None:
        thread = threading.Thread(target=self.session.run, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "the session goes on"
        for far in self.far.values():
            far.close()
        os.close(self.signals)
        os.close(self._ring)


DONE = (frames.DONE, 0, b"")


def test_a_session_ends_when_every_node_is_done(tmp_path: Path) -> None:
    step = Step(tmp_path, {"n1": [0], "n2": [1]})
    step.say("n1", (frames.STDOUT, 0, b"hello\n"), (frames.EXITED, 0, frames.NUMBER.pack(256)), DONE)
    step.say("n2", (frames.MESSAGE, 0, b"a line"), (frames.FAILED, 1, b"no such program"), DONE)
    step.run()
    assert step.sink.text() == b"hello\n"
    assert (step.exits, step.messages, step.failures) == ([("n1", 0, 256)], ["a line"], [("n2", "no such program")])
    # Each was told that there is no input.
    assert step.looks == 0


def test_nodes_that_are_lost_in_one_moment_end_the_session(tmp_path: Path) -> None:
    step = Step(tmp_path, {"n1": [0], "n2": [1]})
    step.lost = ["n1", "n2"]
    for far in step.far.values():
        far.close()
    step.run()
    assert [(node.done, node.lost) for node in step.nodes] == [(True, True)] * 2


def test_a_node_that_speaks_garbage_is_given_up(tmp_path: Path) -> None:
    step = Step(tmp_path, {"n1": [0]})
    step.lost = None
    step.far["n1"].sendall(b"\xff" * 64)
    step.run()
    assert step.nodes[0].lost
    assert "over the bound" in step.messages[0]


def test_input_goes_to_every_node_and_its_end_too(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"typed")
    os.close(writing)
    step = Step(tmp_path, {"n1": [0], "n2": [1]}, stdin=reading)
    heard: dict[str, list[Any]] = {}

    def listen(name: str) -> None:
        reader, got = frames.Reader(), heard.setdefault(name, [])
        while not got or got[-1][0] != frames.STDIN_END:
            got += reader.feed(step.far[name].recv(65536))
        step.say(name, DONE)

    threads = [threading.Thread(target=listen, args=(name,)) for name in step.far]
    for thread in threads:
        thread.start()
    step.run()
    for thread in threads:
        thread.join(20)
    os.close(reading)
    expected = [(frames.STDIN, frames.ALL, b"typed"), (frames.STDIN_END, frames.ALL, b"")]
    assert heard == {"n1": expected, "n2": expected}


def test_a_connection_taken_up_again_begins_with_a_whole_frame(tmp_path: Path) -> None:
    path = tmp_path / "io"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        answering = threading.Thread(target=lambda: _answer(listening, b"{}\n"))
        answering.start()
        node = Node({"name": "n1", "ranks": [0], "io": str(path), "host": os.uname().nodename, "addr": ""})
        node.out += b"rest of a frame"
        node.attach(1, 0, 0, seconds=10)
        answering.join(10)
    assert not node.out
    node.close()


def test_an_agent_that_answers_no_json_is_said(tmp_path: Path) -> None:
    path = tmp_path / "io"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        answering = threading.Thread(target=lambda: _answer(listening, b"hello\n"))
        answering.start()
        node = Node({"name": "n1", "ranks": [0], "io": str(path), "host": os.uname().nodename, "addr": ""})
        with pytest.raises(Unavailable, match="the answer is no JSON"):
            node.connect(1, 0, 0)
        answering.join(10)


def _answer(listening: socket.socket, line: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(line)

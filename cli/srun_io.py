"""srun's side of step input and output: one connection a node, frames both ways.

The main loop sleeps in poll(2) on the nodes' connections, standard input and a pipe that signals write to.
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import time

from cli.base import say
from muster import client, frames, tinyjson
from muster.errors import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CHUNK = 65536
_MOST_BUFFERED = 1 << 20
_LONGEST_LINE = 1 << 18
"""Bytes without a newline that are waited for; a longer line is printed in parts."""
_AGAIN_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0
"""How long an agent that does not answer (it restarts) is tried again."""
_LOOK_SECONDS = 5.0
"""How often the controller is asked how the step stands while nothing is heard of it."""


class Node:
    """One node of the step."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.name: str = told["name"]
        self.ranks: list[int] = told["ranks"]
        self.told = told
        self.connection: _socket.socket | None = None
        self.reader = frames.Reader()
        self.out = bytearray()
        self.done = False
        self.lost = False

    def connect(self, job_id: int, run: int, step_id: int) -> None:
        """Attach to the step's supervisor there, by the way that this host has; an agent that restarts is waited for.

        Raises:
            Unavailable: the node cannot be reached, or refuses; says why.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                self.attach(job_id, run, step_id)
                return
            except Unavailable as problem:
                # With a cause it could not be reached; without one the agent has answered, and meant it.
                if problem.__cause__ is None or time.monotonic() >= deadline:
                    raise
            time.sleep(_AGAIN_SECONDS)

    def attach(self, job_id: int, run: int, step_id: int, *, seconds: float = 90.0) -> None:
        """Try once to attach, for so long; see `connect`."""
        header: dict[str, Any] = {"job": job_id, "run": run, "step": step_id, "node": self.name}
        path = self.told["io"]
        if self.told["host"] != os.uname().nodename or not path or not os.path.exists(path):
            header["addr"] = self.told["addr"]
            path = client.socket_path() + ".io"
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.settimeout(seconds)
        try:
            connection.connect(path)
            connection.sendall(tinyjson.dumps(header).encode() + b"\n")
            line = b""
            while not line.endswith(b"\n"):
                got = connection.recv(1)
                if not got:
                    raise OSError(0, "the agent closed the connection")
                line += got
        except OSError as error:
            connection.close()
            raise Unavailable(f"cannot attach to node {self.name} at {path}: {error.strerror or error}") from error
        try:
            answer = tinyjson.loads(line.decode())
        except ValueError:
            connection.close()
            raise Unavailable(f"cannot attach to node {self.name} at {path}: the answer is no JSON") from None
        if "error" in answer:
            connection.close()
            away = ConnectionError() if answer.get("away") else None
            raise Unavailable(f"node {self.name}: {answer['error']}") from away
        connection.setblocking(False)
        self.connection = connection
        self.reader = frames.Reader()
        # A frame of which the connection before took a part would be torn on this one.
        self.out.clear()
        self.lost = False

    def close(self) -> None:
        """Let go of the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Outputs:
    """Where the tasks' lines go: srun's own streams, or files that srun opened; whole lines, with labels if asked."""

    def __init__(self, stdout: int, stderr: int, *, label_width: int, only_out: int, only_err: int) -> None:
        self._descriptors = {frames.STDOUT: stdout, frames.STDERR: stderr}
        self._only = {frames.STDOUT: only_out, frames.STDERR: only_err}
        self._width = label_width
        self._partial: dict[tuple[int, int], bytes] = {}
        self.lost = False
        """Some of it could not be written, and not because its reader has left."""
        self.unbuffered = False

    def put(self, kind: int, rank: int, data: bytes) -> None:
        """Print what a task wrote, up to its last whole line; a line beyond a bound is printed in parts."""
        if self._only[kind] not in (-1, rank):
            return
        if self.unbuffered and not self._width:
            self._write(kind, data)
            return
        key = (kind, rank)
        data = self._partial.pop(key, b"") + data
        end = data.rfind(b"\n") + 1
        if len(data) - end >= _LONGEST_LINE:
            # Bytes that are no text (a file that is carried): kept, each chunk would be copied onto all before it.
            if self._width:
                data += b"\n"  # a label needs a line of its own
            end = len(data)
        if end < len(data):
            self._partial[key] = data[end:]
        if end:
            self._lines(kind, rank, data[:end])

    def flush(self) -> None:
        """Print the unfinished last lines."""
        for (kind, rank), data in self._partial.items():
            # A label needs a line of its own; without labels a missing newline stays missing.
            self._lines(kind, rank, data + b"\n" if self._width else data)
        self._partial.clear()

    def _lines(self, kind: int, rank: int, data: bytes) -> None:
        if self._width:
            label = b"%*d: " % (self._width, rank)
            # Not splitlines: a progress bar's carriage return begins no line.
            lines = data.split(b"\n")
            ended = [label + line + b"\n" for line in lines[:-1]]
            data = b"".join([*ended, label + lines[-1]] if lines[-1] else ended)
        self._write(kind, data)

    def _write(self, kind: int, data: bytes) -> None:
        view = memoryview(data)
        descriptor = self._descriptors[kind]
        while view:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError as problem:
                # Whoever read it has left: the tasks go on. Anything else (a full disk) is said, once.
                if problem.errno != errno.EPIPE and not self.lost:
                    self.lost = True
                    say(f"srun: error: cannot write the output of tasks: {problem.strerror}")
                return


class Session:
    """The step as srun sees it until its end."""

    def __init__(
        self,
        nodes: list[Node],
        outputs: Outputs,
        *,
        stdin: int,
        stdin_rank: int,
        on_exit: Callable[[Node, int, int], None],
        on_message: Callable[[str], None],
        on_failure: Callable[[Node, str], None],
        on_signal: Callable[[int], None],
        look: Callable[[], list[str] | None],
        again: Callable[[Node], None],
        signals: int,
    ) -> None:
        """Args:
        nodes: attached ones.
        outputs: where lines go.
        stdin: descriptor to send, or -1 for none.
        stdin_rank: the task that gets it, or frames.ALL.
        on_exit: (node, rank, wait status).
        on_message: a line of a supervisor.
        on_failure: (node, why its tasks could not be launched).
        on_signal: called with the number of each signal that came.
        look: asks the controller; None: the step is over, else the names of nodes that are lost.
        again: attaches to a node anew; Unavailable when it cannot.
        signals: reading end of the pipe that signal numbers come through.
        """
        self.nodes = nodes
        self._outputs = outputs
        self._stdin = stdin
        self._stdin_rank = stdin_rank
        self._on_exit = on_exit
        self._on_message = on_message
        self._on_failure = on_failure
        self._on_signal = on_signal
        self._look = look
        self._again = again
        self._signals = signals
        self.deadline = 0.0
        """Monotonic time at which `expired` is called; 0: none."""
        self.expired: Callable[[], None] = self._nothing
        if stdin < 0:
            self._end_input()

    def run(self) -> None:
        """Carry data until every node is done or lost."""
        heard = tried = time.monotonic()
        while any(not node.done for node in self.nodes):
            poller = select.poll()
            poller.register(self._signals, select.POLLIN)
            watched: dict[int, Node] = {}
            full = False
            for node in self.nodes:
                if node.done or node.connection is None:
                    continue
                full = full or len(node.out) >= _MOST_BUFFERED
                descriptor = node.connection.fileno()
                watched[descriptor] = node
                poller.register(descriptor, select.POLLIN | (select.POLLOUT if node.out else 0))
            if self._stdin >= 0 and not full:
                poller.register(self._stdin, select.POLLIN)
            ready = poller.poll(self._timeout())
            for descriptor, what in ready:
                if descriptor == self._signals:
                    for number in os.read(self._signals, 64):
                        self._on_signal(number)
                elif descriptor in watched:
                    heard = time.monotonic()
                    # One that was served before it may have heard that this one is lost.
                    if watched[descriptor].connection is not None:
                        self._serve(watched[descriptor], what)
                else:
                    self._read_stdin()
            now = time.monotonic()
            if self.deadline and now >= self.deadline:
                self.deadline = 0.0
                self.expired()
            if now - heard >= _LOOK_SECONDS:
                heard = now
                self._ask()
            if now - tried >= _AGAIN_SECONDS:
                tried = now
                self._attach_again()
        self._outputs.flush()

    def _timeout(self) -> int:
        wait = _AGAIN_SECONDS if any(node.lost and not node.done for node in self.nodes) else _LOOK_SECONDS
        if self.deadline:
            wait = min(wait, max(0.0, self.deadline - time.monotonic()))
        return int(wait * 1000) + 1

    def _nothing(self) -> None:
        """What a deadline does that nobody set."""

    def _serve(self, node: Node, what: int) -> None:
        assert node.connection is not None
        if what & select.POLLOUT:
            self._send(node)
        if not what & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return
        try:
            data = node.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # The supervisor, an agent on the way or the node is gone: only the controller knows what became of it.
            node.close()
            node.lost = True
            self._ask()
            return
        try:
            heard = list(node.reader.feed(data))
        except ValueError as problem:
            self._on_message(f"srun: error: node {node.name}: {problem}")
            node.close()
            node.lost = True
            self._ask()
            return
        for kind, rank, body in heard:
            if kind in (frames.STDOUT, frames.STDERR):
                self._outputs.put(kind, rank, body)
            elif kind == frames.EXITED:
                self._on_exit(node, rank, frames.NUMBER.unpack(body)[0])
            elif kind == frames.MESSAGE:
                self._on_message(body.decode("utf-8", "surrogateescape"))
            elif kind == frames.FAILED:
                self._on_failure(node, body.decode("utf-8", "surrogateescape"))
            elif kind == frames.DONE:
                node.done = True
                node.close()

    def _attach_again(self) -> None:
        """An agent that was killed while it passed our connection on has dropped it; its tasks go on."""
        for node in self.nodes:
            if node.lost and not node.done:
                try:
                    self._again(node)
                except Unavailable:
                    continue  # the controller says in the end what became of the step
                if self._stdin < 0:
                    node.out += frames.pack(frames.STDIN_END, self._stdin_rank)

    def _ask(self) -> None:
        lost = self._look()
        for node in self.nodes:
            if not node.done and (lost is None or node.name in lost) and (node.lost or lost):
                node.done = True
                node.lost = True
                node.close()

    def _read_stdin(self) -> None:
        try:
            data = os.read(self._stdin, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self._stdin = -1
            self._end_input()
            return
        self._to_tasks(frames.pack(frames.STDIN, self._stdin_rank, data))

    def _end_input(self) -> None:
        self._to_tasks(frames.pack(frames.STDIN_END, self._stdin_rank))

    def _to_tasks(self, frame: bytes) -> None:
        for node in self.nodes:
            if node.connection is None or (self._stdin_rank != frames.ALL and self._stdin_rank not in node.ranks):
                continue
            node.out += frame
            self._send(node)

    def _send(self, node: Node) -> None:
        assert node.connection is not None
        try:
            while node.out:
                del node.out[: node.connection.send(node.out[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            node.out.clear()

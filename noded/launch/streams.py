"""Pipes between a step's tasks and srun.

Output is read only while somebody can take it: before srun has attached, the kernel's pipe buffers hold the tasks; once
srun is gone, output is read and dropped, so that tasks do not stall for a reader that will never come. Both directions
are bounded: a side that does not take its data stops the other from sending.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import tty
from collections.abc import Iterable, Mapping

from muster import frames
from noded.launch import stdio
from noded.launch.spawn import User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noded.launch.spec import Launch

_CHUNK = 65536
_MOST_BUFFERED = 1 << 20
"""Bytes that wait for srun, or for one task's input, before the other side is no longer read."""
ATTACH_SECONDS = 30.0
"""How long a finished step keeps its output for an srun that has not attached yet."""
_LAST_SECONDS = 10.0
"""How long the last frames may take to leave."""


class Streams:
    """Input and output of the tasks of one step on this node. The batch script has none."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._outputs: dict[int, tuple[int, int]] = {}
        """Reading end -> (kind of frame, rank)."""
        self._inputs: dict[int, int] = {}
        """Rank -> writing end."""
        self._pending_input: dict[int, bytearray] = {}
        self._input_ends: set[int] = set()
        self._connection: socket.socket | None = None
        self._lost = False
        self._out = bytearray()
        self._reader = frames.Reader()
        self._poller: select.poll | None = None
        self._polled: dict[int, int] = {}
        self._early: list[bytes] = []
        """Frames from before srun attached (ends of tasks, lines of our own)."""

    def task_files(self, user: User, place: int) -> stdio.Files:
        """Open one task's descriptors; what is not a file becomes a pipe (a terminal where unbuffered)."""
        launch = self._launch
        step = launch["step"]
        assert step is not None
        rank = launch["ranks"][place]
        values = stdio.pattern_values(launch, place)
        with user.act():
            stdin = self._input(step["std_in_mode"], rank, values)
            stdout = self._output(launch["std_out"], frames.STDOUT, rank, values)
            if launch["std_err"]:
                stderr = self._output(launch["std_err"], frames.STDERR, rank, values)
            elif launch["std_out"]:
                stderr = stdout
            else:
                stderr = self._output("", frames.STDERR, rank, values)
        return stdio.Files(stdin, stdout, stderr)

    def watch(self, poller: select.poll) -> None:
        """Have `poller` report what concerns the streams; hand those descriptors to `react`."""
        self._poller = poller
        self._adjust()

    def owns(self, descriptor: int) -> bool:
        """Tell whether a descriptor that a poll reported is one of these."""
        return descriptor in self._polled

    def react(self, descriptor: int, what: int) -> None:
        """Move data for one descriptor that is ready."""
        if self._connection is not None and descriptor == self._connection.fileno():
            if what & select.POLLOUT:
                self._send()
            if what & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._receive()
        elif descriptor in self._outputs:
            self._read_output(descriptor)
        else:
            for rank, end in tuple(self._inputs.items()):
                if end == descriptor:
                    self._write_input(rank, broken=bool(what & select.POLLERR))
        self._adjust()

    def attach(self, connection: socket.socket, began: Mapping[int, int], ended: Mapping[int, int]) -> None:
        """Take srun's connection into use; it learns at once of what has happened.

        Args:
            connection: a stream of frames.
            began: pid -> place of the tasks that run.
            ended: place -> status of those that have ended.
        """
        if self._connection is not None and not self._lost:
            connection.close()
            return
        connection.setblocking(False)
        self._connection, self._lost = connection, False
        for pid, place in began.items():
            self._put(frames.BEGAN, self._rank(place), frames.NUMBER.pack(pid))
        for place, status in ended.items():
            self._put(frames.EXITED, self._rank(place), frames.NUMBER.pack(status))
        for frame in self._early:
            self._out += frame
        self._early.clear()
        self._send()
        self._adjust()

    def ended(self, place: int, status: int) -> None:
        """Tell srun that a task has ended, and close its input."""
        rank = self._rank(place)
        self._close_input(rank)
        if self._connection is not None:
            self._put(frames.EXITED, rank, frames.NUMBER.pack(status))
        self._adjust()

    def message(self, line: str) -> None:
        """Give srun a line of the stepd's own."""
        frame = frames.pack(frames.MESSAGE, 0, line.encode("utf-8", "surrogateescape"))
        if self._connection is None:
            self._early.append(frame)
        else:
            self._out += frame
            self._send()
        self._adjust()

    def drain(self) -> None:
        """Read what the ended tasks have left in their pipes, waiting for an srun that has not attached yet."""
        if self._launch["step"] is None:
            return
        # Nobody of the step lives any more: every pipe ends as soon as it has been read.
        deadline = time.monotonic() + ATTACH_SECONDS
        while self._outputs and self._connection is not None and time.monotonic() < deadline:
            self._poll_once(deadline)

    def waits_for_srun(self) -> bool:
        """Tell whether srun has not attached (or gone) yet, so that output would be lost."""
        return self._launch["step"] is not None and self._connection is None and not self._lost

    def finish(self, error: str) -> None:
        """Say that nothing follows, and see the last frames off."""
        if self._connection is None:
            return
        if error:
            self._put(frames.FAILED, 0, error.encode("utf-8", "surrogateescape"))
        self._put(frames.DONE, 0)
        deadline = time.monotonic() + _LAST_SECONDS
        while self._out and not self._lost and time.monotonic() < deadline:
            self._poll_once(deadline)
        self._connection.close()

    # Files and pipes.

    def _input(self, mode: str, rank: int, values: dict[str, str | int]) -> int:
        if mode == "file":
            return stdio.open_input(self._launch["std_in"], values, self._launch["work_dir"])
        if mode == "none" or (mode != "stream" and mode != str(rank)):
            return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writing, False)
        self._inputs[rank] = writing
        self._pending_input[rank] = bytearray()
        return reading

    def _output(self, pattern: str, kind: int, rank: int, values: dict[str, str | int]) -> int:
        if pattern:
            return stdio.open_output(pattern, values, self._launch)
        step = self._launch["step"]
        if step is not None and step["unbuffered"] and kind == frames.STDOUT:
            reading, writing = os.openpty()
            # A terminal makes the C library write line by line; nothing else of a terminal is wanted.
            tty.setraw(writing)
            os.set_inheritable(reading, False)
            os.set_inheritable(writing, False)
        else:
            reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        self._outputs[reading] = (kind, rank)
        return writing

    def _rank(self, place: int) -> int:
        return self._launch["ranks"][place]

    # Moving data.

    def _put(self, kind: int, rank: int, data: bytes = b"") -> None:
        self._out += frames.pack(kind, rank, data)
        self._send()

    def _read_output(self, descriptor: int) -> None:
        kind, rank = self._outputs[descriptor]
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose last user has gone answers EIO
            data = b""
        if not data:
            self._forget(descriptor)
            del self._outputs[descriptor]
            os.close(descriptor)
        elif not self._lost:
            self._put(kind, rank, data)

    def _send(self) -> None:
        connection = self._connection
        if connection is None or self._lost:
            self._out.clear()
            return
        try:
            while self._out:
                sent = connection.send(self._out[:_CHUNK])
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._lose()

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        try:
            for kind, rank, body in self._reader.feed(data):
                ranks: Iterable[int] = tuple(self._inputs) if rank == frames.ALL else (rank,)
                if kind == frames.STDIN:
                    for one in ranks:
                        if one in self._inputs:
                            self._pending_input[one] += body
                            self._write_input(one)
                elif kind == frames.STDIN_END:
                    for one in ranks:
                        self._input_ends.add(one)
                        self._write_input(one)
        except ValueError:
            self._lose()

    def _write_input(self, rank: int, *, broken: bool = False) -> None:
        pending = self._pending_input.get(rank)
        if pending is None or rank not in self._inputs:
            return
        try:
            while pending and not broken:
                written = os.write(self._inputs[rank], pending[:_CHUNK])
                del pending[:written]
        except BlockingIOError:
            return
        except OSError:
            broken = True
        if broken or (not pending and rank in self._input_ends):
            self._close_input(rank)

    def _close_input(self, rank: int) -> None:
        end = self._inputs.pop(rank, None)
        self._pending_input.pop(rank, None)
        if end is not None:
            self._forget(end)
            os.close(end)

    def _lose(self) -> None:
        """srun is gone: its tasks go on, their output is dropped, their input ends."""
        self._lost = True
        self._out.clear()
        if self._connection is not None:
            self._forget(self._connection.fileno())
        for rank in tuple(self._inputs):
            self._close_input(rank)

    # What the poll looks at.

    def _adjust(self) -> None:
        poller = self._poller
        if poller is None:
            return
        wanted: dict[int, int] = {}
        reading = self._connection is not None and len(self._out) < _MOST_BUFFERED
        if reading or self._lost:
            wanted.update(dict.fromkeys(self._outputs, select.POLLIN))
        full = False
        for rank, end in self._inputs.items():
            pending = len(self._pending_input[rank])
            full = full or pending >= _MOST_BUFFERED
            if pending:
                wanted[end] = select.POLLOUT
        if self._connection is not None and not self._lost:
            events = (0 if full else select.POLLIN) | (select.POLLOUT if self._out else 0)
            wanted[self._connection.fileno()] = events
        for descriptor in tuple(self._polled):
            if descriptor not in wanted:
                self._forget(descriptor)
        for descriptor, events in wanted.items():
            if self._polled.get(descriptor) != events:
                poller.register(descriptor, events)
                self._polled[descriptor] = events

    def _forget(self, descriptor: int) -> None:
        if self._polled.pop(descriptor, None) is not None and self._poller is not None:
            with contextlib.suppress(KeyError):
                self._poller.unregister(descriptor)

    def _poll_once(self, deadline: float) -> None:
        poller = select.poll()
        self._poller, self._polled = poller, {}
        self._adjust()
        left = int((deadline - time.monotonic()) * 1000)
        for descriptor, what in poller.poll(max(1, min(left, 1000))):
            if descriptor in self._polled:
                self.react(descriptor, what)

"""Pipes between tasks and srun: bounds, ends, and an srun that goes."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster import frames
from noded.launch import stdio
from noded.launch.spawn import User
from noded.launch.spec import Launch
from noded.launch.streams import Streams
from tests.launches import a_launch, a_step

MIB = 1 << 20


class Bench:
    """Streams with srun's end of the connection, driven as a stepd drives them."""

    def __init__(self, launch: Launch) -> None:
        self.streams = Streams(launch)
        user = User(os.getuid(), os.getgid(), "me")
        self.files = [self.streams.task_files(user, place) for place in range(len(launch["ranks"]))]
        self._poller = select.poll()
        self.streams.watch(self._poller)
        self.srun, self.theirs = socket.socketpair()
        self.srun.setblocking(False)
        self._reader = frames.Reader()
        self.got: list[tuple[int, int, bytes]] = []

    def attach(self) -> None:
        """srun has connected."""
        self.streams.attach(self.theirs, {}, {})

    def turn(self, milliseconds: int = 50) -> bool:
        """Let the streams move what they can; False when there was nothing."""
        events = self._poller.poll(milliseconds)
        for descriptor, what in events:
            if self.streams.owns(descriptor):
                self.streams.react(descriptor, what)
        return bool(events)

    def read(self) -> None:
        """Take what has come to srun."""
        try:
            while data := self.srun.recv(1 << 18):
                self.got += self._reader.feed(data)
        except BlockingIOError:
            return

    def until(self, condition: Callable[[], object]) -> None:
        """Move data and read until a condition holds."""
        for _ in range(20_000):
            if condition():
                return
            self.turn(10)
            self.read()
        raise AssertionError("the condition did not come true")

    def output(self, kind: int = frames.STDOUT, rank: int = 0) -> bytes:
        """What a task wrote, as srun has it."""
        return b"".join(data for one, of, data in self.got if (one, of) == (kind, rank))

    def close(self) -> None:
        """Let everything go."""
        self.srun.close()
        for files in self.files:
            for descriptor in {files.stdin, files.stdout, files.stderr}:
                try:
                    os.close(descriptor)
                except OSError:
                    continue


@pytest.fixture
def bench() -> Iterator[Callable[[Launch], Bench]]:
    made: list[Bench] = []

    def make(launch: Launch) -> Bench:
        made.append(Bench(launch))
        return made[-1]

    yield make
    for one in made:
        one.close()
        one.theirs.close()


def step(*, mode: str = "none", ranks: list[int] | None = None, **fields: object) -> Launch:
    """A step that writes to srun unless files are given."""
    return a_launch(step=a_step(std_in_mode=mode), ranks=ranks or [0], **fields)  # type: ignore[arg-type]


def test_much_output_waits_for_a_slow_srun_and_arrives_whole(bench: Callable[[Launch], Bench]) -> None:
    one = bench(step())
    one.attach()
    data = os.urandom(MIB) * 10
    written = [0]

    def write() -> None:
        while written[0] < len(data):
            written[0] += os.write(one.files[0].stdout, data[written[0] : written[0] + 65536])
        os.close(one.files[0].stdout)

    writer = threading.Thread(target=write)
    writer.start()
    while one.turn(300):
        pass
    assert 0 < written[0] < 3 * MIB
    one.until(lambda: len(one.output()) == len(data))
    writer.join(10)
    assert one.output() == data


def test_output_waits_in_the_pipes_until_srun_comes(bench: Callable[[Launch], Bench]) -> None:
    one = bench(step())
    os.write(one.files[0].stdout, b"early")
    assert not one.turn(20)
    assert one.streams.waits_for_srun()
    one.attach()
    assert not one.streams.waits_for_srun()
    one.until(lambda: one.output() == b"early")


def test_input_goes_to_all_tasks_or_to_one(bench: Callable[[Launch], Bench]) -> None:
    all_of_them = bench(step(mode="stream", ranks=[4, 5]))
    all_of_them.attach()
    all_of_them.srun.send(frames.pack(frames.STDIN, frames.ALL, b"both") + frames.pack(frames.STDIN, 5, b" five"))
    all_of_them.srun.send(frames.pack(frames.STDIN_END, frames.ALL))
    assert [read_end(all_of_them, place) for place in (0, 1)] == [b"both", b"both five"]
    only = bench(step(mode="5", ranks=[4, 5]))
    only.attach()
    only.srun.send(frames.pack(frames.STDIN, frames.ALL, b"hello") + frames.pack(frames.STDIN_END, frames.ALL))
    assert [read_end(only, place) for place in (0, 1)] == [b"", b"hello"]


def read_end(one: Bench, place: int) -> bytes:
    """Read a task's input to its end."""
    while one.turn(50):
        pass
    data = b""
    while chunk := os.read(one.files[place].stdin, 65536):
        data += chunk
    return data


def test_a_task_that_does_not_read_stops_srun_not_the_stepd(bench: Callable[[Launch], Bench]) -> None:
    one = bench(step(mode="stream"))
    one.attach()
    frame = frames.pack(frames.STDIN, frames.ALL, bytes(65536))
    sent, blocked = 0, 0
    while blocked < 3 and sent < 20 * MIB:
        try:
            sent += one.srun.send(frame[sent % len(frame) :])
            blocked = 0
        except BlockingIOError:
            blocked += not one.turn(50)
    assert MIB <= sent < 3 * MIB


@pytest.mark.parametrize("how", ["closes", "speaks nonsense"])
def test_when_srun_is_gone_output_is_dropped_and_input_ends(bench: Callable[[Launch], Bench], how: str) -> None:
    one = bench(step(mode="stream"))
    one.attach()
    if how == "closes":
        one.srun.close()
    else:
        one.srun.send(frames.HEADER.pack(frames.STDIN, 0, 1 << 30))
    while one.turn(50):
        pass
    assert os.read(one.files[0].stdin, 10) == b""
    os.set_blocking(one.files[0].stdout, False)
    written = 0
    while written < 4 * MIB:
        try:
            written += os.write(one.files[0].stdout, bytes(65536))
        except BlockingIOError:
            assert one.turn(1000)


def test_a_file_for_each_task_takes_its_output(bench: Callable[[Launch], Bench], tmp_path: Path) -> None:
    launch = step(ranks=[2, 3], std_out=f"{tmp_path}/made/%t.%n.%2s")
    one = bench(launch)
    for place, files in enumerate(one.files):
        assert files.stderr == files.stdout
        os.write(files.stdout, b"rank %d\n" % launch["ranks"][place])
    assert (tmp_path / "made/2.0.03").read_text() == "rank 2\n"
    assert (tmp_path / "made/3.0.03").read_text() == "rank 3\n"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    launch = step(std_out=f"{tmp_path}/file/out")
    with pytest.raises(stdio.CannotOpen, match=f"cannot open the output file {tmp_path}/file/out: Not a directory"):
        Streams(launch).task_files(User(os.getuid(), os.getgid(), "me"), 0)
    launch = step(mode="file", std_in=f"{tmp_path}/gone")
    with pytest.raises(stdio.CannotOpen, match=f"cannot open the input file {tmp_path}/gone: No such file"):
        Streams(launch).task_files(User(os.getuid(), os.getgid(), "me"), 0)


def test_the_last_frames_say_that_nothing_follows(bench: Callable[[Launch], Bench]) -> None:
    one = bench(step())
    one.streams.message("a line from before")
    one.attach()
    os.write(one.files[0].stdout, b"tail")
    os.close(one.files[0].stdout)
    os.close(one.files[0].stderr)
    one.streams.ended(0, 9)
    one.streams.drain()
    one.streams.finish("it failed")
    one.read()
    kinds = [kind for kind, _, _ in one.got]
    assert kinds == [frames.MESSAGE, frames.EXITED, frames.STDOUT, frames.FAILED, frames.DONE]
    assert one.output() == b"tail"
    assert one.output(frames.EXITED) == frames.NUMBER.pack(9)
    assert one.output(frames.FAILED) == b"it failed"

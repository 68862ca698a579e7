"""The agent's own epoll."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest
import uvloop

from noded.launch.watch import Watch


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The loop that the agent runs on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as made:
        yield made


def test_a_number_that_is_used_again_is_watched_again(runner: asyncio.Runner) -> None:
    async def main() -> int:
        watch, rounds, done = Watch(), 0, asyncio.Event()

        def turn(reading: int) -> None:
            nonlocal rounds
            rounds += 1
            watch.remove(reading)
            os.close(reading)
            if rounds == 2000:
                done.set()
                return
            # The same number is given out again in the same turn, and is ready at once.
            again, writing = os.pipe()
            assert again == reading
            watch.add(again, lambda: turn(again))
            os.close(writing)

        reading, writing = os.pipe()
        watch.add(reading, lambda: turn(reading))
        os.close(writing)
        async with asyncio.timeout(30):
            await done.wait()
        watch.close()
        return rounds

    assert runner.run(main()) == 2000


def test_an_event_of_a_closed_descriptor_is_not_given_to_its_successor(runner: asyncio.Runner) -> None:
    async def main() -> list[str]:
        watch, seen = Watch(), []
        first, second = socket.socketpair(), socket.socketpair()
        kept: list[socket.socket] = []

        def replace(own: socket.socket, other: socket.socket, name: str) -> None:
            seen.append(name)
            watch.remove(own.fileno())
            if seen == [name]:
                # The other one is ready too; its number goes to one that is not.
                number = other.fileno()
                watch.remove(number)
                other.close()
                kept.extend(socket.socketpair())
                successor = next((one for one in kept if one.fileno() == number), None)
                assert successor is not None
                watch.add(number, lambda: seen.append("successor"))

        watch.add(first[0].fileno(), lambda: replace(first[0], second[0], "first"))
        watch.add(second[0].fileno(), lambda: replace(second[0], first[0], "second"))
        first[1].send(b"x")
        second[1].send(b"x")
        for _ in range(5):
            await asyncio.sleep(0)
        watch.close()
        for one in (*first, *second, *kept):
            one.close()
        return seen

    assert len(runner.run(main())) == 1

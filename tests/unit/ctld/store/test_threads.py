from __future__ import annotations

import asyncio
import threading

import pytest

from ctld.store.threads import in_thread


async def test_gives_the_result_or_the_error() -> None:
    assert await in_thread(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_a_cancelled_caller_waits_for_the_thread() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def work() -> None:
        begun.set()
        assert go_on.wait(10)
        done.append(1)
        raise OSError("not heard")

    caller = asyncio.ensure_future(in_thread(work))
    while not begun.is_set():
        await asyncio.sleep(0)
    for _ in range(2):
        caller.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == [1]

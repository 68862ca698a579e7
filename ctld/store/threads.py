"""Blocking work in a thread that a cancelled caller does not leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[..., T], *args: object) -> T:
    """Run `call` in a thread; a caller who is cancelled leaves only once the thread has.

    With asyncio.to_thread the caller's cleanup would close a descriptor under a thread that still writes to it, and
    the number may by then be the journal's.
    """
    running = asyncio.get_running_loop().run_in_executor(None, call, *args)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:  # once more: the first one is raised below, when it is safe to
                continue
        if not running.cancelled():
            running.exception()  # taken note of: the cancellation is what the caller hears
        raise

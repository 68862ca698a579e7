"""Waiting for descriptors that come and go quickly: pidfds, the zygote's socket, connections that are handed on.

They are watched by an epoll of our own, and the event loop watches that one descriptor. The loop's own `add_reader`
will not do: under uvloop (0.23 with libuv 1.52.1) a descriptor that was removed, closed, and whose number was given out
again in the same turn was seen not to be watched at all, and the end of a step would never be noticed.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

_MOST_AT_ONCE = 256


class Watch:
    """Calls back for descriptors that are ready; use it inside asyncio."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        self._removed: set[int] = set()
        """Of the events that are being gone through: they may be of a closed descriptor whose number is used again."""
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._ready)

    def add(self, descriptor: int, call: Callable[[], None], *, writable: bool = False) -> None:
        """Have `call` called whenever `descriptor` can be read (or has ended), or also when it can be written."""
        self._epoll.register(descriptor, _events(writable))
        self._calls[descriptor] = call

    def change(self, descriptor: int, *, writable: bool) -> None:
        """Look also, or no longer, at whether it can be written."""
        self._epoll.modify(descriptor, _events(writable))

    def remove(self, descriptor: int) -> None:
        """Stop watching a descriptor, before it is closed."""
        if self._calls.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            self._removed.add(descriptor)

    def close(self) -> None:
        """Watch nothing any more."""
        if not self._epoll.closed:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._calls.clear()

    async def readable(self, descriptor: int) -> None:
        """Return when `descriptor`, which is not watched otherwise, can be read."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def call() -> None:
            if not ready.done():
                ready.set_result(None)

        self.add(descriptor, call)
        try:
            await ready
        finally:
            self.remove(descriptor)

    def _ready(self) -> None:
        self._removed.clear()
        for descriptor, _ in self._epoll.poll(0, _MOST_AT_ONCE):
            call = self._calls.get(descriptor)
            if call is not None and descriptor not in self._removed:
                call()
            if self._epoll.closed:
                return


def _events(writable: bool) -> int:
    return select.EPOLLIN | (select.EPOLLOUT if writable else 0)

"""A journal whose disk a test holds: events become durable when it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ctld.store.memory import MemoryJournal
from muster.errors import Unavailable


class HeldJournal(MemoryJournal):
    """Events are durable up to what `release` was last told; unless `holding`, in the next turn."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[Callable[[int], None]] = []
        self._durable = 0
        self._waiting: list[tuple[int, asyncio.Future[int]]] = []
        self.holding = False

    @property
    def last_durable(self) -> int:
        """As far as was released."""
        return self._durable

    def append(self, payloads: Sequence[bytes], blobs: Sequence[tuple[bytes, bytes]] = ()) -> Awaitable[int]:
        """Keep the events; they are durable when released."""
        super().append(payloads, blobs)
        written = self._reaching(self.last_queued)
        if not self.holding:
            asyncio.get_running_loop().call_soon(lambda: None if self.holding else self.release())
        return written

    async def wait_durable(self, number: int) -> None:
        """Return once released."""
        if number > self._durable:
            await self._reaching(number)

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called by `release`."""
        self._told.append(callback)

    def release(self, number: int | None = None) -> None:
        """Make the events up to `number` durable; None: all."""
        self._durable = self.last_queued if number is None else number
        for upto, future in self._waiting:
            if upto <= self._durable and not future.done():
                future.set_result(upto)
        self._waiting = [(upto, future) for upto, future in self._waiting if not future.done()]
        for callback in self._told:
            callback(self._durable)

    def fail(self) -> None:
        """Be a journal that cannot be written: all who wait hear it."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(Unavailable("the journal cannot be written: no space"))
        self._waiting = []

    def _reaching(self, number: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, future))
        return future

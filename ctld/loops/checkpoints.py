"""When to write checkpoints: after so many bytes of journal, and when the daemon stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ctld.store.opening import Opened

log = logging.getLogger("ctld.checkpoints")

LOOK_SECONDS = 5.0
JOURNAL_BYTES = 256 << 20
"""A checkpoint is due once the journal has grown by so much: replaying that takes about half a second."""


class Checkpoints:
    """Writes them one after the other."""

    def __init__(self, opened: Opened, held_from: Callable[[], int]) -> None:
        self._opened = opened
        self._held_from = held_from
        self._bytes = opened.journal.size_bytes
        self._number = opened.journal.last_queued

    async def run(self) -> None:
        """Look now and then until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._opened.journal.size_bytes - self._bytes >= JOURNAL_BYTES:
                await self.write()

    async def write(self) -> None:
        """Write one now, unless nothing has happened since the last."""
        if self._opened.journal.last_queued == self._number:
            return
        self._number = self._opened.journal.last_queued
        await self._opened.checkpoint(self._held_from)
        self._bytes = self._opened.journal.size_bytes

"""When to write checkpoints: after so many bytes of journal, and when the daemon stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ctld.store.ports import JournalPort
from muster.errors import Unavailable

log = logging.getLogger("ctld.checkpoints")

LOOK_SECONDS = 5.0
RETRY_SECONDS = 60.0
"""A checkpoint that could not be written (a full disk) is tried again after so long."""
JOURNAL_BYTES = 256 << 20
"""A checkpoint is due once the journal has grown by so much: replaying that takes about half a second."""


class SizedJournal(JournalPort, Protocol):
    """A journal that knows how large it is."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all that is kept."""


class Opened(Protocol):
    """What checkpoints are made of."""

    @property
    def journal(self) -> SizedJournal:
        """What makes them due, and is shortened by them."""

    @property
    def replayed_bytes(self) -> int:
        """How much of the journal lay behind the last checkpoint at the start."""

    async def checkpoint(self, held_from: Callable[[], int]) -> None:
        """Write one of now; OSError or Unavailable when it cannot be."""


class Checkpoints:
    """Writes them one after the other.

    Args:
        opened: the state directory.
        held_from: gives the first number that a follower still needs from the journal.
    """

    def __init__(
        self,
        opened: Opened,
        held_from: Callable[[], int],
        *,
        look_seconds: float = LOOK_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        journal_bytes: int = JOURNAL_BYTES,
    ) -> None:
        self._opened = opened
        self._held_from = held_from
        self._look_seconds = look_seconds
        self._retry_seconds = retry_seconds
        self._journal_bytes = journal_bytes
        # What was replayed counts: else a controller that is killed often would replay more each time.
        self._bytes = opened.journal.size_bytes - opened.replayed_bytes
        self._number = opened.journal.last_queued if not opened.replayed_bytes else -1
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Look now and then until cancelled."""
        while True:
            await asyncio.sleep(self._look_seconds)
            if self._opened.journal.size_bytes - self._bytes >= self._journal_bytes and not await self.write():
                await asyncio.sleep(self._retry_seconds)

    async def write(self) -> bool:
        """Write one now, unless nothing has happened since the last; False when it could not be written.

        That is no reason to end: the journal has everything, and only grows until the next try.
        """
        async with self._writing:  # the daemon's last one waits until one that was cancelled has cleaned up
            number = self._opened.journal.last_queued
            if number == self._number:
                return True
            try:
                await self._opened.checkpoint(self._held_from)
            except (OSError, Unavailable) as error:
                log.error("no checkpoint of event %d could be written: %s", number, error)
                return False
            self._number = number
            self._bytes = self._opened.journal.size_bytes
            return True

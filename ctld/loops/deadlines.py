"""Time passing: limits, warnings, begin times, purging, nodes that fell silent, launches that were not begun."""

from __future__ import annotations

import asyncio
import logging

from ctld.core.commands import LoseNodes, Tick
from ctld.loops.dispatch import Dispatcher
from ctld.loops.links import Links
from ctld.store.store import Store
from muster.clock import Clock

log = logging.getLogger("ctld.deadlines")

TICK_SECONDS = 1.0
RELAUNCH_SECONDS = 30.0
"""A launch sent over a live stream that the agent has not begun for so long is sent again."""


class Deadlines:
    """One look a second."""

    def __init__(self, store: Store, links: Links, dispatcher: Dispatcher, clock: Clock) -> None:
        self._store = store
        self._links = links
        self._dispatcher = dispatcher
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.look()

    def look(self) -> None:
        """Do what has fallen due."""
        at = self._clock.now()
        self._store.post(Tick(), at=at)
        self._dispatcher.overdue(RELAUNCH_SECONDS)
        silent = self.silent_nodes()
        if silent:
            names = ",".join(self._store.state.nodes[node].spec.name for node in silent)
            log.error("no word from %s for %d s: DOWN", names, self._store.state.settings.node_timeout_seconds)
            self._store.post(LoseNodes(nodes=silent), at=at)

    def silent_nodes(self) -> tuple[int, ...]:
        """Give the nodes that had a whole time-out to be heard of and were not, and are not DOWN yet."""
        state = self._store.state
        timeout = state.settings.node_timeout_seconds
        if timeout <= 0:
            return ()
        edge = self._links.monotonic() - timeout
        return tuple(
            node.index
            for node in state.nodes
            if not node.down
            and node.facts is not None
            and node.index not in self._links.up
            and self._links.pulse(node.index).heard < edge
        )

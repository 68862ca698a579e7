"""Time passing: limits, warnings, begin times, purging, nodes that fell silent, launches that were not begun."""

from __future__ import annotations

import asyncio
import logging

from ctld.core.commands import LoseNodes, Tick
from ctld.loops.dispatch import Dispatcher
from ctld.loops.links import HEARTBEAT_SECONDS, Links
from ctld.store.store import Store
from muster.clock import Clock

log = logging.getLogger("ctld.deadlines")

TICK_SECONDS = 1.0
OVERSLEPT_SECONDS = 5.0
"""A look that comes so late says that this process stood still: nothing was heard because nobody listened."""
RELAUNCH_SECONDS = 30.0
"""A launch sent over a live stream that the agent has not begun for so long is sent again."""

OVERUSE_SECONDS = 30.0
"""So often jobs are looked for whose group has used up what it may."""


class Deadlines:
    """One look a second."""

    def __init__(self, store: Store, links: Links, dispatcher: Dispatcher, clock: Clock) -> None:
        self._store = store
        self._links = links
        self._dispatcher = dispatcher
        self._clock = clock
        self._looked_at = links.monotonic()
        self._listening_since = self._looked_at
        self._overuse_at = self._looked_at

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.look()

    def look(self) -> None:
        """Do what has fallen due."""
        at = self._clock.now()
        self._store.post(Tick(overuse=self._is_time_for_overuse()), at=at)
        self._dispatcher.overdue(RELAUNCH_SECONDS)
        now = self._links.monotonic()
        if now - self._looked_at > OVERSLEPT_SECONDS:
            self._listening_since = now
        self._looked_at = now
        silent = self.silent_nodes()
        for node in silent:
            link = self._links.up.get(node)
            if link is not None:
                # An agent that hangs keeps its connection: it has to register anew, and learn what has ended here.
                self._links.lost(link)
        if silent:
            names = ",".join(self._store.state.nodes[node].spec.name for node in silent)
            log.error("no word from %s for %d s: DOWN", names, self._store.state.settings.node_timeout_seconds)
            self._store.post(LoseNodes(nodes=silent), at=at)

    def _is_time_for_overuse(self) -> bool:
        now = self._links.monotonic()
        if now - self._overuse_at < OVERUSE_SECONDS:
            return False
        self._overuse_at = now
        return True

    def silent_nodes(self) -> tuple[int, ...]:
        """Give the nodes that had a whole time-out to be heard of and were not, and are not DOWN yet."""
        state = self._store.state
        timeout = state.settings.node_timeout_seconds
        if timeout <= 0:
            return ()
        now = self._links.monotonic()
        # Between two heartbeats an agent with a stream is silent by rights.
        edge, edge_of_stream = now - timeout, now - max(timeout, 2 * HEARTBEAT_SECONDS)
        return tuple(
            node.index
            for node in state.nodes
            if not node.down
            and node.facts is not None
            and max(self._links.pulse(node.index).heard, self._listening_since)
            < (edge_of_stream if node.index in self._links.up else edge)
        )

"""A controller process: the real store, decisions, scheduler, dispatcher and node service, put together as the daemon
does it, on a simulated disk and simulated streams."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING

from ctld.core import invariants
from ctld.core.commands import ApplyConfig, Command
from ctld.core.events import Event
from ctld.core.state import State
from ctld.loops.deadlines import TICK_SECONDS, Deadlines
from ctld.loops.dispatch import Dispatcher
from ctld.loops.links import Link, Links
from ctld.loops.schedule import BUDGET_SECONDS, IDLE_SECONDS, Scheduler
from ctld.services.nodes import NodesService
from ctld.store.store import Store
from muster.errors import MusterError
from muster.ids import UnixTime
from muster.v1 import node_pb2
from tests.sim.disk import SlowJournal
from tests.sim.network import DOWN, UP, Stream
from tests.sim.timeline import SimClock, Tasks, Waiting

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

FULL_CHECK_EVERY = 500
_LOOK_SECONDS = BUDGET_SECONDS / 200


class CheckedStore(Store):
    """The store, with the invariants looked at after all that it does."""

    def __init__(self, state: State, journal: SlowJournal, cluster: Cluster) -> None:
        super().__init__(state, journal)
        self._cluster = cluster

    def post(
        self, command: Command, *, at: UnixTime, blobs: Sequence[tuple[bytes, bytes]] = ()
    ) -> tuple[Sequence[Event], Awaitable[int] | None]:
        """Do as the store does, and check what the events touched."""
        events, written = super().post(command, at=at, blobs=blobs)
        cluster = self._cluster
        for event in events:
            cluster.events += 1
            invariants.check_touched(self.state, event)
            if cluster.events % FULL_CHECK_EVERY == 0:
                invariants.check(self.state)
        if events:
            cluster.faults.committed()
        return events, written


class _Bell(asyncio.Event):
    """Rings where the daemon's writer would wake."""

    def __init__(self, ring: Callable[[], None]) -> None:
        super().__init__()
        self._ring = ring

    def set(self) -> None:
        """Ring, once until cleared."""
        if not self.is_set():
            super().set()
            self._ring()


class _Inbox:
    """Messages of one node, read one after the other."""

    def __init__(self) -> None:
        self._messages: deque[node_pb2.NodeMessage] = deque()
        self._waiting: Waiting | None = None
        self.ended = False

    def put(self, message: node_pb2.NodeMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        self._wake()

    def end(self) -> None:
        """The stream is over."""
        self.ended = True
        self._wake()

    async def next(self) -> node_pb2.NodeMessage | None:
        """Give the next message; None at the end."""
        while not self._messages and not self.ended:
            self._waiting = Waiting()
            await self._waiting
        return None if self.ended else self._messages.popleft()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.end()


class Pause(Waiting):
    """`await Pause(...)`: sleeping."""

    def __init__(self, controller: Controller, seconds: float) -> None:
        super().__init__()
        controller.after(seconds, self.end)

    def __await__(self) -> Generator[Waiting, None, None]:
        yield from super().__await__()


class Controller:
    """One life of ctld."""

    def __init__(self, cluster: Cluster, config: ApplyConfig, rng: random.Random) -> None:
        self.alive = True
        self.cluster = cluster
        self.clock: SimClock = cluster.clock
        self.tasks = Tasks()
        self._rng = rng
        self._streams: dict[Stream, None] = {}
        timeline = cluster.timeline
        self.journal = SlowJournal(cluster.disk, timeline, rng)
        state = cluster.disk.restored()
        self.store = CheckedStore(state, self.journal, cluster)
        self.links = Links(monotonic=lambda: timeline.seconds)
        self.dispatcher = Dispatcher(state, self.links)
        self._turns = 0
        self.scheduler = Scheduler(self.store, self.links, self.clock, self._stopwatch)
        self.deadlines = Deadlines(self.store, self.links, self.dispatcher, self.clock)
        self.nodes = NodesService(self.store, self.links, self.dispatcher, self.journal.get_blob, self.clock)
        self.store.subscribe(self.dispatcher.take)
        self._cycle_is_due = False
        self.store.on_change(self._wake)
        self.links.on_change(self._wake)
        self.store.post(config, at=self.clock.now())
        self._look()
        self._idle()

    @property
    def state(self) -> State:
        """The live state."""
        return self.store.state

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something done, if this process still lives then."""
        self.cluster.timeline.after(seconds, lambda: action() if self.alive else None)

    def pause(self, seconds: float) -> Pause:
        """Give something to await."""
        return Pause(self, seconds)

    def crash(self) -> None:
        """End in this instant."""
        self.alive = False
        self.tasks.kill()
        self.journal.crash()
        for stream in self._streams:
            stream.abandon(UP)

    def accept(self, stream: Stream) -> None:
        """Take a connection."""
        inbox = _Inbox()
        self._streams[stream] = None
        stream.receive[UP] = inbox.put
        stream.ended[UP] = inbox.end
        self.tasks.start(self._serve(stream, inbox))

    # As NodesService.Connect, with the simulated stream in place of gRPC's.

    async def _serve(self, stream: Stream, inbox: _Inbox) -> None:
        first = await inbox.next()
        if first is None:
            return
        try:
            link, registered = await self.nodes.register(first.register)
        except MusterError as error:
            refusal = node_pb2.Refusal(sentence=str(error))
            stream.send(DOWN, node_pb2.ControllerMessage(refusal=refusal))
            return
        stream.send(DOWN, node_pb2.ControllerMessage(registered=registered))
        bell = _Bell(lambda: self.after(self._rng.uniform(0, 0.002), lambda: self._write(link, stream)))
        was_set, link.wake = link.wake.is_set() or link.closed, bell
        if was_set:
            bell.set()
        while (message := await inbox.next()) is not None:
            await self.nodes.read(link, message)
        self.links.lost(link)
        self._streams.pop(stream, None)

    def _write(self, link: Link, stream: Stream) -> None:
        orders = link.take()
        if orders is not None:
            stream.send(DOWN, node_pb2.ControllerMessage(orders=orders))
        if link.closed:
            stream.drop()

    # The loops.

    def _stopwatch(self) -> float:
        """Time that passes by looking at it: a pass runs out of its budget sometimes, and always at the same place."""
        self._turns += 1
        return self._turns * _LOOK_SECONDS

    def _wake(self) -> None:
        if not self._cycle_is_due:
            self._cycle_is_due = True
            self.after(self._rng.uniform(0.002, self.cluster.size.pass_gap), self._cycle)

    def _cycle(self) -> None:
        self._cycle_is_due = False
        if not self.scheduler.cycle():
            self._wake()

    def _idle(self) -> None:
        if len(self.state.queue):
            self._wake()
        self.after(IDLE_SECONDS, self._idle)

    def _look(self) -> None:
        self.deadlines.look()
        self.after(TICK_SECONDS, self._look)

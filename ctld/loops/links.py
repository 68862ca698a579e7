"""The streams to the nodes, and what is still to be said on each.

Orders pile up in a `Link` while its previous message is being written, so a burst of starts is one message a node;
what would make a message larger than the wire takes goes into the next one.
Nothing here is journaled: a link that comes up again is told everything that the state owes its node (`dispatch.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from muster.v1 import node_pb2

HEARTBEAT_SECONDS = 10
"""How often an agent says that it lives."""
_KNOWN_BLOBS = 4096
"""Most hashes that a link remembers as sent; an agent that has dropped one asks for it again."""
MOST_LAUNCHES = 1_000
MOST_BLOB_BYTES = 8 << 20
"""A message of orders takes in no further launch beyond these: it has to stay well below `rpc.MAX_MESSAGE_BYTES`, or a
node to which more is owed could never be told of any of it."""


class Link:
    """One node's live stream, as the loops see it."""

    def __init__(
        self,
        node: int,
        name: str,
        read_blob: Callable[[bytes], bytes],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self.name = name
        self.wake = asyncio.Event()
        self.closed = False
        self.launched: dict[tuple[int, int, int], float] = {}
        """(job, run, step) of launches sent and not yet begun there -> monotonic time of sending."""
        self._read_blob = read_blob
        self._monotonic = monotonic
        self._orders = node_pb2.Orders()
        self._full: deque[node_pb2.Orders] = deque()
        self._blob_bytes = 0
        self._sent_blobs: OrderedDict[bytes, None] = OrderedDict()
        self._empty = True

    def launch(self, launch: node_pb2.Launch) -> None:
        """Have a step begun there, with the blobs that the agent does not have yet; nothing where that is under way.

        Raises:
            NotFound, Damaged: a blob is not stored, or not what was stored.
        """
        key = (launch.job_id, launch.run, launch.step_id)
        if key in self.launched:
            return
        # Read before anything is noted: a blob that cannot be read leaves the link as it was.
        wanted = {blob: self._read_blob(blob) for blob in (launch.script, launch.environment) if self._lacks(blob)}
        if len(self._orders.launch) >= MOST_LAUNCHES or self._blob_bytes >= MOST_BLOB_BYTES:
            self._full.append(self._orders)
            self._orders, self._blob_bytes = node_pb2.Orders(), 0
        for blob, data in wanted.items():
            self._orders.blobs.add(hash=blob, data=data)
            self._blob_bytes += len(data)
            self._sent_blobs[blob] = None
            if len(self._sent_blobs) > _KNOWN_BLOBS:
                self._sent_blobs.popitem(last=False)
        self.launched[key] = self._monotonic()
        self._orders.launch.append(launch)
        self._ring()

    def end_run(self, order: node_pb2.EndRun) -> None:
        """Have all that is left of a run ended there."""
        self._orders.end_run.append(order)
        self._ring()

    def end_step(self, order: node_pb2.EndStep) -> None:
        """Have one step ended there."""
        self._orders.end_step.append(order)
        self._ring()

    def signal(self, order: node_pb2.SignalOrder) -> None:
        """Have a signal sent there."""
        self._orders.signal.append(order)
        self._ring()

    def forget(self, job_id: int, run: int, step_id: int) -> None:
        """Tell the agent that this result is durable here."""
        self._orders.forget.add(job_id=job_id, run=run, step_id=step_id)
        self._ring()

    def dropped(self, blob: bytes) -> None:
        """Note that the agent no longer has this blob."""
        self._sent_blobs.pop(blob, None)

    def take(self) -> node_pb2.Orders | None:
        """Give what is to be said next; None when nothing is. `wake` stays set while there is more."""
        if self._full:
            return self._full.popleft()
        self.wake.clear()
        if self._empty:
            return None
        orders, self._orders, self._empty, self._blob_bytes = self._orders, node_pb2.Orders(), True, 0
        return orders

    def close(self) -> None:
        """Wake whoever writes the stream, so that it ends."""
        self.closed = True
        self.wake.set()

    def _ring(self) -> None:
        self._empty = False
        self.wake.set()

    def _lacks(self, blob: bytes) -> bool:
        if blob in self._sent_blobs:
            self._sent_blobs.move_to_end(blob)
            return False
        return bool(blob)


@dataclass(slots=True)
class Pulse:
    """What is known of a node's life; an overlay, begun anew with the controller."""

    heard: float
    """Monotonic time of the last message, or of the controller's start."""
    load_x100: int = -1
    free_memory_mib: int = -1
    skew_ms: int = 0
    """Node's clock minus ours, as the last message showed (its travelling time included)."""
    io_socket: str = ""
    limits_off: tuple[str, ...] = ()


@dataclass(slots=True)
class Links:
    """All nodes' links and pulses by node index."""

    monotonic: Callable[[], float] = time.monotonic
    """What all loops measure silence by; simulations give their own."""
    started: float = field(init=False)
    up: dict[int, Link] = field(default_factory=dict)
    pulses: dict[int, Pulse] = field(default_factory=dict)
    _watchers: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = self.monotonic()

    def on_change(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called when a node comes or goes."""
        self._watchers.append(watcher)

    def opened(self, link: Link) -> None:
        """Take a link into use; one that the same node had before is closed."""
        before = self.up.get(link.node)
        if before is not None:
            before.close()
        self.up[link.node] = link
        self.pulse(link.node).heard = self.monotonic()
        self._changed()

    def lost(self, link: Link) -> None:
        """Note the end of a link (unless a newer one of that node has taken its place)."""
        link.close()
        if self.up.get(link.node) is link:
            del self.up[link.node]
            self.pulse(link.node).heard = self.monotonic()
            self._changed()

    def pulse(self, node: int) -> Pulse:
        """Give what is known of a node; one not heard of since the start counts as heard at the start."""
        pulse = self.pulses.get(node)
        if pulse is None:
            pulse = self.pulses[node] = Pulse(heard=self.started)
        return pulse

    def reachable(self, nodes: int) -> npt.NDArray[np.bool_]:
        """Give, for each of `nodes` nodes, whether its stream is up."""
        mask = np.zeros(nodes, np.bool_)
        up = np.fromiter(self.up, np.intp, len(self.up))
        mask[up[up < nodes]] = True
        return mask

    def _changed(self) -> None:
        for watcher in self._watchers:
            watcher()

"""What goes wrong, drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.network import Stream
    from tests.sim.node import Node


class Faults:
    """A stream of mishaps until told to stop."""

    def __init__(self, cluster: Cluster, rng: random.Random, *, every: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._every = every
        self.stopped = False
        self.counts: dict[str, int] = {}
        self._crash_at_commit = rng.choice([0.0, 0.0, 0.002, 0.01])
        self._drop_at_message = rng.choice([0.0, 0.001, 0.01])
        self.small_caches = rng.random() < 0.3
        """Agents drop blobs at once."""

    def begin(self) -> None:
        """Let the next one come."""
        self._cluster.timeline.after(self._rng.expovariate(1 / self._every), self._strike)

    def committed(self) -> None:
        """Events were queued: now and then the controller does not live to see them on disk."""
        if not self.stopped and self._rng.random() < self._crash_at_commit:
            self._cluster.timeline.after(self._rng.uniform(0, 0.008), self._controller)

    def sending(self, stream: Stream) -> None:
        """A message is about to be sent: now and then its stream breaks under it."""
        if not self.stopped and self._rng.random() < self._drop_at_message:
            self._cluster.timeline.after(self._rng.uniform(0, 0.005), stream.drop)

    def _strike(self) -> None:
        if self.stopped:
            return
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._power, 2),
            (self._agent, 3),
            (self._zygote, 1),
            (self._stream, 4),
            (self._partition, 1.5),
            (self._controller, 2.5),
            (self._stepd, 1),
            (self._old_report, 3),
            (self._blobs, 1),
            (self._disk, 1.5),
            (self._clock, 0.3),
            (self._checkpoint, 1),
        ]
        strike = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        self.counts[strike.__name__] = self.counts.get(strike.__name__, 0) + 1
        strike()
        self.begin()

    def _node(self) -> Node:
        """Prefer nodes on which something happens."""
        nodes = self._cluster.nodes
        busy = [node for node in nodes if node.folders]
        return self._rng.choice(busy if busy and self._rng.random() < 0.8 else nodes)

    def _power(self) -> None:
        node = self._node()
        node.power_off()
        self._cluster.timeline.after(self._rng.choice([20, 45, 300, 1e9]), node.boot)

    def _agent(self) -> None:
        node = self._node()
        node.kill_agent()
        away = self._rng.choice([0.2, 2, 30, 100])
        if away > 50:
            self._cluster.truth.note_trouble(node.index)
        self._cluster.timeline.after(away, node.start_agent)

    def _zygote(self) -> None:
        for node in self._cluster.nodes:
            if node.agent is not None and self._rng.random() < 0.5:
                node.agent.lose_zygote()

    def _stream(self) -> None:
        node = self._node()
        if node.agent is not None:
            node.agent.disconnect(slowly=self._rng.random() < 0.3)

    def _partition(self) -> None:
        """Cut nodes off, for long enough to be given up or not; everything on them lives on."""
        for node in {self._node().index for _ in range(self._rng.randint(1, 3))}:
            self.cut_off(self._cluster.nodes[node], self._rng.choice([3, 30, 150]))

    def cut_off(self, node: Node, seconds: float) -> None:
        """Cut one node off."""
        node.reachable = False
        self._cluster.truth.note_trouble(node.index)
        if node.agent is not None:
            node.agent.disconnect(slowly=True)
        self._cluster.timeline.after(seconds, setattr, node, "reachable", True)

    def _controller(self) -> None:
        self._cluster.crash_controller(self._rng.choice([0.05, 0.5, 3, 20]))

    def _stepd(self) -> None:
        node = self._node()
        if node.processes:
            node.lose_stepd(self._rng.choice(sorted(node.processes)))

    def _old_report(self) -> None:
        if self._cluster.heard:
            index, report = self._rng.choice(self._cluster.heard)
            agent = self._cluster.nodes[index].agent
            if agent is not None:
                agent.repeat(report)

    def _blobs(self) -> None:
        for node in self._cluster.nodes:
            if node.agent is not None:
                node.agent.forget_blobs()

    def _disk(self) -> None:
        controller = self._cluster.controller
        if controller is not None:
            controller.journal.stalled = self._rng.choice([0.1, 1.0, 4.0])

    def _clock(self) -> None:
        self._cluster.clock.ahead += self._rng.choice([2, 30, 90])

    def _checkpoint(self) -> None:
        self._cluster.checkpoint()

"""How many units of a demand a node can give: a bound that tells when a job on several nodes is worth trying.

A unit is a node that serves where shares are even, else a task or a GPU. `select.choose` never finds a place where the
units of all nodes are fewer than `wanted`; where they suffice it may still find none (topology, counts of features).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ctld.sched.demand import ANY, Demand
from ctld.sched.fleet import Ints, View, members


class Units:
    """The rule of one demand, by hardware."""

    __slots__ = ("bits", "least", "limits", "nodes", "per_unit", "place", "several", "wanted")

    def __init__(self, demand: Demand) -> None:
        fleet, need = demand.fleet, demand.need
        self.bits = 0
        for alternative in demand.alternatives:
            self.bits |= alternative.bits
        self.nodes: Ints = np.array(members(self.bits), np.int64)
        """That could serve, ascending."""
        self.place: Ints = np.full(fleet.size, -1, np.int64)
        """Node -> its place in `nodes`, -1 when it is not there."""
        self.place[self.nodes] = np.arange(len(self.nodes))
        rows = [
            (one[0] if not demand.shared else ANY, one[1] if need.memory_counts else 0, *one[2]) for one in demand.least
        ]
        self.least: Ints = np.array(rows, np.int64).reshape(len(rows), -1)
        """[kind, resource]: the smallest share of a node: CPUs, memory, GPUs by column."""
        self.wanted = need.nodes
        """Units that the job needs."""
        self.per_unit: list[tuple[int, int]] = []
        """(resource, how much of it a unit takes) where units are counted; else a node that serves is a unit."""
        self.limits = 1
        """Most units on a node."""
        if need.uneven:
            self._count_parts(demand)
        self.several = not demand.single or need.uneven
        """More than one node may have to come free for it."""

    def _count_parts(self, demand: Demand) -> None:
        need = demand.need
        if need.fine is not None:  # By rules of its own: any node that serves might take all.
            self.wanted = self.limits = max(need.tasks, need.nodes) if need.tasks else need.gpus_total[0]
        elif need.tasks:
            self.wanted = max(need.tasks, need.nodes)
            self.limits = min(need.tasks, need.tasks_cap) if need.tasks_cap else need.tasks
            if not need.overcommit:
                self.per_unit.append((0, need.cpus_per_task))
                if need.memory_counts and need.memory_per_cpu and not need.memory_each:
                    self.per_unit.append((1, need.memory_per_cpu * need.cpus_per_task))
            if need.gpus_task[0]:
                self.per_unit.append((2, need.gpus_task[0]))
        else:
            self.wanted = self.limits = need.gpus_total[0]
            self.per_unit.append((2, 1))
            if need.cpus_per_gpu:
                self.per_unit.append((0, need.cpus_per_gpu))

    def on(self, kind: int, free: Sequence[int]) -> int:
        """Count the units of a node that could serve, of which so much is free."""
        for have, want in zip(free, self.least[kind].tolist(), strict=True):
            if have < want:
                return 0
        return min(self.limits, *(free[resource] // amount for resource, amount in self.per_unit), self.limits)

    def count(self, view: View, kinds: Ints) -> Ints:
        """Count the units of all nodes that could serve, along `nodes`.

        Args:
            kinds: number of the hardware of each node of the fleet.
        """
        wanted = self.least[kinds[self.nodes]]
        served = np.ones(len(self.nodes), np.bool_)
        columns = [np.asarray(column)[self.nodes] for column in (view.cpus, view.memory, *view.gpus)]
        for at, column in enumerate(columns):
            served &= column >= wanted[:, at]
        units: Ints = np.where(served, self.limits, 0)
        for resource, amount in self.per_unit:
            np.minimum(units, np.where(served, columns[resource] // amount, 0), out=units)
        return units

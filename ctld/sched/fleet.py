"""The nodes as the scheduler sees them: what never changes between two configurations, as columns and bitmaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctld.core.free import FreeTable, core_count, cpus_per_core
from ctld.core.model import Node, NodeSpec

Ints: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = "list[int] | Ints"

SMALL = 64
"""Up to so many nodes plain lists beat numpy, whose calls cost a microsecond each whatever they are given."""

CLOSED = -(1 << 40)
"""CPUs of a node that cannot be used: below zero whatever is given back there."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes of equal hardware."""

    cpus: int
    threads: int
    """CPUs that come with one core."""
    cores: int
    memory_mib: int
    tmp_mib: int
    gpus: tuple[int, ...]
    """GPU count by column of the fleet: any type, then each type of `Fleet.types`."""
    gpu_types: tuple[str, ...]
    """Type by GPU index."""
    sockets: tuple[int, ...]
    """Bitmap of the cores of each socket."""


class Fleet:
    """Static columns of all nodes; made anew when the configuration of any node changes."""

    def __init__(self, nodes: Sequence[Node], small: int = SMALL) -> None:
        self.specs = [node.spec for node in nodes]
        self.size = len(nodes)
        self.small = self.size <= small
        """Columns are plain lists, not numpy's."""
        self.everything = (1 << self.size) - 1
        self.names = {spec.name: index for index, spec in enumerate(self.specs)}
        self.future = bitmap(index for index, spec in enumerate(self.specs) if spec.state == "FUTURE")
        mixed = any(len(set(spec.gpus)) > 1 for spec in self.specs)
        self.types: tuple[str, ...] = (
            tuple(sorted({name for spec in self.specs for name in spec.gpus if name})) if mixed else ()
        )
        """GPU types with a column of their own: only where some node mixes types. Otherwise a request for a type
        is a request for any GPU on the nodes of that type."""
        self.kinds: list[Kind] = []
        self.kind: list[int] = []
        """Kind number of each node."""
        known: dict[tuple[object, ...], int] = {}
        for spec in self.specs:
            key = (
                spec.cpus, spec.sockets, spec.cores_per_socket, spec.threads_per_core,
                spec.memory_mib, spec.tmp_mib, spec.gpus,
            )  # fmt: skip
            if key not in known:
                known[key] = len(self.kinds)
                self.kinds.append(_kind(spec, self.types))
            self.kind.append(known[key])
        self.kind_column = np.array(self.kind, np.int64)
        self.weight = [spec.weight for spec in self.specs]
        self.weight_column = np.array(self.weight, np.int64)
        self.one_weight = len(set(self.weight)) <= 1
        self.typed: dict[str, int] = {}
        """GPU type -> bitmap of the nodes that have it."""
        self.layouts: dict[str, object] = {}
        """Topologies laid over these nodes, by name (`topology.layout_of` keeps them here)."""
        self._features: dict[str, int] = {}
        for index, spec in enumerate(self.specs):
            for name in set(spec.gpus):
                self.typed[name] = self.typed.get(name, 0) | 1 << index
            for name in spec.features:
                self._features[name] = self._features.get(name, 0) | 1 << index

    def nodes_with(self, feature: str) -> int:
        """Give the bitmap of the nodes that have a feature."""
        return self._features.get(feature, 0)

    def has_feature(self, feature: str) -> bool:
        """Tell whether any node has it."""
        return feature in self._features

    def per_node(self, by_kind: Sequence[int]) -> Column:
        """Spread values by kind into a column over nodes."""
        if self.small:
            return [by_kind[kind] for kind in self.kind]
        spread: Ints = np.array(by_kind, np.int64)[self.kind_column]
        return spread

    def capacity(self, without: int = 0) -> View:
        """Give the view of an empty cluster; nodes of the bitmap `without` cannot be used."""
        view = View(
            self.per_node([kind.cpus for kind in self.kinds]),
            self.per_node([kind.memory_mib for kind in self.kinds]),
            [self.per_node([kind.gpus[at] for kind in self.kinds]) for at in range(1 + len(self.types))],
        )
        view.close(without)
        return view

    def gpu_counts(self, node: int, bits: int) -> tuple[int, ...]:
        """Count GPUs of a bitmap by column."""
        if not self.types:
            return (bits.bit_count(),)
        counts = dict.fromkeys(self.types, 0)
        types = self.kinds[self.kind[node]].gpu_types
        for index in members(bits):
            if types[index]:
                counts[types[index]] += 1
        return (bits.bit_count(), *counts.values())


class View:
    """What is free on each node at one moment, as counts. A node that cannot be used has CLOSED CPUs."""

    __slots__ = ("cpus", "gpus", "memory")

    def __init__(self, cpus: Column, memory: Column, gpus: list[Column]) -> None:
        self.cpus = cpus
        self.memory = memory
        self.gpus = gpus

    def copy(self) -> View:
        """Give a copy that can be changed."""
        return View(self.cpus.copy(), self.memory.copy(), [column.copy() for column in self.gpus])

    def total_cpus(self) -> int:
        """Sum up the free CPUs."""
        if isinstance(self.cpus, list):
            return sum(count for count in self.cpus if count > 0)
        return int(np.maximum(self.cpus, 0).sum())

    def close(self, nodes: int) -> None:
        """Make the nodes of a bitmap unusable."""
        for node in members(nodes):
            self.cpus[node] = CLOSED


def free_view(fleet: Fleet, free: FreeTable, closed: int) -> View:
    """Give the view of what is free now, without the nodes of the bitmap `closed`."""
    gpus: list[Column]
    if fleet.small:
        gpus = [free.gpu_count.tolist()]
        view = View(free.cpus.tolist(), free.memory.tolist(), gpus)
    else:
        gpus = [free.gpu_count.astype(np.int64)]
        view = View(free.cpus.astype(np.int64), free.memory.copy(), gpus)
    if fleet.types:
        by_type = [fleet.gpu_counts(node, bits)[1:] for node, bits in enumerate(free.gpus)]
        for at in range(len(fleet.types)):
            column = [counts[at] for counts in by_type]
            gpus.append(column if fleet.small else np.array(column, np.int64))
    if closed:
        view.close(closed)
    return view


def bitmap(indexes: Iterable[int]) -> int:
    """Give an integer with these bits set."""
    bits = 0
    for index in indexes:
        bits |= 1 << index
    return bits


def members(bits: int) -> list[int]:
    """Give the set bits of a bitmap in ascending order."""
    if bits < 1 << SMALL:
        found = []
        while bits:
            low = bits & -bits
            found.append(low.bit_length() - 1)
            bits ^= low
        return found
    raw = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), np.uint8)
    listed: list[int] = np.flatnonzero(np.unpackbits(raw, bitorder="little")).tolist()
    return listed


def _kind(spec: NodeSpec, types: tuple[str, ...]) -> Kind:
    cores = core_count(spec)
    per_socket = spec.cores_per_socket
    if per_socket * spec.sockets != cores:  # CPUs= alone: no geometry to keep to.
        per_socket = cores
    one = (1 << per_socket) - 1
    return Kind(
        cpus=spec.cpus,
        threads=cpus_per_core(spec),
        cores=cores,
        memory_mib=spec.memory_mib,
        tmp_mib=spec.tmp_mib,
        gpus=(len(spec.gpus), *(spec.gpus.count(name) for name in types)),
        gpu_types=spec.gpus,
        sockets=tuple(one << first for first in range(0, cores, per_socket)),
    )

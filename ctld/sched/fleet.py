"""The nodes as the scheduler sees them: what never changes between two configurations, as columns and bitmaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctld.core import devices, ranges
from ctld.core.cluster import Node, NodeSpec, PartitionSpec, Settings
from ctld.core.devices import SHARING, Amounts
from ctld.core.free import FreeTable, core_count, cpus_per_core, selectable_cores, selectable_cpus, selectable_memory
from ctld.core.model import UNLIMITED, NodeShare

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
    """That jobs may have, as the next two and the memory."""
    threads: int
    """CPUs that come with one core."""
    cores: int
    memory_mib: int
    tmp_mib: int
    gpus: tuple[int, ...]
    """What an empty node has by column of the fleet: GPUs of any type, of each type of `Fleet.types`, and what else
    is counted (`Fleet.columns`)."""
    gpu_types: tuple[str, ...]
    """Type by GPU index."""
    sockets: tuple[int, ...]
    """Bitmap of the cores of each socket that jobs may have."""
    socket_count: int
    """Sockets and cores of a socket as configured, for requests that name them."""
    socket_cores: int
    gpu_cores: tuple[int, ...]
    """By GPU index the bitmap of the cores near it, 0: none is nearer; empty when that holds for all."""
    links: tuple[tuple[int, ...], ...]
    """By GPU index the links to each GPU; empty unless all are known."""
    restricted: int
    """Bitmap of the cores that only jobs with GPUs may have."""
    shares: tuple[tuple[tuple[int, ...], int], ...]
    """(columns, shares of one GPU) of each resource that is a part of GPUs."""
    whole: Amounts
    """Other generic resources, as `ctld.core.devices` keeps them."""
    fixed: tuple[tuple[str, str, int], ...]
    """(name, type, count) of resources that are not used up."""
    spec: NodeSpec
    """One node of the kind."""


class Fleet:
    """Static columns of all nodes; made anew when the configuration of any node changes, or what of partitions and
    settings has columns of its own (`rules`)."""

    def __init__(
        self,
        nodes: Sequence[Node],
        small: int = SMALL,
        settings: Settings | None = None,
        partitions: Iterable[PartitionSpec] = (),
    ) -> None:
        self.specs = [node.spec for node in nodes]
        flags = settings.select_flags if settings is not None else ()
        partitions = tuple(partitions)
        self.rules = rules(settings, partitions)
        """What it was made of beside the nodes."""
        self.by_socket = "cr_socket" in flags
        """Whole sockets are allocated."""
        self.block = "cr_core_default_dist_block" in flags
        """Cores are taken socket by socket, not from all sockets in turn."""
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
        others = sorted({
            name
            for spec in self.specs
            for one in spec.devices
            if one.name != "gpu" and not one.no_consume
            for name in devices.names(one)
        })  # fmt: skip
        self.capped = {one.name: one for one in partitions if one.max_cpus_per_node != UNLIMITED}
        """Partitions that may use only a part of a node's CPUs."""
        self.sharing = {one.name: one for one in partitions if one.oversubscribe_jobs > 1}
        """Partitions whose jobs may share cores."""
        self.restricted = any(spec.restricted_cores_per_gpu and spec.gpus for spec in self.specs)
        self.columns: tuple[str, ...] = (
            "gpu",
            *(f"gpu:{name}" for name in self.types),
            *others,
            *(f"cpus@{name}" for name in self.capped),
            *(f"rows@{name}" for name in self.sharing),
            *(("open",) if self.restricted else ()),
        )
        """What is counted beside CPUs and memory. `cpus@P`: CPUs that jobs of partition P may have; `rows@P`: CPUs
        for jobs of P that share cores, each as often as it may be had; `open`: CPUs for jobs without GPUs."""
        self.width = len(self.columns)
        self.column = {name: at for at, name in enumerate(self.columns)}
        self._nothing = (0,) * self.width
        limited = [(frozenset(one.nodes), one) for one in (*self.capped.values(), *self.sharing.values())]
        self.kinds: list[Kind] = []
        self.kind: list[int] = []
        """Kind number of each node."""
        known: dict[tuple[object, ...], int] = {}
        for index, spec in enumerate(self.specs):
            inside = tuple(one.name for members_of, one in limited if index in members_of)
            key = (
                spec.cpus, spec.sockets, spec.cores_per_socket, spec.threads_per_core,
                spec.memory_mib, spec.tmp_mib, spec.gpus, spec.devices, spec.core_spec_count, spec.cpu_spec_list,
                spec.memory_spec_mib, spec.restricted_cores_per_gpu, inside,
            )  # fmt: skip
            if key not in known:
                known[key] = len(self.kinds)
                self.kinds.append(self._kind(spec, inside))
            self.kind.append(known[key])
        self.kind_column = np.array(self.kind, np.int64)
        self.kind_bits = [
            bitmap(np.flatnonzero(self.kind_column == number).tolist()) for number in range(len(self.kinds))
        ]
        """By kind the bitmap of its nodes."""
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
            [self.per_node([kind.gpus[at] for kind in self.kinds]) for at in range(self.width)],
        )
        view.close(without)
        return view

    def counts_of(self, share: NodeShare, partition: str = "") -> tuple[int, ...]:
        """Count what a share takes by column. Of what jobs have together (a GPU in shares, cores in rows) the share
        that had it first counts for the whole."""
        if self.width == 1:
            return (ranges.count(share.gpus),) if share.gpus else self._nothing
        counts = [0] * self.width
        if share.gpus:
            self._count_gpus(counts, share.node, ranges.to_bitmap(share.gpus))
        column = self.column
        for one in share.gres:
            for name in devices.names(one):
                if name in column:
                    counts[column[name]] += one.count
            if one.opens and one.name in SHARING:
                bits = ranges.to_bitmap(one.indices)
                counts[0] += bits.bit_count()
                self._count_types(counts, share.node, bits)
        if partition in self.capped:
            counts[column[f"cpus@{partition}"]] = share.cpus
        for name, other in self.sharing.items():
            counts[column[f"rows@{name}"]] = share.cpus * (1 if share.row and name == partition else _rows(other))
        if self.restricted:
            kind = self.kinds[self.kind[share.node]]
            open_cores = ranges.to_bitmap(share.cores) & ~kind.restricted
            counts[column["open"]] = open_cores.bit_count() * kind.threads
        return tuple(counts)

    def _count_gpus(self, counts: list[int], node: int, bits: int) -> None:
        """Count whole GPUs, which take all shares of theirs with them."""
        counts[0] += bits.bit_count()
        self._count_types(counts, node, bits)
        for one in self.specs[node].devices:
            if one.each:
                mine = (bits >> one.first & ((1 << one.count) - 1)).bit_count() * one.each
                for name in devices.names(one):
                    counts[self.column[name]] += mine

    def _count_types(self, counts: list[int], node: int, bits: int) -> None:
        if not self.types:
            return
        types = self.kinds[self.kind[node]].gpu_types
        for index in members(bits):
            # A running job may have more GPUs than the node is now configured with.
            if index < len(types) and types[index]:
                counts[self.column[f"gpu:{types[index]}"]] += 1

    def free_counts(self, node: int, cores: int, gpus: int, *, more: Amounts, rows: dict[str, list[int]]) -> list[int]:
        """Count by column what is free on a node.

        Args:
            cores, gpus: bitmaps of what is nobody's.
            more: other generic resources.
            rows: cores by watched partition (`FreeTable.rows`).
        """
        counts = [0] * self.width
        kind = self.kinds[self.kind[node]]
        counts[0] = gpus.bit_count()
        self._count_types(counts, node, gpus)
        column = self.column
        for one in kind.spec.devices:
            if one.name == "gpu" or one.no_consume:
                continue
            if one.each:
                amount = 0
                for gpu in range(one.first, one.first + one.count):
                    left = more[f"{one.name}@{gpu}"]
                    if left < one.each or gpus >> gpu & 1:
                        amount += left
            elif one.first >= 0:
                amount = (more[one.name] >> one.first & ((1 << one.count) - 1)).bit_count()
            else:
                amount = more[f"{one.name}:{one.type}"]
            for name in devices.names(one):
                counts[column[name]] += amount
        for name in self.capped:
            at = column[f"cpus@{name}"]
            counts[at] = kind.gpus[at] - rows.get(name, (0,))[0].bit_count() * kind.threads if kind.gpus[at] else 0
        for name, partition in self.sharing.items():
            at = column[f"rows@{name}"]
            if kind.gpus[at]:
                mine = rows.get(name, [0])[1:]
                among = cores
                for row in mine:
                    among |= row
                used = sum(row.bit_count() for row in mine)
                counts[at] = (among.bit_count() * _rows(partition) - used) * kind.threads
        if self.restricted:
            counts[column["open"]] = (cores & ~kind.restricted).bit_count() * kind.threads
        return counts

    def _kind(self, spec: NodeSpec, inside: tuple[str, ...]) -> Kind:
        """Describe the hardware of a node that is in these partitions."""
        every = core_count(spec)
        per_socket = spec.cores_per_socket
        sockets = spec.sockets
        if per_socket * sockets != every:  # CPUs= alone: no geometry to keep to.
            per_socket, sockets = every, 1
        one_socket = (1 << per_socket) - 1
        usable = selectable_cores(spec)
        cpus = selectable_cpus(spec)
        gpu_cores = _gpu_cores(spec)
        restricted = _restricted(spec, gpu_cores, usable)
        threads = cpus_per_core(spec)
        amounts = dict.fromkeys(self.columns, 0)
        amounts["gpu"] = len(spec.gpus)
        for name in self.types:
            amounts[f"gpu:{name}"] = spec.gpus.count(name)
        for one in spec.devices:
            if one.name != "gpu" and not one.no_consume:
                for name in devices.names(one):
                    amounts[name] += devices.size(one)
        for name in inside:
            if name in self.capped:
                amounts[f"cpus@{name}"] = min(cpus, self.capped[name].max_cpus_per_node)
            if name in self.sharing:
                amounts[f"rows@{name}"] = cpus * _rows(self.sharing[name])
        if self.restricted:
            amounts["open"] = (usable & ~restricted).bit_count() * threads
        return Kind(
            cpus=cpus,
            threads=threads,
            cores=usable.bit_count(),
            memory_mib=selectable_memory(spec),
            tmp_mib=spec.tmp_mib,
            gpus=tuple(amounts.values()),
            gpu_types=spec.gpus,
            sockets=tuple(one_socket << first & usable for first in range(0, every, per_socket)),
            socket_count=sockets,
            socket_cores=per_socket,
            gpu_cores=gpu_cores,
            links=_links(spec),
            restricted=restricted,
            shares=tuple(
                (
                    tuple(self.column[name] for name in devices.names(one) if name in self.column),
                    one.each,
                )
                for one in spec.devices
                if one.each
            ),
            whole=devices.capacity(spec),
            fixed=tuple((one.name, one.type, devices.size(one)) for one in spec.devices if one.no_consume),
            spec=spec,
        )


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
    if fleet.width > 1:
        none: dict[str, list[int]] = {}
        rows = free.rows or [none] * fleet.size
        counted = [
            fleet.free_counts(node, free.cores[node], bits, more=free.more[node], rows=rows[node])
            for node, bits in enumerate(free.gpus)
        ]
        for at in range(1, fleet.width):
            column = [counts[at] for counts in counted]
            gpus.append(column if fleet.small else np.array(column, np.int64))
    if closed:
        view.close(closed)
    return view


def bitmap(indexes: Iterable[int]) -> int:
    """Give an integer with these bits set."""
    found = list(indexes)
    if len(found) > SMALL:
        flags = np.zeros(max(found) + 1, np.bool_)
        flags[found] = True
        return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
    bits = 0
    for index in found:
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
    listed: list[int] = np.unpackbits(raw, bitorder="little").nonzero()[0].tolist()
    return listed


def rules(settings: Settings | None, partitions: Iterable[PartitionSpec]) -> tuple[object, ...]:
    """Give what of settings and partitions a fleet depends on, to see whether it must be made anew."""
    flags = settings.select_flags if settings is not None else ()
    limited = tuple(one for one in partitions if one.oversubscribe_jobs > 1 or one.max_cpus_per_node != UNLIMITED)
    return flags, limited


def _rows(partition: PartitionSpec) -> int:
    return partition.oversubscribe_jobs


def _gpu_cores(spec: NodeSpec) -> tuple[int, ...]:
    """Give by GPU index the cores near it."""
    found = [0] * len(spec.gpus)
    for one in spec.devices:
        if one.name == "gpu" and one.cores and one.first >= 0:
            near = ranges.to_bitmap(one.cores)
            for gpu in range(one.first, min(one.first + one.count, len(found))):
                found[gpu] = near
    return tuple(found) if any(found) else ()


def _links(spec: NodeSpec) -> tuple[tuple[int, ...], ...]:
    """Give the matrix of links between GPUs, if it is whole."""
    size = len(spec.gpus)
    found: list[tuple[int, ...]] = [()] * size
    for one in spec.devices:
        if one.name == "gpu" and one.count == 1 and 0 <= one.first < size and len(one.links) == size:
            found[one.first] = one.links
    return tuple(found) if all(found) else ()


def _restricted(spec: NodeSpec, gpu_cores: tuple[int, ...], usable: int) -> int:
    """Give the cores that only jobs with GPUs may have: of each GPU in turn the lowest ones near it."""
    bits = 0
    for gpu in range(len(spec.gpus)) if spec.restricted_cores_per_gpu else ():
        near = usable & (gpu_cores[gpu] if gpu_cores and gpu_cores[gpu] else usable) & ~bits
        bits |= ranges.lowest_bits(near, spec.restricted_cores_per_gpu)
    return bits

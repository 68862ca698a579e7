"""Generic resources of a node other than whole GPUs, as a table of free amounts by key.

Keys: `name` a bitmap of devices that have indexes, `name:type` a count of what is only counted, `name@3` the free
shares of GPU 3 (shards and their like). What a node does not have has no key, and is neither taken nor given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ctld.core import ranges
from ctld.core.cluster import Device, NodeSpec, PartitionSpec
from ctld.core.model import GresRequest, GresShare

SHARING = ("shard", "mps")
"""Resources that are parts of GPUs: a GPU is given whole or in shares, never both."""
Amounts = dict[str, int]
NOTHING: Amounts = {}
"""The table of a node that has none of these; never changed."""


def capacity(spec: NodeSpec) -> Amounts:
    """Give the table of an empty node."""
    found: Amounts = {}
    for one in spec.devices:
        if one.name == "gpu" or one.no_consume:
            continue
        if one.each:
            for gpu in range(one.first, one.first + one.count):
                found[f"{one.name}@{gpu}"] = one.each
        elif one.first >= 0:
            found[one.name] = found.get(one.name, 0) | ((1 << one.count) - 1) << one.first
        else:
            key = f"{one.name}:{one.type}"
            found[key] = found.get(key, 0) + one.count
    return found or NOTHING


def shared_gpus(shares: Iterable[GresShare]) -> int:
    """Give the bitmap of the GPUs of which these have parts."""
    bits = 0
    for one in shares:
        if one.name in SHARING:
            bits |= ranges.to_bitmap(one.indices)
    return bits


def take(table: Amounts, shares: Iterable[GresShare]) -> None:
    """Take shares off a table."""
    for one in shares:
        for key, amount in _keys(one):
            if key in table:
                table[key] = table[key] - amount if one.name in SHARING or not one.indices else table[key] & ~amount


def give(table: Amounts, shares: Iterable[GresShare], whole: Mapping[str, int]) -> None:
    """Put back what `take` took; `whole` is the node's capacity, beyond which no device comes back."""
    for one in shares:
        for key, amount in _keys(one):
            if key not in table:
                continue
            if one.name in SHARING or not one.indices:
                table[key] += amount
            else:
                table[key] |= amount & whole[key]


def in_parts(table: Mapping[str, int], whole: Mapping[str, int], gpu: int) -> bool:
    """Tell whether a GPU is held in shares."""
    return any(table[key] < whole[key] for key in (f"{name}@{gpu}" for name in SHARING) if key in table)


def holds(table: Mapping[str, int], whole: Mapping[str, int], gpus: int, shares: Iterable[GresShare]) -> bool:
    """Tell whether shares can be taken. `gpus`: the GPUs that are nobody's."""
    needed: Amounts = {}
    for one in shares:
        for key, amount in _keys(one):
            if key not in table:
                return False
            if one.name in SHARING:
                gpu = one.indices[0]
                # A GPU that is somebody's and yet has all its shares is held whole, or in shares of another name.
                if table[key] == whole[key] and not gpus >> gpu & 1:
                    return False
                needed[key] = needed.get(key, 0) + amount
            elif one.indices:
                if table[key] & amount != amount or needed.get(key, 0) & amount:
                    return False
                needed[key] = needed.get(key, 0) | amount
                continue
            else:
                needed[key] = needed.get(key, 0) + amount
            if needed[key] > table[key]:
                return False
    return True


def counted(spec: NodeSpec, name: str, kind: str = "") -> int:
    """Count what a node has of a resource by configuration; `kind` empty: of all types. Shares count one by one."""
    if name == "gpu":
        return spec.gpus.count(kind) if kind else len(spec.gpus)
    return sum(size(one) for one in spec.devices if one.name == name and (not kind or one.type == kind))


def names(one: Device | GresRequest | GresShare) -> tuple[str, ...]:
    """Give the names under which a resource is counted: without its type and, where it has one, with it."""
    return (one.name, f"{one.name}:{one.type}") if one.type else (one.name,)


def size(device: Device) -> int:
    """Count what a group of devices is worth: devices, or shares of all its GPUs."""
    return device.count * device.each if device.each else device.count


def rows_of(partition: PartitionSpec | None, asked: bool) -> int:
    """Give how many jobs may have the same cores: the partition's OverSubscribe=, which with YES the job must ask
    for; 0: the cores are a job's alone."""
    if partition is None or partition.oversubscribe_jobs < 2:
        return 0
    if partition.oversubscribe == "FORCE" or (partition.oversubscribe == "YES" and asked):
        return partition.oversubscribe_jobs
    return 0


def _keys(one: GresShare) -> list[tuple[str, int]]:
    """Give (key, amount or bitmap) of a share."""
    if one.name in SHARING:
        return [(f"{one.name}@{one.indices[0]}", one.count)] if one.indices else []
    if one.indices:
        return [(one.name, ranges.to_bitmap(one.indices))]
    return [(f"{one.name}:{one.type}", one.count)]

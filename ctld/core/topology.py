"""Which topology a partition has, what its levels are called, and what a request asks of it."""

from __future__ import annotations

from ctld.core import ranges
from ctld.core.cluster import PartitionSpec, Settings, TopologySpec
from ctld.core.model import Ranges, Request
from muster.topology_levels import Wish, level_number, read_wish, unavailable

FLAT = TopologySpec()


def topology_of(settings: Settings, partition: PartitionSpec) -> TopologySpec:
    """Give the topology of a partition; flat when there is none."""
    for one in settings.topologies:
        if not partition.topology or one.name == partition.topology:
            return one
    return FLAT


def level_name(spec: TopologySpec, level: int) -> str:
    """Give the name of a level, its number where it has none."""
    place = len(spec.levels) - 1 - level
    return spec.levels[place] if 0 <= place < len(spec.levels) else str(level)


def wish_of(partition: PartitionSpec, request: Request) -> Wish:
    """Give what a request wishes in a partition: its own word, else the partition's DefaultTopology."""
    return read_wish(request.topology or partition.default_topology)


def domains_of(spec: TopologySpec, level: int) -> list[Ranges]:
    """Give the nodes of each domain of a level of a topology that is not flat."""
    if spec.kind == "tree":
        above = {child: switch.level for switch in spec.switches for child in switch.switches}
        mine = [one for one in spec.switches if one.level <= level and above.get(one.name, level + 1) > level]
        return [one.nodes for one in mine]
    if spec.kind == "ring":
        return [ring.nodes for ring in spec.blocks]
    shift = (spec.block_sizes[level] // spec.block_sizes[0]).bit_length() - 1
    found: dict[int, Ranges] = {}
    for number, block in enumerate(spec.blocks):
        found[number >> shift] = ranges.union(found.get(number >> shift, ()), block.nodes)
    return list(found.values())


def check_request(settings: Settings, partition: PartitionSpec, request: Request) -> None:
    """Refuse what the topology of a partition can never give.

    Raises:
        InvalidInput: an unknown level, one whose domains are all too small, or segments that do not make up the job.
    """
    if not (request.topology or partition.default_topology or request.segment):
        return
    spec = topology_of(settings, partition)
    wish = wish_of(partition, request)
    if wish.level:
        level = level_number(spec, wish.level)
        if wish.mode == "required":
            _check_size(spec, level, partition, request.nodes_min, f"--topology={wish.mode}:{wish.level}")
    if request.segment and spec.kind == "flat":
        raise unavailable(f"partition {partition.name} has no topology, and so no segments: leave --segment out")
    if request.segment_level:
        level = level_number(spec, request.segment_level)
        together = min(request.segment, request.nodes_min)
        option = f"--segment={request.segment}:required:{request.segment_level}"
        _check_size(spec, level, partition, together, option)
    if request.segment and request.nodes_min > request.segment:
        sizes = {request.nodes_min, request.nodes_max or request.nodes_min}
        if any(size % request.segment for size in sizes):
            size = max(sizes)
            raise unavailable(
                f"--segment={request.segment} does not fit the job size ({size}): "
                "node count must be evenly divisible by segment size"
            )


def _check_size(spec: TopologySpec, level: int, partition: PartitionSpec, nodes: int, option: str) -> None:
    """Refuse more nodes in one domain than any domain of the level has in the partition."""
    inside = ranges.from_ints(partition.nodes)
    largest = max((ranges.count(ranges.intersection(one, inside)) for one in domains_of(spec, level)), default=0)
    if nodes > largest:
        raise unavailable(
            f"{option} cannot have {nodes} nodes: the largest domain of that level has {largest} of "
            f"partition {partition.name}"
        )

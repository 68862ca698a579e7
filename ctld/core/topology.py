"""Which topology a partition has, what its levels are called, and what a request asks of it."""

from __future__ import annotations

from ctld.core.cluster import PartitionSpec, Settings, TopologySpec
from ctld.core.model import Request
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


def check_request(settings: Settings, partition: PartitionSpec, request: Request) -> None:
    """Refuse what the topology of a partition can never give.

    Raises:
        InvalidInput: an unknown level, or segments that do not make up the job.
    """
    if not (request.topology or request.segment or request.switches):
        return
    spec = topology_of(settings, partition)
    wish = read_wish(request.topology)
    if wish.level:
        level_number(spec, wish.level)
    if request.segment_level:
        level_number(spec, request.segment_level)
    if request.segment and spec.kind != "flat" and request.nodes_min > request.segment:
        sizes = {request.nodes_min, request.nodes_max or request.nodes_min}
        if any(size % request.segment for size in sizes):
            size = max(sizes)
            raise unavailable(
                f"--segment={request.segment} does not fit the job size ({size}): "
                "node count must be evenly divisible by segment size"
            )

"""Topologies for tests: trees and blocks written by size, and picking nodes where some are free."""

from __future__ import annotations

from ctld.core import ranges
from ctld.core.cluster import BlockSpec, Settings, SwitchSpec, TopologySpec
from ctld.core.model import Ranges, Request
from ctld.core.state import State
from ctld.sched.demand import Demand, demand_of
from ctld.sched.fleet import SMALL, Fleet, View
from ctld.sched.select import choose
from tests.builders import a_partition, a_state


def a_tree(*pods: tuple[int, ...], levels: tuple[str, ...] = ()) -> TopologySpec:
    """Leaves s0, s1, ... of these sizes over the nodes in order; with several pods each has a switch of level 1, and
    all hang below `top`."""
    leaves: list[SwitchSpec] = []
    upper: list[SwitchSpec] = []
    node = 0
    for number, pod in enumerate(pods):
        mine = []
        first = node
        for size in pod:
            mine.append(SwitchSpec(f"s{len(leaves)}", 0, (node, node + size - 1)))
            leaves.append(mine[-1])
            node += size
        if len(pods) > 1:
            upper.append(SwitchSpec(f"pod{number}", 1, (first, node - 1), tuple(one.name for one in mine)))
    below = tuple(one.name for one in upper or leaves)
    top = SwitchSpec("top", 2 if upper else 1, (0, node - 1), below)
    return TopologySpec(kind="tree", switches=(*leaves, *upper, top), levels=levels)


def blocks(count: int, size: int, sizes: tuple[int, ...], levels: tuple[str, ...] = ()) -> TopologySpec:
    """Base blocks b1, b2, ... of `size` nodes each."""
    made = tuple(BlockSpec(f"b{one + 1}", (one * size, one * size + size - 1)) for one in range(count))
    return TopologySpec(kind="block", blocks=made, block_sizes=sizes, levels=levels)


class Stage:
    """A cluster of equal nodes under a topology, with some of them free."""

    def __init__(self, topology: TopologySpec | None, count: int, *, small: int = SMALL, **settings: object) -> None:
        topologies = (topology,) if topology is not None else ()
        given = Settings(require_registration=False, topologies=topologies, **settings)  # type: ignore[arg-type]
        self.state: State = a_state(count, cpus=8, gpus=8, memory_mib=1000, settings=given)
        self.fleet = Fleet(self.state.nodes, small)
        self.partition = a_partition(nodes=count)

    def demand(self, **request: object) -> Demand:
        """Lay a request for whole nodes over the cluster; `nodes` sets fewest and most."""
        nodes = request.pop("nodes", None)
        if nodes is not None:
            request["nodes_min"] = request["nodes_max"] = nodes
        if not {"ntasks", "cpus_per_task", "exclusive"} & request.keys():
            request["exclusive"] = "node"
        return demand_of(self.fleet, self.state.settings, self.partition, Request(**request))  # type: ignore[arg-type]

    def view(self, free: str) -> View:
        """Make a view of `1-3,8` free and all other nodes closed."""
        bits = ranges.to_bitmap(hosts(free))
        return self.fleet.capacity(self.fleet.everything & ~bits)

    def chosen(self, free: str, **request: object) -> str:
        """Choose nodes out of the free ones; gives `4-7`, or "none"."""
        picks = choose(self.demand(**request), self.view(free))
        return shown(picks)


def hosts(text: str) -> Ranges:
    """Read `1-3,8`."""
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return ranges.from_ints(numbers)


def shown(picks: list[tuple[int, int, int]] | None) -> str:
    """Print the nodes of picks."""
    if picks is None:
        return "none"
    flat = ranges.from_ints(pick[0] for pick in picks)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs)

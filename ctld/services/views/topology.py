"""Topologies as `scontrol show topology` tells of them: switches and blocks with the nodes below them."""

from __future__ import annotations

from typing import Any

from ctld.core import ranges
from ctld.core.cluster import TopologySpec
from ctld.core.model import Ranges
from ctld.core.state import State
from muster import hostlist


def topologies(state: State) -> list[dict[str, Any]]:
    """Give every topology: name, kind, and its units from the leaves (or base blocks) up."""
    return [
        {"name": one.name, "kind": one.kind, "units": _switches(state, one) if one.switches else _blocks(state, one)}
        for one in state.settings.topologies
    ]


def _switches(state: State, topology: TopologySpec) -> list[dict[str, Any]]:
    return [
        {
            "name": switch.name,
            "level": switch.level,
            "nodes": _names(state, switch.nodes),
            "switches": hostlist.compress(switch.switches),
        }
        for switch in sorted(topology.switches, key=lambda one: one.level)
    ]


def _blocks(state: State, topology: TopologySpec) -> list[dict[str, Any]]:
    size = topology.block_sizes[0] if topology.block_sizes else 0
    return [
        {"name": block.name, "index": index, "nodes": _names(state, block.nodes), "size": size}
        for index, block in enumerate(topology.blocks)
    ]


def _names(state: State, nodes: Ranges) -> str:
    return hostlist.compress([state.nodes[index].spec.name for index in ranges.numbers(nodes)])

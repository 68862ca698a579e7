"""A topology laid over the nodes of a fleet: for each level the domain of every node, as columns.

Level 0 has the finest domains (leaf switches, base blocks, rings), the last level the whole trees. The domain of a node
at level L of a switch tree is its highest switch of level L or lower, so that the domains of a level never overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ctld.core import ranges
from ctld.core.cluster import PartitionSpec, Settings, TopologySpec
from ctld.core.model import Ranges
from ctld.core.topology import FLAT, topology_of
from ctld.sched.fleet import Fleet, Ints


class Layout:
    """The domains of the nodes."""

    __slots__ = ("below", "depth", "domain", "names", "root", "spans", "spec", "up")

    def __init__(self, spec: TopologySpec, size: int) -> None:
        self.spec = spec
        chains = _tree_chains(spec) if spec.kind == "tree" else _block_chains(spec)
        self.depth = len(chains[0].path) if chains else 1
        """Levels."""
        self.up: list[Ints] = []
        """By level: the domain of each domain of level 0."""
        self.names: list[list[str]] = []
        """By level: the names of the domains."""
        for level in range(self.depth):
            known: dict[str, int] = {}
            column = [known.setdefault(chain.path[level], len(known)) for chain in chains]
            self.up.append(np.array(column, np.int64))
            self.names.append(list(known))
        leaf: Ints = np.full(size, -1, np.int64)
        for number in range(len(chains) - 1, -1, -1):  # A node of two leaves counts for the first.
            nodes = np.fromiter(ranges.numbers(chains[number].nodes), np.int64)
            leaf[nodes[nodes < size]] = number
        self.domain: list[Ints] = []
        """By level: the domain of each node, -1 where it has none."""
        outside = leaf < 0
        for level in range(self.depth):
            column_of: Ints = np.where(outside, -1, self.up[level][leaf] if chains else -1)
            self.domain.append(column_of)
        self.root = self.domain[-1]
        """The tree of each node: no job spans two of them."""
        self.spans = len(self.names[-1]) > 1 or bool(outside.any())
        """There are nodes that share no tree."""
        self.below = [np.bincount(column[column >= 0], minlength=1) for column in self.domain]
        """By level: how many nodes each domain has."""

    def leaves_of(self, nodes: Sequence[int]) -> int:
        """Count the domains of level 0 that these nodes lie in; those outside of all count as one each."""
        column = self.domain[0]
        found = [int(column[node]) for node in nodes]
        return len({leaf for leaf in found if leaf >= 0}) + sum(leaf < 0 for leaf in found)

    def level_for(self, nodes: int) -> int:
        """Give the finest level that has a domain of so many nodes."""
        for level, sizes in enumerate(self.below):
            if int(sizes.max()) >= nodes:
                return level
        return self.depth - 1

    def address(self, node: int, name: str) -> tuple[str, str]:
        """Give SLURM_TOPOLOGY_ADDR and its pattern for a node."""
        if self.domain[0][node] < 0:
            return name, "node"
        word = "switch" if self.spec.kind == "tree" else self.spec.kind
        path = [self.names[level][int(self.domain[level][node])] for level in range(self.depth - 1, -1, -1)]
        path = list(dict.fromkeys(path))
        return ".".join([*path, name]), ".".join([*[word] * len(path), "node"])


class _Chain:
    """A domain of level 0 with its nodes and the names of its domains by level."""

    __slots__ = ("nodes", "path")

    def __init__(self, nodes: Ranges, path: list[str]) -> None:
        self.nodes = nodes
        self.path = path


def layout_of(fleet: Fleet, settings: Settings, partition: PartitionSpec) -> Layout | None:
    """Give the layout of a partition's topology, None for a flat one; made once for each fleet."""
    spec = topology_of(settings, partition)
    if spec.kind == FLAT.kind:
        return None
    known = fleet.layouts.get(spec.name)
    if isinstance(known, Layout) and known.spec == spec:
        return known
    made = Layout(spec, fleet.size)
    fleet.layouts[spec.name] = made
    return made


def _tree_chains(spec: TopologySpec) -> list[_Chain]:
    """The leaves, each with its highest ancestor of every level; of several parents the first counts."""
    parent: dict[str, str] = {}
    for switch in spec.switches:
        for child in switch.switches:
            parent.setdefault(child, switch.name)
    level = {switch.name: switch.level for switch in spec.switches}
    levels = 1 + max(level.values(), default=0)
    chains = []
    for switch in spec.switches:
        if switch.switches:
            continue
        path, at = [], switch.name
        for number in range(levels):
            while at in parent and level[parent[at]] <= number:
                at = parent[at]
            path.append(at)
        chains.append(_Chain(switch.nodes, path))
    return chains


def _block_chains(spec: TopologySpec) -> list[_Chain]:
    """The base blocks, each with the enabled larger blocks around it; all together form one tree. A ring is its own."""
    if spec.kind == "ring":
        return [_Chain(ring.nodes, [ring.name]) for ring in spec.blocks]
    chains = []
    shifts = [(size // spec.block_sizes[0]).bit_length() - 1 for size in spec.block_sizes]
    for number, block in enumerate(spec.blocks):
        path = [block.name]
        path += [f"{spec.block_sizes[at]}x{number >> shift}" for at, shift in enumerate(shifts) if at]
        chains.append(_Chain(block.nodes, path))
    return chains

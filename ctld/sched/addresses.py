"""Where a node of a job lies, as the processes of the job are told (submit.md 6.8, beyond.md B8)."""

from __future__ import annotations

from ctld.core.cluster import TopologySpec
from ctld.core.model import Job
from ctld.core.state import State
from ctld.core.topology import level_name, topology_of
from ctld.sched.blocks import block_level
from ctld.sched.topology import Layout
from muster.errors import InvalidInput
from muster.topology_levels import level_number

_LAYOUTS: dict[str, tuple[int, Layout]] = {}
"""By topology, for so many nodes. Used only for the very records that it was made of, so that what is said does not
depend on what was asked before."""


def variables(state: State, job: Job, node: int) -> dict[str, str]:
    """Give the variables of a node of a running job: its place in the topology, the finest level in one domain of which
    all nodes of the job lie, and with --segment the number of its segment."""
    assert job.alloc is not None
    name = state.nodes[node].spec.name
    partition = state.partitions.get(job.alloc.partition)
    spec = topology_of(state.settings, partition) if partition is not None else TopologySpec()
    if spec.kind == "flat":
        return {"SLURM_TOPOLOGY_ADDR": name, "SLURM_TOPOLOGY_ADDR_PATTERN": "node"}
    layout = _layout(spec, len(state.nodes))
    address, pattern = layout.address(node, name)
    found = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    nodes = [share.node for share in job.alloc.shares]
    level = _common_level(layout, nodes)
    if level >= 0:
        found["SLURM_TOPOLOGY_LEVEL"] = level_name(spec, level)
    request = job.spec.request
    if 0 < request.segment < len(nodes):
        found["SLURM_SEGMENT_ID"] = str(_segment(layout, nodes, node, request.segment, level=request.segment_level))
    return found


def _layout(spec: TopologySpec, size: int) -> Layout:
    known = _LAYOUTS.get(spec.name)
    if known is None or known[0] != size or known[1].spec is not spec:
        known = _LAYOUTS[spec.name] = (size, Layout(spec, size))
    return known[1]


def _common_level(layout: Layout, nodes: list[int]) -> int:
    """Give the finest level with a domain that has all of the nodes; -1: there is none."""
    for level, column in enumerate(layout.domain):
        homes = {int(column[node]) for node in nodes}
        if len(homes) == 1 and homes.pop() >= 0:
            return level
    return -1


def _segment(layout: Layout, nodes: list[int], node: int, size: int, *, level: str) -> int:
    """Give the number of a node's segment. The nodes of a domain are those of whole segments, in their order, as each
    segment lies in one domain; segments are counted by their first nodes."""
    at = _segment_level(layout, size, level)
    by_domain: dict[int, list[int]] = {}
    for one in sorted(nodes):
        # Beyond the largest blocks the whole cluster is one.
        by_domain.setdefault(int(layout.domain[at][one]) if at < layout.depth else 0, []).append(one)
    segments = [inside[start : start + size] for inside in by_domain.values() for start in range(0, len(inside), size)]
    return next(number for number, segment in enumerate(sorted(segments)) if node in segment)


def _segment_level(layout: Layout, size: int, level: str) -> int:
    if level:
        try:
            return level_number(layout.spec, level)
        except InvalidInput:
            pass  # The level was taken out of the configuration since.
    return block_level(layout, size) if layout.spec.kind == "block" else layout.level_for(size)

"""Could a request ever start on the cluster as configured? The scheduler's own answer, beside which tests put that of
`ctld.core.decide.fit`, which submission asks; use and down nodes do not count."""

from __future__ import annotations

from dataclasses import dataclass

from ctld.core.cluster import PartitionSpec
from ctld.core.features import names
from ctld.core.model import Request
from ctld.core.state import State
from ctld.sched.demand import Demand, demand_of
from ctld.sched.fleet import Kind
from ctld.sched.memory import PlanMemory
from ctld.sched.needs import Amount, Impossible
from muster.errors import InvalidInput
from muster.states import Reason


@dataclass(frozen=True, slots=True)
class Never:
    """Why a request can never start in a partition."""

    reason: Reason
    """What a job would wait with for ever: BadConstraints, PartitionNodeLimit or MaxMemPerLimit."""
    sentence: str
    """What is too much, in one sentence without a full stop."""
    nearest: int = -1
    """Index of the node of the partition that comes nearest, -1 when none can be named."""


def could_ever(
    state: State, request: Request, partition: PartitionSpec, memory: PlanMemory | None = None
) -> Never | None:
    """Tell why a request can never start in a partition; None: it can.

    `memory` makes repeated questions about equal requests cheap.

    Raises:
        InvalidInput: the constraint cannot be read, or names a feature that no node has.
    """
    memory = memory or PlanMemory()
    memory.follow_config(state)
    fleet = memory.fleet
    for name in sorted(names(request.constraint)) if request.constraint.strip() else ():
        if not fleet.nodes_with(name):
            raise InvalidInput("Invalid feature specification", f"no node has the feature '{name}'")
    if isinstance(memory.demand(partition, request), Demand):
        return None
    try:
        demand = demand_of(fleet, state.settings, partition, request)
    except Impossible as error:
        return Never(error.reason, error.sentence)
    return _nearest(demand, partition)


def _nearest(demand: Demand, partition: PartitionSpec) -> Never:
    """Name the node that lacks least, and what it lacks."""
    fleet = demand.fleet
    nodes = [node for node in partition.nodes if not fleet.future >> node & 1]
    if not nodes:
        return Never(Reason.BAD_CONSTRAINTS, f"partition {partition.name} has no nodes")
    nearest = min(nodes, key=lambda node: (_lack(demand, node), node))
    kind = fleet.kinds[fleet.kind[nearest]]
    short = _shortages(demand, demand.least[fleet.kind[nearest]], kind)
    name = fleet.specs[nearest].name
    if short:
        return Never(Reason.BAD_CONSTRAINTS, f"{' and '.join(short)} (nearest node {name})", nearest)
    able = len({node for alternative in demand.alternatives for node in alternative.nodes})
    need = demand.need
    return Never(
        Reason.BAD_CONSTRAINTS,
        f"{need.nodes} to {need.nodes_max} nodes are needed and {able} nodes of partition {partition.name} that "
        "match the request do not suffice for all tasks and GPUs together",
        nearest,
    )


def _lack(demand: Demand, node: int) -> float:
    """Sum up by what share a node falls short of the smallest share of the job."""
    fleet = demand.fleet
    kind = fleet.kinds[fleet.kind[node]]
    cpus, memory, gpus = demand.least[fleet.kind[node]]
    pairs = [(cpus, kind.cpus), (memory, kind.memory_mib), (demand.need.tmp_mib, kind.tmp_mib)]
    pairs += list(zip(gpus, kind.gpus, strict=True))
    lack = sum(1 - have / want for want, have in pairs if want > have)
    # A node outside the constraint, or of another GPU type, is farther than any shortage.
    return lack if any(choice.bits >> node & 1 for choice in demand.alternatives) or lack else 10.0


def _shortages(demand: Demand, least: Amount, kind: Kind) -> list[str]:
    short = []
    if least[0] > kind.cpus:
        short.append(f"a node must give {least[0]} CPUs and has {kind.cpus}")
    if least[1] > kind.memory_mib:
        short.append(f"a node must give {least[1]} MiB of memory and has {kind.memory_mib}")
    if least[2][0] > kind.gpus[0]:
        short.append(f"a node must give {least[2][0]} GPUs and has {kind.gpus[0]}")
    if demand.need.tmp_mib > kind.tmp_mib:
        short.append(f"a node must give {demand.need.tmp_mib} MiB of temporary disk and has {kind.tmp_mib}")
    return short

"""A partition as users see it."""

from __future__ import annotations

from collections.abc import Callable

from ctld.core import ranges
from ctld.core.cluster import PartitionSpec
from ctld.core.state import State
from ctld.services.views.jobs import Value
from ctld.services.views.nodes import configured_tres
from muster import hostlist
from muster.tres import format_tres

Field = Callable[[State, PartitionSpec], "Value | list[int]"]


def _nodes(state: State, partition: PartitionSpec) -> Value:
    return hostlist.compress([state.nodes[node].spec.name for node in partition.nodes])


def _tres(state: State, partition: PartitionSpec) -> Value:
    amounts: dict[str, int] = {}
    for node in partition.nodes:
        for name, amount in configured_tres(state.nodes[node], with_node=True).items():
            amounts[name] = amounts.get(name, 0) + amount
    return format_tres(amounts)


FIELDS: dict[str, Field] = {
    "allow_accounts": lambda state, partition: ",".join(partition.allow_accounts),
    "allow_groups": lambda state, partition: ",".join(partition.allow_groups),
    "allow_qos": lambda state, partition: ",".join(partition.allow_qos),
    "cpus": lambda state, partition: sum(state.nodes[node].spec.cpus for node in partition.nodes),
    "default": lambda state, partition: int(partition.default),
    "default_memory_per_cpu": lambda state, partition: (
        partition.def_memory_per_cpu_mib or (0 if partition.def_memory_per_node_mib else _cluster_default(state)[0])
    ),
    "default_memory_per_node": lambda state, partition: (
        partition.def_memory_per_node_mib or (0 if partition.def_memory_per_cpu_mib else _cluster_default(state)[1])
    ),
    "default_minutes": lambda state, partition: partition.default_minutes,
    "default_topology": lambda state, partition: partition.default_topology or None,
    "deny_accounts": lambda state, partition: ",".join(partition.deny_accounts),
    "deny_qos": lambda state, partition: ",".join(partition.deny_qos),
    "disable_root_jobs": lambda state, partition: int(partition.disable_root_jobs),
    "exclusive": lambda state, partition: partition.exclusive,
    "grace_seconds": lambda state, partition: partition.grace_seconds,
    "hidden": lambda state, partition: int(partition.hidden),
    "lln": lambda state, partition: int(partition.lln or state.settings.lln),
    "max_memory_per_cpu": lambda state, partition: partition.max_memory_per_cpu_mib,
    "max_memory_per_node": lambda state, partition: partition.max_memory_per_node_mib,
    "max_minutes": lambda state, partition: partition.max_minutes,
    "max_nodes": lambda state, partition: partition.max_nodes,
    "members": lambda state, partition: list(ranges.from_ints(partition.nodes)),
    "min_nodes": lambda state, partition: partition.min_nodes,
    "name": lambda state, partition: partition.name,
    "node_count": lambda state, partition: len(partition.nodes),
    "nodes": _nodes,
    "max_cpus_per_node": lambda state, partition: partition.max_cpus_per_node,
    "max_cpus_per_socket": lambda state, partition: partition.max_cpus_per_socket,
    "oversubscribe": lambda state, partition: (
        f"{partition.oversubscribe}:{partition.oversubscribe_jobs}"
        if partition.oversubscribe in ("YES", "FORCE")
        else partition.oversubscribe
    ),
    "preempt_mode": lambda state, partition: _preempt_mode(state, partition),
    "priority_job_factor": lambda state, partition: partition.priority_job_factor,
    "priority_tier": lambda state, partition: partition.priority_tier,
    "root_only": lambda state, partition: int(partition.root_only),
    "state": lambda state, partition: partition.state,
    "topology": lambda state, partition: partition.topology or None,
    "tres": _tres,
}
"""Field name -> what gives it; `members` are node indexes as flat ranges (lo, hi, lo, hi, ...)."""


def _preempt_mode(state: State, partition: PartitionSpec) -> str:
    """What becomes of its jobs when they are preempted; suspending goes with GANG."""
    mode = partition.preempt_mode or state.settings.preemption.mode
    return "GANG,SUSPEND" if mode == "SUSPEND" else mode


def _cluster_default(state: State) -> tuple[int, int]:
    return state.settings.def_memory_per_cpu_mib, state.settings.def_memory_per_node_mib

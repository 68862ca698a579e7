"""What a job asks for at least, before its nodes are chosen, and what it has got once they are."""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core.limits.check import Asked
from ctld.core.model import UNLIMITED, Job, NodeShare
from ctld.core.record import billed, billing_mode, licensed, requested_gpus, requested_size, requested_tres
from ctld.core.state import State
from muster.usage import billing

_GPU = "gres/gpu"


def least(state: State, job: Job, partition: str, limit_seconds: int, *, size: int = 1) -> Asked:
    """Give the least that a job can get: what it names, defaults filled in.

    Args:
        limit_seconds: of a run in that partition.
        size: jobs that are submitted with it.
    """
    request = job.spec.request
    amounts = requested_tres(state, job)
    where = state.partitions.get(partition)
    if where is not None and where.billing_weights:
        amounts["billing"] = int(billing(amounts, where.billing_weights, billing_mode(state.settings)))
    tasks, nodes = requested_size(request)
    most = max(1, request.nodes_max or max(nodes, tasks))
    # Licences are of no node.
    per_node = {name: -(-amount // most) for name, amount in amounts.items() if not name.startswith("license/")}
    if request.memory_per_node_mib > 0:
        per_node["mem"] = request.memory_per_node_mib
    per_node["cpu"] = max(per_node.get("cpu", 1), request.min_cpus, request.cpus_per_task)
    each = {part.type: part.count for part in request.gpus_per_node}
    if each:
        per_node[_GPU] = sum(each.values())
        per_node.update({f"{_GPU}:{kind}": count for kind, count in each.items() if kind})
    return Asked(amounts, per_node, _minutes(limit_seconds), size=size, any_time="time" in job.spec.exempt)


def given(
    state: State, job: Job, partition: str, shares: Sequence[NodeShare], limit_seconds: int, *, by_node: bool = True
) -> Asked:
    """Give what a job has with these shares; with `by_node` also what it has most of on one node."""
    where = state.partitions.get(partition)
    amounts = _asked_types(job, billed(state, shares, where, licensed(job)))
    per_node: dict[str, int] = {}
    for share in shares if by_node else ():
        for name, amount in _asked_types(job, billed(state, (share,), where, {})).items():
            if amount > per_node.get(name, 0):
                per_node[name] = amount
    nodes = tuple(share.node for share in shares)
    return Asked(amounts, per_node, _minutes(limit_seconds), nodes, any_time="time" in job.spec.exempt)


def _asked_types(job: Job, amounts: dict[str, int]) -> dict[str, int]:
    """Leave typed GPUs out unless the type was asked for: limits of a type hold for jobs that name it."""
    typed = [name for name in amounts if name.startswith(_GPU + ":")]
    if typed:
        tasks, nodes = requested_size(job.spec.request)
        named = requested_gpus(job.spec.request, nodes, tasks)
        for name in typed:
            if name.removeprefix(_GPU + ":") not in named:
                del amounts[name]
    return amounts


def _minutes(limit_seconds: int) -> int:
    return -(-limit_seconds // 60) if limit_seconds != UNLIMITED else UNLIMITED

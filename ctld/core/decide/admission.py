"""Which partitions take a job: they exist, are open to it, and (where that is enforced) allow its size and limit."""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core.cluster import PartitionSpec
from ctld.core.decide.refusals import denied, invalid, refused
from ctld.core.model import UNLIMITED, Caller, JobSpec, Request
from ctld.core.state import State
from muster.errors import MusterError
from muster.states import PartitionState


def partitions_for(state: State, names: Sequence[str]) -> list[PartitionSpec]:
    """Find the partitions named; with none named the default one.

    Raises:
        InvalidInput: an unknown name (the hint is Slurm's line `invalid partition specified: <name>` and those
            that exist), or no default.
    """
    if not names:
        for partition in state.partitions.values():
            if partition.default:
                return [partition]
        known = _listed(state)
        raise invalid(2001, f"choose one with --partition: {known}" if known else "there is none yet")
    for name in names:
        if name not in state.partitions:
            known = _listed(state)
            there = f" (there are: {known})" if known else " (there is none yet)"
            raise invalid(2000, f"invalid partition specified: {name}{there}")
    return [state.partitions[name] for name in names]


def _listed(state: State) -> str:
    return ", ".join(sorted(name for name, partition in state.partitions.items() if not partition.hidden)[:20])


def check_admission(state: State, spec: JobSpec, partitions: Sequence[PartitionSpec], caller: Caller) -> None:
    """Check that all partitions are open to the owner, that one takes jobs now, and the enforced limits.

    Raises:
        Denied, InvalidInput, Refused: in Slurm's words.
    """
    for partition in partitions:
        _check_access(state, spec, partition, caller)
    closed = [p for p in partitions if p.state in (PartitionState.DRAIN, PartitionState.INACTIVE)]
    if len(closed) == len(partitions):
        raise refused(2070, f"partition {closed[0].name} is {closed[0].state}")
    check_limits(state, spec, partitions)


def check_limits(state: State, spec: JobSpec, partitions: Sequence[PartitionSpec]) -> None:
    """Check size and time limit against the partitions, as EnforcePartLimits says: NO leaves the job waiting."""
    mode = state.settings.enforce_part_limits.upper()
    if mode == "NO":
        return
    user, account, qos = spec.user, spec.account, spec.qos
    kept = [state.limits.ruleset(user, account, qos, one.name).lifted(one) for one in partitions]
    problems = [problem for partition in kept if (problem := _over_limit(state, spec, partition)) is not None]
    if problems and (mode != "ANY" or len(problems) == len(partitions)):
        raise problems[0]


def _check_access(state: State, spec: JobSpec, partition: PartitionSpec, caller: Caller) -> None:
    if partition.root_only and not caller.admin:
        raise denied(2002, f"partition {partition.name} is for root only")
    if partition.disable_root_jobs and spec.uid == 0:
        raise denied(2002, f"partition {partition.name} takes no jobs of root")
    groups = partition.allow_groups
    if groups and not caller.admin and not {spec.group, *caller.groups}.intersection(groups):
        raise denied(2003, f"partition {partition.name} is open to the groups {', '.join(groups[:20])}")
    accounts, own = partition.allow_accounts, state.accounts.with_above(spec.account)
    if accounts and not set(own).intersection(accounts):
        raise invalid(2045, f"partition {partition.name} is open to the accounts {', '.join(accounts[:20])}")
    if not accounts and set(own).intersection(partition.deny_accounts):
        raise invalid(2045, f"partition {partition.name} is closed to account {spec.account}")
    if partition.allow_qos and spec.qos not in partition.allow_qos:
        raise invalid(2066, f"partition {partition.name} is open to the QOS {', '.join(partition.allow_qos[:20])}")
    if not partition.allow_qos and spec.qos in partition.deny_qos:
        raise invalid(2066, f"partition {partition.name} is closed to QOS {spec.qos}")


def _over_limit(state: State, spec: JobSpec, partition: PartitionSpec) -> MusterError | None:
    request = spec.request
    if partition.max_minutes != UNLIMITED and (
        spec.time_limit_minutes == UNLIMITED or spec.time_limit_minutes > partition.max_minutes
    ):
        return invalid(2051, f"partition {partition.name} allows {partition.max_minutes} minutes")
    most = len(partition.nodes)
    if partition.max_nodes != UNLIMITED:
        most = min(most, partition.max_nodes)
    if request.nodes_min > most:
        return invalid(2006, f"{request.nodes_min} nodes are asked for, partition {partition.name} gives {most}")
    if request.nodes_max and request.nodes_max < partition.min_nodes:
        return invalid(
            2006,
            f"{request.nodes_max} nodes are asked for, partition {partition.name} gives at least {partition.min_nodes}",
        )
    bound = partition.max_memory_per_node_mib or state.settings.max_memory_per_node_mib
    if bound and _memory_per_node(request) > bound:
        return invalid(2044, f"partition {partition.name} gives {bound} MiB on a node")
    return None


def _memory_per_node(request: Request) -> int:
    if request.memory_per_node_mib > 0:
        return request.memory_per_node_mib
    # MaxMemPerCPU raises the CPUs of a task instead; only what one task needs is known here.
    return request.memory_per_cpu_mib * request.cpus_per_task


def check_time_min(minutes: int, limit_seconds: int) -> None:
    """Check --time-min against the limit (-1: none) that it may shorten.

    Raises:
        InvalidInput: `Invalid time-min specification`.
    """
    if minutes * 60 > limit_seconds >= 0:
        raise invalid(2124, f"--time-min is {minutes} minutes, the time limit {-(-limit_seconds // 60)}")


def limit_seconds(spec: JobSpec, partition: PartitionSpec) -> int:
    """Give the limit that a job has: as asked, else the partition's default, else its maximum; -1 is none."""
    minutes = spec.time_limit_minutes or partition.default_minutes or partition.max_minutes
    return minutes * 60 if minutes > 0 else UNLIMITED

"""The configuration file's records to the core's: what decisions depend on, and nothing else."""

from __future__ import annotations

import os
import time
from functools import cache

from ctld.core import ranges
from ctld.core.cluster import (
    BlockSpec,
    NodeSpec,
    PartitionSpec,
    Planning,
    Preemption,
    PrioritySettings,
    Settings,
    SwitchSpec,
    TopologySpec,
)
from ctld.core.commands import ApplyConfig
from ctld.core.model import UNLIMITED, Ranges
from ctld.gresconf import devices_of
from muster.config.records import ClusterConfig, GresLine, NodeConfig, PartitionConfig, Topology
from muster.hostlist import natural_key
from muster.units import parse_duration

_SCRIPT_BYTES = 4 << 20
_REQUEUE_DELAY_SECONDS = 120
_WEEK_SECONDS = 604_800
_SWITCH_WAIT_SECONDS = 300
_BINPACK = "GPU_BINPACK"
_PACK_WEIGHTS = (("cpu", 1.0), ("gres/gpu", 10.0), ("mem", 1.0))
"""Weights of GPU_BINPACK where PackWeights= says nothing."""
_SELECT_FLAGS = frozenset((
    "cr_one_task_per_core", "cr_core_default_dist_block", "ll_shared_gres", "multiple_sharing_gres_pj",
    "enforce_binding_gres", "one_task_per_sharing_gres", "cr_pack_nodes",
))  # fmt: skip
"""Words of SelectTypeParameters that the choice of cores and devices, and the layout of steps, depend on."""


def command(config: ClusterConfig) -> ApplyConfig:
    """Give the command that makes this configuration the one in force; nodes in natural order of their names."""
    nodes = tuple(sorted(config.nodes, key=lambda node: natural_key(node.name)))
    index = _index(config)
    return ApplyConfig(
        settings=settings(config),
        nodes=tuple(_node(node, config.gres.for_node(node.name)) for node in nodes),
        partitions=tuple(_partition(part, index, config) for part in config.partitions),
    )


def _index(config: ClusterConfig) -> dict[str, int]:
    names = sorted((node.name for node in config.nodes), key=natural_key)
    return {name: place for place, name in enumerate(names)}


def settings(config: ClusterConfig) -> Settings:
    """Give the cluster-wide settings."""
    parameters = config.scheduler_parameters
    select = {word.upper() for word in config.select_type_parameters}
    index = _index(config)
    delay = parameters.get("requeue_delay") or config.auth_info.get("cred_expire") or str(_REQUEUE_DELAY_SECONDS)
    return Settings(
        cluster=config.cluster_name,
        first_job_id=config.first_job_id,
        max_job_id=config.max_job_id,
        max_job_count=config.max_job_count,
        max_array_size=config.max_array_size,
        max_step_count=config.max_step_count,
        max_tasks_per_node=config.max_tasks_per_node,
        min_job_age_seconds=config.min_job_age_seconds,
        kill_wait_seconds=config.kill_wait_seconds,
        node_timeout_seconds=config.slurmd_timeout_seconds,
        batch_start_timeout_seconds=config.batch_start_timeout_seconds,
        requeue_delay_seconds=int(delay),
        max_batch_requeue=config.max_batch_requeue,
        job_requeue=config.job_requeue,
        job_file_append=config.job_file_append,
        kill_on_bad_exit=config.kill_on_bad_exit,
        kill_invalid_depend="kill_invalid_depend" in config.dependency_parameters,
        enforce_part_limits=config.enforce_part_limits,
        return_to_service=config.return_to_service,
        over_time_minutes=_limit(config.over_time_limit_minutes),
        memory_consumable=any("memory" in word.lower() for word in config.select_type_parameters),
        def_memory_per_node_mib=config.def_mem_per_node_mib,
        def_memory_per_cpu_mib=config.def_mem_per_cpu_mib,
        max_memory_per_node_mib=config.max_mem_per_node_mib,
        max_memory_per_cpu_mib=config.max_mem_per_cpu_mib,
        max_script_bytes=int(parameters.get("max_script_size") or _SCRIPT_BYTES),
        gres_names=config.gres_types,
        backfill=config.scheduler_type != "sched/builtin",
        administrators=tuple(sorted({0, os.geteuid()})),
        clock_changes=clock_changes(),
        reservation_over_run_minutes=_limit(config.reservation_over_run_minutes),
        preemption=_preemption(config),
        max_queue_wait_seconds=_wait(parameters.get("max_queue_wait") or "UNLIMITED"),
        planning=_planning(parameters),
        accounting_enforce=config.accounting_enforce,
        limit_stops_partition="assoc_limit_stop" in parameters,
        priority=_priority(config),
        topologies=_topologies(config, index),
        topology_optional="topooptional" in {word.lower() for word in config.topology_parameters},
        max_switch_wait_seconds=int(parameters.get("max_switch_wait") or _SWITCH_WAIT_SECONDS),
        any_constraint="ignore_constraint_validation" in parameters,
        any_prefer="ignore_prefer_validation" in parameters,
        lln="CR_LLN" in select,
        pack_serial_at_end="pack_serial_at_end" in parameters,
        pack_weights=(tuple(sorted(config.pack_weights.items())) or _PACK_WEIGHTS) if _BINPACK in select else (),
        licenses=dict(config.licenses),
        allow_zero_licenses="allow_zero_lic" in parameters,
        select_flags=tuple(sorted(_SELECT_FLAGS.intersection(word.lower() for word in config.select_type_parameters)))
        + (("cr_socket",) if any(word.startswith("CR_Socket") for word in config.select_type_parameters) else ()),
        def_cpus_per_gpu=config.def_cpus_per_gpu,
        def_memory_per_gpu_mib=config.def_mem_per_gpu_mib,
        allow_spec_resources=config.allow_spec_resources,
    )


def _planning(parameters: dict[str, str]) -> Planning:
    def number(name: str, unset: int = 0) -> int:
        return int(parameters.get(name) or unset)

    return Planning(
        window_seconds=60 * number("bf_window"),
        resolution_seconds=number("bf_resolution"),
        jobs=number("bf_max_job_test"),
        jobs_of_user=number("bf_max_job_user"),
        jobs_of_partition=number("bf_max_job_part"),
        jobs_of_association=number("bf_max_job_assoc"),
        jobs_of_user_in_partition=number("bf_max_job_user_part"),
        array_members=number("bf_max_job_array_resv", Planning().array_members),
        reserving_in_partition=number("bf_job_part_count_reserve"),
        busy_nodes="bf_busy_nodes" in parameters,
    )


def _priority(config: ClusterConfig) -> PrioritySettings:
    flags: dict[str, None] = {}
    for flag in config.priority_flags:
        if flag == "NO_NORMAL_ALL":
            flags.update(dict.fromkeys(("NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES")))
        else:
            flags[flag] = None
    return PrioritySettings(
        multifactor=config.priority_type == "priority/multifactor",
        age=config.priority_weight_age,
        assoc=config.priority_weight_assoc,
        fairshare=config.priority_weight_fairshare,
        job_size=config.priority_weight_jobsize,
        partition=config.priority_weight_partition,
        qos=config.priority_weight_qos,
        tres={name: weight for name, weight in config.priority_weight_tres.items() if weight},
        half_life_seconds=config.priority_decay_half_life_seconds,
        calc_period_seconds=config.priority_calc_period_seconds,
        max_age_seconds=config.priority_max_age_seconds,
        favor_small=config.priority_favor_small,
        flags=tuple(flags),
        usage_reset=config.priority_usage_reset_period,
        dampening=config.fair_share_dampening,
    )


@cache
def clock_changes(first_year: int = 2020, last_year: int = 2060) -> tuple[tuple[int, int], ...]:
    """Give the offsets of local time from UTC: (since, seconds east) at each change between two years, found by
    looking at each week (no zone changes back within one)."""
    when, end = ((year - 1970) * 31_556_952 for year in (first_year, last_year))
    found = [(when, _offset(when))]
    while when < end:
        following = when + _WEEK_SECONDS
        if _offset(following) != found[-1][1]:
            low, high = when, following
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(middle) == found[-1][1] else (low, middle)
            found.append((high, _offset(high)))
        when = following
    return () if len(found) == 1 and not found[0][1] else tuple(found)


def _offset(when: int) -> int:
    return time.localtime(when).tm_gmtoff


def _preemption(config: ClusterConfig) -> Preemption:
    modes, parameters = config.preempt_mode, config.preempt_parameters
    ways = [mode for mode in modes if mode in ("CANCEL", "REQUEUE", "SUSPEND")]
    exempt = config.preempt_exempt_time_seconds
    return Preemption(
        rule=config.preempt_type.rpartition("/")[2],
        mode=ways[0] if ways else "OFF",
        by_priority="PRIORITY" in modes,
        within="WITHIN" in modes,
        exempt_seconds=UNLIMITED if exempt is None else exempt,
        min_exempt_priority=int(parameters.get("min_exempt_priority") or -1),
        reorder_count=int(parameters.get("reorder_count") or 1),
        strict_order="strict_order" in parameters,
        youngest_first="youngest_first" in parameters,
        cost_aware="cost_aware" in parameters,
        send_user_signal="send_user_signal" in parameters,
        suspend_grace_seconds=int(parameters.get("suspend_grace_time") or 2),
    )


def _node(node: NodeConfig, lines: tuple[GresLine, ...]) -> NodeSpec:
    gpus, devices = devices_of(node, lines)
    return NodeSpec(
        name=node.name,
        hostname=node.hostname,
        addr=node.addr,
        port=node.port,
        cpus=node.cpus,
        boards=node.boards,
        sockets=node.sockets,
        cores_per_socket=node.cores_per_socket,
        threads_per_core=node.threads_per_core,
        memory_mib=node.real_memory_mib,
        tmp_mib=node.tmp_disk_mib,
        weight=node.weight,
        features=node.features,
        gpus=gpus,
        state=node.state,
        reason=node.reason,
        devices=devices,
        core_spec_count=node.core_spec_count,
        cpu_spec_list=ranges.from_ints(node.cpu_spec_list),
        memory_spec_mib=node.mem_spec_limit_mib,
        restricted_cores_per_gpu=node.restricted_cores_per_gpu,
    )


def _partition(part: PartitionConfig, index: dict[str, int], config: ClusterConfig) -> PartitionSpec:
    root = config.disable_root_jobs if part.disable_root_jobs is None else part.disable_root_jobs
    return PartitionSpec(
        name=part.name,
        nodes=tuple(sorted(index[name] for name in part.nodes)),
        default=part.default,
        state=part.state,
        max_minutes=_limit(part.max_time_minutes),
        default_minutes=part.default_time_minutes or 0,
        min_nodes=part.min_nodes,
        max_nodes=_limit(part.max_nodes),
        priority_tier=part.priority_tier,
        priority_job_factor=part.priority_job_factor,
        allow_groups=part.allow_groups or (),
        allow_accounts=part.allow_accounts or (),
        deny_accounts=part.deny_accounts,
        allow_qos=part.allow_qos or (),
        deny_qos=part.deny_qos,
        exclusive=part.exclusive,
        oversubscribe=part.oversubscribe,
        oversubscribe_jobs=part.oversubscribe_jobs,
        max_cpus_per_node=_limit(part.max_cpus_per_node),
        max_cpus_per_socket=_limit(part.max_cpus_per_socket),
        def_cpus_per_gpu=part.def_cpus_per_gpu or 0,
        def_memory_per_gpu_mib=part.def_mem_per_gpu_mib or 0,
        def_memory_per_node_mib=part.def_mem_per_node_mib or 0,
        def_memory_per_cpu_mib=part.def_mem_per_cpu_mib or 0,
        max_memory_per_node_mib=part.max_mem_per_node_mib or 0,
        max_memory_per_cpu_mib=part.max_mem_per_cpu_mib or 0,
        root_only=part.root_only,
        disable_root_jobs=root,
        hidden=part.hidden,
        billing_weights=part.billing_weights,
        qos=part.qos.lower(),
        topology=part.topology,
        preempt_mode=part.preempt_mode,
        grace_seconds=part.grace_time_seconds,
        default_topology=part.default_topology,
        lln=part.lln,
    )


def _topologies(config: ClusterConfig, index: dict[str, int]) -> tuple[TopologySpec, ...]:
    if all(one.kind == "flat" for one in config.topologies):
        return ()
    return tuple(_topology(one, index) for one in config.topologies)


def _topology(one: Topology, index: dict[str, int]) -> TopologySpec:
    def nodes(names: tuple[str, ...]) -> Ranges:
        return ranges.from_ints(index[name] for name in names if name in index)

    return TopologySpec(
        name=one.name,
        kind=one.kind,
        switches=tuple(
            SwitchSpec(switch.name, switch.level, nodes(switch.all_nodes), switch.switches) for switch in one.switches
        ),
        blocks=tuple(BlockSpec(block.name, nodes(block.nodes)) for block in (*one.blocks, *one.rings)),
        block_sizes=one.block_sizes,
        levels=one.levels,
    )


def _wait(text: str) -> int:
    seconds = parse_duration(text)
    return -1 if seconds is None else seconds


def _limit(value: int | None) -> int:
    return UNLIMITED if value is None else value

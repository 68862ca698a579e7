"""Which keys change something in this release, by the fields that they set.

A key that is read and checked but not yet acted on is listed by `muster doctor` and in the controller's log, so that
nobody believes a limit or a priority to hold that does not. A field is added here by the change that acts on it.
"""

from __future__ import annotations

_GLOBALS = """
cluster_name controllers controller_ports state_dir slurmd_timeout_seconds auth_info
disable_root_jobs licenses def_cpus_per_gpu def_mem_per_gpu_mib allow_spec_resources scheduler_type
scheduler_parameters select_type_parameters over_time_limit_minutes
topology_parameters topology_plugin pack_weights reservation_over_run_minutes
enforce_part_limits def_mem_per_node_mib def_mem_per_cpu_mib max_mem_per_node_mib max_mem_per_cpu_mib gres_types
first_job_id max_job_id max_job_count min_job_age_seconds max_array_size max_step_count max_tasks_per_node
max_batch_requeue job_requeue dependency_parameters kill_wait_seconds kill_on_bad_exit batch_start_timeout_seconds
accounting_storage_type accounting_storage_host accounting_storage_port job_file_append return_to_service
association_file accounting_enforce priority_type priority_weight_age priority_weight_assoc priority_weight_fairshare
priority_weight_jobsize priority_weight_partition priority_weight_qos priority_weight_tres
priority_decay_half_life_seconds priority_calc_period_seconds priority_max_age_seconds priority_favor_small
priority_flags priority_usage_reset_period fair_share_dampening controller_log_level spool_dir slurmd_port
proctrack_type
preempt_type preempt_mode preempt_parameters preempt_exempt_time_seconds
"""
_NODES = """
names hostnames addrs ports cpus boards sockets sockets_per_board cores_per_socket threads_per_core real_memory_mib
tmp_disk_mib weight features gres state reason core_spec_count cpu_spec_list mem_spec_limit_mib
restricted_cores_per_gpu
"""
_PARTITIONS = """
names nodes default state max_time_minutes default_time min_nodes max_nodes priority_tier
priority_job_factor billing_weights qos
allow_groups allow_accounts allow_qos deny_accounts deny_qos oversubscribe exclusive exclusive_user
def_mem_per_node_mib def_mem_per_cpu_mib max_mem_per_node_mib max_mem_per_cpu_mib def_mem_per_gpu_mib
def_cpus_per_gpu max_cpus_per_node max_cpus_per_socket root_only hidden disable_root_jobs
topology default_topology lln
preempt_mode grace_time_seconds
"""

GLOBALS = frozenset(_GLOBALS.split())
"""Fields of global keys. Spool, port and process tracking are what `muster up` gives the agents that it starts."""
OPTIONS = {
    "accounting_enforce": frozenset(("0", "1", "all", "associations", "limits", "none", "qos", "safe")),
    "auth_info": frozenset(("cred_expire",)),
    "dependency_parameters": frozenset(("kill_invalid_depend",)),
    "preempt_parameters": frozenset((
        "cost_aware", "min_exempt_priority", "reorder_count", "send_user_signal", "strict_order", "suspend_grace_time",
        "youngest_first",
    )),
    "scheduler_parameters": frozenset((
        "allow_zero_lic", "assoc_limit_stop", "bf_busy_nodes", "bf_interval", "bf_job_part_count_reserve",
        "bf_max_job_array_resv", "bf_max_job_assoc", "bf_max_job_part", "bf_max_job_test", "bf_max_job_user",
        "bf_max_job_user_part", "bf_max_time", "bf_resolution", "bf_window", "ignore_constraint_validation",
        "ignore_prefer_validation", "max_queue_wait", "max_script_size", "max_switch_wait", "pack_serial_at_end",
        "requeue_delay",
    )),
    "select_type_parameters": frozenset((
        "cr_cpu", "cr_cpu_memory", "cr_core", "cr_core_memory", "cr_socket", "cr_socket_memory", "cr_memory",
        "cr_one_task_per_core", "cr_core_default_dist_block", "cr_lln", "ll_shared_gres", "multiple_sharing_gres_pj",
        "enforce_binding_gres", "one_task_per_sharing_gres", "gpu_binpack", "cr_pack_nodes",
    )),
    "topology_parameters": frozenset(("topooptional",)),
    "flags": frozenset(("countonly", "nvidia_gpu_env")),
}  # fmt: skip
"""Of keys that hold options, those that change something, in lower case. `flags` is of gres.conf."""
NODES = frozenset(_NODES.split())
"""Fields of NodeName lines."""
PARTITIONS = frozenset(_PARTITIONS.split())
"""Fields of PartitionName lines."""
GRES = frozenset(("nodes", "name", "type", "files", "multiple_files", "count", "cores", "links", "flags"))
"""Fields of gres.conf. What it says is believed: devices are not looked for on the nodes yet."""
NOT_YET: frozenset[str] = frozenset()
"""Of a file that is read and checked only: cgroup.conf."""
NEUTRAL = frozenset((
    "no", "none", "off", "0", "normal", "basic", "flat", "builtin", "infinite", "unlimited", "cons_tres", "cons_res",
))  # fmt: skip
"""Values that ask for nothing beyond what happens anyway."""

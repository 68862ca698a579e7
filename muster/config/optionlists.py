"""Bounds of the numbers inside option lists (`SchedulerParameters=bf_window=4320,...`), so that daemons rely on them.

Slurm ignores an option that it does not know, and logs one whose number it cannot take and goes on with the default;
here the second is an error, because a default in place of what was asked for is found out late.
"""

from __future__ import annotations

import re

from muster.errors import InvalidInput
from muster.units import parse_duration

_MANY = (1 << 31) - 1
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_FRACTION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_FRACTIONS = ("node_reg_mem_percent",)
_DURATIONS = {"SchedulerParameters": ("max_queue_wait",)}
"""Options whose value is a time as in `--time`."""

BOUNDS: dict[str, dict[str, tuple[int, int]]] = {
    "SchedulerParameters": {
        "batch_sched_delay": (0, _MANY),
        "bf_interval": (-1, 10800),
        "bf_job_part_count_reserve": (0, 100000),
        "bf_max_job_array_resv": (0, 1000),
        "bf_max_job_assoc": (0, 1000000),
        "bf_max_job_part": (0, 1000000),
        "bf_max_job_start": (0, 10000),
        "bf_max_job_test": (1, 1000000),
        "bf_max_job_user": (0, 1000000),
        "bf_max_job_user_part": (0, 1000000),
        "bf_max_time": (1, 3600),
        "bf_min_age_reserve": (0, 2592000),
        "bf_min_prio_reserve": (0, (1 << 32) - 1),
        "bf_node_space_size": (2, 2000000),
        "bf_resolution": (1, 3600),
        "bf_window": (1, 43200),
        "bf_window_linear": (0, _MANY),
        "bf_yield_interval": (1, 10000000),
        "bf_yield_sleep": (1, 10000000),
        "build_queue_timeout": (100, _MANY),
        "default_queue_depth": (0, _MANY),
        "delay_boot": (0, _MANY),
        "max_array_tasks": (0, 4000001),
        "max_rpc_cnt": (0, 1000000),
        "max_sched_time": (1, 65533),
        "max_script_size": (1, 512 << 20),
        "max_submit_line_size": (1, 2 << 20),
        "max_switch_wait": (0, _MANY),
        "partition_job_depth": (0, _MANY),
        "requeue_delay": (0, _MANY),
        "sched_interval": (-1, _MANY),
        "sched_max_job_start": (0, _MANY),
        "sched_min_interval": (0, _MANY),
        "step_retry_count": (0, _MANY),
        "step_retry_time": (0, _MANY),
    },
    "AuthInfo": {"cred_expire": (5, 86400), "ttl": (1, _MANY)},
    "DependencyParameters": {"max_depend_depth": (0, 10000)},
    "PreemptParameters": {
        "min_exempt_priority": (0, (1 << 32) - 1),
        "reorder_count": (0, 65533),
        "suspend_grace_time": (0, 65533),
    },
    "SlurmctldParameters": {
        "max_powered_nodes": (0, _MANY),
        "node_reg_mem_percent": (0, 100),
        "power_save_interval": (0, _MANY),
        "power_save_min_interval": (0, _MANY),
        "rl_bucket_size": (1, _MANY),
        "rl_log_freq": (0, _MANY),
        "rl_refill_period": (1, _MANY),
        "rl_refill_rate": (1, _MANY),
        "rl_table_size": (1, _MANY),
        "validate_nodeaddr_threads": (1, 64),
        "workerpool_threads": (1, _MANY),
    },
}
"""By key and option: least and greatest value, both allowed (slurm.conf(5)); -1 turns off where it is the least."""


def mistakes(key: str, options: dict[str, str]) -> list[str]:
    """A sentence for each option of a key whose number is missing, no number, or out of bounds."""
    found: list[str] = []
    for name in _DURATIONS.get(key, ()):
        try:
            parse_duration(options.get(name, "0"))
        except InvalidInput as error:
            found.append(f"{key}: {name}: {error.sentence}; {error.hint}")
    for name, (low, high) in BOUNDS.get(key, {}).items():
        text = options.get(name)
        if text is None:
            continue
        if name in _FRACTIONS:
            if _FRACTION.fullmatch(text) is None:
                found.append(f'{key}: {name}="{text[:40]}" is not a number')
                continue
        elif _INTEGER.fullmatch(text) is None:
            found.append(f'{key}: {name}="{text[:40]}" is not a whole number')
            continue
        if not low <= float(text) <= high:
            found.append(f"{key}: {name}={text} is not within {low} to {high}")
    return found

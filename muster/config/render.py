"""The configuration as `scontrol show config` prints it: names and values in alphabetical order, with units."""

from __future__ import annotations

import pwd
from collections.abc import Mapping

from muster.config.keys import Key
from muster.config.records import ClusterConfig
from muster.config.slurm import ACCUMULATING
from muster.config.slurmkeys import SHOWN
from muster.units import format_duration

UNSET = "(null)"
NOT_APPLICABLE = "N/A"
_ZERO_ONE = ("JobRequeue", "KillOnBadExit", "JobFileAppend", "GroupUpdateForce")
_UNLIMITED_AT_ZERO = ("DefMemPerNode", "DefMemPerCPU", "DefMemPerGPU", "MaxMemPerNode", "MaxMemPerCPU")
_HIDDEN_UNLESS_GIVEN = ("DefMemPerCPU", "DefMemPerGPU", "MaxMemPerCPU", "DefCpuPerGPU", "FollowerBacklog")


def render_config(config: ClusterConfig, extra: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Every global key with its value as text, sorted by name without regard to case.

    Args:
        config: what was loaded.
        extra: what only the daemon knows (BOOT_TIME, HASH_VAL, NEXT_JOB_ID, SLURM_VERSION ...), sorted in.
    """
    pairs: list[tuple[str, str]] = [("SLURM_CONF", config.path)]
    for row in SHOWN:
        if row.name in _HIDDEN_UNLESS_GIVEN and not config.raw.get(row.name):
            continue
        if row.name in ACCUMULATING:
            pairs += _several(row, config)
        else:
            pairs.append((row.name, _value(row, config)))
    pairs += list((extra or {}).items())
    return sorted(pairs, key=lambda pair: (pair[0].lower(), pair[0]))


def _several(row: Key, config: ClusterConfig) -> list[tuple[str, str]]:
    if row.name == "SlurmctldHost":
        return [
            (f"SlurmctldHost[{index}]", each.host if each.addr == each.host else f"{each.host}({each.addr})")
            for index, each in enumerate(config.controllers)
        ]
    scripts: tuple[str, ...] = getattr(config, row.field)
    if not scripts:
        return [(row.name, UNSET)]
    return [(f"{row.name}[{index}]", script) for index, script in enumerate(scripts)]


def _value(row: Key, config: ClusterConfig) -> str:
    """The value as it holds: given or default, implied flags and computed defaults included."""
    if row.name == "MaxDBDMsgs" and not config.raw.get(row.name):
        return str(max(10000, 2 * config.max_job_count + 4 * len(config.nodes)))
    if row.name == "MaxNodeCount" and not config.raw.get(row.name):
        return str(len(config.nodes))
    if row.name in ("SlurmUser", "SlurmdUser"):
        return _user(config.raw.get(row.name) or row.default)
    if not row.field:
        text = config.raw.get(row.name) or row.default
        try:
            value = row.read(text) if text and row.kind in ("number", "flag") else text
        except ValueError:
            # The row's default is read by a test, what was given by the loader: only a row's change gets here.
            value = text
        return _shown(row, value if text else None)
    return _shown(row, getattr(config, row.field), config.raw.get(row.name, ""))


def _shown(row: Key, value: object, written: str = "") -> str:
    if isinstance(value, bool):
        return str(int(value)) if row.name in _ZERO_ONE else "yes" if value else "no"
    if row.name in _UNLIMITED_AT_ZERO and value == 0:
        return "UNLIMITED"
    if row.kind == "duration":
        return format_duration(value if isinstance(value, int) else None)
    if isinstance(value, int):
        return f"{value} {row.unit}" if row.unit else str(value)
    if value is None and row.kind == "number":
        if row.unit == "min":
            return "UNLIMITED"
        return "INFINITE" if row.default else NOT_APPLICABLE if row.unit else UNSET
    if row.kind == "ports" and isinstance(value, tuple):
        return str(value[0]) if value[0] == value[1] else f"{value[0]}-{value[1]}"
    if isinstance(value, dict):
        return written or ",".join(f"{name}={item}" for name, item in value.items()) or UNSET
    if isinstance(value, tuple):
        empty = row.default if row.default in ("none", "NONE") else UNSET
        return ",".join(str(item) for item in value) or empty
    return str(value) if value not in (None, "") else UNSET


def _user(name: str) -> str:
    """`name(uid)` as Slurm prints it; the name alone where this host does not know it."""
    try:
        return f"{name}({pwd.getpwnam(name).pw_uid})"
    except KeyError:
        return name

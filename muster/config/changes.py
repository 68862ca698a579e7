"""What `scontrol reconfigure` cannot change: such a new configuration is refused and the old one stays in force."""

from __future__ import annotations

from muster.config.records import ClusterConfig
from muster.errors import ConfigError

_STOP_ALL = "stop every daemon first"
_RESTART_CONTROLLER = "restart ctld"
_RESTART_NODES = "restart every noded"

FIXED: tuple[tuple[str, str, str], ...] = (
    ("ClusterName", "cluster_name", _STOP_ALL),
    ("SlurmUser", "slurm_user", _STOP_ALL),
    ("SelectType", "select_type", _STOP_ALL),
    ("StateSaveLocation", "state_dir", _RESTART_CONTROLLER),
    ("SlurmctldPort", "controller_ports", _RESTART_CONTROLLER),
    ("SlurmdPort", "slurmd_port", _RESTART_NODES),
    ("SlurmdSpoolDir", "spool_dir", _RESTART_NODES),
    ("ProctrackType", "proctrack_type", _RESTART_NODES),
)
"""Key, field, and what it takes to change it (slurm.conf(5), scontrol(1) reconfigure)."""


def refuse_fixed_changes(old: ClusterConfig, new: ClusterConfig) -> None:
    """Raise a ConfigError that names every key which a running cluster cannot change, a sentence a line."""
    found = [
        (f"{new.path}: {key} cannot change from {_shown(before)} to {_shown(after)} at reconfigure", cure)
        for key, field, cure in FIXED
        if (before := getattr(old, field)) != (after := getattr(new, field))
    ]
    if len(found) == 1:
        raise ConfigError(*found[0])
    if found:
        raise ConfigError("\n".join(f"{sentence} ({cure})" for sentence, cure in found))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return str(value[0]) if len(set(value)) == 1 else "-".join(str(item) for item in value)
    return str(value)

"""cgroup.conf: which limits the kernel enforces on a node (cgroup.conf(5))."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.config.keys import field_values, read_line
from muster.config.linekeys import CGROUP, CGROUP_OBSOLETE
from muster.config.nodelists import expand_hosts
from muster.config.problems import Place, Problems
from muster.config.records import CgroupConfig
from muster.config.syntax import Line

_PLUGINS = ("autodetect", "cgroup/v2", "disabled")


def cgroup_config(lines: list[Line], problems: Problems) -> tuple[CgroupConfig, dict[str, CgroupConfig]]:
    """Read the lines: the configuration of all nodes, and that of nodes which a NodeName= line changes."""
    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for line in lines:
        given = read_line(CGROUP, line.pairs, line.place, problems)
        for name in list(given):
            if name in CGROUP_OBSOLETE:
                problems.warning(line.place, f"{name} is obsolete and ignored")
        values = field_values(given)
        _check(values, line.place, problems)
        nodes = values.pop("nodes", None)
        if nodes is None:
            common.update(values)
            continue
        if line.pairs[0].key.lower() != "nodename":
            problems.error(line.place, "NodeName must be the first key of its line")
        for node in expand_hosts(nodes, "NodeName", line.place, problems):
            own.setdefault(node, {}).update(values)
    config = CgroupConfig(**common)
    return config, {node: msgspec.structs.replace(config, **values) for node, values in own.items()}


def _check(values: dict[str, Any], place: Place, problems: Problems) -> None:
    plugin = values.get("plugin")
    if plugin is not None:
        word = plugin.lower()
        if word == "cgroup/v1":
            hint = "boot with systemd.unified_cgroup_hierarchy=1, and write CgroupPlugin=autodetect"
            problems.error(place, "CgroupPlugin=cgroup/v1 is not supported, only version 2 is", hint)
        elif word not in _PLUGINS:
            problems.error(place, f'CgroupPlugin="{plugin}" is not known (use {", ".join(_PLUGINS)})')
        values["plugin"] = word
    for field, name in (
        ("allowed_ram_percent", "AllowedRAMSpace"),
        ("allowed_swap_percent", "AllowedSwapSpace"),
        ("max_ram_percent", "MaxRAMPercent"),
        ("max_swap_percent", "MaxSwapPercent"),
    ):
        if field in values and not 0 <= values[field] <= 1e6:
            problems.error(place, f"{name}={values[field]:g} is not a percentage")

"""PartitionName lines into one PartitionConfig for each partition."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.config.keys import Given, field_values, read_line
from muster.config.linekeys import PARTITION
from muster.config.nodelists import NodeNames
from muster.config.nodes import merged
from muster.config.problems import Place, Problems
from muster.config.records import PartitionConfig
from muster.config.syntax import Pair
from muster.config.values import is_digits, read_minutes

DEFAULT_SHARING_JOBS = 4
_EXCLUSIVE = ("NO", "NODE", "USER", "TOPO")


class PartitionLines:
    """Collects the lines in order of reading; `build` gives the partitions once the nodes are known."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._defaults: dict[str, Given] = {}
        self._lines: list[tuple[Place, dict[str, Given]]] = []
        self.places: dict[str, Place] = {}
        """Where each partition is, once they are built."""

    def add(self, pairs: tuple[Pair, ...], place: Place) -> None:
        """Take a line; a DEFAULT line changes what the following ones start from."""
        given = read_line(PARTITION, pairs, place, self._problems)
        if pairs[0].value.upper() == "DEFAULT":
            self._defaults = merged(self._defaults, given, "PartitionName")
            return
        self._lines.append((place, merged(self._defaults, given)))

    def build(self, names: NodeNames, topology_nodes: dict[str, tuple[str, ...]]) -> tuple[PartitionConfig, ...]:
        """The partitions in order of the file; the last with Default=YES is the default."""
        found: dict[str, PartitionConfig] = {}
        default = ""
        for place, given in self._lines:
            values = field_values(given)
            line_names = values.get("names", ())
            if not isinstance(line_names, tuple) or not line_names:
                self._problems.error(place, "PartitionName is empty")
                continue
            for name in line_names:
                if name in found:
                    self._problems.warning(place, f"Duplicated PartitionName {name}, this line is ignored for it")
                    continue
                if len(name) > 250 or not name.isprintable() or "/" in name:
                    self._problems.error(place, f"PartitionName={name[:80]} is not a name")
                    continue
                found[name] = self._partition(name, dict(values), names, topology_nodes, place)
                self.places[name] = place
                if values.get("default"):
                    if default:
                        self._problems.warning(
                            place, f"more than one partition has Default=YES: {name} replaces {default}"
                        )
                    default = name
        for place, given in self._lines:
            alternate = given.get("Alternate")
            if alternate is not None and alternate.text not in found:
                self._problems.error(place, f"Alternate={alternate.text} is not a partition")
        return tuple(_with_default(partition, default) for partition in found.values())

    def _partition(
        self, name: str, values: dict[str, Any], names: NodeNames, topology_nodes: dict[str, tuple[str, ...]],
        place: Place,
    ) -> PartitionConfig:  # fmt: skip
        what = f"PartitionName={name}"
        written = values.pop("nodes", "")
        chosen = names.resolve(written, what, place, self._problems, topology_nodes)
        limits: dict[str, Any] = {
            "max_time_minutes": values.pop("max_time_minutes", None),
            "min_nodes": values.pop("min_nodes", 0),
            "max_nodes": values.pop("max_nodes", None),
        }
        limits["default_time_minutes"] = self._default_time(values, limits["max_time_minutes"], what, place)
        if limits["max_nodes"] is not None and limits["min_nodes"] > limits["max_nodes"]:
            self._problems.error(
                place, f"{what}: MinNodes={limits['min_nodes']} is above MaxNodes={limits['max_nodes']}"
            )
        sharing, jobs, exclusive = self._sharing(values, what, place)
        factor = values.pop("priority", None)
        if factor is not None:
            values.setdefault("priority_tier", factor)
            values.setdefault("priority_job_factor", factor)
        access: dict[str, Any] = {}
        for subject, title in (("groups", "Groups"), ("accounts", "Accounts"), ("qos", "Qos")):
            allowed = values.pop(f"allow_{subject}", None)
            if allowed is not None and any(item.upper() == "ALL" for item in allowed):
                allowed = None
            access[f"allow_{subject}"] = allowed
            if allowed is not None and values.get(f"deny_{subject}"):
                self._problems.warning(
                    place,
                    f"{what}: Both Allow{title} and Deny{title} are defined, Deny{title} will be ignored",
                )
                values.pop(f"deny_{subject}")
        for field in ("names", "default"):
            values.pop(field, None)
        if "over_time_limit_minutes" in values and values["over_time_limit_minutes"] is None:
            values["over_time_limit_minutes"] = -1
        if values.get("preempt_mode") == "PRIORITY":
            self._problems.error(
                place, f"{what}: PreemptMode=PRIORITY alone names no way to preempt", "write CANCEL or REQUEUE"
            )
        for low in ("def", "max"):
            self._one_memory_limit(values, low, what, place)
        return PartitionConfig(
            name=name, nodes=chosen, node_sets=written, oversubscribe=sharing, oversubscribe_jobs=jobs,
            exclusive=exclusive, **limits, **access, **values,
        )  # fmt: skip

    def _one_memory_limit(self, values: dict[str, Any], which: str, what: str, place: Place) -> None:
        per_node, per_cpu = f"{which}_mem_per_node_mib", f"{which}_mem_per_cpu_mib"
        for name in [field for field in values if field.startswith(f"{which}_mem_per_")]:
            values[name] = values[name] or 0
        if values.get(per_node) and values.get(per_cpu):
            title = which.capitalize()
            self._problems.warning(
                place, f"{what}: {title}MemPerCPU ignored, since it's mutually exclusive with {title}MemPerNode"
            )
            values.pop(per_cpu)

    def _default_time(self, values: dict[str, Any], max_time: int | None, what: str, place: Place) -> int | None:
        text = str(values.pop("default_time", ""))
        row = PARTITION.find("DefaultTime")
        assert row is not None
        if not text or text.upper() == "NONE":
            return max_time
        try:
            minutes = read_minutes(text, row)
        except ValueError as why:
            self._problems.error(place, f"{what}: {why}")
            return max_time
        if minutes is None:
            return max_time
        if max_time is not None and minutes > max_time:
            self._problems.warning(place, f"{what}: DefaultTime={text} is above MaxTime, which is used")
            return max_time
        return minutes

    def _sharing(self, values: dict[str, Any], what: str, place: Place) -> tuple[str, int, str]:
        """OverSubscribe's word and count, and Exclusive with its old forms."""
        text = str(values.pop("oversubscribe", "NO"))
        word, colon, number = text.upper().partition(":")
        exclusive = str(values.pop("exclusive", "NO")).upper()
        jobs = DEFAULT_SHARING_JOBS if word in ("YES", "FORCE") else 1
        if colon:
            jobs = int(number) if is_digits(number) and len(number) < 6 else 0
        if (
            word not in ("NO", "YES", "FORCE", "EXCLUSIVE")
            or (colon and word not in ("YES", "FORCE"))
            or not 0 < jobs < 65534
        ):
            self._problems.error(place, f'{what}: Bad value "{text}" for OverSubscribe (use NO, YES, FORCE)')
            word, jobs = "NO", 1
        if exclusive in ("YES", "EXCLUSIVE"):
            exclusive = "NODE"
        if exclusive not in _EXCLUSIVE:
            self._problems.error(place, f'{what}: Bad value "{exclusive}" for Exclusive= (use NO, NODE, USER, TOPO)')
            exclusive = "NO"
        user, topo = values.pop("exclusive_user", False), values.pop("exclusive_topo", False)
        if exclusive == "NO":
            exclusive = "USER" if user else "TOPO" if topo else "NODE" if word == "EXCLUSIVE" else "NO"
        return "NO" if word == "EXCLUSIVE" else word, jobs, exclusive


def _with_default(partition: PartitionConfig, default: str) -> PartitionConfig:
    if partition.name != default:
        return partition
    return msgspec.structs.replace(partition, default=True)

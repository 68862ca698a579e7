"""The lines of sinfo: nodes put together where all that is shown of them is equal, counted and worded."""

from __future__ import annotations

from muster import hostlist
from muster.units import format_duration_sinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    Fields = dict[str, Any]

PARTITION_FIELDS = (
    *("name", "default", "state", "hidden", "max_minutes", "default_minutes", "min_nodes", "max_nodes"),
    *("root_only", "exclusive", "oversubscribe", "allow_groups", "priority_job_factor", "priority_tier", "members"),
    *("max_cpus_per_node", "preempt_mode"),
)
# What every line needs, whatever is shown.
_ALWAYS = ("name", "state_base", "state_complete", "state_sort", "responding")
_CPUS = ("cpus", "allocated_cpus", "idle_cpus", "other_cpus")
_GEOMETRY = ("sockets", "cores", "threads")


class Line:
    """One line: a partition and those of its nodes that look the same."""

    __slots__ = ("nodes", "order", "partition", "seen")

    def __init__(self, partition: Fields, order: int) -> None:
        self.partition = partition
        self.order = order
        """Place of the partition in the configuration."""
        self.nodes: list[Fields] = []
        self.seen: set[str] = set()

    def add(self, node: Fields) -> None:
        """Take a node in; one that another partition brought already counts once."""
        if node["name"] not in self.seen:
            self.seen.add(node["name"])
            self.nodes.append(node)


def node_fields(shown: Sequence[str]) -> list[str]:
    """Give the fields of nodes that the columns shown are made of."""
    needed = dict.fromkeys(_ALWAYS)
    for field in shown:
        kind, _, name = field.partition(".")
        if field == "cpu_aiot":
            needed.update(dict.fromkeys(_CPUS))
        elif field == "r.sct":
            needed.update(dict.fromkeys(_GEOMETRY))
        elif kind in ("n", "r"):
            needed[name] = None
    return list(needed)


def group(
    partitions: Sequence[Fields],
    nodes: Sequence[Fields],
    passes: Callable[[Fields], bool],
    shown: Sequence[str],
    *,
    exact: bool,
    by_node: bool,
    with_empty: bool,
) -> list[Line]:
    """Put nodes into lines.

    Args:
        exact: nodes of different size are apart (-e).
        by_node: each node is a line (-N).
        with_empty: a partition without nodes to show still has its line.
    """
    of_partition = [field[2:] for field in shown if field.startswith("p.")]
    of_node = [field[2:] for field in shown if field.startswith("n.")]
    if exact:
        for field in shown:
            if field.startswith("r."):
                of_node += _GEOMETRY if field == "r.sct" else (field[2:],)
    if by_node:
        of_node.append("name")
    lines: dict[Any, Line] = {}
    for order, partition in enumerate(partitions):
        head = tuple(_partition_value(partition, name) for name in of_partition)
        found = False
        for node in _members(partition, nodes):
            if passes(node):
                found = True
                key = (head, *(node[name] for name in of_node))
                line = lines.get(key)
                if line is None:
                    line = lines[key] = Line(partition, order)
                line.add(node)
        if not found and with_empty and head:
            lines[head, None] = Line(partition, order)
    if not lines and with_empty and partitions:
        lines[None] = Line(partitions[0], 0)
    return list(lines.values())


def sort(lines: list[Line], order: str) -> None:
    """Sort by the letters of -S; `#P` is the order of the configuration, an unknown letter changes nothing."""
    from cli.sinfo_columns import LETTERS

    for part in reversed(order.split(",")):
        letter = part.lstrip("+-#")
        falling = part.startswith("-")
        source = LETTERS.get(letter)
        if source is None:
            continue
        if "#" in part and letter in "PR":
            lines.sort(key=lambda line: line.order, reverse=falling)
        elif letter in "tT":
            lines.sort(key=lambda line: line.nodes[0]["state_sort"] if line.nodes else 0, reverse=falling)
        elif letter in "Nn":
            lines.sort(
                key=lambda line: hostlist.natural_key(line.nodes[0]["name"] if line.nodes else ""), reverse=falling
            )
        else:
            field = source[1]
            lines.sort(key=lambda line: _sort_key(line, field), reverse=falling)


def row(line: Line, shown: Sequence[str]) -> list[Any]:
    """Give the values of a line in the order of the columns."""
    return [_value(line, field) for field in shown]


def _sort_key(line: Line, field: str) -> tuple[int, float, str]:
    """A value as something that compares: numbers by size, texts by letters."""
    names = field[2:] if field[1:2] == "." else field
    known = [node[names] for node in line.nodes if node.get(names) is not None]
    value = min(known) if known and isinstance(known[0], int) else _value(line, field)
    if isinstance(value, int):
        return 0, value, ""
    digits = str(value).partition("/")[0].rstrip("+")
    return (0, int(digits), "") if digits.isdigit() else (1, 0, str(value))


def _members(partition: Fields, nodes: Sequence[Fields]) -> Iterable[Fields]:
    flat = partition["members"]
    for place in range(0, len(flat), 2):
        yield from nodes[flat[place] : flat[place + 1] + 1]


def _value(line: Line, field: str) -> Any:
    nodes = line.nodes
    kind, _, name = field.partition(".")
    if kind == "p":
        return _partition_value(line.partition, name)
    if kind == "n":
        return nodes[0][name] if nodes else None
    if kind == "r":
        if name == "sct":
            return ":".join(_size(nodes, each) for each in _GEOMETRY)
        return _size(nodes, name)
    if field == "nodelist":
        return hostlist.uniq([node["name"] for node in nodes])
    if field == "node_count":
        return len(nodes)
    if field == "cpu_aiot":
        return "/".join(
            str(sum(node[each] for node in nodes)) for each in ("allocated_cpus", "idle_cpus", "other_cpus", "cpus")
        )
    allocated, idle, other = _node_counts(nodes)
    return f"{allocated}/{idle}" if field == "node_ai" else f"{allocated}/{idle}/{other}/{len(nodes)}"


def _node_counts(nodes: Sequence[Fields]) -> tuple[int, int, int]:
    allocated = idle = other = 0
    for node in nodes:
        base, *flags = node["state_complete"].split("+")
        if "DRAIN" in flags or "FAIL" in flags or "INVALID_REG" in flags:
            other += 1
        elif base in ("ALLOCATED", "MIXED") or "COMPLETING" in flags:
            allocated += 1
        elif base == "IDLE":
            idle += 1
        else:
            other += 1
    return allocated, idle, other


def _size(nodes: Sequence[Fields], name: str) -> str:
    """A size of nodes that may differ: `64`, or the least with a plus; a span for what is measured."""
    values = [node[name] for node in nodes if node[name] is not None]
    if name in ("load", "free_memory"):
        if not values:
            return "N/A"
        texts = [f"{value / 100:.2f}" if name == "load" else str(value) for value in (min(values), max(values))]
        return texts[0] if texts[0] == texts[1] else "-".join(texts)
    if not values:
        return "0"
    least, most = min(values), max(values)
    return str(least) if least == most else f"{least}+"


def _partition_value(partition: Fields, name: str) -> Any:
    if name == "marked_name":
        return partition["name"] + ("*" if partition["default"] else "")
    if name == "available":
        return "inact" if partition["state"] == "INACTIVE" else partition["state"].lower()
    if name == "time":
        minutes = partition["max_minutes"]
        return format_duration_sinfo(None if minutes < 0 else minutes * 60)
    if name == "default_time":
        minutes = partition["default_minutes"]
        return format_duration_sinfo(None if minutes < 0 else minutes * 60, is_set=minutes != 0)
    if name == "groups":
        return partition["allow_groups"] or "all"
    if name == "root":
        return "yes" if partition["root_only"] else "no"
    if name == "oversubscribe":
        return "EXCLUSIVE" if partition["exclusive"] == "NODE" else partition["oversubscribe"]
    if name == "size":
        least, most = max(1, partition["min_nodes"]), partition["max_nodes"]
        if least == most:
            return str(least)
        return f"{least}-{most if most >= 0 else 'infinite'}"
    return partition[name]

"""Node lists of the configuration: host lists, NodeSets, ALL and feature{f}, resolved to nodes in file order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from muster.config.problems import Place, Problems, nearest
from muster.config.records import NodeConfig
from muster.config.values import is_digits
from muster.errors import InvalidInput
from muster.hostlist import expand

_FUNCTION = re.compile(r"(\w+)\{([^{}]*)\}")
_SHOWN_UNKNOWN = 5


def expand_hosts(text: str, what: str, place: Place, problems: Problems) -> list[str]:
    """The names of a host list, or nothing and an error that names `what` holds it."""
    try:
        return expand(text)
    except InvalidInput as why:
        problems.error(place, f'{what}: Invalid hostlist "{text[:80]}": {why.sentence}', why.hint)
        return []


def index_list(text: str) -> tuple[int, ...] | None:
    """Indexes and ranges of them (`0-3,8`), sorted, or None if the text is something else."""
    found: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        last = last if dash else first
        if not (is_digits(first) and is_digits(last) and len(first) < 6 and len(last) < 6 and int(first) <= int(last)):
            return None
        found.update(range(int(first), int(last) + 1))
    return tuple(sorted(found))


class NodeNames:
    """Every node by name with its place in the order of the file, and the NodeSets."""

    def __init__(self, nodes: Sequence[NodeConfig]) -> None:
        self.order = {node.name: index for index, node in enumerate(nodes)}
        self._all = tuple(node.name for node in nodes)
        self._by_feature: dict[str, list[str]] = {}
        for node in nodes:
            for feature in node.features:
                self._by_feature.setdefault(feature, []).append(node.name)
        self.sets: dict[str, tuple[str, ...]] = {}

    def with_feature(self, feature: str) -> list[str]:
        """The nodes that have a feature."""
        return self._by_feature.get(feature, [])

    def resolve(
        self,
        text: str,
        what: str,
        place: Place,
        problems: Problems,
        topology: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[str, ...]:
        """The nodes that a list means, in node order without duplicates; unknown ones are an error.

        Args:
            text: host list, NodeSet names, ALL, and functions such as feature{a} or switch{s1}.
            topology: nodes of `switch{name}` and `block{name}`, by that text; None where it is not read yet.
        """
        chosen: set[str] = set()
        for name, argument in _FUNCTION.findall(text):
            key = f"{name.lower()}{{{argument}}}"
            if name.lower() == "feature":
                chosen.update(self.with_feature(argument))
            elif topology is not None and key in topology:
                chosen.update(topology[key])
            else:
                problems.error(place, f"{what}: {key} cannot be expanded", "use feature{name}, or name the nodes")
        unknown: list[str] = []
        for host in expand_hosts(_FUNCTION.sub("", text), what, place, problems):
            if host in self.order:
                chosen.add(host)
            elif host in self.sets:
                chosen.update(self.sets[host])
            elif host.upper() == "ALL":
                chosen.update(self._all)
            else:
                unknown.append(host)
        if unknown:
            shown = ", ".join(unknown[:_SHOWN_UNKNOWN])
            more = f" and {len(unknown) - _SHOWN_UNKNOWN} more" if len(unknown) > _SHOWN_UNKNOWN else ""
            # Looking for the nearest among tens of thousands of nodes would cost seconds.
            hint = nearest(unknown[0], (*self.sets, *self._all[:2000]))
            problems.error(
                place, f"{what}: no NodeName line defines {shown}{more}", hint or "add a NodeName line for it"
            )
        return tuple(sorted(chosen, key=self.order.__getitem__))

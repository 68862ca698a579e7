"""topology.yaml: a list of named topologies, of which partitions choose with Topology= (topology.yaml(5))."""

from __future__ import annotations

from muster.config.problems import Place, Problems, nearest
from muster.config.topology import Draft, Item
from muster.config.yamlsubset import Node, YamlError, parse_yaml

_KINDS = ("tree", "block", "flat", "ring", "torus3d")
_TOP = ("topology", "cluster_default", "levels", *_KINDS)


def topology_yaml(text: str, name: str, problems: Problems) -> list[Draft]:
    """Read the file; the default topology comes first. Unknown keys and other YAML than the subset are errors."""
    main = Place(name)
    try:
        document = parse_yaml(text)
    except YamlError as why:
        hint = "Muster reads block mappings, lists and plain or quoted text; other YAML must be rewritten so"
        problems.error(Place(name, why.line), str(why), hint)
        return []
    reader = _Reader(name, problems)
    drafts = [draft for item in reader.list_of(document, "the file") if (draft := reader.topology(item)) is not None]
    defaults = [draft for draft in drafts if draft.cluster_default]
    seen: set[str] = set()
    for draft in drafts:
        if draft.name in seen:
            problems.error(draft.place, f"topology {draft.name} is defined twice")
        seen.add(draft.name)
    if not drafts and not problems.errors:
        problems.error(main, "the file defines no topology", "remove it or add a list item with topology: and a kind")
    return sorted(drafts, key=lambda draft: draft is not (defaults or drafts)[0])


class _Reader:
    """Takes nodes apart; what has the wrong shape is an error with its line and gives the empty value."""

    def __init__(self, name: str, problems: Problems) -> None:
        self._name = name
        self._problems = problems

    def topology(self, node: Node) -> Draft | None:
        """One item of the file's list."""
        fields = self.mapping_of(node, "a topology", _TOP)
        draft = Draft(Place(self._name, node.line), self.text(fields, "topology", node))
        draft.cluster_default = self.text(fields, "cluster_default", node, "false").lower() in ("true", "yes")
        if "levels" in fields:
            draft.levels_place = Place(self._name, fields["levels"].line)
            draft.levels = [word.strip() for word in self.hosts(fields, "levels").split(",")]
        kinds = [kind for kind in _KINDS if kind in fields]
        if not draft.name:
            self._error(node, "a topology has no name", "add topology: name")
        if len(kinds) != 1:
            self._error(node, f"topology {draft.name} needs exactly one of tree, block, flat and ring")
            return None
        inner = fields[kinds[0]]
        if kinds[0] == "torus3d":
            self._error(inner, f"topology {draft.name}: torus3d is not supported", "use block or tree")
            return None
        if kinds[0] == "tree":
            for item in self.items(inner, "tree", "switches", ("switch", "children", "nodes")):
                draft.switches.append(self._item(item, "switch"))
        elif kinds[0] == "block":
            for item in self.items(inner, "block", "blocks", ("block", "nodes"), ("block_sizes",)):
                draft.blocks.append(self._item(item, "block"))
            sizes = self.mapping_of(inner, "block", ("blocks", "block_sizes")).get("block_sizes")
            if sizes is not None:
                draft.block_sizes = self.hosts({"block_sizes": sizes}, "block_sizes")
                draft.sizes_place = Place(self._name, sizes.line)
        elif kinds[0] == "ring":
            for item in self.items(inner, "ring", "rings", ("ring", "nodes")):
                draft.rings.append(self._item(item, "ring"))
        else:
            draft.flat = True
        return draft

    def items(
        self, node: Node, what: str, key: str, known: tuple[str, ...], besides: tuple[str, ...] = ()
    ) -> list[tuple[Node, dict[str, Node]]]:
        """The mappings in the list under `key` of a kind."""
        inner = self.mapping_of(node, what, (key, *besides)).get(key)
        if inner is None:
            self._error(node, f"{what} has no {key}")
            return []
        return [(item, self.mapping_of(item, f"an item of {key}", known)) for item in self.list_of(inner, key)]

    def list_of(self, node: Node, what: str) -> list[Node]:
        """The items of a list."""
        if isinstance(node.value, list):
            return node.value
        if node.value is not None:
            self._error(node, f"{what} is not a list")
        return []

    def mapping_of(self, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
        """The known keys of a mapping."""
        if not isinstance(node.value, dict):
            self._error(node, f"{what} is not a mapping")
            return {}
        for key, inner in node.value.items():
            if key not in known:
                self._error(inner, f"unrecognized key: {key} in {what}", nearest(key, known))
        return {key: inner for key, inner in node.value.items() if key in known}

    def text(self, fields: dict[str, Node], key: str, owner: Node, default: str = "") -> str:
        """A plain text."""
        node = fields.get(key)
        if node is None or node.value is None:
            return default
        if not isinstance(node.value, str):
            self._error(node, f"{key} is not a plain text")
            return default
        return node.value

    def hosts(self, fields: dict[str, Node], key: str) -> str:
        """A host list, written as text or as a list of texts."""
        node = fields.get(key)
        if node is None or node.value is None:
            return ""
        if isinstance(node.value, list):
            return ",".join(item.value for item in node.value if isinstance(item.value, str))
        return self.text(fields, key, node)

    def _item(self, item: tuple[Node, dict[str, Node]], key: str) -> Item:
        node, fields = item
        place = Place(self._name, node.line)
        return Item(self.text(fields, key, node), place, self.hosts(fields, "nodes"), self.hosts(fields, "children"))

    def _error(self, node: Node, sentence: str, hint: str = "") -> None:
        self._problems.error(Place(self._name, node.line), sentence, hint)

"""topology.conf and what topology.yaml says the same way: switches, blocks, rings, and the checks on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.config.keys import Table, field_values, read_line
from muster.config.linekeys import BLOCK, RING, SWITCH
from muster.config.nodelists import NodeNames, expand_hosts
from muster.config.problems import Place, Problems, nearest
from muster.config.records import Block, Switch, Topology
from muster.config.syntax import Line
from muster.config.values import is_digits
from muster.topology_levels import depth

MAX_NAME = 64
MAX_RING = 16
_TABLES = {"switchname": SWITCH, "blockname": BLOCK, "ringname": RING}


@dataclass(slots=True)
class Item:
    """A switch, block or ring as written."""

    name: str
    place: Place
    nodes: str = ""
    switches: str = ""


@dataclass(slots=True)
class Draft:
    """A topology as written, of either file."""

    place: Place
    name: str = "default"
    cluster_default: bool = False
    flat: bool = False
    switches: list[Item] = field(default_factory=list)
    blocks: list[Item] = field(default_factory=list)
    block_sizes: str = ""
    sizes_place: Place | None = None
    rings: list[Item] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    levels_place: Place | None = None


def topology_conf(lines: list[Line], main: Place, problems: Problems) -> Draft:
    """Read the lines of topology.conf."""
    draft = Draft(main)
    for line in lines:
        first = line.pairs[0]
        lower = first.key.lower()
        if lower == "blocksizes":
            draft.block_sizes, draft.sizes_place = first.value, line.place
            for extra in line.pairs[1:]:
                problems.error(line.place, f"unrecognized key: {extra.key} on a BlockSizes line")
            continue
        table: Table | None = _TABLES.get(lower)
        if table is None:
            known = ("SwitchName", "BlockName", "BlockSizes", "RingName")
            problems.error(line.place, f"unrecognized key: {first.key} in topology.conf", nearest(first.key, known))
            continue
        values = field_values(read_line(table, line.pairs, line.place, problems))
        item = Item(
            str(values.get("name", "")), line.place, str(values.get("nodes", "")), str(values.get("switches", ""))
        )
        {"switchname": draft.switches, "blockname": draft.blocks, "ringname": draft.rings}[lower].append(item)
    return draft


def checked(draft: Draft, names: NodeNames, problems: Problems) -> Topology:
    """The topology with everything resolved; what the specification marks fatal is an error."""
    kinds = [
        kind for kind, items in (("tree", draft.switches), ("block", draft.blocks), ("ring", draft.rings)) if items
    ]
    if len(kinds) > 1:
        problems.error(draft.place, f"topology {draft.name} mixes {kinds[0]} and {kinds[1]}", "keep one kind")
    if draft.block_sizes and not draft.blocks:
        problems.error(draft.sizes_place or draft.place, "BlockSizes is set and no BlockName line is")
    kind = kinds[0] if kinds else "flat"
    found = Topology(
        name=draft.name,
        kind=kind,
        switches=_switches(draft, names, problems) if draft.switches else (),
        blocks=_groups(draft.blocks, "BlockName", names, problems),
        block_sizes=_block_sizes(draft, names, problems) if draft.blocks else (),
        rings=_rings(draft, names, problems),
        levels=tuple(draft.levels),
    )
    _check_levels(draft, found, problems)
    return found


def _check_levels(draft: Draft, found: Topology, problems: Problems) -> None:
    """Level names are different words, and no more than there are levels."""
    place = draft.levels_place or draft.place
    for level in draft.levels:
        if not level or is_digits(level) or len(level) > MAX_NAME or any(sign in level for sign in ":, "):
            problems.error(place, f"levels: '{level[:70]}' is no name for a level", "write words such as [spine, rack]")
    if len(set(draft.levels)) != len(draft.levels):
        problems.error(place, "levels: a name stands twice")
    most = depth(found)
    if len(draft.levels) > most:
        sentence = f"levels: {len(draft.levels)} names, and topology {draft.name} has {most} levels"
        problems.error(place, sentence, "name them coarse to fine; the last is that of the leaves or base blocks")


def group_nodes(topologies: tuple[Topology, ...]) -> dict[str, tuple[str, ...]]:
    """The nodes of `switch{name}`, `block{name}` and `ring{name}`, by that text."""
    found: dict[str, tuple[str, ...]] = {}
    for topology in topologies:
        for switch in topology.switches:
            found.setdefault(f"switch{{{switch.name}}}", switch.all_nodes)
        for block in topology.blocks:
            found.setdefault(f"block{{{block.name}}}", block.nodes)
        for ring in topology.rings:
            found.setdefault(f"ring{{{ring.name}}}", ring.nodes)
    return found


def _check_name(item: Item, what: str, seen: set[str], problems: Problems) -> bool:
    if not item.name:
        problems.error(item.place, f"{what} is empty")
    elif len(item.name) > MAX_NAME:
        problems.error(item.place, f"{what}={item.name[:70]} is longer than {MAX_NAME} characters")
    elif item.name in seen:
        problems.error(item.place, f"{what}={item.name} is defined twice")
    else:
        seen.add(item.name)
        return True
    return False


def _switches(draft: Draft, names: NodeNames, problems: Problems) -> tuple[Switch, ...]:
    seen: set[str] = set()
    leaves: dict[str, tuple[str, ...]] = {}
    children: dict[str, tuple[str, ...]] = {}
    items = [item for item in draft.switches if _check_name(item, "SwitchName", seen, problems)]
    for item in items:
        if item.nodes and item.switches:
            problems.error(item.place, f"SwitchName={item.name} has both Nodes and Switches", "keep one of the two")
        elif item.switches:
            below = expand_hosts(item.switches, f"SwitchName={item.name}", item.place, problems)
            for child in below:
                if child not in seen:
                    problems.error(
                        item.place,
                        f"Switch configuration {item.name} has invalid child ({child})",
                        nearest(child, seen),
                    )
            children[item.name] = tuple(child for child in below if child in seen)
        else:
            if not item.nodes:
                problems.error(item.place, f"SwitchName={item.name} has neither Nodes nor Switches")
            leaves[item.name] = names.resolve(item.nodes, f"SwitchName={item.name}", item.place, problems)
    levels = _levels(items, children, problems)
    below_of = _nodes_below(leaves, children, levels)
    lacking = [node for node in names.order if node not in set().union(*leaves.values())] if leaves else []
    if lacking:
        problems.warning(draft.place, f"switches lack access to {len(lacking)} nodes: {', '.join(lacking[:10])}")
    return tuple(
        Switch(
            name=item.name, nodes=leaves.get(item.name, ()), switches=children.get(item.name, ()),
            level=levels.get(item.name, 0),
            all_nodes=tuple(sorted(below_of.get(item.name, ()), key=names.order.__getitem__)),
        )
        for item in items
    )  # fmt: skip


def _levels(items: list[Item], children: dict[str, tuple[str, ...]], problems: Problems) -> dict[str, int]:
    """0 for leaves, one more than the highest child for the rest; a switch on a cycle has none and is an error."""
    levels: dict[str, int] = {item.name: 0 for item in items if item.name not in children}
    waiting = [item for item in items if item.name in children]
    while waiting:
        ready = [item for item in waiting if all(child in levels for child in children[item.name])]
        if not ready:
            cycle = ", ".join(item.name for item in waiting[:10])
            problems.error(waiting[0].place, f"the switches {cycle} contain each other in a cycle")
            break
        for item in ready:
            levels[item.name] = 1 + max((levels[child] for child in children[item.name]), default=0)
        waiting = [item for item in waiting if item.name not in levels]
    return levels


def _nodes_below(
    leaves: dict[str, tuple[str, ...]], children: dict[str, tuple[str, ...]], levels: dict[str, int]
) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set(nodes) for name, nodes in leaves.items()}
    for name in sorted(levels, key=levels.__getitem__):
        if name in children:
            found[name] = set().union(*(found.get(child, set()) for child in children[name]))
    return found


def _groups(items: list[Item], what: str, names: NodeNames, problems: Problems) -> tuple[Block, ...]:
    seen: set[str] = set()
    taken: dict[str, str] = {}
    found: list[Block] = []
    for item in items:
        if not _check_name(item, what, seen, problems):
            continue
        nodes = names.resolve(item.nodes, f"{what}={item.name}", item.place, problems)
        for node in nodes:
            if taken.setdefault(node, item.name) != item.name:
                problems.error(item.place, f"{what}={item.name}: {node} is already in {taken[node]}")
                break
        found.append(Block(item.name, nodes))
    return tuple(found)


def _rings(draft: Draft, names: NodeNames, problems: Problems) -> tuple[Block, ...]:
    found = _groups(draft.rings, "RingName", names, problems)
    places = {item.name: item.place for item in draft.rings}
    for ring in found:
        if len(ring.nodes) > MAX_RING:
            problems.error(places[ring.name], f"RingName={ring.name} has {len(ring.nodes)} nodes, more than {MAX_RING}")
    return found


def _block_sizes(draft: Draft, names: NodeNames, problems: Problems) -> tuple[int, ...]:
    """Base size and its power-of-two multiples; by default the size of the smallest block alone."""
    place = draft.sizes_place or draft.place
    smallest = min(
        (len(set(names.resolve(item.nodes, "", item.place, Problems()))) for item in draft.blocks), default=0
    )
    if not draft.block_sizes:
        return (smallest,) if smallest else ()
    sizes: list[int] = []
    for item in draft.block_sizes.split(","):
        if not is_digits(item.strip()) or len(item.strip()) > 6 or int(item) == 0:
            problems.error(
                place, f'BlockSizes="{draft.block_sizes[:80]}" is not a list of sizes', "write BlockSizes=4,16"
            )
            return ()
        sizes.append(int(item))
    base = sizes[0]
    for size in sizes[1:]:
        multiple = size // base
        if size % base or multiple & (multiple - 1) or multiple < 1:
            problems.error(place, f"BlockSizes={draft.block_sizes}: {size} is not {base} times a power of two")
            return ()
    if sorted(set(sizes)) != sizes:
        problems.error(place, f"BlockSizes={draft.block_sizes} must rise from size to size")
    for block in draft.blocks:
        held = len(names.resolve(block.nodes, "", block.place, Problems()))
        if held < base:
            problems.error(block.place, f"BlockName={block.name} has {held} nodes, fewer than the base size {base}")
    return tuple(sizes)

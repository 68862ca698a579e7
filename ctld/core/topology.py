"""Which topology a partition has, what its levels are called, and what `--topology` and `--segment` ask of it."""

from __future__ import annotations

from dataclasses import dataclass

from ctld.core.cluster import PartitionSpec, Settings, TopologySpec
from ctld.core.model import Request
from muster.errors import InvalidInput
from muster.slurm_errors import slurm_text

FLAT = TopologySpec()
MODES = ("required", "preferred", "unconstrained")


@dataclass(frozen=True, slots=True)
class Wish:
    """What --topology says."""

    mode: str = ""
    """required | preferred | unconstrained; empty: nothing was said."""
    level: str = ""
    """Name or number of a level."""


def topology_of(settings: Settings, partition: PartitionSpec) -> TopologySpec:
    """Give the topology of a partition; flat when there is none."""
    for one in settings.topologies:
        if not partition.topology or one.name == partition.topology:
            return one
    return FLAT


def depth(spec: TopologySpec) -> int:
    """Count the levels; a flat topology has none."""
    if spec.kind == "tree":
        return 1 + max((switch.level for switch in spec.switches), default=-1)
    if spec.kind == "block":
        return len(spec.block_sizes)
    return 1 if spec.kind == "ring" else 0


def level_number(spec: TopologySpec, word: str) -> int:
    """Give the number of a level, 0 the finest (leaf switches, base blocks, rings).

    Raises:
        InvalidInput: there is no such level; the hint names those that are there.
    """
    levels = depth(spec)
    if word.isascii() and word.isdigit() and len(word) < 4 and int(word) < levels:
        return int(word)
    if word in spec.levels:
        return len(spec.levels) - 1 - spec.levels.index(word)
    if not levels:
        raise _unavailable(f"topology {spec.name} is flat and has no levels, '{word}' is asked for")
    named = f" or {', '.join(reversed(spec.levels))}" if spec.levels else ""
    numbers = "0" if levels == 1 else f"0 to {levels - 1}"
    raise _unavailable(f"topology {spec.name} has no level '{word}'; its levels are {numbers} (0 the finest){named}")


def level_name(spec: TopologySpec, level: int) -> str:
    """Give the name of a level, its number where it has none."""
    place = len(spec.levels) - 1 - level
    return spec.levels[place] if 0 <= place < len(spec.levels) else str(level)


def read_wish(text: str) -> Wish:
    """Read `required:LEVEL`, `preferred:LEVEL` or `unconstrained`; empty text is no wish.

    Raises:
        InvalidInput: anything else.
    """
    if not text:
        return Wish()
    mode, colon, level = text.strip().partition(":")
    mode = mode.strip().lower()
    level = level.strip()
    if mode not in MODES or bool(level) == (mode == "unconstrained") or bool(colon) != bool(level):
        raise _unavailable(
            f"--topology={text[:80]} cannot be read; write required:LEVEL, preferred:LEVEL or unconstrained"
        )
    return Wish(mode, level)


def wish_of(partition: PartitionSpec, request: Request) -> Wish:
    """Give what a request wishes in a partition: its own word, else the partition's DefaultTopology."""
    return read_wish(request.topology or partition.default_topology)


def check_request(settings: Settings, partition: PartitionSpec, request: Request) -> None:
    """Refuse what the topology of a partition can never give.

    Raises:
        InvalidInput: an unknown level, or segments that do not make up the job.
    """
    if not (request.topology or request.segment or request.switches):
        return
    spec = topology_of(settings, partition)
    wish = read_wish(request.topology)
    if wish.level:
        level_number(spec, wish.level)
    if request.segment_level:
        level_number(spec, request.segment_level)
    if request.segment and spec.kind != "flat" and request.nodes_min > request.segment:
        sizes = {request.nodes_min, request.nodes_max or request.nodes_min}
        if any(size % request.segment for size in sizes):
            size = max(sizes)
            raise _unavailable(
                f"--segment={request.segment} does not fit the job size ({size}): "
                "node count must be evenly divisible by segment size"
            )


def _unavailable(hint: str) -> InvalidInput:
    return InvalidInput(slurm_text(2178), hint, slurm_code=2178)

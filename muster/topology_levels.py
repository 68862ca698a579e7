"""Levels of a topology: what `--topology` and DefaultTopology= ask for, and which number a level has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.errors import InvalidInput
from muster.placement import parse_topology
from muster.slurm_errors import slurm_text


@dataclass(frozen=True, slots=True)
class Wish:
    """What --topology says."""

    mode: str = ""
    """required | preferred | unconstrained; empty: nothing was said."""
    level: str = ""
    """Name or number of a level."""


class HasLevel(Protocol):
    """A switch, as far as levels go."""

    @property
    def level(self) -> int:
        """0 of a leaf."""
        ...


class Levelled(Protocol):
    """A topology, as the configuration or the core keeps it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def kind(self) -> str:
        """tree | block | ring | flat."""
        ...

    @property
    def switches(self) -> Sequence[HasLevel]:
        """Of a tree."""
        ...

    @property
    def block_sizes(self) -> Sequence[int]:
        """Of blocks, base first."""
        ...

    @property
    def levels(self) -> Sequence[str]:
        """Names of the levels, coarse to fine."""
        ...


def depth(topology: Levelled) -> int:
    """Count the levels; a flat topology has none."""
    if topology.kind == "tree":
        return 1 + max((switch.level for switch in topology.switches), default=-1)
    if topology.kind == "block":
        return len(topology.block_sizes)
    return 1 if topology.kind == "ring" else 0


def level_number(topology: Levelled, word: str) -> int:
    """Give the number of a level, 0 the finest (leaf switches, base blocks, rings).

    Raises:
        InvalidInput: there is no such level; the hint names those that are there.
    """
    levels = depth(topology)
    if word.isascii() and word.isdigit() and len(word) < 4 and int(word) < levels:
        return int(word)
    if word in topology.levels:
        return len(topology.levels) - 1 - topology.levels.index(word)
    if not levels:
        raise unavailable(f"topology {topology.name} is flat and has no levels, '{word}' is asked for")
    named = f" or {', '.join(reversed(topology.levels))}" if topology.levels else ""
    numbers = "0" if levels == 1 else f"0 to {levels - 1}"
    raise unavailable(f"topology {topology.name} has no level '{word}'; its levels are {numbers} (0 the finest){named}")


def read_wish(text: str) -> Wish:
    """Read `required:LEVEL`, `preferred:LEVEL` or `unconstrained`; empty text is no wish.

    Raises:
        InvalidInput: anything else.
    """
    if not text:
        return Wish()
    try:
        return Wish(*parse_topology(text))
    except InvalidInput as error:
        raise unavailable(error.sentence) from None


def unavailable(hint: str) -> InvalidInput:
    """Give the refusal of what no topology can give."""
    return InvalidInput(slurm_text(2178), hint, slurm_code=2178)

"""Trackable resources as text: `cpu=8,mem=32G,node=1,billing=8,gres/gpu=4,gres/gpu:a100=4`.

An amount of memory is in MiB and printed with a unit; all others are plain numbers. Typed GPUs (`gres/gpu:a100`)
stand beside the generic count of the same devices and are never added to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.errors import InvalidInput
from muster.units import format_memory_mib, parse_count, parse_memory_mib

_ORDER = {
    name: place for place, name in enumerate(("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"))
}


def format_tres(amounts: Mapping[str, int], *, alphabetical: bool = False) -> str:
    """Print amounts (mem in MiB) in squeue's order, or sorted by name as sacct does; zero amounts are left out."""
    names = [name for name, amount in amounts.items() if amount]
    names.sort(key=(lambda name: (0, name)) if alphabetical else (lambda name: (_ORDER.get(name, 99), name)))
    return ",".join(f"{name}={format_memory_mib(amounts[name]) if name == 'mem' else amounts[name]}" for name in names)


def parse_tres(text: str) -> dict[str, int]:
    """Read `cpu=10,mem=32G,gres/gpu:a100=4`: memory in MiB (a number without unit is MiB), -1 kept as -1.

    Raises:
        InvalidInput: naming the part that is no `name=number`.
    """
    amounts: dict[str, int] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        written, equals, amount = (piece.strip() for piece in part.rpartition("="))
        kind, colon, variant = written.partition(":")
        name = _NAMES.get(kind.lower(), kind.lower())
        if not equals or not is_tres(name):
            raise InvalidInput(f"Invalid TRES: {part.strip()[:60]}", TRES_FORMS)
        if amount == "-1":
            amounts[f"{name}{colon}{variant}"] = -1
        else:
            read = parse_memory_mib if name == "mem" else parse_count
            try:
                amounts[f"{name}{colon}{variant}"] = read(amount)
            except InvalidInput as error:
                raise InvalidInput(f"Invalid TRES: {part.strip()[:60]}", error.hint) from None
    return amounts


def is_tres(name: str) -> bool:
    """Tell whether a name in lower case, without the type behind a colon, can be that of a TRES."""
    kind, slash, what = name.partition("/")
    return bool(what) and kind in _KINDS if slash else name in _ORDER


TRES_FORMS = "write name=number; names are cpu, mem, node, billing, energy, gres/NAME[:TYPE] and license/NAME"
_KINDS = ("gres", "license", "fs", "bb", "ic")
_NAMES = {"memory": "mem", "nodes": "node", "cpus": "cpu"}
"""Words that stand for a TRES of another name."""

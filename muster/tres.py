"""Trackable resources as text: `cpu=8,mem=32G,node=1,billing=8,gres/gpu=4,gres/gpu:a100=4`.

An amount of memory is in MiB and printed with a unit; all others are plain numbers. Typed GPUs (`gres/gpu:a100`)
stand beside the generic count of the same devices and are never added to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.units import format_memory_mib

_ORDER = {
    name: place for place, name in enumerate(("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"))
}


def format_tres(amounts: Mapping[str, int], *, alphabetical: bool = False) -> str:
    """Print amounts (mem in MiB) in squeue's order, or sorted by name as sacct does; zero amounts are left out."""
    names = [name for name, amount in amounts.items() if amount]
    names.sort(key=(lambda name: (0, name)) if alphabetical else (lambda name: (_ORDER.get(name, 99), name)))
    return ",".join(f"{name}={format_memory_mib(amounts[name]) if name == 'mem' else amounts[name]}" for name in names)

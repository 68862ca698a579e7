"""What a share of a job takes, as the rows of the profiles have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ctld.sched.demand import Demand
from ctld.sched.fleet import Fleet, Ints
from ctld.sched.needs import Amount
from ctld.sched.steps import SHUT, Short

if TYPE_CHECKING:
    from ctld.sched.profiles import Profiles

UNBOUND = -(SHUT // 2)
"""CPUs that are wanted where free ones do not matter: any node that is not closed has as many."""


class Wanted:
    """What a share takes on each node of a set."""

    __slots__ = ("by_kind", "columns", "nodes", "place")

    def __init__(self, fleet: Fleet, nodes: Ints, rows: list[tuple[int, list[int]]]) -> None:
        self.nodes = nodes
        """Ascending."""
        self.place = np.full(fleet.size, -1, np.int32)
        """Node -> its place in `nodes`, -1 when it is not there."""
        self.place[nodes] = np.arange(len(nodes), dtype=np.int32)
        kinds = fleet.kind_column[nodes]
        self.columns: list[tuple[int, Short]] = [(row, np.array(amounts, np.int32)[kinds]) for row, amounts in rows]
        """(row of `Profiles.data`, how much of it by place); the CPUs, and other rows that matter."""
        self.by_kind: list[list[tuple[int, int]]] = [
            [(row, amounts[kind]) for row, amounts in rows] for kind in range(len(fleet.kinds))
        ]
        """The same by kind of hardware."""

    def runs(self, profiles: Profiles, places: Ints | None) -> tuple[Ints, Short, Short]:
        """Give the times all over which there is room for a share on some places (None: all): of which of them, when
        it begins (relative) and when it ends (PAD: never); place by place, ascending."""
        nodes = self.nodes if places is None else self.nodes[places]
        slots = int(profiles.lengths[nodes].max(initial=1)) + 1  # In the last one there is nothing.
        block = profiles.data[nodes, :, :slots]
        good = np.zeros((len(nodes), slots + 1), np.bool_)  # Nor is there anything before the first.
        inner = good[:, 1:]
        for number, (row, amounts) in enumerate(self.columns):
            wanted = (amounts if places is None else amounts[places])[:, None]
            if number:
                inner &= block[:, row] >= wanted
            else:
                np.greater_equal(block[:, row], wanted, out=inner)
        # In one column, where turns come in pairs: far cheaper than to look for them row by row.
        flat, times = good.ravel(), block.ravel()
        turns = (flat[1:] != flat[:-1]).nonzero()[0]
        begun, ended = turns[::2], turns[1::2]
        which = begun // (slots + 1)
        skipped = which * (block.shape[1] * slots - slots - 1)
        return which, times[begun + skipped], times[ended + skipped]


def rows_of(demand: Demand, amounts: list[Amount]) -> list[tuple[int, list[int]]]:
    """Give (row of `Profiles.data`, amount by kind of hardware) of the CPUs, and of all else that matters."""
    rows = [
        (1, [one[0] if not demand.shared else UNBOUND for one in amounts]),
        (2, [one[1] if demand.need.memory_counts else 0 for one in amounts]),
        *((3 + at, [one[2][at] for one in amounts]) for at in range(demand.fleet.width)),
    ]
    return [(row, by_kind) for row, by_kind in rows if row == 1 or any(by_kind)]

"""Which lines of waiting jobs may find a place on a node that has more free than before: all lines in a few calls.

A table with a row for each line: what its smallest share takes on each hardware, which nodes could serve it, how long
its jobs are, where its first job stands. For lines whose jobs need several nodes the units of all nodes (see `units`)
are kept as an upper bound, so that they wake only when these suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ctld.sched.fleet import Fleet, Ints, View
from ctld.sched.units import Units

Bools = npt.NDArray[np.bool_]
Place = tuple[int, int, int]
"""Where a job stands in the order of a pass: tier, order key, place of the partition in its list."""
NOWHERE: Place = (-(1 << 62), 0, 0)
"""Before everybody."""
_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1
_FIRST = 64
_HUGE = 1 << 60


@dataclass(slots=True)
class Cap:
    """What a promise leaves on a node to those who stand behind it and outlast its start."""

    place: Place
    start_at: int
    spare: Sequence[int]


class WakeTable:
    """Rows are numbers of lines."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.size = 0
        self._width = 2 + fleet.width
        self._kinds = len(fleet.kinds)
        self._need: Ints = np.zeros((self._kinds, self._width, _FIRST), np.int64)
        self._sets: Ints = np.zeros(_FIRST, np.int64)
        self._seconds: Ints = np.zeros(_FIRST, np.int64)
        self._tier: Ints = np.zeros(_FIRST, np.int64)
        self._high: Ints = np.zeros(_FIRST, np.int64)
        self._low: Ints = np.zeros(_FIRST, np.int64)
        """The order key of the first job, in two parts; `_high` below 0: before everybody."""
        self._set_of: dict[int, int] = {}
        self._inside: Bools = np.zeros((4, max(1, fleet.size)), np.bool_)
        """[set of nodes, node]"""
        self._several: list[int] = []
        """Lines whose jobs may need several nodes."""
        self._row: dict[int, int] = {}
        """Line -> its row in what follows."""
        self._rows: Ints = np.zeros(0, np.int64)
        self._most: Ints = np.zeros(0, np.int64)
        self._wanted: Ints = np.zeros(0, np.int64)
        self._parts: list[tuple[int, Ints, Ints]] = []
        """(resource, rows that count it, how much of it a unit takes)"""
        self._counted: npt.NDArray[np.int32] = np.zeros((0, max(1, fleet.size)), np.int32)
        self._total: Ints = np.zeros(0, np.int64)
        self._units: list[Units] = []

    def add(self, units: Units, seconds: int, tier: int) -> int:
        """Give a new line its row; `seconds`: its limit as it is planned, FAR for none."""
        number = self.size
        if number == len(self._sets):
            self._grow()
        self.size += 1
        self._need[:, :, number] = units.least
        self._sets[number] = self._set(units.bits)
        self._seconds[number] = min(seconds, _HUGE)
        self._tier[number] = tier
        self._high[number] = -1
        if units.several:
            self._add_several(number, units)
        return number

    def stands(self, number: int, key: int | None) -> bool:
        """Note the order key of a line's first job (None: nobody is in it); tell whether it was another before."""
        high, low = (-1, 0) if key is None else (key >> _ID_BITS, key & _ID_MASK)
        if self._high[number] == high and self._low[number] == low:
            return False
        self._high[number], self._low[number] = high, low
        return True

    def judged(self, number: int, view_of: Callable[[], View]) -> None:
        """Note that a line found no place in this view."""
        row = self._row.get(number)
        if row is None:
            return
        units, view = self._units[row], view_of()
        self._counted[row] = 0
        counted = units.count(view, self.fleet.kind_column)
        self._counted[row, units.nodes] = counted
        self._total[row] = counted.sum()

    def on(self, node: int, free: Sequence[int], caps: Sequence[Cap], at: int) -> Bools:
        """Follow a change of a node; tell for each line whether it may find a place with that node.

        Args:
            free: CPUs, memory, GPUs by column; fewer than no CPUs: it cannot be used.
            caps: what promises leave there.
            at: now.
        """
        size = self.size
        rows = self._rows
        need = self._need[self.fleet.kind[node]]
        left = None
        if not caps:
            fits: Bools = need[0, :size] <= free[0]
            for column in range(1, self._width):
                fits &= need[column, :size] <= free[column]
        else:
            left = self._left(free, caps, at)
            fits = (need[:, :size] <= left).all(0)
        fits &= self._inside[self._sets[:size], node]
        if len(rows):
            units = np.where(fits[rows], self._most, 0)
            for resource, these, amounts in self._parts:
                have = free[resource] if left is None else left[resource][rows[these]]
                units[these] = np.minimum(units[these], np.maximum(have, 0) // amounts)
            self._total += units - self._counted[: len(rows), node]
            fits[rows] &= self._total >= self._wanted
            self._counted[: len(rows), node] = units
        return fits

    def behind(self, place: Place) -> Bools:
        """Tell for each line whether its first job stands behind a place (a job's own other partitions do not)."""
        tier, key, _ = place
        cap_high, cap_low = key >> _ID_BITS, key & _ID_MASK
        size = self.size
        high = self._high[:size]
        found: Bools = (high > cap_high) | ((high == cap_high) & (self._low[:size] > cap_low))
        lines = self._tier[:size]
        found = (lines > tier) | ((lines == tier) & found)
        found &= high >= 0
        return found

    def empty(self) -> Bools:
        """Tell for each line whether nobody stands in it."""
        found: Bools = self._high[: self.size] < 0
        return found

    def foremost(self, among: Bools) -> list[int]:
        """Give those of some lines whose first jobs stand first: one, or several for one job in several partitions."""
        found = np.flatnonzero(among & (self._high[: self.size] >= 0))
        if len(found) > 1:
            for column in (self._tier, self._high, self._low):
                values = column[found]
                found = found[values == values.min()]
                if len(found) == 1:
                    break
        listed: list[int] = found.tolist()
        return listed

    def _left(self, free: Sequence[int], caps: Sequence[Cap], at: int) -> Ints:
        """Give what is left for each line, as [resource, line]."""
        size = self.size
        left: Ints = np.repeat(np.array(free, np.int64)[:, None], size, 1)
        for cap in caps:
            behind = self.behind(cap.place)
            behind &= self._seconds[:size] + at > cap.start_at
            for resource, most in enumerate(cap.spare):
                np.minimum(left[resource], most, out=left[resource], where=behind)
        return left

    def _set(self, bits: int) -> int:
        number = self._set_of.get(bits)
        if number is None:
            number = self._set_of[bits] = len(self._set_of)
            if number == len(self._inside):
                self._inside = np.concatenate((self._inside, np.zeros_like(self._inside)))
            raw = np.frombuffer(bits.to_bytes((self.fleet.size + 7) // 8 or 1, "little"), np.uint8)
            inside = np.unpackbits(raw, bitorder="little")[: self.fleet.size]
            self._inside[number, : self.fleet.size] = inside
        return number

    def _add_several(self, number: int, units: Units) -> None:
        row = len(self._several)
        self._several.append(number)
        self._row[number] = row
        self._units.append(units)
        self._rows = np.array(self._several, np.int64)
        self._most = np.append(self._most, units.limits)
        self._wanted = np.append(self._wanted, units.wanted)
        self._total = np.append(self._total, 0)
        if row >= len(self._counted):
            more = np.zeros((max(8, row), self._counted.shape[1]), np.int32)
            self._counted = np.concatenate((self._counted, more))
        self._parts = []
        for resource in range(self._width):
            pairs = [(at, amount) for at, one in enumerate(self._units) for r, amount in one.per_unit if r == resource]
            if pairs:
                places, amounts = np.array(pairs, np.int64).T
                self._parts.append((resource, places, amounts))

    def _grow(self) -> None:
        for name in ("_need", "_sets", "_seconds", "_tier", "_high", "_low"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate((column, np.zeros_like(column)), -1))

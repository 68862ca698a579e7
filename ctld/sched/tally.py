"""Sets of numbers as bitmaps, and the units that all nodes can give to lines whose jobs need several of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ctld.sched.fleet import Fleet, Ints, View, members
from ctld.sched.units import Units

Bools = npt.NDArray[np.bool_]
FIRST = 64
_HUGE = 1 << 60
_FEW = 4
_BLOCK = 128
_MOST_KNOWN = 512
_MOST = (1 << 15) - 1
"""Units that are counted on a node; no node has so many."""
_Number = TypeVar("_Number", bound=np.generic)


class Counts:
    """Upper bounds, by line: it is worth trying only when they suffice."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.size = 0
        self._kind_of: dict[tuple[object, ...], int] = {}
        self._shapes: list[int] = []
        """By kind of units: the shape of the lines that count by it."""
        self._known: dict[tuple[int, ...], Ints] = {}
        """Some of what `units` gives: nodes are often left alike."""
        self._limits: Ints = np.zeros(FIRST, np.int64)
        self._per_unit: Ints = np.ones((2 + fleet.width, FIRST), np.int64)
        """[resource, kind of units]: how much of it a unit takes, 1 where units are not counted by it."""
        self._never: Ints = np.full((2 + fleet.width, FIRST), _HUGE, np.int64)
        """0 where units are counted by it, else so much that it is never the least."""
        self._row: dict[int, int] = {}
        """Line -> its row in what follows."""
        self._units: list[Units] = []
        self._kind: Ints = np.zeros(FIRST, np.int64)
        self._lines: Ints = np.zeros(FIRST, np.int64)
        self._wanted: Ints = np.zeros(FIRST, np.int64)
        self._total: Ints = np.zeros(FIRST, np.int64)
        self._counted: list[npt.NDArray[np.int16]] = []
        """[node, row], in blocks of rows: a table that is made anew when it grows would take tens of milliseconds."""

    @property
    def lines(self) -> Ints:
        """Row -> its line."""
        return self._lines[: self.size]

    def add(self, line: int, units: Units, shape: int) -> None:
        """Take one more line."""
        row = self._row[line] = self.size
        if row == len(self._lines):
            for name in ("_kind", "_lines", "_wanted", "_total"):
                setattr(self, name, doubled(getattr(self, name)))
        if row % _BLOCK == 0:
            self._counted.append(np.zeros((max(1, self._fleet.size), _BLOCK), np.int16))
        self.size += 1
        self._known.clear()
        self._units.append(units)
        self._lines[row] = line
        self._wanted[row] = units.wanted
        key = shape, units.limits, tuple(units.per_unit)
        kind = self._kind_of.get(key)
        if kind is None:
            kind = self._kind_of[key] = len(self._shapes)
            if kind == len(self._limits):
                self._limits = doubled(self._limits)
                self._per_unit = np.concatenate((self._per_unit, np.ones_like(self._per_unit)), 1)
                self._never = np.concatenate((self._never, np.full_like(self._never, _HUGE)), 1)
            self._shapes.append(shape)
            self._limits[kind] = min(units.limits, _MOST)
            for resource, amount in units.per_unit:
                self._per_unit[resource, kind] = amount
                self._never[resource, kind] = 0
        self._kind[row] = kind

    def judged(self, line: int, view_of: Callable[[], View]) -> None:
        """Note that a line found no place in this view."""
        row = self._row.get(line)
        if row is None:
            return
        units = self._units[row]
        block, place = self._counted[row // _BLOCK], row % _BLOCK
        block[:, place] = 0
        counted = np.minimum(units.count(view_of(), self._fleet.kind_column), _MOST)
        block[units.nodes, place] = counted
        self._total[row] = counted.sum()

    def any(self, node: int) -> bool:
        """Tell whether any are counted on a node."""
        return bool(np.count_nonzero(self._on(node)))

    def none(self, node: int) -> None:
        """Note that a node gives none."""
        counted = self._on(node)
        if np.count_nonzero(counted):
            self._total[: self.size] -= counted  # Which may be a part of the block.
            for block in self._counted:
                block[node] = 0

    def units(self, shapes: int, free: Sequence[int]) -> Ints:
        """Count by row the units of a node that serves some shapes (a bitmap), of which so much is free; not to be
        changed."""
        key = shapes, *free
        found = self._known.get(key)
        if found is None:
            kinds = self._of(slice(len(self._shapes)), np.array(free, np.int64)[:, None])
            kinds *= np.array([shapes >> shape & 1 for shape in self._shapes], np.int64)
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = kinds[self._kind[: self.size]]
        return found

    def limited(self, rows: Ints, left: Ints) -> Ints:
        """Count for some rows what there is in [resource, place in `rows`]."""
        return self._of(self._kind[rows], left)

    def _on(self, node: int) -> npt.NDArray[np.int16]:
        if len(self._counted) == 1:
            return self._counted[0][node, : self.size]
        return np.concatenate([block[node] for block in self._counted])[: self.size]

    def _of(self, kinds: Ints | slice, have: Ints) -> Ints:
        units = np.maximum(have, 0) // self._per_unit[:, kinds]
        units += self._never[:, kinds]
        least: Ints = np.minimum.reduce(units, 0)
        return np.minimum(least, self._limits[kinds])

    def follow(self, node: int, units: Ints) -> int:
        """Take over what a node gives, by row; give the lines that it gives some to, and for which those of all nodes
        suffice, as a bitmap."""
        total = self._total[: self.size]
        more = units - self._on(node)
        if np.count_nonzero(more):
            total += more
            for number, block in enumerate(self._counted):
                part = units[number * _BLOCK : (number + 1) * _BLOCK]
                block[node, : len(part)] = part
        enough = (total >= self._wanted[: self.size]) & (units > 0)
        return bitmap_of(self.lines[enough])  # Rows are in the order of lines.


class Thresholds:
    """Numbered amounts: which of them are no more than a given one."""

    def __init__(self) -> None:
        self._amounts: list[int] = []
        self._within: list[int] = []
        """Bitmap of those that are no more than the amount at the same place."""

    def add(self, amount: int, number: int) -> None:
        """Take one more."""
        place = bisect_left(self._amounts, amount)
        if place == len(self._amounts) or self._amounts[place] != amount:
            self._amounts.insert(place, amount)
            self._within.insert(place, self._within[place - 1] if place else 0)
        for at in range(place, len(self._within)):
            self._within[at] |= 1 << number

    def of(self, most: int) -> int:
        """Give those that are no more than this."""
        place = bisect_right(self._amounts, most)
        return self._within[place - 1] if place else 0


def places(bits: int) -> Ints:
    """Give the set bits of a bitmap in ascending order."""
    if bits.bit_count() < _FEW:
        return np.array(members(bits), np.int64)
    raw = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), np.uint8)
    return np.unpackbits(raw, bitorder="little").nonzero()[0]


def bitmap_of(numbers: Ints) -> int:
    """Give ascending numbers as a bitmap."""
    if not len(numbers):
        return 0
    flags = np.zeros(int(numbers[-1]) + 1, np.uint8)
    flags[numbers] = 1
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def doubled(column: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Give a column with as many places behind it again."""
    return np.concatenate((column, np.zeros_like(column)), -1)

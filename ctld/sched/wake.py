"""Which lines of waiting jobs may find a place on a node that has more free than before: all lines in a few calls.

A table with a row for each line: what its smallest share takes on each hardware, which nodes could serve it, how long
its jobs are, where its first job stands. For lines whose jobs need several nodes the units of all nodes (see `units`)
are kept as an upper bound, so that they wake only when these suffice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ctld.sched.fleet import Fleet, Ints, View, members
from ctld.sched.tally import FIRST, Bools, Counts, Thresholds, bitmap_of, doubled, places
from ctld.sched.units import Units

Place = tuple[int, int, int]
"""Where a job stands in the order of a pass: tier, order key, place of the partition in its list."""
NOWHERE: Place = (-(1 << 62), 0, 0)
"""Before everybody."""
_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1
_KEY_BITS = 42
"""Of an order key without the id."""
_HUGE = 1 << 60
_MOST_KNOWN = 256


@dataclass(slots=True)
class Cap:
    """What a promise leaves on a node to those who stand behind it and outlast its start."""

    place: Place
    start_at: int
    spare: Sequence[int]


class WakeTable:
    """Rows are numbers of lines; sets of lines are bitmaps by number."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.size = 0
        self.empty = 0
        """Lines that nobody stands in."""
        self._width = 2 + fleet.width
        self._shape_of: dict[tuple[bytes, int], int] = {}
        self._least: Ints = np.zeros((len(fleet.kinds), self._width, FIRST), np.int64)
        """[hardware, resource, shape]: what lines ask for, most of which differ in their time alone."""
        self._lines: list[int] = []
        """By shape, those whose jobs need one node."""
        self._known: dict[int, int] = {}
        """Some of what `_lines_of` gives."""
        self._within = [[Thresholds() for _ in range(self._width)] for _ in fleet.kinds]
        """[hardware][resource] -> shapes that ask for no more than an amount."""
        self._sets: list[tuple[int, int]] = []
        """(nodes, shapes that these nodes could serve)"""
        self._shape: Ints = np.zeros(FIRST, np.int64)
        """Line -> its shape."""
        self._seconds: Ints = np.zeros(FIRST, np.int64)
        self._tiers: list[int] = []
        """All that occur, ascending."""
        self._tier: Ints = np.zeros(FIRST, np.int64)
        """Line -> the place of its tier among these."""
        self._high: Ints = np.zeros(FIRST, np.int64)
        self._low: Ints = np.zeros(FIRST, np.int64)
        """Where the first job stands, in two parts: tier and priority, and id; `_high` below 0: nobody is there."""
        self._counts = Counts(fleet)

    def add(self, units: Units, seconds: int, tier: int) -> int:
        """Give a new line its row; `seconds`: its limit as it is planned, FAR for none."""
        number = self.size
        if number == len(self._shape):
            for name in ("_shape", "_seconds", "_tier", "_high", "_low"):
                setattr(self, name, doubled(getattr(self, name)))
        self.size += 1
        shape = self._shape[number] = self._shape_number(units)
        self._seconds[number] = min(seconds, _HUGE)
        self._tier[number] = self._tier_place(tier)
        self._high[number] = -1
        self.empty |= 1 << number
        if units.several:
            self._counts.add(number, units, int(shape))
        else:
            self._lines[shape] |= 1 << number
            self._known.clear()
        return number

    def stands(self, number: int, key: int | None) -> bool:
        """Note the order key of a line's first job (None: nobody is in it); tell whether it was another before."""
        high, low = -1, 0
        if key is not None:
            high, low = int(self._tier[number]) << _KEY_BITS | key >> _ID_BITS, key & _ID_MASK
        if self._high[number] == high and self._low[number] == low:
            return False
        if (high < 0) != bool(self._high[number] < 0):
            self.empty ^= 1 << number
        self._high[number], self._low[number] = high, low
        return True

    def judged(self, number: int, view_of: Callable[[], View]) -> None:
        """Note that a line found no place in this view."""
        self._counts.judged(number, view_of)

    def counts(self, node: int) -> bool:
        """Tell whether any units are counted on a node, which has to be followed when it has less free."""
        return bool(self._counts.size) and self._counts.any(node)

    def on(self, node: int, free: Sequence[int], caps: Sequence[Cap], at: int) -> int:
        """Follow a change of a node; give the lines that may find a place with that node.

        Args:
            free: CPUs, memory, GPUs by column; fewer than no CPUs: it cannot be used.
            caps: what promises leave there.
            at: now.
        """
        kind = self.fleet.kind[node]
        shapes = -1
        for most, within in zip(free, self._within[kind], strict=True):
            shapes &= within.of(most)
        if shapes:
            inside = 0
            for nodes, served in self._sets:
                if nodes >> node & 1:
                    inside |= served
            shapes &= inside
        fits = self._lines_of(shapes)
        if caps and fits:
            lines = places(fits)
            fits = bitmap_of(lines[self._serves(kind, lines, self._left(lines, free, caps, at))])
        counts = self._counts
        if not counts.size:
            return fits
        if not shapes:
            counts.none(node)
            return 0
        units = counts.units(shapes, free)
        if caps:
            rows = units.nonzero()[0]
            lines = counts.lines[rows]
            left = self._left(lines, free, caps, at)
            units = units.copy()
            units[rows] = np.where(self._serves(kind, lines, left), counts.limited(rows, left), 0)
        return fits | counts.follow(node, units)

    def _lines_of(self, shapes: int) -> int:
        """Give the lines of some shapes whose jobs need one node."""
        found = self._known.get(shapes)
        if found is None:
            found = 0
            for shape in members(shapes):
                found |= self._lines[shape]
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known[shapes] = found
        return found

    def _serves(self, kind: int, lines: Ints, left: Ints) -> Bools:
        """Tell for each of some lines whether so much ([resource, place in `lines`]) is enough for the smallest
        share."""
        enough: Bools = np.logical_and.reduce(self._least[kind][:, self._shape[lines]] <= left, 0)
        return enough

    def behind(self, place: Place, lines: int) -> int:
        """Give those of some lines whose first job stands behind a place; a job's own other partitions do not."""
        numbers = places(lines)
        return bitmap_of(numbers[self._are_behind(place, numbers)])

    def foremost(self, among: int) -> list[int]:
        """Give those of some lines whose first jobs stand first: one, or several for one job in several partitions."""
        among &= ~self.empty
        if not among:
            return []
        found = places(among)
        for column in (self._high, self._low):
            if len(found) == 1:
                break
            values = column[found]
            found = found[values == values.min()]
        listed: list[int] = found.tolist()
        return listed

    def _are_behind(self, place: Place, lines: Ints) -> Bools:
        tier, key, _ = place
        most, low = self._tier_place(tier) << _KEY_BITS | key >> _ID_BITS, key & _ID_MASK
        high = self._high[lines]
        found: Bools = (high > most) | ((high == most) & (self._low[lines] > low))
        return found

    def _tier_place(self, tier: int) -> int:
        """Give the place of a tier among all; those behind a new one move up."""
        place = bisect_left(self._tiers, tier)
        if place == len(self._tiers) or self._tiers[place] != tier:
            self._tiers.insert(place, tier)
            behind = self._tier[: self.size] >= place
            self._tier[: self.size] += behind
            self._high[: self.size] += (behind & (self._high[: self.size] >= 0)) * (1 << _KEY_BITS)
        return place

    def _left(self, lines: Ints, free: Sequence[int], caps: Sequence[Cap], at: int) -> Ints:
        """Give what is left for some lines, as [resource, place in `lines`]."""
        left: Ints = np.repeat(np.array(free, np.int64)[:, None], len(lines), 1)
        ends = self._seconds[lines] + at
        for cap in caps:
            outlast = ends > cap.start_at
            outlast &= self._are_behind(cap.place, lines)
            np.minimum(left, np.array(cap.spare, np.int64)[:, None], out=left, where=outlast)
        return left

    def _shape_number(self, units: Units) -> int:
        key = units.least.tobytes(), units.bits
        number = self._shape_of.get(key)
        if number is None:
            number = self._shape_of[key] = len(self._shape_of)
            if number == self._least.shape[2]:
                self._least = doubled(self._least)
            self._least[:, :, number] = units.least
            self._lines.append(0)
            for within, wants in zip(self._within, units.least.tolist(), strict=True):
                for one, want in zip(within, wants, strict=True):
                    one.add(want, number)
            for at, (nodes, served) in enumerate(self._sets):
                if nodes == units.bits:
                    self._sets[at] = nodes, served | 1 << number
                    break
            else:
                self._sets.append((units.bits, 1 << number))
        return number

"""Shares that come free, sorted by end, in blocks: one that comes or goes moves one block, and columns are made only of
the blocks that somebody looks at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ctld.sched.fleet import Ints

if TYPE_CHECKING:
    from ctld.sched.releases import Row

_BLOCK = 128
"""Most shares of a block; one with more is cut into two."""


def columns_of(rows: list[Row], height: int) -> Ints:
    """Give shares as columns: end, node, CPUs, memory, GPUs by column."""
    if not rows:
        return np.zeros((height, 0), np.int64)
    return np.array([(*row[:4], *row[4]) for row in rows], np.int64).T.copy()


class SortedRows:
    """A sorted list of shares."""

    def __init__(self, height: int, rows: Iterable[Row] = (), block: int = _BLOCK) -> None:
        """`height`: of the columns; `block`: most shares of a block."""
        self._height = height
        self._most = block
        listed = sorted(rows)
        self._blocks = [listed[first : first + block] for first in range(0, len(listed), block)]
        self._lasts = [block[-1] for block in self._blocks]
        self._columns: list[Ints | None] = [None] * len(self._blocks)

    def __len__(self) -> int:
        """Count the blocks."""
        return len(self._blocks)

    def __iter__(self) -> Iterator[Row]:
        """Walk through the shares."""
        return chain.from_iterable(self._blocks)

    def add(self, row: Row) -> None:
        """Take one more."""
        if not self._blocks:
            self._blocks, self._lasts, self._columns = [[row]], [row], [None]
            return
        place = min(bisect_left(self._lasts, row), len(self._lasts) - 1)
        block = self._blocks[place]
        insort(block, row)
        self._columns[place] = None
        if len(block) > self._most:
            half = len(block) // 2
            self._blocks[place : place + 1] = [block[:half], block[half:]]
            self._lasts[place : place + 1] = [block[half - 1], block[-1]]
            self._columns.insert(place, None)
        else:
            self._lasts[place] = block[-1]

    def remove(self, row: Row) -> None:
        """Drop one that is there."""
        place = bisect_left(self._lasts, row)
        block = self._blocks[place]
        del block[bisect_left(block, row)]
        if block:
            self._lasts[place] = block[-1]
            self._columns[place] = None
        else:
            del self._blocks[place], self._lasts[place], self._columns[place]

    def last(self, place: int) -> int:
        """Give the last end of a block."""
        return self._lasts[place][0]

    def from_end(self, after: int) -> int:
        """Give the place of the first block with an end behind `after`."""
        return bisect_left(self._lasts, after + 1, key=lambda row: row[0])

    def columns(self, place: int) -> Ints:
        """Give a block as columns; not to be changed."""
        found = self._columns[place]
        if found is None:
            found = self._columns[place] = columns_of(self._blocks[place], self._height)
        return found

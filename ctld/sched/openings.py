"""Where something came free, and the lines of waiting jobs that may find a place there, foremost first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ctld.sched.board import Board
from ctld.sched.lines import Line
from ctld.sched.wake import Bools, Place


class Openings:
    """Of one pass. Lines that are awake are not looked for here: they may find a place anywhere."""

    def __init__(self, board: Board, at: int) -> None:
        self._board = board
        self._table = board.lines.table
        self._at = at
        self._fits: dict[int, Bools] = {}
        """Node -> lines that may find a place with it."""
        self._failed: Bools = np.zeros(self._table.size, np.bool_)
        self._found: list[int] | None = []
        """The foremost of them; None: to be worked out."""

    def open(self, node: int, behind: Place | None = None) -> None:
        """Look at a node that has more free than before, for lines whose first job stands behind a place."""
        fits = self._board.fits(node, self._at)
        if behind is not None:
            fits &= self._table.behind(behind) | self._table.empty()
        if not fits.any():
            return
        self._failed &= ~fits
        known = self._fits.get(node)
        self._fits[node] = fits if known is None else known | fits
        self._found = None

    def taken(self, nodes: Iterable[int]) -> None:
        """Follow a start on some nodes."""
        for node in nodes:
            known = self._fits.get(node)
            if known is not None:
                known &= self._board.fits(node, self._at)
                self._found = None
                if not known.any():
                    del self._fits[node]

    def moved(self) -> None:
        """Note that the first job of some line is another now."""
        self._found = None

    def failed(self, line: Line) -> None:
        """Note that the first job of a line found no place after all."""
        self._failed[line.number] = True
        self._found = None

    def foremost(self) -> Line | None:
        """Give the line whose first job stands first of those that may find a place."""
        lines, heads = self._board.lines, self._board.lines.heads
        while True:
            if self._found is None:
                self._found = self._table.foremost(self._open() & ~self._failed)
            if not self._found:
                return None
            line = min((lines.all[number] for number in self._found), key=lambda one: one.place)
            first = line.first(heads)
            if self._table.stands(line.number, first[0] if first is not None else None):
                self._found = None
                continue
            return line

    def nodes(self, line: Line) -> list[int]:
        """Give the nodes on which a line may find a place."""
        if self._failed[line.number]:
            return []
        return [node for node, fits in self._fits.items() if fits[line.number]]

    def left(self) -> set[int]:
        """Give the nodes that lines were not all asked about."""
        return set(self._fits)

    def wake_the_rest(self) -> None:
        """Wake the lines that nobody stood in: whoever comes may find a place."""
        lines = self._board.lines
        for number in np.flatnonzero(self._open() & ~self._failed).tolist():
            lines.all[number].awake = True

    def _open(self) -> Bools:
        """Tell for each line whether it may find a place with some node."""
        found = np.zeros(self._table.size, np.bool_)
        for fits in self._fits.values():
            found |= fits
        return found

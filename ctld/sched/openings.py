"""Where something came free, and the lines of waiting jobs that may find a place there, foremost first.

And all lines of partitions whose first job that has to wait is to be found.
"""

from __future__ import annotations

from collections.abc import Iterable

from ctld.sched.board import Board
from ctld.sched.fleet import members
from ctld.sched.lines import Line
from ctld.sched.wake import Place


class Openings:
    """Of one pass. Lines that are awake are not looked for here: they may find a place anywhere."""

    def __init__(self, board: Board, at: int) -> None:
        self._board = board
        self._table = board.lines.table
        self._at = at
        self._fits: dict[int, int] = {}
        """Node -> lines that may find a place with it, as a bitmap."""
        self._headless: dict[str, int] = {}
        """Partition -> its lines."""
        self._failed = 0
        self._found: list[int] | None = []
        """The foremost of them; None: to be worked out."""

    def open(self, node: int, behind: Place | None = None) -> None:
        """Look at a node that has more free than before, for lines whose first job stands behind a place."""
        fits = self._board.fits(node, self._at)
        if fits and behind is not None:
            fits = self._table.behind(behind, fits) | fits & self._table.empty
        if not fits:
            return
        self._failed &= ~fits
        self._fits[node] = self._fits.get(node, 0) | fits
        self._found = None

    def taken(self, nodes: Iterable[int]) -> None:
        """Follow a start on some nodes."""
        for node in nodes:
            known = self._fits.get(node)
            if known is not None:
                self._found = None
                known &= self._board.fits(node, self._at)
                if known:
                    self._fits[node] = known
                else:
                    del self._fits[node]
            elif self._table.counts(node):
                self._board.fits(node, self._at)

    def behead(self, partition: str) -> None:
        """Look at all lines of a partition."""
        self._headless[partition] = self._board.lines.of_partition(partition)
        self._found = None

    def blocked(self, partition: str) -> None:
        """Note that the first job of a partition that has to wait is found."""
        if self._headless.pop(partition, None) is not None:
            self._found = None

    def moved(self) -> None:
        """Note that the first job of some line is another now."""
        self._found = None

    def failed(self, line: Line) -> None:
        """Note that the first job of a line found no place after all."""
        self._failed |= 1 << line.number
        self._found = None

    def foremost(self) -> Line | None:
        """Give the line whose first job stands first of those that may find a place."""
        lines, heads = self._board.lines, self._board.lines.heads
        while True:
            if self._found is None:
                self._found = self._table.foremost(self._wanted())
            if not self._found:
                return None
            line = lines.all[self._found[0]]
            if len(self._found) > 1:
                line = min((lines.all[number] for number in self._found), key=lambda one: one.place)
            first = line.first(heads)
            if self._table.stands(line.number, first[0] if first is not None else None):
                self._found = None
                continue
            return line

    def nodes(self, line: Line) -> list[int]:
        """Give the nodes on which a line may find a place."""
        if not self._fits or self._failed >> line.number & 1:
            return []
        return [node for node, fits in self._fits.items() if fits >> line.number & 1]

    def left(self) -> set[int]:
        """Give the nodes that lines were not all asked about."""
        return set(self._fits)

    def wake_the_rest(self) -> None:
        """Wake the lines that nobody stood in: whoever comes may find a place."""
        lines = self._board.lines
        for number in members(self._open()):
            lines.all[number].awake = True

    def _wanted(self) -> int:
        """Give the lines that are to be looked at."""
        found = self._open()
        for lines in self._headless.values():
            found |= lines
        return found

    def _open(self) -> int:
        """Give the lines that may find a place with some node."""
        found = 0
        for fits in self._fits.values():
            found |= fits
        return found & ~self._failed

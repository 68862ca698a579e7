"""What changed, as a list of numbers that anyone may read on from where he stopped."""

from __future__ import annotations

_MOST = 1 << 16
"""Changes that are remembered; at the bound the older half is dropped, and who has not read it looks at everything."""


class ChangeLog:
    """Numbers (of nodes, jobs, classes) in the order in which they changed."""

    __slots__ = ("_first", "_numbers")

    def __init__(self) -> None:
        self._first = 0
        self._numbers: list[int] = []

    @property
    def end(self) -> int:
        """Where a reader stands who has read everything."""
        return self._first + len(self._numbers)

    def note(self, number: int) -> None:
        """Say that this one changed."""
        self._numbers.append(number)
        if len(self._numbers) > _MOST:
            half = _MOST // 2
            del self._numbers[:half]
            self._first += half

    def forget(self) -> None:
        """Say that everything changed: nobody can read on."""
        self._first = self.end + 1
        self._numbers = []

    def since(self, place: int) -> list[int] | None:
        """Give what changed since a reader stood at `place`; None: that is not known any more."""
        if place < self._first:
            return None
        return self._numbers[place - self._first :]

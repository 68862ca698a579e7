"""What is in use now, by whom: the running sums that limits are compared with.

Kept together with the records by `apply`, for those keys only that some limit looks at; adding and removing a job costs
microseconds. `Load(below)` lays what a plan starts over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ctld.core.limits.book import JOBS, MINUTES, NODE, SUBMITTED, Key, Ruleset
from ctld.core.queue import SortedKeys

_ID_BITS = 32


class Holding(NamedTuple):
    """What one record counts."""

    rules: Ruleset
    submitted: int
    """Jobs, pending or running."""
    amounts: Mapping[str, int]
    """TRES in use; empty while it waits."""
    nodes: tuple[int, ...] = ()
    end: int = 0
    """Time to which its minutes are reserved; 0: none are (it is being ended)."""
    job_id: int = 0


class Reserved:
    """What running jobs will still use of one TRES until their limits end, as a function of time."""

    __slots__ = ("_amounts", "_ends", "_rate", "_sum")

    def __init__(self) -> None:
        self._rate = 0
        self._sum = 0
        """Sum of amount x end."""
        self._ends = SortedKeys()
        self._amounts: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reserved) and list(self._ends) == list(other._ends) and self._amounts == other._amounts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, job_id: int, amount: int, end: int) -> None:
        """Count a job in."""
        self._rate += amount
        self._sum += amount * end
        self._ends.insert(end << _ID_BITS | job_id)
        self._amounts[job_id] = amount

    def remove(self, job_id: int, amount: int, end: int) -> None:
        """Take out what was added."""
        self._rate -= amount
        self._sum -= amount * end
        self._ends.remove(end << _ID_BITS | job_id)
        del self._amounts[job_id]

    def at(self, time: int) -> int:
        """Give amount x seconds from `time` on; a job past its limit adds nothing. Costs what is past its limit."""
        left = self._sum - self._rate * time
        for key in self._ends:
            end = key >> _ID_BITS
            if end >= time:
                break
            left += self._amounts[key & ((1 << _ID_BITS) - 1)] * (time - end)
        return left


class Load:
    """Use by key."""

    __slots__ = ("below", "nodes", "reserved", "spenders", "used")

    def __init__(self, below: Load | None = None) -> None:
        self.below = below
        """What this one comes on top of; nothing is below that."""
        self.used: dict[Key, int] = {}
        """Running jobs, submitted jobs, and TRES in use."""
        self.nodes: dict[Key, dict[int, int]] = {}
        """For node counts: node -> running jobs there; each node counts once."""
        self.reserved: dict[Key, Reserved] = {}
        """For minutes of running jobs."""
        self.spenders: dict[int, None] = {}
        """Running jobs that a limit of what is used up may end."""

    def count(self, key: Key) -> int:
        """Give the running or submitted jobs, or the TRES in use."""
        own = self.used.get(key, 0)
        below = self.below
        return own + below.used.get(key, 0) if below is not None else own

    def count_nodes(self, key: Key, more: Iterable[int] = ()) -> int:
        """Give how many nodes are in use, with some more."""
        below = self.below.nodes.get(key, {}) if self.below is not None else {}
        own = self.nodes.get(key, {})
        return len(below) + sum(1 for node in {*own, *more} if node not in below)

    def seconds_left(self, key: Key, at: int) -> int:
        """Give TRES x seconds that running jobs may still use from `at` on."""
        found = self.reserved.get(key)
        own = found.at(at) if found is not None else 0
        return own + self.below.seconds_left(key, at) if self.below is not None else own

    def put(self, old: Holding | None, new: Holding | None) -> None:
        """Exchange what a record counts."""
        if old is not None:
            self._add(old, -1)
        if new is not None:
            self._add(new, 1)

    def _add(self, one: Holding, sign: int) -> None:
        amounts = one.amounts
        if amounts and one.rules.spent:
            if sign > 0:
                self.spenders[one.job_id] = None
            else:
                del self.spenders[one.job_id]
        for key, what in one.rules.counted:
            if what == SUBMITTED:
                if one.submitted:
                    self._count(key, sign * one.submitted)
            elif not amounts:
                continue
            elif what == JOBS:
                self._count(key, sign)
            elif what == NODE:
                self._occupy(key, one.nodes, sign)
            elif what.endswith(MINUTES):
                amount = amounts.get(what.removesuffix(MINUTES), 0)
                if amount and one.end:
                    self._reserve(key, one, amount, sign)
            else:
                amount = amounts.get(what, 0)
                if amount:
                    self._count(key, sign * amount)

    def _count(self, key: Key, amount: int) -> None:
        total = self.used.get(key, 0) + amount
        if total:
            self.used[key] = total
        else:
            self.used.pop(key, None)

    def _occupy(self, key: Key, nodes: Iterable[int], sign: int) -> None:
        taken = self.nodes.setdefault(key, {})
        for node in nodes:
            count = taken.get(node, 0) + sign
            if count:
                taken[node] = count
            else:
                del taken[node]
        if not taken:
            del self.nodes[key]

    def _reserve(self, key: Key, one: Holding, amount: int, sign: int) -> None:
        if sign > 0:
            self.reserved.setdefault(key, Reserved()).add(one.job_id, amount, one.end)
            return
        found = self.reserved[key]
        found.remove(one.job_id, amount, one.end)
        if not found:
            del self.reserved[key]

    def contents(self) -> tuple[object, ...]:
        """Give all of it, for comparing two."""
        return self.used, self.nodes, self.reserved, set(self.spenders)

"""Classes that something else than nodes keeps from starting: a limit or a licence; and when to look at them again."""

from __future__ import annotations

from dataclasses import dataclass, field

from ctld.core.limits.book import Key, Rule
from ctld.core.limits.check import Asked
from ctld.core.limits.kinds import BY_JOBS, BY_SUBMITTED, BY_TRES
from ctld.core.state import State
from ctld.sched.lines import Line

Seat = tuple[int, Line]
"""A class, by number, in one of its lines."""


@dataclass(slots=True)
class _Group:
    """Those that wait for one counter to fall."""

    used: int
    """The counter when it was last looked at."""
    room: dict[Seat, int] = field(default_factory=dict)
    """The highest value of the counter with which each may start."""


class Parked:
    """All of them, by what they wait for."""

    def __init__(self) -> None:
        self._licences: dict[Seat, None] = {}
        self._seen_licences: dict[str, int] = {}
        self._groups: dict[Key, _Group] = {}
        self._each: dict[Seat, None] = {}
        """Looked at in every pass: what keeps them changes with time, or in a way that no counter shows."""
        self._nodes: dict[Seat, None] = {}
        """No node that they need can be used."""
        self._where: dict[Seat, Key | None] = {}

    def for_licence(self, number: int, line: Line, used: dict[str, int]) -> None:
        """Park a class until licences come free.

        Args:
            used: those in use.
        """
        self.forget(number, line)
        if not self._licences:
            self._seen_licences = dict(used)
        self._licences[number, line] = None

    def for_limit(self, number: int, line: Line, rule: Rule, asked: Asked, used: int) -> None:
        """Park a class until the counter of a rule allows it.

        Args:
            asked: what its jobs ask for.
            used: the counter now.
        """
        self.forget(number, line)
        if rule.how not in (BY_JOBS, BY_SUBMITTED, BY_TRES):
            self._each[number, line] = None
            return
        amount = asked.size if rule.how == BY_SUBMITTED else 1
        if rule.how == BY_TRES:
            amount = asked.amounts.get(rule.tres, 0)
        group = self._groups.setdefault(rule.key, _Group(used))
        group.used = used
        group.room[number, line] = rule.limit - amount
        self._where[number, line] = rule.key

    def for_a_pass(self, number: int, line: Line) -> None:
        """Park a class until the next pass."""
        self.forget(number, line)
        self._each[number, line] = None

    def for_nodes(self, number: int, line: Line) -> None:
        """Park a class until other nodes can be used."""
        self.forget(number, line)
        self._nodes[number, line] = None

    def found_again(self) -> list[Seat]:
        """Give those that waited for nodes, now that others can be used, and forget them."""
        found = list(self._nodes)
        self._nodes.clear()
        return found

    def forget(self, number: int, line: Line) -> None:
        """Do not look at a class any more."""
        seat = number, line
        self._licences.pop(seat, None)
        self._each.pop(seat, None)
        self._nodes.pop(seat, None)
        key = self._where.pop(seat, None)
        if key is not None:
            group = self._groups[key]
            del group.room[seat]
            if not group.room:
                del self._groups[key]

    def released(self, state: State) -> list[Seat]:
        """Give those that may have become free to start, and forget them."""
        found = list(self._each)
        if self._licences and self._seen_licences != state.free.licenses:
            found += self._licences
        for key, group in self._groups.items():
            used = state.load.count(key)
            if used < group.used:
                found += [seat for seat, room in group.room.items() if used <= room]
            group.used = used
        for seat in found:
            self.forget(*seat)
        return found

"""What stands in a job's way: its rules against what it asks for and what is in use, first come first shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ctld.core.limits.book import MINUTES, Key, Rule
from ctld.core.limits.kinds import (
    BY_JOB_MINUTES,
    BY_JOBS,
    BY_MINIMUM,
    BY_NODE,
    BY_NODES,
    BY_PAST_WALL,
    BY_RUN_MINUTES,
    BY_SUBMITTED,
    BY_TRES,
    BY_WALL,
    NAMES,
)
from ctld.core.limits.load import Load
from ctld.core.model import UNLIMITED
from ctld.core.plan import LimitNumbers
from muster.ids import UnixTime

_NOBODY = 1 << 62
"""More than any job asks for."""
YEAR_MINUTES = 365 * 1440
"""What a job without a time limit counts as where minutes are reserved."""


class PastUse(Protocol):
    """What was used before now, decayed. Keys are a rule's scope: ("association", 7) or ("qos", "high")."""

    def tres_minutes(self, scope: Key, tres: str, at: UnixTime) -> float:
        """Give TRES minutes."""
        ...

    def wall_minutes(self, scope: Key, at: UnixTime) -> float:
        """Give minutes of wall time."""
        ...


class NothingUsed:
    """No history."""

    def tres_minutes(self, scope: Key, tres: str, at: UnixTime) -> float:
        """Nothing."""
        return 0.0

    def wall_minutes(self, scope: Key, at: UnixTime) -> float:
        """Nothing."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job asks for, at least, or has got."""

    amounts: Mapping[str, int]
    """Of the whole job."""
    per_node: Mapping[str, int]
    """On the node that gives most."""
    minutes: int = UNLIMITED
    """Time limit."""
    nodes: tuple[int, ...] | None = None
    """Which nodes; None: not yet chosen."""
    size: int = 1
    """Jobs, for an array."""
    any_time: bool = False
    """An administrator gave the time limit: MaxWall does not hold."""

    @property
    def whole_minutes(self) -> int:
        """The time limit, a year where there is none."""
        return self.minutes if self.minutes != UNLIMITED else YEAR_MINUTES


class Check:
    """Compares rules with a load at a time."""

    def __init__(self, load: Load, past: PastUse, at: UnixTime, *, safe: bool) -> None:
        self._load = load
        self._past = past
        self._at = at
        self._safe = safe

    def first(self, rules: Iterable[Rule], asked: Asked, factor: float = 1.0) -> tuple[Rule, LimitNumbers] | None:
        """Give the first rule in the way, with its numbers; `factor` counts in what is reserved of minutes."""
        for rule in rules:
            found = self._broken(rule, asked, factor)
            if found is not None:
                return rule, found
        return None

    def standing(self, rule: Rule, asked: Asked, factor: float = 1.0) -> tuple[LimitNumbers, bool] | None:
        """Give how a limit stands for a job, and whether it is in its way; None: it does not concern the job."""
        found = self._broken(rule, asked, factor)
        if found is not None:
            return found, True
        # What a limit that nobody can keep would be broken with are the numbers of this one.
        found = self._broken(rule._replace(limit=_NOBODY if rule.how == BY_MINIMUM else -1), asked, factor)
        return (replace(found, most=rule.limit), False) if found is not None else None

    def _broken(self, rule: Rule, asked: Asked, factor: float) -> LimitNumbers | None:
        how = rule.how
        if how == BY_JOBS:
            return _over(rule, self._load.count(rule.key), 1)
        if how < BY_WALL:
            if how == BY_SUBMITTED:
                return _over(rule, self._load.count(rule.key), asked.size)
            amount = (asked.per_node if how == BY_NODE else asked.amounts).get(rule.tres, 0)
            if not amount:
                return None
            if how == BY_TRES:
                return _over(rule, self._load.count(rule.key), amount)
            return self._nodes(rule, asked, amount) if how == BY_NODES else _over(rule, 0, amount)
        limit = rule.limit
        if how == BY_WALL:
            over = not asked.any_time and (asked.minutes == UNLIMITED or asked.minutes > limit)
            return _numbers(rule, 0, asked.minutes) if over else None
        if how == BY_PAST_WALL:
            used = self._past.wall_minutes(rule.key, self._at)
            more = asked.whole_minutes if self._safe else 0
            return _numbers(rule, int(used), more) if used >= limit or used + more > limit else None
        amount = asked.amounts.get(rule.tres, 0)
        if how == BY_MINIMUM:
            return _numbers(rule, 0, amount) if amount < limit else None
        if not amount:
            return None
        more = int(amount * asked.whole_minutes * factor)
        if how == BY_RUN_MINUTES:
            return _over(rule, -(-self._load.seconds_left(rule.key, self._at) // 60), more)
        return _over(rule, 0, more) if how == BY_JOB_MINUTES else self._past_tres(rule, more)

    def _nodes(self, rule: Rule, asked: Asked, amount: int) -> LimitNumbers | None:
        """A node that the group uses already counts once."""
        used = self._load.count_nodes(rule.key)
        # Before they are chosen all may be nodes in use.
        after = max(used, amount) if asked.nodes is None else self._load.count_nodes(rule.key, asked.nodes)
        return _numbers(rule, used, amount) if after > rule.limit and after > used else None

    def _past_tres(self, rule: Rule, more: int) -> LimitNumbers | None:
        scope, name = rule.key[:-1], str(rule.key[-1]).removesuffix(MINUTES)
        used = self._past.tres_minutes(scope, name, self._at)
        if not self._safe:
            return _numbers(rule, int(used), 0) if used >= rule.limit else None
        held = used + self._load.seconds_left(rule.key, self._at) / 60
        return _numbers(rule, int(held), more) if used >= rule.limit or held + more > rule.limit else None


def static(rules: Iterable[Rule], asked: Asked, factor: float = 1.0) -> tuple[Rule, LimitNumbers] | None:
    """Give the first rule that the request breaks alone, whatever runs beside it."""
    return _ALONE.first(rules, asked, factor)


def _over(rule: Rule, used: int, more: int) -> LimitNumbers | None:
    return _numbers(rule, used, more) if used + more > rule.limit else None


def _numbers(rule: Rule, used: int, asked: int) -> LimitNumbers:
    return LimitNumbers(NAMES[rule.kind], rule.tres, rule.of, rule.limit, used, asked)


_ALONE = Check(Load(), NothingUsed(), UnixTime(0), safe=True)

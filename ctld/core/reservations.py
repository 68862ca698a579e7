"""Advance reservations: nodes, cores, GPUs and licences that are kept for some users over some time.

A reservation is one record; one that recurs is moved on to its next time when a time is over (`advanced`). Nothing
here looks at the state: who holds what of whom against a job is `ctld.core.holds`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from ctld.core.localtime import FRIDAY, SATURDAY, SUNDAY, Zone, days_later, weekday
from ctld.core.model import Ranges, Record
from muster.ids import UnixTime

FLAGS = (
    "MAINT", "FLEX", "OVERLAP", "IGNORE_JOBS", "HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY", "ANY_NODES",
    "LICENSE_ONLY", "STATIC_ALLOC", "PART_NODES", "PURGE_COMP", "FIRST_CORES", "TIME_FLOAT", "REPLACE", "REPLACE_DOWN",
    "NO_HOLD_JOBS_AFTER", "MAGNETIC", "USER_DELETE", "SPEC_NODES",
)  # fmt: skip
"""All flags that can be set, in the order in which they are shown; SPEC_NODES follows from the nodes."""
REFUSED_FLAGS = ("FORCE_START",)
"""Flags of the reference that this release refuses by name."""
RECURRENCES = ("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY")
PURGE_SECONDS = 300
"""Idle time after which PURGE_COMP without a time deletes."""
LONGEST_SECONDS = 365 * 86_400
"""What Duration=UNLIMITED means."""
_HOUR = 3600


class Access(Record, frozen=True):
    """One condition on who may use a reservation; without names it is none."""

    names: tuple[str, ...] = ()
    deny: bool = False
    """The names are those who may not."""
    ids: tuple[int, ...] = ()
    """Of users and groups: the uids behind the names."""
    gids: tuple[int, ...] = ()
    """Of groups: for users who have it as their primary one."""

    def text(self) -> str:
        """Give it as it is written: `ada,bob`, `-ada`."""
        return ",".join(f"-{name}" if self.deny else name for name in self.names)

    def admits(self, found: bool) -> bool:
        """Tell whether the condition is met by someone who is (not) among the names."""
        return not self.names or found != self.deny


class Part(Record, frozen=True):
    """What a reservation has on one node."""

    node: int
    cores: Ranges = ()
    """Empty: the whole node, with all that is on it."""
    gpus: Ranges = ()
    """With cores: these GPUs of the node."""


class Reservation(Record, frozen=True):
    """An advance reservation."""

    name: str
    number: int
    """Counts all that were ever made."""
    start_at: UnixTime
    end_at: UnixTime
    created_at: UnixTime
    created_by: int = 0
    parts: tuple[Part, ...] = ()
    """In node-table order."""
    flags: tuple[str, ...] = ()
    """Of FLAGS, in that order."""
    partition: str = ""
    features: str = ""
    users: Access = Access()
    groups: Access = Access()
    accounts: Access = Access()
    qos: Access = Access()
    partitions: Access = Access()
    licenses: tuple[tuple[str, int], ...] = ()
    comment: str = ""
    purge_seconds: int = 0
    """With PURGE_COMP: idle so long, it is deleted."""
    idle_since: UnixTime = UnixTime(0)
    """With PURGE_COMP, once it has started: since when nobody runs in it or waits for it; 0: somebody does."""
    float_seconds: int = 0
    """With TIME_FLOAT: its start is always so far ahead."""
    first_start_at: UnixTime = UnixTime(0)
    """Of one that recurs: the times that it is counted from, so that a day with a jump of the clock moves only
    itself; 0: `start_at`."""
    first_end_at: UnixTime = UnixTime(0)
    days: int = 0
    """Days from the first time to this one."""

    def has(self, flag: str) -> bool:
        """Tell whether a flag is set."""
        return flag in self.flags

    @property
    def recurs(self) -> bool:
        """Whether it comes again."""
        return any(flag in RECURRENCES for flag in self.flags)

    @property
    def shares_nodes(self) -> bool:
        """Whether it may lie over others."""
        return "MAINT" in self.flags or "OVERLAP" in self.flags

    @property
    def anywhere(self) -> bool:
        """Whether it holds no nodes, and its jobs may use any."""
        return "ANY_NODES" in self.flags or "LICENSE_ONLY" in self.flags

    @property
    def by_cores(self) -> bool:
        """Whether it has parts of nodes."""
        return any(part.cores for part in self.parts)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Its nodes, ascending."""
        return tuple(part.node for part in self.parts)

    def times(self, at: int) -> tuple[int, int]:
        """Give start and end as they are seen at a time: those of TIME_FLOAT move."""
        if self.has("TIME_FLOAT"):
            start = at + self.float_seconds
            return start, start + self.end_at - self.start_at
        return self.start_at, self.end_at

    def is_active(self, at: int) -> bool:
        """Tell whether its time has come and is not over."""
        start, end = self.times(at)
        return start <= at < end


def ordered_flags(flags: set[str]) -> tuple[str, ...]:
    """Give flags in the order in which they are kept and shown."""
    return tuple(flag for flag in FLAGS if flag in flags)


def advanced(one: Reservation, zone: Zone) -> Reservation:
    """Give a recurring reservation at its next time: the same time of day, whatever the clock does in between."""
    if one.has("HOURLY"):
        return structs.replace(
            one, start_at=UnixTime(one.start_at + _HOUR), end_at=UnixTime(one.end_at + _HOUR), idle_since=UnixTime(0)
        )
    first_start, first_end = one.first_start_at or one.start_at, one.first_end_at or one.end_at
    days = one.days + _days_to_next(one, zone)
    return structs.replace(
        one,
        start_at=UnixTime(days_later(zone, first_start, days)),
        end_at=UnixTime(days_later(zone, first_end, days)),
        first_start_at=first_start,
        first_end_at=first_end,
        days=days,
        idle_since=UnixTime(0),
    )


def _days_to_next(one: Reservation, zone: Zone) -> int:
    if one.has("WEEKLY"):
        return 7
    today = weekday(zone, one.start_at)
    if one.has("WEEKDAY"):
        return {FRIDAY: 3, SATURDAY: 2}.get(today, 1)
    if one.has("WEEKEND"):
        return {SUNDAY: 6, SATURDAY: 1}.get(today, SATURDAY - today)
    return 1


def occurrences(one: Reservation, zone: Zone, at: int, horizon: int, most: int = 1000) -> Iterator[tuple[int, int]]:
    """Give the times (start, end) of a reservation that reach into [at, horizon), at most `most` of them."""
    for _ in range(most):
        start, end = one.times(at)
        if start >= horizon:
            return
        if end > at:
            yield start, end
        if not one.recurs:
            return
        one = advanced(one, zone)

"""Advance reservations as the scheduler sees them: what they keep from whom, and which a job is tried in.

Nothing is paid where there are none: callers ask only while `State.reservations` is not empty.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from ctld.core.holds import FOREVER, Barred, Bars, Hold, barred, holds, may_use, usable_at
from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.core.reservations import Reservation, occurrences
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import Reason

__all__ = ["FOREVER", "Barred", "Gaps", "Hold", "Option", "access", "blocked_text", "holds", "options", "pool_holds"]

MAINTENANCE = "ReqNodeNotAvail, Reserved for maintenance"
RESERVED = "ReqNodeNotAvail, May be reserved for other job"
_MOST_GAPS = 4096
"""Most times of reservations on one node that a search for a gap passes."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way in which a job may be tried."""

    inside: Reservation | None
    """None: outside of all reservations."""
    nodes: int
    """Bitmap of the nodes that it may have then; bits of other reservations are not taken off."""
    start: int
    """The time in which the whole job has to lie."""
    end: int
    flex: bool
    """It may begin earlier, end later and use other nodes too."""


def access(state: State, job: Job, at: int) -> list[Option]:
    """Give the ways in which a job may be tried, in that order: the reservations that it names; or else those that
    draw it (MAGNETIC), then none.

    One that the job may not use, or that is over, is left out: an empty list says that it cannot start at all.
    """
    everything = (1 << len(state.nodes)) - 1
    asked = job.spec.request.reservations
    names: Iterable[str] = asked
    if not asked:
        names = [one.name for one in state.reservations.values() if one.has("MAGNETIC")]
    found: list[Option] = []
    for name in names:
        one = state.reservations.get(name)
        if one is None or not may_use(state, one, job.spec):
            continue
        start, end = one.times(at)
        if end <= at:
            continue
        flex = one.has("FLEX")
        nodes = everything
        if not (flex or one.anywhere):
            nodes = 0
            for part in one.parts:
                nodes |= 1 << part.node
        found.append(Option(one, nodes, start, end, flex))
    if not asked:
        found.append(Option(None, everything, at, FOREVER, flex=True))
    return found


class Ways:
    """`options` for the jobs of one pass; what is barred outside of all reservations is worked out once for all jobs
    that end between the same two beginnings."""

    def __init__(self, state: State, at: int, bars: Bars) -> None:
        self._state = state
        self._at = at
        self._bars = bars
        zone = state.settings.clock_changes
        firsts = (next(iter(occurrences(one, zone, at, FOREVER)), None) for one in state.reservations.values())
        self._begins = sorted(first[0] for first in firsts if first is not None)
        self._outside: dict[int, list[tuple[str, Barred]]] = {}
        self.magnetic = any(one.has("MAGNETIC") for one in state.reservations.values())
        """Some reservations draw jobs that do not name them."""

    def of(self, job: Job, end: int) -> list[tuple[str, Barred]]:
        """Give the ways in which a job may start now and run to `end`."""
        if self.magnetic or job.spec.request.reservations:
            return options(self._state, job, self._at, end, self._bars)
        rank = bisect_left(self._begins, end)
        found = self._outside.get(rank)
        if found is None:
            found = self._outside[rank] = options(self._state, job, self._at, end, self._bars)
        return found


def options(state: State, job: Job, at: int, end: int, bars: Bars | None = None) -> list[tuple[str, Barred]]:
    """Give the ways in which a job may start now and run to `end`: reservation ("" for none) and what is barred."""
    found: list[tuple[str, Barred]] = []
    for option in access(state, job, at):
        one = option.inside
        if one is None:
            found.append(("", barred(state, None, at, end, bars)))
        elif usable_at(one, at, end):
            found.append((one.name, barred(state, one, at, end, bars)))
    return found


def waits_for_reservation(state: State, job: Job, at: int) -> Wait:
    """Give the wait of a job none of whose reservations can take it now: the earliest that will begin, or that it may
    not use any of them (any more)."""
    ahead = [option for option in access(state, job, at) if option.inside is not None]
    if not ahead:
        return Wait(Reason.RESERVATION_INVALID)
    starts = [option.start for option in ahead if option.start > at]
    return Wait(Reason.RESERVATION, "", UnixTime(min(starts, default=0)))


def blocked_text(found: Barred, required: int) -> Wait | None:
    """Give the wait of a job that would start if nothing were barred; None: nothing more than Resources can be said.

    Args:
        found: what is barred.
        required: bitmap of the nodes that the job insists on.
    """
    if found.maintenance:
        return Wait(Reason.NODE_NOT_AVAIL, MAINTENANCE)
    kept = found.nodes
    for node in found.cores:
        kept |= 1 << node
    if required & kept:
        return Wait(Reason.NODE_NOT_AVAIL, RESERVED)
    return None


class Gaps:
    """Of each node the times at which reservations have it (or a part of it), to find where a job fits between."""

    def __init__(self, found: Iterable[Hold]) -> None:
        self._by_node: dict[int, list[tuple[int, int]]] = {}
        for hold in found:
            insort(self._by_node.setdefault(hold.node, []), (hold.start, hold.end))

    @property
    def nodes(self) -> Iterable[int]:
        """The nodes that any reservation has."""
        return self._by_node

    def free_from(self, node: int, at: int, duration: int) -> int:
        """Give the earliest time from `at` on at which the node is in nobody's time for so long."""
        times = self._by_node.get(node)
        if times is None:
            return at
        for start, end in times[:_MOST_GAPS]:
            if start >= at + duration:
                break
            at = max(at, end)
        return at

    def is_free(self, node: int, at: int, duration: int) -> bool:
        """Tell whether the node is in nobody's time over [at, at + duration)."""
        return self.free_from(node, at, duration) == at


def pool_holds(state: State, at: int, horizon: int) -> list[tuple[tuple[str, str], int, int, int, str]]:
    """Give what reservations take out of pools (licences) over [at, horizon): key, amount, start, end, reservation."""
    zone = state.settings.clock_changes
    return [
        (("license", name), amount, start, end, one.name)
        for one in state.reservations.values()
        if one.licenses
        for start, end in occurrences(one, zone, at, horizon)
        for name, amount in one.licenses
    ]

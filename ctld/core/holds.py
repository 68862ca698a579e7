"""What reservations keep from jobs: who may use which, and which nodes and cores a job may not have.

Both sides ask here: the scheduler when it plans a start, the single writer when it checks one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ctld.core import ranges
from ctld.core.model import Job, JobSpec, NodeShare
from ctld.core.plan import Start
from ctld.core.reservations import Access, Reservation, occurrences
from ctld.core.state import State

FOREVER = 1 << 62
"""The end of a job without a limit."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What one reservation has on one node over one time."""

    reservation: str
    start: int
    end: int
    node: int
    cores: int = 0
    """Bitmap; 0: the whole node."""
    gpus: int = 0
    maintenance: bool = False


@dataclass(slots=True)
class Barred:
    """What a job may not have over its whole time."""

    nodes: int = 0
    """Bitmap of nodes that it may not touch."""
    cores: dict[int, int] = field(default_factory=dict)
    """Node -> bitmap of cores that it may not have there."""
    gpus: dict[int, int] = field(default_factory=dict)
    maintenance: bool = False
    """Some of it is for maintenance."""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.cores or self.gpus)

    def add(self, other: Barred) -> None:
        """Take in what another reservation bars."""
        self.nodes |= other.nodes
        for node, bits in other.cores.items():
            self.cores[node] = self.cores.get(node, 0) | bits
        for node, bits in other.gpus.items():
            self.gpus[node] = self.gpus.get(node, 0) | bits
        self.maintenance = self.maintenance or other.maintenance

    def forbids(self, share: NodeShare) -> bool:
        """Tell whether a share takes something of it."""
        node = share.node
        if self.nodes >> node & 1:
            return True
        cores, gpus = self.cores.get(node, 0), self.gpus.get(node, 0)
        return bool((cores and cores & ranges.to_bitmap(share.cores)) or (gpus and gpus & ranges.to_bitmap(share.gpus)))


def holds(state: State, at: int, horizon: int) -> list[Hold]:
    """Give what reservations keep from everybody else in [at, horizon), each time of a recurring one by itself."""
    found: list[Hold] = []
    zone = state.settings.clock_changes
    for one in state.reservations.values():
        if one.parts:
            for start, end in occurrences(one, zone, at, horizon):
                found += _holds_of(one, start, end)
    return found


def _holds_of(one: Reservation, start: int, end: int) -> Iterator[Hold]:
    maintenance = one.has("MAINT")
    for part in one.parts:
        yield Hold(
            one.name,
            start,
            end,
            part.node,
            ranges.to_bitmap(part.cores),
            ranges.to_bitmap(part.gpus),
            maintenance,
        )


class Bars:
    """What each reservation bars, worked out once for as long as it stays the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Reservation, Barred]] = {}

    def of(self, one: Reservation) -> Barred:
        """Give what a reservation bars in its time; not to be changed."""
        known = self._known.get(one.name)
        if known is None or known[0] is not one:
            known = self._known[one.name] = one, _barred_by(one)
        return known[1]

    def prune(self, state: State) -> None:
        """Forget reservations that are gone."""
        if len(self._known) > len(state.reservations):
            self._known = {name: found for name, found in self._known.items() if name in state.reservations}


def _barred_by(one: Reservation) -> Barred:
    found = Barred(maintenance=one.has("MAINT"))
    for part in one.parts:
        if part.cores:
            found.cores[part.node] = ranges.to_bitmap(part.cores)
            if part.gpus:
                found.gpus[part.node] = ranges.to_bitmap(part.gpus)
        else:
            found.nodes |= 1 << part.node
    return found


def barred(state: State, inside: Reservation | None, at: int, end: int, bars: Bars | None = None) -> Barred:
    """Give what a job that runs over [at, end) may not have.

    Args:
        bars: kept by whoever asks again and again.
        inside: the reservation that it is tried in. Only what lies over that one then counts, and what is outside of
            it is barred too, unless it is FLEX or holds no nodes.
    """
    found = Barred()
    bars = bars or Bars()
    zone = state.settings.clock_changes
    for other in state.reservations.values():
        if other is inside or not other.parts:
            continue
        if inside is not None and inside.shares_nodes:
            continue
        # The first time that is not over says it all: what a later one bars, this one bars too.
        if any(True for _ in occurrences(other, zone, at, end)):
            found.add(bars.of(other))
    if inside is not None and not inside.anywhere and not inside.has("FLEX"):
        _keep_inside(state, inside, found)
    return found


def _keep_inside(state: State, inside: Reservation, found: Barred) -> None:
    own = 0
    for part in inside.parts:
        own |= 1 << part.node
        if part.cores:
            # The complement of a bitmap: all the other ones, however many there are.
            found.cores[part.node] = ~ranges.to_bitmap(part.cores) | found.cores.get(part.node, 0)
            found.gpus[part.node] = ~ranges.to_bitmap(part.gpus) | found.gpus.get(part.node, 0)
    found.nodes |= (1 << len(state.nodes)) - 1 & ~own


# ---- who -------------------------------------------------------------------------------------------------------


def may_use(state: State, one: Reservation, spec: JobSpec, groups: Sequence[str] = ()) -> bool:
    """Tell whether a job's owner, account, QOS and partitions give it the use of a reservation; all that is given must
    match. Root and the controller's own user always may."""
    if one.has("TIME_FLOAT"):
        return False
    if spec.uid in state.settings.administrators:
        return True
    groups_match = (
        spec.uid in one.groups.ids
        or spec.gid in one.groups.gids
        or spec.group in one.groups.names
        or any(name in one.groups.names for name in groups)
    )
    return (
        one.users.admits(spec.uid in one.users.ids)
        and one.groups.admits(groups_match)
        and one.accounts.admits(_has_account(state, one.accounts, spec.account))
        and one.qos.admits(spec.qos in one.qos.names)
        and one.partitions.admits(_has_partition(one.partitions, spec.partitions))
    )


def _has_account(state: State, access: Access, account: str) -> bool:
    """Tell whether an account is one of the names, or below one of them."""
    if not access.names:
        return False
    if account in access.names:
        return True
    known = state.accounts.account(account)
    return known is not None and any(above.account in access.names for above in state.accounts.path(known.id)[1:])


def _has_partition(access: Access, partitions: Sequence[str]) -> bool:
    if access.deny:
        return any(name in access.names for name in partitions)
    return bool(partitions) and all(name in access.names for name in partitions)


def usable_at(one: Reservation, at: int, end: int) -> bool:
    """Tell whether a job over [at, end) lies in the time of a reservation; one of FLEX may begin and end outside."""
    start, until = one.times(at)
    if one.has("FLEX"):
        return at < until
    return start <= at and end <= until


def allows(state: State, job: Job, start: Start, at: int, end: int) -> bool:
    """Check a planned start that would last over [at, end) against every reservation, that of the job included."""
    name = start.reservation
    if not state.reservations:
        return not name and not job.spec.request.reservations
    inside: Reservation | None = None
    asked = job.spec.request.reservations
    if name:
        inside = state.reservations.get(name)
        if inside is None or not may_use(state, inside, job.spec) or not usable_at(inside, at, end):
            return False
        if name not in asked and (asked or not inside.has("MAGNETIC")):
            return False
    elif asked:
        return False
    found = barred(state, inside, at, end)
    return not any(found.forbids(share) for share in start.shares)

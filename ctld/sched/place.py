"""Concrete cores and devices for the nodes that were chosen, and what is left after each start of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ctld.core import devices, ranges
from ctld.core.devices import Amounts
from ctld.core.free import FreeTable
from ctld.core.model import NodeShare, Ranges
from ctld.core.state import State
from ctld.sched.cores import fine_cores, take_cores
from ctld.sched.demand import Demand
from ctld.sched.fleet import Fleet, Kind, View
from ctld.sched.gres import all_others, near_sockets, per_socket, take_gpus, take_others
from ctld.sched.needs import Need, share_vector
from ctld.sched.needs import amount as amount_of
from ctld.sched.select import Pick, fits_on

Entry = TypeVar("Entry")
_NO_ROWS: dict[str, list[int]] = {}


@dataclass(frozen=True, slots=True)
class _Spot:
    """A share that is to be placed on a node."""

    need: Need
    partition: str
    kind: Kind
    node: int
    tasks: int
    count: int
    """Cores."""
    counts: tuple[int, ...]
    """By column of the fleet."""


class Patched(dict[int, Entry]):
    """A list in which some places have values of their own; the list is not changed."""

    __slots__ = ("_below",)

    def __init__(self, below: Sequence[Entry]) -> None:
        super().__init__()
        self._below = below

    def __missing__(self, place: int) -> Entry:
        return self._below[place]

    def copy(self) -> Patched[Entry]:
        """Give one that can be changed apart from this one."""
        other = Patched(self._below)
        other.update(self)
        return other


class Scratch:
    """What is free while a pass goes on. The state's own table is never changed."""

    __slots__ = ("cores", "fleet", "gpus", "guests", "more", "owned", "owner", "rows", "state", "view")

    def __init__(self, state: State, fleet: Fleet, view: View) -> None:
        free: FreeTable = state.free
        self.state = state
        self.fleet = fleet
        self.view = view
        """Changed by each start."""
        self.cores: dict[int, int] = Patched(free.cores)
        self.gpus: dict[int, int] = Patched(free.gpus)
        self.more: dict[int, Amounts] = Patched(free.more)
        self.rows: dict[int, dict[str, list[int]]] = {}
        """Node -> what this pass changed of the state's table of watched partitions."""
        self.owner = free.owner
        self.owned = any(free.owner[node] >= 0 for node in free.owned)
        """Some node is kept for one user."""
        self.guests: dict[int, set[int]] = {}
        """Node -> users of jobs that this pass started there."""

    def barred(self, demand: Demand, uid: int) -> int:
        """Give the bitmap of nodes that a job cannot have now for reasons that counts do not show: they belong to
        another user; another user has a job there (for a job that shares with its own user only); or their free
        cores and devices are not the right ones (where `demand.picky`)."""
        bits = 0
        if self.owned:
            for node, owner in enumerate(self.owner):
                if owner >= 0 and owner != uid:
                    bits |= 1 << node
        if demand.need.user:
            jobs, node_jobs = self.state.jobs, self.state.node_jobs
            for alternative in demand.alternatives:
                for node in alternative.nodes:
                    if any(jobs[job].spec.uid != uid for job in node_jobs[node]) or self.guests.get(node, {uid}) != {
                        uid
                    }:
                        bits |= 1 << node
        if demand.picky:
            bits |= self._misfits(demand, bits)
        return bits

    def _misfits(self, demand: Demand, barred: int) -> int:
        """Give the nodes whose counts suffice for an even share, and whose cores and devices do not."""
        bits = 0
        share = demand.need.gpus_total[0] if demand.even else 1 if demand.need.gpus_total[0] else 0
        for alternative in demand.alternatives:
            for node in alternative.nodes:
                if (barred | bits) >> node & 1 or not fits_on(demand, self.view, node):
                    continue
                if self._share(demand, (node, demand.tasks, share)) is None:
                    bits |= 1 << node
        return bits

    def place(self, demand: Demand, picks: list[Pick], uid: int) -> tuple[NodeShare, ...] | None:
        """Take the picked shares: give them with concrete cores and devices, None (and take nothing) when a node's
        bitmaps do not hold what its counts promise."""
        shares = self.draw(demand, picks)
        if shares is not None:
            self.take(demand, shares, uid)
        return shares

    def draw(self, demand: Demand, picks: list[Pick]) -> tuple[NodeShare, ...] | None:
        """Give the shares that `place` would take, and take nothing."""
        shares = []
        for pick in picks:
            share = self._share(demand, pick)
            if share is None:
                return None
            shares.append(share)
        return tuple(shares)

    def take(self, demand: Demand, shares: tuple[NodeShare, ...], uid: int) -> None:
        """Take shares that were drawn, nothing having been taken since."""
        for share in shares:
            self._take(demand, share, uid)

    def _share(self, demand: Demand, pick: Pick) -> NodeShare | None:
        need, fleet = demand.need, self.fleet
        node, tasks, gpus = pick
        number = fleet.kind[node]
        kind = fleet.kinds[number]
        if demand.even and tasks == demand.tasks and gpus == need.gpus_total[0]:
            wanted = demand.amounts[number]
        else:
            wanted = amount_of(need, kind, tasks, share_vector(need, gpus))
        if need.fine is not None or kind.gpu_cores or (need.whole and kind.whole):
            spot = _Spot(need, demand.partition, kind, node, tasks, wanted[0] // kind.threads, wanted[2])
            return self._fine_share(spot, wanted[1])
        cpus, memory, counts = wanted
        count = kind.cores if need.whole else cpus // kind.threads
        cores = take_cores(kind, self.cores[node], count, block=fleet.block)
        if not cores:
            return None
        indexes: Ranges = ()
        if counts[0]:
            bits = take_gpus(fleet, node, self.gpus[node], counts)
            if not bits:
                return None
            indexes = ranges.from_bitmap(bits)
        return NodeShare(node, cpus, cores, memory if need.memory_counts else 0, indexes, tasks)

    def _fine_share(self, spot: _Spot, memory: int) -> NodeShare | None:
        """`_share` for jobs with rules about cores and devices, and for nodes whose GPUs are near some cores."""
        need, kind, node, counts = spot.need, spot.kind, spot.node, spot.counts
        fine = need.fine
        found = self._row(spot)
        if found is None:
            return None
        row, cores, gpus = found
        if counts[0] and not gpus:
            gpus = take_gpus(
                self.fleet,
                node,
                self.gpus[node],
                counts,
                cores=0 if fine is not None and fine.unbound else cores,
                taken=sum(kind.sockets) & ~self.cores[node],
                near=fine is not None and fine.bind,
            )
            if not gpus:
                return None
        others = all_others(kind) if need.whole else ()
        if fine is not None and (fine.gres or fine.gres_task) and (not need.whole or fine.shares):
            free_gpus = self.gpus[node] & ~gpus
            named = take_others(kind, fine, self.more[node], gpus=free_gpus, cores=cores, tasks=spot.tasks)
            if named is None:
                return None
            others = tuple(one for one in named if not need.whole or one.name in devices.SHARING) + others
        cpus = cores.bit_count() * kind.threads
        memory = memory if need.memory_counts else 0
        indexes = ranges.from_bitmap(gpus)
        return NodeShare(node, cpus, ranges.from_bitmap(cores), memory, indexes, spot.tasks, others, row)

    def _row(self, spot: _Spot) -> tuple[int, int, int] | None:
        """Give the row that the job's cores are in (0: they are its own), the cores, and its GPUs where they follow
        from the sockets; None when there are no such cores."""
        fine = spot.need.fine
        free = self.cores[spot.node]
        if spot.counts[0] == 0 and spot.kind.restricted and fine is not None and fine.open_column:
            free &= ~spot.kind.restricted
        found = self._cores(spot, free)
        if fine is None or not fine.rows:
            return (0, *found) if found is not None else None
        if found is not None:
            return (1, *found)
        rows = self.rows_on(spot.node).get(spot.partition, [0])
        among = free
        for row in rows[1:]:
            among |= row
        for place in range(1, fine.rows + 1):
            mine = rows[place] if place < len(rows) else 0
            found = self._cores(spot, among & ~mine)
            if found is not None:
                return (place, *found)
        return None

    def _cores(self, spot: _Spot, free: int) -> tuple[int, int] | None:
        """Give cores out of `free`, and the GPUs where they follow from the sockets."""
        need, kind, node, count, fleet = spot.need, spot.kind, spot.node, spot.count, self.fleet
        fine = need.fine
        if free.bit_count() < count or (need.whole and free.bit_count() < kind.cores):
            return None
        gpus = 0
        if fine is not None and fine.gpus_per_socket:
            gpus, free = per_socket(fleet, node, need, self.gpus[node], free)
            if not gpus:
                return None
        elif spot.counts[0] and kind.gpu_cores and not (fine is not None and fine.unbound):
            near = near_sockets(fleet, node, need, self.gpus[node], free, wanted=spot.counts, count=count)
            if fine is not None and fine.bind and not near:
                return None
            free = near or free
        if fine is not None:
            used = self.rows_on(node).get(spot.partition, (0,))[0] if fine.socket_cpus else 0
            bits = fine_cores(kind, need, free, count, spot.tasks, block=fleet.block or need.whole, used=used)
        else:
            bits = ranges.to_bitmap(take_cores(kind, free, count, block=fleet.block))
        return (bits, gpus) if bits else None

    def rows_on(self, node: int) -> dict[str, list[int]]:
        """Give the cores of watched partitions on a node."""
        found = self.rows.get(node)
        if found is not None:
            return found
        return self.state.free.rows[node] if self.state.free.rows else _NO_ROWS

    def _take(self, demand: Demand, share: NodeShare, uid: int) -> None:
        node, view = share.node, self.view
        cores = share.cores
        bits = 1 << cores[0] if len(cores) == 2 and cores[0] == cores[1] else ranges.to_bitmap(cores)
        fleet = self.fleet
        if share.row:  # Some of its cores are others' already.
            fresh = self.cores[node] & bits
            view.cpus[node] -= fresh.bit_count() * fleet.kinds[fleet.kind[node]].threads
        else:
            view.cpus[node] -= share.cpus
        self.cores[node] &= ~bits
        view.memory[node] -= share.memory_mib
        if fleet.width > 1 or demand.partition in self.state.free.watched:
            self._take_more(demand, share, bits)
        elif share.gpus:
            gpus = ranges.to_bitmap(share.gpus)
            self.gpus[node] &= ~gpus
            view.gpus[0][node] -= gpus.bit_count()
        if demand.need.user:
            if self.owner is self.state.free.owner:
                self.owner = self.owner.copy()
            self.owner[node] = uid
            self.owned = True
        self.guests.setdefault(node, set()).add(uid)

    def _take_more(self, demand: Demand, share: NodeShare, cores: int) -> None:
        """Take devices and rows, and count the node anew."""
        node, fleet = share.node, self.fleet
        gpus = ranges.to_bitmap(share.gpus)
        if share.gres:
            table: Amounts = dict(self.more[node])
            devices.take(table, share.gres)
            self.more[node] = table
            gpus |= devices.shared_gpus(share.gres)
        self.gpus[node] &= ~gpus
        if share.row or demand.partition in self.state.free.watched:
            tables = {name: list(rows) for name, rows in self.rows_on(node).items()}
            rows = tables.setdefault(demand.partition, [0])
            rows[0] |= cores
            if share.row:
                rows.extend([0] * (share.row + 1 - len(rows)))
                rows[share.row] |= cores
            self.rows[node] = tables
        counts = fleet.free_counts(
            node, self.cores[node], self.gpus[node], more=self.more[node], rows=self.rows_on(node)
        )
        for column, count in zip(self.view.gpus, counts, strict=True):
            column[node] = count


class _Empty(Scratch):
    """The same choices on nodes of which nobody has anything."""

    def __init__(self, fleet: Fleet) -> None:
        self.state = State()
        self.fleet = fleet
        self.cores = Patched([sum(fleet.kinds[kind].sockets) for kind in fleet.kind])
        self.gpus = Patched([(1 << len(spec.gpus)) - 1 for spec in fleet.specs])
        self.more = Patched([fleet.kinds[kind].whole for kind in fleet.kind])
        self.rows = {}


def unfit(fleet: Fleet, demand: Demand) -> int:
    """Give the nodes of a demand that is picky on which its smallest share cannot be had even when they are empty."""
    empty = _Empty(fleet)
    bits = 0
    judged: dict[int, bool] = {}
    share = 1 if demand.need.gpus_total[0] else 0
    tasks, gpus = (1, share) if demand.need.uneven else (demand.tasks, demand.need.gpus_total[0])
    for alternative in demand.alternatives:
        for node in alternative.nodes:
            kind = fleet.kind[node]
            if kind not in judged:
                judged[kind] = empty._share(demand, (node, tasks, gpus)) is None
            if judged[kind]:
                bits |= 1 << node
    return bits

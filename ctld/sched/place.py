"""Concrete cores and GPUs for the nodes that were chosen, and what is left after each start of a pass."""

from __future__ import annotations

from ctld.core import ranges
from ctld.core.free import FreeTable
from ctld.core.model import NodeShare, Ranges
from ctld.core.state import State
from ctld.sched.demand import Demand
from ctld.sched.fleet import Fleet, Kind, View, members
from ctld.sched.needs import amount as amount_of
from ctld.sched.needs import share_vector
from ctld.sched.select import Pick


class Scratch:
    """What is free while a pass goes on. The state's own table is never changed: its lists are copied at the first
    start."""

    __slots__ = ("_copied", "cores", "fleet", "gpus", "guests", "owned", "owner", "state", "view")

    def __init__(self, state: State, fleet: Fleet, view: View) -> None:
        free: FreeTable = state.free
        self.state = state
        self.fleet = fleet
        self.view = view
        """Changed by each start."""
        self.cores = free.cores
        self.gpus = free.gpus
        self.owner = free.owner
        self.owned = max(free.owner, default=-1) >= 0
        """Some node is kept for one user."""
        self.guests: dict[int, set[int]] = {}
        """Node -> users of jobs that this pass started there."""
        self._copied = False

    def barred(self, demand: Demand, uid: int) -> int:
        """Give the bitmap of nodes that belong to another user, or (for a job that shares with its own user only)
        where another user has a job."""
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
        return bits

    def place(self, demand: Demand, picks: list[Pick], uid: int) -> tuple[NodeShare, ...] | None:
        """Take the picked shares: give them with concrete cores and GPUs, None (and take nothing) when a node's
        bitmaps do not hold what its counts promise."""
        shares = self.draw(demand, picks)
        if shares is None:
            return None
        if not self._copied:
            self._copied = True
            self.cores = self.cores.copy()
            self.gpus = self.gpus.copy()
            self.owner = self.owner.copy()
        for share in shares:
            self._take(demand, share, uid)
        return shares

    def draw(self, demand: Demand, picks: list[Pick]) -> tuple[NodeShare, ...] | None:
        """Give the shares that `place` would take, and take nothing."""
        shares = tuple([self._share(demand, pick) for pick in picks])
        return None if None in shares else shares  # type: ignore[return-value]  # Nothing in it is None.

    def _share(self, demand: Demand, pick: Pick) -> NodeShare | None:
        need, fleet = demand.need, self.fleet
        node, tasks, gpus = pick
        number = fleet.kind[node]
        kind = fleet.kinds[number]
        if demand.even and tasks == demand.tasks and gpus == need.gpus_total[0]:
            cpus, memory, wanted = demand.amounts[number]
        else:
            cpus, memory, wanted = amount_of(need, kind, tasks, share_vector(need, gpus))
        count = kind.cores if need.whole else cpus // kind.threads
        cores = take_cores(kind, self.cores[node], count)
        if not cores:
            return None
        indexes: Ranges = ()
        if wanted[0]:
            bits = take_gpus(fleet, node, self.gpus[node], wanted)
            if not bits:
                return None
            indexes = ranges.from_bitmap(bits)
        return NodeShare(node, cpus, cores, memory if need.memory_counts else 0, indexes, tasks)

    def _take(self, demand: Demand, share: NodeShare, uid: int) -> None:
        node, view = share.node, self.view
        cores = share.cores
        self.cores[node] &= ~(1 << cores[0] if len(cores) == 2 and cores[0] == cores[1] else ranges.to_bitmap(cores))
        view.cpus[node] -= share.cpus
        view.memory[node] -= share.memory_mib
        if share.gpus:
            bits = ranges.to_bitmap(share.gpus)
            self.gpus[node] &= ~bits
            for column, count in zip(view.gpus, self.fleet.gpu_counts(node, bits), strict=True):
                column[node] -= count
        if demand.need.user:
            self.owner[node] = uid
            self.owned = True
        self.guests.setdefault(node, set()).add(uid)


def take_cores(kind: Kind, free: int, count: int) -> Ranges:
    """Give `count` free cores: in one socket where they fit (the fullest such), else in as few as can be; lowest
    numbers first. Empty when there are not so many."""
    if count == 1 and len(kind.sockets) == 1:
        if not free:
            return ()
        low = (free & -free).bit_length() - 1
        return (low, low)
    have = free.bit_count()
    if have <= count:
        return ranges.from_bitmap(free) if have == count else ()
    if len(kind.sockets) == 1:
        return ranges.first(ranges.from_bitmap(free), count)
    rooms = [(free & socket, (free & socket).bit_count()) for socket in kind.sockets]
    enough = [room for room in rooms if room[1] >= count]
    if enough:
        return ranges.first(ranges.from_bitmap(min(enough, key=lambda room: room[1])[0]), count)
    taken = 0
    for bits, size in sorted(rooms, key=lambda room: -room[1]):
        taken |= bits if size <= count else ranges.lowest_bits(bits, count)
        count -= min(size, count)
        if not count:
            break
    return ranges.from_bitmap(taken)


def take_gpus(fleet: Fleet, node: int, free: int, wanted: tuple[int, ...]) -> int:
    """Give the bitmap of the lowest free GPUs that make up `wanted` (by column of the fleet), 0 when they are too
    few."""
    taken = 0
    if any(wanted[1:]):
        types = fleet.kinds[fleet.kind[node]].gpu_types
        for name, count in zip(fleet.types, wanted[1:], strict=True):
            if count:
                of_type = sum(1 << index for index in members(free) if types[index] == name)
                taken |= ranges.lowest_bits(of_type, count)
    missing = wanted[0] - taken.bit_count()
    if missing > 0:
        taken |= ranges.lowest_bits(free & ~taken, missing)
    return taken if taken.bit_count() == wanted[0] else 0

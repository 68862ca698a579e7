"""Where a step's tasks go inside its job: how many on each node, which ranks, which CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ctld.core import ranges
from ctld.core.model import NodeShare, Ranges, Step


class Place:
    """What one node of the job offers to a new step."""

    __slots__ = ("busy_cores", "busy_cpus", "busy_gpus", "busy_memory_mib", "share")

    def __init__(self, share: NodeShare) -> None:
        self.share = share
        self.busy_cpus = 0
        """CPUs that the tasks of open steps count for."""
        self.busy_cores = 0
        """Bitmap of cores that open steps have for themselves."""
        self.busy_gpus = 0
        self.busy_memory_mib = 0

    def add(self, step: Step, share: NodeShare) -> None:
        """Count an open step in; one that overlaps takes nothing from others."""
        if step.overlap:
            return
        self.busy_cpus += share.tasks * step.cpus_per_task
        if share.cores != self.share.cores:
            self.busy_cores |= ranges.to_bitmap(share.cores)
        self.busy_gpus |= ranges.to_bitmap(share.gpus)
        if share.memory_mib < self.share.memory_mib:
            self.busy_memory_mib += share.memory_mib

    def free_gpus(self, overlap: bool) -> int:
        """Bitmap of the job's GPUs here that a new step may have."""
        mine = ranges.to_bitmap(self.share.gpus)
        return mine if overlap else mine & ~self.busy_gpus


def places_of(shares: Iterable[NodeShare], steps: Iterable[Step]) -> list[Place]:
    """Give the nodes of a job with what its open steps use."""
    places = {share.node: Place(share) for share in shares}
    for step in steps:
        reported = {result.node for result in step.results}
        for share in step.shares:
            if share.node in places and share.node not in reported:
                places[share.node].add(step, share)
    return list(places.values())


def spread(ntasks: int, room: Sequence[int]) -> list[int]:
    """Give task counts that differ by at most one where the room allows; the first nodes get more."""
    counts = [0] * len(room)
    left = ntasks
    while left:
        open_nodes = [place for place, count in enumerate(counts) if count < room[place]]
        assert open_nodes, "there is room for all tasks"
        each = max(1, left // len(open_nodes))
        for place in open_nodes:
            more = min(each, room[place] - counts[place], left)
            counts[place] += more
            left -= more
            if not left:
                break
    return counts


def pack(ntasks: int, room: Sequence[int]) -> list[int]:
    """Give task counts that fill a node before the next; each node gets at least one."""
    counts = [1] * len(room)
    left = ntasks - len(room)
    for place, most in enumerate(room):
        more = max(0, min(most - 1, left))
        counts[place] += more
        left -= more
    return counts


def block_ranks(counts: Sequence[int]) -> tuple[Ranges, ...]:
    """Number the tasks node by node."""
    ranks: list[Ranges] = []
    rank = 0
    for count in counts:
        ranks.append((rank, rank + count - 1) if count else ())
        rank += count
    return tuple(ranks)


def cyclic_ranks(counts: Sequence[int], plane: int = 1) -> tuple[Ranges, ...]:
    """Number the tasks round robin, `plane` at a time."""
    mine: list[list[int]] = [[] for _ in counts]
    rank, total = 0, sum(counts)
    while rank < total:
        for place, count in enumerate(counts):
            more = min(plane, count - len(mine[place]))
            mine[place] += range(rank, rank + more)
            rank += more
    return tuple(ranges.from_ints(numbers) for numbers in mine)


def plane_counts(ntasks: int, room: Sequence[int], plane: int) -> list[int]:
    """Give task counts of blocks of `plane` tasks dealt round robin."""
    counts = [0] * len(room)
    left = ntasks
    while left:
        before = left
        for place, most in enumerate(room):
            more = min(plane, most - counts[place], left)
            counts[place] += more
            left -= more
        assert left < before, "there is room for all tasks"
    return counts


def exact_cores(place: Place, cpus: int, overlap: bool) -> tuple[Ranges, int]:
    """Give the lowest whole cores for `cpus` CPUs, and how many CPUs they are; others' own cores last."""
    share = place.share
    mine = ranges.to_bitmap(share.cores)
    cores = mine.bit_count()
    if not cores:
        return (), cpus
    each = max(1, share.cpus // cores)
    wanted = min(cores, -(-cpus // each))
    taken = ranges.lowest_bits(mine if overlap else mine & ~place.busy_cores, wanted)
    missing = wanted - taken.bit_count()
    if missing:
        taken |= ranges.lowest_bits(mine & ~taken, missing)
    return ranges.from_bitmap(taken), min(share.cpus, wanted * each)

"""Which nodes a reservation gets: those named, or as many as asked for that are idle at its time.

What keeps a node (or cores and GPUs of it) from a reservation: another one at any of the same times, unless either
may lie over others, and running jobs whose limit passes its start, unless those are to be ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ctld.core import features, ranges
from ctld.core.cluster import NodeSpec
from ctld.core.decide.refusals import invalid, refused
from ctld.core.free import selectable_cores
from ctld.core.model import GpuRequest
from ctld.core.reservations import Part, Reservation, occurrences
from ctld.core.state import State
from ctld.core.times import limit_end
from ctld.core.usable import usable
from muster.errors import InvalidInput, MusterError
from muster.hostlist import expand

BUSY, UNAVAILABLE, OVERLAPS = 2016, 2014, 2058
_LOOK_AHEAD_SECONDS = 70 * 86_400
"""How far two recurring reservations are compared: ten weeks hold every phase of one week against another."""
_MOST_TIMES = 20_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reservation is to have of the nodes."""

    nodes: tuple[int, ...] | None = None
    """The ones named."""
    node_count: int = 0
    core_counts: tuple[int, ...] = ()
    """Cores of each node; a single number without named nodes is for all of them together."""
    gpus: tuple[GpuRequest, ...] = ()
    """In all."""
    gpus_per_node: tuple[GpuRequest, ...] = ()
    partition: str = ""
    features: str = ""


@dataclass(slots=True)
class Taken:
    """What a reservation cannot have."""

    reserved: int = 0
    """Bitmap of nodes of which others have all."""
    busy: int = 0
    """Bitmap of nodes with jobs that are still there at its start."""
    reserved_cores: dict[int, int] = field(default_factory=dict)
    reserved_gpus: dict[int, int] = field(default_factory=dict)
    busy_cores: dict[int, int] = field(default_factory=dict)
    busy_gpus: dict[int, int] = field(default_factory=dict)

    def whole(self) -> int:
        """Give the bitmap of nodes that cannot be had whole."""
        bits = self.reserved | self.busy
        for node in self.reserved_cores:
            bits |= 1 << node
        return bits


def taken_at(state: State, one: Reservation, at: int) -> Taken:
    """Find what keeps nodes from a reservation with the times and flags of this one."""
    found = Taken()
    if not one.shares_nodes:
        _note_reserved(state, one, at, found)
    if not one.has("IGNORE_JOBS"):
        start = max(one.times(at)[0], at)
        for job_id in (*state.running, *state.completing):
            job = state.jobs[job_id]
            if job.alloc is None or 0 <= limit_end(job, at) <= start:
                continue
            if job_id in state.completing or (one.name and job.alloc.reservation == one.name):
                continue
            for share in job.alloc.shares:
                found.busy |= 1 << share.node
                _add(found.busy_cores, share.node, ranges.to_bitmap(share.cores))
                _add(found.busy_gpus, share.node, ranges.to_bitmap(share.gpus))
    return found


def _note_reserved(state: State, one: Reservation, at: int, found: Taken) -> None:
    zone = state.settings.clock_changes
    mine: list[tuple[int, int]] | None = None
    for other in state.reservations.values():
        if other.name == one.name or not other.parts:
            continue
        if mine is None:
            ends = [each.end_at for each in state.reservations.values()]
            horizon = max(one.end_at, one.start_at + _LOOK_AHEAD_SECONDS, *ends) if one.recurs else one.times(at)[1]
            mine = list(occurrences(one, zone, at, horizon, _MOST_TIMES))
        if not mine or not _meet(mine, occurrences(other, zone, at, mine[-1][1], _MOST_TIMES)):
            continue
        for part in other.parts:
            if part.cores:
                _add(found.reserved_cores, part.node, ranges.to_bitmap(part.cores))
                _add(found.reserved_gpus, part.node, ranges.to_bitmap(part.gpus))
            else:
                found.reserved |= 1 << part.node


def _meet(mine: Sequence[tuple[int, int]], theirs: Iterable[tuple[int, int]]) -> bool:
    """Tell whether two sorted sequences of times have any common second."""
    place = 0
    for start, end in theirs:
        while place < len(mine) and mine[place][1] <= start:
            place += 1
        if place == len(mine):
            return False
        if mine[place][0] < end:
            return True
    return False


def _add(bits: dict[int, int], node: int, more: int) -> None:
    bits[node] = bits.get(node, 0) | more


# ---- named nodes -----------------------------------------------------------------------------------------------


def named(state: State, text: str, partition: str) -> tuple[int, ...]:
    """Read Nodes=: a host list, or ALL (of the partition, where one is named)."""
    if text.strip().upper() == "ALL":
        known = state.partitions.get(partition)
        return known.nodes if known is not None else tuple(range(len(state.nodes)))
    try:
        names = expand(text)
    except InvalidInput as error:
        raise invalid(2018, str(error)) from None
    found = set()
    for name in names:
        index = state.node_index.get(name)
        if index is None:
            raise invalid(2018, f"there is no node {name[:60]!r}")
        found.add(index)
    return tuple(sorted(found))


def still_there(state: State, one: Reservation, at: int) -> None:
    """Check that a reservation may have the parts that it has.

    Raises:
        Refused: another one or a job has something of them at its time.
    """
    taken = taken_at(state, one, at)
    for part in one.parts:
        name = state.nodes[part.node].spec.name
        cores, gpus = ranges.to_bitmap(part.cores), ranges.to_bitmap(part.gpus)
        if taken.reserved >> part.node & 1 or _touches(taken.reserved_cores, taken.reserved_gpus, part, cores, gpus):
            raise refused(OVERLAPS, f"another reservation has {name}; Flags=OVERLAP would share it")
        if (taken.busy >> part.node & 1 and not cores) or (
            cores and (cores & taken.busy_cores.get(part.node, 0) or gpus & taken.busy_gpus.get(part.node, 0))
        ):
            raise refused(
                BUSY, f"a job on {name} may run past the start; Flags=IGNORE_JOBS would take the node nevertheless"
            )


def _touches(of_cores: dict[int, int], of_gpus: dict[int, int], part: Part, cores: int, gpus: int) -> bool:
    if not cores:
        return part.node in of_cores
    return bool(cores & of_cores.get(part.node, 0) or gpus & of_gpus.get(part.node, 0))


# ---- picked nodes ----------------------------------------------------------------------------------------------


def parts_for(state: State, one: Reservation, wanted: Wanted, at: int) -> tuple[Part, ...]:
    """Give the parts of a reservation.

    Raises:
        Refused, InvalidInput: there is no room at its time, or what is asked for does not add up.
    """
    gpus, per_node = _single(wanted.gpus), _single(wanted.gpus_per_node)
    if gpus or per_node:
        return _with_gpus(state, one, wanted, at)
    if wanted.nodes is not None:
        if not wanted.core_counts:
            return tuple(Part(node) for node in wanted.nodes)
        if len(wanted.core_counts) != len(wanted.nodes):
            raise invalid(2111, f"{len(wanted.nodes)} nodes are named, CoreCnt has {len(wanted.core_counts)} numbers")
        taken = taken_at(state, one, at)
        return tuple(
            _cores_of(state, node, count, taken) for node, count in zip(wanted.nodes, wanted.core_counts, strict=True)
        )
    taken = taken_at(state, one, at)
    nodes = candidates(state, one, wanted)
    if wanted.core_counts:
        return _by_cores(state, nodes, wanted, taken)
    free = [node for node in nodes if not taken.whole() >> node & 1]
    if len(free) < wanted.node_count:
        raise _too_few(wanted, len(nodes), len(free), "nodes")
    return tuple(Part(node) for node in sorted(free[: wanted.node_count]))


def candidates(state: State, one: Reservation, wanted: Wanted) -> list[int]:
    """Give the nodes to choose from, the best first: of the partition (or the default one), with the features, and
    usable unless it is for maintenance."""
    partition = state.partitions.get(wanted.partition) or next(
        (each for each in state.partitions.values() if each.default), None
    )
    nodes: Iterable[int] = partition.nodes if partition is not None else range(len(state.nodes))
    bits = (1 << len(state.nodes)) - 1
    if wanted.features:

        def nodes_with(name: str) -> int:
            return sum(1 << node.index for node in state.nodes if name in node.spec.features)

        try:
            alternatives = features.choices(wanted.features, nodes_with, bits)
        except InvalidInput as error:
            raise invalid(2029, str(error)) from None
        bits = 0
        for choice in alternatives:
            bits |= choice.nodes
    found = [
        node for node in nodes if bits >> node & 1 and (one.has("MAINT") or usable(state.settings, state.nodes[node]))
    ]
    return sorted(found, key=lambda node: (state.nodes[node].spec.weight, node))


def _by_cores(state: State, nodes: Sequence[int], wanted: Wanted, taken: Taken) -> tuple[Part, ...]:
    """Take cores of nodes that are chosen: the same number of each, the numbers given, or a sum on few nodes."""
    counts = wanted.core_counts
    if wanted.node_count and len(counts) == 1:
        counts = (-(-counts[0] // wanted.node_count),) * wanted.node_count
    if not wanted.node_count and len(counts) == 1:
        return _sum_of_cores(state, nodes, counts[0], taken)
    if wanted.node_count and len(counts) != wanted.node_count:
        raise invalid(2111, f"NodeCnt={wanted.node_count}, CoreCnt has {len(counts)} numbers")
    parts: list[Part] = []
    left = list(nodes)
    for count in counts:
        node = next((node for node in left if _free_cores(state, node, taken).bit_count() >= count), None)
        if node is None:
            raise _too_few(wanted, len(nodes), len(parts), "nodes with so many cores")
        left.remove(node)
        parts.append(_cores_of(state, node, count, taken))
    return tuple(sorted(parts, key=lambda part: part.node))


def _sum_of_cores(state: State, nodes: Sequence[int], count: int, taken: Taken) -> tuple[Part, ...]:
    parts: list[Part] = []
    missing = count
    for node in nodes:
        if not missing:
            break
        here = min(missing, _free_cores(state, node, taken).bit_count())
        if here:
            parts.append(_cores_of(state, node, here, taken))
            missing -= here
    if missing:
        raise refused(BUSY, f"{count - missing} of {count} cores are free at that time")
    return tuple(sorted(parts, key=lambda part: part.node))


def _free_cores(state: State, node: int, taken: Taken) -> int:
    if taken.reserved >> node & 1:
        return 0
    kept = taken.reserved_cores.get(node, 0) | taken.busy_cores.get(node, 0)
    return selectable_cores(state.nodes[node].spec) & ~kept


def _cores_of(state: State, node: int, count: int, taken: Taken, gpus: int = 0) -> Part:
    free = _free_cores(state, node, taken)
    if free.bit_count() < count or not count:
        spec = state.nodes[node].spec
        raise refused(BUSY, f"{spec.name} has {free.bit_count()} of {count} cores free at that time")
    return Part(node, ranges.from_bitmap(ranges.lowest_bits(free, count)), ranges.from_bitmap(gpus))


def _with_gpus(state: State, one: Reservation, wanted: Wanted, at: int) -> tuple[Part, ...]:
    """Take GPUs, and with them the cores asked for, or else those that belong to so many GPUs of the node."""
    taken = taken_at(state, one, at)
    nodes = list(wanted.nodes) if wanted.nodes is not None else candidates(state, one, wanted)
    each, total = _single(wanted.gpus_per_node), _single(wanted.gpus)
    name = (wanted.gpus_per_node or wanted.gpus)[0].type
    missing, count = total, wanted.node_count or (len(wanted.nodes) if wanted.nodes is not None else 1)
    all_cores = sum(wanted.core_counts)
    parts: list[Part] = []
    for node in nodes:
        free = _free_gpus(state, node, name, taken)
        here = each if each else min(missing, free.bit_count())
        if not here or free.bit_count() < here:
            continue
        spec = state.nodes[node].spec
        cores = (
            -(-all_cores * here // (total or each * count))
            if all_cores
            else -(-selectable_cores(spec).bit_count() * here // len(spec.gpus))
        )
        if _free_cores(state, node, taken).bit_count() < cores:
            continue
        parts.append(_cores_of(state, node, cores, taken, ranges.lowest_bits(free, here)))
        missing -= here
        if (each and len(parts) == count) or (not each and not missing):
            return tuple(sorted(parts, key=lambda part: part.node))
    raise _too_few(wanted, len(nodes), len(parts), "nodes with such GPUs and cores beside them")


def _free_gpus(state: State, node: int, name: str, taken: Taken) -> int:
    if taken.reserved >> node & 1:
        return 0
    spec: NodeSpec = state.nodes[node].spec
    bits = sum(1 << index for index, kind in enumerate(spec.gpus) if name in ("", kind))
    return bits & ~taken.reserved_gpus.get(node, 0) & ~taken.busy_gpus.get(node, 0)


def _single(gpus: Sequence[GpuRequest]) -> int:
    if len(gpus) > 1:
        raise invalid(2115, "a reservation takes GPUs of one type")
    return gpus[0].count if gpus else 0


def _too_few(wanted: Wanted, known: int, free: int, what: str) -> MusterError:
    asked = wanted.node_count or len(wanted.core_counts)
    if wanted.features and known < asked:
        return refused(UNAVAILABLE, f"{known} nodes have the features {wanted.features[:60]}")
    return refused(BUSY, f"{free} of {asked or 1} {what} are free at that time, of {known}")

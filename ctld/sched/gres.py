"""Which devices of a node: GPUs near the cores and well linked to each other, parts of GPUs, and all other generic
resources (scheduling.md 8.8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ctld.core import ranges
from ctld.core.cluster import Device
from ctld.core.devices import SHARING, Amounts
from ctld.core.model import GresRequest, GresShare
from ctld.sched.fleet import Fleet, Kind, members
from ctld.sched.needs import Fine, Need

MAX_SOCKETS = 12
"""From so many sockets on GPUs are sought near those with the most, not in every set of sockets."""


def take_gpus(
    fleet: Fleet, node: int, free: int, wanted: tuple[int, ...], *, cores: int = 0, taken: int = 0, near: bool = False
) -> int:
    """Give the bitmap of free GPUs that make up `wanted` (by column of the fleet), 0 when they are too few.

    Near the job's `cores` first, then those near no core in particular, then those near cores that other jobs have
    (`taken`), then the rest; of equally near ones the one with most links to those chosen, or the lowest.

    Args:
        near: only GPUs near the cores, or near none in particular.
    """
    kind = fleet.kinds[fleet.kind[node]]
    chosen = 0
    classes = nearness(kind, free, cores, taken) if cores else [free]
    if near and cores:
        classes = classes[:2]
    if any(wanted[1 : 1 + len(fleet.types)]):
        types = kind.gpu_types
        for name, count in zip(fleet.types, wanted[1 : 1 + len(fleet.types)], strict=True):
            if count:
                of_type = sum(1 << gpu for gpu in members(free) if types[gpu] == name)
                found = _pick(kind, [one & of_type for one in classes], count, chosen)
                if found.bit_count() < count:
                    return 0
                chosen |= found
    missing = wanted[0] - chosen.bit_count()
    if missing > 0:
        chosen |= _pick(kind, classes, missing, chosen)
    return chosen if chosen.bit_count() == wanted[0] else 0


def nearness(kind: Kind, free: int, cores: int, taken: int) -> list[int]:
    """Sort free GPUs into four classes, the first to be taken first."""
    if not kind.gpu_cores:
        return [free]
    # What is near a socket is near all its cores.
    mine = sum(socket for socket in kind.sockets if socket & cores)
    theirs = sum(socket for socket in kind.sockets if socket & taken)
    classes = [0, 0, 0, 0]
    for gpu in members(free):
        near = kind.gpu_cores[gpu]
        at = 1 if not near else 0 if near & mine else 2 if near & theirs else 3
        classes[at] |= 1 << gpu
    return classes


def _pick(kind: Kind, classes: Sequence[int], count: int, before: int) -> int:
    """Take `count` GPUs from the first classes that have some, those chosen `before` left out."""
    chosen = before
    for one in classes:
        left = one & ~chosen
        if not kind.links:
            more = ranges.lowest_bits(left, count)
            chosen |= more
            count -= more.bit_count()
        while kind.links and left and count:
            best = _most_linked(kind.links, left, chosen)
            chosen |= 1 << best
            left &= ~(1 << best)
            count -= 1
        if not count:
            break
    return chosen & ~before


def _most_linked(links: tuple[tuple[int, ...], ...], left: int, chosen: int) -> int:
    linked = members(chosen)
    return min(members(left), key=lambda gpu: (-sum(max(0, links[gpu][other]) for other in linked), gpu))


def near_sockets(
    fleet: Fleet, node: int, need: Need, free_gpus: int, free_cores: int, *, wanted: tuple[int, ...], count: int
) -> int:
    """Give the bitmap of the free cores of the fewest sockets that have both the cores and the GPUs that are wanted
    near them (of equal ones the lowest), 0 when no sockets have."""
    kind = fleet.kinds[fleet.kind[node]]
    each = need.fine.cores_in_socket if need.fine is not None else 0
    rooms = [free_cores & socket for socket in kind.sockets]
    sizes = [min(each, room.bit_count()) if each else room.bit_count() for room in rooms]
    for chosen in _socket_sets(rooms):
        if sum(sizes[at] for at in chosen) < count:
            continue
        near = _near(kind, free_gpus, sum(kind.sockets[at] for at in chosen))
        if near.bit_count() >= wanted[0] and take_gpus(fleet, node, near, wanted):
            return sum(rooms[at] for at in chosen)
    return 0


def per_socket(fleet: Fleet, node: int, need: Need, free_gpus: int, free_cores: int) -> tuple[int, int]:
    """Give (GPUs, free cores) for --gpus-per-socket: of the lowest sockets that have so many GPUs near them, as many
    as --sockets-per-node says; (0, 0) when there are too few."""
    fine = need.fine
    assert fine is not None
    kind = fleet.kinds[fleet.kind[node]]
    gpus = cores = 0
    sockets = 0
    for socket in kind.sockets:
        if sockets == fine.sockets:
            break
        if not socket & free_cores:
            continue
        # GPUs that are near no socket in particular belong to whichever asks.
        mine = take_gpus(fleet, node, _near(kind, free_gpus & ~gpus, socket), fine.gpus_per_socket, cores=socket)
        if mine:
            gpus |= mine
            cores |= socket & free_cores
            sockets += 1
    return (gpus, cores) if sockets == fine.sockets else (0, 0)


def _near(kind: Kind, gpus: int, cores: int) -> int:
    """Give those of the GPUs that are near these cores, or near none in particular."""
    if not kind.gpu_cores:
        return gpus
    return sum(1 << gpu for gpu in members(gpus) if not kind.gpu_cores[gpu] or kind.gpu_cores[gpu] & cores)


def _socket_sets(rooms: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Give sets of sockets with free cores, small ones first."""
    usable = [at for at, room in enumerate(rooms) if room]
    for size in range(1, len(usable) + 1):
        if len(usable) <= MAX_SOCKETS or size in (1, len(usable)):
            yield from combinations(usable, size)


# ---- other resources -------------------------------------------------------------------------------------------


def take_others(
    kind: Kind, fine: Fine, more: Amounts, *, gpus: int, cores: int, tasks: int
) -> tuple[GresShare, ...] | None:
    """Give what a job with `tasks` tasks on a node takes of other resources, None when there is too little.

    Args:
        more: what is free of them.
        gpus: GPUs that are nobody's, this job included.
        cores: the job's cores: devices near them come first.
    """
    shares: list[GresShare] = []
    left = dict(more)
    parts = [(one, one.count, 1) for one in fine.gres] + [(one, one.count, tasks) for one in fine.gres_task]
    for wanted, each, times in parts:
        if any(name == wanted.name and kind_ in ("", wanted.type) for name, kind_, _ in kind.fixed):
            continue
        if wanted.name in SHARING:
            found = _parts_of_gpus(kind, fine, left, gpus, wanted, each=each, times=times)
        else:
            found = _devices(kind, left, wanted, each * times, cores)
        if found is None:
            return None
        shares += found
    return tuple(_merged(shares))


def all_others(kind: Kind) -> tuple[GresShare, ...]:
    """Give all other resources of an empty node, but for the parts of GPUs."""
    shares = []
    for one in kind.spec.devices:
        if one.name == "gpu" or one.no_consume or one.each:
            continue
        indices = (one.first, one.first + one.count - 1) if one.first >= 0 else ()
        shares.append(GresShare(one.name, one.count, one.type, indices))
    return tuple(_merged(shares))


def _devices(kind: Kind, left: Amounts, wanted: GresRequest, count: int, cores: int) -> list[GresShare] | None:
    """Take devices: near ones first, then the lowest index; changes `left`."""
    found: list[GresShare] = []
    groups = [one for one in kind.spec.devices if one.name == wanted.name and wanted.type in ("", one.type)]
    groups.sort(key=lambda one: bool(one.cores) and not ranges.to_bitmap(one.cores) & cores)
    for one in groups:
        if not count:
            break
        if one.first < 0:
            key = f"{one.name}:{one.type}"
            taken = min(count, left[key])
            left[key] -= taken
            if taken:
                found.append(GresShare(one.name, taken, one.type))
        else:
            bits = ranges.lowest_bits(left[one.name] & ((1 << one.count) - 1) << one.first, count)
            left[one.name] &= ~bits
            taken = bits.bit_count()
            if taken:
                found.append(GresShare(one.name, taken, one.type, ranges.from_bitmap(bits)))
        count -= taken
    return found if not count else None


def _parts_of_gpus(
    kind: Kind, fine: Fine, left: Amounts, gpus: int, wanted: GresRequest, *, each: int, times: int
) -> list[GresShare] | None:
    """Take shares of GPUs for `times` tasks of `each`; changes `left`."""
    found: list[GresShare] = []
    used: set[int] = set()
    pieces = [each] * times if fine.one_task_a_gpu else [each * times]
    for piece in pieces:
        for gpu, one in _order(kind, fine, left, gpus, wanted):
            if not piece:
                break
            key = f"{one.name}@{gpu}"
            if (left[key] < piece and not fine.many_gpus) or (fine.one_task_a_gpu and gpu in used):
                continue
            taken = min(piece, left[key])
            opens = left[key] == one.each
            left[key] -= taken
            used.add(gpu)
            found.append(GresShare(one.name, taken, one.type, (gpu, gpu), opens))
            piece -= taken
        if piece:
            return None
        if len(used) > 1 and not fine.many_gpus and not fine.one_task_a_gpu:
            return None
    return found


def _order(kind: Kind, fine: Fine, left: Amounts, gpus: int, wanted: GresRequest) -> list[tuple[int, Device]]:
    """Give the GPUs of which shares are free: partly used ones first, or those with the largest part free."""
    able: list[tuple[int, Device]] = []
    for one in kind.spec.devices:
        if one.name != wanted.name or wanted.type not in ("", one.type):
            continue
        for gpu in range(one.first, one.first + one.count):
            free = left[f"{one.name}@{gpu}"]
            if free and (free < one.each or gpus >> gpu & 1):
                able.append((gpu, one))
    if fine.emptiest:
        able.sort(key=lambda item: (-left[f"{item[1].name}@{item[0]}"] / item[1].each, item[0]))
    else:
        able.sort(key=lambda item: (left[f"{item[1].name}@{item[0]}"] == item[1].each, item[0]))
    return able


def _merged(shares: list[GresShare]) -> list[GresShare]:
    """Add up what is of one name and type; shares of GPUs stay apart by GPU."""
    found: dict[tuple[object, ...], GresShare] = {}
    for one in shares:
        key = (one.name, one.type, one.indices if one.name in SHARING else bool(one.indices))
        before = found.get(key)
        if before is not None:
            sharing = one.name in SHARING
            one = GresShare(
                one.name,
                before.count + one.count,
                one.type,
                one.indices if sharing or not one.indices else ranges.union(before.indices, one.indices),
                before.opens or one.opens,
            )
        found[key] = one
    return list(found.values())

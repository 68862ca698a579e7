"""Choose so many equal nodes in a block topology, whole or by segments, or in rings (scheduling.md 8.7, beyond.md B8).

Base blocks stand in the order of the configuration; a block of level k is 2^k of them side by side. Ties go to the
lower number.
"""

from __future__ import annotations

import numpy as np

from ctld.sched.fleet import Ints
from ctld.sched.topology import Layout
from ctld.sched.tree import Ask, domains, in_domain

Share = list[tuple[int, int]]
"""(base block, nodes of it)."""


def in_blocks(layout: Layout, fits: Ints, ask: Ask) -> list[int] | None:
    """Give nodes of the smallest enabled block that such a job may need, the least fragmenting one; of a range of node
    counts the largest that can be had."""
    seed = ask.seeding(fits)
    if seed is None:
        return None
    if seed:
        level = block_level(layout, max(ask.least, len(seed)))
        return in_domain(layout, fits, ask, min(level, layout.depth - 1))
    fits = fits[layout.domain[0][fits] >= 0]
    for wanted in range(min(ask.most, len(fits)), ask.least - 1, -1):
        share = _place(layout, _counts(layout, fits), wanted, _dearness(layout, fits, ask.weight))
        if share is not None:
            return _nodes(layout, fits, share)
    return None


def in_segments(
    layout: Layout, fits: Ints, ask: Ask, segment: int, *, level: int, spread: bool, within: int
) -> list[list[int]] | None:
    """Give the nodes of each segment.

    Args:
        ask: its `most` is the number of nodes, a multiple of `segment`.
        level: level of the domain in which each segment lies; -1: as high as its size needs.
        spread: no two segments share a domain of level 0.
        within: level of the one domain in which all segments lie; -1: anywhere in one tree.
    """
    outer = layout.depth - 1 if within < 0 else within
    count = ask.most // segment
    inside_all = [fits[layout.domain[0][fits] >= 0]] if layout.spec.kind == "block" and within < 0 else None
    for inside in inside_all or domains(layout, fits, ask, outer):
        if layout.spec.kind == "block" and level < 0:
            found = _block_segments(layout, inside, [segment] * count, spread=spread, weight=ask.weight)
        else:
            rooms = _rooms(layout, inside, segment, layout.level_for(segment) if level < 0 else level, spread=spread)
            found = _segments(rooms, count, segment)
        if found is not None:
            return found
    return None


def consolidated(layout: Layout, wanted: int, segment: int, *, spread: bool) -> list[int]:
    """Give the levels of the domains, finest first, that might hold all segments of a job."""
    total = wanted
    if spread and layout.spec.kind == "block":
        base = layout.spec.block_sizes[0]
        total = wanted // segment * -(-segment // base) * base
    if layout.spec.kind == "block":
        return list(range(min(block_level(layout, total), layout.depth - 1), layout.depth))
    return list(range(layout.depth))


def in_ring(layout: Layout, fits: Ints, least: int, most: int) -> list[int] | None:
    """Give nodes side by side on one ring, of the shortest gap that is long enough."""
    best: tuple[int, int, list[int]] | None = None
    available = set(fits.tolist())
    for number in range(len(layout.names[0])):
        ring = np.flatnonzero(layout.domain[0] == number).tolist()
        for gap in _gaps(ring, available):
            if len(gap) < least:
                continue
            size = min(len(gap), most)
            if best is None or (-size, len(gap)) < best[:2]:
                best = (-size, len(gap), gap[:size])
    return best[2] if best else None


def _gaps(ring: list[int], available: set[int]) -> list[list[int]]:
    """Give the maximal stretches of available nodes on a ring, each in the order around it."""
    taken = [place for place, node in enumerate(ring) if node not in available]
    if not taken:
        return [ring]
    gaps: list[list[int]] = []
    gap: list[int] = []
    for step in range(1, len(ring) + 1):
        node = ring[(taken[0] + step) % len(ring)]
        if node in available:
            gap.append(node)
        elif gap:
            gaps.append(gap)
            gap = []
    return gaps


def _counts(layout: Layout, fits: Ints) -> Ints:
    return np.bincount(layout.domain[0][fits], minlength=len(layout.names[0]))


def _dearness(layout: Layout, fits: Ints, weight: Ints | None) -> Ints | None:
    """Give the highest weight of a fitting node of each base block; None where all weights are equal."""
    if weight is None:
        return None
    dear: Ints = np.zeros(len(layout.names[0]), np.int64)
    np.maximum.at(dear, layout.domain[0][fits], weight[fits])
    return dear


def _shifts(layout: Layout) -> list[int]:
    base = layout.spec.block_sizes[0]
    return [(size // base).bit_length() - 1 for size in layout.spec.block_sizes]


def block_level(layout: Layout, nodes: int) -> int:
    """Give the smallest enabled level whose blocks have as many base blocks as the job needs; the number of levels
    where none has: then the whole cluster is one block."""
    needed = -(-nodes // layout.spec.block_sizes[0])
    for level, shift in enumerate(_shifts(layout)):
        if 1 << shift >= needed:
            return level
    return layout.depth


def _place(layout: Layout, counts: Ints, wanted: int, dear: Ints | None) -> Share | None:
    """Choose the block for so many nodes and what its base blocks give; None when no block has enough."""
    level = block_level(layout, wanted)
    if level == 0:
        enough = np.flatnonzero(counts >= wanted)
        if not len(enough):
            return None
        keys = (enough, counts[enough]) if dear is None else (enough, counts[enough], dear[enough])
        return [(int(enough[np.lexsort(keys)[0]]), wanted)]
    shifts = _shifts(layout)
    lower = shifts[level - 1]
    allowed = -(-wanted // layout.spec.block_sizes[level - 1])
    places = np.arange(len(counts))
    outer = places >> shifts[level] if level < layout.depth else np.zeros(len(counts), np.int64)
    best: tuple[int, int, int] | None = None
    for block in range(int(outer[-1]) + 1):
        mine = np.flatnonzero(outer == block)
        totals = np.bincount(mine >> lower, weights=counts[mine]).astype(np.int64)
        if int(np.sort(totals)[-allowed:].sum()) < wanted:
            continue
        dearest = int(dear[mine[counts[mine] > 0]].max()) if dear is not None else 0
        key = (dearest, int(counts[mine].sum()), block)
        if best is None or key < best:
            best = key
    if best is None:
        return None
    mine = np.flatnonzero(outer == best[2])
    lowers: dict[int, list[int]] = {}
    for base in mine.tolist():
        lowers.setdefault(base >> lower, []).append(base)
    share: Share = []
    totals_of = {one: int(counts[bases].sum()) for one, bases in lowers.items()}
    for one, amount in _tight(totals_of, wanted):
        share += _tight({base: int(counts[base]) for base in lowers[one]}, amount)
    return share


def _tight(rooms: dict[int, int], wanted: int) -> Share:
    """Take from one that holds all that is wanted, the one with least; else from the fullest, and go on."""
    share: Share = []
    left = dict(rooms)
    while wanted:
        holders = [one for one, room in left.items() if room >= wanted]
        one = min(holders, key=lambda at: (left[at], at)) if holders else max(left, key=lambda at: (left[at], -at))
        amount = min(left.pop(one), wanted)
        if amount:
            share.append((one, amount))
        wanted -= amount
    return share


def _nodes(layout: Layout, fits: Ints, share: Share) -> list[int]:
    chosen: list[int] = []
    column = layout.domain[0][fits]
    for base, amount in share:
        chosen += fits[column == base][:amount].tolist()
    return chosen


def _block_segments(
    layout: Layout, fits: Ints, sizes: list[int], *, spread: bool, weight: Ints | None
) -> list[list[int]] | None:
    """Place each segment as a job of its own."""
    found: list[list[int]] = []
    free = fits
    for size in sizes:
        share = _place(layout, _counts(layout, free), size, _dearness(layout, free, weight))
        if share is None:
            return None
        nodes = _nodes(layout, free, share)
        found.append(nodes)
        free = free[~np.isin(free, nodes)]
        if spread:
            free = free[~np.isin(layout.domain[0][free], [base for base, _ in share])]
    return found


def _rooms(layout: Layout, fits: Ints, segment: int, level: int, *, spread: bool) -> list[tuple[int, list[int]]]:
    """Give for each domain of a level how many segments it holds, and its fitting nodes."""
    column = layout.domain[level][fits]
    totals = np.bincount(column[column >= 0], minlength=len(layout.names[level])) // segment
    if spread:
        totals = np.minimum(totals, 1)
    return [(int(totals[one]), fits[column == one].tolist()) for one in np.flatnonzero(totals).tolist()]


def _segments(rooms: list[tuple[int, list[int]]], count: int, segment: int) -> list[list[int]] | None:
    """Place segments into domains: as many as fit into the fullest ones, the last ones where it is tightest."""
    if sum(room for room, _ in rooms) < count:
        return None
    found: list[list[int]] = []
    for one, amount in _tight({place: room for place, (room, _) in enumerate(rooms)}, count):
        nodes = rooms[one][1]
        found += [nodes[place * segment : (place + 1) * segment] for place in range(amount)]
    return found

"""Choose so many equal nodes in a tree of switches (scheduling.md 8.6, beyond.md B8): few switches, tight ones first.

Of the text's pairwise comparison of leaves this is the closed form. While no leaf alone holds what is missing, the
search stays below the lowest switch that does, and takes the leaves there from the fullest on; the last leaf is the
nearest that holds the rest, of equally near ones the tightest. Ties go to the lower number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ctld.sched.fleet import Ints
from ctld.sched.topology import Layout


@dataclass(frozen=True, slots=True)
class Ask:
    """How many of the fitting nodes are wanted, and which above all."""

    least: int
    most: int
    """As many as can be had up to this."""
    weight: Ints | None
    """By node; None where all weights are equal."""
    seeding: Callable[[Ints], list[int] | None]
    """Gives the nodes that must be among the chosen out of those that are there; None: they are not."""


def in_tree(layout: Layout, fits: Ints, ask: Ask) -> list[int] | None:
    """Give the nodes by weight and then by switch; None when no tree has enough."""
    for inside in trees(layout, fits, ask):
        seed = ask.seeding(inside)
        if seed is not None and len(seed) <= ask.most:
            return _in_one(layout, inside, seed, ask)
    return None


def in_domain(layout: Layout, fits: Ints, ask: Ask, level: int) -> list[int] | None:
    """Give nodes of one domain of a level: of the tightest that has enough; None when none has."""
    for inside in domains(layout, fits, ask, level):
        seed = ask.seeding(inside)
        if seed is not None and len(seed) <= ask.most:
            return _in_one(layout, inside, seed, ask)
    return None


def in_few_leaves(layout: Layout, fits: Ints, ask: Ask, leaves: int) -> list[int] | None:
    """Give nodes that span at most so many leaves, weights coming second; None when that cannot be.

    Of a range of node counts the largest that so few leaves hold.
    """
    for inside in trees(layout, fits, ask):
        seed = ask.seeding(inside)
        if seed is None or len(seed) > ask.most:
            continue
        chosen = _in_one(layout, inside, seed, ask)
        if layout.leaves_of(chosen) <= leaves:
            return chosen
        few = _fewest(layout, inside, seed, ask, leaves)
        if few is not None:
            return few
    return None


def domains(layout: Layout, fits: Ints, ask: Ask, level: int) -> Iterator[Ints]:
    """Walk through the fitting nodes of each domain of a level that has enough: those that hold most of what a job
    may grow to, then those that do with the lowest weights, then the tightest."""
    column = layout.domain[level][fits]
    counts = np.bincount(column[column >= 0], minlength=len(layout.names[level]))
    enough = np.flatnonzero(counts >= ask.least)
    if not len(enough):
        return
    sizes = counts[enough]
    grown = np.minimum(sizes, ask.most)
    weight = ask.weight
    if weight is None:
        order = np.lexsort((enough, sizes, -grown))
    else:
        dearest = [int(np.sort(weight[fits[column == one]])[min(ask.most, counts[one]) - 1]) for one in enough]
        order = np.lexsort((enough, sizes, np.array(dearest), -grown))
    for place in order:
        yield fits[column == enough[place]]


def trees(layout: Layout, fits: Ints, ask: Ask) -> Iterator[Ints]:
    """Walk through the fitting nodes of each tree that has enough: the one with a node of the lowest weight first, then
    the highest, then the one that holds most."""
    if not layout.spans:
        if len(fits) >= ask.least:
            yield fits
        return
    weight = ask.weight
    column = layout.root[fits]
    there = column >= 0
    counts = np.bincount(column[there], minlength=len(layout.names[-1]))
    enough = [int(one) for one in np.flatnonzero(counts >= ask.least)]
    if len(enough) > 1:
        height = {switch.name: switch.level for switch in layout.spec.switches}
        names = layout.names[-1]

        def key(one: int) -> tuple[int, int, int, int]:
            lightest = 0 if weight is None else int(weight[fits[column == one]].min())
            return lightest, -height.get(names[one], 0), -min(int(counts[one]), ask.most), one

        enough.sort(key=key)
    for one in enough:
        yield fits[column == one]


def gaps(layout: Layout, fits: Ints, ask: Ask) -> list[int] | None:
    """Give nodes of one tree that fill gaps: of the leaves with fewest free nodes first, after lower weights."""
    weight = ask.weight
    for inside in trees(layout, fits, ask):
        seed = ask.seeding(inside)
        if seed is None or len(seed) > ask.most:
            continue
        rest = inside[~np.isin(inside, seed)] if seed else inside
        leaf = layout.domain[0][rest]
        counts = np.bincount(leaf, minlength=len(layout.names[0]))[leaf]
        keys = (rest, leaf, counts) if weight is None else (rest, leaf, counts, weight[rest])
        return seed + [int(node) for node in rest[np.lexsort(keys)][: max(0, min(ask.most, len(inside)) - len(seed))]]
    return None


def _in_one(layout: Layout, inside: Ints, seed: list[int], ask: Ask) -> list[int]:
    """Take the seed, all nodes of the lower weights that are needed, and the rest by switch out of the last weight."""
    chosen = list(seed)
    weight = ask.weight
    wanted = min(ask.most, len(inside))
    rest = wanted - len(chosen)
    if rest <= 0:
        return chosen
    free = inside[~np.isin(inside, chosen)] if chosen else inside
    if weight is not None:
        mine = weight[free]
        if mine.min() != mine.max():
            last = np.sort(mine)[min(rest, len(mine)) - 1]
            chosen += free[mine < last].tolist()
            free = free[mine == last]
            rest = wanted - len(chosen)
    return chosen + fill(layout, free, rest, chosen)


def fill(layout: Layout, free: Ints, rest: int, used: list[int]) -> list[int]:
    """Take `rest` of the free nodes, which are all of one tree: from leaves that are in use already, then from the best
    leaves one after the other."""
    if len(free) <= rest:
        listed: list[int] = free.tolist()
        return listed
    leaf_of = layout.domain[0][free]
    counts = np.bincount(leaf_of, minlength=len(layout.up[0]))
    whole: list[int] = []
    """Leaves of which all free nodes are taken."""
    leaves = sorted({int(leaf) for leaf in layout.domain[0][used] if leaf >= 0}) if used else []
    part = -1
    """Leaf of which some are taken."""
    for leaf in leaves:
        if counts[leaf] > rest:
            part = leaf
            break
        whole.append(leaf)
        rest -= int(counts[leaf])
        counts[leaf] = 0
        if not rest:
            break
    if part < 0 and rest:
        part, rest = _descend(layout, counts, rest, leaves, whole)
    if whole:
        taken = np.zeros(len(counts), np.bool_)
        taken[whole] = True
        chosen: list[int] = free[taken[leaf_of]].tolist()
    else:
        chosen = []
    if part >= 0:
        chosen += free[leaf_of == part][:rest].tolist()
    return chosen


def _descend(layout: Layout, counts: Ints, rest: int, used: list[int], whole: list[int]) -> tuple[int, int]:
    """Add leaves to `whole` until one holds the rest: give it, and how many of its nodes are wanted."""
    up, depth = layout.up, layout.depth
    level, home = _enclosing(layout, counts, rest, used)
    mine = np.where(up[level] == home, counts, 0) if level < depth - 1 else counts.copy()
    latest = used[-1] if used else -1
    while True:
        holds = mine >= rest
        if holds.any():
            return _nearest(layout, mine, np.flatnonzero(holds), used), rest
        leaf = _fullest(layout, mine, level, latest)
        whole.append(leaf)
        used = [*used, leaf] if depth > 2 else used
        latest = leaf
        rest -= int(mine[leaf])
        mine[leaf] = 0


def _enclosing(layout: Layout, counts: Ints, rest: int, used: list[int]) -> tuple[int, int]:
    """Give the lowest domain (level, number) that holds the rest and all leaves in use, the tightest of the level."""
    top = layout.depth - 1
    for level in range(top):
        column = layout.up[level]
        totals = counts if level == 0 else np.bincount(column, weights=counts)
        if used:
            homes = {int(column[leaf]) for leaf in used}
            if len(homes) > 1:
                continue
            home = homes.pop()
            if totals[home] >= rest:
                return level, home
            continue
        enough = np.flatnonzero(totals >= rest)
        if len(enough):
            return level, int(enough[totals[enough].argmin()])
    column = layout.up[top]
    return top, int(column[used[0]]) if used else int(column[int(np.flatnonzero(counts)[0])])


def _nearest(layout: Layout, counts: Ints, holders: Ints, used: list[int]) -> int:
    """Of the leaves that hold the rest give the nearest to those in use, then the tightest."""
    sizes = counts[holders]
    if not used or layout.depth < 3:
        return int(holders[sizes.argmin()])
    distance = np.zeros(len(holders), np.int64)
    for column in layout.up[1:-1]:
        for leaf in used:
            distance += column[holders] != column[leaf]
    return int(holders[np.lexsort((holders, sizes, distance))[0]])


def _fullest(layout: Layout, counts: Ints, level: int, latest: int) -> int:
    """Give the leaf to take in whole: near the latest one as long as there is something left, else in the fullest
    domain of each level downwards."""
    top = level
    among = counts
    if latest >= 0:
        for number in range(1, level):
            near = np.where(layout.up[number] == layout.up[number][latest], counts, 0)
            if near.any():
                top, among = number, near
                break
    for number in range(top - 1, 0, -1):
        column = layout.up[number]
        totals = np.bincount(column, weights=among)
        among = np.where(column == int(totals.argmax()), among, 0)
    return int(among.argmax())


def _fewest(layout: Layout, inside: Ints, seed: list[int], ask: Ask, leaves: int) -> list[int] | None:
    """Take from the fullest leaves, the last one the tightest that does; None when `leaves` of them hold too little."""
    free = inside[~np.isin(inside, seed)] if seed else inside
    leaf_of = layout.domain[0][free]
    counts = np.bincount(leaf_of, minlength=len(layout.up[0]))
    taken = sorted({int(leaf) for leaf in layout.domain[0][seed]}) if seed else []
    if len(taken) > leaves:
        return None
    others = counts.copy()
    others[taken] = 0
    order = np.argsort(-others, kind="stable")[: leaves - len(taken)]
    room = int(counts[taken].sum() + counts[order].sum()) + len(seed)
    if room < ask.least:
        return None
    rest = min(ask.most, room) - len(seed)
    chosen = list(seed)
    for leaf in taken:
        mine = free[leaf_of == leaf][:rest].tolist()
        chosen += mine
        rest -= len(mine)
    while rest > 0:
        holders = np.flatnonzero(others >= rest)
        leaf = int(holders[others[holders].argmin()]) if len(holders) else int(others.argmax())
        mine = free[leaf_of == leaf][:rest].tolist()
        chosen += mine
        rest -= len(mine)
        others[leaf] = 0
    return chosen

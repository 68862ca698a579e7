"""Choose nodes for one job out of a view of what is free: which nodes, and how many tasks and GPUs on each.

The choice is canonical: it depends on the view and the demand alone, and ties go to the lower node index.

* One node: lowest weight, then fewest free GPUs, fewest free CPUs (best fit), or what `Manner` says instead.
* Several equal shares: by the topology, else best fit over runs of consecutive nodes of equal weight.
* Tasks or GPUs counted for the job: as few nodes as fit (`uneven`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ctld.sched.blocks import consolidated, in_blocks, in_ring, in_segments
from ctld.sched.demand import Alternative, Demand
from ctld.sched.fleet import Ints, View, members
from ctld.sched.manner import Manner
from ctld.sched.runs import best_scored, busy_first, by_runs, contiguous, least_loaded
from ctld.sched.topology import Layout
from ctld.sched.tree import Ask, domains, gaps, in_few_leaves, in_tree, trees
from ctld.sched.uneven import Attempt, seed_of, uneven

Pick: TypeAlias = tuple[int, int, int]
"""Node, tasks, and GPUs out of --gpus (0 when it is not asked for that way)."""


_NOTHING = View([], [], [])


def choose(demand: Demand, view: View, barred: int = 0, *, busy: bool = False) -> list[Pick] | None:
    """Give the nodes in ascending order for a job of this demand, None when it does not fit.

    Args:
        barred: bitmap of nodes that this job may not use now (held for another user).
        busy: nodes that are in use come before idle ones (bf_busy_nodes, for a start in the future).
    """
    if demand.single:
        node = best_node(demand, view, barred)
        if node >= 0:
            return [(node, demand.tasks, demand.need.gpus_total[0])]
        if not demand.need.uneven:
            return None
    for alternative in demand.alternatives:
        picks = None
        attempt = Attempt(demand, alternative, view, barred, busy)
        if demand.even and not demand.single:
            picks = _even(attempt)
        if picks is None and demand.need.uneven:
            picks = uneven(attempt, arranged)
        if picks is not None:
            return picks
    return None


def choose_among(demand: Demand, fits: Ints, view: View | None) -> list[Pick] | None:
    """Give the nodes in ascending order for a job with the same share on each, None when they do not suffice.

    Args:
        fits: nodes that have room for a share, ascending.
        view: what is free on them at least; None where the choice does not look at that (`Manner.by_switch`, and more
            than one node).
    """
    for alternative in demand.alternatives:
        mine = fits
        if len(demand.alternatives) > 1:
            mine = fits[np.isin(fits, alternative.indexes)]
        picks = _among(Attempt(demand, alternative, view or _NOTHING), mine)
        if picks is not None:
            return picks
    return None


def best_node(demand: Demand, view: View, barred: int = 0) -> int:
    """Give the node for an even share of a demand that is `single`, -1 when there is none: the tightest, if nothing
    else is asked for."""
    fleet = demand.fleet
    alternative = demand.alternatives[0]
    if not demand.manner.tightest:
        return _node_by_manner(demand, view, barred)
    if not fleet.small:
        found = _fitting(demand, alternative, view, barred)
        if not len(found):
            return -1
        keys: Ints = (np.asarray(view.gpus[0])[found] << 20) + np.asarray(view.cpus)[found]
        if not fleet.one_weight:
            keys += fleet.weight_column[found] << 30
        return int(found[keys.argmin()])
    cpus, memory, gpus = view.cpus, view.memory, view.gpus
    want_cpus, want_memory, want_gpus = demand.cpus, demand.memory, demand.gpus
    first, weight = gpus[0], fleet.weight
    best, best_key = -1, (0, 0, 0)
    for node in alternative.nodes:
        if cpus[node] >= want_cpus[node] and memory[node] >= want_memory[node]:
            for at, column in want_gpus:
                if gpus[at][node] < column[node]:
                    break
            else:
                key = (weight[node], first[node], cpus[node])
                if (best < 0 or key < best_key) and not barred >> node & 1:
                    best, best_key = node, key
    return best


def _node_by_manner(demand: Demand, view: View, barred: int) -> int:
    """`best_node` by load, by place or by score."""
    manner, fleet = demand.manner, demand.fleet
    found = np.array(fitting_nodes(demand, demand.alternatives[0], view, barred), np.int64)
    if not len(found):
        return -1
    if manner.last:
        return int(found[-1])
    weight = None if fleet.one_weight else fleet.weight_column
    if manner.lln:
        return least_loaded(found, [], 1, np.asarray(view.cpus), weight)[0]
    return best_scored(found, [], 1, score(demand, view), weight)[0]


def fits_on(demand: Demand, view: View, node: int) -> bool:
    """Tell whether an even share fits on a node."""
    if view.cpus[node] < demand.cpus[node] or view.memory[node] < demand.memory[node]:
        return False
    return all(view.gpus[at][node] >= column[node] for at, column in demand.gpus)


def fits_within(demand: Demand, left: Sequence[int], node: int) -> bool:
    """Tell whether an even share fits into what is left of a node: CPUs, memory, GPUs by column."""
    if left[0] < demand.cpus[node] or left[1] < demand.memory[node]:
        return False
    return all(left[2 + at] >= column[node] for at, column in demand.gpus)


def fitting_nodes(demand: Demand, alternative: Alternative, view: View, barred: int = 0) -> list[int]:
    """Give the nodes on which an even share fits, ascending."""
    if not demand.fleet.small:
        listed: list[int] = _fitting(demand, alternative, view, barred).tolist()
        return listed
    return [node for node in alternative.nodes if fits_on(demand, view, node) and not barred >> node & 1]


def _fitting(demand: Demand, alternative: Alternative, view: View, barred: int) -> Ints:
    """`fitting_nodes` for columns of numpy."""
    good = np.asarray(view.cpus) >= demand.cpus
    good &= np.asarray(view.memory) >= demand.memory
    for at, column in demand.gpus:
        good &= np.asarray(view.gpus[at]) >= column
    if barred:
        good[members(barred)] = False
    indexes = alternative.indexes
    if len(indexes) == len(good):
        return good.nonzero()[0]
    found: Ints = indexes[good[indexes]]
    return found


def _even(attempt: Attempt) -> list[Pick] | None:
    """The same share on each of `need.nodes` nodes, or on more where the job grows."""
    demand, alternative = attempt.demand, attempt.alternative
    need = demand.need
    if len(alternative.nodes) < need.nodes:
        return None
    if demand.fleet.small:
        fits: Ints = np.array(fitting_nodes(demand, alternative, attempt.view, attempt.barred), np.int64)
    else:
        fits = _fitting(demand, alternative, attempt.view, attempt.barred)
    return _among(attempt, fits)


def _among(attempt: Attempt, fits: Ints) -> list[Pick] | None:
    """The same share on each of some of the nodes that fit, ascending."""
    demand = attempt.demand
    need = demand.need
    if len(fits) < need.nodes:
        return None
    most = need.nodes
    if demand.grows:
        if need.tasks or need.gpus_total[0]:
            return None  # More nodes mean other shares: that is for `uneven`.
        most = min(need.nodes_max, len(fits))
    chosen = arranged(attempt, fits, need.nodes, most)
    if chosen is None:
        return None
    share, tasks = need.gpus_total[0], demand.tasks
    return [(node, tasks, share) for node in sorted(chosen)]


def arranged(attempt: Attempt, fits: Ints, least: int, most: int) -> list[int] | None:
    """Choose from `least` to `most` of the nodes that fit, as many as can be, by topology and manner."""
    demand, counts = attempt.demand, attempt.alternative.counts
    manner, fleet = demand.manner, demand.fleet

    def seeding(inside: Ints) -> list[int] | None:
        if not demand.required and not counts:
            return []
        seed = seed_of(demand, attempt.alternative, inside.tolist())
        return seed if seed is not None and len(seed) <= most else None

    ask = Ask(least, most, None if fleet.one_weight else fleet.weight_column, seeding)
    layout = manner.layout
    if layout is None or most == 1:
        return _near(attempt, fits, ask)
    if manner.segment and manner.segment < least:
        return _segmented(attempt, layout, fits, ask)
    if manner.mode in ("required", "preferred"):
        top = manner.level + 1 if manner.mode == "required" else layout.depth
        for level in range(manner.level, top):
            for inside in domains(layout, fits, ask, level):
                found = _within(attempt, layout, inside, ask)
                if found is not None:
                    return found
        if manner.mode == "required":
            return None
    return _within(attempt, layout, fits, ask)


def _within(attempt: Attempt, layout: Layout, inside: Ints, ask: Ask) -> list[int] | None:
    """Choose by the rule of the topology, or by what overrides it."""
    demand = attempt.demand
    manner, kind = demand.manner, layout.spec.kind
    if manner.mode == "unconstrained":
        return gaps(layout, inside, ask)
    if kind == "block" and not manner.contiguous:
        return in_blocks(layout, inside, ask)
    if kind == "ring":
        found = in_ring(layout, inside, ask.least, ask.most)
        return found if found and set(demand.required) <= set(found) else None
    if manner.contiguous or manner.spread or manner.lln or attempt.busy:
        for tree in trees(layout, inside, ask):
            found = _near(attempt, tree, ask)
            if found is not None and (not manner.switches or layout.leaves_of(found) <= manner.switches):
                return found
        if manner.contiguous or not manner.switches:
            return None
    if manner.switches and kind == "tree":
        return in_few_leaves(layout, inside, ask, manner.switches)
    return in_tree(layout, inside, ask)


def _near(attempt: Attempt, fits: Ints, ask: Ask) -> list[int] | None:
    """Choose by place in the node table and by load, whatever the topology."""
    demand, view = attempt.demand, attempt.view
    manner = demand.manner
    seed = ask.seeding(fits)
    wanted = min(ask.most, len(fits))
    if seed is None or wanted < ask.least:
        return None
    cpus: Ints = np.asarray(view.cpus)
    if manner.contiguous:
        return contiguous(fits, seed, ask.least, ask.most, cpus)
    if attempt.busy and not manner.spread:
        return busy_first(fits, seed, wanted, _idle(demand, view), ask.weight)
    if manner.lln:
        return least_loaded(fits, seed, wanted, cpus, ask.weight)
    if manner.pack:
        return best_scored(fits, seed, wanted, score(demand, view), ask.weight)
    return by_runs(fits, seed, wanted, cpus, ask.weight)


def _segmented(attempt: Attempt, layout: Layout, fits: Ints, ask: Ask) -> list[int] | None:
    """Choose whole segments; of a range of node counts the largest multiple that can be had."""
    manner = attempt.demand.manner
    size = manner.segment
    for wanted in range(ask.most // size * size, ask.least - 1, -size):
        exactly = Ask(wanted, wanted, ask.weight, ask.seeding)
        for level in _segment_homes(manner, layout, wanted):
            found = in_segments(
                layout, fits, exactly, size, level=manner.segment_level, spread=manner.spread_segments, within=level
            )
            if found is None:
                continue
            chosen = np.array(sorted(node for nodes in found for node in nodes), np.int64)
            if ask.seeding(chosen) is not None:
                listed: list[int] = chosen.tolist()
                return listed
    return None


def _segment_homes(manner: Manner, layout: Layout, wanted: int) -> list[int]:
    """Give the levels, one after the other, in one domain of which all segments may lie; -1: anywhere."""
    if manner.mode == "required":
        return [manner.level]
    if manner.mode == "preferred":
        return [*range(manner.level, layout.depth), -1]
    if manner.consolidate_segments:
        return consolidated(layout, wanted, manner.segment, spread=manner.spread_segments)
    return [-1]


def _idle(demand: Demand, view: View) -> Ints:
    """Give 1 for each node on which nothing is in use."""
    fleet = demand.fleet
    full: Ints = np.array([kind.cpus for kind in fleet.kinds], np.int64)[fleet.kind_column]
    idle: Ints = (np.asarray(view.cpus) >= full).astype(np.int64)
    return idle


def score(demand: Demand, view: View) -> Ints:
    """Give how full a node would be with one share more, in millionths of the weighted mean over the resources that are
    asked for and have a weight in PackWeights (Volcano's binpack)."""
    fleet, weights = demand.fleet, dict(demand.manner.pack)
    total = np.zeros(fleet.size, np.float64)
    sum_of_weights = 0.0
    columns = {
        "cpu": (view.cpus, [one[0] for one in demand.least], [kind.cpus for kind in fleet.kinds]),
        "mem": (view.memory, [one[1] for one in demand.least], [kind.memory_mib for kind in fleet.kinds]),
        "gres/gpu": (view.gpus[0], [one[2][0] for one in demand.least], [kind.gpus[0] for kind in fleet.kinds]),
    }
    for name, (free, wanted, capacity) in columns.items():
        weight = weights.get(name, 0.0)
        if not weight or not any(wanted) or (name == "mem" and not demand.need.memory_counts):
            continue
        sum_of_weights += weight
        most = np.array(capacity, np.float64)[fleet.kind_column]
        asked = np.array(wanted, np.float64)[fleet.kind_column]
        total += weight * np.where(most > 0, (most - np.asarray(free) + asked) / np.maximum(most, 1), 0.0)
    scored: Ints = np.rint(total / (sum_of_weights or 1.0) * 1e6).astype(np.int64)
    return scored

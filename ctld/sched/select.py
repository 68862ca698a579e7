"""Choose nodes for one job out of a view of what is free: which nodes, and how many tasks and GPUs on each.

The choice is canonical: it depends on the view and the demand alone, and ties go to the lower node index.

* One node: lowest weight, then fewest free GPUs, fewest free CPUs (best fit).
* Several equal shares: best fit over runs of consecutive nodes of equal weight.
* Tasks or GPUs counted for the job: as few nodes as fit, lowest weight first, and the last one the tightest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ctld.sched.demand import Alternative, Demand
from ctld.sched.fleet import Column, Ints, View, members
from ctld.sched.needs import amount, share_vector

Pick: TypeAlias = tuple[int, int, int]
"""Node, tasks, and GPUs out of --gpus (0 when it is not asked for that way)."""


def choose(demand: Demand, view: View, barred: int = 0) -> list[Pick] | None:
    """Give the nodes in ascending order for a job of this demand, None when it does not fit.

    `barred` is a bitmap of nodes that this job may not use now (held for another user).
    """
    if demand.single:
        node = best_node(demand, view, barred)
        if node >= 0:
            return [(node, demand.tasks, demand.need.gpus_total[0])]
        if not demand.need.uneven:
            return None
    for alternative in demand.alternatives:
        picks = None
        if demand.even and not demand.single:
            picks = _even(demand, alternative, view, barred)
        if picks is None and demand.need.uneven:
            picks = _uneven(demand, alternative, view, barred)
        if picks is not None:
            return picks
    return None


def best_node(demand: Demand, view: View, barred: int = 0) -> int:
    """Give the tightest node for an even share of a demand that is `single`, -1 when there is none."""
    fleet = demand.fleet
    alternative = demand.alternatives[0]
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


def fits_on(demand: Demand, view: View, node: int) -> bool:
    """Tell whether an even share fits on a node."""
    if view.cpus[node] < demand.cpus[node] or view.memory[node] < demand.memory[node]:
        return False
    return all(view.gpus[at][node] >= column[node] for at, column in demand.gpus)


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
        return np.flatnonzero(good)
    found: Ints = indexes[good[indexes]]
    return found


def _even(demand: Demand, alternative: Alternative, view: View, barred: int) -> list[Pick] | None:
    """The same share on each of `need.nodes` nodes, or on more where the job grows."""
    need = demand.need
    if len(alternative.nodes) < need.nodes:
        return None
    fits = fitting_nodes(demand, alternative, view, barred)
    if len(fits) < need.nodes:
        return None
    wanted = need.nodes
    if need.grows:
        if need.tasks or need.gpus_total[0]:
            return None  # More nodes mean other shares: that is for `_uneven`.
        wanted = min(need.nodes_max, len(fits))
    chosen = _seed(demand, alternative, fits)
    if chosen is None or len(chosen) > wanted:
        return None
    if len(chosen) < wanted:
        taken = set(chosen)
        rest = [node for node in fits if node not in taken]
        chosen += _by_runs(rest, wanted - len(chosen), view.cpus, demand.fleet.weight)
    share = need.gpus_total[0]
    return [(node, demand.tasks, share) for node in sorted(chosen)]


def _seed(demand: Demand, alternative: Alternative, fits: list[int]) -> list[int] | None:
    """Give the nodes that must be among the chosen: named ones, and enough of each counted feature."""
    chosen: list[int] = []
    if demand.required:
        available = set(fits)
        if not all(node in available for node in demand.required):
            return None
        chosen = list(demand.required)
    for bits, count in alternative.counts:
        missing = count - sum(bits >> node & 1 for node in chosen)
        if missing > 0:
            taken = set(chosen)
            weight = demand.fleet.weight
            more = [node for node in fits if bits >> node & 1 and node not in taken]
            if len(more) < missing:
                return None
            more.sort(key=lambda node: (weight[node], node))
            chosen += more[:missing]
    return chosen


def _by_runs(fits: list[int], wanted: int, cpus: Column, weight: Sequence[int]) -> list[int]:
    """Take nodes from maximal runs of consecutive nodes of equal weight: the lowest weight
    first; of runs that suffice the one with the fewest free CPUs, else the one with the most."""
    if len(fits) <= wanted:
        return fits
    runs: list[tuple[int, int, list[int]]] = []
    run: list[int] = []
    for node in fits:
        if run and (node != run[-1] + 1 or weight[node] != weight[run[0]]):
            runs.append((weight[run[0]], -sum(int(cpus[one]) for one in run), run))
            run = []
        run.append(node)
    runs.append((weight[run[0]], -sum(int(cpus[one]) for one in run), run))
    runs.sort(key=lambda entry: entry[:2])
    longest = _longest_from(runs)
    chosen: list[int] = []
    for place, (mass, _, nodes) in enumerate(runs):
        missing = wanted - len(chosen)
        if longest[place] >= missing:
            same = [entry for entry in runs[place:] if entry[0] == mass and len(entry[2]) >= missing]
            tightest = max(same, key=lambda entry: (entry[1], -entry[2][0]))[2]
            if missing == 1:
                return [*chosen, min(tightest, key=lambda node: (int(cpus[node]), node))]
            return chosen + tightest[:missing]
        chosen += nodes
    return chosen[:wanted]


def _longest_from(runs: list[tuple[int, int, list[int]]]) -> list[int]:
    """For each run the length of the longest one of the same weight from there on."""
    longest = [0] * len(runs)
    for place in range(len(runs) - 1, -1, -1):
        longest[place] = len(runs[place][2])
        if place + 1 < len(runs) and runs[place + 1][0] == runs[place][0]:
            longest[place] = max(longest[place], longest[place + 1])
    return longest


def _uneven(demand: Demand, alternative: Alternative, view: View, barred: int) -> list[Pick] | None:
    """Tasks, or GPUs of --gpus, over as few nodes as fit (or as many as allowed where the job grows)."""
    need = demand.need
    found = capacities(demand, alternative, view, barred)
    if found is None:
        return None
    tasks_on, gpus_on = found
    nodes = list(tasks_on)
    seed = _seed(demand, alternative, nodes)
    if seed is None or len(seed) > need.nodes_max:
        return None
    by_gpus = need.gpus_total[0] > 0
    room = gpus_on if by_gpus else tasks_on
    weight = demand.fleet.weight
    for by_weight in (True, False) if not demand.fleet.one_weight else (True,):
        order = sorted(nodes, key=lambda node: (weight[node] if by_weight else 0, -room[node], node))
        chosen = _gather(demand, seed, order, tasks_on, gpus_on)
        if chosen is not None:
            return _shared_out(demand, sorted(chosen), tasks_on, gpus_on, view)
    return None


def _gather(
    demand: Demand, seed: list[int], order: list[int], tasks_on: dict[int, int], gpus_on: dict[int, int]
) -> list[int] | None:
    """Take the seed, then nodes in order until all is placed; the last one is changed for the tightest that does."""
    need = demand.need
    tasks, gpus = need.tasks, need.gpus_total[0]
    most = min(need.nodes_max, gpus or need.nodes_max)
    if need.grows:
        wanted = max(need.nodes, min(most, len(order), tasks or most))
    else:
        wanted = need.nodes
    chosen = list(seed)
    have_tasks = sum(tasks_on[node] for node in chosen)
    have_gpus = sum(gpus_on[node] for node in chosen)
    taken = set(chosen)
    rest = [node for node in order if node not in taken]
    place = 0
    while have_tasks < tasks or have_gpus < gpus or len(chosen) < wanted:
        if len(chosen) >= most or place >= len(rest):
            return None
        node = rest[place]
        place += 1
        chosen.append(node)
        have_tasks += tasks_on[node]
        have_gpus += gpus_on[node]
    if place:
        last = chosen[-1]
        miss_tasks = tasks - (have_tasks - tasks_on[last])
        miss_gpus = gpus - (have_gpus - gpus_on[last])
        weight = demand.fleet.weight
        tight = [
            node
            for node in rest[place - 1 :]
            if weight[node] == weight[last] and tasks_on[node] >= miss_tasks and gpus_on[node] >= miss_gpus
        ]
        chosen[-1] = min(tight, key=lambda node: (gpus_on[node], tasks_on[node], node))
    return chosen


def _shared_out(
    demand: Demand, nodes: list[int], tasks_on: dict[int, int], gpus_on: dict[int, int], view: View
) -> list[Pick] | None:
    """Spread tasks evenly over the chosen nodes and pack the GPUs of --gpus, at least one of each on a node."""
    need = demand.need
    gpus = [0] * len(nodes)
    left = need.gpus_total[0]
    if left:
        if left < len(nodes):
            return None
        for place, node in enumerate(nodes):
            gpus[place] = min(gpus_on[node], left - (len(nodes) - place - 1))
            left -= gpus[place]
        if left:
            return None
    if not need.tasks:
        return _checked(demand, view, [(node, need.tasks_each, gpus[at]) for at, node in enumerate(nodes)])
    room = [tasks_on[node] for node in nodes]
    if sum(room) < need.tasks or need.tasks < len(nodes):
        return None
    if need.gpus_total[0] and need.tasks_per_gpu:
        tasks = [count * need.tasks_per_gpu for count in gpus]
        if any(count > most for count, most in zip(tasks, room, strict=True)):
            return None
    else:
        tasks = spread(need.tasks, room)
    return _checked(demand, view, list(zip(nodes, tasks, gpus, strict=True)))


def _checked(demand: Demand, view: View, picks: list[Pick]) -> list[Pick] | None:
    """Give the picks if each fits its node in all resources together (capacities look at them one by one)."""
    need, fleet = demand.need, demand.fleet
    for node, tasks, gpus in picks:
        cpus, memory, by_column = amount(need, fleet.kinds[fleet.kind[node]], tasks, share_vector(need, gpus))
        if cpus > view.cpus[node] or (need.memory_counts and memory > view.memory[node]):
            return None
        if any(want > column[node] for want, column in zip(by_column, view.gpus, strict=True)):
            return None
    return picks


def spread(tasks: int, room: list[int]) -> list[int]:
    """Share tasks out as evenly as the room on each node allows, the odd ones to the first nodes."""
    given = [0] * len(room)
    alive = list(range(len(room)))
    while tasks > 0 and alive:
        level, odd = divmod(tasks, len(alive))
        tight = [place for place in alive if room[place] - given[place] <= level]
        if not tight:
            for rank, place in enumerate(alive):
                given[place] += level + (1 if rank < odd else 0)
            return given
        for place in tight:
            tasks -= room[place] - given[place]
            given[place] = room[place]
        alive = [place for place in alive if room[place] > given[place]]
    return given


def capacities(
    demand: Demand, alternative: Alternative, view: View, barred: int = 0
) -> tuple[dict[int, int], dict[int, int]] | None:
    """Give for each node that can have a share the most tasks it could take, and the most GPUs of --gpus, nodes
    ascending; None when all of them together do not suffice."""
    need = demand.need
    limits = alternative.limits(demand)
    indexes = alternative.indexes
    cpus = np.asarray(view.cpus)[indexes]
    memory = np.asarray(view.memory)[indexes]
    good = cpus >= limits.cpus
    good &= memory >= limits.memory
    gpus = [np.asarray(column)[indexes] for column in view.gpus] if limits.gpus else []
    for at, least in limits.gpus:
        good &= gpus[at] >= least
    if barred:
        good &= np.array([not barred >> node & 1 for node in alternative.nodes], np.bool_)
    if need.memory_counts and need.memory_per_cpu and not need.memory_each:
        cpus = np.minimum(cpus, memory // need.memory_per_cpu // limits.threads * limits.threads)
    most = need.tasks or need.tasks_each
    most = min(most, need.tasks_cap) if need.tasks_cap else most
    if need.overcommit:
        tasks = np.full(len(indexes), most, np.int64)
    else:
        tasks = np.minimum(cpus if need.cpus_per_task == 1 else cpus // need.cpus_per_task, most)
    top = gpus[0] if gpus else tasks
    if limits.gpus:
        if need.cpus_per_gpu:
            top = np.minimum(top, cpus // need.cpus_per_gpu)
        if need.memory_counts and need.memory_per_gpu:
            top = np.minimum(top, memory // need.memory_per_gpu)
        for at in range(1, len(gpus)):
            if need.gpus_total[at]:
                top = np.minimum(top, gpus[at])
    if need.gpus_task[0]:
        tasks = np.minimum(tasks, top // need.gpus_task[0])
        for at in range(1, len(gpus)):
            if need.gpus_task[at]:
                tasks = np.minimum(tasks, gpus[at] // need.gpus_task[at])
    elif need.tasks_per_gpu:
        tasks = np.minimum(tasks, top * need.tasks_per_gpu)
    total = need.gpus_total[0]
    keep = np.flatnonzero(good & (tasks > 0))
    tasks = tasks[keep]
    if len(keep) < need.nodes or int(tasks.sum()) < need.tasks:
        return None
    top = np.minimum(top[keep], total)
    if int(top.sum()) < total:
        return None
    nodes = indexes[keep].tolist()
    return dict(zip(nodes, tasks.tolist(), strict=True)), dict(zip(nodes, top.tolist(), strict=True))

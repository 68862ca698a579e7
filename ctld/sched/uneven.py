"""Choose nodes for a job whose tasks or GPUs are counted as a whole: as few nodes as fit, lowest weight first, and the
last one the tightest; within one tree of the topology, below the lowest switch that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ctld.sched.cores import spread
from ctld.sched.demand import Alternative, Demand
from ctld.sched.fleet import CLOSED, Ints, View
from ctld.sched.needs import amount, share_vector, tasks_in

if TYPE_CHECKING:  # `select` builds on this module.
    from ctld.sched.select import Pick


@dataclass(frozen=True, slots=True)
class Attempt:
    """To place one alternative of a demand in a view."""

    demand: Demand
    alternative: Alternative
    view: View
    barred: int = 0
    """Bitmap of nodes that this job may not use now."""
    busy: bool = False
    """Nodes in use come before idle ones."""


Arrange: TypeAlias = Callable[[Attempt, Ints, int, int], "list[int] | None"]
"""`select.arranged`: chooses among nodes that are equally good."""


class Rooms:
    """The nodes that can have a share, ascending, and the most tasks and GPUs of --gpus that each could take."""

    __slots__ = ("column", "gpus", "nodes", "room", "tasks")

    def __init__(self, demand: Demand, tasks: dict[int, int], gpus: dict[int, int]) -> None:
        self.tasks = tasks
        self.gpus = gpus
        self.nodes = list(tasks)
        self.column: Ints = np.array(self.nodes, np.int64)
        self.room = gpus if demand.need.gpus_total[0] else tasks
        """What is counted first: GPUs, where the job counts them."""


def uneven(attempt: Attempt, arrange: Arrange) -> list[Pick] | None:
    """Tasks, or GPUs of --gpus, over as few nodes as fit (or as many as allowed where the job grows)."""
    demand, view = attempt.demand, attempt.view
    need, manner = demand.need, demand.manner
    found = capacities(demand, attempt.alternative, view, attempt.barred)
    if found is None:
        return None
    rooms = Rooms(demand, *found)
    if manner.contiguous:
        return _side_by_side(attempt, rooms)
    fixed = need.nodes == need.nodes_max and need.tasks
    if manner.layout is not None and fixed and (manner.segment or manner.layout.spec.kind != "tree"):
        able = [node for node in rooms.nodes if rooms.tasks[node] >= -(-need.tasks // need.nodes)]
        chosen = arrange(attempt, np.array(able, np.int64), need.nodes, need.nodes) if able else None
        picks = _shared_out(demand, sorted(chosen), rooms, view) if chosen else None
        if picks is not None or manner.segment:
            return picks
    for pool in _pools(demand, rooms):
        picks = _within(attempt, pool, rooms)
        if picks is None:
            continue
        leaves = manner.switches and manner.layout is not None and manner.layout.leaves_of([one[0] for one in picks])
        if leaves <= manner.switches:
            return picks
    return None


def _pools(demand: Demand, rooms: Rooms) -> Iterator[list[int]]:
    """Walk through the sets of nodes to look in: the domains that suffice, from the finest level on, tightest first."""
    manner, layout, need = demand.manner, demand.manner.layout, demand.need
    if layout is None or need.nodes_max == 1:
        yield rooms.nodes
        return
    top = layout.depth - 1
    first, last = 0, top
    if manner.mode == "required":
        first = last = manner.level
    elif manner.mode == "preferred":
        first = manner.level
    elif manner.mode == "unconstrained" or manner.spread or manner.lln or not demand.fleet.one_weight:
        first = top  # Weights and load override topology.
    room = np.array([rooms.room[node] for node in rooms.nodes], np.int64)
    for level in range(first, last + 1):
        column = layout.domain[level][rooms.column]
        if manner.switches > 1 and level == top and demand.fleet.one_weight:
            yield from _widest_leaves(demand, rooms, room)
        for domain in _sufficient(demand, rooms, column, len(layout.names[level])):
            yield rooms.column[column == domain].tolist()
    if need.nodes == 1 and manner.mode != "required":
        for node in rooms.column[layout.root[rooms.column] < 0].tolist():
            yield [node]


def _sufficient(demand: Demand, rooms: Rooms, column: Ints, count: int) -> list[int]:
    """Give the domains that have enough of everything, the tightest first."""
    need = demand.need
    there = column >= 0
    mine = column[there]
    nodes = np.bincount(mine, minlength=count)
    tasks = np.bincount(mine, np.array(list(rooms.tasks.values()))[there], count)
    gpus = np.bincount(mine, np.array(list(rooms.gpus.values()))[there], count)
    good = np.flatnonzero((nodes >= need.nodes) & (tasks >= need.tasks) & (gpus >= need.gpus_total[0]))
    size = gpus if need.gpus_total[0] else tasks
    listed: list[int] = good[np.lexsort((good, size[good]))].tolist()
    return listed


def _widest_leaves(demand: Demand, rooms: Rooms, room: Ints) -> Iterator[list[int]]:
    """Give the nodes of the leaves with most room, of each tree, as many leaves as --switches allows."""
    manner, layout = demand.manner, demand.manner.layout
    assert layout is not None
    leaf = layout.domain[0][rooms.column]
    for tree in range(len(layout.names[-1])):
        inside = layout.root[rooms.column] == tree
        if not inside.any():
            continue
        totals = np.bincount(leaf[inside], room[inside], len(layout.names[0]))
        best = np.argsort(-totals, kind="stable")[: manner.switches]
        yield rooms.column[inside & np.isin(leaf, best)].tolist()


def _within(attempt: Attempt, nodes: list[int], rooms: Rooms) -> list[Pick] | None:
    """Gather out of these nodes; where that fails, again without the least capable ones, until none are left."""
    demand = attempt.demand
    seed = seed_of(demand, attempt.alternative, nodes)
    if seed is None or len(seed) > demand.need.nodes_max:
        return None
    order = _order(attempt, nodes, rooms)
    sizes = [0] if demand.fleet.one_weight else [0, *sorted({rooms.room[node] for node in nodes})[1:]]
    for least in sizes:
        left = [node for node in order if rooms.room[node] >= least] if least else order
        if len(left) < demand.need.nodes:
            return None
        chosen = _gather(demand, seed, left, rooms.tasks, rooms.gpus)
        if chosen is not None:
            return _shared_out(demand, sorted(chosen), rooms, attempt.view)
    return None


def _order(attempt: Attempt, nodes: list[int], rooms: Rooms) -> list[int]:
    """Sort nodes by weight, then by what the manner looks at, then those with most room first."""
    demand, view = attempt.demand, attempt.view
    manner, weight, room = demand.manner, demand.fleet.weight, rooms.room
    if manner.lln:
        cpus = view.cpus
        return sorted(nodes, key=lambda node: (weight[node], -int(cpus[node]), node))
    if attempt.busy:
        kinds, kind = demand.fleet.kinds, demand.fleet.kind
        return sorted(
            nodes, key=lambda node: (weight[node], view.cpus[node] >= kinds[kind[node]].cpus, -room[node], node)
        )
    layout = manner.layout
    if layout is not None and layout.depth > 1 and manner.mode != "unconstrained":
        leaf = layout.domain[0]
        total: dict[int, int] = {}
        for node in nodes:
            total[int(leaf[node])] = total.get(int(leaf[node]), 0) + room[node]
        return sorted(
            nodes, key=lambda node: (weight[node], -total[int(leaf[node])], int(leaf[node]), -room[node], node)
        )
    return sorted(nodes, key=lambda node: (weight[node], -room[node], node))


def _side_by_side(attempt: Attempt, rooms: Rooms) -> list[Pick] | None:
    """Give consecutive nodes that suffice: the fewest (the most where the job grows), of those the tightest."""
    demand = attempt.demand
    need, manner = demand.need, demand.manner
    most = min(need.nodes_max, len(rooms.nodes))
    if need.gpus_total[0]:
        most = min(most, need.gpus_total[0])
    sizes = range(need.nodes, most + 1)
    layout = manner.layout
    for size in reversed(sizes) if demand.grows or manner.spread else sizes:
        windows: list[tuple[int, list[int]]] = []
        for place in range(len(rooms.nodes) - size + 1):
            nodes = rooms.nodes[place : place + size]
            if nodes[-1] - nodes[0] + 1 != size or not set(demand.required) <= set(nodes):
                continue
            if layout is not None and size > 1 and not _share_a_domain(demand, nodes):
                continue
            have = sum(rooms.tasks[node] for node in nodes), sum(rooms.gpus[node] for node in nodes)
            if have[0] >= need.tasks and have[1] >= need.gpus_total[0]:
                windows.append((have[1] if need.gpus_total[0] else have[0], nodes))
        for _, nodes in sorted(windows):
            seed = seed_of(demand, attempt.alternative, nodes)
            picks = _shared_out(demand, nodes, rooms, attempt.view) if seed is not None else None
            if picks is not None:
                return picks
    return None


def _share_a_domain(demand: Demand, nodes: list[int]) -> bool:
    manner, layout = demand.manner, demand.manner.layout
    assert layout is not None
    column = layout.domain[manner.level] if manner.mode == "required" else layout.root
    if manner.switches and layout.leaves_of(nodes) > manner.switches:
        return False
    found = {int(column[node]) for node in nodes}
    return len(found) == 1 and min(found) >= 0


def seed_of(demand: Demand, alternative: Alternative, fits: list[int]) -> list[int] | None:
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


def _gather(
    demand: Demand, seed: list[int], order: list[int], tasks_on: dict[int, int], gpus_on: dict[int, int]
) -> list[int] | None:
    """Take the seed, then nodes in order until all is placed; the last one is changed for the tightest that does."""
    need = demand.need
    tasks, gpus = need.tasks, need.gpus_total[0]
    most = min(need.nodes_max, gpus or need.nodes_max)
    if demand.grows or demand.manner.spread:
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


def _shared_out(demand: Demand, nodes: list[int], rooms: Rooms, view: View) -> list[Pick] | None:
    """Spread tasks evenly over the chosen nodes and pack the GPUs of --gpus, at least one of each on a node."""
    need, tasks_on, gpus_on = demand.need, rooms.tasks, rooms.gpus
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
        tasks = spread(room, need.tasks)
    return _checked(demand, view, list(zip(nodes, tasks, gpus, strict=True)))


def _checked(demand: Demand, view: View, picks: list[Pick]) -> list[Pick] | None:
    """Give the picks if each fits its node in all resources together (capacities look at them one by one)."""
    need, fleet = demand.need, demand.fleet
    for node, tasks, gpus in picks:
        cpus, memory, by_column = amount(need, fleet.kinds[fleet.kind[node]], tasks, share_vector(need, gpus))
        if (cpus > view.cpus[node] and not demand.shared) or (need.memory_counts and memory > view.memory[node]):
            return None
        if any(want > column[node] for want, column in zip(by_column, view.gpus, strict=True)):
            return None
    return picks


def capacities(
    demand: Demand, alternative: Alternative, view: View, barred: int = 0
) -> tuple[dict[int, int], dict[int, int]] | None:
    """Give for each node that can have a share the most tasks it could take, and the most GPUs of --gpus, nodes
    ascending; None when all of them together do not suffice."""
    need = demand.need
    limits = alternative.limits(demand)
    indexes = alternative.indexes
    cpus = np.asarray(view.cpus)[indexes]
    if demand.shared:
        row = demand.fleet.column[f"rows@{demand.partition}"]
        cpus = np.where(cpus > CLOSED // 2, np.asarray(view.gpus[row])[indexes], cpus)
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
    elif need.fine is not None:
        tasks = np.minimum(_fine_tasks(demand, alternative, cpus, view), most)
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
    keep = (good & (tasks > 0)).nonzero()[0]
    tasks = tasks[keep]
    if len(keep) < need.nodes or int(tasks.sum()) < need.tasks:
        return None
    top = np.minimum(top[keep], total)
    if int(top.sum()) < total:
        return None
    nodes = indexes[keep].tolist()
    return dict(zip(nodes, tasks.tolist(), strict=True)), dict(zip(nodes, top.tolist(), strict=True))


def _fine_tasks(demand: Demand, alternative: Alternative, cpus: Ints, view: View) -> Ints:
    """Give for each node of an alternative the most tasks that CPUs and other resources of tasks allow, by the rules
    of a job that is not plain."""
    need, fleet = demand.need, demand.fleet
    fine = need.fine
    assert fine is not None
    found = [
        tasks_in(need, fleet.kinds[fleet.kind[node]], count)
        for node, count in zip(alternative.nodes, cpus.tolist(), strict=True)
    ]
    tasks: Ints = np.array(found, np.int64)
    for at, each in enumerate(fine.gres_each_task):
        if each:
            before = fine.gres_each[at] if fine.gres_each else 0
            tasks = np.minimum(tasks, (np.asarray(view.gpus[at])[alternative.indexes] - before) // each)
    return tasks

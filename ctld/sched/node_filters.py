"""Of the nodes of the cluster, how many are left for a job after each question that the selection asks.

The same columns as in a pass: the demand of the job (`Demand.least`: the smallest share that a node must give), and
what is free now.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ctld.core.cluster import Node
from ctld.core.features import choices
from ctld.core.holds import Barred
from ctld.core.model import Job
from ctld.core.state import State
from ctld.sched.demand import Demand
from ctld.sched.explanation import Filter
from ctld.sched.fleet import Column, View, bitmap, free_view, members
from ctld.sched.memory import PlanMemory
from ctld.sched.place import Scratch
from ctld.sched.select import choose
from ctld.sched.tries import due
from muster.hostlist import sort_compress

_MOST_NODES = 8
"""Nodes whose state is told one by one."""
_MOST_LETTERS = 120
"""Longest list of nodes in a sentence."""


class Sieve:
    """The counters of one job in one partition, and which nodes passed. `nodes` and `name` are the partition's."""

    def __init__(self, state: State, memory: PlanMemory, job: Job, nodes: tuple[int, ...], name: str) -> None:
        self._state = state
        self._memory = memory
        self._fleet = memory.fleet
        self._job = job
        self.filters: list[Filter] = []
        self.left = self._fleet.everything & ~self._fleet.future
        """Bitmap of the nodes that have passed so far."""
        self.could = 0
        """Those that could serve if nothing ran on them."""
        self.fits = False
        """The job would start now if no other waited."""
        self._keep("cluster", self.left, "in the cluster")
        self._keep("partition", bitmap(nodes), f"in partition {name}")
        lost = self.left & memory.closed_later
        self._keep("state", ~lost, "that answer and are not down or drained" + self._lost(lost))

    def sift(self, demand: Demand, at: int, barred: Barred) -> None:
        """Ask what the demand asks for. `barred`: what advance reservations keep from the job."""
        self._sift_names(demand)
        could = 0
        for alternative in demand.alternatives:
            could |= alternative.bits
        self._keep("hardware", could, f"that can give {share_text(demand)} when they are empty")
        self.could = self.left
        if barred.nodes:
            self._keep("reservation", ~barred.nodes, "outside of the reservations of others")
        view = free_view(self._fleet, self._state.free, self._memory.closed_now)
        self._sift_free(demand, view)
        self._together(due(demand, self._job, at), view, barred.nodes)

    def failing(self, needed: int) -> Filter | None:
        """Give the first question that leaves fewer nodes than the job needs; None: there is none."""
        return next((one for one in self.filters if one.nodes < needed), None)

    def _sift_names(self, demand: Demand) -> None:
        fleet, request = self._fleet, self._job.spec.request
        excluded = bitmap(fleet.names[name] for name in request.exclude if name in fleet.names)
        if excluded:
            self._keep("excluded", ~excluded, f"not excluded (--exclude={_short(request.exclude)})")
        if demand.required and demand.need.nodes_max == len(demand.required):
            self._keep("named", demand.required_bits, f"named (--nodelist={_short(request.nodelist)})")
        if request.constraint:
            able = 0
            for choice in choices(request.constraint, fleet.nodes_with, fleet.everything):
                able |= choice.nodes
            self._keep("features", able, f"with --constraint={request.constraint}")

    def _sift_free(self, demand: Demand, view: View) -> None:
        """Ask for what is free: memory, CPUs, then each generic resource; and for the right cores and devices."""
        cleaned = self.left & self._memory.closed_now
        if cleaned:
            self._keep("cleaning", ~cleaned, f"where no job is being cleaned up; one is on {self._names(cleaned)}")
        least = demand.least
        if demand.need.memory_counts and any(one[1] for one in least):
            self._compare("memory", "MiB of memory free", view.memory, [one[1] for one in least])
        if not demand.shared:
            self._compare("cpus", "CPUs free", view.cpus, [one[0] for one in least])
        for at, column in enumerate(self._fleet.columns):
            if any(one[2][at] for one in least):
                self._compare(*_words(column), view.gpus[at], [one[2][at] for one in least])
        others = Scratch(self._state, self._fleet, view).barred(demand, self._job.spec.uid)
        if others & self.left:
            what = "whose free cores and devices lie as is asked for" if demand.picky else "not kept for another user"
            self._keep("others", ~others, what)

    def _together(self, demand: Demand, view: View, barred: int) -> None:
        """Ask the selection itself: whether what the nodes have suffices together, and lies as it has to."""
        scratch = Scratch(self._state, self._fleet, view)
        picks = choose(demand, view, barred | scratch.barred(demand, self._job.spec.uid))
        need, count = demand.need, self.left.bit_count()
        if picks is not None:
            self.fits = True
            names = self._names(bitmap(pick[0] for pick in picks))
            self.filters.append(Filter("together", len(picks), f"that it would have now if no other waited: {names}"))
            return
        if count < need.nodes:
            return
        left = members(self.left)
        cpus = int(np.asarray(view.cpus)[left].sum())
        gpus = int(np.asarray(view.gpus[0])[left].sum())
        if cpus < demand.least_cpus:
            text = f"{cpus} CPUs are free on these {count} together, {demand.least_cpus} are asked for in all"
            self.filters.append(Filter("together", 0, text, demand.least_cpus, cpus))
        elif gpus < need.gpus_total[0]:
            text = f"{gpus} GPUs are free on these {count} together, {need.gpus_total[0]} are asked for in all"
            self.filters.append(Filter("together", 0, text, need.gpus_total[0], gpus))
        else:
            self.filters.append(Filter("together", 0, self._apart(demand, count), need.nodes, count))

    def _apart(self, demand: Demand, count: int) -> str:
        """Say why so many nodes that fit one by one do not do together."""
        manner, need = demand.manner, demand.need
        layout = manner.layout
        if layout is not None and (manner.mode == "required" or manner.switches):
            column = layout.domain[manner.level if manner.mode == "required" else 0][members(self.left)]
            inside = int(np.bincount(column[column >= 0], minlength=1).max())
            if manner.mode == "required":
                names, level = layout.spec.levels, manner.level
                where = f"one {names[-1 - level]}" if level < len(names) else f"one domain of level {level}"
                return f"at most {inside} of these {count} lie in {where}, {need.nodes} are needed there"
            asked = f"{need.nodes} under {manner.switches} are asked for"
            return f"at most {inside} of these {count} lie under one switch, {asked}"
        if manner.contiguous:
            return f"{need.nodes} of these {count} do not lie side by side (--contiguous)"
        if any(one.counts for one in demand.alternatives):
            return f"these {count} do not have the features in the numbers that are asked for"
        if demand.required:
            missing = self._names(demand.required_bits & ~self.left)
            if missing:
                return f"not among these {count} is what is named: {missing}"
        return f"these {count} together do not have room for all tasks ({need.tasks or need.tasks_each * need.nodes})"

    def _keep(self, name: str, bits: int, sentence: str) -> None:
        self.left &= bits
        self.filters.append(Filter(name, self.left.bit_count(), sentence))

    def _compare(self, name: str, what: str, free: Column, least: list[int]) -> None:
        """Keep the nodes on which so much is free; `least` is by kind of node."""
        before = members(self.left)
        have = np.asarray(free)[before]
        want = np.array(least, np.int64)[self._fleet.kind_column[before]]
        fits = np.zeros(self._fleet.size, np.bool_)
        fits[before] = have >= want
        self.left = int.from_bytes(np.packbits(fits, bitorder="little").tobytes(), "little")
        asked, most = int(want.min(initial=max(least))), max(0, int(have.max(initial=0)))
        sentence = f"with {asked} {what}; {most} on the one that has most"
        self.filters.append(Filter(name, self.left.bit_count(), sentence, asked, most))

    def _lost(self, bits: int) -> str:
        return (
            f"; not so {', '.join(_condition(self._state.nodes[node]) for node in members(bits)[:8])}" if bits else ""
        )

    def _names(self, bits: int) -> str:
        return _short(self._fleet.specs[node].name for node in members(bits))


def share_text(demand: Demand) -> str:
    """Give the smallest share of a node in words: `8 CPUs, 4000 MiB, 2 GPUs`."""
    columns = demand.fleet.columns
    kinds = {kind for one in demand.alternatives for kind in np.unique(demand.fleet.kind_column[one.indexes]).tolist()}
    amounts = [demand.least[kind] for kind in sorted(kinds)] or demand.least
    parts = [f"{min(one[0] for one in amounts)} CPUs"] if not demand.shared else []
    if memory := min(one[1] for one in amounts):
        parts.append(f"{memory} MiB")
    for at, column in enumerate(columns):
        if (count := min(one[2][at] for one in amounts)) and "@" not in column and column != "open":
            parts.append(f"{count} GPUs" if column == "gpu" else f"{count} {column}")
    return ", ".join(parts) or "a share of their CPUs"


def _words(column: str) -> tuple[str, str]:
    """Give the name of a column's filter, and what it counts."""
    kind, at, partition = column.partition("@")
    if at:
        bound = "MaxCPUsPerNode" if kind == "cpus" else "OverSubscribe"
        return "cpus", f"CPUs free within {bound} of {partition}"
    if column == "open":
        return "cpus", "CPUs free that are not kept for jobs with GPUs"
    name, colon, model = column.partition(":")
    if name == "gpu":
        return "gpus", f"{model} GPUs free" if colon else "GPUs free"
    return column, f"{column} free"


def _condition(node: Node) -> str:
    words = ("down", node.down), ("drained", node.drain), ("failing", node.fail), ("invalid", node.invalid)
    state = next((word for word, is_so in words if is_so), "silent")
    return f"{node.spec.name} {state}" + (f" ({node.reason})" if node.reason else "")


def _short(names: Iterable[str]) -> str:
    text = sort_compress(list(names))
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."

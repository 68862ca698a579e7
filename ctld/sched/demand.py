"""A need laid over the nodes of one partition: which nodes could ever serve, and what each would have to give.

Made once for each (request, partition) and kept between passes: the columns here are what a pass compares with.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from ctld.core.cluster import PartitionSpec, Settings
from ctld.core.devices import size
from ctld.core.features import choices
from ctld.core.model import GpuRequest, GresRequest, Request
from ctld.sched.fleet import CLOSED, Column, Fleet, Ints, Kind, bitmap, members
from ctld.sched.manner import PLAIN, Manner, manner_of, unbound
from ctld.sched.needs import Amount, Fine, Impossible, Need, alone, amount, derive, share_vector
from muster.errors import InvalidInput
from muster.states import Reason

ANY = CLOSED // 2
"""Fewer free CPUs than any node that can be used has."""


class Alternative:
    """One way to satisfy the constraint: the nodes that could serve, and counts among them."""

    __slots__ = ("_limits", "bits", "counts", "indexes", "nodes")

    def __init__(self, bits: int, counts: tuple[tuple[int, int], ...]) -> None:
        self.bits = bits
        self.counts = counts
        """(bitmap, how many nodes of the job must be in it)."""
        self.nodes = members(bits)
        self.indexes: Ints = np.array(self.nodes, np.int64)
        self._limits: Limits | None = None

    def limits(self, demand: Demand) -> Limits:
        """Give the least that each of the nodes must have, as columns along `indexes`; made at the first use."""
        if self._limits is None:
            fleet, least = demand.fleet, demand.least
            counts = demand.need.memory_counts

            def column(by_kind: list[int]) -> Ints:
                spread: Ints = np.array(by_kind, np.int64)[fleet.kind_column[self.indexes]]
                return spread

            self._limits = Limits(
                cpus=column([one[0] if not demand.shared else ANY for one in least]),
                memory=column([one[1] if counts else 0 for one in least]),
                gpus=[
                    (at, column([one[2][at] for one in least]))
                    for at in range(fleet.width)
                    if any(one[2][at] for one in least)
                ],
                threads=column([kind.threads for kind in fleet.kinds]),
            )
        return self._limits


@dataclass(frozen=True, slots=True)
class Limits:
    """The least that a node must have for the smallest share, along the nodes of an alternative."""

    cpus: Ints
    memory: Ints
    gpus: list[tuple[int, Ints]]
    """(column of the view, GPUs); only columns that matter."""
    threads: Ints


class Demand:
    """What jobs of one shape need in one partition. Raises Impossible when no number of nodes could do."""

    __slots__ = (
        "_alone",
        "_eventual",
        "_left_out",
        "_preferred",
        "_relaxed",
        "alternatives",
        "amounts",
        "by_node",
        "cpus",
        "even",
        "fleet",
        "gpus",
        "grows",
        "least",
        "least_cpus",
        "lost",
        "lost_at",
        "manner",
        "memory",
        "need",
        "no_fit",
        "number",
        "partition",
        "picky",
        "required",
        "required_bits",
        "shared",
        "single",
        "sticky",
        "tasks",
        "varies",
    )  # fmt: skip

    def __init__(
        self,
        fleet: Fleet,
        partition: PartitionSpec,
        request: Request,
        need: Need,
        *,
        number: int = 0,
        manner: Manner = PLAIN,
    ) -> None:
        self.fleet = fleet
        self.need = need
        self.manner = manner
        """How nodes are chosen among those that fit."""
        self.grows = need.grows and not manner.fewest
        """As many nodes as possible up to `need.nodes_max`."""
        self.partition = partition.name
        self.picky = _picky(fleet, need)
        """Counts do not tell whether a node can serve: `Scratch.barred` has to look at its cores and devices."""
        self.by_node = need.user or self.picky
        """`Scratch.barred` has to look at each node, whatever it is that a node is barred for."""
        self.number = number
        """To tell demands apart cheaply."""
        self.required = _named(fleet, request)
        self.required_bits = bitmap(self.required)
        per_node, odd = divmod(need.tasks, need.nodes)
        self.even = (
            not odd
            and not (need.gpus_total[0] and need.nodes > 1)
            and not (manner.spread and need.uneven and need.nodes < need.nodes_max)
        )
        """A share may be the same on each of `need.nodes` nodes, and that is tried first."""
        self.tasks = (per_node or need.tasks_each) if self.even else 1
        """Tasks of an even share."""
        self.amounts: list[Amount] = [
            amount(need, kind, self.tasks, share_vector(need, need.gpus_total[0] if self.even else 1))
            for kind in fleet.kinds
        ]
        """By kind: what an even share takes."""
        self.least: list[Amount] = (
            [amount(need, kind, 1, share_vector(need, 1)) for kind in fleet.kinds] if need.uneven else self.amounts
        )
        """By kind: the smallest share that a node may have."""
        self.shared = need.fine is not None and need.fine.rows > 0
        """Cores may be others' too: a column of `gpus` counts them, and free CPUs do not matter."""
        self.cpus: Column = fleet.per_node([one[0] if not self.shared else ANY for one in self.amounts])
        """By node: what an even share takes, as the next two."""
        self.memory: Column = fleet.per_node([one[1] if need.memory_counts else 0 for one in self.amounts])
        self.gpus: list[tuple[int, Column]] = [
            (at, fleet.per_node([one[2][at] for one in self.amounts]))
            for at in range(fleet.width)
            if any(one[2][at] for one in self.amounts)
        ]
        """(column of the view, GPUs); only columns that matter."""
        pool = _pool(fleet, partition, request)
        if need.nodes_max == len(self.required):
            pool &= self.required_bits
        able = [_could_serve(need, one, kind)
                for one, kind in zip(self.least, fleet.kinds, strict=True)]  # fmt: skip
        bits = 0
        for kind_bits, could in zip(fleet.kind_bits, able, strict=True):
            if could:
                bits |= kind_bits
        bits &= pool
        self.alternatives = [
            Alternative(bits & choice.nodes, choice.counts)
            for choice in choices(request.constraint, fleet.nodes_with, fleet.everything)
        ]
        self.single = (
            self.even
            and need.nodes == 1
            and not need.grows
            and not (manner.spread and need.uneven)
            and not self.required
            and len(self.alternatives) == 1
            and not self.alternatives[0].counts
        )
        """One node with an even share is what is looked for (first)."""
        self.sticky = self.single and manner.sticky
        """The node chosen for one such job stays the best for the next, while it fits."""
        tasks = need.tasks if not need.overcommit and not self.shared else 0
        self.least_cpus = 0 if self.shared else max(tasks * need.cpus_per_task, need.nodes)
        """CPUs that the whole job takes at least."""
        self.no_fit = False
        """Found no place when last tried, and nothing has come free since that could change it."""
        self.lost = False
        """The nodes that can be used at all do not suffice; as of `lost_at`, a count of `PlanMemory`."""
        self.lost_at = -1
        self._alone: Demand | None = self if not need.user else None
        self._left_out = 0
        self._relaxed: Demand | None = None
        self._eventual: Demand | None = None
        self._preferred: Demand | None = self._with(request.prefer) if request.prefer else None
        self.varies = self._preferred is not None or manner.switches > 0
        """What is tried for a job is not this alone (`tries`), so that `no_fit` says nothing."""

    @property
    def preferred(self) -> Demand | None:
        """The demand with --prefer on top of the constraint: to be tried first, for a start now, and never planned
        ahead; None where nothing is preferred."""
        return self._preferred

    @property
    def relaxed(self) -> Demand:
        """The demand without what a job may wait for although nodes are free: few switches (until `manner.switch_wait`
        seconds after it became eligible) or a required level of the topology (for ever); itself where there is none."""
        if self._relaxed is None:
            self._relaxed = self
            if self.manner.switches or self.manner.mode == "required":
                self._relaxed = self._copy(1)
                self._relaxed.manner = unbound(self.manner)
                self._relaxed._relaxed = self._relaxed
        return self._relaxed

    @property
    def eventual(self) -> Demand:
        """The demand without few switches, which a job does not wait for for ever; itself where it asks for none."""
        if self._eventual is None:
            self._eventual = self
            if self.manner.switches:
                self._eventual = self._copy(2)
                self._eventual.manner = replace(self.manner, switches=0)
                self._eventual._eventual = self._eventual
        return self._eventual

    def _copy(self, change: int) -> Demand:
        """Give a demand to be changed; `change` is 1, 2 or 4, so that all that are made of one have other numbers."""
        made = copy(self)
        made.number = min(self.number, -8 * self.number) - change
        made.no_fit = False
        made.varies = True
        made._relaxed = made._eventual = made._preferred = None
        made._alone = made if self._alone is self else None
        return made

    def _with(self, preference: str) -> Demand | None:
        """Give the demand with more features wanted; None where no node has them, or the text cannot be read."""
        try:
            more = choices(preference, self.fleet.nodes_with, self.fleet.everything)
        except InvalidInput:
            return None
        found = [
            Alternative(one.bits & other.nodes, one.counts + other.counts)
            for one in self.alternatives
            for other in more
        ]
        found = [one for one in found if one.bits.bit_count() >= self.need.nodes]
        if not found:
            return None
        made = self._copy(4)
        made.alternatives = found
        made.single = self.single and len(found) == 1 and not found[0].counts
        made.sticky = made.single and made.manner.sticky
        return made

    def leave_out(self, nodes: int) -> None:
        """Take the nodes of a bitmap out: they could never serve."""
        if nodes:
            self._left_out |= nodes
            self.alternatives = [Alternative(one.bits & ~nodes, one.counts) for one in self.alternatives]
            if self._preferred is not None:
                self._preferred.leave_out(nodes)

    def within(self, nodes: int) -> bool:
        """Tell whether all nodes that could serve are in a bitmap."""
        return not any(one.bits & ~nodes for one in self.alternatives)

    def alone(self, partition: PartitionSpec, request: Request) -> Demand:
        """Give the demand that stands for this one in the future: with nodes of its own where it may share only
        with its own user, as nobody knows who will be there then."""
        if self._alone is None:
            self._alone = Demand(self.fleet, partition, request, alone(self.need), manner=self.manner)
            self._alone.leave_out(self._left_out)
        return self._alone

    def serves(self, node: int, cpus: int, memory: int, gpus: int) -> bool:
        """Tell whether a node with so much free could have the smallest share (GPU types not looked at)."""
        least = self.least[self.fleet.kind[node]]
        return (
            (cpus >= least[0] or self.shared)
            and (memory >= least[1] or not self.need.memory_counts)
            and gpus >= least[2][0]
            and any(alternative.bits >> node & 1 for alternative in self.alternatives)
        )


def demand_of(fleet: Fleet, settings: Settings, partition: PartitionSpec, request: Request, number: int = 0) -> Demand:
    """Lay a request over a partition.

    Raises:
        Impossible: it contradicts itself, the partition's limits or names unknown nodes.
        InvalidInput: the constraint cannot be read.
    """
    need = derive(fleet, settings, partition, request)
    return Demand(fleet, partition, request, need, number=number, manner=manner_of(fleet, settings, partition, request))


def _named(fleet: Fleet, request: Request) -> list[int]:
    """Give the nodes of --nodelist, ascending."""
    unknown = [name for name in request.nodelist if name not in fleet.names]
    if unknown:
        raise Impossible(Reason.BAD_CONSTRAINTS, f"node {unknown[0]} of --nodelist is not known")
    return sorted({fleet.names[name] for name in request.nodelist})


def _pool(fleet: Fleet, partition: PartitionSpec, request: Request) -> int:
    """Give the nodes of the partition that are not excluded and have GPUs of the types asked for."""
    pool = bitmap(partition.nodes) & ~fleet.future
    for name in request.exclude:
        if name in fleet.names:
            pool &= ~(1 << fleet.names[name])
    for wanted in (*request.gpus_per_node, *request.gpus_per_task, *request.gpus):
        pool &= _nodes_with_type(fleet, wanted)
    return pool


def _nodes_with_type(fleet: Fleet, wanted: GpuRequest) -> int:
    return fleet.typed.get(wanted.type, 0) if wanted.type else fleet.everything


def _could_serve(need: Need, one: Amount, kind: Kind) -> bool:
    """Tell whether a node of this hardware could give this amount when it is empty."""
    return (
        one[0] <= kind.cpus
        and one[1] <= kind.memory_mib
        and need.tmp_mib <= kind.tmp_mib
        and all(want <= have for want, have in zip(one[2], kind.gpus, strict=True))
        and (need.fine is None or _suits(need.fine, kind))
    )


def _suits(fine: Fine, kind: Kind) -> bool:
    """Tell whether the hardware has the sockets, cores and threads that are named, and what is not used up."""
    return (
        fine.sockets <= kind.socket_count
        and fine.cores_per_socket <= kind.socket_cores
        and fine.threads <= kind.threads
        and fine.system_cores < kind.socket_count * kind.socket_cores
        and all(_has(kind, one, one.count) for one in (*fine.gres, *fine.gres_task))
    )


def _has(kind: Kind, wanted: GresRequest, count: int) -> bool:
    """Tell whether an empty node has so many of a resource, of those that are used up and those that are not."""
    return count <= sum(
        size(one) for one in kind.spec.devices if one.name == wanted.name and wanted.type in ("", one.type)
    )


def _picky(fleet: Fleet, need: Need) -> bool:
    fine = need.fine
    if fine is None:
        return False
    asked = (
        fine.gpus_per_socket, fine.per_socket, fine.cores_in_socket, fine.socket_cpus, fine.bind, fine.rows,
        fine.shares, fine.system_cores >= 0,
    )  # fmt: skip
    return any(asked) or (fine.whole_sockets and any(len(kind.sockets) > 1 for kind in fleet.kinds))

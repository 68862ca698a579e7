"""Can any node ever give what a job asks for? Asked at submission, of what is configured, not of what is free.

A refusal names what no node has, and the node that comes nearest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ctld.core.cluster import NodeSpec, PartitionSpec
from ctld.core.decide.refusals import invalid
from ctld.core.devices import SHARING, counted
from ctld.core.features import choices, names
from ctld.core.free import core_count, cpus_per_core, selectable_cores, selectable_memory
from ctld.core.model import FineRequest, GpuRequest, Request
from ctld.core.state import State
from ctld.core.topology import check_request
from muster.errors import InvalidInput
from muster.units import format_memory_mib

CPUS_LINE = "CPU count per node can not be satisfied"
MEMORY_LINE = "Memory specification can not be satisfied"
"""The lines that Slurm's commands print before the refusal; our hint begins with them."""
_SHOWN_NAMES = 8
_MOST_FITTING = 4096
"""Shapes of which is remembered that they fit; at the bound all are forgotten."""
_QUICK_LOOK = 64
"""Nodes of a partition that are looked at before anything is counted."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What the fullest node of a job must have at least."""

    tasks: int
    cpus_per_task: int
    min_cpus: int
    gpus: tuple[GpuRequest, ...]
    cpus_per_gpu: int
    memory_mib: int
    memory_per_cpu_mib: int
    memory_per_gpu_mib: int
    tmp_mib: int
    fine: FineRequest | None = None
    many_gpus: bool = False
    """Shares of GPUs may be of several GPUs."""


def floor(request: Request, *, emptiest: bool = False) -> Floor:
    """Work out what one node must have at least: the fullest one of the job, or the emptiest."""
    tasks = 1
    if request.ntasks and request.nodes_max and not emptiest:
        tasks = max(1, -(-request.ntasks // request.nodes_max))
    elif not request.ntasks and request.ntasks_per_node:
        tasks = request.ntasks_per_node
    gpus: dict[str, int] = {one.type: one.count for one in request.gpus_per_node}
    for one in request.gpus_per_task:
        gpus[one.type] = max(gpus.get(one.type, 0), one.count * tasks)
    for one in request.gpus:
        share = -(-one.count // request.nodes_max) if request.nodes_max and not emptiest else 1
        gpus[one.type] = max(gpus.get(one.type, 0), share)
    if request.ntasks_per_gpu and not gpus:
        gpus[""] = -(-tasks // request.ntasks_per_gpu)
    return Floor(
        tasks=tasks,
        cpus_per_task=request.cpus_per_task,
        min_cpus=max(request.min_cpus, request.cpus_per_task * (1 if request.overcommit else tasks)),
        gpus=tuple(GpuRequest(kind, count) for kind, count in sorted(gpus.items())),
        cpus_per_gpu=request.cpus_per_gpu,
        memory_mib=max(0, request.memory_per_node_mib),
        memory_per_cpu_mib=request.memory_per_cpu_mib,
        memory_per_gpu_mib=request.memory_per_gpu_mib,
        tmp_mib=request.tmp_mib,
        fine=request.fine,
    )


def shortfalls(spec: NodeSpec, wanted: Floor) -> Iterator[tuple[str, str]]:
    """Give what a node lacks: (kind, `4 GPUs of 8`); nothing when it could serve."""
    gpu_count = 0
    for one in wanted.gpus:
        have = spec.gpus.count(one.type) if one.type else len(spec.gpus)
        gpu_count += one.count
        if have < one.count:
            yield "gpus", f"{have} {one.type + ' ' if one.type else ''}GPUs of {one.count}"
    cpus = max(wanted.min_cpus, wanted.cpus_per_gpu * gpu_count)
    whole = cpus_per_core(spec)
    cores = -(-cpus // whole)
    if wanted.fine is not None:
        yield from _fine_shortfalls(spec, wanted.fine, wanted.tasks, wanted.many_gpus)
        cores = _fine_cores(wanted, cpus, whole)
    cpus = cores * whole
    have_cpus = selectable_cores(spec).bit_count() * whole
    if have_cpus < cpus:
        yield "cpus", f"{have_cpus} CPUs of {cpus}"
    memory = max(wanted.memory_mib, wanted.memory_per_cpu_mib * cpus, wanted.memory_per_gpu_mib * gpu_count)
    have_memory = selectable_memory(spec)
    if have_memory < memory:
        yield "memory", f"{format_memory_mib(have_memory)} memory of {format_memory_mib(memory)}"
    if spec.tmp_mib < wanted.tmp_mib:
        yield "tmp", f"{format_memory_mib(spec.tmp_mib)} temporary disk of {format_memory_mib(wanted.tmp_mib)}"


def _fine_shortfalls(spec: NodeSpec, fine: FineRequest, tasks: int, many_gpus: bool) -> Iterator[tuple[str, str]]:
    """Give what a node lacks of sockets, cores and threads that are named, and of devices other than GPUs."""
    cores = core_count(spec)
    flat = spec.sockets * spec.cores_per_socket != cores  # CPUs= alone: one socket of all cores.
    sockets, in_socket = (1, cores) if flat else (spec.sockets, spec.cores_per_socket)
    if sockets < fine.sockets_per_node:
        yield "sockets", f"{sockets} sockets of {fine.sockets_per_node}"
    if in_socket < fine.cores_per_socket:
        yield "cores", f"{in_socket} cores in a socket of {fine.cores_per_socket}"
    if cpus_per_core(spec) < fine.threads_per_core:
        yield "threads", f"{cpus_per_core(spec)} threads in a core of {fine.threads_per_core}"
    if fine.core_spec >= cores:
        yield "cpus", f"{cores} cores, all of which --core-spec={fine.core_spec} leaves to the system"
    if fine.ntasks_per_socket and tasks > fine.ntasks_per_socket * sockets:
        yield "sockets", f"{sockets} sockets for {tasks} tasks with {fine.ntasks_per_socket} on each"
    for wanted, times in [(one, 1) for one in fine.gres] + [(one, tasks) for one in fine.gres_per_task]:
        have = counted(spec, wanted.name, wanted.type)
        if wanted.name in SHARING and not many_gpus and "one-task-per-sharing" not in fine.gres_flags:
            have = max((one.each for one in spec.devices if one.name == wanted.name), default=0)
        if have < wanted.count * times:
            kind = f":{wanted.type}" if wanted.type else ""
            yield "gres", f"{have} {wanted.name}{kind} of {wanted.count * times}"


def _fine_cores(wanted: Floor, cpus: int, threads: int) -> int:
    """Give the cores that so many CPUs are, where a job does not use all threads or keeps tasks apart."""
    fine = wanted.fine
    assert fine is not None
    used = min(fine.threads_per_core, threads) if fine.threads_per_core else threads
    cores = -(-cpus // used)
    if fine.ntasks_per_core:
        on_a_core = min(fine.ntasks_per_core, used // wanted.cpus_per_task)
        by_tasks = -(-wanted.tasks // on_a_core) if on_a_core else wanted.tasks * -(-wanted.cpus_per_task // used)
        cores = max(cores, by_tasks)
    return cores


def check_fit(state: State, request: Request, partitions: Iterable[PartitionSpec]) -> None:
    """Refuse what no partition of these can ever run, whatever else ends.

    Node counts beyond a partition are not looked at: those wait (`PartitionNodeLimit`), as an administrator may
    change the partition. Costs microseconds where one of a partition's first nodes fits or where the same was asked
    before, else a look at each kind of node.

    Raises:
        InvalidInput: `Requested node configuration is not available`, unknown nodes or features, named nodes that
            lie outside of every partition, a level of the topology that no partition has.
    """
    partitions = tuple(partitions)
    key = (request, tuple(partition.name for partition in partitions))
    if key in state.fitting:
        return
    _check_can_run(state, request, partitions)
    if len(state.fitting) >= _MOST_FITTING:
        state.fitting.clear()
    state.fitting.add(key)


def _check_can_run(state: State, request: Request, partitions: Sequence[PartitionSpec]) -> None:
    wanted = replace(floor(request), many_gpus="multiple_sharing_gres_pj" in state.settings.select_flags)
    _check_nodes(state, request)
    _check_prefer(state, request)
    _check_topology(state, request, partitions)
    allowed = _allowed(state, request)
    problem: InvalidInput | None = None
    for partition in partitions:
        if allowed is None and _first_nodes_fit(state, request, partition, wanted):
            return
        found = _misfit(state, request, partition, wanted, allowed)
        if found is None:
            return
        problem = problem or found
    if problem is not None:
        raise problem


class Inventory:
    """The nodes as configured, by kind of hardware and by feature, as bitmaps of node indexes."""

    def __init__(self, specs: list[NodeSpec]) -> None:
        self.specs = specs
        self.kinds: list[tuple[NodeSpec, int]] = []
        """(one node of the kind, bitmap of all of them); nodes of the FUTURE are in none."""
        self.features: dict[str, int] = {}
        self._partitions: dict[str, tuple[tuple[int, ...], int]] = {}
        kinds: dict[tuple[object, ...], tuple[NodeSpec, int]] = {}
        for index, spec in enumerate(specs):
            if spec.state == "FUTURE":
                continue
            key = (
                spec.cpus,
                spec.sockets,
                spec.cores_per_socket,
                spec.threads_per_core,
                spec.memory_mib,
                spec.tmp_mib,
                spec.gpus,
                spec.devices,
                spec.core_spec_count,
                spec.cpu_spec_list,
                spec.memory_spec_mib,
            )
            first, bits = kinds.get(key, (spec, 0))
            kinds[key] = (first, bits | 1 << index)
            for name in spec.features:
                self.features[name] = self.features.get(name, 0) | 1 << index
        self.kinds = list(kinds.values())

    def bits_of(self, partition: PartitionSpec) -> int:
        """Give the bitmap of a partition's nodes."""
        known = self._partitions.get(partition.name)
        if known is None or known[0] is not partition.nodes:
            known = self._partitions[partition.name] = (partition.nodes, _bitmap(partition.nodes))
        return known[1]


_LATEST: list[Inventory] = []
"""The inventory made last. It is used only for the very specs that it was made of, so what is decided does not
depend on what was asked before."""


def inventory(state: State) -> Inventory:
    """Give the inventory of a state's nodes; made anew when any node was configured anew."""
    specs = [node.spec for node in state.nodes]
    if not _LATEST or _LATEST[0].specs != specs:
        _LATEST[:] = [Inventory(specs)]
    return _LATEST[0]


def _bitmap(indexes: Iterable[int]) -> int:
    bits = 0
    for index in indexes:
        bits |= 1 << index
    return bits


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _check_nodes(state: State, request: Request) -> None:
    for option, hosts in (("--nodelist", request.nodelist), ("--exclude", request.exclude)):
        for name in hosts:
            if name not in state.node_index:
                raise invalid(2018, f"{option} names {name}, and there is no such node")
    both = set(request.nodelist) & set(request.exclude)
    if both:
        raise invalid(2018, f"{min(both)} stands in both --nodelist and --exclude")


def _check_prefer(state: State, request: Request) -> None:
    """Refuse liked features that cannot be read, or that no node has."""
    if not request.prefer:
        return
    known = inventory(state).features
    try:
        unknown = sorted(names(request.prefer) - known.keys())
        choices(request.prefer, lambda name: known.get(name, 0), (1 << len(state.nodes)) - 1)
    except InvalidInput as error:
        raise invalid(2133, str(error)) from None
    if unknown and not state.settings.any_prefer:
        there = f"; the nodes have {_listed(known)}" if known else "; no node has features"
        raise invalid(2133, f"no node has the feature {unknown[0]}{there}")


def _check_topology(state: State, request: Request, partitions: Sequence[PartitionSpec]) -> None:
    """Refuse what the topology of none of the partitions can give."""
    problem: InvalidInput | None = None
    for partition in partitions:
        try:
            check_request(state.settings, partition, request)
        except InvalidInput as error:
            problem = problem or error
        else:
            return
    if problem is not None:
        raise problem


def _allowed(state: State, request: Request) -> int | None:
    """Give the bitmap of the nodes that constraint and exclusion leave; None: all."""
    if not request.constraint and not request.exclude:
        return None
    bits = (1 << len(state.nodes)) - 1
    bits &= ~_bitmap(state.node_index[name] for name in request.exclude)
    if not request.constraint:
        return bits
    known = inventory(state).features
    try:
        unknown = sorted(names(request.constraint) - known.keys())
        if unknown and not state.settings.any_constraint:
            there = f"; the nodes have {_listed(known)}" if known else "; no node has features"
            raise invalid(2029, f"no node has the feature {unknown[0]}{there}")
        fitting = 0
        for choice in choices(request.constraint, lambda name: known.get(name, 0), bits):
            fitting |= choice.nodes
    except InvalidInput as error:
        if error.slurm_code:
            raise
        raise invalid(2029, str(error)) from None
    return bits if state.settings.any_constraint else bits & fitting


def _first_nodes_fit(state: State, request: Request, partition: PartitionSpec, wanted: Floor) -> bool:
    """Tell whether a look at a few nodes is enough to say yes, as it mostly is."""
    if request.nodelist or request.gpus or request.nodes_min > _QUICK_LOOK:
        return False
    able = 0
    for index in partition.nodes[:_QUICK_LOOK]:
        spec = state.nodes[index].spec
        if spec.state != "FUTURE" and next(shortfalls(spec, wanted), None) is None:
            able += 1
            if able >= request.nodes_min:
                return True
    return False


def _misfit(
    state: State, request: Request, partition: PartitionSpec, wanted: Floor, allowed: int | None
) -> InvalidInput | None:
    only_one = len(request.nodelist) == 1 and request.nodes_max == 1
    stock = inventory(state)
    pool = stock.bits_of(partition)
    for name in request.nodelist:
        index = state.node_index[name]
        if not pool >> index & 1:
            return invalid(2004, f"{name} is not in partition {partition.name}")
        lacking = shortfalls(stock.specs[index], wanted if only_one else floor(request, emptiest=True))
        lacks = [text for _, text in lacking]
        if lacks:
            return invalid(2014, f"{name} has {', '.join(lacks)}")
    size = pool.bit_count()
    if allowed is not None:
        pool &= allowed
    able = 0
    total = {one.type: 0 for one in request.gpus}
    for spec, bits in stock.kinds:
        count = (bits & pool).bit_count()
        if count and next(shortfalls(spec, wanted), None) is None:
            able += count
            for kind in total:
                total[kind] += count * (spec.gpus.count(kind) if kind else len(spec.gpus))
    if able < (request.nodes_min if request.nodes_min <= size else 1):
        if able:
            nodes = "node" if able == 1 else "nodes"
            return invalid(
                2014,
                f"only {able} {nodes} of partition {partition.name} could serve, {request.nodes_min} are asked for",
            )
        left = [stock.specs[_lowest(bits & pool)] for _, bits in stock.kinds if bits & pool]
        if not left:
            what = f"has the features {request.constraint}" if request.constraint else "is left to choose from"
            return invalid(2014, f"no node of partition {partition.name} {what}")
        return _explained(partition, wanted, left)
    for one in request.gpus:
        if total[one.type] < one.count:
            kind = f"{one.type} " if one.type else ""
            return invalid(
                2014,
                f"all nodes of partition {partition.name} that could serve have {total[one.type]} {kind}GPUs "
                f"together, {one.count} are asked for",
            )
    return None


def _explained(partition: PartitionSpec, wanted: Floor, pool: list[NodeSpec]) -> InvalidInput:
    """Say what no node of the pool (one for each kind) has, and which comes nearest."""
    for one in wanted.gpus:
        types = sorted({kind for spec in pool for kind in spec.gpus if kind})
        if one.type and one.type not in types:
            there = f"; there are {_listed(types)}" if types else ""
            return invalid(2014, f"no node of partition {partition.name} has GPUs of type {one.type}{there}")
    lacks = {spec.name: list(shortfalls(spec, wanted)) for spec in pool}
    nearest = min(pool, key=lambda spec: (len(lacks[spec.name]), -len(spec.gpus), -spec.cpus, -spec.memory_mib))
    common = set.intersection(*({kind for kind, _ in found} for found in lacks.values()))
    line = f"{CPUS_LINE}: " if "cpus" in common else f"{MEMORY_LINE}: " if "memory" in common else ""
    has = ", ".join(text for _, text in lacks[nearest.name])
    return invalid(
        2014,
        f"{line}no node of partition {partition.name} is large enough; the nearest, {nearest.name}, has {has}",
    )


def _listed(words: Iterable[str]) -> str:
    found = sorted(words)
    more = f" and {len(found) - _SHOWN_NAMES} more" if len(found) > _SHOWN_NAMES else ""
    return ", ".join(found[:_SHOWN_NAMES]) + more

"""What a job needs, worked out from its request: how counts of nodes, tasks, CPUs, GPUs and memory combine.

`derive` turns a Request into a Need by the rules of sbatch(1) and slurm.conf(5); `amount` says what a
number of tasks takes on a node of a given kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ctld.core.cluster import PartitionSpec, Settings
from ctld.core.devices import SHARING, names, rows_of
from ctld.core.model import UNLIMITED, FineRequest, GpuRequest, GresRequest, Request
from ctld.sched.fleet import Fleet, Kind
from muster.states import Reason

ALL = -1
"""As a memory amount: all memory of the node."""
Amount = tuple[int, int, tuple[int, ...]]
"""CPUs (whole cores), memory in MiB, GPUs and all else that is counted, by column of the fleet."""


class Impossible(Exception):
    """The request contradicts itself or the partition; `reason` is what the job waits with."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Fine:
    """The rules about cores and devices of a node that plain jobs do without; 0 or empty: no such rule."""

    gres: tuple[GresRequest, ...] = ()
    """Of each node, without GPUs."""
    gres_task: tuple[GresRequest, ...] = ()
    gres_each: tuple[int, ...] = ()
    """The same by column of the fleet."""
    gres_each_task: tuple[int, ...] = ()
    gpus_per_socket: tuple[int, ...] = ()
    """By column."""
    sockets: int = 0
    """Nodes need at least so many; with `gpus_per_socket` cores and GPUs come from exactly so many."""
    cores_per_socket: int = 0
    threads: int = 0
    """Nodes need at least so many threads a core, and no more of them are used."""
    per_core: int = 0
    """Most tasks on a core."""
    per_socket: int = 0
    """Most tasks on a socket."""
    cores_in_socket: int = 0
    """Most cores taken of a socket."""
    socket_cpus: int = 0
    """Most CPUs that all jobs of the partition may have on a socket."""
    system_cores: int = -1
    """Cores left to the system; -1: those that the node keeps anyway."""
    whole_sockets: bool = False
    bind: bool = False
    """GPUs only near the job's cores."""
    unbound: bool = False
    """Nearness does not matter."""
    one_task_a_gpu: bool = False
    """Shares for different tasks are on different GPUs."""
    many_gpus: bool = False
    """Shares may be on several GPUs."""
    emptiest: bool = False
    """Shares are taken where the largest part is free."""
    rows: int = 0
    """Jobs that may have the same cores."""
    cpu_columns: tuple[tuple[int, int], ...] = ()
    """(column, times): columns that count the CPUs of the job."""
    open_column: int = 0
    """Column of the CPUs that jobs without GPUs may have; 0: none."""
    shares: int = 0
    """Parts of GPUs are asked for; the number of columns that count whole ones."""
    whole_gpus: bool = False
    """GPUs are asked for where some nodes give theirs in shares: those go with them."""


@dataclass(frozen=True, slots=True)
class Need:
    """A request with all derivations made."""

    nodes: int
    """Fewest nodes."""
    nodes_max: int
    """Most nodes; not less than `nodes`."""
    grows: bool
    """As many nodes as possible up to `nodes_max`, without waiting for them; otherwise as few as fit."""
    tasks: int
    """Of the job; 0: `tasks_each` on each node."""
    tasks_each: int
    tasks_cap: int
    """Most tasks on a node; 0: no bound."""
    cpus_per_task: int
    min_cpus: int
    gpus_each: tuple[int, ...]
    """By column of the fleet, as the next two."""
    gpus_task: tuple[int, ...]
    gpus_total: tuple[int, ...]
    tasks_per_gpu: int
    """GPUs follow from the tasks: one for so many of them; 0: not asked."""
    cpus_per_gpu: int
    memory_each: int
    """MiB on each node; ALL; 0: by the next two."""
    memory_per_cpu: int
    memory_per_gpu: int
    memory_max: int
    """Most that ALL may mean; 0: no bound."""
    memory_counts: bool
    """Memory is consumed; otherwise it only filters nodes."""
    tmp_mib: int
    whole: bool
    """Nodes of its own."""
    user: bool
    """Nodes shared with jobs of the same user only."""
    overcommit: bool
    fine: Fine | None = None
    """None: a plain job."""

    @property
    def uneven(self) -> bool:
        """Nodes may get different shares: tasks or GPUs are counted for the whole job, and over several nodes."""
        return self.nodes_max > 1 and bool(self.tasks or self.gpus_total[0])


def derive(fleet: Fleet, settings: Settings, partition: PartitionSpec, request: Request) -> Need:
    """Give what a request needs in a partition; raises Impossible with the reason."""
    each, task, total = (_gpu_vector(fleet, r) for r in (request.gpus_per_node, request.gpus_per_task, request.gpus))
    nodes = max(request.nodes_min, len(request.nodelist), partition.min_nodes, 1)
    nodes_max = request.nodes_max
    tasks, tasks_each, cap = request.ntasks, 0, request.ntasks_per_node
    per_gpu = request.ntasks_per_gpu

    if total[0] and each[0]:
        nodes = nodes_max = _quotient(total[0], each[0], "--gpus", "--gpus-per-node")
        total = _zero(total)
    if total[0] and task[0]:
        wanted = _quotient(total[0], task[0], "--gpus", "--gpus-per-task")
        if tasks and tasks != wanted:
            raise _gres(f"{tasks} tasks with {task[0]} GPUs each are not {total[0]} GPUs")
        tasks, total = wanted, _zero(total)
    if each[0] and task[0]:
        fit = _quotient(each[0], task[0], "--gpus-per-node", "--gpus-per-task")
        task = _zero(task)
        cap = min(cap, fit) if cap else fit
        if not tasks:
            tasks_each = cap
    if per_gpu:
        if each[0]:
            fit = each[0] * per_gpu
            cap = min(cap, fit) if cap else fit
            if not tasks:
                tasks_each = cap
        elif total[0]:
            if tasks and tasks != total[0] * per_gpu:
                raise _gres(f"{tasks} tasks are not {per_gpu} for each of {total[0]} GPUs")
            tasks = total[0] * per_gpu
        if each[0] or task[0]:
            per_gpu = 0
    if not tasks and not tasks_each:
        tasks_each = cap or 1
    cpus_per_gpu = request.cpus_per_gpu or _default_cpus_per_gpu(settings, partition, request)
    whole = request.exclusive == "node" or partition.exclusive == "NODE" or partition.oversubscribe == "EXCLUSIVE"
    fine = _fine(fleet, settings, partition, request, whole)
    each_mib, per_cpu_mib, per_gpu_mib, cpus_per_task = _memory(settings, partition, request)
    fit = _tasks_by_memory(
        settings, partition, request, per_cpu_mib=per_cpu_mib, per_gpu_mib=per_gpu_mib,
        cpus_per_task=cpus_per_task, cpus_per_gpu=cpus_per_gpu, gpus_each=each[0],
    )  # fmt: skip
    if fit:
        most = max(nodes, _nodes_there(partition))
        if nodes_max:
            most = max(1, min(most, nodes_max))
        on_a_node = max(tasks_each, -(-tasks // most))
        if on_a_node > fit:
            asked = per_cpu_mib * cpus_per_task * on_a_node
            raise _over_memory(partition, asked, _memory_max(settings, partition))
        cap = min(cap, fit) if cap else fit
    if max(tasks, tasks_each) > settings.max_tasks_per_node:
        if tasks_each > settings.max_tasks_per_node:
            raise Impossible(
                Reason.BAD_CONSTRAINTS,
                f"{tasks_each} tasks a node are asked for, MaxTasksPerNode allows {settings.max_tasks_per_node}",
            )
        cap = min(cap or settings.max_tasks_per_node, settings.max_tasks_per_node)
    if tasks:
        if cap:
            nodes = max(nodes, -(-tasks // cap))
        if tasks < nodes:  # Fewer tasks than nodes: as many nodes as tasks, but all that are named.
            nodes = max(tasks, len(request.nodelist))
            nodes_max = min(nodes_max, nodes) if nodes_max else 0
            if tasks < nodes:
                tasks, tasks_each = 0, 1
        elif nodes_max > tasks:
            nodes_max = max(tasks, nodes)
    if nodes_max and nodes_max < nodes:
        if request.nodes_max and request.nodes_max < max(request.nodes_min, len(request.nodelist)):
            raise Impossible(Reason.BAD_CONSTRAINTS, "more nodes are named or needed at least than may be used at most")
        raise Impossible(Reason.PARTITION_NODE_LIMIT, f"at most {nodes_max} nodes are asked for, {nodes} are needed")
    if len({one.type for one in request.gpus}) > 1:
        if nodes > 1:
            raise _gres("GPUs of several types must be asked for by node when the job has several nodes")
        nodes_max = 1
    most = _most_nodes(partition, nodes)
    if not nodes_max:
        nodes_max = min(tasks or most, most) if tasks or total[0] else nodes
    nodes_max = max(nodes, min(nodes_max, most))
    return Need(
        nodes=nodes,
        nodes_max=nodes_max,
        grows=request.nodes_max > request.nodes_min and nodes_max > nodes,
        tasks=tasks,
        tasks_each=tasks_each,
        tasks_cap=cap,
        gpus_each=each,
        gpus_task=task,
        gpus_total=total,
        tasks_per_gpu=per_gpu,
        min_cpus=request.min_cpus,
        cpus_per_gpu=cpus_per_gpu,
        tmp_mib=request.tmp_mib,
        whole=whole or (fine is not None and fine.system_cores >= 0),
        user=request.exclusive == "user" or partition.exclusive == "USER",
        overcommit=request.overcommit,
        memory_each=each_mib,
        memory_per_cpu=per_cpu_mib,
        memory_per_gpu=per_gpu_mib,
        memory_max=_memory_max(settings, partition),
        memory_counts=settings.memory_consumable,
        cpus_per_task=cpus_per_task,
        fine=fine,
    )


def amount(need: Need, kind: Kind, tasks: int, share: tuple[int, ...] = ()) -> Amount:
    """Give what `tasks` tasks (and a `share` of --gpus) take on a node of this kind."""
    gpus = gpus_for(need, tasks, share)
    asked_gpus = gpus[0]
    fine = need.fine
    if need.whole:
        # All that the node has; where it has less than is asked for, the larger number keeps the job away.
        gpus = tuple(max(have, asked) for have, asked in zip(kind.gpus, gpus, strict=True))
        if fine is not None and fine.shares:  # Then its GPUs are not given whole.
            gpus = (*fine.gres_each[: fine.shares], *gpus[fine.shares :])
    cpus = need.cpus_per_task if need.overcommit else tasks * need.cpus_per_task
    cpus = max(cpus, need.min_cpus, need.cpus_per_gpu * asked_gpus, 1)
    usable = cpus = -(-cpus // kind.threads) * kind.threads
    if fine is not None:
        cpus, usable = _fine_cpus(need, fine, kind, tasks, max(need.min_cpus, need.cpus_per_gpu * asked_gpus, 1))
    if need.whole:
        every = kind.cpus
        if fine is not None and fine.system_cores >= 0:
            every = min(every, (kind.socket_count * kind.socket_cores - fine.system_cores) * kind.threads)
        cpus = max(cpus, every)
        usable = max(usable, cpus)
    if need.memory_each == ALL:
        memory = min(kind.memory_mib, need.memory_max) if need.memory_max else kind.memory_mib
    elif need.memory_each:
        memory = need.memory_each
    else:
        memory = need.memory_per_cpu * usable + need.memory_per_gpu * asked_gpus
    if fine is not None:
        gpus = _with_cpu_columns(need, fine, kind, cpus, gpus=gpus, asked_gpus=asked_gpus)
    return cpus, memory, gpus


def gpus_for(need: Need, tasks: int, share: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Give the GPUs by column that `tasks` tasks ask for on one node."""
    gpus = need.gpus_each
    if need.gpus_task[0]:
        gpus = tuple(have + tasks * more for have, more in zip(gpus, need.gpus_task, strict=True))
    elif need.tasks_per_gpu and not need.gpus_total[0]:
        gpus = (gpus[0] + -(-tasks // need.tasks_per_gpu), *gpus[1:])
    if share:
        gpus = tuple(have + more for have, more in zip(gpus, share, strict=True))
    fine = need.fine
    if fine is not None:
        if fine.gres_each:
            gpus = tuple(have + more for have, more in zip(gpus, fine.gres_each, strict=True))
        if fine.gres_each_task:
            gpus = tuple(have + tasks * more for have, more in zip(gpus, fine.gres_each_task, strict=True))
    return gpus


def tasks_in(need: Need, kind: Kind, cpus: int) -> int:
    """Give the most tasks for which so many CPUs of a node suffice."""
    fine = need.fine
    if fine is None or need.overcommit:
        return cpus // need.cpus_per_task
    cores = cpus // kind.threads
    if fine.whole_sockets:
        each = max(1, kind.socket_cores)
        cores = cores // each * each
    used = min(fine.threads, kind.threads) if fine.threads else kind.threads
    if fine.per_core:
        on_a_core = min(fine.per_core, used // need.cpus_per_task)
        tasks = cores * on_a_core if on_a_core else cores // -(-need.cpus_per_task // used)
    else:
        tasks = cores * used // need.cpus_per_task
    if fine.per_socket:
        tasks = min(tasks, fine.per_socket * kind.socket_count)
    return tasks


def cores_of_tasks(need: Need, kind: Kind, tasks: int) -> int:
    """Give the fewest cores on which so many tasks have their CPUs."""
    fine = need.fine
    used = min(fine.threads, kind.threads) if fine is not None and fine.threads else kind.threads
    if fine is not None and fine.per_core:
        on_a_core = min(fine.per_core, used // need.cpus_per_task)
        return -(-tasks // on_a_core) if on_a_core else tasks * -(-need.cpus_per_task // used)
    return -(-tasks * need.cpus_per_task // used)


def _fine_cpus(need: Need, fine: Fine, kind: Kind, tasks: int, least: int) -> tuple[int, int]:
    """Give the CPUs that are taken (of whole cores or sockets) and those among them that the job uses."""
    used = min(fine.threads, kind.threads) if fine.threads else kind.threads
    asked = need.cpus_per_task if need.overcommit else tasks * need.cpus_per_task
    cores = -(-max(asked, least) // used)
    if fine.per_core and not need.overcommit:
        cores = max(cores, cores_of_tasks(need, kind, tasks))
    if fine.per_socket and not need.overcommit:
        full, rest = divmod(tasks, fine.per_socket)
        by_socket = full * cores_of_tasks(need, kind, fine.per_socket) + cores_of_tasks(need, kind, rest)
        cores = max(cores, by_socket)
    if fine.whole_sockets:
        rounded = -(-cores // kind.socket_cores) * kind.socket_cores
        cores = min(rounded, kind.cores) if cores <= kind.cores else rounded
    return cores * kind.threads, cores * used


def _with_cpu_columns(
    need: Need, fine: Fine, kind: Kind, cpus: int, *, gpus: tuple[int, ...], asked_gpus: int
) -> tuple[int, ...]:
    """Add what the job takes of columns that count CPUs, on nodes of a kind that has them."""
    if not (fine.cpu_columns or fine.open_column or fine.whole_gpus):
        return gpus
    found = list(gpus)
    if fine.whole_gpus and not need.whole:
        for columns, each in kind.shares:
            for at in columns:
                found[at] += asked_gpus * each
    for at, times in fine.cpu_columns:
        if kind.gpus[at]:
            found[at] = cpus * times
    if fine.open_column and kind.restricted:
        with_gpus = kind.restricted.bit_count() * kind.threads if asked_gpus else 0
        found[fine.open_column] = max(0, min(cpus, kind.cpus) - with_gpus)
    return tuple(found)


def share_vector(need: Need, gpus: int) -> tuple[int, ...]:
    """Give a node's share of --gpus by column; empty when the job does not ask for GPUs that way."""
    if not need.gpus_total[0]:
        return ()
    if gpus == need.gpus_total[0]:
        return need.gpus_total
    return tuple(gpus if count else 0 for count in need.gpus_total)


def alone(need: Need) -> Need:
    """Give the same need with nodes of its own: how a job that shares with its own user only is planned ahead."""
    return replace(need, whole=True, user=False)


def _default_cpus_per_gpu(settings: Settings, partition: PartitionSpec, request: Request) -> int:
    """DefCpuPerGPU holds where neither CPUs of a task nor of a GPU were asked for."""
    if request.cpus_per_task > 1 or (request.fine is not None and request.fine.one_cpu):
        return 0
    return partition.def_cpus_per_gpu or settings.def_cpus_per_gpu


def _fine(fleet: Fleet, settings: Settings, partition: PartitionSpec, request: Request, whole: bool) -> Fine | None:
    """Give the rules beyond plain counting; None when there are none."""
    asked = request.fine or _NO_FINE
    flags = settings.select_flags
    per_core = asked.ntasks_per_core or (1 if "cr_one_task_per_core" in flags else 0)
    rows = 0 if whole else rows_of(partition, request.oversubscribe)
    columns: list[tuple[int, int]] = []
    if partition.name in fleet.capped:
        columns.append((fleet.column[f"cpus@{partition.name}"], 1))
    for name, other in fleet.sharing.items():
        times = 1 if rows and name == partition.name else other.oversubscribe_jobs
        columns.append((fleet.column[f"rows@{name}"], times))
    wanted = (*asked.gres, *asked.gres_per_task)
    system = asked.core_spec
    if asked.thread_spec >= 0:
        threads_there = max((kind.threads for kind in fleet.kinds), default=1)
        system = -(-asked.thread_spec // threads_there)
    fine = Fine(
        gres=asked.gres,
        gres_task=asked.gres_per_task,
        gres_each=_gres_vector(fleet, asked.gres),
        gres_each_task=_gres_vector(fleet, asked.gres_per_task),
        gpus_per_socket=_gpu_vector(fleet, asked.gpus_per_socket) if asked.gpus_per_socket else (),
        sockets=asked.sockets_per_node,
        cores_per_socket=asked.cores_per_socket,
        threads=asked.threads_per_core,
        per_core=per_core,
        per_socket=asked.ntasks_per_socket,
        cores_in_socket=asked.cores_in_socket,
        socket_cpus=max(0, partition.max_cpus_per_socket),
        system_cores=system,
        whole_sockets=fleet.by_socket,
        bind="enforce-binding" in asked.gres_flags
        or ("enforce_binding_gres" in flags and "disable-binding" not in asked.gres_flags),
        unbound="disable-binding" in asked.gres_flags,
        one_task_a_gpu="one-task-per-sharing" in asked.gres_flags
        or (
            "one_task_per_sharing_gres" in flags
            and not {"multiple-tasks-per-sharing", "allow-task-sharing"}.intersection(asked.gres_flags)
        ),
        many_gpus="multiple_sharing_gres_pj" in flags,
        emptiest="ll_shared_gres" in flags,
        rows=rows,
        cpu_columns=tuple(columns),
        open_column=fleet.column.get("open", 0),
    )
    if not any(one.name in SHARING for one in wanted):
        fine = replace(fine, one_task_a_gpu=False, many_gpus=False, emptiest=False)
    else:
        fine = replace(fine, shares=1 + len(fleet.types))
    if not (request.gpus_per_node or request.gpus or request.gpus_per_task or request.ntasks_per_gpu):
        fine = replace(fine, bind=False, unbound=False)
    elif any(kind.shares for kind in fleet.kinds):
        fine = replace(fine, whole_gpus=True)
    return None if fine == _PLAIN else fine


_NO_FINE = FineRequest()
_PLAIN = Fine()


def _gres_vector(fleet: Fleet, wanted: tuple[GresRequest, ...]) -> tuple[int, ...]:
    """Count by column what is used up; () when nothing is."""
    if not wanted:
        return ()
    counts = [0] * fleet.width
    for one in wanted:
        for name in names(one):
            if name in fleet.column:
                counts[fleet.column[name]] += one.count
    return tuple(counts) if any(counts) else ()


def _nodes_there(partition: PartitionSpec) -> int:
    there = len(partition.nodes)
    return there if partition.max_nodes == UNLIMITED else min(there, partition.max_nodes)


def _most_nodes(partition: PartitionSpec, nodes: int) -> int:
    """Give the most nodes that a job may have in the partition, which must be at least `nodes`."""
    most = _nodes_there(partition)
    if nodes > most:
        raise Impossible(
            Reason.PARTITION_NODE_LIMIT, f"{nodes} nodes are needed and partition {partition.name} gives at most {most}"
        )
    return most


def _memory(settings: Settings, partition: PartitionSpec, request: Request) -> tuple[int, int, int, int]:
    """Give memory for a node, for a CPU and for a GPU, and the CPUs of a task (which MaxMemPerCPU may raise)."""
    most_node = _memory_max(settings, partition)
    most_cpu = partition.max_memory_per_cpu_mib or settings.max_memory_per_cpu_mib
    cpus_per_task = max(1, request.cpus_per_task)
    each, per_cpu, per_gpu = request.memory_per_node_mib, request.memory_per_cpu_mib, request.memory_per_gpu_mib
    if each < 0 and not per_cpu and not per_gpu:
        with_gpus = request.gpus or request.gpus_per_node or request.gpus_per_task or request.ntasks_per_gpu
        for source in (partition, settings):
            each = source.def_memory_per_node_mib
            per_gpu = source.def_memory_per_gpu_mib if with_gpus and not each else 0
            per_cpu = 0 if each or per_gpu else source.def_memory_per_cpu_mib
            if each or per_cpu or per_gpu:
                break
        else:
            each = ALL
    elif each == 0:
        each = ALL
    elif each < 0:
        each = 0
    if per_cpu and most_cpu and per_cpu > most_cpu:
        factor = -(-per_cpu // most_cpu)
        cpus_per_task *= factor
        per_cpu = -(-per_cpu // factor)
    if most_node and each > most_node:
        raise _over_memory(partition, each, most_node)
    return each, per_cpu, per_gpu, cpus_per_task


def _memory_max(settings: Settings, partition: PartitionSpec) -> int:
    """Give the most MiB of a node that a job may have there; 0: no bound."""
    return partition.max_memory_per_node_mib or settings.max_memory_per_node_mib


def _over_memory(partition: PartitionSpec, asked_mib: int, most_mib: int) -> Impossible:
    return Impossible(
        Reason.MAX_MEMORY, f"{asked_mib} MiB a node are asked for, partition {partition.name} gives at most {most_mib}"
    )


def _tasks_by_memory(
    settings: Settings,
    partition: PartitionSpec,
    request: Request,
    *,
    per_cpu_mib: int,
    per_gpu_mib: int,
    cpus_per_task: int,
    cpus_per_gpu: int,
    gpus_each: int,
) -> int:
    """Give how many tasks a node may have within MaxMemPerNode where memory is asked for by CPU; 0: no bound.

    Raises:
        Impossible: not one task, or not the CPUs or GPUs that each node must give.
    """
    most = _memory_max(settings, partition)
    by_gpu = per_gpu_mib * gpus_each
    if not most or not (per_cpu_mib or by_gpu):
        return 0
    least = per_cpu_mib * max(cpus_per_task, request.min_cpus, cpus_per_gpu * gpus_each) + by_gpu
    if least > most:
        raise _over_memory(partition, least, most)
    if not per_cpu_mib or request.overcommit:
        return 0
    return (most - by_gpu) // (per_cpu_mib * cpus_per_task)


def _gpu_vector(fleet: Fleet, wanted: tuple[GpuRequest, ...]) -> tuple[int, ...]:
    """Count a request by column: any type, then each type that has a column."""
    if not wanted:
        return (0,) * fleet.width
    counts = [0] * fleet.width
    for one in wanted:
        counts[0] += one.count
        if one.type in fleet.types:
            counts[1 + fleet.types.index(one.type)] += one.count
    return tuple(counts)


def _zero(vector: tuple[int, ...]) -> tuple[int, ...]:
    return (0,) * len(vector)


def _quotient(whole: int, part: int, whole_name: str, part_name: str) -> int:
    if whole % part:
        raise _gres(f"{whole_name}={whole} is no multiple of {part_name}={part}")
    return whole // part


def _gres(what: str) -> Impossible:
    return Impossible(Reason.BAD_CONSTRAINTS, f"Invalid generic resource (gres) specification: {what}")

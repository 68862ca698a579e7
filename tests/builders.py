"""Builders: each states only what matters to the test; all else has a plain default."""

from __future__ import annotations

from ctld.core.apply.indexes import rebuild
from ctld.core.cluster import Node, NodeSpec, PartitionSpec, Settings
from ctld.core.model import UNLIMITED, ArraySpec, Caller, Job, JobSpec, Request
from ctld.core.state import State
from muster.ids import JobId, UnixTime

NOON = UnixTime(1_750_000_000)
USER = Caller(uid=1000, gid=1000)
OTHER = Caller(uid=1001, gid=1001)
ADMIN = Caller(uid=0, gid=0, admin=True)


def a_node_spec(
    name: str = "n1",
    *,
    cpus: int = 64,
    memory_mib: int = 256_000,
    gpus: int = 8,
    gpu_type: str = "",
    threads: int = 1,
    sockets: int = 1,
    weight: int = 1,
    features: tuple[str, ...] = (),
) -> NodeSpec:
    """A node as configured: `cpus` CPUs on cpus / threads cores."""
    return NodeSpec(
        name=name,
        cpus=cpus,
        sockets=sockets,
        cores_per_socket=cpus // threads // sockets,
        threads_per_core=threads,
        memory_mib=memory_mib,
        weight=weight,
        features=features,
        gpus=(gpu_type,) * gpus,
    )


def a_partition(name: str = "main", *, nodes: int | tuple[int, ...] = 4, **fields: object) -> PartitionSpec:
    """A partition over the first `nodes` nodes (or over these indexes)."""
    indexes = tuple(range(nodes)) if isinstance(nodes, int) else nodes
    fields.setdefault("default", name == "main")
    return PartitionSpec(name=name, nodes=indexes, **fields)  # type: ignore[arg-type]


def a_state(
    nodes: int = 4,
    *,
    cpus: int = 64,
    memory_mib: int = 256_000,
    gpus: int = 8,
    gpu_type: str = "",
    threads: int = 1,
    settings: Settings | None = None,
    partitions: tuple[PartitionSpec, ...] | None = None,
) -> State:
    """A state with nodes n1..nN that are up, and the partition `main` over all of them."""
    state = State()
    state.settings = settings or Settings(require_registration=False)
    for index in range(nodes):
        spec = a_node_spec(
            f"n{index + 1}", cpus=cpus, memory_mib=memory_mib, gpus=gpus, gpu_type=gpu_type, threads=threads
        )
        state.nodes.append(Node(index=index, spec=spec))
    for partition in partitions or (a_partition(nodes=nodes),):
        state.partitions[partition.name] = partition
    rebuild(state)
    return state


def a_spec(*, partitions: tuple[str, ...] = ("main",), request: Request | None = None, **fields: object) -> JobSpec:
    """A job as asked for by uid 1000; fields of Request may be given by name too (`ntasks=3`)."""
    shape = {name: fields.pop(name) for name in Request.__struct_fields__ if name in fields}
    array = fields.get("array")
    if isinstance(array, tuple):
        size = sum(high - low + 1 for low, high in zip(array[::2], array[1::2], strict=True))
        fields["array"] = ArraySpec(tasks=array, size=size)
    given: dict[str, object] = {
        "name": "job",
        "uid": 1000,
        "gid": 1000,
        "user": "ada",
        "group": "ada",
        "work_dir": "/home/ada",
        **fields,
    }
    return JobSpec(partitions=partitions, request=request or Request(**shape), **given)  # type: ignore[arg-type]


def a_job(
    job_id: int = 1,
    *,
    spec: JobSpec | None = None,
    priority: int = 100,
    limit_seconds: int = UNLIMITED,
    submitted_at: int = NOON,
    **fields: object,
) -> Job:
    """A pending job that could start at once; fields of Job, JobSpec and Request may be given by name."""
    own = {name: fields.pop(name) for name in Job.__struct_fields__ if name in fields}
    spec = spec or a_spec(**fields)  # type: ignore[arg-type]
    if spec.array:
        own.setdefault("array_job_id", job_id)
        own.setdefault("array_pending", spec.array.tasks)
    own.setdefault("eligible_at", submitted_at)
    return Job(
        id=JobId(job_id),
        spec=spec,
        submitted_at=UnixTime(submitted_at),
        priority=priority,
        limit_seconds=limit_seconds,
        **own,  # type: ignore[arg-type]
    )

"""Scheduling tests: put jobs into a state, carry a plan out, and check starts without the scheduler's own code."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.free import core_count, cpus_per_core
from ctld.core.model import UNLIMITED, Allocation, Job, NodeShare
from ctld.core.plan import Plan, Start
from ctld.core.state import State
from ctld.sched.memory import PlanMemory
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import NOON, a_job


def everywhere(state: State) -> int:
    """All nodes answer."""
    return (1 << len(state.nodes)) - 1


def queued(state: State, *jobs: Job) -> State:
    """Put pending jobs into the queue."""
    for job in jobs:
        state.jobs[job.id] = job
        state.queue.add(job)
        if job.array_job_id:
            state.by_array.setdefault(job.array_job_id, set()).add(job.id)
    return state


def running(state: State, job: Job, *shares: NodeShare, partition: str = "main", since: int = NOON) -> Job:
    """Let a job run on these shares."""
    job = replace(
        job,
        state=int(JobState.RUNNING),
        started_at=UnixTime(since),
        alloc=Allocation(partition, shares),
        array_pending=(),
    )
    state.jobs[job.id] = job
    state.running[job.id] = None
    state.run_log.note(job.id)
    if job.array_job_id:
        state.array_running[job.array_job_id] = state.array_running.get(job.array_job_id, 0) + 1
    for share in shares:
        state.free.take(share, job.spec.uid, job.spec.request.exclusive, partition)
        state.node_jobs[share.node][job.id] = None
    return job


def changed(state: State, job: Job, /, **fields: object) -> Job:
    """Give a running job other fields."""
    job = replace(job, **fields)
    state.jobs[job.id] = job
    state.run_log.note(job.id)
    return job


def ended(state: State, job_id: int) -> None:
    """Let a running job end, with nothing left behind."""
    job = state.jobs.pop(job_id)
    del state.running[job_id]
    state.run_log.note(job_id)
    if job.array_job_id:
        state.by_array[job.array_job_id].discard(job_id)
        state.array_running[job.array_job_id] -= 1
    assert job.alloc is not None
    for share in job.alloc.shares:
        state.free.give(share, job.spec.uid, job.spec.request.exclusive, job.alloc.partition)
        del state.node_jobs[share.node][job_id]


def carried_out(state: State, plan: Plan, at: int = NOON) -> None:
    """Do to the state what the starts of a plan do."""
    for start in plan.starts:
        job = state.jobs[start.job_id]
        if start.task_id < 0:
            state.queue.discard(job.id)
            running(state, job, *start.shares, partition=start.partition, since=at)
            continue
        rest = ranges.without(job.array_pending, start.task_id)
        new_id = max(state.jobs) + 1 if rest else job.id
        member = replace(job, id=JobId(new_id), array_task_id=start.task_id)
        if rest:
            state.jobs[job.id] = replace(job, array_pending=rest)
        else:
            state.queue.discard(job.id)
        running(state, member, *start.shares, partition=start.partition, since=at)
        state.by_array.setdefault(job.array_job_id, set()).add(new_id)


def with_the_same_promises(memory: PlanMemory, small: int = 64) -> PlanMemory:
    """Give a memory that knows nothing but what was promised."""
    fresh = PlanMemory(small)
    fresh.holds = {name: hold.copy() for name, hold in memory.holds.items()}
    return fresh


def busy(state: State, job_id: int, node: int, cpus: int, *, gpus: int = 0, memory: int = 0, **fields: object) -> Job:
    """Let a job run on the lowest free cores of a node. `limit_seconds` may be given."""
    bits = ranges.lowest_bits(state.free.cores[node], cpus // cpus_per_core(state.nodes[node].spec))
    gpu_bits = ranges.lowest_bits(state.free.gpus[node], gpus)
    share = NodeShare(node, cpus, ranges.from_bitmap(bits), memory, ranges.from_bitmap(gpu_bits), 1)
    fields.setdefault("limit_seconds", UNLIMITED)
    return running(state, a_job(job_id, **fields), share)  # type: ignore[arg-type]


def faults_of(state: State, start: Start) -> list[str]:
    """Check a start against its request in plain words, for requests without memory defaults and --gpus mixtures."""
    job = state.jobs[start.job_id]
    request = job.spec.request
    faults = []
    nodes = [share.node for share in start.shares]
    if nodes != sorted(set(nodes)):
        faults.append("nodes are not in order")
    partition = state.partitions[start.partition]
    if start.partition not in job.spec.partitions or not set(nodes) <= set(partition.nodes):
        faults.append("outside the partition")
    names = {state.nodes[node].spec.name for node in nodes}
    if not set(request.nodelist) <= names or names & set(request.exclude):
        faults.append("nodelist or exclude")
    least = min(request.nodes_min, request.ntasks or request.nodes_min)  # No more nodes than tasks.
    if len(nodes) < least or (request.nodes_max and len(nodes) > request.nodes_max):
        faults.append(f"{len(nodes)} nodes")
    if request.ntasks and sum(share.tasks for share in start.shares) != request.ntasks:
        faults.append("tasks")
    total_gpus = sum(ranges.count(share.gpus) for share in start.shares)
    if request.gpus and request.exclusive != "node" and total_gpus != sum(one.count for one in request.gpus):
        faults.append("gpus of the job")
    for share in start.shares:
        spec = state.nodes[share.node].spec
        threads = cpus_per_core(spec)
        gpus = ranges.count(share.gpus)
        if share.cpus % threads or (ranges.count(share.cores) * threads != share.cpus):
            faults.append("cores and CPUs disagree")
        if share.cpus < max(share.tasks * request.cpus_per_task, request.min_cpus, request.cpus_per_gpu * gpus):
            faults.append("too few CPUs")
        if request.ntasks_per_node and share.tasks > request.ntasks_per_node:
            faults.append("too many tasks on a node")
        if request.exclusive == "node" and ranges.count(share.cores) != core_count(spec):
            faults.append("not the whole node")
        wanted = sum(one.count for one in request.gpus_per_node)
        wanted = max(wanted, share.tasks * sum(one.count for one in request.gpus_per_task))
        if (gpus < wanted) or (wanted and gpus != wanted and request.exclusive != "node"):
            faults.append("gpus of the node")
        if request.memory_per_node_mib > 0 and share.memory_mib != request.memory_per_node_mib:
            faults.append("memory of the node")
        if request.memory_per_node_mib == 0 and share.memory_mib != spec.memory_mib:
            faults.append("not all memory")
        if request.memory_per_cpu_mib and share.memory_mib != request.memory_per_cpu_mib * share.cpus:
            faults.append("memory for the CPUs")
    return faults

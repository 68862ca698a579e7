"""Outcome records of runs and steps, for the events that end them and for sacct asking about live jobs.

Both ways lead through the same two functions, so that what sacct shows of a running job and what accounting
keeps of it once it has ended are the same fields computed in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ctld.core import licenses
from ctld.core.cluster import PartitionSpec, Settings
from ctld.core.devices import names
from ctld.core.free import exclusive_mode
from ctld.core.model import (
    UNLIMITED,
    GpuRequest,
    GresRequest,
    GresShare,
    Job,
    NodeShare,
    Ranges,
    Request,
    Step,
    StepResult,
)
from ctld.core.state import State
from ctld.core.times import suspended_until
from muster import hostlist
from muster.ids import BATCH_STEP, NO_TASK, UnixTime
from muster.idset import IdSet, format_task_list
from muster.records import RunRecord, StepRecord
from muster.signals import describe_signal
from muster.states import JobState, Reason
from muster.usage import MAX_TRES, MAX_TRES_GRES, billing

OOM_SIGNAL = 125
"""Pseudo signal that an out-of-memory end shows (`0:125`)."""
TERM = 15
_TASK_LIST_BYTES = 4096
"""Longest list of array members in a record."""


def run_record(
    state: State,
    job: Job,
    *,
    word: str = "",
    exit_status: int | None = None,
    derived_status: int | None = None,
    ended_at: UnixTime | None = None,
    state_text: str | None = None,
    failed_node: str | None = None,
    cancelled_by: int | None = None,
    tasks: Ranges | None = None,
) -> RunRecord:
    """Say all that accounting keeps of a run; what is not given stands in the job's record.

    Args:
        word: state word; empty: the job's own.
        exit_status: wait status word as `scontrol show job` shows it (accounting's own differs, see
            `accounted_status`).
        tasks: members that the record stands for, of an array's pending rest (None: all that are pending).
    """
    spec = job.spec
    word = word or JobState(job.state).name
    partition = state.partitions.get(job.alloc.partition if job.alloc else spec.partitions[0])
    mode = exclusive_mode(spec.request.exclusive, partition)
    running = job.alloc is not None and job.started_at > 0
    shares = job.alloc.shares if job.alloc is not None and running else ()
    asked = requested_tres(state, job)
    status = job.exit_status if exit_status is None else exit_status
    if cancelled_by is None:
        cancelled_by = job.kill.by if job.kill is not None and word == "CANCELLED" else -1
    return RunRecord(
        job_id=job.id,
        run=job.restarts,
        name=spec.name,
        uid=spec.uid,
        gid=spec.gid,
        user=spec.user,
        group=spec.group,
        account=spec.account,
        partition=job.alloc.partition if job.alloc is not None else ",".join(spec.partitions),
        qos=spec.qos,
        state=word,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        array_tasks=_array_tasks(job, tasks),
        exit_status=accounted_status(word, status),
        derived_status=job.derived_status if derived_status is None else derived_status,
        cancelled_by=cancelled_by,
        submitted_at=job.submitted_at,
        eligible_at=job.eligible_at,
        started_at=job.started_at,
        ended_at=job.ended_at if ended_at is None else ended_at,
        suspended_seconds=job.suspended_seconds if ended_at is None else suspended_until(job, ended_at),
        suspended_at=job.suspended_at if ended_at is None and job.state == JobState.SUSPENDED else 0,
        time_limit_minutes=_minutes(job.limit_seconds),
        requested_cpus=asked["cpu"],
        requested_nodes=asked["node"],
        requested_memory_mib=asked.get("mem", 0),
        requested_tres=asked,
        allocated_cpus=sum(share.cpus for share in shares),
        allocated_nodes=len(shares),
        allocated_tres=billed(state, shares, partition, licensed(job)),
        nodelist=nodelist(state, shares),
        work_dir=spec.work_dir,
        submit_line=spec.submit_line,
        comment=spec.comment,
        std_out=spec.std_out or _default_output(job),
        std_err=spec.std_err,
        std_in=spec.std_in or ("/dev/null" if spec.batch else ""),
        reason=_queue_reason(job),
        state_text=job.state_text if state_text is None else state_text,
        priority=state.queue.priority(job),
        failed_node=job.failed_node if failed_node is None else failed_node,
        constraints=spec.request.constraint,
        exclusive=mode.upper() or "NO",
        oversubscribe="YES" if spec.request.oversubscribe else "NO" if mode == "node" else "OK",
        scheduler=job.alloc.planned_by if job.alloc is not None else "Main",
        wckey=spec.wckey,
    )


def batch_record(
    state: State, job: Job, result: StepResult | None, *, ended_at: UnixTime, status: int = TERM
) -> StepRecord:
    """Say how the batch step of a run ended; without a result (its node is gone) `status` stands for it."""
    assert job.alloc is not None, "a batch step has a node"
    results = (result,) if result is not None else ()
    return _step_record(
        state,
        job,
        step_id=int(BATCH_STEP),
        name="batch",
        shares=job.alloc.shares[:1],
        ntasks=1,
        started_at=job.started_at,
        ended_at=ended_at,
        results=results,
        status=aggregate_status(results) if results else status,
        cancelled_by=-1,
        word="" if results else "CANCELLED",
    )


def step_record(
    state: State,
    job: Job,
    step: Step,
    *,
    ended_at: UnixTime | None = None,
    word: str = "",
    status: int | None = None,
) -> StepRecord:
    """Say how a numbered step ended, or, with `ended_at` left out, what is known of one that goes on."""
    if ended_at is None:
        word = word or "RUNNING"
    if status is None:
        status = aggregate_status(step.results)
        if not word and step.kill is not None and step.kill.state == JobState.TIMEOUT:
            word = "TIMEOUT"
        elif not word and step.kill is not None and step.kill.by >= 0:
            word = "CANCELLED"
    return _step_record(
        state,
        job,
        step_id=int(step.step_id),
        name=step.name,
        shares=step.shares,
        ntasks=step.ntasks,
        started_at=step.created_at,
        ended_at=ended_at or UnixTime(0),
        results=step.results,
        status=status,
        cancelled_by=step.kill.by if step.kill is not None else -1,
        word=word,
        submit_line=" ".join(step.argv),
    )


def _step_record(
    state: State,
    job: Job,
    *,
    step_id: int,
    name: str,
    shares: tuple[NodeShare, ...],
    ntasks: int,
    started_at: UnixTime,
    ended_at: UnixTime,
    results: Sequence[StepResult],
    status: int,
    cancelled_by: int,
    word: str,
    submit_line: str = "",
) -> StepRecord:
    largest = max(results, key=lambda result: result.max_rss_bytes, default=None)
    used = largest is not None and largest.max_rss_bytes > 0
    amounts = tres(state, shares)
    amounts.pop("billing", None)
    return StepRecord(
        job_id=job.id,
        run=job.restarts,
        step_id=step_id,
        name=name,
        state=word or step_word_of(status),
        exit_status=status,
        started_at=min((result.started_at for result in results if result.started_at), default=started_at),
        ended_at=ended_at,
        nodes=len(shares),
        nodelist=nodelist(state, shares),
        tasks=ntasks,
        cpus=sum(share.cpus for share in shares),
        allocated_tres=amounts,
        user_ms=sum(result.user_ms for result in results),
        system_ms=sum(result.system_ms for result in results),
        max_rss_bytes=largest.max_rss_bytes if largest is not None else 0,
        max_rss_node=state.nodes[largest.node].spec.name if largest is not None and used else "",
        max_rss_task=min((task.rank for task in largest.tasks), default=0) if largest is not None and used else 0,
        cancelled_by=cancelled_by,
        submit_line=submit_line,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
    )


# ---- statuses --------------------------------------------------------------------------------------------------


def aggregate_status(results: Iterable[StepResult]) -> int:
    """Give the wait status word of a step: out of memory, else its highest task status; 256 if it never
    began."""
    worst = 0
    for result in results:
        if result.oom:
            return OOM_SIGNAL
        if result.error and not result.tasks:
            worst = max(worst, 1 << 8)
        for task in result.tasks:
            # An exit code above a signal, as srun's own status counts 128 + signal for the latter.
            worst = max(worst, task.status, key=_weight)
    return worst


def _weight(status: int) -> int:
    return status >> 8 if not status & 0x7F else 128 + (status & 0x7F)


def step_word_of(status: int) -> str:
    """Give the state of a step from how it ended; one that died of a signal is CANCELLED."""
    if status & 0x7F == OOM_SIGNAL:
        return "OUT_OF_MEMORY"
    if status & 0x7F:
        return "CANCELLED"
    return "FAILED" if status else "COMPLETED"


def end_of(status: int) -> tuple[JobState, str]:
    """Give the state and the reason of a job that ended by itself with this status."""
    signo = status & 0x7F
    if signo == OOM_SIGNAL:
        return JobState.OUT_OF_MEMORY, Reason.OUT_OF_MEMORY
    if signo:
        return JobState.FAILED, f"{Reason.RAISED_SIGNAL}:{signo}({describe_signal(signo)})"
    if status:
        return JobState.FAILED, Reason.NON_ZERO_EXIT
    return JobState.COMPLETED, ""


def accounted_status(word: str, status: int) -> int:
    """Give the exit status that accounting shows on the job's own row.

    A cancelled job and one that hit its limit show 0:0 there whatever their script did; a failed node shows
    1:0.
    """
    if word in ("CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED"):
        return 0
    if word == "NODE_FAIL":
        return 1 << 8
    return status


# ---- resources -------------------------------------------------------------------------------------------------


def nodelist(state: State, shares: Sequence[NodeShare]) -> str:
    """Print the nodes of an allocation, in node-table order."""
    if len(shares) == 1:
        return state.nodes[shares[0].node].spec.name
    return hostlist.compress([state.nodes[share.node].spec.name for share in shares]) if shares else ""


def tres(state: State, shares: Iterable[NodeShare]) -> dict[str, int]:
    """Count what an allocation has: cpu, mem (MiB), node, billing, gres/gpu and, where typed,
    gres/gpu:<type>."""
    cpus = memory = nodes = gpus = 0
    typed: dict[str, int] = {}
    others: dict[str, int] = {}
    for share in shares:
        nodes += 1
        cpus += share.cpus
        memory += share.memory_mib
        for one in share.gres:
            for name in _gres_names(one):
                others[name] = others.get(name, 0) + one.count
        if share.gpus:
            types = state.nodes[share.node].spec.gpus
            for place in range(0, len(share.gpus), 2):
                first, behind = share.gpus[place], share.gpus[place + 1] + 1
                gpus += behind - first
                for kind in types[first:behind]:
                    if kind:
                        typed[kind] = typed.get(kind, 0) + 1
    if not nodes:
        return {}
    amounts: dict[str, int] = {}
    if cpus:
        amounts["cpu"] = cpus
    if memory:
        amounts["mem"] = memory
    amounts["node"] = nodes
    if cpus:
        amounts["billing"] = cpus
    if gpus:
        amounts["gres/gpu"] = gpus
        amounts.update((f"gres/gpu:{kind}", count) for kind, count in sorted(typed.items()))
    if others:
        amounts.update((name, count) for name, count in sorted(others.items()) if count)
    return amounts


def _gres_names(one: GresShare | GresRequest) -> tuple[str, ...]:
    return tuple(f"gres/{name}" for name in names(one))


def billed(
    state: State, shares: Iterable[NodeShare], partition: PartitionSpec | None, licences: Mapping[str, int]
) -> dict[str, int]:
    """Count what an allocation has, with its licences (see `licensed`) and what the partition's weights bill for it."""
    amounts = tres(state, shares)
    if amounts:
        amounts.update(licences)
    if amounts and partition is not None and partition.billing_weights:
        amounts["billing"] = int(billing(amounts, partition.billing_weights, billing_mode(state.settings)))
        if not amounts["billing"]:
            del amounts["billing"]
    return amounts


def licensed(job: Job) -> dict[str, int]:
    """Count the licences that a run has as TRES or, before it, those that are asked for where that leaves no choice."""
    if job.alloc is not None and job.state != JobState.PENDING:
        text = job.alloc.licenses
    else:
        text = job.spec.request.licenses
    wanted = licenses.wanted_of(text)
    return licenses.as_tres(wanted[0]) if len(wanted) == 1 else {}


def billing_mode(settings: Settings) -> str:
    """Give the word of PriorityFlags that says how billing weights are taken together."""
    flags = settings.priority.flags
    return next((mode for mode in (MAX_TRES_GRES, MAX_TRES) if mode in flags), "")


def requested_tres(state: State, job: Job) -> dict[str, int]:
    """Count what a job asked for, defaults filled in; cpu and node are always there.

    Memory that was not asked for and has no default is all memory of a node, known once it
    runs.
    """
    request = job.spec.request
    tasks, nodes = requested_size(request)
    gpus = requested_gpus(request, nodes, tasks)
    gpu_count = sum(gpus.values())
    cpus = max(tasks * request.cpus_per_task, nodes * request.min_cpus, gpu_count * request.cpus_per_gpu, 1)
    memory = _requested_memory(state, job, nodes, cpus, gpu_count)
    amounts = {"cpu": cpus, "mem": memory, "node": nodes, "billing": cpus, "gres/gpu": gpu_count}
    amounts.update({f"gres/gpu:{kind}": count for kind, count in sorted(gpus.items()) if kind})
    if request.fine is not None:
        for one, times in [(one, nodes) for one in request.fine.gres] + [
            (one, tasks) for one in request.fine.gres_per_task
        ]:
            for name in _gres_names(one):
                amounts[name] = amounts.get(name, 0) + one.count * times
    wanted = licenses.wanted_of(request.licenses)
    if len(wanted) == 1:
        amounts.update(licenses.as_tres(wanted[0]))
    return {name: amount for name, amount in amounts.items() if amount}


def requested_size(request: Request) -> tuple[int, int]:
    """Give the tasks and the (least) nodes of a request."""
    nodes = max(1, request.nodes_min)
    if request.ntasks:
        if request.ntasks_per_node:
            nodes = max(nodes, -(-request.ntasks // request.ntasks_per_node))
        return request.ntasks, nodes
    if request.ntasks_per_node:
        return nodes * request.ntasks_per_node, nodes
    if request.ntasks_per_gpu:
        per_node = sum(part.count for part in request.gpus_per_node)
        gpus = nodes * per_node or sum(part.count for part in request.gpus)
        return max(1, gpus * request.ntasks_per_gpu), nodes
    return nodes, nodes


def requested_gpus(request: Request, nodes: int, tasks: int) -> dict[str, int]:
    """Give type ("" for any) -> GPUs in the whole job."""
    whole: dict[str, int] = {}
    parts: tuple[tuple[Sequence[GpuRequest], int], ...] = (
        (request.gpus, 1),
        (request.gpus_per_node, nodes),
        (request.gpus_per_task, tasks),
    )
    for wanted, times in parts:
        for part in wanted:
            whole[part.type] = max(whole.get(part.type, 0), part.count * times)
    if not whole and request.ntasks_per_gpu:
        whole[""] = -(-tasks // request.ntasks_per_gpu)
    return whole


def _requested_memory(state: State, job: Job, nodes: int, cpus: int, gpus: int) -> int:
    request = job.spec.request
    if request.memory_per_cpu_mib:
        return request.memory_per_cpu_mib * cpus
    if request.memory_per_gpu_mib:
        return request.memory_per_gpu_mib * gpus
    if request.memory_per_node_mib > 0:
        return request.memory_per_node_mib * nodes
    if request.memory_per_node_mib < 0:
        partition = state.partitions.get(job.spec.partitions[0])
        for source in (partition, state.settings):
            if source is not None and source.def_memory_per_node_mib:
                return source.def_memory_per_node_mib * nodes
            if source is not None and source.def_memory_per_cpu_mib:
                return source.def_memory_per_cpu_mib * cpus
    return sum(share.memory_mib for share in job.alloc.shares) if job.alloc is not None else 0


# ---- texts -----------------------------------------------------------------------------------------------------


def array_text(tasks: Ranges, limit: int) -> str:
    """Print members as `5-9%2`."""
    runs = [(low, high, 1) for low, high in zip(tasks[::2], tasks[1::2], strict=True)]
    return format_task_list(IdSet(runs), limit, _TASK_LIST_BYTES)


def _array_tasks(job: Job, tasks: Ranges | None) -> str:
    members = job.array_pending if tasks is None else tasks
    if not members or job.array_task_id != NO_TASK:
        return ""
    return array_text(members, job.array_limit)


def _default_output(job: Job) -> str:
    if not job.spec.batch:
        return ""
    return "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"


def _queue_reason(job: Job) -> str:
    """Why it waited, kept from the queue: only a lasting reason (a dependency that failed for good) is in the
    state."""
    if job.reason == Reason.DEPENDENCY_NEVER:
        return Reason.DEPENDENCY_NEVER
    return Reason.NONE


def _minutes(limit_seconds: int) -> int:
    return -1 if limit_seconds == UNLIMITED else -(-limit_seconds // 60)

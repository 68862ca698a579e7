"""A job as users see it: one function a field, each from the record to a number, a text, or None for "not set".

Commands format (widths, time stamps, units); here is only what the controller alone knows. Times are seconds since
the epoch (0: not known), durations seconds (-1: unlimited), memory MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ctld.core import ranges, record
from ctld.core.decide.clauses import dependency_text
from ctld.core.free import exclusive_mode
from ctld.core.jobids import range_text
from ctld.core.model import UNLIMITED, FineRequest, GpuRequest, GresRequest, GresShare, Job, NodeShare, Request
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.core.times import grace_end, suspended_until
from ctld.sched.preempt_rules import exempt_seconds
from muster import hostlist, patterns
from muster.ids import NO_TASK, UnixTime
from muster.idset import TASK_LIST_BYTES, IdSet, format_task_list
from muster.states import COMPLETING, JobState, Reason, state_compact, state_word
from muster.tres import format_tres

Value = int | str | None
Field = Callable[["JobView", Job], Value]

_PLAIN = FineRequest()
PENDING = int(JobState.PENDING)
RUNNING = int(JobState.RUNNING)
SUSPENDED = int(JobState.SUSPENDED)
# Base states whose reason is shown in the place of the nodes (squeue's %R).
_REASON_FOR_NODES = frozenset(
    int(state)
    for state in (
        JobState.PENDING,
        JobState.TIMEOUT,
        JobState.OUT_OF_MEMORY,
        JobState.DEADLINE,
        JobState.FAILED,
    )
)


class JobView:
    """Looks at jobs at one moment.

    Args:
        state: read, never changed.
        at: the moment.
        wait_of: why a pending job waits (`ctld.sched.explain.reason_of` with the overlay of the moment).
        task_list_bytes: how long the text of an array's members may get (SLURM_BITSTR_LEN), 0 for all of it.
        planned_at: when the whole queue was last planned; 0: not yet.
    """

    def __init__(
        self,
        state: State,
        at: UnixTime,
        wait_of: Callable[[Job], Wait],
        *,
        task_list_bytes: int = TASK_LIST_BYTES,
        planned_at: int = 0,
    ) -> None:
        self.state = state
        self.at = at
        self._wait_of = wait_of
        self._task_list_bytes = task_list_bytes
        self._planned_at = planned_at
        self._waiting: Job | None = None
        self._wait: Wait = Wait(Reason.NONE)
        self._sizes: dict[int, tuple[int, int]] = {}

    def wait(self, job: Job) -> Wait:
        """Why and for when a pending job waits; several fields of one row ask, the answer is made once."""
        if self._waiting is not job:
            self._wait = self._wait_of(job)
            self._waiting = job
        return self._wait

    def size(self, request: Request) -> tuple[int, int]:
        """Tasks and least nodes of a request; requests are shared by many jobs, and live as long as these."""
        found = self._sizes.get(id(request))
        if found is None:
            found = self._sizes[id(request)] = record.requested_size(request)
        return found

    def task_list(self, job: Job) -> str:
        """The members of a pending array that have not started: `3-9%2`."""
        pending = job.array_pending
        runs = [(low, high, 1) for low, high in zip(pending[::2], pending[1::2], strict=True)]
        return format_task_list(IdSet(runs), job.array_limit, self._task_list_bytes)

    def partition(self, job: Job) -> str:
        """Where it runs or ran, else all that it asked for."""
        return ",".join(partitions_of(job))

    def shares(self, job: Job) -> tuple[NodeShare, ...]:
        """Its nodes; none while it is pending, also when an earlier run is still being cleaned up."""
        return job.alloc.shares if job.alloc is not None and job.state != PENDING else ()

    def nodelist(self, job: Job) -> str:
        """Its nodes as text."""
        shares = self.shares(job)
        return record.nodelist(self.state, shares) if shares else ""

    def reason(self, job: Job) -> str:
        """Why it waits or ended: free text where there is some, else the word."""
        if job.state == PENDING:
            if job.state_text:
                return job.state_text
            wait = self.wait(job)
            return wait.text or wait.reason
        if job.state <= SUSPENDED:
            return Reason.NONE
        return job.state_text or job.reason or Reason.NONE

    def start(self, job: Job) -> int:
        """When it started, or is planned to, or may at the earliest; 0: not known."""
        if job.state != PENDING:
            return job.started_at
        return self.wait(job).start_at or (job.begin_at if job.begin_at > self.at else 0)

    def evaluated(self, job: Job) -> int:
        """When it started, or was last planned with the whole queue. Passes over the heads of the queue come many
        times a second and are not noted one by one."""
        if job.state == PENDING and job.eligible_at:
            return max(job.eligible_at, self._planned_at)
        return job.started_at or job.eligible_at

    def end(self, job: Job) -> int:
        """When it ended or will have to; 0: not known."""
        if job.state > SUSPENDED:
            return job.ended_at
        start = self.start(job)
        end = start + job.limit_seconds + suspended_until(job, self.at) if start and job.limit_seconds >= 0 else 0
        grace = grace_end(job)
        return min(end, grace) if grace and end else grace or end

    def used(self, job: Job) -> int:
        """Seconds that it has run."""
        if job.state == PENDING or not job.started_at:
            return 0
        end = job.ended_at if job.state > SUSPENDED else self.at
        return max(0, end - job.started_at - suspended_until(job, self.at))

    def left(self, job: Job) -> int | None:
        """Seconds left of its limit (negative: it is over); None: unlimited."""
        return None if job.limit_seconds == UNLIMITED else job.limit_seconds - self.used(job)

    def nodes(self, job: Job) -> int:
        """Its nodes, or the least that it asked for."""
        return len(self.shares(job)) or self.size(job.spec.request)[1]

    def cpus(self, job: Job) -> int:
        """Its CPUs, or those that it asked for."""
        shares = self.shares(job)
        return sum(share.cpus for share in shares) if shares else record.requested_tres(self.state, job)["cpu"]

    def memory(self, job: Job) -> tuple[str, int]:
        """What its memory is counted by (Node, CPU or TRES), and MiB of it; 0: all or nothing, as configured."""
        request = job.spec.request
        if request.memory_per_cpu_mib:
            return "CPU", request.memory_per_cpu_mib
        if request.memory_per_gpu_mib:
            return "TRES", request.memory_per_gpu_mib
        if request.memory_per_node_mib >= 0:
            return "Node", request.memory_per_node_mib
        for source in (self.state.partitions.get(job.spec.partitions[0]), self.state.settings):
            if source is not None and source.def_memory_per_cpu_mib:
                return "CPU", source.def_memory_per_cpu_mib
            if source is not None and source.def_memory_per_node_mib:
                return "Node", source.def_memory_per_node_mib
        return "Node", 0

    def exclusive(self, job: Job) -> str:
        """NO, NODE or USER."""
        mode = exclusive_mode(job.spec.request.exclusive, self.state.partitions.get(partitions_of(job)[0]))
        return mode.upper() or "NO"

    def oversubscribe(self, job: Job) -> str:
        """NO, YES or OK."""
        if job.spec.request.oversubscribe:
            return "YES"
        return "OK" if self.exclusive(job) == "NO" and job.state == PENDING else "NO"

    def path(self, job: Job, asked: str, default: str, *, expanded: bool) -> str:
        """A file of the batch script, absolute; with `expanded` its patterns are filled in."""
        spec = job.spec
        name = asked or default
        if not name or not spec.batch:
            return ""
        if patterns.is_none(name):
            return "/dev/null"
        if not name.startswith("/"):
            name = f"{spec.work_dir}/{name}"
        if not expanded:
            return name
        shares = self.shares(job)
        values = patterns.batch_values(
            job_id=job.id,
            job_name=spec.name,
            user=spec.user,
            array_job_id=job.array_job_id or None,
            array_index=job.array_task_id if job.array_task_id != NO_TASK else None,
            restarts=job.restarts,
            node=self.state.nodes[shares[0].node].spec.name if shares else "",
        )
        return patterns.expand(name, values)


def partitions_of(job: Job) -> tuple[str, ...]:
    """Give where a job runs or ran; all that it asked for while it waits, also when an earlier run is cleaned up."""
    return (job.alloc.partition,) if job.alloc is not None and job.state != PENDING else job.spec.partitions


def reservation_of(job: Job) -> str:
    """Give the reservation that a job runs or ran in; those that it asked for while it waits."""
    if job.alloc is not None and job.state != PENDING:
        return job.alloc.reservation
    return ",".join(job.spec.request.reservations)


def listed_id(view: JobView, job: Job) -> Value:
    """`5`, `100_3` for a member, `100_[5-9%2]` for the pending rest of an array."""
    if not job.array_job_id:
        return job.id
    if job.array_task_id != NO_TASK:
        return f"{job.array_job_id}_{job.array_task_id}"
    return f"{job.array_job_id}_[{view.task_list(job)}]"


def _task(view: JobView, job: Job) -> Value:
    if job.array_task_id != NO_TASK:
        return job.array_task_id
    return view.task_list(job) if job.array_job_id else None


def _nodes_or_reason(view: JobView, job: Job) -> Value:
    if job.state in _REASON_FOR_NODES:
        return f"({view.reason(job)})"
    return view.nodelist(job)


def _batch_host(view: JobView, job: Job) -> Value:
    shares = view.shares(job)
    return view.state.nodes[shares[0].node].spec.name if shares else None


def _command(view: JobView, job: Job) -> Value:
    spec = job.spec
    if not spec.batch:
        return ""
    return " ".join((spec.command, *spec.script_args)) if spec.command else None


def _node_range(view: JobView, job: Job) -> Value:
    """`NumNodes=` of show job: the number, or least and most of a job that waits."""
    if job.state != PENDING:
        return view.nodes(job)
    request = job.spec.request
    tasks, nodes = view.size(request)
    if request.nodes_max:
        return f"{nodes}-{max(nodes, request.nodes_max)}"
    if request.gpus or request.gpus_per_node or request.gpus_per_task:
        return nodes
    return f"{nodes}-{max(nodes, tasks)}"


def _tasks(view: JobView, job: Job) -> Value:
    return view.size(job.spec.request)[0]


def _least_cpus(view: JobView, job: Job) -> Value:
    request = job.spec.request
    return max(1, request.min_cpus, request.cpus_per_task * max(1, request.ntasks_per_node))


def _requested_tres(view: JobView, job: Job) -> Value:
    return format_tres(record.requested_tres(view.state, job))


def _allocated_tres(view: JobView, job: Job) -> Value:
    shares = view.shares(job)
    if not shares:
        return None
    partition = view.state.partitions.get(job.alloc.partition) if job.alloc is not None else None
    amounts = record.billed(view.state, shares, partition, record.licensed(job))
    if not view.state.settings.memory_consumable:
        amounts.pop("mem", None)
    return format_tres(amounts)


def gpu_text(parts: Sequence[GpuRequest], sign: str = ":") -> str | None:
    """GPUs asked for: `gres/gpu:2`, `gres/gpu:a100:2`."""
    return ",".join(f"gres/gpu{':' + part.type if part.type else ''}{sign}{part.count}" for part in parts) or None


def gres_texts(parts: Sequence[GresRequest], sign: str = ":") -> list[str]:
    """Other generic resources asked for: `gres/nic:2`, `gres/shard:a100:4`."""
    return [f"gres/{part.name}{':' + part.type if part.type else ''}{sign}{part.count}" for part in parts]


def _per_node(view: JobView, job: Job) -> Value:
    request = job.spec.request
    fine = request.fine
    gpus = gpu_text(request.gpus_per_node) if fine is None or not fine.gpus_per_socket else None
    texts = gres_texts(fine.gres) if fine is not None else []
    return ",".join([gpus, *texts] if gpus else texts) or None


def _asked(job: Job) -> FineRequest:
    return job.spec.request.fine or _PLAIN


def _core_spec(view: JobView, job: Job) -> Value:
    """`2` cores or `4 Threads` of each node for the system."""
    fine = _asked(job)
    if fine.thread_spec >= 0:
        return f"{fine.thread_spec} Threads"
    return str(fine.core_spec) if fine.core_spec >= 0 else None


def _sockets_cores_threads(view: JobView, job: Job) -> Value:
    fine = _asked(job)
    asked = (fine.sockets_per_node, fine.cores_per_socket, fine.threads_per_core)
    return ":".join([str(number or "*") for number in asked])


def _switch_wait(view: JobView, job: Job) -> int:
    """Seconds for which it is held to few switches."""
    request = job.spec.request
    most = view.state.settings.max_switch_wait_seconds
    if not request.switches:
        return 0
    return most if request.switches_wait_seconds < 0 else min(most, request.switches_wait_seconds)


def _licenses(view: JobView, job: Job) -> Value:
    return job.spec.request.licenses or None


def _gres_flags(view: JobView, job: Job) -> Value:
    return ",".join(_asked(job).gres_flags) or None


def _per_task(view: JobView, job: Job) -> Value:
    request = job.spec.request
    texts = []
    if request.cpus_per_task > 1:
        texts.append(f"cpu={request.cpus_per_task}")
    gpus = gpu_text(request.gpus_per_task, "=")
    if gpus:
        texts.append(gpus)
    if request.fine is not None:
        texts += gres_texts(request.fine.gres_per_task, "=")
    return ",".join(texts) or None


def _per_gpu(amount: int) -> str | None:
    return f"gres/gpu:{amount}" if amount else None


def _preempt_eligible(view: JobView, job: Job) -> Value:
    """From when its run may be preempted; 0 where nobody may, or it does not run."""
    if not view.state.settings.preemption.rule or not PENDING < job.state <= SUSPENDED:
        return 0
    return job.started_at + exempt_seconds(view.state, job)


def _exit_code(status: int) -> str:
    return f"{status >> 8}:{status & 0x7F}"


def _gres_detail(view: JobView, job: Job) -> Value:
    """`Nodes=... CPU_IDs=...` of `show job -d`, a line for each group of equal nodes; newline between them."""
    groups: dict[str, list[str]] = {}
    for share in view.shares(job):
        spec = view.state.nodes[share.node].spec
        threads = max(1, spec.threads_per_core)
        cpus = ranges.from_ints(
            core * threads + thread for core in ranges.numbers(share.cores) for thread in range(threads)
        )
        devices = ",".join(text for text in (used_gpus(spec.gpus, share.gpus), used_gres(share.gres)) if text)
        text = f"CPU_IDs={range_text(cpus)} Mem={share.memory_mib} GRES={devices}"
        groups.setdefault(text, []).append(spec.name)
    return "\n".join(f"Nodes={hostlist.compress(names)} {text}" for text, names in groups.items())


def used_gpus(types: Sequence[str], gpus: tuple[int, ...]) -> str:
    """`gpu:a100:2(IDX:0-1)`; one part for each type, empty without GPUs."""
    by_type: dict[str, list[int]] = {}
    for gpu in ranges.numbers(gpus):
        by_type.setdefault(types[gpu] if gpu < len(types) else "", []).append(gpu)
    return ",".join(
        f"gpu{':' + kind if kind else ''}:{len(indexes)}(IDX:{range_text(ranges.from_ints(indexes))})"
        for kind, indexes in by_type.items()
    )


def used_gres(shares: Sequence[GresShare]) -> str:
    """`nic:2(IDX:0-1)`, `bandwidth:4`, and of shards on which GPU each is: `shard:a100:6(IDX:0,1)`."""
    counts: dict[str, int] = {}
    indices: dict[str, tuple[int, ...]] = {}
    for one in shares:
        head = f"{one.name}:{one.type}" if one.type else one.name
        counts[head] = counts.get(head, 0) + one.count
        indices[head] = ranges.union(indices.get(head, ()), one.indices)
    return ",".join(
        f"{head}:{count}(IDX:{range_text(indices[head])})" if indices[head] else f"{head}:{count}"
        for head, count in counts.items()
    )


def _job_gres(view: JobView, job: Job) -> Value:
    counts: dict[str, int] = {}
    for share in view.shares(job):
        types = view.state.nodes[share.node].spec.gpus
        for gpu in ranges.numbers(share.gpus):
            kind = types[gpu] if gpu < len(types) else ""
            counts[kind] = counts.get(kind, 0) + 1
    others: dict[str, int] = {}
    for share in view.shares(job):
        for one in share.gres:
            head = f"{one.name}:{one.type}" if one.type else one.name
            others[head] = others.get(head, 0) + one.count
    texts = [f"gpu{':' + kind if kind else ''}:{count}" for kind, count in counts.items()]
    return ",".join([*texts, *(f"{head}:{count}" for head, count in others.items())]) or None


def _planned_nodes(view: JobView, job: Job) -> Value:
    nodes = view.wait(job).nodes if job.state == PENDING else ()
    return hostlist.compress([view.state.nodes[node].spec.name for node in nodes]) or None


def _output(view: JobView, job: Job, *, expanded: bool) -> str:
    default = patterns.DEFAULT_ARRAY_OUTPUT if job.array_job_id else patterns.DEFAULT_OUTPUT
    return view.path(job, job.spec.std_out, default, expanded=expanded)


def _sort_state(view: JobView, job: Job) -> Value:
    return job.state | shown_flags(job) << 8


FIELDS: dict[str, Field] = {
    "account": lambda view, job: job.spec.account or None,
    "allocated_tres": _allocated_tres,
    "array_job_id": lambda view, job: job.array_job_id or None,
    "array_limit": lambda view, job: job.array_limit,
    "array_or_job_id": lambda view, job: job.array_job_id or job.id,
    "array_task": _task,
    "batch": lambda view, job: int(job.spec.batch),
    "batch_host": _batch_host,
    "cluster": lambda view, job: view.state.settings.cluster,
    "command": _command,
    "comment": lambda view, job: job.spec.comment or None,
    "consolidate_segments": lambda view, job: int(job.spec.request.consolidate_segments),
    "contiguous": lambda view, job: int(job.spec.request.contiguous),
    "core_spec": _core_spec,
    "cores_per_socket": lambda view, job: _asked(job).cores_per_socket or None,
    "cpus": lambda view, job: view.cpus(job),
    "cpus_per_tres": lambda view, job: _per_gpu(job.spec.request.cpus_per_gpu),
    "cpus_per_task": lambda view, job: job.spec.request.cpus_per_task,
    "deadline": lambda view, job: job.spec.deadline_at,
    "dependency": lambda view, job: dependency_text(view.state, job) or None if job.clauses else None,
    "derived_exit_code": lambda view, job: _exit_code(job.derived_status),
    "eligible_at": lambda view, job: job.eligible_at or job.begin_at,
    "end_at": lambda view, job: view.end(job),
    "evaluated_at": lambda view, job: view.evaluated(job),
    "exclude": lambda view, job: hostlist.compress(job.spec.request.exclude),
    "exclusive": lambda view, job: view.exclusive(job),
    "exit_code": lambda view, job: _exit_code(job.exit_status),
    "failed_node": lambda view, job: job.failed_node,
    "features": lambda view, job: job.spec.request.constraint or None,
    "gid": lambda view, job: job.spec.gid,
    "gres_detail": _gres_detail,
    "gres_flags": _gres_flags,
    "group": lambda view, job: job.spec.group,
    "id": listed_id,
    "id_sort": lambda view, job: (job.array_job_id or job.id) << 32 | (job.array_task_id + 1),
    "job_gres": _job_gres,
    "job_id": lambda view, job: job.id,
    "kill_invalid_depend": lambda view, job: int(job.spec.kill_invalid_depend),
    "least_cpus": _least_cpus,
    "left": lambda view, job: view.left(job),
    "licenses": _licenses,
    "licenses_alloc": lambda view, job: (job.alloc.licenses or None) if job.alloc is not None else None,
    "limit": lambda view, job: job.limit_seconds,
    "memory": lambda view, job: view.memory(job)[1],
    "memory_by": lambda view, job: view.memory(job)[0],
    "memory_per_tres": lambda view, job: _per_gpu(job.spec.request.memory_per_gpu_mib),
    "name": lambda view, job: job.spec.name,
    "nice": lambda view, job: job.nice,
    "node_range": _node_range,
    "nodelist": lambda view, job: view.nodelist(job),
    "nodelist_reason": _nodes_or_reason,
    "nodes": lambda view, job: view.nodes(job),
    "nodes_max": lambda view, job: job.spec.request.nodes_max,
    "oversubscribe": lambda view, job: view.oversubscribe(job),
    "partition": lambda view, job: view.partition(job),
    "pending": lambda view, job: max(0, (job.started_at or view.at) - job.submitted_at),
    "planned_nodes": _planned_nodes,
    "prefer": lambda view, job: job.spec.request.prefer or None,
    "preempt_at": lambda view, job: job.preempted.at if job.preempted is not None else 0,
    "preempt_eligible_at": _preempt_eligible,
    "priority": lambda view, job: view.state.queue.priority(job),
    "qos": lambda view, job: job.spec.qos or None,
    "reason": lambda view, job: view.reason(job),
    "requested_nodes": lambda view, job: hostlist.compress(job.spec.request.nodelist),
    "requested_tres": _requested_tres,
    "requeue": lambda view, job: int(job.spec.requeue),
    "reservation": lambda view, job: reservation_of(job) or None,
    "restarts": lambda view, job: job.restarts,
    "scheduler": lambda view, job: job.alloc.planned_by if job.alloc is not None else "Main",
    "segment_level": lambda view, job: job.spec.request.segment_level or None,
    "segment_size": lambda view, job: job.spec.request.segment or None,
    "sid": lambda view, job: job.spec.sid,
    "sockets_cores_threads": _sockets_cores_threads,
    "sockets_per_node": lambda view, job: _asked(job).sockets_per_node or None,
    "spread_job": lambda view, job: int(job.spec.request.spread_job),
    "spread_segments": lambda view, job: int(job.spec.request.spread_segments),
    "start_at": lambda view, job: view.start(job),
    "started_at": lambda view, job: job.started_at,
    "state": lambda view, job: state_word(job.state, shown_flags(job)),
    "state_base": lambda view, job: job.state,
    "state_compact": lambda view, job: state_compact(job.state, shown_flags(job)),
    "state_sort": _sort_state,
    "std_err": lambda view, job: view.path(job, job.spec.std_err, "", expanded=False),
    "std_err_path": lambda view, job: view.path(job, job.spec.std_err, "", expanded=True),
    "std_in": lambda view, job: view.path(job, job.spec.std_in, "/dev/null", expanded=False),
    "std_in_path": lambda view, job: view.path(job, job.spec.std_in, "/dev/null", expanded=True),
    "std_out": lambda view, job: _output(view, job, expanded=False),
    "std_out_path": lambda view, job: _output(view, job, expanded=True),
    "submit_host": lambda view, job: job.spec.submit_host or None,
    "submit_line": lambda view, job: job.spec.submit_line,
    "submitted_at": lambda view, job: job.submitted_at,
    "suspended_at": lambda view, job: job.suspended_at,
    "seconds_before_suspension": lambda view, job: (
        job.suspended_at - job.started_at - job.suspended_seconds if job.state == SUSPENDED else 0
    ),
    "switch_wait": _switch_wait,
    "switches": lambda view, job: job.spec.request.switches,
    "task_id": lambda view, job: job.array_task_id,
    "tasks": _tasks,
    "tasks_per_core": lambda view, job: _asked(job).ntasks_per_core or None,
    "tasks_per_gpu": lambda view, job: job.spec.request.ntasks_per_gpu,
    "tasks_per_node": lambda view, job: job.spec.request.ntasks_per_node,
    "tasks_per_socket": lambda view, job: _asked(job).ntasks_per_socket or None,
    "threads_per_core": lambda view, job: _asked(job).threads_per_core or None,
    "time_min": lambda view, job: job.spec.request.time_min_minutes * 60,
    "topology": lambda view, job: job.spec.request.topology or None,
    "tmp": lambda view, job: job.spec.request.tmp_mib,
    "tres": lambda view, job: _allocated_tres(view, job) or _requested_tres(view, job),
    "tres_per_job": lambda view, job: gpu_text(job.spec.request.gpus),
    "tres_per_node": _per_node,
    "tres_per_socket": lambda view, job: gpu_text(_asked(job).gpus_per_socket),
    "tres_per_task": _per_task,
    "uid": lambda view, job: job.spec.uid,
    "use_min_nodes": lambda view, job: int(job.spec.request.use_min_nodes),
    "used": lambda view, job: view.used(job),
    "user": lambda view, job: job.spec.user,
    "wckey": lambda view, job: job.spec.wckey or None,
    "work_dir": lambda view, job: job.spec.work_dir,
}
"""Field name -> what gives it. Commands ask by these names (`GET /v1/jobs?fields=id,name`)."""


def shown_flags(job: Job) -> int:
    """Give a job's flags as users see them: one that was ordered to end is COMPLETING until its processes are gone."""
    return job.flags | COMPLETING if job.kill is not None and JobState.PENDING < job.state <= SUSPENDED else job.flags


def is_current(job: Job) -> bool:
    """Tell whether squeue shows a job that nobody asked for by state."""
    return job.state <= SUSPENDED or bool(job.flags & COMPLETING)

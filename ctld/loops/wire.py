"""Records to protobuf messages and back; nothing is decided here."""

from __future__ import annotations

import msgspec

from ctld.core import ranges
from ctld.core.cluster import NodeFacts
from ctld.core.devices import shared_gpus
from ctld.core.model import Job, JobSpec, NodeShare, Ranges, Step, StepResult, TaskResult
from ctld.core.state import State
from ctld.core.times import limit_end
from ctld.sched.addresses import variables
from muster import hostlist, units
from muster.ids import BATCH_STEP, UnixTime
from muster.v1 import node_pb2


class StepLaunch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What srun says about launching a step that only the nodes need (`Step.launch`)."""

    work_dir: str = "/"
    std_in: str = ""
    """Pattern; empty: streamed from srun."""
    std_out: str = ""
    std_err: str = ""
    std_in_mode: str = "stream"
    """stream | none | a task's number | file."""
    open_mode: str = ""
    umask: int = 0o022
    rlimits: dict[str, int] = {}
    label: bool = False
    unbuffered: bool = False
    launch_host: str = "127.0.0.1"
    token: str = ""
    """By which a repeated request for the step is known; empty: none was given."""


encode_step_launch = msgspec.msgpack.Encoder().encode
decode_step_launch = msgspec.msgpack.Decoder(StepLaunch).decode


def node_facts(message: node_pb2.Register) -> NodeFacts:
    """Read what a node says of itself."""
    return NodeFacts(
        hostname=message.hostname,
        addr=message.addr,
        port=message.port,
        version=message.version,
        arch=message.arch,
        os=message.os,
        boot_at=UnixTime(message.boot_at),
        boot_id=message.boot_id,
        agent_started_at=UnixTime(message.agent_started_at),
        cpus=message.cpus,
        sockets=message.sockets,
        cores_per_socket=message.cores_per_socket,
        threads_per_core=message.threads_per_core,
        memory_mib=message.memory_mib,
        tmp_mib=message.tmp_mib,
        gpus=tuple(message.gpus),
    )


def step_result(node: int, message: node_pb2.StepEnded) -> StepResult:
    """Read how a step ended on a node."""
    return StepResult(
        node=node,
        tasks=tuple(TaskResult(rank=task.rank, status=task.status) for task in message.tasks),
        started_at=UnixTime(message.started_at),
        ended_at=UnixTime(message.ended_at),
        user_ms=message.user_ms,
        system_ms=message.system_ms,
        max_rss_bytes=message.max_rss_bytes,
        oom=message.oom,
        error=message.error,
        node_at_fault=message.node_at_fault,
    )


def batch_launch(state: State, job: Job) -> node_pb2.Launch:
    """Say what the first node of a run is to begin: its batch script."""
    assert job.alloc is not None
    spec, share = job.spec, job.alloc.shares[0]
    launch = _launch(state, job, share, int(BATCH_STEP))
    launch.here.node_id = 0
    launch.here.ranks.extend((0, 0))
    launch.script = spec.script
    launch.environment = spec.environment
    launch.argv.extend(spec.script_args)
    launch.work_dir = spec.work_dir
    launch.std_in, launch.std_out, launch.std_err = spec.std_in, spec.std_out, spec.std_err
    launch.open_mode = spec.open_mode or ("a" if state.settings.job_file_append else "t")
    launch.umask = spec.umask
    launch.rlimits.update(spec.rlimits)
    launch.get_user_env = spec.get_user_env
    launch.export = spec.export
    return launch


def step_launch(state: State, job: Job, step: Step, place: int) -> node_pb2.Launch:
    """Say what the `place`-th node of a step is to begin."""
    share = step.shares[place]
    launch = _launch(state, job, share, int(step.step_id))
    options = decode_step_launch(step.launch) if step.launch else StepLaunch()
    launch.here.node_id = place
    launch.here.ranks.extend(step.ranks[place])
    launch.environment = step.environment
    launch.argv.extend(step.argv)
    launch.work_dir = options.work_dir
    launch.std_in, launch.std_out, launch.std_err = options.std_in, options.std_out, options.std_err
    launch.open_mode = options.open_mode or "t"
    launch.umask = options.umask
    launch.rlimits.update(options.rlimits)
    facts = launch.step
    facts.name = step.name
    facts.ntasks = step.ntasks
    facts.num_nodes = len(step.shares)
    facts.nodelist = nodelist(state, step.shares)
    facts.tasks_per_node = units.format_runs([part.tasks for part in step.shares])
    facts.cpus_per_task = step.cpus_per_task
    facts.label, facts.unbuffered = options.label, options.unbuffered
    facts.kill_on_bad_exit = step.kill_on_bad_exit
    facts.launch_host = options.launch_host
    facts.std_in_mode = options.std_in_mode
    return launch


def nodelist(state: State, shares: tuple[NodeShare, ...]) -> str:
    """Print the nodes of an allocation in node-table order."""
    nodes = state.nodes
    if len(shares) == 1:
        return nodes[shares[0].node].spec.name
    return hostlist.compress([nodes[share.node].spec.name for share in shares])


def _launch(state: State, job: Job, share: NodeShare, step_id: int) -> node_pb2.Launch:
    spec = job.spec
    launch = node_pb2.Launch(
        job_id=job.id,
        run=job.restarts,
        step_id=step_id,
        uid=spec.uid,
        gid=spec.gid,
        user=spec.user,
        group=spec.group,
        kill_wait_seconds=state.settings.kill_wait_seconds,
    )
    _fill_job(state, job, launch.job)
    launch.job.echo.update(variables(state, job, share.node))
    here = launch.here
    here.node_name = state.nodes[share.node].spec.name
    here.cpus = share.cpus
    here.cores.extend(share.cores)
    here.gpus.extend(_visible(share))
    for one in share.gres:
        here.gres[one.name] += one.count
    here.memory_mib = share.memory_mib
    assert job.alloc is not None
    for part in job.alloc.shares:
        if part.node == share.node:
            here.job_gpus.extend(_visible(part))
    return launch


def _visible(share: NodeShare) -> Ranges:
    """Give the GPUs that a share may see: whole ones, and those of which it has parts."""
    if not share.gres:
        return share.gpus
    return ranges.from_bitmap(ranges.to_bitmap(share.gpus) | shared_gpus(share.gres))


def _fill_job(state: State, job: Job, facts: node_pb2.JobFacts) -> None:
    assert job.alloc is not None
    spec, shares = job.spec, job.alloc.shares
    request = spec.request
    facts.name, facts.account, facts.qos = spec.name, spec.account, spec.qos
    facts.partition = job.alloc.partition
    facts.cluster = state.settings.cluster
    facts.array_task_id = job.array_task_id
    if job.array_job_id and spec.array is not None:
        facts.array_job_id = job.array_job_id
        facts.array_count = spec.array.size
        facts.array_min = spec.array.tasks[0]
        facts.array_max = spec.array.tasks[-1]
        facts.array_step = spec.array.step
    facts.nodelist = nodelist(state, shares)
    facts.num_nodes = len(shares)
    facts.cpus_per_node = units.format_runs([share.cpus for share in shares])
    facts.tasks_per_node = units.format_runs([share.tasks for share in shares])
    facts.ntasks = _given_tasks(spec, shares)
    facts.cpus_per_task = request.cpus_per_task if "SLURM_CPUS_PER_TASK" in spec.echo else 0
    facts.started_at = job.started_at
    facts.ends_at = max(0, limit_end(job)) if job.limit_seconds > 0 else 0
    facts.restarts = job.restarts
    facts.submit_dir = spec.work_dir
    facts.submit_host = spec.submit_host
    facts.echo.update(spec.echo)
    if job.alloc.licenses:
        facts.echo["SLURM_JOB_LICENSES"] = job.alloc.licenses
    if request.memory_per_cpu_mib:
        facts.memory_per_cpu_mib = request.memory_per_cpu_mib
    elif request.memory_per_node_mib >= 0:
        facts.memory_per_node_mib = request.memory_per_node_mib or shares[0].memory_mib


def _given_tasks(spec: JobSpec, shares: tuple[NodeShare, ...]) -> int:
    """SLURM_NTASKS is there only if -n, --ntasks-per-node or --ntasks-per-gpu was given."""
    return (spec.request.ntasks or sum(share.tasks for share in shares)) if spec.tasks_given else 0

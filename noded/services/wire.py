"""The controller's launch message into what a stepd reads; nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.v1 import node_pb2
from noded.launch.spec import Job, Launch, Step


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What this agent adds to every launch."""

    socket: str
    """The local socket, for MUSTER_SOCKET."""
    config: str
    """For SLURM_CONF; empty: unset."""
    append_output: bool
    """JobFileAppend, for launches that do not say how their files are opened."""


def stepd_launch(message: node_pb2.Launch, environment: bytes, cgroup: str, around: Surroundings) -> Launch:
    """Make what the stepd reads of a launch.

    Args:
        message: from the controller.
        environment: the blob that it names.
        cgroup: folder of the step's group, or empty.
        around: what this agent adds.
    """
    here = message.here
    return Launch(
        job_id=message.job_id,
        run=message.run,
        step_id=message.step_id,
        uid=message.uid,
        gid=message.gid,
        user=message.user,
        group=message.group,
        job=_job(message.job),
        step=_step(message.step) if message.HasField("step") else None,
        node_name=here.node_name,
        node_id=here.node_id,
        cpus=here.cpus,
        gpus=members(here.gpus),
        job_gpus=members(here.job_gpus),
        gres=dict(here.gres),
        # Devices are not fenced in this release, so their numbers are the machine's.
        local_gpu_numbers=False,
        ranks=members(here.ranks) or [0],
        script=bool(message.script),
        environment=environment,
        argv=list(message.argv),
        work_dir=message.work_dir,
        std_in=message.std_in,
        std_out=message.std_out,
        std_err=message.std_err,
        append=message.open_mode == "a" if message.open_mode else around.append_output,
        umask=message.umask,
        rlimits=dict(message.rlimits),
        get_user_env=message.get_user_env,
        export=message.export,
        kill_wait_seconds=message.kill_wait_seconds,
        cgroup=cgroup,
        socket=around.socket,
        config=around.config,
    )


def members(ranges: Sequence[int]) -> list[int]:
    """Give the members of flat ranges `lo, hi, lo, hi`."""
    if len(ranges) == 2 and ranges[0] == ranges[1]:
        return [ranges[0]]
    return [number for low, high in zip(ranges[::2], ranges[1::2], strict=True) for number in range(low, high + 1)]


def _job(facts: node_pb2.JobFacts) -> Job:
    return Job(
        name=facts.name,
        account=facts.account,
        qos=facts.qos,
        partition=facts.partition,
        cluster=facts.cluster,
        array_job_id=facts.array_job_id,
        array_task_id=facts.array_task_id,
        array_count=facts.array_count,
        array_min=facts.array_min,
        array_max=facts.array_max,
        array_step=facts.array_step,
        nodelist=facts.nodelist,
        num_nodes=facts.num_nodes,
        cpus_per_node=facts.cpus_per_node,
        tasks_per_node=facts.tasks_per_node,
        ntasks=facts.ntasks,
        cpus_per_task=facts.cpus_per_task,
        started_at=facts.started_at,
        ends_at=facts.ends_at,
        restarts=facts.restarts,
        submit_dir=facts.submit_dir,
        submit_host=facts.submit_host,
        echo=dict(facts.echo),
        memory_per_node_mib=facts.memory_per_node_mib,
        memory_per_cpu_mib=facts.memory_per_cpu_mib,
    )


def _step(facts: node_pb2.StepFacts) -> Step:
    return Step(
        name=facts.name,
        ntasks=facts.ntasks,
        num_nodes=facts.num_nodes,
        nodelist=facts.nodelist,
        tasks_per_node=facts.tasks_per_node,
        cpus_per_task=facts.cpus_per_task,
        unbuffered=facts.unbuffered,
        kill_on_bad_exit=facts.kill_on_bad_exit,
        launch_host=facts.launch_host,
        std_in_mode=facts.std_in_mode,
    )

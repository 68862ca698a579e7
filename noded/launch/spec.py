"""What a stepd is told: the content of a step folder's `launch`.

Plain dictionaries (marshal reads and writes them in microseconds, and the zygote loads no message library); the agent
makes them from the controller's message.
"""

from __future__ import annotations

# Not loaded by the zygote: only type checkers need the classes (noded/services/wire.py makes plain dictionaries).
from typing import TypedDict


class Job(TypedDict):
    """The job, as the environment of its processes tells it; see proto/muster/v1/node.proto, JobFacts."""

    name: str
    account: str
    qos: str
    partition: str
    cluster: str
    array_job_id: int
    array_task_id: int
    array_count: int
    array_min: int
    array_max: int
    array_step: int
    nodelist: str
    num_nodes: int
    cpus_per_node: str
    tasks_per_node: str
    ntasks: int
    cpus_per_task: int
    started_at: int
    ends_at: int
    restarts: int
    submit_dir: str
    submit_host: str
    echo: dict[str, str]
    memory_per_node_mib: int
    memory_per_cpu_mib: int


class Step(TypedDict):
    """A numbered step; absent for the batch script."""

    name: str
    ntasks: int
    num_nodes: int
    nodelist: str
    tasks_per_node: str
    cpus_per_task: int
    unbuffered: bool
    kill_on_bad_exit: bool
    launch_host: str
    std_in_mode: str


class Launch(TypedDict):
    """All that a stepd needs."""

    job_id: int
    run: int
    step_id: int
    uid: int
    gid: int
    user: str
    group: str
    job: Job
    step: Step | None
    node_name: str
    node_id: int
    cpus: int
    gpus: list[int]
    """Global indexes that the step may use here."""
    job_gpus: list[int]
    """Global indexes of the whole job here."""
    gres: dict[str, int]
    """Other generic resources that the step may use here, by name."""
    local_gpu_numbers: bool
    """True: devices are constrained, so visible ones are numbered from 0."""
    ranks: list[int]
    script: bool
    """A batch script lies in the folder."""
    environment: bytes
    argv: list[str]
    work_dir: str
    std_in: str
    std_out: str
    std_err: str
    append: bool
    umask: int
    rlimits: dict[str, int]
    get_user_env: bool
    export: str
    kill_wait_seconds: int
    cgroup: str
    """Folder of the step's own cgroup, empty without one."""
    socket: str
    """Where commands in the step find their daemon."""
    config: str
    """Path of the configuration file, for SLURM_CONF; empty: unset."""

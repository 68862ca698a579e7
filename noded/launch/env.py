"""The environment of a batch script and of a step's tasks (submit.md 7.1)."""

from __future__ import annotations

import os

from muster.ids import BATCH_STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noded.launch.spec import Launch

Environment = dict[bytes, bytes]


def job_environment(launch: Launch, inherited: bytes) -> Environment:
    """Give what all tasks of a step share.

    Args:
        launch: the step.
        inherited: NAME=value entries ended by NUL: the submit environment, or srun's.
    """
    environment = _inherit(inherited)
    environment.update({os.fsencode(name): os.fsencode(text) for name, text in _job(launch).items()})
    if launch["step_id"] == BATCH_STEP:
        environment.update({os.fsencode(name): os.fsencode(text) for name, text in _batch(launch).items()})
        # Hints for MPI's own launchers, so that mpirun inside a job starts its daemons with srun.
        environment.setdefault(b"HYDRA_BOOTSTRAP", b"slurm")
        environment.setdefault(b"I_MPI_HYDRA_BOOTSTRAP", b"slurm")
    else:
        environment.update({os.fsencode(name): os.fsencode(text) for name, text in _step(launch).items()})
    _gpus(launch, environment)
    environment.setdefault(b"TMPDIR", b"/tmp")
    return environment


def task_environment(launch: Launch, shared: Environment, place: int) -> Environment:
    """Give one task's own, but for SLURM_TASK_PID (see `spawn.start`): `place` is its rank on the node."""
    own = {
        b"SLURM_PROCID": b"%d" % launch["ranks"][place],
        b"SLURM_LOCALID": b"%d" % place,
        b"SLURM_NODEID": b"%d" % launch["node_id"],
        b"SLURM_GTIDS": ",".join(map(str, launch["ranks"])).encode(),
    }
    each = _gpus_each(launch, shared)
    if each:
        shown = shared[b"CUDA_VISIBLE_DEVICES"].split(b",")
        own[b"CUDA_VISIBLE_DEVICES"] = b",".join(shown[place * each : (place + 1) * each])
    return {**shared, **own}


def _gpus_each(launch: Launch, shared: Environment) -> int:
    """Give how many GPUs each task of a step is bound to, which --gpus-per-task implies; 0: every task sees all."""
    asked = shared.get(b"SLURM_GPUS_PER_TASK", b"")
    if launch["step"] is None or not asked:
        return 0
    counts = [entry.rpartition(b":")[2] for entry in asked.split(b",")]
    each = sum(int(count) if count.isdigit() else 1 for count in counts)
    return each if 0 < each * len(launch["ranks"]) <= len(launch["gpus"]) else 0


def step_number(step_id: int) -> str:
    """Give the text of SLURM_STEP_ID: a batch script has -5."""
    return "-5" if step_id == BATCH_STEP else str(step_id)


def _inherit(entries: bytes) -> Environment:
    environment: Environment = {}
    for entry in entries.split(b"\0"):
        name, equals, text = entry.partition(b"=")
        if equals and name and not name.startswith(b"SLURM_RLIMIT_"):
            environment[name] = text
    return environment


def _job(launch: Launch) -> dict[str, str]:
    job = launch["job"]
    job_id = str(launch["job_id"])
    found = {
        "SLURM_JOB_ID": job_id,
        "SLURM_JOBID": job_id,
        "SLURM_JOB_NAME": job["name"],
        "SLURM_JOB_NODELIST": job["nodelist"],
        "SLURM_NODELIST": job["nodelist"],
        "SLURM_JOB_NUM_NODES": str(job["num_nodes"]),
        "SLURM_NNODES": str(job["num_nodes"]),
        "SLURM_JOB_CPUS_PER_NODE": job["cpus_per_node"],
        "SLURM_TASKS_PER_NODE": job["tasks_per_node"],
        "SLURM_JOB_PARTITION": job["partition"],
        "SLURM_JOB_QOS": job["qos"],
        "SLURM_JOB_USER": launch["user"],
        "SLURM_JOB_UID": str(launch["uid"]),
        "SLURM_JOB_GID": str(launch["gid"]),
        "SLURM_JOB_START_TIME": str(job["started_at"]),
        "SLURM_CLUSTER_NAME": job["cluster"],
        "SLURM_SUBMIT_DIR": job["submit_dir"],
        "SLURM_SUBMIT_HOST": job["submit_host"],
        "SLURM_CPUS_ON_NODE": str(launch["cpus"]),
        "SLURMD_NODENAME": launch["node_name"],
        "SLURM_UMASK": f"{launch['umask']:04o}",
        "MUSTER_SOCKET": launch["socket"],
    }
    if job["account"]:
        found["SLURM_JOB_ACCOUNT"] = job["account"]
    if job["ends_at"]:
        found["SLURM_JOB_END_TIME"] = str(job["ends_at"])
    if job["ntasks"]:
        found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(job["ntasks"])
    if job["cpus_per_task"]:
        found["SLURM_CPUS_PER_TASK"] = str(job["cpus_per_task"])
        found["SLURM_TRES_PER_TASK"] = f"cpu={job['cpus_per_task']}"
    if job["memory_per_cpu_mib"]:
        found["SLURM_MEM_PER_CPU"] = str(job["memory_per_cpu_mib"])
    elif job["memory_per_node_mib"]:
        found["SLURM_MEM_PER_NODE"] = str(job["memory_per_node_mib"])
    if job["array_job_id"]:
        found["SLURM_ARRAY_JOB_ID"] = str(job["array_job_id"])
        found["SLURM_ARRAY_TASK_ID"] = str(job["array_task_id"])
        found["SLURM_ARRAY_TASK_COUNT"] = str(job["array_count"])
        found["SLURM_ARRAY_TASK_MIN"] = str(job["array_min"])
        found["SLURM_ARRAY_TASK_MAX"] = str(job["array_max"])
        found["SLURM_ARRAY_TASK_STEP"] = str(job["array_step"])
    if job["restarts"]:
        found["SLURM_RESTART_COUNT"] = str(job["restarts"])
    if launch["config"]:
        found["SLURM_CONF"] = launch["config"]
    found.update(job["echo"])
    return found


def _batch(launch: Launch) -> dict[str, str]:
    found = {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": launch["node_name"],
        "SLURM_STEP_ID": step_number(BATCH_STEP),
        "SLURM_STEPID": step_number(BATCH_STEP),
    }
    if launch["job_gpus"]:
        found["SLURM_JOB_GPUS"] = ",".join(map(str, launch["job_gpus"]))
    if launch["export"]:
        found["SLURM_EXPORT_ENV"] = launch["export"]
    if launch["get_user_env"]:
        found["SLURM_GET_USER_ENV"] = "1"
    return found


def _step(launch: Launch) -> dict[str, str]:
    step = launch["step"]
    assert step is not None
    found = {
        "SLURM_STEP_ID": str(launch["step_id"]),
        "SLURM_STEPID": str(launch["step_id"]),
        "SLURM_STEP_NODELIST": step["nodelist"],
        "SLURM_STEP_NUM_NODES": str(step["num_nodes"]),
        "SLURM_STEP_NUM_TASKS": str(step["ntasks"]),
        "SLURM_STEP_TASKS_PER_NODE": step["tasks_per_node"],
        "SLURM_TASKS_PER_NODE": step["tasks_per_node"],
        "SLURM_NTASKS": str(step["ntasks"]),
        "SLURM_NPROCS": str(step["ntasks"]),
        "SLURM_NNODES": str(step["num_nodes"]),
        "SLURM_JOB_GROUP": launch["group"],
        "SLURM_LAUNCH_NODE_IPADDR": step["launch_host"],
        "SLURM_SRUN_COMM_HOST": step["launch_host"],
    }
    if launch["gpus"]:
        found["SLURM_STEP_GPUS"] = ",".join(map(str, launch["gpus"]))
    return found


def _gpus(launch: Launch, environment: Environment) -> None:
    """Say which GPUs are the step's; without any, the variables are unset (submit.md 7.1)."""
    gpus = launch["gpus"]
    for name in (b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES", b"GPU_DEVICE_ORDINAL"):
        environment.pop(name, None)
    environment.pop(b"SLURM_GPUS_ON_NODE", None)
    environment.pop(b"SLURM_SHARDS_ON_NODE", None)
    shards = launch["gres"].get("shard", 0)
    if shards:
        environment[b"SLURM_SHARDS_ON_NODE"] = b"%d" % shards
    if gpus:
        shown = range(len(gpus)) if launch["local_gpu_numbers"] else gpus
        environment[b"CUDA_VISIBLE_DEVICES"] = ",".join(map(str, shown)).encode()
        environment[b"SLURM_GPUS_ON_NODE"] = b"%d" % len(gpus)

"""What a stepd is told, each builder stating only what matters to the test."""

from __future__ import annotations

from muster.ids import BATCH_STEP
from noded.launch.spec import Job, Launch, Step


def a_job(**fields: object) -> Job:
    """A plain job."""
    job: dict[str, object] = {
        "name": "train", "account": "physics", "qos": "normal", "partition": "gpu", "cluster": "big",
        "array_job_id": 0, "array_task_id": -1, "array_count": 0, "array_min": 0, "array_max": 0, "array_step": 0,
        "nodelist": "n[1-3]", "num_nodes": 3, "cpus_per_node": "72(x2),36", "tasks_per_node": "2(x3)", "ntasks": 0,
        "cpus_per_task": 0, "started_at": 1000, "ends_at": 0, "restarts": 0, "submit_dir": "/home/ada",
        "submit_host": "login1", "echo": {}, "memory_per_node_mib": 0, "memory_per_cpu_mib": 0,
    }  # fmt: skip
    return {**job, **fields}  # type: ignore[typeddict-item]


def a_step(**fields: object) -> Step:
    """A numbered step."""
    step: dict[str, object] = {
        "name": "hostname", "ntasks": 4, "num_nodes": 2, "nodelist": "n[1-2]", "tasks_per_node": "2(x2)",
        "cpus_per_task": 1, "unbuffered": False, "kill_on_bad_exit": False, "launch_host": "10.0.0.9",
        "std_in_mode": "none",
    }  # fmt: skip
    return {**step, **fields}  # type: ignore[typeddict-item]


def a_launch(*, job: Job | None = None, step: Step | None = None, **fields: object) -> Launch:
    """A batch script's launch, or that of step 3 when a step is given."""
    launch: dict[str, object] = {
        "job_id": 42, "run": 0, "step_id": 3 if step else int(BATCH_STEP), "uid": 1000, "gid": 100, "user": "ada",
        "group": "users", "job": job or a_job(), "step": step, "node_name": "n1", "node_id": 0, "cpus": 8, "gpus": [],
        "job_gpus": [], "gres": {}, "local_gpu_numbers": False, "ranks": [0], "script": step is None,
        "environment": b"",
        "argv": [], "work_dir": "/home/ada", "std_in": "", "std_out": "", "std_err": "", "append": False,
        "umask": 0o027, "rlimits": {}, "get_user_env": False, "export": "", "kill_wait_seconds": 30, "cgroup": "",
        "socket": "/run/muster/sock", "config": "",
    }  # fmt: skip
    return {**launch, **fields}  # type: ignore[typeddict-item]

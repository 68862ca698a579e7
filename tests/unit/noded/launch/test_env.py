"""Each variable that a job's processes see."""

from __future__ import annotations

import pytest

from noded.launch import env
from noded.launch.spec import Launch
from tests.launches import a_job, a_launch, a_step


def seen(launch: Launch, inherited: bytes = b"", place: int = 0) -> dict[str, str]:
    """What one task sees."""
    shared = env.job_environment(launch, inherited)
    return {name.decode(): text.decode() for name, text in env.task_environment(launch, shared, place).items()}


BATCH = {
    "SLURM_JOB_ID": "42", "SLURM_JOBID": "42", "SLURM_JOB_NAME": "train", "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURM_NNODES": "3",
    "SLURM_JOB_CPUS_PER_NODE": "72(x2),36", "SLURM_TASKS_PER_NODE": "2(x3)", "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_QOS": "normal", "SLURM_JOB_USER": "ada", "SLURM_JOB_UID": "1000",
    "SLURM_JOB_GID": "100", "SLURM_JOB_START_TIME": "1000", "SLURM_CLUSTER_NAME": "big",
    "SLURM_SUBMIT_DIR": "/home/ada", "SLURM_SUBMIT_HOST": "login1", "SLURM_CPUS_ON_NODE": "8",
    "SLURMD_NODENAME": "n1", "SLURM_UMASK": "0027", "MUSTER_SOCKET": "/run/muster/sock", "ENVIRONMENT": "BATCH",
    "HOSTNAME": "n1", "SLURM_STEP_ID": "-5", "SLURM_STEPID": "-5", "HYDRA_BOOTSTRAP": "slurm",
    "I_MPI_HYDRA_BOOTSTRAP": "slurm", "TMPDIR": "/tmp", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0", "SLURM_GTIDS": "0",
}  # fmt: skip


def test_a_plain_batch_script_sees_these_and_no_others() -> None:
    assert seen(a_launch()) == BATCH


@pytest.mark.parametrize(
    ("launch", "more"),
    [
        (a_launch(job=a_job(ends_at=1600)), {"SLURM_JOB_END_TIME": "1600"}),
        (a_launch(job=a_job(ntasks=6)), {"SLURM_NTASKS": "6", "SLURM_NPROCS": "6"}),
        (a_launch(job=a_job(cpus_per_task=2)), {"SLURM_CPUS_PER_TASK": "2", "SLURM_TRES_PER_TASK": "cpu=2"}),
        (a_launch(job=a_job(memory_per_cpu_mib=500)), {"SLURM_MEM_PER_CPU": "500"}),
        (a_launch(job=a_job(memory_per_node_mib=900)), {"SLURM_MEM_PER_NODE": "900"}),
        (a_launch(job=a_job(restarts=2)), {"SLURM_RESTART_COUNT": "2"}),
        (
            a_launch(job=a_job(echo={"SLURM_JOB_DEPENDENCY": "afterok:7"})),
            {"SLURM_JOB_DEPENDENCY": "afterok:7"},
        ),
        (
            a_launch(
                job=a_job(array_job_id=40, array_task_id=0, array_count=3, array_min=0, array_max=4, array_step=2)
            ),
            {
                "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "3",
                "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "4", "SLURM_ARRAY_TASK_STEP": "2",
            },
        ),
        (a_launch(job=a_job(echo={"SLURM_GPUS": "2"})), {"SLURM_GPUS": "2"}),
        (a_launch(config="/etc/muster/muster.conf"), {"SLURM_CONF": "/etc/muster/muster.conf"}),
        (a_launch(export="A,B"), {"SLURM_EXPORT_ENV": "A,B"}),
        (a_launch(get_user_env=True), {"SLURM_GET_USER_ENV": "1"}),
        (
            a_launch(gpus=[2, 5], job_gpus=[2, 5]),
            {"CUDA_VISIBLE_DEVICES": "2,5", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "2,5"},
        ),
        (
            a_launch(gpus=[2, 5], job_gpus=[2, 5], local_gpu_numbers=True),
            {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "2,5"},
        ),
    ],
)  # fmt: skip
def test_an_option_adds_its_variables(launch: Launch, more: dict[str, str]) -> None:
    assert seen(launch) == {**BATCH, **more}


def test_the_submitters_environment_is_below_ours() -> None:
    inherited = b"PATH=/bin\0HOSTNAME=login1\0TMPDIR=/scratch\0CUDA_VISIBLE_DEVICES=7\0SLURM_RLIMIT_CORE=0\0=x\0A=b=c\0"
    inherited += b"HYDRA_BOOTSTRAP=ssh\0"
    found = seen(a_launch(), inherited)
    assert found == {**BATCH, "PATH": "/bin", "TMPDIR": "/scratch", "A": "b=c", "HYDRA_BOOTSTRAP": "ssh"}


def test_a_steps_tasks_see_the_step_and_their_place() -> None:
    launch = a_launch(step=a_step(), ranks=[2, 3], node_id=1, gpus=[1], job_gpus=[0, 1])
    found = seen(launch, place=1)
    wanted = {
        "SLURM_STEP_ID": "3", "SLURM_STEPID": "3", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_NNODES": "2", "SLURM_JOB_NUM_NODES": "3",
        "SLURM_NODELIST": "n[1-3]", "SLURM_JOB_GROUP": "users", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9",
        "SLURM_SRUN_COMM_HOST": "10.0.0.9", "SLURM_STEP_GPUS": "1", "SLURM_GPUS_ON_NODE": "1",
        "CUDA_VISIBLE_DEVICES": "1", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
        "SLURM_GTIDS": "2,3",
    }  # fmt: skip
    assert {name: found.get(name) for name in wanted} == wanted
    for name in ("ENVIRONMENT", "HOSTNAME", "SLURM_JOB_GPUS", "HYDRA_BOOTSTRAP"):
        assert name not in found


@pytest.mark.parametrize(
    ("asked", "gpus", "ranks", "seen_by_each"),
    [
        ("2", [0, 1, 2, 3], [4, 5], ["0,1", "2,3"]),
        ("h100:1", [5, 7], [0, 1], ["5", "7"]),
        # Fewer GPUs than that, or another way of asking: every task sees all.
        ("2", [0, 1, 2], [4, 5], ["0,1,2", "0,1,2"]),
        ("", [0, 1], [0, 1], ["0,1", "0,1"]),
    ],
)
def test_gpus_per_task_are_each_tasks_own(
    asked: str, gpus: list[int], ranks: list[int], seen_by_each: list[str]
) -> None:
    launch = a_launch(step=a_step(), gpus=gpus, ranks=ranks)
    inherited = f"SLURM_GPUS_PER_TASK={asked}\0".encode() if asked else b""
    assert [seen(launch, inherited, place)["CUDA_VISIBLE_DEVICES"] for place in range(len(ranks))] == seen_by_each

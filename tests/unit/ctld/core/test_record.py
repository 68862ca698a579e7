from __future__ import annotations

from msgspec import structs

from ctld.core.model import Allocation, GpuRequest, NodeShare
from ctld.core.record import aggregate_status, array_text, billed, requested_tres, run_record
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_partition, a_state
from tests.stage import a_result


def test_a_running_job_says_what_it_has() -> None:
    state = a_state(gpu_type="a100")
    shares = tuple(NodeShare(node=n, cpus=4, cores=(0, 3), memory_mib=500, gpus=(0, 1)) for n in (0, 1))
    job = structs.replace(
        a_job(7, nodes_min=2),
        state=1,
        started_at=UnixTime(NOON + 5),
        alloc=Allocation(partition="main", shares=shares, planned_by="Backfill"),
        limit_seconds=90,
    )
    record = run_record(state, job)
    assert (record.state, record.nodelist, record.scheduler) == ("RUNNING", "n[1-2]", "Backfill")
    assert record.allocated_tres == {
        "cpu": 8,
        "mem": 1000,
        "node": 2,
        "billing": 8,
        "gres/gpu": 4,
        "gres/gpu:a100": 4,
    }
    assert (record.time_limit_minutes, record.ended_at, record.std_out) == (2, 0, "slurm-%j.out")


def test_a_pending_array_names_its_members_and_has_nothing() -> None:
    job = a_job(7, array=(5, 9), array_limit=2, partitions=("main", "small"))
    record = run_record(a_state(), job)
    assert (record.array_tasks, record.partition, record.std_out) == ("5-9%2", "main,small", "slurm-%A_%a.out")
    assert (record.allocated_cpus, record.nodelist, record.started_at) == (0, "", 0)
    assert array_text((3, 3, 6, 6), 0) == "3,6"


def test_requests_are_counted_for_the_whole_job() -> None:
    state = a_state()
    assert requested_tres(state, a_job()) == {"cpu": 1, "node": 1, "billing": 1}
    job = a_job(nodes_min=2, ntasks=8, cpus_per_task=2, memory_per_cpu_mib=100)
    assert requested_tres(state, job) == {"cpu": 16, "mem": 1600, "node": 2, "billing": 16}
    gpus = a_job(nodes_min=2, gpus_per_node=(GpuRequest("a100", 4),), cpus_per_gpu=3, memory_per_gpu_mib=10)
    wanted = {"cpu": 24, "mem": 80, "node": 2, "billing": 24, "gres/gpu": 8, "gres/gpu:a100": 8}
    assert requested_tres(state, gpus) == wanted


def test_a_step_has_the_worst_status_of_its_tasks() -> None:
    assert aggregate_status([a_result(0, 0, 3 << 8), a_result(1, 0)]) == 3 << 8
    assert aggregate_status([a_result(0, 200 << 8), a_result(1, 9)]) == 200 << 8
    assert aggregate_status([a_result(0, 0), a_result(1, 0, oom=True)]) == 125
    assert aggregate_status([a_result(0, error="no such user")]) == 1 << 8


def test_what_is_billed_is_shown_as_a_whole_number() -> None:
    weights = {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 2.0, "license/a": 1.5}
    shares = (NodeShare(node=0, cpus=1, cores=(0, 0), memory_mib=8192),)
    amounts = billed(a_state(), shares, a_partition(billing_weights=weights), {"license/a": 1})
    assert amounts == {"cpu": 1, "mem": 8192, "node": 1, "license/a": 1, "billing": 4}  # 4.5

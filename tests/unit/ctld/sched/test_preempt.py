from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ctld.core.commands import Cancel
from ctld.core.events import JobResumed
from muster.ids import JobId
from muster.states import JobState, Reason
from tests.builders import USER, a_partition
from tests.preempting import Cluster


def worked(reorder_count: int = 1) -> tuple[Cluster, list[int]]:
    """The specification's test: jobs of 2, 4 and 8 whole nodes on disjoint nodes."""
    partitions = (
        a_partition("low", nodes=14, default=True, exclusive="NODE"),
        a_partition("high", nodes=14, priority_tier=2, exclusive="NODE"),
    )
    cluster = Cluster(14, partitions=partitions, reorder_count=reorder_count)
    jobs = [cluster.put(nodes_min=count, nodes_max=count) for count in (2, 4, 8)]
    assert all(cluster.runs(job) for job in jobs)
    cluster.at += 100
    return cluster, jobs


def test_after_reordering_only_the_job_that_suffices_alone_goes() -> None:
    cluster, jobs = worked()
    assert cluster.victims(nodes_min=8, nodes_max=8) == [jobs[2]]


def test_whom_the_first_order_takes_in_vain_the_backwards_pass_spares() -> None:
    cluster, jobs = worked(reorder_count=0)
    assert cluster.victims(nodes_min=8, nodes_max=8) == [jobs[2]]


def test_the_smaller_job_of_a_tier_goes_first() -> None:
    cluster = Cluster(3)
    cluster.put(ntasks=16, nodes_min=2, nodes_max=2)
    small = cluster.put(ntasks=8)
    cluster.at += 100
    assert cluster.victims(ntasks=8) == [small]


def test_the_lowest_tier_goes_first() -> None:
    partitions = (
        a_partition("low", nodes=2, default=True, priority_tier=2),
        a_partition("lowest", nodes=2),
        a_partition("high", nodes=2, priority_tier=3),
    )
    cluster = Cluster(partitions=partitions)
    lowest = cluster.put("lowest", ntasks=8)
    cluster.put("low", ntasks=8)
    cluster.at += 100
    assert cluster.victims(ntasks=8) == [lowest]


def test_youngest_first_goes_by_the_start() -> None:
    cluster = Cluster(2, youngest_first=True)
    cluster.put(ntasks=8)
    cluster.at += 10
    youngest = cluster.put(ntasks=8)
    cluster.at += 100
    assert cluster.victims(ntasks=8) == [youngest]


def test_a_whole_gang_goes_although_one_of_its_nodes_is_needed() -> None:
    cluster = Cluster(2)
    gang = cluster.put(ntasks=16, nodes_min=2, nodes_max=2)
    cluster.at += 100
    assert cluster.victims(ntasks=8) == [gang]


def test_nobody_goes_for_a_job_that_would_not_fit_even_so() -> None:
    partitions = (
        a_partition("low", nodes=2, default=True),
        a_partition("kept", nodes=(1,), preempt_mode="OFF"),
        a_partition("high", nodes=2, priority_tier=2),
    )
    cluster = Cluster(partitions=partitions)
    cluster.put("kept", ntasks=8)
    cluster.put(ntasks=8)
    cluster.at += 100
    assert cluster.victims(nodes_min=2, nodes_max=2, ntasks=16) == []
    assert cluster.events == []


def test_nobody_goes_while_something_that_is_enough_is_ending_anyway() -> None:
    cluster = Cluster(2)
    jobs = [cluster.put(ntasks=8) for _ in range(2)]
    cluster.do(Cancel(JobId(jobs[0]), USER))
    assert cluster.victims(ntasks=8) == []


def test_fewest_gpu_seconds_are_lost_when_that_is_asked_for() -> None:
    def filled(**rules: Any) -> tuple[Cluster, list[int]]:
        cluster = Cluster(2, cpus=8, gpus=8, **rules)
        old = cluster.put(ntasks=8, gpus_per_node=_gpus(1))
        cluster.at += 10_000
        young = cluster.put(ntasks=4, gpus_per_node=_gpus(4)), cluster.put(ntasks=4, gpus_per_node=_gpus(4))
        cluster.at += 100
        return cluster, [old, *young]

    plain, jobs = filled(youngest_first=False)
    thrifty, same = filled(cost_aware=True)
    assert jobs == same
    # One job that ran 10,100 s on 1 GPU against two that ran 100 s on 4 each: 10,100 against 800.
    assert thrifty.victims(ntasks=8) == jobs[1:]
    assert len(plain.victims(ntasks=8)) in (1, 2)


def _gpus(count: int) -> tuple[object, ...]:
    from ctld.core.model import GpuRequest

    return (GpuRequest("", count),)


def test_the_preemptor_starts_on_what_was_freed_and_nobody_else_does() -> None:
    cluster = Cluster(1)
    victim = cluster.put(ntasks=8)
    cluster.at += 100
    assert cluster.victims(ntasks=8) == [victim]
    later = cluster.put("low", ntasks=1)
    assert not cluster.runs(later)
    cluster.leave(victim)
    cluster.pass_()
    assert cluster.runs(cluster.wanting)
    assert not cluster.runs(later)
    assert cluster.of(victim).state == JobState.PREEMPTED


def test_a_job_whose_victims_have_gone_still_needs_its_licence() -> None:
    cluster = Cluster(2)
    cluster.state.settings = replace(cluster.state.settings, licenses={"a": 1})
    cluster.put(ntasks=7)
    cluster.at += 10
    victim = cluster.put(ntasks=8)
    cluster.at += 100
    assert cluster.victims(ntasks=8, licenses="a:1") == [victim]
    first = cluster.wanting
    holder = cluster.put(ntasks=1, licenses="a:1")
    assert cluster.runs(holder)
    cluster.leave(victim)
    made = cluster.pass_()
    assert made.starts == ()
    assert made.waits[first].reason == Reason.LICENSES
    cluster.leave(holder, 0)
    cluster.submit(partitions=("low",), ntasks=1, memory_per_node_mib=100, licenses="a:1")
    made = cluster.pass_()
    assert [(start.job_id, start.licenses) for start in made.starts] == [(first, "a:1")]
    assert cluster.runs(first)


def test_preemptions_of_one_pass_stay_within_what_a_partition_may_have_of_a_node() -> None:
    partitions = (
        a_partition("low", nodes=1, default=True),
        a_partition("high", nodes=1, priority_tier=2, max_cpus_per_node=4),
    )
    cluster = Cluster(1, partitions=partitions)
    for _ in range(4):
        cluster.put(ntasks=2)
    cluster.at += 100
    for _ in range(2):
        cluster.submit(partitions=("high",), ntasks=3, memory_per_node_mib=100)
    assert len(cluster.pass_().preemptions) == 1


def test_a_pass_does_not_preempt_again_for_a_job_that_waits_for_its_victims() -> None:
    cluster = Cluster(2)
    for _ in range(2):
        cluster.put(ntasks=8)
    cluster.at += 100
    assert len(cluster.victims(ntasks=8)) == 1
    made = cluster.pass_()
    assert made.preemptions == ()
    assert made.waits[cluster.wanting].reason == Reason.RESOURCES
    assert made.waits[cluster.wanting].start_at == cluster.at + cluster.state.settings.kill_wait_seconds


def test_two_jobs_do_not_take_the_same_victim_twice() -> None:
    cluster = Cluster(2)
    jobs = [cluster.put(ntasks=8) for _ in range(2)]
    cluster.at += 100
    for _ in range(3):
        cluster.submit(partitions=("high",), ntasks=8, memory_per_node_mib=100)
    made = cluster.pass_()
    assert sorted(victim.job_id for one in made.preemptions for victim in one.victims) == jobs


def test_what_is_free_beside_a_booking_is_for_everybody() -> None:
    cluster = Cluster(1)
    victim = cluster.put(ntasks=6)
    cluster.at += 100
    assert cluster.victims(ntasks=7) == [victim]
    # 6 cores of the victim and 1 of the 2 free ones are booked.
    small = cluster.put(ntasks=1)
    assert cluster.runs(small)
    assert not cluster.runs(cluster.put(ntasks=1))


def test_a_suspended_victim_keeps_its_memory_and_goes_on_afterwards() -> None:
    cluster = Cluster(1, mode="SUSPEND")
    victim = cluster.put(ntasks=8, memory_per_node_mib=200_000)
    cluster.at += 100
    assert cluster.victims(ntasks=8, memory_per_node_mib=100_000) == [], "its memory stays"
    cluster.do(Cancel(JobId(cluster.wanting), USER))
    assert cluster.victims(ntasks=4, memory_per_node_mib=50_000) == [victim]
    assert cluster.of(victim).state == JobState.SUSPENDED
    cluster.pass_()
    assert cluster.runs(cluster.wanting)
    assert not cluster.runs(cluster.put(ntasks=4)), "its other CPUs come back to it"
    cluster.wait(50)
    assert cluster.of(victim).state == JobState.SUSPENDED
    cluster.leave(cluster.wanting, 0)
    cluster.pass_()
    events = cluster.wait(1)
    assert [event.job_id for event in events if isinstance(event, JobResumed)] == [victim]
    assert cluster.of(victim).suspended_seconds == 51
    assert cluster.runs(victim)


@pytest.mark.parametrize("mode", ["CANCEL", "REQUEUE", "SUSPEND"])
def test_an_array_takes_a_place_for_one_member_after_the_other(mode: str) -> None:
    cluster = Cluster(2, mode=mode)
    jobs = [cluster.put(ntasks=8) for _ in range(2)]
    cluster.at += 100
    assert len(cluster.victims(ntasks=8, array=(0, 1))) == 1
    for _ in range(3):
        for job in jobs:
            if cluster.of(job).kill is not None:
                cluster.leave(job)
        cluster.pass_()
    running = [job.array_task_id for job in cluster.state.jobs.values() if job.state == JobState.RUNNING]
    assert sorted(running) == [0, 1]


def test_columns_beside_gpus_do_no_harm() -> None:
    partitions = (
        a_partition("low", nodes=2, default=True),
        a_partition("high", nodes=2, priority_tier=2, max_cpus_per_node=6),
    )
    cluster = Cluster(2, partitions=partitions)
    jobs = [cluster.put(ntasks=8) for _ in range(2)]
    cluster.at += 100
    assert cluster.victims(ntasks=7, nodes_min=1, nodes_max=1) == []
    (victim,) = cluster.victims(ntasks=6)
    cluster.leave(victim)
    cluster.pass_()
    assert cluster.runs(cluster.wanting)
    assert cluster.of(next(job for job in jobs if job != victim)).state == JobState.RUNNING

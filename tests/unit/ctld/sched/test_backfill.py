"""Promises to the first who wait, and what they leave to others."""

from __future__ import annotations

import pytest

from ctld.core.model import Job, Kill, NodeShare, Request
from ctld.core.plan import Plan
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_partition, a_state
from tests.placing import busy, carried_out, changed, everywhere, queued, running

SIZES = pytest.mark.parametrize("small", [64, 0], ids=["lists", "columns"])


def planned(state: State, small: int = 64, at: int = NOON) -> Plan:
    return plan(state, UnixTime(at), reachable=everywhere(state), memory=PlanMemory(small))


def whole(job_id: int, nodes: int, minutes: int, **fields: object) -> Job:
    request = Request(nodes_min=nodes, nodes_max=nodes, exclusive="node", memory_per_cpu_mib=1)
    return a_job(job_id, request=request, limit_seconds=minutes * 60, **fields)  # type: ignore[arg-type]


@SIZES
def test_the_calendar_of_the_specification_as_far_as_one_promise_goes(small: int) -> None:
    """J3 is backfilled, J4 and J5 would cross the promise to J2."""
    state = a_state(4, cpus=8, gpus=0)
    running(state, whole(1, 2, 60), NodeShare(0, 8, (0, 7)), NodeShare(1, 8, (0, 7)))
    queued(
        state,
        whole(2, 4, 120, priority=90),
        whole(3, 1, 30, priority=80),
        whole(4, 1, 90, priority=70),
        whole(5, 2, 59, priority=60),
        whole(6, 4, 60, priority=50),
    )
    made = planned(state, small)
    assert [start.job_id for start in made.starts] == [3]
    assert (made.waits[2].start_at, made.waits[2].nodes) == (NOON + 3600, (0, 1, 2, 3))


@SIZES
def test_a_job_whose_tasks_may_spread_is_promised_the_first_time_at_which_they_fit(small: int) -> None:
    state = a_state(3, cpus=8, gpus=0)
    for node in range(3):
        busy(state, node + 1, node, 8, limit_seconds=60 * (node + 1))
    queued(state, a_job(9, ntasks=12, memory_per_cpu_mib=1))
    assert planned(state, small).waits[9].start_at == NOON + 120


@SIZES
def test_a_killed_job_gives_back_its_share_when_its_grace_is_over(small: int) -> None:
    state = a_state(1, cpus=8, gpus=0)
    job = busy(state, 1, 0, 8)
    changed(state, job, kill=Kill(state=4, at=NOON))
    queued(state, a_job(2))
    assert planned(state, small).waits[2].start_at == NOON + 30


@SIZES
def test_a_job_over_its_limit_is_expected_to_end_at_once(small: int) -> None:
    state = a_state(1, cpus=8, gpus=0)
    busy(state, 1, 0, 8, limit_seconds=60)
    queued(state, a_job(2))
    assert planned(state, small, at=NOON + 500).waits[2].start_at == NOON + 501


@SIZES
def test_a_limit_that_changes_moves_the_promise(small: int) -> None:
    state = a_state(1, cpus=8, gpus=0)
    job = busy(state, 1, 0, 8, limit_seconds=60)
    queued(state, a_job(2))
    memory = PlanMemory(small)
    first = plan(state, NOON, reachable=1, memory=memory)
    changed(state, job, limit_seconds=600)
    second = plan(state, NOON, reachable=1, memory=memory)
    assert (first.waits[2].start_at, second.waits[2].start_at) == (NOON + 60, NOON + 600)


@SIZES
def test_a_named_node_is_waited_for_while_others_are_free(small: int) -> None:
    state = a_state(2, cpus=8, gpus=0)
    busy(state, 1, 0, 8, limit_seconds=60)
    queued(state, a_job(2, nodelist=("n1",)), a_job(3, priority=1, memory_per_cpu_mib=1))
    made = planned(state, small)
    assert (made.waits[2].start_at, made.waits[2].nodes) == (NOON + 60, (0,))
    assert [start.job_id for start in made.starts] == [3]


@SIZES
def test_memory_is_kept_for_the_promise_too(small: int) -> None:
    state = a_state(1, cpus=8, gpus=0, memory_mib=1000)
    busy(state, 1, 0, 1, memory=500, limit_seconds=60)
    queued(
        state,
        a_job(2, memory_per_node_mib=800),
        a_job(3, priority=3, memory_per_node_mib=201),
        a_job(4, priority=2, memory_per_node_mib=200),
        a_job(5, priority=1, memory_per_node_mib=300, limit_seconds=60),
    )
    made = planned(state, small)
    assert [start.job_id for start in made.starts] == [4, 5]


@SIZES
def test_two_partitions_on_the_same_nodes_have_one_promise_each(small: int) -> None:
    state = a_state(1, cpus=8, gpus=0, partitions=(a_partition(nodes=1), a_partition("other", nodes=1)))
    busy(state, 1, 0, 8, limit_seconds=60)
    queued(
        state,
        a_job(2, cpus_per_task=8, limit_seconds=100, memory_per_cpu_mib=1),
        a_job(3, cpus_per_task=8, priority=1, partitions=("other",), memory_per_cpu_mib=1),
    )
    made = planned(state, small)
    assert (made.waits[2].start_at, made.waits[3].start_at) == (NOON + 60, NOON + 160)


@SIZES
def test_a_job_promised_in_one_partition_that_starts_in_another_leaves_no_promise(small: int) -> None:
    partitions = (a_partition("fast", nodes=(0,), priority_tier=2), a_partition(nodes=(1,)))
    state = a_state(2, cpus=8, gpus=0, partitions=partitions)
    busy(state, 1, 0, 8, limit_seconds=60)
    queued(state, a_job(2, partitions=("fast", "main")))
    made = planned(state, small)
    assert [(start.job_id, start.partition) for start in made.starts] == [(2, "main")]
    assert made.waits == {}
    assert not made.complete  # What the promise kept others from is for the next pass.
    carried_out(state, made)
    assert planned(state, small).complete


@SIZES
def test_a_node_of_another_user_is_promised_after_that_user(small: int) -> None:
    state = a_state(1, cpus=8, gpus=0)
    busy(state, 1, 0, 1, uid=1, exclusive="user", limit_seconds=60)
    queued(state, a_job(2, uid=2))
    assert planned(state, small).waits[2].start_at == NOON + 60


@SIZES
def test_releases_follow_many_jobs_that_come_and_go(small: int) -> None:
    state = a_state(4, cpus=64, gpus=0)
    memory = PlanMemory(small)
    queued(
        state,
        a_job(5000, array=(0, 999), limit_seconds=300, memory_per_cpu_mib=1),
        a_job(5001, nodes_min=4, nodes_max=4),
    )
    at = int(NOON)
    for _ in range(5):
        made = plan(state, UnixTime(at), reachable=0b1111, memory=memory)
        assert made == plan(state, UnixTime(at), reachable=0b1111)
        carried_out(state, made, at)
        for job_id in [job_id for job_id in state.running if job_id % 3 == 0]:
            changed(state, state.jobs[job_id], limit_seconds=100 + job_id % 50)
        at += 10


def test_time_min_lets_a_job_start_before_a_reservation_and_gives_it_what_is_left() -> None:
    state = a_state(nodes=2, cpus=8)
    busy(state, 1, 0, 8, limit_seconds=3000)
    wide = a_job(2, priority=300, nodes_min=2, nodes_max=2, ntasks=16, limit_seconds=3600)
    short = a_job(3, priority=200, ntasks=8, limit_seconds=7200, time_limit_minutes=120, time_min_minutes=20)
    queued(state, wide, short)
    (start,) = plan(state, NOON, reachable=everywhere(state)).starts
    assert (start.job_id, start.limit_seconds) == (3, 3000)


def test_time_min_does_not_shorten_a_run_that_nothing_is_behind() -> None:
    state = a_state(nodes=2, cpus=8)
    queued(state, a_job(3, ntasks=8, limit_seconds=7200, time_limit_minutes=120, time_min_minutes=20))
    (start,) = plan(state, NOON, reachable=everywhere(state)).starts
    assert start.limit_seconds == 7200

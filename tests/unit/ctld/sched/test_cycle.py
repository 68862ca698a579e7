"""One pass: order, starts, reservations, reasons."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from ctld.core.model import GpuRequest, Job, NodeShare
from ctld.core.plan import Plan
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_job, a_partition, a_state
from tests.placing import busy, carried_out, changed, ended, everywhere, faults_of, queued


def planned(state: State, at: int = NOON, memory: PlanMemory | None = None) -> Plan:
    made = plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)
    for start in made.starts:
        assert faults_of(state, start) == []
    return made


def started(made: Plan) -> list[int]:
    return [start.job_id for start in made.starts]


def small(nodes: int = 1, **fields: object) -> State:
    return a_state(nodes, cpus=8, memory_mib=8000, gpus=0, **fields)  # type: ignore[arg-type]


def one_cpu(job_id: int, **fields: object) -> Job:
    fields.setdefault("memory_per_cpu_mib", 1)
    return a_job(job_id, **fields)  # type: ignore[arg-type]


def test_an_empty_queue_gives_an_empty_plan() -> None:
    assert planned(small()) == Plan(UnixTime(NOON))


def test_a_job_starts_on_concrete_cores_with_its_tasks_placed() -> None:
    made = planned(queued(small(), one_cpu(1, ntasks=3)))
    assert made.starts[0].shares == (NodeShare(0, 3, (0, 2), 3, (), 3),)
    assert made.starts[0].planned_by == "Main"


def test_jobs_start_by_tier_then_priority_then_id() -> None:
    partitions = (a_partition(nodes=1), a_partition("urgent", nodes=1, priority_tier=2))
    state = small(partitions=partitions)
    queued(
        state,
        one_cpu(1, priority=10, cpus_per_task=1),
        one_cpu(2, priority=90, cpus_per_task=2),
        one_cpu(3, priority=90, cpus_per_task=3),
        one_cpu(4, priority=1, partitions=("urgent",)),
    )
    assert started(planned(state)) == [4, 2, 3, 1]


def test_a_full_pass_of_an_array_yields_one_start_for_each_member_that_fits() -> None:
    state = a_state(8, cpus=8, gpus=0)
    queued(state, one_cpu(7, array=(0, 99_999)))
    made = planned(state)
    assert [start.task_id for start in made.starts] == list(range(64))
    assert {start.job_id for start in made.starts} == {7}
    assert made.waits[7].reason is Reason.RESOURCES


def test_the_last_members_of_an_array_start_too() -> None:
    state = queued(small(), one_cpu(7, array=(3, 4)))
    made = planned(state)
    assert [start.task_id for start in made.starts] == [3, 4]
    carried_out(state, made)
    assert len(state.queue) == 0


def test_an_array_limit_bounds_running_members() -> None:
    state = queued(small(), one_cpu(7, array=(0, 9), array_limit=3), one_cpu(8, priority=1))
    made = planned(state)
    assert [start.task_id for start in made.starts] == [0, 1, 2, -1]
    assert made.waits[7].reason is Reason.ARRAY_LIMIT
    carried_out(state, made)
    again = planned(state)
    assert again.starts == ()
    assert again.waits[7].reason is Reason.ARRAY_LIMIT


def test_the_first_blocked_job_waits_for_resources_and_those_behind_for_priority() -> None:
    state = small()
    busy(state, 1, 0, 6, limit_seconds=3600)
    queued(state, one_cpu(2, cpus_per_task=8), one_cpu(3, cpus_per_task=8, priority=5))
    made = planned(state)
    assert made.waits[2].reason is Reason.RESOURCES
    assert made.waits[2].start_at == NOON + 3600
    assert made.waits[2].nodes == (0,)
    assert 3 not in made.waits
    assert made.class_waits[state.queue.class_of(3).id].reason is Reason.PRIORITY  # type: ignore[union-attr]


def test_a_short_job_is_backfilled_and_a_long_one_is_not() -> None:
    state = small()
    busy(state, 1, 0, 6, limit_seconds=3600)
    queued(
        state,
        one_cpu(2, cpus_per_task=8, limit_seconds=60),
        one_cpu(3, priority=5, limit_seconds=3601),
        one_cpu(4, priority=4, limit_seconds=3600),
    )
    made = planned(state)
    assert started(made) == [4]
    assert made.starts[0].planned_by == "Backfill"


def test_a_long_job_is_backfilled_beside_what_the_reservation_needs() -> None:
    state = small(2)
    busy(state, 1, 0, 6, limit_seconds=3600)
    busy(state, 2, 1, 6)
    queued(
        state,
        one_cpu(3, cpus_per_task=6),
        one_cpu(4, priority=5, cpus_per_task=2),
        one_cpu(5, priority=4, cpus_per_task=2),
    )
    made = planned(state)
    # Node 0 has 8 free then and the job takes 6: one more job of 2 fits beside it, another on node 1.
    assert started(made) == [4, 5]
    assert made.waits[3].start_at == NOON + 3600


def test_a_reservation_of_gpus_leaves_cores_to_others() -> None:
    state = a_state(1, cpus=8, gpus=2, memory_mib=8000)
    busy(state, 1, 0, 1, gpus=2, limit_seconds=600)
    queued(
        state,
        one_cpu(2, gpus_per_node=(GpuRequest("", 2),)),
        one_cpu(3, priority=5, cpus_per_task=6),
        one_cpu(4, priority=4, cpus_per_task=1),
    )
    made = planned(state)
    # Cores at the reservation's start: 8, it needs 1. Six and then one more leave it that one.
    assert started(made) == [3, 4]
    assert made.waits[2].start_at == NOON + 600


def test_a_promise_in_one_partition_binds_jobs_of_another_on_the_same_nodes() -> None:
    partitions = (a_partition(nodes=1), a_partition("other", nodes=1))
    state = small(partitions=partitions)
    busy(state, 1, 0, 6, limit_seconds=3600)
    queued(state, one_cpu(2, cpus_per_task=8), one_cpu(3, priority=5, partitions=("other",), limit_seconds=7200))
    made = planned(state)
    assert made.starts == ()
    assert made.waits[3].reason is Reason.RESOURCES


def test_whole_node_jobs_reserve_the_nodes_that_come_free_last_and_others_those_free_now() -> None:
    state = small(3)
    busy(state, 1, 0, 8, limit_seconds=60)
    busy(state, 2, 1, 8, limit_seconds=60)
    queued(state, one_cpu(3, nodes_min=2, nodes_max=2, exclusive="node"))
    assert planned(state).waits[3].nodes == (0, 1)
    state = small(3)
    busy(state, 1, 0, 8, limit_seconds=60)
    busy(state, 2, 1, 8, limit_seconds=60)
    queued(state, one_cpu(3, nodes_min=2, nodes_max=2, cpus_per_task=4))
    assert planned(state).waits[3].nodes == (0, 2)


def test_a_job_of_two_partitions_starts_where_it_fits_first() -> None:
    partitions = (a_partition(nodes=(0,)), a_partition("other", nodes=(1,)))
    state = small(2, partitions=partitions)
    busy(state, 1, 0, 8, limit_seconds=600)
    queued(state, one_cpu(2, partitions=("main", "other")), one_cpu(3, partitions=("main", "other")))
    made = planned(state)
    assert [(start.job_id, start.partition) for start in made.starts] == [(2, "other"), (3, "other")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": "DOWN"}, Reason.PARTITION_DOWN),
        ({"state": "INACTIVE"}, Reason.PARTITION_INACTIVE),
        ({"max_minutes": 10}, Reason.PARTITION_TIME_LIMIT),
        ({"max_nodes": 1}, Reason.PARTITION_NODE_LIMIT),
    ],
)
def test_what_the_partition_forbids_is_the_reason_of_the_class(fields: dict[str, object], reason: Reason) -> None:
    state = small(2, partitions=(a_partition(nodes=2, **fields),))  # type: ignore[arg-type]
    queued(state, one_cpu(1, nodes_min=2, nodes_max=2, limit_seconds=3600))
    made = planned(state)
    assert made.starts == ()
    assert [wait.reason for wait in made.class_waits.values()] == [reason]


def test_a_partition_that_drains_still_runs_what_it_has() -> None:
    state = small(partitions=(a_partition(nodes=1, state="DRAIN"),))
    assert started(planned(queued(state, one_cpu(1)))) == [1]


def test_a_job_that_needs_a_silent_node_names_it_and_blocks_nobody() -> None:
    state = small(2)
    queued(state, one_cpu(1, nodelist=("n2",)), one_cpu(2, priority=5))
    made = plan(state, UnixTime(NOON), reachable=0b01)
    assert started(made) == [2]
    assert made.class_waits[state.queue.class_of(1).id].text == "ReqNodeNotAvail, UnavailableNodes:n2"  # type: ignore[union-attr]


def test_nodes_that_are_down_drained_failing_or_not_registered_get_no_jobs() -> None:
    for fields in ({"down": True}, {"drain": True}, {"fail": True}, {"invalid": True}):
        state = small(2)
        state.nodes[0] = replace(state.nodes[0], **fields)
        made = planned(queued(state, one_cpu(1)))
        assert [start.shares[0].node for start in made.starts] == [1]
    state = small()
    state.settings = replace(state.settings, require_registration=True)
    assert planned(queued(state, one_cpu(1))).starts == ()


def test_a_node_that_is_being_cleaned_up_takes_no_job_but_counts_for_the_reservation() -> None:
    state = small()
    old = busy(state, 1, 0, 2, limit_seconds=60)
    changed(state, old, state=3, completing=(0,))
    del state.running[1]
    state.completing[1] = None
    made = planned(queued(state, one_cpu(2)))
    assert made.starts == ()
    assert made.waits[2].start_at == NOON + 1


def test_a_requeued_job_waits_until_its_old_run_is_cleaned_up() -> None:
    state = small(2)
    queued(state, one_cpu(1, completing=(1,)))
    assert planned(state).waits[1].reason is Reason.CLEANING


def test_the_plan_does_not_change_the_state() -> None:
    state = queued(small(), one_cpu(1, ntasks=2), one_cpu(2, array=(0, 9)))
    before = state.free.as_lists()
    made = planned(state)
    assert made.starts
    assert state.free.as_lists() == before
    assert planned(state) == made


def test_an_exhausted_budget_gives_what_was_found_so_far_and_the_next_pass_goes_on() -> None:
    state = a_state(8, cpus=8, gpus=0)
    queued(state, one_cpu(7, array=(0, 99)))
    calls = iter(range(1000))
    memory = PlanMemory()
    made = plan(state, UnixTime(NOON), reachable=everywhere(state), spent=lambda: next(calls) >= 9, memory=memory)
    assert not made.complete
    assert len(made.starts) == 10
    carried_out(state, made)
    assert len(planned(state, memory=memory).starts) == 54


def test_a_class_that_found_no_place_is_tried_again_when_a_node_grows() -> None:
    state = small(2)
    busy(state, 1, 0, 8)
    busy(state, 2, 1, 8)
    queued(state, one_cpu(3, cpus_per_task=2), one_cpu(4, cpus_per_task=3, priority=5))
    memory = PlanMemory()
    assert planned(state, memory=memory).starts == ()
    assert planned(state, memory=memory).starts == ()
    ended(state, 2)
    assert started(planned(state, memory=memory)) == [3, 4]


def test_a_start_that_was_dropped_is_planned_again() -> None:
    state = queued(small(), one_cpu(1, cpus_per_task=8))
    memory = PlanMemory()
    assert started(planned(state, memory=memory)) == [1]
    assert started(planned(state, memory=memory)) == [1]


def test_a_partition_that_changes_is_seen_by_the_same_memory() -> None:
    state = small(partitions=(a_partition(nodes=1, state="DOWN"),))
    queued(state, one_cpu(1))
    memory = PlanMemory()
    assert planned(state, memory=memory).starts == ()
    state.partitions["main"] = a_partition(nodes=1)
    assert started(planned(state, memory=memory)) == [1]


def test_exclusive_user_jobs_share_nodes_with_their_own_user_only() -> None:
    state = small(2)
    queued(
        state,
        one_cpu(1, uid=1, exclusive="user", priority=9),
        one_cpu(2, uid=2, priority=8),
        one_cpu(3, uid=1, priority=7),
        one_cpu(4, uid=2, exclusive="user", priority=6),
        one_cpu(5, uid=3, exclusive="user", priority=5),
    )
    made = planned(state)
    assert {start.job_id: start.shares[0].node for start in made.starts} == {1: 0, 2: 1, 3: 0, 4: 1}
    carried_out(state, made)
    assert planned(state).starts == ()


def test_a_job_without_limit_blocks_for_an_unknown_time() -> None:
    state = small()
    busy(state, 1, 0, 8)
    made = planned(queued(state, one_cpu(2)))
    assert made.waits[2].reason is Reason.RESOURCES
    assert made.waits[2].start_at == 0


def test_the_promise_goes_to_the_first_that_could_start_when_those_before_it_wait_for_themselves() -> None:
    state = queued(small(), one_cpu(1, array=(0, 9), array_limit=1, cpus_per_task=8, limit_seconds=60))
    carried_out(state, planned(state))
    queued(state, one_cpu(50, priority=7, cpus_per_task=2), one_cpu(51, priority=6, cpus_per_task=3))
    memory = PlanMemory()
    for _ in range(2):
        made = planned(state, memory=memory)
        assert made.waits[1].reason is Reason.ARRAY_LIMIT
        assert made.waits[50].start_at == NOON + 60
        assert 51 not in made.waits


def test_the_nodes_that_answer_may_be_told_as_a_column() -> None:
    state = queued(small(2), one_cpu(1))
    made = plan(state, NOON, reachable=np.array([False, True]))
    assert made.starts[0].shares[0].node == 1


def test_a_job_that_asked_for_no_limit_has_the_default_of_the_partition_it_starts_in() -> None:
    partitions = (a_partition(nodes=(0,)), a_partition("short", nodes=(1,), max_minutes=30, default_minutes=10))
    state = small(2, partitions=partitions)
    busy(state, 1, 0, 8)
    queued(state, one_cpu(2, partitions=("main", "short")), one_cpu(3, partitions=("short",), time_limit_minutes=-1))
    made = planned(state)
    assert [(start.job_id, start.partition) for start in made.starts] == [(2, "short")]
    assert made.class_waits[state.queue.class_of(3).id].reason is Reason.PARTITION_TIME_LIMIT  # type: ignore[union-attr]


def test_equal_jobs_of_a_least_loaded_partition_go_to_one_node_after_another() -> None:
    state = small(3, partitions=(a_partition(nodes=3, lln=True),))
    queued(state, one_cpu(7, array=(0, 5)))
    assert [start.shares[0].node for start in planned(state).starts] == [0, 1, 2, 0, 1, 2]

"""The calendar of small clusters: who starts when and where, and why some have no start."""

from __future__ import annotations

from itertools import count

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Limits
from ctld.core.apply.indexes import put
from ctld.core.cluster import Planning, Settings
from ctld.core.model import UNLIMITED, Clause
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.sched.calendar import Calendar, foresee
from muster.ids import UnixTime
from muster.states import JobState, Reason
from tests.builders import NOON, a_job, a_partition, a_state
from tests.foreseen import let_run, let_wait
from tests.limited import SAFE, job_of, limited, run, waiting
from tests.placing import everywhere
from tests.preempting import Cluster

MINUTE = 60
WHOLE = {"exclusive": "node", "memory_per_node_mib": 1}


def made(state: State, **options: object) -> Calendar:
    return foresee(state, NOON, reachable=everywhere(state), **options)  # type: ignore[arg-type]


def starts(calendar: Calendar) -> dict[int, int]:
    """Job -> minutes from now; -1: no start."""
    return {
        job_id: (said.start_at - NOON) // MINUTE if said.start_at else -1 for job_id, said in calendar.planned.items()
    }


def small(nodes: int = 2, **fields: object) -> State:
    return a_state(nodes, cpus=8, memory_mib=8000, gpus=0, **fields)  # type: ignore[arg-type]


def planning(**rules: object) -> Settings:
    return Settings(require_registration=False, planning=Planning(**rules))  # type: ignore[arg-type]


def test_the_calendar_of_the_specification() -> None:
    # scheduling.md 7.6: J1 runs on n1 and n2 for an hour more.
    state = small(4)
    for node in (0, 1):
        let_run(state, a_job(100 + node, cpus_per_task=8), node, minutes=60)
    sizes = {2: (4, 120), 3: (1, 30), 4: (1, 90), 5: (2, 59), 6: (4, 60)}
    for job_id, (nodes, minutes) in sizes.items():
        let_wait(
            state,
            a_job(
                job_id, priority=100 - job_id, nodes_min=nodes, nodes_max=nodes, limit_seconds=minutes * 60,
                **WHOLE,  # type: ignore[arg-type]
            ),
        )  # fmt: skip
    calendar = made(state)
    assert starts(calendar) == {2: 60, 3: 0, 4: 180, 5: 180, 6: 270}
    assert calendar.planned[2].nodes == calendar.planned[6].nodes == (0, 1, 2, 3)
    assert calendar.planned[3].nodes == (2,)
    assert len({*calendar.planned[4].nodes, *calendar.planned[5].nodes}) == 3
    assert starts(made(state, window_seconds=120 * 60)) == {2: 60, 3: 0, 4: -1, 5: -1, 6: -1}
    assert made(state, window_seconds=120 * 60).past_window == 3


def test_a_job_of_two_partitions_takes_the_one_in_which_it_starts_first() -> None:
    partitions = (a_partition(nodes=(0,)), a_partition("side", nodes=(1,)))
    state = small(partitions=partitions)
    let_run(state, a_job(100, cpus_per_task=8), 0, minutes=30)
    let_run(state, a_job(101, cpus_per_task=8, partitions=("side",)), 1, minutes=20)
    let_wait(state, a_job(1, partitions=("main", "side"), limit_seconds=600, **WHOLE))  # type: ignore[arg-type]
    said = made(state).planned[1]
    assert (said.start_at, said.partition, said.nodes) == (NOON + 20 * MINUTE, "side", (1,))


def test_of_equal_starts_the_partition_that_is_named_first_wins() -> None:
    state = small(partitions=(a_partition(nodes=(0,)), a_partition("side", nodes=(1,))))
    let_wait(state, a_job(1, partitions=("side", "main"), limit_seconds=600, memory_per_cpu_mib=1))
    assert made(state).planned[1].partition == "side"


def test_a_partition_of_lower_tier_is_taken_only_where_it_delays_nobody_before_the_job() -> None:
    partitions = (a_partition(nodes=(0,)), a_partition("high", nodes=(1,), priority_tier=2))
    state = small(partitions=partitions)
    let_run(state, a_job(100, cpus_per_task=8), 0, minutes=10)
    let_run(state, a_job(101, cpus_per_task=8, partitions=("high",)), 1, minutes=60)
    both = a_job(1, partitions=("high", "main"), limit_seconds=600, **WHOLE)  # type: ignore[arg-type]
    other = a_job(2, priority=200, limit_seconds=600, **WHOLE)  # type: ignore[arg-type]
    let_wait(state, both, other)
    # Job 2 stands before job 1 in main, and job 1 gets what is left there.
    assert starts(made(state)) == {1: 20, 2: 10}
    assert made(state).planned[1].partition == "main"


def test_held_jobs_and_dependants_have_a_reason_and_no_start() -> None:
    state = small()
    let_wait(
        state,
        a_job(1, memory_per_cpu_mib=1, limit_seconds=60),
        a_job(2, hold="user", priority=0, memory_per_cpu_mib=1),
        a_job(3, clauses=(Clause("afterok", 1),), memory_per_cpu_mib=1),
    )
    said = made(state).planned
    assert (said[2].start_at, said[2].wait.reason) == (0, Reason.HELD_USER)  # type: ignore[union-attr]
    assert (said[3].start_at, said[3].wait.reason) == (0, Reason.DEPENDENCY)  # type: ignore[union-attr]
    assert list(said) == [1, 2, 3]


def test_a_job_whose_time_has_not_come_is_planned_behind_the_others() -> None:
    state = small(1)
    later = UnixTime(NOON + 5 * MINUTE)
    early = a_job(1, priority=900, begin_at=later, eligible_at=UnixTime(0), limit_seconds=600, **WHOLE)  # type: ignore[arg-type]
    let_wait(state, early, a_job(2, limit_seconds=600, **WHOLE))  # type: ignore[arg-type]
    assert starts(made(state)) == {2: 0, 1: 10}
    state.queue.discard(2)
    assert starts(made(state)) == {1: 5}


def test_a_job_that_would_miss_its_deadline_says_so() -> None:
    state = small(1)
    let_run(state, a_job(100, cpus_per_task=8), 0, minutes=30)
    deadlines = {1: 40, 2: 39}
    for job_id, minutes in deadlines.items():
        let_wait(
            state,
            a_job(job_id, limit_seconds=600, memory_per_cpu_mib=1, deadline_at=UnixTime(NOON + minutes * MINUTE)),
        )
    said = made(state).planned
    assert said[1].start_at == NOON + 30 * MINUTE
    assert (said[2].start_at, said[2].wait.reason) == (0, Reason.DEADLINE)  # type: ignore[union-attr]


def test_a_job_with_time_min_is_planned_as_short_and_started_as_long_as_can_be() -> None:
    state = small(1)
    let_run(state, a_job(100, cpus_per_task=4), 0, minutes=10)
    wide = a_job(1, priority=900, limit_seconds=600, **WHOLE)  # type: ignore[arg-type]
    short = a_job(2, limit_seconds=3600, time_min_minutes=5, cpus_per_task=4, memory_per_node_mib=1)
    # It starts now, and has until job 1 starts; so job 3 has room beside it only then.
    third = a_job(3, priority=50, limit_seconds=300, cpus_per_task=4, memory_per_node_mib=1)
    let_wait(state, wide, short, third)
    assert starts(made(state)) == {1: 10, 2: 0, 3: 20}


def test_members_of_an_array_keep_to_its_limit() -> None:
    state = small(1, settings=planning(array_members=2))
    let_wait(state, a_job(1, array=(0, 9), array_limit=2, limit_seconds=600, memory_per_node_mib=1, cpus_per_task=2))
    let_wait(state, a_job(2, priority=10, limit_seconds=600, memory_per_node_mib=1, cpus_per_task=6))
    # Two members run now and two more are planned from minute 10 on: four CPUs are left all the time.
    assert starts(made(state)) == {1: 0, 2: 20}


def test_licences_are_waited_for_as_long_as_they_are_held() -> None:
    state = small(2, settings=Settings(require_registration=False, licenses={"abc": 2}))
    let_run(state, a_job(100, licenses="abc:1"), 0, minutes=7)
    let_wait(
        state,
        a_job(1, licenses="abc:2", limit_seconds=600, memory_per_cpu_mib=1),
        a_job(2, licenses="abc:1", limit_seconds=420, memory_per_cpu_mib=1),
        a_job(3, licenses="abc:1", limit_seconds=480, memory_per_cpu_mib=1),
        a_job(4, licenses="abc:3", limit_seconds=480, memory_per_cpu_mib=1),
    )
    calendar = made(state)
    assert starts(calendar) == {1: 7, 2: 0, 3: 17, 4: -1}
    assert calendar.planned[4].wait.reason is Reason.LICENSES  # type: ignore[union-attr]


def test_a_node_of_another_user_is_had_when_all_jobs_there_have_ended() -> None:
    state = small(1)
    mine = a_job(100, cpus_per_task=1, uid=1000, exclusive="user")
    let_run(state, mine, 0, minutes=20)
    let_wait(
        state,
        a_job(1, uid=1000, limit_seconds=600, memory_per_cpu_mib=1),
        a_job(2, uid=1001, limit_seconds=600, memory_per_cpu_mib=1),
        a_job(3, uid=1000, exclusive="user", limit_seconds=1800, memory_per_cpu_mib=1),
    )
    # Job 3 would share with its own user now, and with job 2 then: it comes behind it.
    assert starts(made(state)) == {1: 0, 2: 20, 3: 30}


def test_closed_and_silent_nodes_are_not_counted_on() -> None:
    state = small(3)
    state.nodes[0] = replace(state.nodes[0], drain=True)
    let_wait(
        state,
        a_job(1, nodes_min=2, nodes_max=2, limit_seconds=600, **WHOLE),  # type: ignore[arg-type]
        a_job(2, limit_seconds=600, **WHOLE),  # type: ignore[arg-type]
    )
    said = foresee(state, NOON, reachable=0b101).planned
    assert (said[1].start_at, said[1].wait.reason) == (0, Reason.NODE_NOT_AVAIL)  # type: ignore[union-attr]
    assert "n[1-2]" in said[1].wait.text  # type: ignore[union-attr]
    assert (said[2].start_at, said[2].nodes) == (NOON, (2,))


def test_what_a_job_without_limit_holds_is_never_promised() -> None:
    state = small(1)
    let_run(state, a_job(100, cpus_per_task=4), 0, minutes=UNLIMITED)
    let_wait(state, a_job(1, limit_seconds=600, **WHOLE))  # type: ignore[arg-type]
    said = made(state).planned[1]
    assert (said.start_at, said.wait.reason) == (0, Reason.RESOURCES)  # type: ignore[union-attr]


def test_a_group_waits_until_its_limit_has_room_and_for_ever_where_it_has_none() -> None:
    state = limited(physics=Limits(grp_tres={"cpu": 10}))
    run(state, job_of("bob", 100, 8, limit_seconds=20 * MINUTE))
    waiting(
        state,
        job_of("ada", 1, 4, limit_seconds=600),
        job_of("ada", 2, 12, limit_seconds=600),
        job_of("eve", 3, 12, limit_seconds=600),
    )
    calendar = made(state)
    assert starts(calendar) == {1: 20, 2: -1, 3: 0}
    assert calendar.planned[2].wait.reason is Reason.ASSOC_GRP_CPU_LIMIT  # type: ignore[union-attr]


def test_a_limit_of_nodes_counts_a_node_once() -> None:
    state = limited(4, cpus=8, physics=Limits(grp_tres={"node": 2}))
    run(state, job_of("bob", 100, 6, limit_seconds=20 * MINUTE))
    waiting(
        state,
        job_of("ada", 1, 8, limit_seconds=600),
        job_of("ada", 2, 8, limit_seconds=600),
        job_of("ada", 3, 1, limit_seconds=600),
    )
    assert starts(made(state)) == {1: 0, 2: 10, 3: 0}


def test_minutes_that_are_left_suffice_for_the_first_jobs_only() -> None:
    state = limited(physics=Limits(grp_tres_minutes={"cpu": 100}), enforce=SAFE)
    waiting(state, *[job_of("ada", job_id, 4, limit_seconds=600) for job_id in (1, 2, 3)])
    calendar = made(state)
    assert starts(calendar) == {1: 0, 2: 0, 3: -1}
    assert calendar.planned[3].wait.reason is Reason.ASSOC_GRP_CPU_MINUTES_LIMIT  # type: ignore[union-attr]


def test_a_budget_cuts_the_calendar_and_it_says_so() -> None:
    state = small()
    let_wait(state, *[a_job(job_id, limit_seconds=600, memory_per_cpu_mib=1) for job_id in range(1, 6)])
    asked = count(1)
    calendar = made(state, spent=lambda: next(asked) >= 3)
    assert (list(calendar.planned), calendar.complete) == ([1, 2, 3], False)
    assert list(made(state, depth=2).planned) == [1, 2]
    assert made(state, depth=2).complete


@pytest.mark.parametrize(
    ("rules", "looked_at"),
    [
        ({"jobs": 3}, [1, 2, 3]),
        ({"jobs_of_user": 2}, [1, 2, 4, 6]),
        ({"jobs_of_partition": 3}, [1, 2, 3, 5]),
        ({"jobs_of_association": 1}, [1, 2]),
        ({"jobs_of_user_in_partition": 1}, [1, 4, 5]),
    ],
)
def test_jobs_over_a_bound_are_left_out(rules: dict[str, int], looked_at: list[int]) -> None:
    state = small(partitions=(a_partition(nodes=2), a_partition("side", nodes=2)), settings=planning(**rules))
    users = {1: 1000, 2: 1000, 3: 1000, 4: 1001, 5: 1000, 6: 1001}
    for job_id, uid in users.items():
        let_wait(
            state,
            a_job(
                job_id, uid=uid, limit_seconds=600, memory_per_cpu_mib=1, account="a" if job_id == 1 else "b",
                partitions=("side",) if job_id == 5 else ("main",),
            ),
        )  # fmt: skip
    assert list(made(state).planned) == looked_at


def test_starts_are_multiples_of_the_resolution() -> None:
    state = small(1, settings=planning(resolution_seconds=300))
    let_run(state, a_job(100, cpus_per_task=8), 0, minutes=7)
    for job_id in (1, 2):
        let_wait(state, a_job(job_id, limit_seconds=MINUTE, **WHOLE))  # type: ignore[arg-type]
    said = made(state).planned
    assert [said[job_id].start_at % 300 for job_id in (1, 2)] == [0, 0]
    assert NOON + 7 * MINUTE <= said[1].start_at < NOON + 12 * MINUTE
    assert said[2].start_at == said[1].start_at + 300


def test_behind_the_most_jobs_that_reserve_the_others_are_only_estimated() -> None:
    state = small(1, settings=planning(reserving_in_partition=1))
    let_run(state, a_job(100, cpus_per_task=8), 0, minutes=10)
    for job_id in (1, 2, 3):
        let_wait(state, a_job(job_id, limit_seconds=600, **WHOLE))  # type: ignore[arg-type]
    assert starts(made(state)) == {1: 10, 2: 20, 3: 20}


def test_without_backfill_nothing_is_planned_before_a_job_that_waits() -> None:
    state = small(2, settings=Settings(require_registration=False, backfill=False))
    let_run(state, a_job(100, cpus_per_task=8), 0, minutes=10)
    let_wait(
        state,
        a_job(1, priority=200, nodes_min=2, nodes_max=2, limit_seconds=600, **WHOLE),  # type: ignore[arg-type]
        a_job(2, limit_seconds=60, memory_per_cpu_mib=1),
    )
    assert starts(made(state)) == {1: 10, 2: 20}


def test_behind_a_job_that_a_limit_keeps_back_nothing_starts_with_assoc_limit_stop() -> None:
    state = limited(physics=Limits(max_jobs=1, grp_jobs=1))
    state.settings = replace(state.settings, limit_stops_partition=True)
    run(state, job_of("bob", 100, 8, limit_seconds=20 * MINUTE))
    waiting(state, job_of("ada", 1, 4, priority=200, limit_seconds=600), job_of("eve", 2, 4, limit_seconds=600))
    assert starts(made(state)) == {1: 20, 2: 20}


def test_what_a_preemption_has_promised_is_kept_and_shown() -> None:
    cluster = Cluster(1, low={"grace_seconds": 60})
    low = cluster.put(cpus_per_task=6, time_limit_minutes=100)
    wants = cluster.wants(cpus_per_task=6, time_limit_minutes=10)
    assert wants is not None
    booked = cluster.of(cluster.wanting)
    assert booked.booking is not None
    begins = booked.booking.starts_at
    other = cluster.submit(partitions=("low",), cpus_per_task=2, memory_per_node_mib=100, time_limit_minutes=5)
    third = cluster.submit(partitions=("low",), cpus_per_task=3, memory_per_node_mib=100, time_limit_minutes=5)
    said = foresee(cluster.state, UnixTime(cluster.at), reachable=1).planned
    assert (said[booked.id].start_at, said[booked.id].nodes, said[booked.id].partition) == (begins, (0,), "high")
    assert said[other].start_at == cluster.at
    # Not beside the other in what the victim leaves: that is promised, and taken for ten minutes.
    assert said[third].start_at == begins + 600
    cluster.wait(60)
    cluster.leave(low)
    assert foresee(cluster.state, UnixTime(cluster.at), reachable=1).planned[booked.id].start_at == cluster.at


def test_a_suspended_job_has_its_cores_again_when_the_other_ends_and_keeps_them_to_its_limit() -> None:
    cluster = Cluster(1, mode="SUSPEND")
    low = cluster.put(cpus_per_task=8, time_limit_minutes=100)
    cluster.wait(600)
    high = cluster.put("high", cpus_per_task=8, time_limit_minutes=10)
    cluster.wait(60)
    cluster.pass_()
    assert cluster.runs(high)
    job = cluster.submit(partitions=("low",), cpus_per_task=1, memory_per_node_mib=100, time_limit_minutes=5)
    said = foresee(cluster.state, UnixTime(cluster.at), reachable=1).planned[job]
    begun = cluster.of(high).started_at
    left = 100 * MINUTE - (cluster.of(low).suspended_at - cluster.of(low).started_at)
    assert (said.start_at, said.wait) == (begun + 10 * MINUTE + left, None)


def test_what_somebody_has_suspended_by_hand_is_promised_to_nobody() -> None:
    state = small(1)
    ran = let_run(state, a_job(100, cpus_per_task=4), 0, minutes=30, memory=8000)
    put(state, ran, replace(ran, state=int(JobState.SUSPENDED), suspended_at=NOON))
    let_wait(state, a_job(1, limit_seconds=600, cpus_per_task=8, memory_per_node_mib=1))
    said = made(state).planned[1]
    assert (said.start_at, said.wait) == (0, Wait(Reason.RESOURCES)), "it has all memory, and nobody knows until when"


def test_a_node_that_is_being_cleaned_up_can_be_had_a_moment_later() -> None:
    state = small(1)
    ended = let_run(state, a_job(100, cpus_per_task=1), 0, minutes=30)
    put(state, ended, replace(ended, state=int(JobState.COMPLETED), ended_at=NOON, completing=(0,)))
    let_wait(state, a_job(1, limit_seconds=600, cpus_per_task=2, memory_per_node_mib=1))
    assert made(state).planned[1].start_at == NOON + 1

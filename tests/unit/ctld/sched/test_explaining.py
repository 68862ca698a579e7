"""Why a job waits, in words: each reason names the number that failed, and nothing is changed by asking."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.accounts import Limits
from ctld.core.apply.indexes import put, rebuild
from ctld.core.model import GpuRequest
from ctld.core.plan import LimitNumbers
from ctld.sched.explain import reason_of
from ctld.sched.explaining import MOST_BLOCKERS, explain
from ctld.sched.explanation import Filter, PartitionView
from ctld.sched.memory import PlanMemory
from ctld.sched.releases import FAR
from muster.states import Reason
from tests.builders import NOON, a_job, a_partition, a_state
from tests.explained import HOUR, explained, full, small, under
from tests.placing import busy, queued

# ---- the parts ------------------------------------------------------------------------------------------------------


def counters(view: PartitionView) -> dict[str, int]:
    return {one.name: one.nodes for one in view.filters}


def test_the_nodes_are_counted_question_by_question() -> None:
    state = small(nodes=8)
    state.partitions["main"] = a_partition(nodes=7)
    for index, features in enumerate((("a",), ("a",), ("a",), ("a",), ("a",), ("b",), ("a",))):
        node = state.nodes[index]
        state.nodes[index] = replace(node, spec=replace(node.spec, features=features))
    state.nodes[4] = replace(state.nodes[4], spec=replace(state.nodes[4].spec, gpus=()))
    state.nodes[6] = replace(state.nodes[6], down=True)
    rebuild(state)
    busy(state, 1, 0, 1, memory=7000, limit_seconds=HOUR)
    busy(state, 2, 1, 8, limit_seconds=HOUR)
    busy(state, 3, 2, 1, gpus=2, limit_seconds=HOUR)
    asked = {"constraint": "a", "memory_per_node_mib": 2000, "gpus_per_node": (GpuRequest("", 1),), "cpus_per_task": 2}
    queued(state, a_job(7, nodes_min=2, nodes_max=2, limit_seconds=HOUR, **asked))  # type: ignore[arg-type]
    found = explained(state, 7)
    (view,) = found.partitions
    assert counters(view) == {
        "cluster": 8,
        "partition": 7,
        "state": 6,
        "features": 5,
        "hardware": 4,
        "memory": 3,
        "cpus": 2,
        "gpus": 1,
    }
    assert view.filters[-1] == Filter("gpus", 1, "with 1 GPUs free; 2 on the one that has most", 1, 2)
    assert view.nodes_needed == 2
    assert (found.wait.start_at, found.wait.nodes) == (NOON + HOUR, (0, 3))


def test_who_holds_the_nodes_is_named_with_the_end_of_each() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    busy(state, 3, 1, 1)
    found = explained(state, 7)
    assert [(one.job_id, one.nodes, one.ends_at) for one in found.blockers] == [(1, (0,), NOON + HOUR)]
    put(state, state.jobs[7], None)
    put(state, None, a_job(8, nodes_min=2, nodes_max=2, cpus_per_task=8, memory_per_node_mib=1))
    found = explained(state, 8)
    assert [(one.job_id, one.ends_at) for one in found.blockers] == [(1, NOON + HOUR), (2, NOON + HOUR), (3, FAR)]


def test_a_job_that_is_promised_the_nodes_stands_among_the_blockers() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    put(state, None, a_job(8, cpus_per_task=2, priority=1, memory_per_node_mib=1, limit_seconds=3 * HOUR))
    put(state, None, a_job(9, cpus_per_task=5, priority=1, memory_per_node_mib=1, limit_seconds=3 * HOUR))
    found = explained(state, 9)
    assert (7, (0,), NOON + HOUR) in [(one.job_id, one.nodes, one.starts_at) for one in found.blockers]


def test_many_blockers_are_counted_and_the_first_to_go_are_named() -> None:
    state = small(nodes=40)
    for number in range(40):
        busy(state, 100 + number, number, 8, limit_seconds=HOUR - number)
    queued(state, a_job(7, nodes_min=40, nodes_max=40, limit_seconds=HOUR))
    found = explained(state, 7)
    assert (found.blocking, len(found.blockers)) == (40, MOST_BLOCKERS)
    assert [one.job_id for one in found.blockers[:2]] == [139, 138]


def test_limits_that_hold_are_all_listed_with_what_is_used() -> None:
    state, _ = under(Limits(grp_tres={"cpu": 6}, grp_jobs=9, max_wall_minutes_per_job=90))()
    (view,) = explained(state, 7).partitions
    assert [(one.numbers, one.in_the_way) for one in view.limits] == [
        (LimitNumbers("MaxWall", "", "user ada in account physics", 90, 0, 60), False),
        (LimitNumbers("GrpJobs", "", "account physics", 9, 1, 1), False),
        (LimitNumbers("GrpTRES", "cpu", "account physics", 6, 4, 4), True),
    ]


def test_what_a_partition_lets_in_is_told_with_its_numbers() -> None:
    tight = a_partition(nodes=2, allow_accounts=("physics", "chemistry"), deny_qos=("low",), max_minutes=90)
    state = a_state(2, cpus=8, partitions=(tight,))
    busy(state, 1, 0, 8, limit_seconds=HOUR)
    busy(state, 2, 1, 8, limit_seconds=HOUR)
    queued(state, a_job(7, account="physics", limit_seconds=HOUR))
    (view,) = explained(state, 7).partitions
    assert [(one.name, one.passed, one.sentence) for one in view.stages[:3]] == [
        ("partition", True, "partition main is UP"),
        (
            "access",
            True,
            "account physics is one of the 2 that it takes; QOS normal is none of the 1 that it does not take",
        ),
        ("time limit", True, "60 minutes asked for, MaxTime of partition main is 90 minutes"),
    ]


def test_each_partition_of_a_job_is_explained_for_itself() -> None:
    partitions = (
        a_partition(nodes=1),
        a_partition("long", nodes=2, priority_tier=3),
        a_partition("shut", state="DOWN"),
    )
    state = a_state(2, cpus=8, partitions=partitions)
    busy(state, 1, 0, 8, limit_seconds=HOUR)
    busy(state, 2, 1, 8, limit_seconds=HOUR)
    queued(
        state,
        a_job(5, partitions=("long",), priority=1, limit_seconds=HOUR),
        a_job(6, partitions=("main",), priority=200, limit_seconds=HOUR),
        a_job(7, partitions=("main", "long", "shut"), priority=100, limit_seconds=HOUR),
    )
    views = explained(state, 7).partitions
    assert [(one.name, one.place, one.waiting, one.next_before) for one in views] == [
        ("main", 2, 2, 6),
        ("long", 1, 2, 0),
        ("shut", 0, 0, 0),
    ]
    assert [(one.name, one.passed) for one in views[2].stages] == [("partition", False)]


def test_a_job_that_is_held_is_looked_at_as_if_it_were_not() -> None:
    state = small(a_job(7, hold="user", priority=0, nodes_min=2, nodes_max=2))
    busy(state, 1, 0, 8, limit_seconds=HOUR)
    (view,) = explained(state, 7).partitions
    assert (counters(view)["cpus"], view.place) == (1, 0)


def test_a_job_that_would_fit_says_where_and_who_stands_before() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    put(state, None, a_job(9, cpus_per_task=2, priority=1, memory_per_node_mib=1))
    found = explained(state, 9)
    assert found.wait.reason is Reason.PRIORITY
    assert found.sentence.endswith("1 node with 2 CPUs, 1 MiB is needed: there is room now")
    assert found.partitions[0].filters[-1].sentence == "that it would have now if no other waited: n1"


def test_it_says_how_long_the_job_has_waited_and_may() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    state.settings = replace(state.settings, max_queue_wait_seconds=60)
    rebuild(state)
    found = explained(state, 7, NOON + 90)
    assert (found.waited_seconds, found.longest_seconds, found.late) == (90, 60, False)
    state.queue.hasten(NOON + 90)
    assert explained(state, 7, NOON + 90).late


def test_before_the_first_pass_there_is_an_explanation_too() -> None:
    state = small(a_job(7))
    found = explain(state, NOON, PlanMemory(), state.jobs[7], reason_of(state, None, state.jobs[7], NOON))
    assert (found.wait.reason, found.partitions[0].place) == (Reason.PRIORITY, 1)
    assert found.sentence.startswith("it is first of 1 in partition main: the next pass looks at it")
    assert counters(found.partitions[0])["partition"] == 2

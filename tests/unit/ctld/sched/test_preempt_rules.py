from __future__ import annotations

from typing import Any

import pytest

from ctld.core.accounts import Qos
from ctld.sched.preempt_rules import exempt_seconds, mode_on, qos_ranks
from tests.builders import OTHER, USER, a_partition
from tests.preempting import Cluster

QOS = (
    Qos(1, "normal"),
    Qos(2, "cheap", grace_seconds=30, preempt_mode="REQUEUE"),
    Qos(3, "dear", priority=10, preempt=("cheap",)),
)


def fill(cluster: Cluster, **fields: Any) -> list[int]:
    """Let one job a node run."""
    jobs = [cluster.put(ntasks=8, **fields) for _ in cluster.state.nodes]
    assert all(cluster.runs(job) for job in jobs)
    cluster.at += 100
    return jobs


def test_a_higher_tier_takes_the_place_of_a_lower_one() -> None:
    cluster = Cluster()
    jobs = fill(cluster)
    (victim,) = cluster.victims(ntasks=8)
    assert victim in jobs


def test_nobody_preempts_in_its_own_tier() -> None:
    cluster = Cluster()
    fill(cluster)
    assert cluster.victims("low", ntasks=8) == []


def test_without_a_rule_nobody_preempts() -> None:
    cluster = Cluster(rule="", mode="OFF")
    fill(cluster)
    assert cluster.victims(ntasks=8) == []


def test_a_partition_with_preemption_off_is_left_alone() -> None:
    cluster = Cluster(low={"preempt_mode": "OFF"})
    fill(cluster)
    assert cluster.victims(ntasks=8) == []


def test_partitions_without_a_common_node_do_not_touch() -> None:
    low, high = a_partition("low", nodes=(0,), default=True), a_partition("high", nodes=(1,), priority_tier=2)
    cluster = Cluster(partitions=(low, high))
    cluster.put(ntasks=8)
    first = cluster.put("high", ntasks=8)
    assert cluster.runs(first)
    cluster.at += 100
    assert cluster.victims(ntasks=8) == []


@pytest.mark.parametrize(("priority", "goes"), [(99, False), (100, True), (101, True)])
def test_with_priority_a_higher_tier_must_not_be_of_lower_priority(priority: int, goes: bool) -> None:
    cluster = Cluster(1, by_priority=True)
    job = cluster.put(ntasks=8)
    cluster.state.queue.priorities[job] = 100
    wanting = cluster.submit(partitions=("high",), ntasks=8, memory_per_node_mib=100)
    cluster.state.queue.reprioritise({wanting: priority})
    assert bool(cluster.pass_().preemptions) is goes


def test_a_qos_preempts_those_in_its_list_only() -> None:
    cluster = Cluster(1, qos=QOS)
    cheap = cluster.put(ntasks=8, qos="cheap")
    assert cluster.victims("low", ntasks=8, qos="normal") == []
    assert cluster.victims("low", ntasks=8, qos="dear") == [cheap]


def test_the_priority_of_a_qos_gives_no_right_by_itself() -> None:
    cluster = Cluster(1, qos=(Qos(1, "normal"), Qos(2, "dear", priority=10)))
    cluster.put(ntasks=8, qos="normal")
    assert cluster.victims("low", ntasks=8, qos="dear") == []


@pytest.mark.parametrize(("within", "priority", "goes"), [(True, 101, True), (True, 100, False), (False, 101, False)])
def test_within_a_qos_the_strictly_higher_priority_preempts(within: bool, priority: int, goes: bool) -> None:
    cluster = Cluster(1, qos=QOS, within=within)
    job = cluster.put(ntasks=8, qos="normal")
    cluster.state.queue.priorities[job] = 100
    wanting = cluster.submit(partitions=("low",), ntasks=8, qos="normal", memory_per_node_mib=100)
    cluster.state.queue.reprioritise({wanting: priority})
    assert bool(cluster.pass_().preemptions) is goes


@pytest.mark.parametrize(("priority", "goes"), [(100, False), (101, True)])
def test_with_priority_a_qos_needs_a_strictly_higher_one(priority: int, goes: bool) -> None:
    cluster = Cluster(1, qos=QOS, by_priority=True)
    job = cluster.put(ntasks=8, qos="cheap")
    cluster.state.queue.priorities[job] = 100
    wanting = cluster.submit(partitions=("low",), ntasks=8, qos="dear", memory_per_node_mib=100)
    cluster.state.queue.reprioritise({wanting: priority})
    assert bool(cluster.pass_().preemptions) is goes


@pytest.mark.parametrize(("priority", "goes"), [(501, False), (500, True)])
def test_jobs_above_min_exempt_priority_stay(priority: int, goes: bool) -> None:
    cluster = Cluster(1, min_exempt_priority=500)
    job = cluster.put(ntasks=8)
    cluster.state.queue.priorities[job] = priority
    assert bool(cluster.victims(ntasks=8)) is goes


@pytest.mark.parametrize(("ran", "goes"), [(59, False), (60, True)])
def test_a_run_is_exempt_for_its_first_time(ran: int, goes: bool) -> None:
    cluster = Cluster(1, exempt_seconds=60)
    cluster.put(ntasks=8)
    cluster.at += ran
    assert bool(cluster.victims(ntasks=8)) is goes


def test_the_first_level_that_sets_an_exempt_time_counts() -> None:
    qos = (
        Qos(1, "normal"),
        Qos(2, "own", preempt_exempt_seconds=20),
        Qos(3, "over", preempt_exempt_seconds=30, flags=("OverPartQOS",)),
        Qos(4, "part", preempt_exempt_seconds=0),
    )
    plain, special = a_partition("low", nodes=1, default=True), a_partition("special", nodes=1, qos="part")
    cluster = Cluster(1, qos=qos, partitions=(plain, special), exempt_seconds=60)

    def seconds(partition: str, name: str) -> int:
        return exempt_seconds(cluster.state, cluster.of(cluster.put(partition, ntasks=1, qos=name)))

    assert (seconds("low", "normal"), seconds("low", "own")) == (60, 20)
    assert (seconds("special", "own"), seconds("special", "over")) == (0, 30)


def test_who_wants_nodes_for_its_own_user_spares_the_jobs_of_others() -> None:
    cluster = Cluster(1)
    cluster.put(ntasks=8, by=OTHER, uid=OTHER.uid)
    cluster.at += 100
    assert cluster.victims(ntasks=8, exclusive="user") == []
    own = Cluster(1)
    job = own.put(ntasks=8, by=USER)
    own.at += 100
    assert own.victims(ntasks=8, exclusive="user") == [job]


def test_a_partition_and_a_qos_may_name_another_mode_than_the_cluster() -> None:
    cluster = Cluster(1, low={"preempt_mode": "REQUEUE", "grace_seconds": 7})
    cluster.put(ntasks=8)
    made = cluster.wants(ntasks=8)
    assert made is not None
    assert [(one.mode, one.grace_seconds) for one in made.victims] == [("REQUEUE", 7)]
    by_qos = Cluster(1, qos=QOS)
    by_qos.put(ntasks=8, qos="cheap")
    made = by_qos.wants("low", ntasks=8, qos="dear")
    assert made is not None
    assert [(one.mode, one.grace_seconds) for one in made.victims] == [("REQUEUE", 30)]


def test_modifiers_name_no_mode() -> None:
    cluster = Cluster(1, qos=(Qos(1, "normal", preempt_mode="GANG,SUSPEND"), Qos(2, "plain", preempt_mode="CLUSTER")))
    jobs = [cluster.put(ntasks=1, qos=name) for name in ("normal", "plain")]
    assert [mode_on(cluster.state, cluster.of(job)) for job in jobs] == ["SUSPEND", "CANCEL"]


def test_who_cannot_be_requeued_is_cancelled() -> None:
    cluster = Cluster(1, mode="REQUEUE")
    cluster.put(ntasks=8, requeue=False)
    made = cluster.wants(ntasks=8)
    assert made is not None
    assert [victim.mode for victim in made.victims] == ["CANCEL"]


def test_a_qos_ranks_above_all_that_it_may_preempt() -> None:
    qos = (Qos(1, "a", preempt=("b",)), Qos(2, "b", preempt=("c",)), Qos(3, "c"), Qos(4, "d", preempt=("d", "c")))
    assert qos_ranks({one.name: one for one in qos}) == {"a": 2, "b": 1, "c": 0, "d": 1}


def test_a_circle_has_one_rank_above_what_it_may_preempt() -> None:
    qos = (
        Qos(1, "a", preempt=("b", "gone")),
        Qos(2, "b", preempt=("c", "d")),
        Qos(3, "c", preempt=("a",)),
        Qos(4, "d"),
        Qos(5, "e", preempt=("e", "c")),
    )
    assert qos_ranks({one.name: one for one in qos}) == {"a": 1, "b": 1, "c": 1, "d": 0, "e": 2}


def test_many_qos_that_may_preempt_each_other_are_ranked_at_once() -> None:
    """As many paths as 300 names allow would never be followed to their end, and a chain of 3,000 not by recursion."""
    names = [f"q{number}" for number in range(300)]
    everyone = {name: Qos(at, name, preempt=tuple(names)) for at, name in enumerate(names)}
    assert set(qos_ranks(everyone).values()) == {0}
    ordered = {name: Qos(at, name, preempt=tuple(names[at + 1 :])) for at, name in enumerate(names)}
    assert list(qos_ranks(ordered).values()) == list(reversed(range(300)))
    chain = {f"q{at}": Qos(at, f"q{at}", preempt=(f"q{at + 1}",)) for at in range(3000)}
    assert qos_ranks(chain)["q0"] == 2999

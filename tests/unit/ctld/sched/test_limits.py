"""Limits of associations, QOS and partitions while jobs wait: who is kept from starting, why, and who is not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Limits, Qos, Share
from ctld.core.apply.indexes import put
from ctld.core.cluster import PartitionSpec
from ctld.core.limits.gate import Gate
from ctld.core.model import GpuRequest, Job, NodeShare
from ctld.core.plan import LimitNumbers, Plan, Wait
from ctld.core.state import State
from ctld.sched import limits
from ctld.sched.cycle import plan
from ctld.sched.explain import reason_of
from ctld.sched.pools import Claim
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_partition
from tests.limited import ADA, LIMITS, PHYSICS, ROOT, SAFE, job_of, limited, run, waiting
from tests.placing import everywhere


def planned(state: State, at: int = NOON) -> Plan:
    return plan(state, UnixTime(at), reachable=everywhere(state))


def outcome(state: State, job: Job) -> str:
    """What becomes of a job in the next pass: `started`, or the reason why not."""
    waiting(state, job)
    made = planned(state)
    if any(start.job_id == job.id for start in made.starts):
        return "started"
    return str(reason_of(state, made, job, NOON).reason)


def a_qos(name: str = "normal", number: int = 1, **fields: object) -> Qos:
    """A QOS; fields of Limits and Qos by name."""
    shared = {field: fields.pop(field) for field in Limits.__struct_fields__ if field in fields}
    return Qos(number, name, limits=Limits(**shared), **fields)  # type: ignore[arg-type]


# ---- the worked tests of scheduling.md 10.4 --------------------------------------------------------------------


def test_the_partitions_qos_goes_before_the_association_limit_by_limit() -> None:
    partitions = (a_partition(qos="part"),)
    qos = [a_qos("part", 3, per_user=Share(jobs=20))]
    state = limited(qos=qos, partitions=partitions, ada=Limits(max_jobs=4, max_submit_jobs=50))
    rules = state.limits.ruleset("ada", "physics", "normal", "main")
    jobs = {rule.reason: rule.limit for rule in (*rules.before, *rules.at_submit)}
    assert jobs == {Reason.QOS_MAX_JOBS_PER_USER_LIMIT: 20, Reason.ASSOC_MAX_SUBMIT_JOB_LIMIT: 50}


def test_the_tightest_group_limit_of_all_levels_wins() -> None:
    state = limited(physics=Limits(grp_tres={"cpu": 100}), ada=Limits(grp_tres={"cpu": 200}))
    run(state, job_of("ada", 1, 48))
    run(state, job_of("ada", 2, 48))
    assert outcome(state, job_of("ada", 3, 8)) == "AssocGrpCpuLimit"
    assert outcome(state, job_of("ada", 4, 4)) == "started"
    assert outcome(state, job_of("eve", 5, 8)) == "started"


def test_a_group_limit_of_a_qos_keeps_a_job_waiting_while_others_run() -> None:
    state = limited(qos=[a_qos(grp_tres={"cpu": 24}, flags=("DenyOnLimit",))])
    run(state, job_of("ada", 1, 16))
    assert outcome(state, job_of("bob", 2, 16)) == "QOSGrpCpuLimit"


def test_a_node_that_the_group_uses_already_counts_once() -> None:
    state = limited(nodes=6, physics=Limits(grp_tres={"node": 4}))
    for node in range(3):
        run(state, job_of("ada", 1 + node, 8), NodeShare(node, 8, (0, 7), 8))
    gate = Gate(state, NOON)
    job = job_of("bob", 9, 1, nodes_min=2, nodes_max=2)
    shared_and_new = (NodeShare(2, 1, (8, 8), 1), NodeShare(3, 1, (0, 0), 1))
    assert gate.after(job, "main", shared_and_new, 60) is None
    new = (NodeShare(3, 1, (0, 0), 1), NodeShare(4, 1, (0, 0), 1))
    wait = gate.after(job, "main", new, 60)
    assert wait is not None
    assert (wait.reason, wait.limit) == (
        Reason.ASSOC_GRP_NODE_LIMIT,
        LimitNumbers("GrpTRES", "node", "account physics", 4, 3, 2),
    )


# ---- each reason once ------------------------------------------------------------------------------------------

GPU = {"gpus_per_node": (GpuRequest("", 2),)}
HOUR = {"limit_seconds": 3600}


@pytest.mark.parametrize(
    ("reason", "association", "job"),
    [
        ("AssocGrpCpuLimit", Limits(grp_tres={"cpu": 5}), {}),
        ("AssocGrpMemLimit", Limits(grp_tres={"mem": 5}), {}),
        ("AssocGrpGRES", Limits(grp_tres={"gres/gpu": 1}), GPU),
        ("AssocGrpBilling", Limits(grp_tres={"billing": 5}), {}),
        ("AssocGrpCPURunMinutesLimit", Limits(grp_tres_run_minutes={"cpu": 479}), HOUR),
        ("AssocGrpMemRunMinutes", Limits(grp_tres_run_minutes={"mem": 479}), HOUR),
        ("AssocGrpNodeRunMinutes", Limits(grp_tres_run_minutes={"node": 119}), HOUR),
        ("AssocGrpJobsLimit", Limits(grp_jobs=1), {}),
        ("AssocMaxJobsLimit", Limits(max_jobs=1), {}),
        ("AssocMaxCpuPerJobLimit", Limits(max_tres_per_job={"cpu": 3}), {}),
        ("AssocMaxMemPerJob", Limits(max_tres_per_job={"mem": 3}), {}),
        ("AssocMaxNodePerJobLimit", Limits(max_tres_per_job={"node": 1}), {"nodes_min": 2, "nodes_max": 2}),
        ("AssocMaxGRESPerJob", Limits(max_tres_per_job={"gres/gpu": 1}), GPU),
        ("AssocMaxCpuPerNode", Limits(max_tres_per_node={"cpu": 3}), {}),
        ("AssocMaxMemPerNode", Limits(max_tres_per_node={"mem": 3}), {}),
        ("AssocMaxGRESPerNode", Limits(max_tres_per_node={"gres/gpu": 1}), GPU),
        ("AssocMaxCpuMinutesPerJobLimit", Limits(max_tres_minutes_per_job={"cpu": 239}), HOUR),
        ("AssocMaxNodeMinutesPerJob", Limits(max_tres_minutes_per_job={"node": 59}), HOUR),
        ("AssocMaxWallDurationPerJobLimit", Limits(max_wall_minutes_per_job=59), HOUR),
        ("AssocMaxWallDurationPerJobLimit", Limits(max_wall_minutes_per_job=59), {"limit_seconds": -1}),
    ],
)
def test_a_limit_of_an_association_has_its_reason(reason: str, association: Limits, job: dict[str, object]) -> None:
    state = limited(ada=association)
    run(state, job_of("ada", 1, 4, limit_seconds=3600))
    assert outcome(state, job_of("ada", 2, 4, **job)) == reason
    assert outcome(state, job_of("bob", 3, 4, **job)) == "started"


@pytest.mark.parametrize(
    ("reason", "qos", "job"),
    [
        ("QOSGrpCpuLimit", {"grp_tres": {"cpu": 5}}, {}),
        ("QOSGrpMemLimit", {"grp_tres": {"mem": 5}}, {}),
        ("QOSGrpGRES", {"grp_tres": {"gres/gpu": 1}}, GPU),
        ("QOSGrpCPURunMinutesLimit", {"grp_tres_run_minutes": {"cpu": 479}}, HOUR),
        ("QOSGrpMemoryRunMinutes", {"grp_tres_run_minutes": {"mem": 479}}, HOUR),
        ("QOSGrpJobsLimit", {"grp_jobs": 1}, {}),
        ("QOSMaxJobsPerUserLimit", {"per_user": Share(jobs=1)}, {}),
        ("MaxJobsPerAccount", {"per_account": Share(jobs=1)}, {}),
        ("QOSMaxCpuPerUserLimit", {"per_user": Share(tres={"cpu": 7})}, {}),
        ("QOSMaxMemoryPerUser", {"per_user": Share(tres={"mem": 7})}, {}),
        ("QOSMaxNodePerUserLimit", {"per_user": Share(tres={"node": 1})}, {"nodes_min": 2, "nodes_max": 2}),
        ("QOSMaxGRESPerUser", {"per_user": Share(tres={"gres/gpu": 1})}, GPU),
        ("MaxCpuPerAccount", {"per_account": Share(tres={"cpu": 7})}, {}),
        ("MaxGRESPerAccount", {"per_account": Share(tres={"gres/gpu": 1})}, GPU),
        ("MaxCpuRunMinsPerUser", {"per_user": Share(tres_run_minutes={"cpu": 479})}, HOUR),
        ("MaxMemoryRunMinsPerAccount", {"per_account": Share(tres_run_minutes={"mem": 479})}, HOUR),
        ("QOSMaxCpuPerJobLimit", {"max_tres_per_job": {"cpu": 3}}, {}),
        ("QOSMaxMemoryPerJob", {"max_tres_per_job": {"mem": 3}}, {}),
        ("QOSMaxNodePerJobLimit", {"max_tres_per_job": {"node": 1}}, {"nodes_min": 2, "nodes_max": 2}),
        ("QOSMaxGRESPerJob", {"max_tres_per_job": {"gres/gpu": 1}}, GPU),
        ("QOSMaxCpuPerNode", {"max_tres_per_node": {"cpu": 3}}, {}),
        ("QOSMaxMemoryPerNode", {"max_tres_per_node": {"mem": 3}}, {}),
        ("QOSMaxCpuMinutesPerJobLimit", {"max_tres_minutes_per_job": {"cpu": 239}}, HOUR),
        ("QOSMaxMemoryMinutesPerJob", {"max_tres_minutes_per_job": {"mem": 239}}, HOUR),
        ("QOSMaxWallDurationPerJobLimit", {"max_wall_minutes_per_job": 59}, HOUR),
        ("QOSMinCpuNotSatisfied", {"min_tres_per_job": {"cpu": 5}}, {}),
        ("QOSMinMemory", {"min_tres_per_job": {"mem": 5}}, {}),
        ("QOSMinNode", {"min_tres_per_job": {"node": 2}}, {}),
        ("QOSMinGRES", {"min_tres_per_job": {"gres/gpu": 3}}, GPU),
    ],
)
def test_a_limit_of_a_qos_has_its_reason(reason: str, qos: dict[str, object], job: dict[str, object]) -> None:
    state = limited(qos=[a_qos("high", 2, **qos)])
    run(state, job_of("ada", 1, 4, qos="high", limit_seconds=3600))
    assert outcome(state, job_of("ada", 2, 4, qos="high", **job)) == reason
    assert outcome(state, job_of("ada", 3, 4, **job)) == "started"


def test_limits_that_are_not_enforced_keep_nobody() -> None:
    state = limited(enforce=("associations",), ada=Limits(grp_tres={"cpu": 1}, max_jobs=0))
    assert outcome(state, job_of("ada", 1, 4)) == "started"


@pytest.mark.parametrize(
    ("reason", "partition", "fields"),
    [
        (Reason.ACCOUNT_NOT_ALLOWED, {"allow_accounts": ("chemistry",)}, {}),
        (Reason.ACCOUNT_NOT_ALLOWED, {"deny_accounts": ("physics",)}, {}),
        (Reason.ACCOUNT_NOT_ALLOWED, {"deny_accounts": ("root",)}, {}),
        (Reason.QOS_NOT_ALLOWED, {"allow_qos": ("high",)}, {}),
        (Reason.QOS_NOT_ALLOWED, {"deny_qos": ("normal",)}, {}),
        (Reason.INVALID_ACCOUNT, {}, {"account": "biology"}),
        (Reason.INVALID_QOS, {}, {"qos": "golden"}),
    ],
)
def test_accounts_and_qos_that_may_not_run_there(
    reason: Reason, partition: dict[str, object], fields: dict[str, object]
) -> None:
    partitions = (a_partition(**partition),)  # type: ignore[arg-type]
    state = limited(partitions=partitions, enforce=(*LIMITS, "qos"))
    assert outcome(state, job_of("ada", 1, **fields)) == reason  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lists", [{"allow_accounts": ("root",)}, {"allow_accounts": ("physics",)}, {"deny_accounts": ("x",)}]
)
def test_a_partition_takes_the_accounts_below_those_that_it_names(lists: dict[str, tuple[str, ...]]) -> None:
    state = limited(partitions=(a_partition(**lists),))  # type: ignore[arg-type]
    assert outcome(state, job_of("ada", 1)) == "started"


def test_a_qos_that_the_association_may_not_use_is_invalid() -> None:
    state = limited(enforce=(*LIMITS, "qos"), qos=[a_qos("golden", 3)])
    assert outcome(state, job_of("ada", 1, qos="golden")) == "InvalidQOS"
    assert outcome(state, job_of("ada", 2, qos="high")) == "started"


# ---- precedence ------------------------------------------------------------------------------------------------


def test_a_job_qos_with_over_part_qos_goes_before_that_of_the_partition() -> None:
    qos = [
        a_qos("part", 3, grp_jobs=1),
        a_qos("high", 2, grp_jobs=7),
        a_qos("over", 4, grp_jobs=9, flags=("OverPartQOS",)),
    ]
    state = limited(qos=qos, partitions=(a_partition(qos="part"),))

    def limit(name: str) -> list[tuple[str, int]]:
        return [(rule.of, rule.limit) for rule in state.limits.ruleset("ada", "physics", name, "main").before]

    assert limit("high") == [("QOS part", 1)]
    assert limit("over") == [("QOS over", 9)]
    assert limit("normal") == [("QOS part", 1)]


def test_a_group_limit_of_a_qos_switches_off_that_of_associations_tres_by_tres() -> None:
    state = limited(qos=[a_qos("high", 2, grp_tres={"cpu": 500})], physics=Limits(grp_tres={"cpu": 4, "mem": 100}))
    assert outcome(state, job_of("ada", 1, 50, qos="high")) == "started"
    assert (
        outcome(state, job_of("ada", 2, 101, qos="high", cpus_per_task=5, memory_per_cpu_mib=21)) == "AssocGrpMemLimit"
    )
    # What runs under the QOS still counts in the account.
    state = limited(qos=[a_qos("high", 2, grp_tres={"cpu": 500})], physics=Limits(grp_tres={"cpu": 4, "mem": 100}))
    run(state, job_of("ada", 1, 50, qos="high"))
    assert outcome(state, job_of("bob", 2, 1)) == "AssocGrpCpuLimit"


def test_maxima_of_an_account_are_the_defaults_of_its_users() -> None:
    state = limited(physics=Limits(max_jobs=1), bob=Limits(max_jobs=2))
    run(state, job_of("ada", 1))
    run(state, job_of("bob", 2))
    assert outcome(state, job_of("ada", 3)) == "AssocMaxJobsLimit"
    assert outcome(state, job_of("bob", 4)) == "started"


def test_a_limit_factor_stretches_what_associations_allow() -> None:
    qos = [a_qos("high", 2, limit_factor=2.5)]
    state = limited(qos=qos, physics=Limits(grp_tres={"cpu": 10}), ada=Limits(max_tres_per_job={"cpu": 10}))
    assert outcome(state, job_of("ada", 1, 11)) == "AssocMaxCpuPerJobLimit"
    assert outcome(state, job_of("ada", 2, 26, qos="high")) == "AssocMaxCpuPerJobLimit"
    assert outcome(state, job_of("ada", 3, 25, qos="high")) == "started"


def test_a_relative_qos_counts_in_per_cent_of_the_cluster_and_of_its_partition() -> None:
    partitions = (a_partition(nodes=4), a_partition("half", nodes=2, qos="part", default=False))
    qos = [
        a_qos("high", 2, grp_tres={"cpu": 50}, flags=("Relative",)),
        a_qos("part", 3, grp_tres={"cpu": 50, "gres/gpu": 25}, flags=("Relative",)),
    ]
    state = limited(cpus=8, qos=qos, partitions=partitions)

    def rules(name: str, partition: str) -> list[tuple[str, int]]:
        return [(rule.tres, rule.limit) for rule in state.limits.ruleset("ada", "physics", name, partition).after]

    assert rules("high", "main") == [("cpu", 16)]
    assert rules("normal", "half") == [("cpu", 8), ("gres/gpu", 4)]


def test_limits_of_a_gpu_type_hold_for_jobs_that_name_it() -> None:
    state = limited(gpu_type="a100", ada=Limits(grp_tres={"gres/gpu:a100": 1}))
    assert outcome(state, job_of("ada", 1, gpus_per_node=(GpuRequest("a100", 2),))) == "AssocGrpGRES"
    assert outcome(state, job_of("ada", 2, gpus_per_node=(GpuRequest("", 2),))) == "started"


def test_the_first_limit_in_the_way_is_shown() -> None:
    both = Limits(grp_tres={"cpu": 1}, grp_jobs=1)
    state = limited(ada=both)
    run(state, job_of("ada", 1))
    assert outcome(state, job_of("ada", 2)) == "AssocGrpJobsLimit"
    state = limited(qos=[a_qos(per_user=Share(tres={"cpu": 1}))], ada=Limits(grp_tres={"cpu": 1}))
    run(state, job_of("ada", 1))
    assert outcome(state, job_of("ada", 2)) == "QOSMaxCpuPerUserLimit"


@pytest.mark.parametrize(
    ("flag", "partition", "fields", "without"),
    [
        ("PartitionTimeLimit", {"max_minutes": 10}, {"limit_seconds": 3600}, "PartitionTimeLimit"),
        ("PartitionMaxNodes", {"max_nodes": 1}, {"nodes_min": 2, "nodes_max": 2}, "PartitionNodeLimit"),
        ("PartitionMinNodes", {"min_nodes": 2}, {"nodes_max": 1}, "PartitionNodeLimit"),
    ],
)
def test_a_qos_may_set_the_partitions_own_limits_aside(
    flag: str, partition: dict[str, object], fields: dict[str, object], without: str
) -> None:
    state = limited(qos=[a_qos("high", 2, flags=(flag,))], partitions=(a_partition(**partition),))  # type: ignore[arg-type]
    assert outcome(state, job_of("ada", 1, **fields)) == without  # type: ignore[arg-type]
    assert outcome(state, job_of("ada", 2, qos="high", **fields)) == "started"  # type: ignore[arg-type]


# ---- in a pass -------------------------------------------------------------------------------------------------


def test_a_job_that_a_limit_keeps_back_holds_up_nobody_behind_it() -> None:
    state = limited(1, cpus=8, ada=Limits(max_jobs=1))
    run(state, job_of("ada", 1, 4, limit_seconds=3600))
    waiting(
        state,
        job_of("ada", 2, 8, priority=900, limit_seconds=3600),
        job_of("ada", 3, 1, priority=800),
        job_of("bob", 4, 4, priority=5),
    )
    made = planned(state)
    assert [start.job_id for start in made.starts] == [4]
    for number in (2, 3):
        assert reason_of(state, made, state.jobs[number], NOON).reason is Reason.ASSOC_MAX_JOBS_LIMIT


def test_starts_of_a_pass_count_against_each_other() -> None:
    state = limited(ada=Limits(max_jobs=3), physics=Limits(grp_tres={"cpu": 10}))
    waiting(state, job_of("ada", 1, 1, array=(0, 9), priority=9), job_of("bob", 20, 4, array=(0, 9), priority=5))
    made = planned(state)
    assert [start.job_id for start in made.starts] == [1, 1, 1, 20]
    assert reason_of(state, made, state.jobs[1], NOON).reason is Reason.ASSOC_MAX_JOBS_LIMIT
    assert reason_of(state, made, state.jobs[20], NOON).reason is Reason.ASSOC_GRP_CPU_LIMIT


def test_what_is_rounded_up_to_whole_cores_counts_as_it_is_given() -> None:
    state = limited(threads=2, ada=Limits(grp_tres={"cpu": 3}))
    assert outcome(state, job_of("ada", 1, 3)) == "AssocGrpCpuLimit"
    assert outcome(state, job_of("ada", 2, 1)) == "started"


def test_the_numbers_behind_a_limit_are_kept() -> None:
    state = limited(physics=Limits(grp_tres={"cpu": 10}))
    run(state, job_of("ada", 1, 8))
    job = job_of("bob", 2, 4)
    waiting(state, job)
    wait = reason_of(state, planned(state), job, NOON)
    assert wait.limit == LimitNumbers("GrpTRES", "cpu", "account physics", 10, 8, 4)
    assert wait.limit.sentence() == "GrpTRES cpu of account physics is 10: 8 in use, 4 more asked for"


# ---- pools -----------------------------------------------------------------------------------------------------


def test_claims_name_what_limits_first_and_then_what_others_count() -> None:
    qos = [a_qos("high", 2, per_user=Share(jobs=2))]
    state = limited(qos=qos, physics=Limits(grp_tres={"cpu": 100}, grp_jobs=5), eve=Limits(grp_tres={"cpu": 1}))
    partition: PartitionSpec = state.partitions["main"]
    found = limits.claims(state, job_of("ada", 1, 4, qos="high"), partition, 60)
    assert found == (
        Claim(("qos user", "high", "ada", "jobs"), 2, 1, Reason.QOS_MAX_JOBS_PER_USER_LIMIT),
        Claim(("association", PHYSICS, "jobs"), 5, 1, Reason.ASSOC_GRP_JOBS_LIMIT),
        Claim(("association", PHYSICS, "cpu"), 100, 4, Reason.ASSOC_GRP_CPU_LIMIT),
    )


def test_a_job_under_no_limit_takes_from_the_pools_of_others_all_the_same() -> None:
    state = limited(qos=[a_qos("high", 2, grp_tres={"cpu": 500})], physics=Limits(grp_tres={"cpu": 4}))
    found = limits.claims(state, job_of("ada", 1, 50, qos="high"), state.partitions["main"], 60)
    assert [(claim.key, claim.capacity, claim.amount) for claim in found] == [
        (("qos", "high", "cpu"), 500, 50),
        (("association", PHYSICS, "cpu"), limits.NO_LIMIT, 50),
    ]


def test_running_jobs_hold_what_they_were_given() -> None:
    state = limited(
        threads=2, root=Limits(grp_tres={"cpu": 100}), ada=Limits(grp_tres_run_minutes={"cpu": 1000}, max_jobs=3)
    )
    job = run(state, job_of("ada", 1, 2, limit_seconds=3600), NodeShare(0, 2, (0, 0), 2))
    assert [(claim.key, claim.amount) for claim in limits.claims_of_running(state, job, UnixTime(NOON + 600))] == [
        (("association", ADA, "cpu minutes"), 100),
        (("association", ADA, "jobs"), 1),
        (("association", ROOT, "cpu"), 2),
    ]
    assert limits.end_of_running(job, NOON) == NOON + 3600
    assert limits.end_of_running(job, UnixTime(NOON + 9999)) == NOON + 10_000


def test_minutes_of_running_jobs_shrink_until_a_job_fits() -> None:
    state = limited(ada=Limits(grp_tres_run_minutes={"cpu": 100}))
    run(state, job_of("ada", 1, 1, limit_seconds=3600))
    waiting(state, job_of("ada", 2, 1, limit_seconds=3600))
    assert not planned(state).starts
    assert not planned(state, NOON + 19 * 60).starts
    assert [start.job_id for start in planned(state, NOON + 20 * 60).starts] == [2]


class Spent:
    """A history in which everybody used so much."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes

    def tres_minutes(self, scope: object, tres: str, at: int) -> float:
        return self.minutes

    def wall_minutes(self, scope: object, at: int) -> float:
        return self.minutes


@pytest.mark.parametrize(
    ("enforce", "spent", "reason"),
    [
        (LIMITS, 999, None),
        (LIMITS, 1000, Reason.ASSOC_GRP_CPU_MINUTES_LIMIT),
        (SAFE, 700, None),
        (SAFE, 701, Reason.ASSOC_GRP_CPU_MINUTES_LIMIT),
    ],
)
def test_past_use_leaves_so_much(enforce: tuple[str, ...], spent: int, reason: Reason | None) -> None:
    state = limited(enforce=enforce, physics=Limits(grp_tres_minutes={"cpu": 1000}))
    run(state, job_of("bob", 1, 1, limit_seconds=3600))
    job = job_of("ada", 2, 4, limit_seconds=3600)
    shares = (NodeShare(0, 4, (4, 7), 4),)
    wait = Gate(state, NOON, Spent(spent)).after(job, "main", shares, 3600)
    assert (wait.reason if wait else None) is reason


def test_past_wall_time_leaves_so_much() -> None:
    state = limited(qos=[a_qos(grp_wall_minutes=1000)])
    job = job_of("ada", 2, 4, limit_seconds=3600)
    shares = (NodeShare(0, 4, (4, 7), 4),)
    assert Gate(state, NOON, Spent(999)).after(job, "main", shares, 3600) is None
    wait = Gate(state, NOON, Spent(1000)).after(job, "main", shares, 3600)
    assert wait == Wait(Reason.QOS_GRP_WALL_LIMIT, limit=LimitNumbers("GrpWall", "", "QOS normal", 1000, 1000, 0))


def test_a_job_waits_while_its_account_has_used_up_its_minutes() -> None:
    state = limited(physics=Limits(grp_tres_minutes={"cpu": 240}))
    state.at = NOON
    run(state, job_of("ada", 1, 4, limit_seconds=7200))
    job = job_of("bob", 2, 1)
    waiting(state, job)
    assert [start.job_id for start in planned(state, NOON + 3599).starts] == [2]
    made = planned(state, NOON + 3600)
    assert made.starts == ()
    wait = reason_of(state, made, job, UnixTime(NOON + 3600))
    assert wait.reason is Reason.ASSOC_GRP_CPU_MINUTES_LIMIT
    assert wait.limit == LimitNumbers("GrpTRESMins", "cpu", "account physics", 240, 240, 0)


def test_billing_is_limited_as_the_partition_bills() -> None:
    partitions = (a_partition(billing_weights={"cpu": 2.0, "gres/gpu": 10.0}),)
    state = limited(partitions=partitions, ada=Limits(grp_tres={"billing": 20}))
    assert outcome(state, job_of("ada", 1, 11)) == "AssocGrpBilling"
    assert outcome(state, job_of("ada", 2, 1, gpus_per_node=(GpuRequest("", 2),))) == "AssocGrpBilling"
    run(state, job_of("ada", 3, 5))
    assert outcome(state, job_of("ada", 4, 6)) == "AssocGrpBilling"
    assert outcome(state, job_of("ada", 5, 5)) == "started"


def test_licences_that_run_count_in_the_limits_of_their_group() -> None:
    state = limited(physics=Limits(grp_tres={"license/matlab": 3}))
    state.settings = replace(state.settings, licenses={"matlab": 10})
    running = run(state, job_of("ada", 1, licenses="matlab:2"))
    assert running.alloc is not None
    put(state, running, replace(running, alloc=replace(running.alloc, licenses="matlab:2")))
    assert outcome(state, job_of("bob", 2, licenses="matlab:2")) == "AssocGrpLicense"
    assert outcome(state, job_of("bob", 3, licenses="matlab:1")) == "started"
    assert outcome(state, job_of("eve", 4, licenses="matlab:2")) == "started"
    assert outcome(state, job_of("bob", 5)) == "started"


def test_licences_that_a_pass_hands_out_count_against_each_other() -> None:
    state = limited(physics=Limits(grp_tres={"license/matlab": 3}))
    state.settings = replace(state.settings, licenses={"matlab": 10})
    waiting(state, job_of("ada", 1, licenses="matlab:2"), job_of("bob", 2, licenses="matlab:2"))
    assert [start.job_id for start in planned(state).starts] == [1]


def test_a_job_waits_while_its_association_has_used_more_than_its_qos_tolerates() -> None:
    threshold = a_qos("high", 2, usage_threshold=0.5, flags=("EnforceUsageThreshold",))
    state = limited(qos=[threshold])
    state.at = NOON
    run(state, job_of("ada", 1, 4, limit_seconds=7200))
    made = waiting(state, job_of("ada", 2, qos="high"), job_of("eve", 3, qos="high"), job_of("ada", 4))
    assert [start.job_id for start in planned(made, NOON + 60).starts] == [3, 4]
    wait = reason_of(state, planned(made, NOON + 60), state.jobs[2], UnixTime(NOON + 60))
    assert wait.reason is Reason.QOS_USAGE_THRESHOLD
    state = limited(qos=[a_qos("high", 2, usage_threshold=0.5)])
    run(state, job_of("ada", 1, 4))
    assert outcome(state, job_of("ada", 2, qos="high")) == "started"


def test_with_assoc_limit_stop_nothing_of_the_partition_starts_behind_a_limit() -> None:
    partitions = (a_partition(nodes=2), a_partition("other", nodes=2, default=False))
    state = limited(2, partitions=partitions, ada=Limits(max_jobs=1))
    run(state, job_of("ada", 10))
    state.settings = replace(state.settings, limit_stops_partition=True)
    waiting(
        state,
        job_of("bob", 1, priority=9),
        job_of("ada", 2, priority=7),
        job_of("bob", 3, priority=5),
        job_of("bob", 4, priority=3, partitions=("other",)),
    )
    assert [start.job_id for start in planned(state).starts] == [1, 4]


def test_a_job_that_may_be_shorter_is_held_to_limits_with_what_it_asked_for() -> None:
    state = limited(ada=Limits(grp_tres_run_minutes={"cpu": 8 * 30}))
    wide = job_of("ada", 1, 1, exclusive="node", time_limit_minutes=60, time_min_minutes=1, limit_seconds=3600)
    assert outcome(state, wide) == "AssocGrpCPURunMinutesLimit"


def test_assoc_limit_stop_does_not_stop_for_a_licence_that_is_not_free() -> None:
    state = limited(2, ada=Limits(max_jobs=1))
    state.settings = replace(state.settings, limit_stops_partition=True, licenses={"a": 0})
    waiting(state, job_of("bob", 1, priority=9, licenses="a:1"), job_of("bob", 2, priority=7))
    assert [start.job_id for start in planned(state).starts] == [2]


def test_a_time_limit_that_an_administrator_gave_holds() -> None:
    state = limited(ada=Limits(max_wall_minutes_per_job=10))
    assert outcome(state, job_of("ada", 1, limit_seconds=3600)) == "AssocMaxWallDurationPerJobLimit"
    assert outcome(state, job_of("ada", 2, limit_seconds=3600, exempt=("time",))) == "started"


def test_a_qos_that_an_administrator_gave_holds() -> None:
    state = limited(enforce=(*LIMITS, "qos"), qos=[a_qos("golden", 3)])
    assert outcome(state, job_of("ada", 1, qos="golden", exempt=("qos",))) == "started"

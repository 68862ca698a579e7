"""Limits at the door: what is refused, what is let in to wait, and the time limit of who asks for none."""

from __future__ import annotations

import pytest

from ctld.core.accounts import Limits, Qos, Share
from ctld.core.commands import Submit, UpdateJob
from ctld.core.decide import decide
from ctld.core.model import Job
from ctld.core.state import State
from muster.errors import InvalidInput, Refused
from muster.ids import JobId
from tests.builders import ADMIN, NOON, USER, a_partition, a_spec
from tests.deciding import Desk
from tests.limited import limited

TEXT = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


def desk(state: State) -> Desk:
    made = Desk()
    made.state = state
    return made


def refusal(state: State, **fields: object) -> str:
    """The hint of a refused submission of ada's; empty when it is taken."""
    fields.setdefault("account", "physics")
    spec = a_spec(user="ada", **fields)  # type: ignore[arg-type]
    try:
        decide(state, Submit(spec, USER), NOON)
    except Refused as problem:
        return problem.hint if (problem.sentence, problem.slurm_code) == (TEXT, 2050) else str(problem)
    return ""


def a_qos(**fields: object) -> Qos:
    shared = {field: fields.pop(field) for field in Limits.__struct_fields__ if field in fields}
    return Qos(1, "normal", limits=Limits(**shared), **fields)  # type: ignore[arg-type]


DENY = ("DenyOnLimit",)


def test_a_request_over_a_qos_limit_is_refused_only_where_the_qos_says_so() -> None:
    deny = limited(qos=[a_qos(grp_tres={"cpu": 24}, flags=DENY)])
    assert refusal(deny, cpus_per_task=32) == "QOSGrpCpuLimit: GrpTRES cpu of QOS normal is 24: 32 is asked for"
    assert refusal(deny, cpus_per_task=24) == ""
    assert refusal(limited(qos=[a_qos(grp_tres={"cpu": 24})]), cpus_per_task=32) == ""


def test_a_request_without_a_qos_is_held_to_all_limits_at_once() -> None:
    state = limited(ada=Limits(max_tres_per_job={"cpu": 8}))
    assert refusal(state, cpus_per_task=9) == ""
    assert refusal(state, cpus_per_task=9, qos="unheard").startswith("AssocMaxCpuPerJobLimit: ")


@pytest.mark.parametrize(
    ("reason", "limits", "job"),
    [
        ("MaxCpuPerAccount", {"per_account": Share(tres={"cpu": 3})}, {}),
        ("QOSMaxCpuPerUserLimit", {"per_user": Share(tres={"cpu": 3})}, {}),
        ("QOSGrpCpuLimit", {"grp_tres": {"cpu": 3}}, {}),
        ("QOSMaxCpuMinutesPerJobLimit", {"max_tres_minutes_per_job": {"cpu": 239}}, {"time_limit_minutes": 60}),
        ("QOSGrpCPUMinutesLimit", {"grp_tres_minutes": {"cpu": 239}}, {"time_limit_minutes": 60}),
        ("QOSGrpCPURunMinutesLimit", {"grp_tres_run_minutes": {"cpu": 239}}, {"time_limit_minutes": 60}),
        ("MaxCpuRunMinsPerAccount", {"per_account": Share(tres_run_minutes={"cpu": 9})}, {"time_limit_minutes": 60}),
        ("MaxCpuRunMinsPerUser", {"per_user": Share(tres_run_minutes={"cpu": 9})}, {"time_limit_minutes": 60}),
        ("QOSMaxWallDurationPerJobLimit", {"max_wall_minutes_per_job": 59}, {"time_limit_minutes": 60}),
        ("QOSGrpWallLimit", {"grp_wall_minutes": 59}, {"time_limit_minutes": 60}),
        ("QOSMaxCpuPerJobLimit", {"max_tres_per_job": {"cpu": 3}}, {}),
        ("QOSMaxCpuPerNode", {"max_tres_per_node": {"cpu": 3}}, {}),
        ("QOSMinCpuNotSatisfied", {"min_tres_per_job": {"cpu": 5}}, {}),
    ],
)
def test_each_limit_of_a_denying_qos_refuses(reason: str, limits: dict[str, object], job: dict[str, object]) -> None:
    assert refusal(limited(qos=[a_qos(flags=DENY, **limits)]), cpus_per_task=4, **job).startswith(f"{reason}: ")
    assert refusal(limited(qos=[a_qos(**limits)]), cpus_per_task=4, **job) == ""


@pytest.mark.parametrize(
    ("reason", "limits", "job"),
    [
        ("AssocGrpCpuLimit", Limits(grp_tres={"cpu": 3}), {}),
        ("AssocGrpCPUMinutesLimit", Limits(grp_tres_minutes={"cpu": 239}), {"time_limit_minutes": 60}),
        ("AssocGrpCPURunMinutesLimit", Limits(grp_tres_run_minutes={"cpu": 239}), {"time_limit_minutes": 60}),
        ("AssocGrpWallLimit", Limits(grp_wall_minutes=59), {"time_limit_minutes": 60}),
        ("AssocMaxCpuPerJobLimit", Limits(max_tres_per_job={"cpu": 3}), {}),
        ("AssocMaxCpuPerNode", Limits(max_tres_per_node={"cpu": 3}), {}),
        ("AssocMaxCpuMinutesPerJobLimit", Limits(max_tres_minutes_per_job={"cpu": 239}), {"time_limit_minutes": 60}),
        ("AssocMaxWallDurationPerJobLimit", Limits(max_wall_minutes_per_job=59), {"time_limit_minutes": 60}),
    ],
)
def test_each_limit_of_an_association_refuses_under_a_denying_qos(
    reason: str, limits: Limits, job: dict[str, object]
) -> None:
    assert refusal(limited(qos=[a_qos(flags=DENY)], ada=limits), cpus_per_task=4, **job).startswith(f"{reason}: ")
    assert refusal(limited(ada=limits), cpus_per_task=4, **job) == ""


@pytest.mark.parametrize(
    ("reason", "qos", "limits"),
    [
        ("QOSGrpSubmitJobsLimit", {"grp_submit_jobs": 3}, {}),
        ("MaxSubmitJobsPerAccount", {"per_account": Share(submit_jobs=3)}, {}),
        ("QOSMaxSubmitJobPerUserLimit", {"per_user": Share(submit_jobs=3)}, {}),
        ("AssocMaxSubmitJobLimit", {}, {"ada": Limits(max_submit_jobs=3)}),
        ("AssocGrpSubmitJobsLimit", {}, {"physics": Limits(grp_submit_jobs=3)}),
        ("AssocGrpSubmitJobsLimit", {}, {"root": Limits(grp_submit_jobs=3)}),
    ],
)
def test_numbers_of_submitted_jobs_are_always_enforced(
    reason: str, qos: dict[str, object], limits: dict[str, Limits]
) -> None:
    state = limited(qos=[a_qos(**qos)], **limits)  # type: ignore[arg-type]
    made = desk(state)
    first = made.submit(user="ada", account="physics", array=(0, 1))
    assert refusal(state, array=(0, 1)).startswith(f"{reason}: ")
    assert refusal(state) == ""
    made.submit(user="ada", account="physics")
    assert refusal(state).startswith(f"{reason}: ")
    # A running job counts as much as a waiting one, and one that has ended no more.
    run = made.start(first, 0)
    assert refusal(state).startswith(f"{reason}: ")
    made.end(run)
    assert refusal(state) == ""


def test_no_job_is_refused_where_limits_are_not_enforced() -> None:
    state = limited(enforce=("associations",), ada=Limits(max_submit_jobs=0))
    assert refusal(state) == ""


def test_max_wall_is_the_limit_of_who_asks_for_none() -> None:
    def limit(state: State, **fields: object) -> int:
        event = decide(state, Submit(a_spec(user="ada", account="physics", **fields), USER), NOON)[0]  # type: ignore[arg-type]
        job: Job = event.job  # type: ignore[union-attr]
        return job.limit_seconds

    wall = Limits(max_wall_minutes_per_job=90)
    assert limit(limited(ada=wall)) == 90 * 60
    assert limit(limited(physics=wall)) == 90 * 60
    assert limit(limited(ada=wall, partitions=(a_partition(max_minutes=60),))) == 3600
    assert limit(limited(ada=wall, partitions=(a_partition(max_minutes=900),))) == 90 * 60
    assert limit(limited(ada=wall, partitions=(a_partition(default_minutes=10),))) == 600
    assert limit(limited(ada=wall), time_limit_minutes=30) == 1800
    assert limit(limited(enforce=(), ada=wall)) == -1


def test_with_several_partitions_one_has_to_take_the_job_or_all_as_configured() -> None:
    partitions = (a_partition(qos="strict"), a_partition("open", nodes=4, default=False))
    qos = [Qos(3, "strict", limits=Limits(max_tres_per_job={"cpu": 4}), flags=DENY)]
    state = limited(qos=qos, partitions=partitions)
    both = ("main", "open")
    assert refusal(state, cpus_per_task=8, partitions=both) == ""
    assert refusal(state, cpus_per_task=8, partitions=("main",)).startswith("QOSMaxCpuPerJobLimit: ")
    state.settings = type(state.settings)(
        require_registration=False, accounting_enforce=state.settings.accounting_enforce, enforce_part_limits="ALL"
    )
    assert refusal(state, cpus_per_task=8, partitions=both).startswith("QOSMaxCpuPerJobLimit: ")


def test_partition_limits_that_the_qos_sets_aside_are_not_enforced() -> None:
    state = limited(qos=[a_qos(flags=("PartitionTimeLimit",))], partitions=(a_partition(max_minutes=10),))
    state.settings = type(state.settings)(
        require_registration=False, accounting_enforce=state.settings.accounting_enforce, enforce_part_limits="ALL"
    )
    assert refusal(state, time_limit_minutes=60) == ""


def test_the_owner_cannot_change_a_job_over_a_limit_that_refuses() -> None:
    state = limited(qos=[a_qos(max_wall_minutes_per_job=60, flags=DENY)])
    made = desk(state)
    job = made.submit(user="ada", account="physics", time_limit_minutes=30)
    with pytest.raises(Refused, match="policy"):
        made.do(UpdateJob(JobId(job), USER, time_limit_minutes=61))
    made.do(UpdateJob(JobId(job), USER, time_limit_minutes=60))
    made.do(UpdateJob(JobId(job), ADMIN, time_limit_minutes=61))
    assert made.job(job).limit_seconds == 61 * 60


def test_an_administrators_time_limit_over_max_wall_is_noted_and_taken_back() -> None:
    state = limited(ada=Limits(max_wall_minutes_per_job=60))
    made = desk(state)
    job = made.submit(user="ada", account="physics", time_limit_minutes=30)
    made.do(UpdateJob(JobId(job), ADMIN, time_limit_minutes=90))
    assert made.job(job).spec.exempt == ("time",)
    made.do(UpdateJob(JobId(job), USER, time_limit_minutes=20))
    assert made.job(job).spec.exempt == ()


def test_a_qos_for_reservations_takes_no_job_without_one() -> None:
    state = limited(qos=[a_qos(flags=("RequiresReservation",))])
    with pytest.raises(InvalidInput, match="Invalid qos specification"):
        decide(state, Submit(a_spec(user="ada", account="physics"), USER), NOON)


def test_what_an_administrator_submits_under_a_qos_not_open_to_the_association_is_noted() -> None:
    state = limited(qos=[Qos(3, "golden")], enforce=("associations", "limits", "qos"))
    spec = a_spec(user="ada", account="physics", qos="golden")
    with pytest.raises(InvalidInput, match="Invalid qos specification"):
        decide(state, Submit(spec, USER), NOON)
    event = decide(state, Submit(spec, ADMIN), NOON)[0]
    assert event.job.spec.exempt == ("qos",)  # type: ignore[union-attr]

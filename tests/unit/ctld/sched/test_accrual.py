"""Accrue limits: the oldest get the slots, and keep them."""

from __future__ import annotations

import pytest

from ctld.core.accounts import Accounts, Association, Limits, Qos, Share
from ctld.core.cluster import PrioritySettings, Settings
from ctld.core.commands import ApplyAccounts, GrantAccrual, Hold
from ctld.sched.accrual import limits_accrual, slots
from ctld.sched.priority import Weigher
from muster.ids import JobId, UnixTime
from tests.builders import USER, a_state
from tests.stage import Stage


def a_tree(
    qos: Qos | None = None, account: Limits | None = None, user: Limits | None = None, root: Limits | None = None
) -> ApplyAccounts:
    nothing = Limits()
    return ApplyAccounts(
        (
            Association(1, "root", limits=root or nothing),
            Association(2, "physics", parent_id=1, limits=account or nothing),
            Association(3, "physics", parent_id=2, user="ada", limits=user or nothing),
            Association(4, "physics", parent_id=2, user="bob"),
        ),
        (qos or Qos(1, "normal"),),
    )


def a_stage(tree: ApplyAccounts, *users: str) -> Stage:
    settings = Settings(
        require_registration=False, accounting_enforce=("limits",), priority=PrioritySettings(age=604800)
    )
    stage = Stage(a_state(settings=settings))
    stage.do(tree)
    for user in users:
        stage.submit(user=user, account="physics")
        stage.at += 1
    return stage


def give(stage: Stage) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found = slots(stage.state.jobs.values(), stage.state.accounts)
    stage.do(GrantAccrual(*found))
    return found


def age(stage: Stage, job: int) -> float:
    return Weigher(stage.state, UnixTime(stage.at), {}).best(stage.job(job)).age


@pytest.mark.parametrize(
    ("tree", "over"),
    [
        (a_tree(), ()),
        (a_tree(qos=Qos(1, "normal", limits=Limits(grp_jobs_accrue=3))), (4, 5)),
        (a_tree(qos=Qos(1, "normal", per_account=Share(jobs_accrue=2))), (3, 4, 5)),
        (a_tree(qos=Qos(1, "normal", per_user=Share(jobs_accrue=1))), (2, 3, 5)),
        # What the QOS sets, the tree does not.
        (
            a_tree(qos=Qos(1, "normal", limits=Limits(grp_jobs_accrue=4)), root=Limits(grp_jobs_accrue=1)),
            (5,),
        ),
        (a_tree(user=Limits(max_jobs_accrue=2)), (3,)),
        (a_tree(account=Limits(max_jobs_accrue=1)), (2, 3, 5)),
        (a_tree(account=Limits(grp_jobs_accrue=2), root=Limits(grp_jobs_accrue=1)), (3, 4, 5)),
        (a_tree(root=Limits(grp_jobs_accrue=4)), (5,)),
    ],
)
def test_jobs_over_the_limit_stay_at_nothing(tree: ApplyAccounts, over: tuple[int, ...]) -> None:
    stage = a_stage(tree, "ada", "ada", "ada", "bob", "bob")
    assert limits_accrual(stage.state.accounts) == bool(over)
    assert give(stage) == ((), over)
    stage.at += 100
    assert [job for job in range(1, 6) if not age(stage, job)] == list(over)
    assert give(stage) == ((), ())


def test_a_slot_that_comes_free_goes_to_the_oldest_and_its_age_begins_then() -> None:
    stage = a_stage(a_tree(account=Limits(grp_jobs_accrue=1)), "ada", "ada", "ada")
    assert give(stage) == ((), (2, 3))
    stage.at += 50
    stage.submit(user="bob", account="physics")
    stage.start(1)
    assert give(stage) == ((2,), (4,))
    stage.at += 10
    assert [age(stage, job) for job in (2, 3, 4)] == pytest.approx([10, 0, 0])
    stage.do(Hold(JobId(2), USER))
    assert give(stage) == ((3,), ())


def test_without_limits_all_are_given_their_slots() -> None:
    stage = a_stage(a_tree(account=Limits(grp_jobs_accrue=1)), "ada", "ada")
    assert give(stage) == ((), (2,))
    assert slots(stage.state.jobs.values(), Accounts()) == ((2,), ())


def test_jobs_that_wait_no_more_are_left_out() -> None:
    stage = a_stage(a_tree(), "ada")
    stage.start(1)
    assert stage.do(GrantAccrual((1, 99), (1,))) == []

from __future__ import annotations

import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import Cancel, UpdateJob
from ctld.core.decide.clauses import dependency_text
from ctld.core.events import ArrayMemberSplit, JobsPurged, JobSubmitted
from muster.errors import InvalidInput
from muster.ids import JobId
from muster.states import JobState, Reason
from tests.builders import ADMIN, OTHER, USER
from tests.deciding import Desk

FAILED = JobState.FAILED


def text(desk: Desk, job_id: int) -> str:
    return dependency_text(desk.state, desk.job(job_id))


# One target.


@pytest.mark.parametrize(
    ("kind", "end", "met"),
    [
        ("afterok", JobState.COMPLETED, True),
        ("afterok", FAILED, False),
        ("afterok", JobState.TIMEOUT, False),
        ("afternotok", FAILED, True),
        ("afternotok", JobState.CANCELLED, True),
        ("afternotok", JobState.COMPLETED, False),
        ("afterany", JobState.COMPLETED, True),
        ("afterany", FAILED, True),
        ("aftercorr", JobState.COMPLETED, True),
        ("aftercorr", FAILED, False),
    ],
)
def test_the_end_of_a_job_meets_or_fails_what_waits_for_it(kind: str, end: JobState, met: bool) -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"{kind}:{first}")
    assert not desk.can_start(second)
    assert text(desk, second) == f"{kind}:{first}(unfulfilled)"
    desk.start(first)
    assert not desk.can_start(second)
    desk.end(first, end)
    assert desk.can_start(second) == met
    assert text(desk, second) == ("" if met else f"{kind}:{first}(failed)")


def test_after_is_met_by_the_start() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"after:{first}")
    desk.start(first)
    assert desk.can_start(second)


def test_after_with_minutes_counts_from_the_start() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"after:{first}+1")
    desk.wait(600)
    assert not desk.can_start(second)
    desk.start(first)
    desk.wait(59)
    assert not desk.can_start(second)
    desk.wait(1)
    assert desk.can_start(second)


def test_after_is_met_when_the_target_is_cancelled_before_it_started() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"after:{first}+5")
    desk.do(Cancel(first, USER))
    assert desk.can_start(second)


def test_a_run_that_is_cleaned_up_has_not_ended_for_others() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterok:{first}")
    desk.start(first)
    desk.end(first, completing=(0,))
    assert not desk.can_start(second)
    desk.clean(first)
    assert desk.can_start(second)


def test_a_failure_is_known_before_cleaning_up_is_over() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterok:{first}")
    desk.start(first)
    desk.end(first, FAILED, status=256, completing=(0,))
    assert desk.job(second).reason == Reason.DEPENDENCY_NEVER


def test_all_targets_must_hold_and_met_ones_disappear() -> None:
    desk = Desk()
    one, two = desk.submit(), desk.submit()
    third = desk.submit(f"afterok:{one}:{two}")
    desk.run(one)
    assert text(desk, third) == f"afterok:{two}(unfulfilled)"
    assert not desk.can_start(third)
    desk.run(two)
    assert desk.can_start(third)


def test_b24_any_of_them_suffices_while_the_other_runs() -> None:
    desk = Desk()
    one, two = desk.submit(), desk.submit()
    third = desk.submit(f"afterok:{one}?afterok:{two}")
    assert text(desk, third) == f"afterok:{one}(unfulfilled)?afterok:{two}(unfulfilled)"
    desk.start(two)
    desk.run(one)
    assert desk.can_start(third)
    assert text(desk, third) == ""


def test_with_any_one_failure_does_not_matter_while_another_may_succeed() -> None:
    desk = Desk()
    one, two = desk.submit(), desk.submit()
    third = desk.submit(f"afterok:{one}?afterok:{two}")
    desk.run(one, FAILED)
    assert desk.job(third).reason == ""
    assert text(desk, third) == f"afterok:{one}(failed)?afterok:{two}(unfulfilled)"
    desk.run(two, FAILED)
    assert desk.job(third).reason == Reason.DEPENDENCY_NEVER


def test_b25_a_dependency_that_failed_leaves_the_job_waiting_with_the_reason() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterok:{first}")
    desk.run(first, FAILED)
    job = desk.job(second)
    assert (job.state, job.reason) == (JobState.PENDING, Reason.DEPENDENCY_NEVER)


def test_b25_it_cancels_the_job_where_the_cluster_wants_that_and_those_behind_it() -> None:
    desk = Desk(settings=Settings(kill_invalid_depend=True))
    first = desk.submit()
    second = desk.submit(f"afterok:{first}")
    third = desk.submit(f"afterok:{second}")
    fourth = desk.submit(f"afternotok:{second}")
    desk.run(first, FAILED)
    assert (desk.job(second).state, desk.job(second).reason) == (JobState.CANCELLED, Reason.DEPENDENCY_NEVER)
    assert desk.job(third).state == JobState.CANCELLED
    assert desk.can_start(fourth)


def test_b25_it_cancels_the_job_that_wants_that_itself() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterok:{first}", kill_invalid_depend=True)
    third = desk.submit(f"afterok:{first}")
    desk.run(first, FAILED)
    assert desk.job(second).state == JobState.CANCELLED
    assert desk.job(third).state == JobState.PENDING


def test_b25_a_job_that_wants_that_is_cancelled_at_submission_too() -> None:
    desk = Desk()
    first = desk.submit()
    desk.run(first, FAILED)
    second = desk.submit(f"afterok:{first}", kill_invalid_depend=True)
    assert (desk.job(second).state, desk.job(second).reason) == (JobState.CANCELLED, Reason.DEPENDENCY_NEVER)


def test_a_failed_dependency_stays_failed_when_the_target_succeeds_later() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterok:{first}")
    desk.run(first, FAILED)
    desk.requeue_run(first)
    desk.run(first)
    assert text(desk, second) == f"afterok:{first}(failed)"


def test_a_requeued_run_is_no_end() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterany:{first}")
    desk.start(first)
    desk.requeue_run(first)
    assert not desk.can_start(second)
    desk.run(first)
    assert desk.can_start(second)


def test_a_held_job_stays_held_when_its_dependency_is_met() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterok:{first}", hold=True)
    desk.run(first)
    assert text(desk, second) == ""
    assert not desk.can_start(second)


def test_targets_in_memory_are_judged_at_submission() -> None:
    desk = Desk()
    good, bad = desk.submit(), desk.submit()
    desk.run(good)
    desk.run(bad, FAILED)
    assert desk.can_start(desk.submit(f"afterok:{good},afternotok:{bad},afterany:{bad},after:{bad}"))
    failed = desk.submit(f"afterok:{bad}")
    assert desk.job(failed).reason == Reason.DEPENDENCY_NEVER
    assert text(desk, failed) == f"afterok:{bad}(failed)"


# Arrays.


def test_n08_afterok_on_an_array_waits_for_all_members() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 2))
    child = desk.submit(f"afterok:{parent}")
    assert text(desk, child) == f"afterok:{parent}_*(unfulfilled)"
    for task in (1, 0):
        desk.run(parent, task=task)
        assert not desk.can_start(child)
    desk.run(parent, task=2)
    assert desk.can_start(child)


def test_n08_afterok_on_a_member_waits_for_that_one_only() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 2))
    child = desk.submit(f"afterok:{parent}_1")
    assert text(desk, child) == f"afterok:{parent}_1(unfulfilled)"
    desk.run(parent, task=0)
    assert not desk.can_start(child)
    desk.run(parent, task=1)
    assert desk.can_start(child)


def test_n08_after_with_minutes_on_an_array_counts_from_the_last_start() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 2))
    child = desk.submit(f"after:{parent}+1")
    desk.start(parent, 0)
    desk.start(parent, 1)
    desk.wait(600)
    assert not desk.can_start(child)
    desk.start(parent, 2)
    desk.wait(59)
    assert not desk.can_start(child)
    desk.wait(1)
    assert desk.can_start(child)


def test_n08_afterany_on_an_array_waits_for_all_ends() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 1))
    child = desk.submit(f"afterany:{parent}")
    desk.run(parent, FAILED, task=0)
    last = desk.start(parent, 1)
    assert not desk.can_start(child)
    desk.end(last, FAILED, status=256)
    assert desk.can_start(child)


def test_n08_aftercorr_goes_member_by_member() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 2))
    child = desk.submit(f"aftercorr:{parent}", array=(0, 2))
    desk.run(parent, task=1)
    free = desk.member(child, 1)
    assert free.id != child
    assert free.array_task_id == 1
    assert desk.can_start(free.id)
    assert not desk.can_start(child)
    desk.run(parent, FAILED, task=0)
    stuck = desk.member(child, 0)
    assert not desk.can_start(stuck.id)
    assert stuck.reason == Reason.DEPENDENCY_NEVER
    assert text(desk, stuck.id) == f"aftercorr:{parent}_*(failed)"
    desk.run(parent, task=2)
    assert desk.can_start(child)
    assert desk.job(child).array_pending == (2, 2)


def test_n08_singleton_waits_for_earlier_jobs_of_the_same_name_and_owner() -> None:
    desk = Desk()
    first = desk.submit(name="train")
    other_name = desk.submit("singleton", name="eval")
    other_owner = desk.submit("singleton", by=OTHER, name="train")
    second = desk.submit("singleton", name="train")
    third = desk.submit("singleton", name="train")
    assert desk.can_start(other_name)
    assert desk.can_start(other_owner)
    assert text(desk, second) == "singleton(unfulfilled)"
    desk.run(first)
    assert desk.can_start(second)
    assert not desk.can_start(third)
    desk.run(second, FAILED)
    assert desk.can_start(third)


def test_members_of_a_singleton_array_do_not_wait_for_each_other() -> None:
    desk = Desk()
    first = desk.submit(name="train")
    array = desk.submit("singleton", name="train", array=(0, 2))
    desk.run(first)
    desk.start(array, 0)
    assert desk.can_start(array)


def test_a_new_name_frees_the_line_it_leaves() -> None:
    desk = Desk()
    first = desk.submit(name="train")
    second = desk.submit("singleton", name="train")
    desk.do(UpdateJob(first, USER, name="eval"))
    assert desk.can_start(second)


def test_a_new_name_frees_the_job_itself_where_its_new_line_is_empty() -> None:
    desk = Desk()
    desk.submit(name="train")
    ahead = desk.submit("singleton", name="train")
    renamed = desk.submit("singleton", name="train")
    desk.do(UpdateJob(renamed, USER, name="eval"))
    assert desk.can_start(renamed)
    assert not desk.can_start(ahead)


def test_b26_aftercorr_pairs_each_index_as_it_finishes_also_at_submission() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 3))
    desk.run(parent, task=0)
    desk.run(parent, FAILED, task=1)
    child = desk.submit(f"aftercorr:{parent}", array=(0, 5))
    assert desk.can_start(desk.member(child, 0).id)
    assert desk.member(child, 1).reason == Reason.DEPENDENCY_NEVER
    # Members without a counterpart have nothing to wait for.
    assert desk.can_start(desk.member(child, 4).id)
    assert desk.job(child).array_pending == (2, 3)
    assert not desk.can_start(child)


def test_aftercorr_on_an_array_that_is_all_done_splits_nothing() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 1))
    desk.run(parent, task=0)
    desk.run(parent, task=1)
    child = desk.submit(f"aftercorr:{parent}", array=(0, 1))
    assert desk.can_start(child)
    assert desk.job(child).array_pending == (0, 1)


def test_aftercorr_of_a_plain_job_waits_for_the_whole_array() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 1))
    child = desk.submit(f"aftercorr:{parent}")
    desk.run(parent, task=0)
    assert not desk.can_start(child)
    desk.run(parent, task=1)
    assert desk.can_start(child)


def test_a_cancelled_counterpart_fails_its_partner_and_can_cancel_it() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 2))
    child = desk.submit(f"aftercorr:{parent}", array=(0, 2), kill_invalid_depend=True)
    desk.do(Cancel(parent, USER, tasks=(1, 1)))
    assert desk.job(child).array_pending == (0, 0, 2, 2)
    assert desk.member(child, 1).state == JobState.CANCELLED
    desk.do(Cancel(parent, USER))
    assert desk.job(child).state == JobState.CANCELLED


def test_afterok_on_an_array_fails_with_the_first_failure() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 9))
    child = desk.submit(f"afterok:{parent}")
    desk.run(parent, FAILED, task=3)
    assert desk.job(child).reason == Reason.DEPENDENCY_NEVER


def test_afterok_on_an_array_fails_when_a_waiting_member_is_cancelled() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 9))
    child = desk.submit(f"afterok:{parent}")
    desk.do(Cancel(parent, USER, tasks=(3, 3)))
    assert desk.job(child).reason == Reason.DEPENDENCY_NEVER


def test_afternotok_on_an_array_waits_for_all_and_needs_one_failure() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 1))
    child, other = desk.submit(f"afternotok:{parent}"), desk.submit(array=(0, 0))
    child_of_other = desk.submit(f"afternotok:{other}")
    failed = desk.run(parent, FAILED, task=0)
    assert not desk.can_start(child)
    # The failed member leaves memory before the last one ends.
    desk.apply([JobsPurged(desk.at, (failed,))])
    desk.run(parent, task=1)
    assert desk.can_start(child)
    desk.run(other, task=0)
    assert desk.job(child_of_other).reason == Reason.DEPENDENCY_NEVER


def test_a_member_may_be_named_by_its_own_job_id() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 2))
    member = desk.start(parent, 1)
    child = desk.submit(f"afterok:{member}")
    desk.run(parent, task=0)
    assert not desk.can_start(child)
    desk.end(member)
    assert desk.can_start(child)


def test_an_array_may_wait_as_one_record() -> None:
    desk = Desk()
    first = desk.submit()
    array = desk.submit(f"afterok:{first}", array=(0, 1000))
    assert not desk.can_start(array)
    events = desk.end(desk.start(first))
    assert desk.can_start(array)
    assert not any(isinstance(event, ArrayMemberSplit) for event in events)


# What is refused.


@pytest.mark.parametrize(
    "asked",
    [
        "afterwards:1",
        "afterok",
        "afterok:",
        "afterok:x",
        "afterok:0",
        "afterok:1+5",
        "after:1+x",
        "afterok:1,,afterok:1",
        "afterok:1,afterany:1?after:1",
        "singleton:5",
        "afterok:1_2",
        "expand:1",
        "afterok:99",
        "afternotok:99",
        "afterok:99_1",
    ],
)
def test_b05_what_cannot_be_read_or_is_not_known_is_refused_at_submission(asked: str) -> None:
    desk = Desk()
    desk.submit()
    with pytest.raises(InvalidInput) as caught:
        desk.submit(asked)
    assert (caught.value.sentence, caught.value.slurm_code) == ("Job dependency problem", 2038)
    assert caught.value.hint
    assert len(desk.state.jobs) == 1


@pytest.mark.parametrize("asked", ["after:99", "afterany:99", "aftercorr:99", "99", "afterany:99_3"])
def test_a_job_that_is_not_known_holds_nobody_back_who_does_not_care_how_it_ended(asked: str) -> None:
    desk = Desk()
    assert desk.can_start(desk.submit(asked))


def test_b05_an_index_that_the_array_never_had_is_refused() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 2))
    with pytest.raises(InvalidInput, match="no member 3"):
        desk.submit(f"afterok:{parent}_3")


def test_a_job_cannot_wait_for_itself() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 2))
    with pytest.raises(InvalidInput) as caught:
        desk.do(UpdateJob(array, USER, dependency=f"afterok:{array}"))
    assert caught.value.slurm_code == 2038


def test_a_loop_is_refused() -> None:
    desk = Desk()
    one = desk.submit()
    two = desk.submit(f"afterok:{one}")
    three = desk.submit(f"afterany:{two}", array=(0, 2))
    four = desk.submit(f"afterok:{three}_1")
    with pytest.raises(InvalidInput) as caught:
        desk.do(UpdateJob(one, USER, dependency=f"afterok:{four}"))
    assert (caught.value.sentence, caught.value.slurm_code) == ("Circular job dependency", 2071)


def test_members_that_do_not_wait_for_each_other_are_no_loop() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 2))
    child = desk.submit(f"afterok:{array}_0")
    desk.do(UpdateJob(array, USER, tasks=(2, 2), dependency=f"afterok:{child}"))
    last = desk.member(array, 2)
    assert text(desk, last.id) == f"afterok:{child}(unfulfilled)"
    desk.run(array, task=0)
    assert desk.can_start(child)
    desk.run(child)
    assert desk.can_start(last.id)


# Changing it later.


def test_a_new_name_and_a_new_dependency_at_once_free_the_line_too() -> None:
    desk = Desk()
    other, first = desk.submit(name="other"), desk.submit(name="train")
    second = desk.submit("singleton", name="train")
    desk.do(UpdateJob(first, USER, name="eval", dependency=f"afterok:{other}"))
    assert desk.can_start(second)
    assert not desk.can_start(first)


def test_what_is_shown_is_accepted_back() -> None:
    desk = Desk()
    one, two = desk.submit(), desk.submit(array=(0, 2))
    third = desk.submit(f"AfterOK:{one}?afterany:{two}?singleton")
    shown = text(desk, third)
    desk.do(UpdateJob(third, USER, dependency=shown))
    assert text(desk, third) == shown


def test_an_empty_dependency_clears_it() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit(f"afterok:{first}")
    desk.do(UpdateJob(second, USER, dependency=""))
    assert desk.can_start(second)


def test_a_new_dependency_takes_an_eligible_job_out_of_the_queue() -> None:
    desk = Desk()
    first, second = desk.submit(), desk.submit()
    desk.do(UpdateJob(second, USER, dependency=f"afterok:{first}"))
    assert not desk.can_start(second)
    desk.run(first)
    assert desk.can_start(second)


def test_a_new_dependency_that_has_failed_already_shows_it() -> None:
    desk = Desk()
    first, second = desk.submit(), desk.submit()
    desk.run(first, FAILED)
    desk.do(UpdateJob(second, ADMIN, dependency=f"afterok:{first}"))
    assert desk.job(second).reason == Reason.DEPENDENCY_NEVER


def test_ids_of_members_that_split_at_once_differ() -> None:
    desk = Desk()
    parent = desk.submit(array=(0, 3))
    for task in range(3):
        desk.run(parent, task=task)
    child = desk.submit(f"aftercorr:{parent}", array=(0, 3))
    ids = {desk.member(child, task).id for task in range(4)}
    assert len(ids) == 4
    assert desk.submit() not in ids


def test_nothing_follows_when_nobody_waits() -> None:
    desk = Desk()
    first = desk.submit()
    second = desk.submit()
    assert [type(event) for event in desk.end(desk.start(first))] != [JobSubmitted]
    assert desk.can_start(second)
    assert desk.state.dependants == {}
    assert desk.job(JobId(first)).state == JobState.COMPLETED

from __future__ import annotations

import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import Hold, Release
from ctld.core.decide.selection import MAX_SPLITS
from ctld.core.model import Caller
from muster.errors import Denied, NotFound, Refused, TooLarge
from muster.ids import JobId
from tests.builders import ADMIN, OTHER, USER
from tests.deciding import Desk

ARRAY = (0, 4)


def held(desk: Desk, array: int) -> set[int]:
    """Give the members that are held; Priority must be 0 for just these."""
    found = set()
    for task in range(5):
        job = desk.member(array, task)
        assert (job.priority == 0) == bool(job.hold)
        assert desk.can_start(job.id) != bool(job.hold)
        if job.hold:
            found.add(task)
    return found


def test_b14_hold_the_whole_array_then_release_one_member() -> None:
    desk = Desk()
    array = desk.submit(array=ARRAY)
    desk.do(Hold(array, USER))
    assert held(desk, array) == {0, 1, 2, 3, 4}
    desk.do(Release(array, USER, tasks=(2, 2)))
    assert held(desk, array) == {0, 1, 3, 4}
    desk.do(Release(array, USER))
    assert held(desk, array) == set()


def test_b14_hold_one_member_then_release_the_whole_array() -> None:
    desk = Desk()
    array = desk.submit(array=ARRAY)
    desk.do(Hold(array, USER, tasks=(3, 3)))
    assert held(desk, array) == {3}
    desk.do(Hold(array, USER, tasks=(0, 1)))
    assert held(desk, array) == {0, 1, 3}
    desk.do(Release(array, USER))
    assert held(desk, array) == set()


def test_releasing_gives_back_the_place_in_the_order_of_submission() -> None:
    desk = Desk()
    first, second = desk.submit(), desk.submit()
    before = desk.job(first).priority
    desk.do(Hold(first, USER))
    desk.do(Release(first, USER))
    assert desk.job(first).priority == before > desk.job(second).priority


def test_a_released_member_keeps_the_place_of_its_array() -> None:
    desk = Desk()
    array = desk.submit(array=ARRAY)
    later = desk.submit()
    desk.do(Hold(array, USER, tasks=(3, 3)))
    desk.do(Release(array, USER, tasks=(3, 3)))
    assert desk.member(array, 3).priority > desk.job(later).priority


def test_the_owner_cannot_release_an_administrators_hold() -> None:
    desk = Desk()
    job = desk.submit()
    desk.do(Hold(job, ADMIN))
    assert desk.job(job).hold == "admin"
    with pytest.raises(Denied) as caught:
        desk.do(Release(job, USER))
    assert caught.value.sentence == "Access/permission denied"
    desk.do(Release(job, ADMIN))
    assert desk.can_start(job)


def test_the_owner_can_release_an_administrators_uhold() -> None:
    desk = Desk()
    job = desk.submit()
    desk.do(Hold(job, ADMIN, as_user=True))
    assert desk.job(job).hold == "user"
    desk.do(Release(job, USER))
    assert desk.can_start(job)


def test_the_owners_hold_does_not_weaken_an_administrators() -> None:
    desk = Desk()
    job = desk.submit()
    desk.do(Hold(job, ADMIN))
    assert desk.do(Hold(job, USER)) == []
    assert desk.job(job).hold == "admin"


def test_an_administrators_hold_strengthens_the_owners() -> None:
    desk = Desk()
    job = desk.submit()
    desk.do(Hold(job, USER))
    desk.do(Hold(job, ADMIN))
    assert desk.job(job).hold == "admin"


def test_a_running_job_is_held_from_its_requeue_on() -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    desk.do(Hold(job, USER))
    assert (desk.job(job).hold, desk.job(job).state) == ("user", 1)


def test_others_may_not_hold_or_release() -> None:
    desk = Desk()
    job = desk.submit()
    for command in (Hold(job, OTHER), Release(job, OTHER)):
        with pytest.raises(Denied) as caught:
            desk.do(command)
        assert (caught.value.sentence, caught.value.slurm_code) == ("Invalid user id", 2010)


def test_root_of_the_host_where_it_runs_may_hold_a_job() -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    with pytest.raises(Denied):
        desk.do(Hold(job, Caller(uid=0, gid=0, host="n2")))
    desk.do(Hold(job, Caller(uid=0, gid=0, host="n1")))
    assert desk.job(job).hold == "admin"


def test_unknown_and_ended_jobs_are_refused() -> None:
    desk = Desk()
    job = desk.run(desk.submit())
    for command in (Hold(job, USER), Release(job, USER)):
        with pytest.raises(Refused, match="Job has already finished"):
            desk.do(command)
    with pytest.raises(NotFound):
        desk.do(Hold(JobId(77), USER))


def test_releasing_what_is_not_held_changes_nothing() -> None:
    desk = Desk()
    array = desk.submit(array=ARRAY)
    assert desk.do(Release(array, USER, tasks=(1, 1))) == []
    assert desk.job(array).array_pending == ARRAY


def test_more_members_than_one_command_may_split_off_are_refused() -> None:
    desk = Desk(settings=Settings(max_array_size=20_000, max_job_count=50_000))
    array = desk.submit(array=(0, MAX_SPLITS + 1))
    with pytest.raises(TooLarge, match=f"{MAX_SPLITS + 1} members"):
        desk.do(Hold(array, USER, tasks=(0, MAX_SPLITS)))
    # The whole array is one record.
    assert len(desk.do(Hold(array, USER, tasks=(0, MAX_SPLITS + 1)))) == 1

from __future__ import annotations

import pytest

from ctld.core.commands import Cancel, Hold, NoteStopped, Requeue
from ctld.core.events import ArrayTasksCancelled, JobFinished, KillOrdered
from ctld.core.model import Kill
from muster.errors import Denied, NotFound, Refused
from muster.ids import JobId
from muster.states import STOPPED, JobState
from tests.builders import ADMIN, NOON, OTHER, USER
from tests.deciding import Desk


def test_a_waiting_job_ends_at_once_with_its_record() -> None:
    desk = Desk()
    job = desk.submit()
    (event,) = desk.do(Cancel(job, USER))
    assert isinstance(event, JobFinished)
    record = event.record
    assert (record.state, record.cancelled_by, record.exit_status) == ("CANCELLED", 1000, 0)
    assert (record.started_at, record.ended_at) == (NOON, NOON)
    assert desk.job(job).state == JobState.CANCELLED
    assert not desk.can_start(job)


@pytest.mark.parametrize("command", [Cancel, Hold, Requeue])
def test_a_member_of_a_rest_that_was_cancelled_has_no_end_of_its_own(command: type[Cancel]) -> None:
    desk = Desk()
    array = desk.submit(array=(3, 7))
    desk.do(Cancel(array, USER))
    with pytest.raises(Refused, match="already completing or completed"):
        desk.do(command(array, USER, tasks=(5, 5)))


def test_a_running_job_is_ordered_to_end_once() -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    (event,) = desk.do(Cancel(job, USER))
    assert isinstance(event, KillOrdered)
    assert event.kill == Kill(state=int(JobState.CANCELLED), at=NOON, by=1000)
    assert desk.do(Cancel(job, USER)) == []


def test_a_cancel_overrules_a_requeue_on_its_way() -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    desk.apply([KillOrdered(desk.at, job, Kill(state=4, at=desk.at, why="JOB REQUEUE", requeue=True))])
    (event,) = desk.do(Cancel(job, USER))
    assert isinstance(event, KillOrdered)
    assert not event.kill.requeue


def test_an_array_ends_with_its_pending_rest_in_one_event() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 1000))
    running = desk.start(array, 0)
    events = desk.do(Cancel(array, USER))
    assert sorted(type(event).__name__ for event in events) == ["ArrayTasksCancelled", "KillOrdered"]
    assert desk.job(array).state == JobState.CANCELLED
    assert desk.job(running).kill is not None


def test_members_are_cancelled_where_they_are() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 9))
    running = desk.start(array, 0)
    events = desk.do(Cancel(array, USER, tasks=(0, 1, 5, 7)))
    (rest,) = [event for event in events if isinstance(event, ArrayTasksCancelled)]
    assert rest.tasks == (1, 1, 5, 7)
    assert rest.record.array_tasks == "1,5-7"
    assert desk.job(array).array_pending == (2, 4, 8, 9)
    assert desk.job(running).kill is not None


def test_the_id_of_one_member_means_that_member() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 9))
    member = desk.start(array, 0)
    desk.do(Cancel(member, USER))
    assert desk.job(array).state == JobState.PENDING


def test_an_unknown_id_or_member_is_said_to_be_unknown() -> None:
    desk = Desk()
    desk.submit()
    for command in (Cancel(JobId(99), USER), Cancel(JobId(1), USER, tasks=(3, 3))):
        with pytest.raises(NotFound) as caught:
            desk.do(command)
        assert (caught.value.sentence, caught.value.slurm_code) == ("Invalid job id specified", 2017)


def test_what_has_ended_cannot_be_cancelled() -> None:
    desk = Desk()
    job = desk.run(desk.submit())
    with pytest.raises(Refused) as caught:
        desk.do(Cancel(job, USER))
    assert caught.value.slurm_code == 2021


def test_only_owner_and_administrator_may_cancel() -> None:
    desk = Desk()
    job = desk.submit()
    with pytest.raises(Denied) as caught:
        desk.do(Cancel(job, OTHER))
    assert caught.value.sentence == "Access/permission denied"
    assert desk.do(Cancel(job, ADMIN))


def test_a_stop_is_noted_once_and_taken_back() -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    assert len(desk.do(NoteStopped(job, USER, True))) == 1
    assert desk.job(job).flags & STOPPED
    assert desk.do(NoteStopped(job, USER, True)) == []
    desk.do(NoteStopped(job, USER, False))
    assert not desk.job(job).flags & STOPPED


def test_only_a_running_job_can_be_stopped() -> None:
    desk = Desk()
    job = desk.submit()
    with pytest.raises(Refused, match="Job is not running"):
        desk.do(NoteStopped(job, USER, True))

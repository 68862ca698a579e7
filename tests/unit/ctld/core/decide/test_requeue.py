from __future__ import annotations

import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import Requeue
from ctld.core.events import JobRequeued, KillOrdered
from muster.errors import Denied, NotFound, Refused
from muster.ids import JobId
from muster.states import JobState
from tests.builders import NOON, OTHER, USER
from tests.deciding import Desk


def test_b15_a_running_job_is_ended_first_and_comes_back() -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    (event,) = desk.do(Requeue(job, USER))
    assert isinstance(event, KillOrdered)
    assert event.kill.requeue
    assert event.kill.why == "JOB REQUEUE"
    assert desk.do(Requeue(job, USER)) == []


def test_b15_a_finished_job_waits_again_under_its_id_with_one_more_restart() -> None:
    desk = Desk(settings=Settings(require_registration=False, requeue_delay_seconds=5))
    job = desk.submit()
    priority = desk.job(job).priority
    desk.run(job, JobState.FAILED)
    (event,) = desk.do(Requeue(job, USER))
    assert isinstance(event, JobRequeued)
    again = desk.job(job)
    assert (again.id, again.restarts, again.state) == (job, 1, JobState.PENDING)
    assert again.begin_at == NOON + 6
    assert again.priority == priority
    assert not desk.can_start(job)


def test_b15_a_waiting_job_is_refused() -> None:
    desk = Desk()
    for job in (desk.submit(), desk.submit(array=(0, 3))):
        with pytest.raises(Refused) as caught:
            desk.do(Requeue(job, USER))
        assert (caught.value.sentence, caught.value.slurm_code) == ("Job is pending execution", 2024)
    with pytest.raises(Refused):
        desk.do(Requeue(job, USER, tasks=(1, 1)))


def test_requeuehold_holds_it_and_says_so() -> None:
    desk = Desk()
    job = desk.run(desk.submit())
    desk.do(Requeue(job, USER, hold=True))
    again = desk.job(job)
    assert (again.priority, again.hold, again.state_text) == (0, "user", "job requeued in held state")


def test_a_job_that_was_held_while_it_ran_comes_back_held() -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    (event,) = desk.do(Requeue(job, USER, hold=True))
    assert isinstance(event, KillOrdered)
    assert event.kill.hold


def test_of_an_array_those_come_back_that_can() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 4))
    done = desk.run(array, task=0)
    running = desk.start(array, 1)
    events = desk.do(Requeue(array, USER))
    assert {event.job_id for event in events} == {done, running}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"requeue": False}, "Requested operation is presently disabled"),
        ({"batch": False}, "Only batch jobs are accepted or processed"),
    ],
)
def test_jobs_that_cannot_be_requeued_are_refused(fields: dict[str, object], sentence: str) -> None:
    desk = Desk()
    job = desk.run(desk.submit(**fields))  # type: ignore[arg-type]
    with pytest.raises(Refused) as caught:
        desk.do(Requeue(job, USER))
    assert caught.value.sentence == sentence


def test_unknown_ids_and_others_are_refused() -> None:
    desk = Desk()
    job = desk.run(desk.submit())
    with pytest.raises(NotFound):
        desk.do(Requeue(JobId(9), USER))
    with pytest.raises(Denied, match="Access/permission denied"):
        desk.do(Requeue(job, OTHER))

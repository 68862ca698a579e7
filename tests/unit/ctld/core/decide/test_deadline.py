from __future__ import annotations

import pytest

from ctld.core.commands import Tick, UpdateJob
from ctld.core.events import KillOrdered
from muster.errors import InvalidInput
from muster.ids import JobId, UnixTime
from muster.states import JobState, Reason
from tests.builders import USER, a_state
from tests.stage import Stage, a_share


@pytest.fixture
def stage() -> Stage:
    return Stage(a_state(nodes=2, cpus=4))


def later(stage: Stage, seconds: int) -> UnixTime:
    return UnixTime(stage.at + seconds)


def test_a_job_that_cannot_end_by_its_deadline_is_removed(stage: Stage) -> None:
    job = stage.submit(time_limit_minutes=10, deadline_at=later(stage, 1000))
    stage.at += 400
    assert stage.do(Tick()) == []
    stage.at += 1
    stage.do(Tick())
    assert stage.job(job).state == JobState.DEADLINE
    assert stage.job(job).reason == Reason.DEADLINE


def test_with_time_min_it_may_start_later(stage: Stage) -> None:
    job = stage.submit(time_limit_minutes=10, time_min_minutes=1, deadline_at=later(stage, 1000))
    stage.at += 940
    assert stage.do(Tick()) == []
    stage.start(job, a_share())
    assert stage.job(job).limit_seconds == 60


def test_what_could_not_end_by_its_deadline_never_starts(stage: Stage) -> None:
    """Not even when nodes are free at the very second of its submission, before any Tick."""
    past = stage.submit(time_limit_minutes=10, deadline_at=UnixTime(978_307_200))
    tight = stage.submit(time_limit_minutes=10, deadline_at=later(stage, 599))
    just = stage.submit(time_limit_minutes=10, deadline_at=later(stage, 600))
    assert stage.start(past, a_share()) == [] and stage.start(tight, a_share()) == []
    assert stage.start(just, a_share()) != []
    stage.do(Tick())
    assert [stage.job(one).state for one in (past, tight, just)] == [
        JobState.DEADLINE,
        JobState.DEADLINE,
        JobState.RUNNING,
    ]


@pytest.mark.parametrize("hold", [False, True])
def test_arrays_and_held_jobs_are_removed_too(stage: Stage, hold: bool) -> None:
    job = stage.submit(time_limit_minutes=10, deadline_at=later(stage, 700), array=(0, 4))
    if hold:
        stage.do(UpdateJob(JobId(job), USER, priority=0))
    stage.at += 101
    stage.do(Tick())
    assert stage.job(job).state == JobState.DEADLINE


def test_a_run_without_limit_ends_at_the_deadline(stage: Stage) -> None:
    job = stage.submit(time_limit_minutes=-1, deadline_at=later(stage, 500))
    stage.start(job, a_share())
    assert stage.job(job).limit_seconds == 500
    stage.at += 500
    (event,) = stage.do(Tick())
    assert isinstance(event, KillOrdered)
    assert event.kill.state == JobState.DEADLINE


def test_deadline_and_time_min_can_be_changed(stage: Stage) -> None:
    job = stage.submit(time_limit_minutes=10)
    stage.do(UpdateJob(JobId(job), USER, deadline_at=later(stage, 700), time_min_minutes=5))
    assert stage.job(job).spec.request.time_min_minutes == 5
    with pytest.raises(InvalidInput, match="time-min"):
        stage.do(UpdateJob(JobId(job), USER, time_min_minutes=11))
    with pytest.raises(InvalidInput, match="time-min"):
        stage.submit(time_limit_minutes=10, time_min_minutes=11)
    stage.at += 401
    stage.do(Tick())
    assert stage.job(job).state == JobState.DEADLINE

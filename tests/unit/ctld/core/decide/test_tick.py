from __future__ import annotations

import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import CreateStep, FinishBatch, StepRequest, Submit, Tick
from ctld.core.events import JobEligible, JobsPurged, JobWarned, KillOrdered, StepKillOrdered
from ctld.core.model import SignalSpec
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import NOON, USER, a_spec, a_state
from tests.stage import Stage, a_result, a_share


@pytest.fixture
def stage() -> Stage:
    return Stage(a_state())


def test_a_run_is_ended_at_its_limit_and_only_once(stage: Stage) -> None:
    job_id = stage.running(time_limit_minutes=1)
    stage.at += 59
    assert not stage.do(Tick())
    stage.at += 1
    (event,) = stage.do(Tick())
    assert isinstance(event, KillOrdered)
    assert (event.kill.state, event.kill.why) == (JobState.TIMEOUT, "TIME LIMIT")
    assert not stage.do(Tick())
    stage.do(FinishBatch(JobId(job_id), 0, a_result(0, 4 << 8)))
    assert (stage.job(job_id).state, stage.job(job_id).reason) == (JobState.TIMEOUT, "TimeLimit")


def test_over_time_is_granted_behind_the_limit() -> None:
    stage = Stage(a_state(settings=Settings(require_registration=False, over_time_minutes=2)))
    stage.running(time_limit_minutes=1)
    stage.at += 179
    assert not stage.do(Tick())
    stage.at += 1
    assert len(stage.do(Tick())) == 1


def test_the_warning_comes_once_before_the_end(stage: Stage) -> None:
    job_id = stage.running(time_limit_minutes=2, signal=SignalSpec(signo=10, seconds=30))
    stage.at += 89
    assert not stage.do(Tick())
    stage.at += 1
    assert stage.do(Tick()) == [JobWarned(at=UnixTime(stage.at), job_id=JobId(job_id))]
    assert not stage.do(Tick())


def test_a_job_becomes_eligible_at_its_begin_time(stage: Stage) -> None:
    job_id = stage.submit(begin_at=UnixTime(NOON + 50))
    assert job_id not in stage.state.queue
    stage.at += 50
    assert stage.do(Tick()) == [JobEligible(at=UnixTime(NOON + 50), job_id=JobId(job_id))]
    assert (stage.job(job_id).eligible_at, job_id in stage.state.queue) == (NOON + 50, True)


def test_minutes_behind_a_start_release_the_dependant(stage: Stage) -> None:
    first = stage.running()
    stage.do(Submit(spec=a_spec(), by=USER, dependency=f"after:{first}+1"))
    child = first + 1
    stage.at += 59
    stage.do(Tick())
    assert child not in stage.state.queue
    stage.at += 1
    stage.do(Tick())
    assert child in stage.state.queue


def test_ended_jobs_leave_memory_after_their_time(stage: Stage) -> None:
    ids = [stage.running(a_share(node)) for node in range(3)]
    for node, job_id in enumerate(ids):
        stage.do(FinishBatch(JobId(job_id), 0, a_result(node, 0)))
    stage.at += 300
    assert stage.do(Tick(limit=2)) == [JobsPurged(at=UnixTime(stage.at), job_ids=tuple(ids[:2]))]
    stage.do(Tick())
    assert not stage.state.jobs
    assert stage.state.members == 0


def test_an_allocation_that_nobody_uses_ends(stage: Stage) -> None:
    job_id = stage.running(batch=False)
    stage.at += 10
    stage.do(Tick())
    assert stage.job(job_id).state == JobState.CANCELLED
    assert stage.state.free.cpus[0] == 64


def test_a_steps_own_limit_ends_only_the_step(stage: Stage) -> None:
    job_id = stage.running()
    stage.do(CreateStep(JobId(job_id), USER, StepRequest(name="s", argv=("x",), limit_minutes=1)))
    stage.at += 60
    (event,) = stage.do(Tick())
    assert isinstance(event, StepKillOrdered)
    assert stage.job(job_id).kill is None
    assert not stage.do(Tick())

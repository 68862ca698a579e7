"""Suspending and resuming by an administrator's word."""

from __future__ import annotations

import pytest

from ctld.core.commands import Cancel, Resume, Suspend
from ctld.core.events import JobResumed, JobSuspended
from ctld.core.model import Caller
from muster.errors import Denied, Refused
from muster.ids import JobId
from muster.states import JobState
from tests.builders import ADMIN, USER, a_partition, a_state
from tests.preempting import Cluster
from tests.stage import Stage, a_share


def a_stage() -> Stage:
    return Stage(a_state(1, cpus=8, partitions=(a_partition(nodes=1),)))


def test_a_suspended_job_gives_its_cpus_up_and_goes_on_with_them() -> None:
    stage = a_stage()
    job = JobId(stage.running(a_share(cpus=8)))
    assert [type(event) for event in stage.do(Suspend(job, ADMIN))] == [JobSuspended]
    assert int(stage.state.free.cpus[0]) == 8
    assert stage.do(Suspend(job, ADMIN)) == []
    assert [type(event) for event in stage.do(Resume(job, ADMIN))] == [JobResumed]
    assert int(stage.state.free.cpus[0]) == 0


def test_a_job_whose_cpus_are_anothers_stays_suspended() -> None:
    stage = a_stage()
    job = JobId(stage.running(a_share(cpus=8)))
    stage.do(Suspend(job, ADMIN))
    stage.running(a_share(first_core=7))
    with pytest.raises(Refused, match="go on once that has ended") as refused:
        stage.do(Resume(job, ADMIN))
    assert "n1" in str(refused.value)


@pytest.mark.parametrize("command", [Suspend, Resume])
def test_only_an_administrator_does_it_and_only_with_jobs_that_run(command: type[Suspend] | type[Resume]) -> None:
    stage = a_stage()
    waits = JobId(stage.submit())
    by: Caller = USER
    with pytest.raises(Denied):
        stage.do(command(waits, by))
    with pytest.raises(Refused, match="pending"):
        stage.do(command(waits, ADMIN))


def test_a_job_whose_end_is_ordered_is_not_suspended() -> None:
    stage = a_stage()
    job = JobId(stage.running(a_share()))
    stage.do(Cancel(job, ADMIN))
    with pytest.raises(Refused, match="already completing or completed"):
        stage.do(Suspend(job, ADMIN))


def test_a_victim_in_its_grace_ends_when_that_is_over() -> None:
    cluster = Cluster(1, low={"grace_seconds": 60})
    low = JobId(cluster.put("low", cpus_per_task=8))
    cluster.put("high", cpus_per_task=8)
    assert cluster.job(low).preempted is not None
    with pytest.raises(Refused, match="already completing or completed"):
        cluster.do(Suspend(low, ADMIN))
    assert cluster.job(low).state == JobState.RUNNING
    assert cluster.job(low).preempted is not None

from __future__ import annotations

import pytest
from msgspec import structs

from ctld.core.commands import (
    Cancel,
    CreateStep,
    FinishBatch,
    FinishStep,
    LoseBatch,
    ReleaseNode,
    Requeue,
    StepRequest,
    Tick,
    UpdateJob,
)
from ctld.core.events import JobFinished, JobRequeued, NodesReleased
from ctld.core.model import StepResult
from muster.ids import BATCH_STEP, JobId, StepId, UnixTime
from muster.states import COMPLETING, JobState
from tests.builders import ADMIN, NOON, USER, a_state
from tests.stage import Stage, a_result, a_share


@pytest.fixture
def stage() -> Stage:
    return Stage(a_state())


def finished(stage: Stage, job_id: int, result: StepResult, *, run: int = 0) -> JobFinished:
    (event, *_) = stage.do(FinishBatch(JobId(job_id), run, result))
    assert isinstance(event, JobFinished)
    return event


@pytest.mark.parametrize(
    ("status", "state", "reason", "step_state"),
    [
        (0, JobState.COMPLETED, "", "COMPLETED"),
        (3 << 8, JobState.FAILED, "NonZeroExitCode", "FAILED"),
        (9, JobState.FAILED, "RaisedSignal:9(Killed)", "CANCELLED"),
        (53, JobState.FAILED, "RaisedSignal:53(Real-time signal 19)", "CANCELLED"),
    ],
)
def test_a_script_that_ends_by_itself_names_the_end(
    stage: Stage, status: int, state: JobState, reason: str, step_state: str
) -> None:
    job_id = stage.running()
    event = finished(stage, job_id, a_result(0, status))
    job = stage.job(job_id)
    assert (job.state, job.reason, job.exit_status, job.flags) == (state, reason, status, 0)
    assert (event.record.state, event.record.exit_status) == (state.name, status)
    assert [(step.step_id, step.state, step.exit_status) for step in event.steps] == [(BATCH_STEP, step_state, status)]
    assert stage.state.free.cpus[0] == 64


def test_out_of_memory_counts_even_when_the_script_went_on(stage: Stage) -> None:
    job_id = stage.running()
    event = finished(stage, job_id, a_result(0, 0, oom=True))
    assert stage.job(job_id).state == JobState.OUT_OF_MEMORY
    assert (event.record.exit_status, event.steps[0].state, event.steps[0].exit_status) == (125, "OUT_OF_MEMORY", 125)


def test_a_cancelled_run_is_cancelled_whatever_its_script_returned(stage: Stage) -> None:
    job_id = stage.running()
    stage.do(Cancel(JobId(job_id), USER))
    event = finished(stage, job_id, a_result(0, 15))
    job = stage.job(job_id)
    assert (job.state, job.exit_status) == (JobState.CANCELLED, 15)
    assert (event.record.state, event.record.exit_status, event.record.cancelled_by) == ("CANCELLED", 0, 1000)
    assert event.steps[0].state == "CANCELLED"


def test_a_script_that_had_ended_before_the_order_was_not_cancelled(stage: Stage) -> None:
    job_id = stage.running()
    stage.at += 10
    stage.do(Cancel(JobId(job_id), USER))
    finished(stage, job_id, a_result(0, 0, ended_at=UnixTime(NOON + 5)))
    assert stage.job(job_id).state == JobState.COMPLETED


def test_other_nodes_stay_taken_until_they_are_clean(stage: Stage) -> None:
    job_id = stage.running(a_share(0), a_share(1), a_share(2), nodes_min=3)
    finished(stage, job_id, a_result(0, 0))
    job = stage.job(job_id)
    assert (job.completing, job.flags & COMPLETING) == ((1, 2), COMPLETING)
    assert stage.state.free.cpus.tolist() == [64, 63, 63, 64]
    stage.do(ReleaseNode(JobId(job_id), 0, 2))
    assert not stage.do(ReleaseNode(JobId(job_id), 0, 2))
    assert stage.state.free.cpus.tolist() == [64, 63, 64, 64]
    stage.do(ReleaseNode(JobId(job_id), 0, 1))
    assert (stage.job(job_id).completing, stage.job(job_id).flags) == ((), 0)


def test_a_run_that_is_to_be_requeued_waits_again_with_a_delay(stage: Stage) -> None:
    job_id = stage.running(a_share(0), a_share(1), nodes_min=2)
    stage.do(Requeue(JobId(job_id), USER, hold=True))
    (event,) = stage.do(FinishBatch(JobId(job_id), 0, a_result(0, 15)))
    assert isinstance(event, JobRequeued)
    assert event.record is not None
    assert event.record.state == "REQUEUED"
    job = stage.job(job_id)
    assert (job.state, job.restarts, job.begin_at) == (JobState.PENDING, 1, NOON + 121)
    assert (job.hold, job.priority, job.state_text) == ("user", 0, "job requeued in held state")
    assert (job.completing, job.id in stage.state.queue) == ((1,), False)
    (released,) = stage.do(ReleaseNode(JobId(job_id), 0, 1))
    assert isinstance(released, NodesReleased)
    assert stage.job(job_id).alloc is None


def test_a_report_of_an_earlier_run_ends_nothing(stage: Stage) -> None:
    job_id = stage.running()
    assert not stage.do(FinishBatch(JobId(job_id), 3, a_result(0, 0)))
    assert stage.job(job_id).state == JobState.RUNNING
    assert not stage.do(FinishBatch(JobId(99), 0, a_result(0, 0)))


def test_a_failed_launch_goes_back_to_the_queue_and_is_held(stage: Stage) -> None:
    job_id = stage.running()
    stage.do(FinishBatch(JobId(job_id), 0, a_result(0, error="the script could not be written")))
    job = stage.job(job_id)
    assert (job.state, job.hold, job.priority) == (JobState.PENDING, "user", 0)
    assert job.state_text == "launch failed requeued held"


def test_a_node_that_can_begin_no_step_is_drained_so_that_it_eats_no_queue(stage: Stage) -> None:
    first, second = stage.running(a_share()), stage.running(a_share(first_core=1))
    fault = structs.replace(a_result(0, error="no space left on /var/spool"), node_at_fault=True)
    stage.do(FinishBatch(JobId(first), 0, fault))
    node = stage.state.nodes[0]
    assert (node.drain, node.down, node.reason) == (True, False, "no space left on /var/spool")
    assert stage.job(first).state_text == "launch failed requeued held"
    (event,) = stage.do(FinishBatch(JobId(second), 0, fault))
    assert isinstance(event, JobRequeued)


def test_a_step_that_cannot_be_begun_for_its_nodes_fault_drains_the_node_and_fails(stage: Stage) -> None:
    job_id = stage.running(batch=False)
    stage.do(CreateStep(JobId(job_id), USER, StepRequest(name="s", argv=("x",))))
    fault = structs.replace(a_result(0, error="no space left on /var/spool"), node_at_fault=True)
    stage.do(FinishStep(JobId(job_id), 0, StepId(0), fault))
    assert stage.state.nodes[0].drain
    assert stage.job(job_id).reason == "JobLaunchFailure"


def test_a_failed_launch_ends_a_job_that_may_not_be_requeued(stage: Stage) -> None:
    job_id = stage.running(requeue=False)
    finished(stage, job_id, a_result(0, error="no space left on /var/spool"))
    job = stage.job(job_id)
    assert (job.state, job.reason) == (JobState.FAILED, "JobLaunchFailure")
    assert job.state_text == "no space left on /var/spool"


def test_a_lost_run_is_requeued_where_it_may_be(stage: Stage) -> None:
    kept, ended = stage.running(), stage.running(a_share(1), requeue=False)
    stage.do(LoseBatch(JobId(kept), 0, "not known there"))
    stage.do(LoseBatch(JobId(ended), 0, "not known there"))
    assert stage.job(kept).state == JobState.PENDING
    job = stage.job(ended)
    assert (job.state, job.exit_status, job.failed_node) == (JobState.NODE_FAIL, 1, "n2")


def test_who_waits_for_the_end_is_told_with_it(stage: Stage) -> None:
    first = stage.running()
    child = stage.submit()
    stage.do(UpdateJob(JobId(child), ADMIN, dependency=f"afterok:{first}"))
    assert child not in stage.state.queue
    finished(stage, first, a_result(0, 0))
    assert child in stage.state.queue


def test_a_cancelled_run_that_its_node_never_got_ends(stage: Stage) -> None:
    job_id = stage.running(a_share(0), a_share(1), nodes_min=2)
    assert not stage.do(ReleaseNode(JobId(job_id), 0, 0))
    stage.do(Cancel(JobId(job_id), USER))
    assert not stage.do(ReleaseNode(JobId(job_id), 0, 1))
    stage.do(ReleaseNode(JobId(job_id), 0, 0))
    assert (stage.job(job_id).state, stage.job(job_id).completing) == (JobState.CANCELLED, (1,))


def test_a_cancelled_allocation_ends_when_no_node_has_its_step(stage: Stage) -> None:
    job_id = stage.running(batch=False)
    stage.do(CreateStep(JobId(job_id), USER, StepRequest(name="s", argv=("x",))))
    stage.do(Cancel(JobId(job_id), USER))
    stage.do(ReleaseNode(JobId(job_id), 0, 0))
    assert stage.job(job_id).state == JobState.CANCELLED


def test_a_cancelled_allocation_without_a_step_ends_with_the_next_tick(stage: Stage) -> None:
    job_id = stage.running(batch=False)
    stage.do(Cancel(JobId(job_id), USER))
    stage.do(Tick())
    assert stage.job(job_id).state == JobState.CANCELLED

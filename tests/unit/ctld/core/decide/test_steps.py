from __future__ import annotations

import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import Cancel, CancelStep, CreateStep, FinishStep, StepRequest
from ctld.core.events import JobFinished, StepCreated, StepFinished, StepKillOrdered, StepReported
from ctld.core.model import Step, TaskResult
from muster.errors import Denied, InvalidInput, MusterError, Refused
from muster.ids import JobId, StepId
from muster.states import JobState
from tests.builders import OTHER, USER, a_state
from tests.stage import Stage, a_result, a_share


@pytest.fixture
def stage() -> Stage:
    return Stage(a_state(nodes=3, cpus=4))


@pytest.fixture
def job_id(stage: Stage) -> int:
    """A job on three nodes with 2 CPUs each."""
    shares = [a_share(node, cpus=2, gpus=(0, 1), memory_mib=1000) for node in range(3)]
    return stage.running(*shares, nodes_min=3)


def created(stage: Stage, job_id: int, **fields: object) -> Step:
    (event,) = stage.do(CreateStep(JobId(job_id), USER, StepRequest(name="s", argv=("x",), **fields)))  # type: ignore[arg-type]
    assert isinstance(event, StepCreated)
    return event.step


def refusal(stage: Stage, job_id: int, **fields: object) -> MusterError:
    with pytest.raises(MusterError) as caught:
        created(stage, job_id, **fields)
    return caught.value


def tasks(step: Step) -> list[int]:
    return [share.tasks for share in step.shares]


def test_block_balances_the_tasks_over_the_nodes(stage: Stage, job_id: int) -> None:
    step = created(stage, job_id, ntasks=4)
    assert (tasks(step), step.ranks) == ([2, 1, 1], ((0, 1), (2, 2), (3, 3)))


def test_cyclic_deals_the_ranks_round_robin(stage: Stage, job_id: int) -> None:
    step = created(stage, job_id, ntasks=4, nodes_min=3, distribution="cyclic")
    assert step.ranks == ((0, 0, 3, 3), (1, 1), (2, 2))


def test_plane_deals_them_in_blocks(stage: Stage, job_id: int) -> None:
    step = created(stage, job_id, ntasks=6, distribution="plane=2")
    assert step.ranks == ((0, 1), (2, 3), (4, 5))


def test_pack_fills_a_node_before_the_next(stage: Stage, job_id: int) -> None:
    assert tasks(created(stage, job_id, ntasks=4, nodes_min=3, distribution="block,Pack")) == [2, 1, 1]
    wide = created(stage, job_id, ntasks=3, nodes_min=1, nodes_max=2, overlap=True, distribution="block,Pack")
    assert tasks(wide) == [2, 1]


@pytest.mark.parametrize(
    ("select_flags", "distribution", "counts"),
    [
        ((), "", [5, 5]),
        (("cr_pack_nodes",), "", [8, 2]),
        (("cr_pack_nodes",), "block,NoPack", [5, 5]),
        (("cr_pack_nodes",), "cyclic", [5, 5]),
        ((), "block:cyclic,Pack", [8, 2]),
    ],
)
def test_ten_tasks_on_two_nodes_of_eight_cpus(
    select_flags: tuple[str, ...], distribution: str, counts: list[int]
) -> None:
    settings = Settings(require_registration=False, select_flags=select_flags)
    stage = Stage(a_state(nodes=2, cpus=8, settings=settings))
    job_id = stage.running(*[a_share(node, cpus=8) for node in range(2)], nodes_min=2)
    assert tasks(created(stage, job_id, ntasks=10, distribution=distribution)) == counts


def test_without_sizes_the_step_is_as_large_as_the_job(stage: Stage, job_id: int) -> None:
    step = created(stage, job_id)
    assert (tasks(step), step.ntasks, step.shares[0].gpus) == ([1, 1, 1], 3, (0, 1))


def test_a_step_takes_no_more_nodes_than_it_needs(stage: Stage, job_id: int) -> None:
    assert [share.node for share in created(stage, job_id, ntasks=1, gpus_per_node=0).shares] == [0]


def test_steps_share_no_cpus_unless_they_overlap(stage: Stage, job_id: int) -> None:
    first = created(stage, job_id, ntasks=6, gpus_per_node=0)
    busy = refusal(stage, job_id, ntasks=1, gpus_per_node=0)
    assert isinstance(busy, Refused)
    assert (busy.sentence, busy.slurm_code) == ("Requested nodes are busy", 2016)
    assert created(stage, job_id, ntasks=6, overlap=True).step_id == 1
    for share in first.shares:
        stage.do(FinishStep(JobId(job_id), 0, first.step_id, a_result(share.node, 0)))
    assert created(stage, job_id, ntasks=6, gpus_per_node=0).step_id == 2


def test_steps_share_no_gpus(stage: Stage, job_id: int) -> None:
    one = created(stage, job_id, ntasks=1, gpus_per_node=1)
    other = created(stage, job_id, ntasks=1, gpus_per_node=1)
    assert (one.shares[0].gpus, other.shares[0].gpus) == ((0, 0), (1, 1))
    third = created(stage, job_id, ntasks=1)
    assert third.shares[0].node == 1


def test_exact_steps_have_cores_of_their_own(stage: Stage, job_id: int) -> None:
    one = created(stage, job_id, ntasks=1, exact=True, gpus_per_node=0)
    other = created(stage, job_id, ntasks=1, cpus_per_task=1, gpus_per_node=0)
    assert [(step.shares[0].cores, step.shares[0].cpus) for step in (one, other)] == [((0, 0), 1), ((1, 1), 1)]
    assert created(stage, job_id, ntasks=1, nodelist=("n2",), gpus_per_node=0).shares[0].cores == (0, 1)


def test_nodes_may_be_named_excluded_and_counted_from(stage: Stage, job_id: int) -> None:
    assert [s.node for s in created(stage, job_id, nodelist=("n3",), overlap=True).shares] == [2]
    assert [s.node for s in created(stage, job_id, exclude=("n1",), overlap=True).shares] == [1, 2]
    assert [s.node for s in created(stage, job_id, relative=1, nodes_min=1, overlap=True).shares] == [1]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"ntasks": 7}, "More processors requested than permitted"),
        ({"nodes_min": 4}, "Only allocated 3 nodes asked for 4"),
        ({"nodelist": ("x",)}, "Requested node configuration is not available"),
        ({"memory_mib": 2000}, "Memory required by task is not available"),
        ({"gpus_per_node": 3}, "Invalid generic resource (gres) specification"),
    ],
)
def test_what_the_job_never_has_is_an_error(
    stage: Stage, job_id: int, fields: dict[str, object], sentence: str
) -> None:
    error = refusal(stage, job_id, **fields)
    assert isinstance(error, InvalidInput)
    assert error.sentence == sentence


def test_only_the_owner_makes_steps_and_only_while_the_job_runs(stage: Stage, job_id: int) -> None:
    with pytest.raises(Denied):
        stage.do(CreateStep(JobId(job_id), OTHER, StepRequest(name="s", argv=("x",))))
    assert refusal(stage, stage.submit()).slurm_code == 2024
    stage.do(Cancel(JobId(job_id), USER))
    assert refusal(stage, job_id).slurm_code == 2021


def test_a_step_ends_with_its_last_node_and_the_highest_status(stage: Stage, job_id: int) -> None:
    created(stage, job_id, ntasks=2, nodes_min=2)
    (reported,) = stage.do(FinishStep(JobId(job_id), 0, StepId(0), a_result(0, 2 << 8, user_ms=5)))
    assert isinstance(reported, StepReported)
    (done,) = stage.do(FinishStep(JobId(job_id), 0, StepId(0), a_result(1, 0, user_ms=7, max_rss_bytes=9)))
    assert isinstance(done, StepFinished)
    assert (done.record.state, done.record.exit_status, done.record.user_ms) == ("FAILED", 2 << 8, 12)
    assert done.record.max_rss_node == "n2"
    assert stage.job(job_id).derived_status == 2 << 8
    assert not stage.state.steps


def test_a_report_that_comes_twice_counts_once(stage: Stage, job_id: int) -> None:
    created(stage, job_id, ntasks=2, nodes_min=2)
    stage.do(FinishStep(JobId(job_id), 0, StepId(0), a_result(0, 0)))
    assert not stage.do(FinishStep(JobId(job_id), 0, StepId(0), a_result(0, 0)))
    assert not stage.do(FinishStep(JobId(job_id), 1, StepId(0), a_result(1, 0)))


def test_a_bad_exit_ends_the_other_nodes_where_wanted(stage: Stage, job_id: int) -> None:
    created(stage, job_id, ntasks=2, nodes_min=2, kill_on_bad_exit=True)
    events = stage.do(FinishStep(JobId(job_id), 0, StepId(0), a_result(0, 1 << 8)))
    assert isinstance(events[1], StepKillOrdered)
    assert events[1].kill.why == "TASK FAILURE"


def test_a_cancelled_step_is_killed_at_once_and_the_job_goes_on(stage: Stage, job_id: int) -> None:
    created(stage, job_id, ntasks=1)
    (event,) = stage.do(CancelStep(JobId(job_id), StepId(0), USER))
    assert isinstance(event, StepKillOrdered)
    assert (event.kill.now, event.kill.by) == (True, 1000)
    assert not stage.do(CancelStep(JobId(job_id), StepId(0), USER))
    (done,) = stage.do(FinishStep(JobId(job_id), 0, StepId(0), a_result(0, 9)))
    assert isinstance(done, StepFinished)
    assert (done.record.state, done.record.cancelled_by, done.record.exit_status) == ("CANCELLED", 1000, 9)
    assert stage.job(job_id).state == JobState.RUNNING
    with pytest.raises(Refused, match="already completing or completed"):
        stage.do(CancelStep(JobId(job_id), StepId(0), USER))


def test_an_allocation_of_sruns_own_ends_as_its_first_step(stage: Stage) -> None:
    job_id = stage.running(a_share(cpus=2), batch=False)
    created(stage, job_id, ntasks=1)
    created(stage, job_id, ntasks=1, overlap=True)
    events = stage.do(FinishStep(JobId(job_id), 0, StepId(0), a_result(0, 3 << 8)))
    done, ended = events
    assert isinstance(done, StepFinished)
    assert isinstance(ended, JobFinished)
    assert [(step.step_id, step.state) for step in ended.steps] == [(1, "CANCELLED")]
    job = stage.job(job_id)
    assert (job.state, job.exit_status, job.derived_status) == (JobState.FAILED, 3 << 8, 3 << 8)
    assert (job.completing, ended.record.state) == ((0,), "FAILED")


def test_a_signal_counts_as_much_as_its_shell_code(stage: Stage, job_id: int) -> None:
    created(stage, job_id, ntasks=2, nodes_min=1, nodes_max=1)
    result = a_result(0, 9, 1 << 8)
    assert result.tasks[0] == TaskResult(0, 9)
    (done,) = stage.do(FinishStep(JobId(job_id), 0, StepId(0), result))
    assert isinstance(done, StepFinished)
    assert done.record.exit_status == 9

from __future__ import annotations

import pytest
from msgspec import structs

from ctld.core.cluster import Settings
from ctld.core.commands import ApplyPlan, Hold, UpdateNode
from ctld.core.events import JobStarted
from ctld.core.model import Request
from ctld.core.plan import Plan, Start
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import JobState
from tests.builders import ADMIN, NOON, OTHER, USER, a_partition, a_state
from tests.stage import Stage, a_share


@pytest.fixture
def stage() -> Stage:
    return Stage(a_state(nodes=2, cpus=4, gpus=2))


def a_plan(*starts: Start) -> ApplyPlan:
    return ApplyPlan(Plan(made_at=UnixTime(NOON), starts=starts))


def test_a_start_that_holds_makes_the_job_run(stage: Stage) -> None:
    job_id = stage.submit()
    (started,) = stage.start(job_id, a_share(cpus=2))
    assert isinstance(started, JobStarted)
    assert stage.job(job_id).state == JobState.RUNNING
    assert stage.state.free.cpus.tolist() == [2, 4]


def test_of_two_starts_on_the_same_cores_only_the_first_holds(stage: Stage) -> None:
    one, other = stage.submit(), stage.submit()
    share = a_share(cpus=3)
    events = stage.do(a_plan(Start(JobId(one), "main", (share,)), Start(JobId(other), "main", (share,))))
    assert [event.job_id for event in events if isinstance(event, JobStarted)] == [one]
    assert stage.job(other).state == JobState.PENDING


def test_a_gang_starts_whole_or_not_at_all(stage: Stage) -> None:
    stage.running(a_share(1, cpus=4))
    gang = stage.submit(nodes_min=2, nodes_max=2)
    assert not stage.start(gang, a_share(0), a_share(1))
    assert not stage.start(gang, a_share(0))
    assert stage.state.free.cpus.tolist() == [4, 0]


def test_a_held_job_does_not_start(stage: Stage) -> None:
    job_id = stage.submit()
    stage.do(Hold(JobId(job_id), USER))
    assert not stage.start(job_id)


def test_nothing_starts_on_a_drained_node(stage: Stage) -> None:
    job_id = stage.submit()
    stage.do(UpdateNode((0,), ADMIN, state="DRAIN", reason="disk"))
    assert not stage.start(job_id, a_share(0))
    assert stage.start(job_id, a_share(1))


def test_a_node_that_never_registered_is_not_used() -> None:
    stage = Stage(a_state(nodes=1, settings=Settings()))
    assert not stage.start(stage.submit())


def test_less_than_was_asked_for_is_no_start(stage: Stage) -> None:
    assert not stage.start(stage.submit(ntasks=3), a_share(cpus=2, tasks=3))
    assert not stage.start(stage.submit(ntasks=3), a_share(cpus=2, tasks=2))
    gpu_job = stage.submit(request=Request(gpus_per_node=()), ntasks=1)
    assert stage.start(gpu_job)


def test_gpus_are_given_once(stage: Stage) -> None:
    assert stage.start(stage.submit(), a_share(gpus=(0, 0)))
    assert not stage.start(stage.submit(), a_share(first_core=1, gpus=(0, 1)))
    assert stage.start(stage.submit(), a_share(first_core=1, gpus=(1, 1)))


def test_members_get_ids_of_their_own_and_the_last_one_the_arrays(stage: Stage) -> None:
    array = stage.submit(array=(3, 5))
    for core, task in enumerate((3, 5, 4)):
        assert stage.start(array, a_share(first_core=core), task=task)
    tasks = {job.array_task_id: job.id for job in stage.state.jobs.values()}
    assert tasks == {3: array + 1, 5: array + 2, 4: array}
    assert not stage.start(array, a_share(1), task=4)


def test_one_plan_may_start_a_whole_array(stage: Stage) -> None:
    array = stage.submit(array=(0, 2))
    starts = [Start(JobId(array), "main", (a_share(first_core=task),), task) for task in range(3)]
    assert len(stage.do(a_plan(*starts, starts[0]))) == 3
    assert not stage.state.queue


def test_no_more_members_run_than_the_limit_allows(stage: Stage) -> None:
    array = stage.submit(array=(0, 3))
    stage.state.jobs[array] = structs.replace(stage.job(array), array_limit=2)
    starts = [Start(JobId(array), "main", (a_share(first_core=task),), task) for task in range(4)]
    assert len(stage.do(a_plan(*starts))) == 2


def test_memory_that_is_not_consumable_is_not_missed_in_a_start() -> None:
    stage = Stage(a_state(nodes=1, cpus=4, settings=Settings(memory_consumable=False, require_registration=False)))
    job_id = stage.submit(memory_per_node_mib=100)
    assert stage.start(job_id)


def test_the_limit_comes_from_the_partition_where_none_was_asked() -> None:
    partitions = (a_partition(nodes=2, default_minutes=7, max_minutes=60),)
    stage = Stage(a_state(nodes=2, partitions=partitions))
    asked, default = stage.submit(time_limit_minutes=5), stage.submit()
    stage.start(asked)
    stage.start(default, a_share(1))
    assert stage.job(asked).limit_seconds == 300
    assert stage.job(default).limit_seconds == 420


def test_whole_nodes_are_shared_with_nobody(stage: Stage) -> None:
    stage.running()
    whole = stage.submit(exclusive="node")
    assert not stage.start(whole, a_share(0, first_core=1, cpus=3))
    assert stage.start(whole, a_share(1, cpus=4))


def test_a_node_kept_for_one_user_takes_no_other(stage: Stage) -> None:
    stage.running(exclusive="user")
    strange = stage.submit(uid=1001, by=OTHER)
    assert not stage.start(strange, a_share(0, first_core=1))
    assert stage.start(stage.submit(), a_share(0, first_core=1))
    assert stage.start(strange, a_share(1))
    assert not stage.start(stage.submit(exclusive="user"), a_share(1, first_core=1))


def test_what_was_never_submitted_is_dropped(stage: Stage) -> None:
    assert not stage.do(a_plan(Start(JobId(77), "main", (a_share(),), NO_TASK)))
    assert not stage.start(stage.submit(), partition="other")

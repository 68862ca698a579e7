from __future__ import annotations

import pytest

from ctld.core.cluster import NodeSpec, Settings
from ctld.core.commands import ApplyConfig, FinishBatch
from ctld.core.events import ConfigApplied, JobFinished
from ctld.core.state import State
from muster.ids import JobId
from muster.states import JobState
from tests.builders import a_node_spec, a_partition
from tests.stage import Stage, a_result, a_share

SETTINGS = Settings(require_registration=False)


def a_config(*names: str, **changed: NodeSpec) -> ApplyConfig:
    nodes = tuple(changed.get(name) or a_node_spec(name) for name in names)
    return ApplyConfig(settings=SETTINGS, nodes=nodes, partitions=(a_partition(nodes=len(names)),))


@pytest.fixture
def stage() -> Stage:
    stage = Stage(State())
    stage.do(a_config("n1", "n3", "n4"))
    return stage


def test_the_same_configuration_again_is_no_event(stage: Stage) -> None:
    assert not stage.do(a_config("n1", "n3", "n4"))


def test_a_node_in_between_moves_what_runs_behind_it(stage: Stage) -> None:
    job_id = stage.running(a_share(1), a_share(2), nodes_min=2)
    done = stage.running(a_share(2, first_core=5))
    stage.do(FinishBatch(JobId(done), 0, a_result(2, 0)))
    stage.do(a_config("n1", "n2", "n3", "n4"))
    alloc = stage.job(job_id).alloc
    assert alloc is not None
    assert [share.node for share in alloc.shares] == [2, 3]
    assert stage.state.free.cpus.tolist() == [64, 64, 63, 63]
    assert list(stage.state.node_jobs[3]) == [job_id]


def test_jobs_on_a_node_that_vanishes_end(stage: Stage) -> None:
    job_id = stage.running(a_share(0), a_share(1), nodes_min=2, requeue=False)
    ended, config = stage.do(a_config("n3", "n4"))
    assert isinstance(ended, JobFinished)
    assert isinstance(config, ConfigApplied)
    job = stage.job(job_id)
    assert (job.state, job.failed_node, job.completing) == (JobState.NODE_FAIL, "n1", (0,))
    assert ended.record.nodelist == "n[1,3]"


def test_a_node_made_smaller_under_a_job_gets_back_only_what_it_has(stage: Stage) -> None:
    job_id = stage.running(a_share(0, cpus=40, gpus=(0, 7)))
    stage.do(a_config("n1", "n3", "n4", n1=a_node_spec("n1", cpus=8, gpus=2)))
    assert stage.state.free.cpus[0] == -32
    stage.do(FinishBatch(JobId(job_id), 0, a_result(0, 0)))
    assert (stage.state.free.cpus[0], stage.state.free.cores[0], stage.state.free.gpus[0]) == (8, 0xFF, 0b11)


def test_a_node_configured_down_stays_out_with_its_reason(stage: Stage) -> None:
    down = NodeSpec(name="n5", cpus=4, memory_mib=100, state="DOWN", reason="not here yet")
    stage.do(a_config("n1", "n3", "n4", "n5", n5=down))
    assert (stage.state.nodes[3].down, stage.state.nodes[3].reason) == (True, "not here yet")

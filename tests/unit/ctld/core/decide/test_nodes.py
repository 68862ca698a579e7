from __future__ import annotations

import pytest

from ctld.core.cluster import NodeFacts, Settings
from ctld.core.commands import FinishBatch, LoseNodes, RegisterNode, ReleaseNode, Tick, UpdateNode
from ctld.core.decide.nodes import shortcomings
from muster.errors import Denied, InvalidInput, NotFound, Refused
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import ADMIN, NOON, USER, a_node_spec, a_state
from tests.stage import Stage, a_result, a_share


def facts(**fields: object) -> NodeFacts:
    given: dict[str, object] = {
        "boot_at": UnixTime(1000),
        "cpus": 64,
        "sockets": 1,
        "cores_per_socket": 64,
        "threads_per_core": 1,
        "memory_mib": 256_000,
        "gpus": ("",) * 8,
        **fields,
    }
    return NodeFacts(**given)  # type: ignore[arg-type]


@pytest.fixture
def stage() -> Stage:
    return Stage(a_state())


def test_a_node_that_has_what_is_configured_has_no_shortcomings() -> None:
    assert shortcomings(a_node_spec(), facts()) == ""


def test_every_shortcoming_is_named_in_slurms_words() -> None:
    short = facts(cpus=32, cores_per_socket=32, memory_mib=1000, gpus=("", ""))
    assert shortcomings(a_node_spec(), short) == (
        "Low socket*core*thread count, Low CPUs, "
        "Low RealMemory (reported:1000 < 100.00% of configured:256000), "
        "gres/gpu count reported lower than configured (2 < 8)"
    )


def test_an_invalid_registration_drains_the_node_and_a_valid_one_keeps_the_drain(stage: Stage) -> None:
    stage.do(RegisterNode("n1", facts(memory_mib=1000)))
    node = stage.state.nodes[0]
    assert (node.invalid, node.drain, node.reason.startswith("Low RealMemory")) == (True, True, True)
    stage.do(RegisterNode("n1", facts()))
    node = stage.state.nodes[0]
    assert (node.invalid, node.drain) == (False, True)
    stage.do(UpdateNode((0,), ADMIN, state="RESUME"))
    assert (stage.state.nodes[0].drain, stage.state.nodes[0].reason) == (False, "")


def test_the_same_registration_twice_changes_nothing(stage: Stage) -> None:
    assert stage.do(RegisterNode("n1", facts()))
    assert not stage.do(RegisterNode("n1", facts()))


def test_an_unknown_node_is_refused(stage: Stage) -> None:
    with pytest.raises(NotFound, match="Invalid node name specified"):
        stage.do(RegisterNode("x", facts()))


def test_a_silent_node_goes_down_and_its_jobs_are_requeued_or_end(stage: Stage) -> None:
    kept = stage.running(a_share(0), a_share(1), nodes_min=2)
    ended = stage.running(a_share(0, first_core=5), requeue=False)
    stage.do(LoseNodes((0,)))
    node = stage.state.nodes[0]
    assert (node.down, node.reason, node.reason_at) == (True, "Not responding", NOON)
    assert (stage.job(kept).state, stage.job(kept).completing) == (JobState.PENDING, (1,))
    assert (stage.job(ended).state, stage.job(ended).reason) == (JobState.NODE_FAIL, "NodeDown")
    assert stage.state.free.cpus.tolist() == [64, 63, 64, 64]
    assert not stage.do(LoseNodes((0,)))


def test_nobody_waits_for_the_cleaning_on_a_lost_node(stage: Stage) -> None:
    job_id = stage.running(a_share(0), a_share(1), nodes_min=2)
    stage.do(FinishBatch(JobId(job_id), 0, a_result(0, 0)))
    stage.do(LoseNodes((1,)))
    assert stage.job(job_id).completing == ()


@pytest.mark.parametrize(
    ("service", "reason", "back"),
    [(0, "Not responding", False), (1, "Not responding", True), (1, "disk", False), (2, "disk", True)],
)
def test_return_to_service_decides_whether_a_down_node_comes_back(service: int, reason: str, back: bool) -> None:
    stage = Stage(a_state(settings=Settings(require_registration=False, return_to_service=service)))
    stage.do(RegisterNode("n1", facts()))
    stage.do(LoseNodes((0,), reason))
    stage.do(RegisterNode("n1", facts(agent_started_at=UnixTime(5))))
    assert stage.state.nodes[0].down is not back


def test_a_reboot_under_a_job_ends_it_and_an_agents_restart_does_not(stage: Stage) -> None:
    stage.do(RegisterNode("n1", facts()))
    job_id = stage.running()
    stage.at += 60
    stage.do(RegisterNode("n1", facts(agent_started_at=UnixTime(NOON + 60))))
    assert stage.job(job_id).state == JobState.RUNNING
    stage.do(RegisterNode("n1", facts(boot_at=UnixTime(NOON + 50))))
    assert stage.job(job_id).state == JobState.PENDING
    assert stage.state.nodes[0].reason == "Node unexpectedly rebooted"


def test_a_clock_that_is_set_is_no_reboot_and_a_new_boot_is_one_whatever_the_clock_says(stage: Stage) -> None:
    stage.do(RegisterNode("n1", facts(boot_id="one")))
    job_id = stage.running()
    known = frozenset({(job_id, 0)})
    stage.do(RegisterNode("n1", facts(boot_id="one", boot_at=UnixTime(NOON + 5000)), known))
    assert stage.job(job_id).state == JobState.RUNNING
    stage.do(RegisterNode("n1", facts(boot_id="two", boot_at=UnixTime(1)), known))
    assert stage.job(job_id).state == JobState.PENDING


def test_a_reboot_is_seen_although_the_clock_of_the_controller_is_ahead(stage: Stage) -> None:
    stage.do(RegisterNode("n1", facts(boot_at=UnixTime(NOON - 5000))))
    job_id = stage.running()
    stage.do(RegisterNode("n1", facts(boot_at=UnixTime(NOON - 300))))
    assert stage.job(job_id).state == JobState.PENDING


def test_a_reboot_ends_runs_that_the_disk_remembers_but_for_scripts_that_had_ended(stage: Stage) -> None:
    stage.do(RegisterNode("n1", facts()))
    cut_short, ended = stage.running(), stage.running(a_share(0, first_core=1))
    known = frozenset({(cut_short, 0), (ended, 0)})
    boot = facts(boot_at=UnixTime(NOON + 50))
    stage.do(RegisterNode("n1", boot, known, frozenset({(ended, 0)})))
    assert stage.job(cut_short).state == JobState.PENDING
    assert stage.job(ended).state == JobState.RUNNING


def test_a_registered_node_that_does_not_know_an_ended_run_is_clean_of_it(stage: Stage) -> None:
    job_id = stage.running(a_share(0), a_share(1), nodes_min=2)
    stage.do(FinishBatch(JobId(job_id), 0, a_result(0, 0)))
    stage.do(RegisterNode("n2", facts(), frozenset({(job_id, 0)})))
    assert stage.job(job_id).completing == (1,)
    stage.do(RegisterNode("n2", facts()))
    assert stage.job(job_id).completing == ()


def test_down_needs_a_reason_and_resume_something_to_resume(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="You must specify a reason when DOWNING or DRAINING a node"):
        stage.do(UpdateNode((0,), ADMIN, state="DOWN"))
    with pytest.raises(Refused, match="Invalid node state transition"):
        stage.do(UpdateNode((0,), ADMIN, state="RESUME"))
    with pytest.raises(Denied, match="Invalid user id"):
        stage.do(UpdateNode((0,), USER, state="DRAIN", reason="x"))
    with pytest.raises(InvalidInput, match="Invalid node state specified"):
        stage.do(UpdateNode((0,), ADMIN, state="ASLEEP"))


def test_a_refusal_for_one_node_changes_none(stage: Stage) -> None:
    stage.do(UpdateNode((0,), ADMIN, state="DRAIN", reason="x"))
    with pytest.raises(Refused):
        stage.do(UpdateNode((0, 1), ADMIN, state="RESUME"))
    assert stage.state.nodes[0].drain


def test_a_second_reason_keeps_the_time_of_the_first(stage: Stage) -> None:
    stage.do(UpdateNode((0,), ADMIN, state="DRAIN", reason="disk"))
    stage.at += 100
    stage.do(UpdateNode((0,), ADMIN, reason="disk, ordered"))
    node = stage.state.nodes[0]
    assert (node.reason, node.reason_at) == ("disk, ordered", NOON)


def test_undrain_leaves_a_down_node_down(stage: Stage) -> None:
    stage.do(UpdateNode((0,), ADMIN, state="DOWN", reason="x"))
    assert not stage.do(UpdateNode((0,), ADMIN, state="UNDRAIN"))
    assert stage.state.nodes[0].down


def test_a_node_set_down_is_waited_for_and_then_given_up(stage: Stage) -> None:
    job_id = stage.running(requeue=False)
    stage.do(UpdateNode((0,), ADMIN, state="DOWN", reason="fire"))
    job = stage.job(job_id)
    assert (job.state, job.failed_node, job.completing) == (JobState.NODE_FAIL, "n1", (0,))
    stage.at += 299
    assert not stage.do(Tick())
    stage.at += 1
    stage.do(Tick())
    assert stage.job(job_id).completing == ()
    assert not stage.do(ReleaseNode(JobId(job_id), 0, 0))

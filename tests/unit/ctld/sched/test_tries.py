"""What a pass tries for jobs that would rather have other nodes: few switches for a while, a level for ever, liked
features when they can be had at once."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.cluster import Settings, TopologySpec
from ctld.core.model import NodeShare, Request
from ctld.core.plan import Plan
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_job, a_partition, a_state
from tests.placing import ended, everywhere, queued, running
from tests.topologies import a_tree

RACKS = a_tree((4, 4), levels=("spine", "rack"))


def a_cluster(topology: TopologySpec = RACKS, count: int = 8, **fields: object) -> State:
    settings = Settings(require_registration=False, topologies=(topology,))
    partitions = (a_partition(nodes=count, **fields),)  # type: ignore[arg-type]
    return a_state(count, cpus=8, gpus=0, memory_mib=1000, settings=settings, partitions=partitions)


def taken(state: State, *nodes: int, limit_seconds: int = 3600) -> None:
    """Let job 100 + node run on all of each of these nodes."""
    for node in nodes:
        share = NodeShare(node, 8, (0, 7), 0)
        running(state, a_job(100 + node, exclusive="node", limit_seconds=limit_seconds), share)


def planned(state: State, at: int = NOON, memory: PlanMemory | None = None) -> Plan:
    return plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)


def starts(made: Plan) -> dict[int, list[int]]:
    return {start.job_id: [share.node for share in start.shares] for start in made.starts}


def four_nodes(job_id: int = 1, **fields: object) -> State:
    """A cluster with a node of each rack in use, and a job that asks for four nodes."""
    state = a_cluster()
    taken(state, 3, 7)
    job = a_job(job_id, nodes_min=4, nodes_max=4, exclusive="node", limit_seconds=60, **fields)  # type: ignore[arg-type]
    return queued(state, job)


def test_a_job_waits_for_few_switches_until_its_patience_is_over() -> None:
    state, memory = four_nodes(switches=1, switches_wait_seconds=120), PlanMemory()
    for at in (NOON, NOON + 119):
        made = planned(state, at, memory)
        assert starts(made) == {}
        assert made.waits[1].reason is Reason.RESOURCES
        assert made.waits[1].start_at == NOON + 120  # Any four nodes come sooner than four of one rack.
    assert starts(planned(state, NOON + 120, memory)) == {1: [0, 1, 2, 4]}


def test_few_switches_that_come_free_in_time_are_waited_for() -> None:
    state, memory = four_nodes(switches=1), PlanMemory()
    state.jobs[107] = replace(state.jobs[107], limit_seconds=200)
    made = planned(state, NOON, memory)
    assert (made.waits[1].start_at, made.waits[1].nodes) == (NOON + 200, (4, 5, 6, 7))
    ended(state, 107)
    assert starts(planned(state, NOON + 150, memory)) == {1: [4, 5, 6, 7]}


def test_patience_counts_from_when_a_job_became_eligible() -> None:
    state = four_nodes(switches=1, submitted_at=NOON - 900, eligible_at=UnixTime(NOON - 10))
    assert starts(planned(state)) == {}
    assert planned(state).waits[1].start_at == NOON + 290  # max_switch_wait is 300 seconds.


def test_more_switches_than_were_asked_for_are_taken_in_the_end_even_where_nothing_is_in_use() -> None:
    state = queued(a_cluster(), a_job(1, nodes_min=6, nodes_max=6, switches=1, limit_seconds=60))
    made = planned(state)
    assert made.waits[1].reason is Reason.RESOURCES
    assert starts(planned(state, NOON + 300)) == {1: [0, 1, 2, 3, 4, 5]}


def test_a_job_behind_one_that_waits_for_switches_may_fill_the_time() -> None:
    state = four_nodes(switches=1, switches_wait_seconds=120)
    queued(state, a_job(2, nodes_min=6, nodes_max=6, exclusive="node", priority=1, limit_seconds=100))
    queued(state, a_job(3, nodes_min=3, nodes_max=3, exclusive="node", priority=1, limit_seconds=121))
    assert list(starts(planned(state))) == [2]


def test_a_required_level_is_waited_for_with_a_reason_of_its_own() -> None:
    state = four_nodes(topology="required:rack")
    for at in (NOON, NOON + 3000):
        made = planned(state, at)
        assert starts(made) == {}
        assert made.waits[1].reason is Reason.TOPOLOGY_LEVEL
        assert made.waits[1].start_at == NOON + 3600


def test_a_job_that_would_find_too_few_nodes_anyway_waits_for_resources() -> None:
    state = four_nodes(topology="required:rack")
    taken(state, 0, 1, 4)
    assert planned(state).waits[1].reason is Reason.RESOURCES


def test_a_preferred_level_is_not_waited_for() -> None:
    assert starts(planned(four_nodes(topology="preferred:rack"))) == {1: [0, 1, 2, 4]}


def test_a_partition_has_a_level_for_jobs_that_name_none() -> None:
    state = a_cluster(default_topology="required:rack")
    taken(state, 3, 7)
    queued(state, a_job(1, nodes_min=4, nodes_max=4, exclusive="node"))
    assert planned(state).waits[1].reason is Reason.TOPOLOGY_LEVEL


def test_few_switches_and_a_required_level_keep_the_level_when_patience_is_over() -> None:
    pods = a_tree((2, 2), (2, 2), levels=("spine", "pod", "rack"))
    state = a_cluster(pods)
    taken(state, 3, 7)
    for job_id, nodes in ((1, 3), (2, 4)):
        shape = Request(nodes, nodes, switches=1, topology="required:pod", exclusive="node")
        queued(state, a_job(job_id, priority=100 - job_id, request=shape))
    assert starts(planned(state)) == {}
    made = planned(state, NOON + 300)
    assert starts(made) == {1: [0, 1, 2]}
    assert made.waits[2].reason in (Reason.RESOURCES, Reason.TOPOLOGY_LEVEL)


def liked(state: State, *nodes: int) -> State:
    """Give nodes the feature `fast`."""
    for node in nodes:
        spec = replace(state.nodes[node].spec, features=("fast",))
        state.nodes[node] = replace(state.nodes[node], spec=spec)
    return state


def test_liked_features_are_tried_first_and_not_waited_for() -> None:
    state = liked(a_cluster(count=8), 5, 6)
    queued(state, *(a_job(one, exclusive="node", prefer="fast") for one in (1, 2, 3)))
    assert starts(planned(state)) == {1: [5], 2: [6], 3: [0]}


def test_liked_features_are_tried_anew_when_they_come_free() -> None:
    state, memory = liked(a_cluster(), 5), PlanMemory()
    taken(state, *range(8))
    queued(state, a_job(1, exclusive="node", prefer="fast"))
    assert planned(state, NOON, memory).waits[1].reason is Reason.RESOURCES
    ended(state, 102)
    ended(state, 105)
    assert starts(planned(state, NOON + 1, memory)) == {1: [5]}


def test_features_that_a_node_gets_later_are_found() -> None:
    state, memory = a_cluster(), PlanMemory()
    queued(state, a_job(1, exclusive="node", constraint="fast"), a_job(2, exclusive="node", prefer="fast"))
    made = planned(state, NOON, memory)
    assert made.class_waits[state.queue.class_of(1).id].reason is Reason.BAD_CONSTRAINTS  # type: ignore[union-attr]
    assert starts(made) == {2: [0]}
    assert starts(planned(liked(state, 5, 6), NOON + 1, memory)) == {1: [5], 2: [6]}

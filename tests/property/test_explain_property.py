"""Explanations of arbitrary queues: every job that waits has one, its counts hold, and asking changes nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.explain import reason_of
from ctld.sched.explaining import explain
from ctld.sched.explanation import PartitionView
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON
from tests.clusters import clusters
from tests.placing import carried_out, everywhere, with_the_same_promises
from tests.property.test_plan_property import SLOW


def counted(state: State, job_id: int, view: PartitionView) -> dict[str, int]:
    """Count the nodes of the partition, and those that are not excluded, without the scheduler's code."""
    nodes = [state.nodes[node].spec.name for node in state.partitions[view.name].nodes]
    left = [name for name in nodes if name not in state.jobs[job_id].spec.request.exclude]
    return {"cluster": len(state.nodes), "partition": len(nodes), "state": len(nodes), "excluded": len(left)}


@SLOW
@given(clusters(), st.integers(0, 2))
def test_every_job_that_waits_has_an_explanation_whose_numbers_hold(state: State, rounds: int) -> None:
    memory = PlanMemory()
    for at in range(NOON, NOON + 60 * rounds, 60):
        carried_out(state, plan(state, UnixTime(at), reachable=everywhere(state), memory=memory), at)
    at = UnixTime(NOON + 60 * rounds)
    made = plan(state, at, reachable=everywhere(state), memory=memory)
    unasked = with_the_same_promises(memory)
    started = {(start.job_id, start.partition) for start in made.starts}
    order = sorted(state.queue, key=state.queue.key_of)
    for job_id in order:
        wait = reason_of(state, made, state.jobs[job_id], at)
        found = explain(state, at, memory, state.jobs[job_id], wait, overlay=made)
        assert found.wait.reason is not Reason.NONE
        assert found.sentence
        for view in found.partitions:
            counts = [one.nodes for one in view.filters if one.name != "together"]
            assert counts == sorted(counts, reverse=True)
            by_name = {one.name: one.nodes for one in view.filters}
            for name, count in counted(state, job_id, view).items():
                assert by_name.get(name, count) == count
            room = [one.passed for one in view.stages if one.name == "nodes"]
            if (job_id, view.name) in started:
                assert room == [True]
            if room == [True]:
                assert by_name["together"] >= view.nodes_needed
            if view.place:
                mine = [other for other in order if view.name in state.jobs[other].spec.partitions]
                assert view.waiting <= len(mine)
                assert 1 <= view.place <= view.waiting
        for blocker in found.blockers:
            other = state.jobs[blocker.job_id]
            if other.alloc is not None:
                assert set(blocker.nodes) <= {share.node for share in other.alloc.shares}
    again = plan(state, at, reachable=everywhere(state), memory=memory)
    assert again == plan(state, at, reachable=everywhere(state), memory=unasked)

"""The event pass under a budget, and what it keeps when nodes come and go."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ctld.core.apply.indexes import put
from ctld.core.model import Request
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.states import Reason
from tests.builders import NOON, a_job, a_state
from tests.placing import busy, carried_out, everywhere, queued


def after(calls: int) -> Callable[[], bool]:
    """A budget that runs out when it has been asked so often."""
    asked = iter(range(calls))
    return lambda: next(asked, None) is None


def many_shapes(count: int) -> State:
    state = a_state(2, cpus=8, gpus=0)
    for number in range(1, count + 1):
        request = Request(cpus_per_task=1 + number % 3, memory_per_cpu_mib=number)
        queued(state, a_job(number, request=request, priority=number))
    return state


def test_nothing_starts_before_all_classes_were_looked_at() -> None:
    state, memory = many_shapes(20), PlanMemory()
    first = plan(state, NOON, reachable=everywhere(state), memory=memory, spent=after(5))
    assert (first.starts, first.complete) == ((), False)
    starts = []
    for _ in range(40):
        made = plan(state, NOON, reachable=everywhere(state), memory=memory, spent=after(3))
        carried_out(state, made)
        starts += [start.job_id for start in made.starts]
        if made.complete:
            break
    assert made.complete
    again = many_shapes(20)
    assert starts == [start.job_id for start in plan(again, NOON, reachable=everywhere(again)).starts]


def test_classes_that_come_while_others_are_looked_at_are_not_forgotten() -> None:
    state, memory = many_shapes(10), PlanMemory()
    plan(state, NOON, reachable=everywhere(state), memory=memory, spent=after(2))
    queued(state, a_job(99, request=Request(memory_per_cpu_mib=77), priority=1000))
    made = plan(state, NOON, reachable=everywhere(state), memory=memory)
    assert made.starts[0].job_id == 99


def test_a_node_that_goes_and_comes_back_leaves_the_board_as_it_is() -> None:
    state, memory = a_state(3, cpus=8, gpus=0), PlanMemory()
    busy(state, 1, 0, 8, limit_seconds=600)
    busy(state, 2, 1, 8, limit_seconds=1200)
    request = Request(nodes_min=2, nodes_max=2, exclusive="node")
    queued(state, a_job(9, request=request, limit_seconds=60, priority=9))
    made = plan(state, NOON, reachable=everywhere(state), memory=memory)
    assert (made.waits[9].start_at, made.waits[9].nodes) == (NOON + 600, (0, 2))
    board = memory.board
    made = plan(state, NOON, reachable=0b011, memory=memory)
    assert (made.waits[9].start_at, made.waits[9].nodes) == (NOON + 1200, (0, 1))
    made = plan(state, NOON, reachable=0b111, memory=memory)
    assert (made.waits[9].start_at, made.waits[9].nodes) == (NOON + 600, (0, 2))
    assert memory.board is board


def test_a_job_whose_nodes_have_gone_starts_when_they_are_back() -> None:
    state, memory = a_state(2, cpus=8, gpus=0), PlanMemory()
    queued(state, a_job(9, request=Request(nodelist=("n2",)), limit_seconds=60))
    made = plan(state, NOON, reachable=0b01, memory=memory)
    found = state.queue.class_of(9)
    assert found is not None
    assert (made.starts, made.class_waits[found.id].reason) == ((), Reason.NODE_NOT_AVAIL)
    made = plan(state, NOON, reachable=0b11, memory=memory)
    assert [start.job_id for start in made.starts] == [9]


def throttled(state: State, count: int) -> None:
    """Arrays, each of a shape of its own, of which as many members run as may."""
    for number in range(1, count + 1):
        array = a_job(
            number, request=Request(memory_per_cpu_mib=number), array=(0, 9), array_limit=1, priority=1000 + number
        )
        queued(state, array)
    carried_out(state, plan(state, NOON, reachable=everywhere(state)))


def test_many_arrays_at_their_limits_do_not_keep_a_pass_that_has_little_time_from_others() -> None:
    state, memory = a_state(4, cpus=16, gpus=0), PlanMemory()
    throttled(state, 40)
    plan(state, NOON, reachable=everywhere(state), memory=memory)
    queued(state, a_job(99, request=Request(memory_per_cpu_mib=1), priority=1))
    made = plan(state, NOON, reachable=everywhere(state), memory=memory, spent=after(3))
    assert [start.job_id for start in made.starts] == [99]


def test_an_array_whose_limit_is_raised_goes_on() -> None:
    state, memory = a_state(1, cpus=16, gpus=0), PlanMemory()
    throttled(state, 1)
    assert plan(state, NOON, reachable=everywhere(state), memory=memory).starts == ()
    put(state, state.jobs[1], replace(state.jobs[1], array_limit=3))
    made = plan(state, NOON, reachable=everywhere(state), memory=memory)
    assert [start.job_id for start in made.starts] == [1, 1]

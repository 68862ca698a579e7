"""The pass after an event decides as one that looks at everything."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.core.plan import Plan
from ctld.core.state import State
from ctld.sched.cycle import plan, plan_anew
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON
from tests.clusters import LIMITS, clusters, jobs
from tests.placing import carried_out, changed, ended, everywhere, queued, with_the_same_promises

SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def shown(made: Plan) -> tuple[object, ...]:
    """What a plan says, in a form that does not change with later passes. That a class waits for nodes that cannot be
    used is said where a pass comes by it, and stays true behind others."""
    classes = {
        number: "" if wait.reason in (Reason.PRIORITY, Reason.NODE_NOT_AVAIL) else wait
        for number, wait in made.class_waits.items()
    }
    return made.starts, dict(made.waits), classes, made.complete


@SLOW
@given(clusters(by_user=False))
def test_a_first_pass_is_the_same_as_one_that_looks_at_every_class(state: State) -> None:
    made = plan(state, NOON, reachable=everywhere(state))
    assert shown(made) == shown(plan_anew(copy.deepcopy(state), NOON, reachable=everywhere(state)))


@SLOW
@given(clusters(by_user=False), st.data())
def test_a_pass_after_events_is_the_same_as_one_that_knows_nothing_but_the_promises(
    state: State, data: st.DataObject
) -> None:
    memory, columns = PlanMemory(), PlanMemory(small=0)
    at, number, closed = int(NOON), 100, 0
    for _ in range(data.draw(st.integers(1, 12))):
        reachable = everywhere(state) & ~closed
        fresh = [with_the_same_promises(memory), with_the_same_promises(columns, 0)]
        made = plan(state, UnixTime(at), reachable=reachable, memory=memory)
        said = shown(made)
        assert said == shown(plan(copy.deepcopy(state), UnixTime(at), reachable=reachable, memory=fresh[0]))
        assert said == shown(plan(state, UnixTime(at), reachable=reachable, memory=columns))
        assert said == shown(plan(copy.deepcopy(state), UnixTime(at), reachable=reachable, memory=fresh[1]))
        if data.draw(st.integers(0, 9)):  # Else it is lost on its way.
            carried_out(state, made, at)
        at += data.draw(st.sampled_from((0, 1, 50, 700)))
        for job_id in list(state.running):
            what = data.draw(st.integers(0, 5))
            if what < 2:
                ended(state, job_id)
            elif what == 2 and not data.draw(st.integers(0, 3)):
                changed(state, state.jobs[job_id], limit_seconds=data.draw(st.sampled_from(LIMITS)))
        for _ in range(data.draw(st.integers(0, 2))):
            number = max([number, *state.jobs]) + 1
            queued(state, data.draw(jobs(number, by_user=False)))
        waiting = sorted(state.queue)
        if waiting and not data.draw(st.integers(0, 3)):
            job_id = data.draw(st.sampled_from(waiting))
            if data.draw(st.booleans()):
                state.queue.discard(job_id)
                del state.jobs[job_id]
            else:
                state.jobs[job_id] = replace(state.jobs[job_id], priority=data.draw(st.integers(1, 4)))
                state.queue.add(state.jobs[job_id])
        if not data.draw(st.integers(0, 5)):
            closed = data.draw(st.integers(0, everywhere(state)))


@SLOW
@given(clusters(by_user=False), st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_passes_that_run_out_of_time_leave_nothing_that_could_start(state: State, budgets: list[int]) -> None:
    memory = PlanMemory()
    for number in range(400):
        asked = iter(range(budgets[number % len(budgets)]))
        made = plan(
            state, NOON, reachable=everywhere(state), memory=memory,
            spent=lambda asked=asked: next(asked, None) is None,  # type: ignore[misc]
        )  # fmt: skip
        carried_out(state, made)
        if made.complete:
            break
    assert made.complete
    fresh = with_the_same_promises(memory)
    assert plan(copy.deepcopy(state), NOON, reachable=everywhere(state), memory=fresh).starts == ()
    assert plan(state, NOON, reachable=everywhere(state), memory=memory).starts == ()

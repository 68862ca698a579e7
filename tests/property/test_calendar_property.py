"""Calendars of arbitrary small clusters and queues, judged by a plain oracle that tries every minute."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.core.cluster import Planning, Settings
from ctld.core.commands import ApplyPlan
from ctld.core.decide import decide
from ctld.core.events import JobStarted
from ctld.core.model import UNLIMITED, GpuRequest, Job, Request
from ctld.core.plan import Plan
from ctld.core.reservations import Access, Part, Reservation
from ctld.core.state import State
from ctld.sched.calendar import Forecast, foresee
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_node_spec, a_partition, a_state
from tests.foreseen import Judge, described, let_run, let_wait
from tests.placing import everywhere

SLOW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def requests(draw: st.DrawFn, reserved: tuple[str, ...] = ()) -> Request:
    """Equal shares on one to three nodes."""
    nodes = draw(st.sampled_from((1, 1, 1, 2, 3)))
    fields: dict[str, object] = {"nodes_min": nodes, "nodes_max": nodes}
    kind = draw(st.sampled_from(("cpus", "cpus", "gpus", "whole")))
    if kind == "whole":
        fields["exclusive"] = "node"
    else:
        fields["cpus_per_task"] = draw(st.integers(1, 6))
        if kind == "gpus":
            fields["gpus_per_node"] = (GpuRequest("", draw(st.integers(1, 2))),)
    fields["memory_per_node_mib"] = draw(st.sampled_from((10, 100, 400)))
    if draw(st.integers(0, 5)) == 0:
        fields["exclude"] = (draw(st.sampled_from(("n1", "n2"))),)
    if draw(st.integers(0, 4)) == 0:
        fields["licenses"] = f"abc:{draw(st.integers(1, 3))}"
    if draw(st.integers(0, 6)) == 0:
        fields["time_min_minutes"] = draw(st.integers(1, 3))
    if reserved and draw(st.integers(0, 3)) == 0:
        fields["reservations"] = (draw(st.sampled_from(reserved)),)
    return Request(**fields)  # type: ignore[arg-type]


@st.composite
def clusters(draw: st.DrawFn, members: int = 1) -> State:
    """One to four nodes, two partitions over them, running jobs, reservations, and a queue of up to ten jobs."""
    count = draw(st.integers(1, 4))
    planning = Planning(array_members=members)
    rules = Settings(require_registration=False, licenses={"abc": draw(st.integers(2, 4))}, planning=planning)
    tier = draw(st.sampled_from((1, 1, 2)))
    partitions = (
        a_partition(nodes=count),
        a_partition("side", nodes=tuple(range((count + 1) // 2)), priority_tier=tier),
    )
    state = a_state(count, gpus=0, settings=rules, partitions=partitions)
    for index in range(count):
        spec = a_node_spec(
            f"n{index + 1}",
            cpus=draw(st.sampled_from((4, 8))),
            memory_mib=draw(st.sampled_from((500, 1000))),
            gpus=draw(st.sampled_from((0, 0, 2, 4))),
            weight=draw(st.sampled_from((1, 1, 5))),
        )
        down = draw(st.integers(0, 6)) == 0
        state.nodes[index] = replace(state.nodes[index], spec=spec, down=down)
    state.free.reset(state.nodes)
    number = 100
    for node in range(count):
        for _ in range(draw(st.integers(0, 2))):
            free = int(state.free.cpus[node])
            if not free:
                break
            number += 1
            request = Request(
                cpus_per_task=draw(st.integers(1, free)), licenses=draw(st.sampled_from(("", "", "abc:1")))
            )
            let_run(
                state,
                a_job(number, request=request),
                node,
                minutes=draw(st.integers(1, 9) | st.just(UNLIMITED)),
                memory=draw(st.integers(0, 200)),
                gpus=draw(st.integers(0, min(2, int(state.free.gpu_count[node])))),
            )
    for index in range(draw(st.sampled_from((0, 0, 1, 2)))):
        start = draw(st.integers(0, 12))
        nodes = sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))
        name = f"r{index}"
        state.reservations[name] = Reservation(
            name=name,
            number=index,
            start_at=UnixTime(NOON + 60 * start),
            end_at=UnixTime(NOON + 60 * (start + draw(st.integers(1, 8)))),
            created_at=NOON,
            parts=tuple(Part(node) for node in nodes),
            users=Access(("ada",), ids=(1000,)),
        )
    reserved = tuple(state.reservations)
    let_wait(state, *[draw(jobs(number + 1, reserved)) for number in range(draw(st.integers(1, 10)))])
    return state


@st.composite
def jobs(draw: st.DrawFn, number: int, reserved: tuple[str, ...] = ()) -> Job:
    fields: dict[str, object] = {}
    if draw(st.integers(0, 3)) == 0:
        fields["array"] = (0, draw(st.integers(0, 4)))
        if draw(st.booleans()):
            fields["array_limit"] = draw(st.integers(1, 2))
    if draw(st.integers(0, 5)) == 0:
        fields["deadline_at"] = UnixTime(NOON + 60 * draw(st.integers(1, 15)))
    limit = draw(st.integers(1, 9)) * 60
    request = draw(requests(reserved))
    if not request.time_min_minutes and not fields.get("deadline_at") and draw(st.integers(0, 6)) == 0:
        limit = UNLIMITED
    if request.time_min_minutes:  # It gets what was asked for or less, as it comes: the oracle does not know how much.
        limit = request.time_min_minutes * 60
    partitions = draw(st.sampled_from((("main",), ("side",), ("main", "side"), ("side", "main"))))
    return a_job(
        number,
        request=request,
        partitions=partitions,
        priority=draw(st.integers(1, 4)),
        limit_seconds=limit,
        **fields,  # type: ignore[arg-type]
    )


def single_partitions(state: State) -> None:
    """Where tiers differ, leave each job the first of its partitions: of several it would have a turn in each tier."""
    if len({one.priority_tier for one in state.partitions.values()}) == 1:
        return
    for job in [state.jobs[job_id] for job_id in state.queue]:
        state.queue.discard(job.id)
        let_wait(state, replace(job, spec=replace(job.spec, partitions=job.spec.partitions[:1])))


@SLOW
@given(clusters(members=2))
def test_every_job_starts_in_the_first_minute_that_those_before_it_leave(state: State) -> None:
    memory, judge = PlanMemory(), Judge(state)
    memory.follow(state, everywhere(state))
    made = Forecast(state, NOON, memory, keep=True)
    assert made.run(lambda: judge.follow(made), None)
    judge.done()


@SLOW
@given(clusters(members=3))
def test_the_same_state_gives_the_same_calendar_to_the_byte(state: State) -> None:
    made = foresee(state, NOON, reachable=everywhere(state))
    memory, columns = PlanMemory(), PlanMemory(small=0)
    for kept in (memory, memory, columns, columns):
        again = foresee(copy.deepcopy(state), NOON, reachable=everywhere(state), memory=kept)
        assert repr(again) == repr(made)
    assert list(made.planned) == list(dict.fromkeys(made.planned))
    assert set(made.planned) == set(state.queue) | set(state.deferred)


@SLOW
@given(clusters(members=3))
def test_what_is_planned_for_now_can_be_started(state: State) -> None:
    """The writer, who believes nothing of a plan, starts all of it in the state that it was made on."""
    made = foresee(state, NOON, reachable=everywhere(state))
    first: dict[int, tuple[int, ...]] = {}
    for start in made.starts:
        first.setdefault(start.job_id, tuple(share.node for share in start.shares))
    assert first == {job_id: said.nodes for job_id, said in made.planned.items() if said.start_at == NOON}
    events = decide(state, ApplyPlan(Plan(NOON, made.starts)), NOON)
    assert len(events) == len(made.starts), described(state)
    for start, event in zip(made.starts, events, strict=True):
        assert isinstance(event, JobStarted)
        assert event.task_id == start.task_id
        asked = state.jobs[start.job_id].limit_seconds
        assert event.limit_seconds == (start.limit_seconds or asked) or state.jobs[start.job_id].spec.deadline_at


@SLOW
@given(clusters())
def test_without_backfill_the_event_pass_starts_what_is_planned_for_now(state: State) -> None:
    """In one partition nothing starts behind a job that waits for nodes. The two may differ behind one that has to wait
    and does not close its partition: the event pass keeps nodes for the first that waits for nodes, the calendar for
    all that will start, those that wait for licences or the limit of their array among them. A job that misses its
    deadline has a place in line until the next Tick, and none in the calendar."""
    state.reservations.clear()
    state.settings = replace(state.settings, backfill=False)
    for job in [state.jobs[job_id] for job_id in state.queue]:
        state.queue.discard(job.id)
        request = replace(job.spec.request, reservations=(), licenses="")
        spec = replace(job.spec, partitions=("main",), request=request, deadline_at=UnixTime(0))
        let_wait(state, replace(job, array_limit=0, spec=spec))
    made = foresee(state, NOON, reachable=everywhere(state))
    passed = plan(state, NOON, reachable=everywhere(state))
    started: dict[int, tuple[int, ...]] = {}
    for start in passed.starts:
        started.setdefault(start.job_id, tuple(share.node for share in start.shares))
    now = {job_id: said.nodes for job_id, said in made.planned.items() if said.start_at == NOON}
    assert now == started, described(state)


@SLOW
@given(clusters(), st.integers(1, 20))
def test_a_window_cuts_what_lies_behind_it_and_changes_nothing_before(state: State, minutes: int) -> None:
    """Behind the first job that is cut others may be planned where it would have been."""
    single_partitions(state)
    end = NOON + minutes * 60
    whole = foresee(state, NOON, reachable=everywhere(state)).planned
    made = foresee(state, NOON, reachable=everywhere(state), window_seconds=minutes * 60)
    cut = [job_id for job_id, said in made.planned.items() if not said.start_at and said.wait is None]
    assert len(cut) == made.past_window
    assert all(said.start_at <= end for said in made.planned.values())
    for job_id, said in made.planned.items():
        before = whole[job_id]
        if job_id in cut[:1]:
            assert before.start_at > end or before.wait is not None
            break
        assert said == before or (said.wait is not None and before.start_at > end)

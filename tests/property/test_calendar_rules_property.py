"""Calendars of requests of every kind, with reservations and limits: what is planned keeps to all rules at any time."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.accounts import Limits
from ctld.core.apply.indexes import held_shares, rebuild
from ctld.core.commands import ApplyPlan
from ctld.core.decide.plan import apply_plan
from ctld.core.events import JobStarted
from ctld.core.holds import allows
from ctld.core.limits.gate import Gate
from ctld.core.model import Allocation, Job, NodeShare
from ctld.core.plan import Plan, Start
from ctld.core.reservations import advanced
from ctld.core.state import State
from ctld.sched.ahead import Spot
from ctld.sched.calendar import Forecast, foresee, never
from ctld.sched.fleet import Fleet
from ctld.sched.memory import PlanMemory
from ctld.sched.releases import FAR, held_until
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import JobState
from tests.builders import NOON
from tests.clusters import clusters
from tests.limited import limited, waiting
from tests.placing import carried_out, everywhere
from tests.property.test_limits_property import clusters as limited_clusters
from tests.property.test_limits_property import jobs as limited_jobs
from tests.property.test_reservations_property import clusters as reserved_clusters

SLOW = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def forecast(state: State) -> Forecast:
    memory = PlanMemory()
    memory.follow(state, everywhere(state))
    made = Forecast(state, NOON, memory, keep=True)
    assert made.run(never, None)
    made.planned.update(made.held)
    return made


def planned(state: State, made: Forecast) -> Iterator[tuple[Job, Spot]]:
    """All planned starts, in order."""
    for job_id, spots in made.spots.items():
        for spot in spots:
            yield state.jobs[job_id], spot


def check_room(state: State, made: Forecast) -> None:
    """Count CPUs, memory and devices of all that runs and is planned at every start: nowhere is more in use than there
    is."""
    fleet = Fleet(state.nodes, 64, state.settings, state.partitions.values())
    uses: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in state.nodes]
    for job_id in state.running:
        job = state.jobs[job_id]
        assert job.alloc is not None
        until = max(held_until(state, job), NOON + 1)
        for share in held_shares(job):
            counts = fleet.counts_of(share, job.alloc.partition)
            uses[share.node].append((NOON, until, (share.cpus, share.memory_mib, *counts)))
    for _, spot in planned(state, made):
        assert [row[1] for row in spot.rows] == list(spot.nodes)
        for _, node, *amounts, counts in spot.rows:
            uses[node].append((spot.start, spot.end, (*amounts, *counts)))
    for node, runs in enumerate(uses):
        kind = fleet.kinds[fleet.kind[node]]
        for time in {start for start, _, _ in runs}:
            there = [amounts for start, end, amounts in runs if start <= time < end]
            for sums, most in zip(
                map(sum, zip(*there, strict=True)), (kind.cpus, kind.memory_mib, *kind.gpus), strict=True
            ):
                assert sums <= most, (node, time - NOON)


def check_users(state: State, made: Forecast) -> None:
    """Nobody is beside a job that shares with its own user only."""
    runs = [(job, spot.start, spot.end, spot.nodes) for job, spot in planned(state, made)]
    for job_id in state.running:
        job = state.jobs[job_id]
        assert job.alloc is not None
        nodes = tuple(share.node for share in job.alloc.shares)
        runs.append((job, NOON, max(held_until(state, job), NOON + 1), nodes))
    for job, start, end, nodes in runs:
        if job.spec.request.exclusive == "user":
            for other, begins, ends, theirs in runs:
                if other.spec.uid != job.spec.uid and begins < end and start < ends:
                    assert not set(nodes) & set(theirs), (job.id, other.id)


def starts_now(state: State, made: Forecast) -> list[Start]:
    found = []
    for job_id, spots in made.spots.items():
        job = state.jobs[job_id]
        tasks = ranges.numbers(job.array_pending) if job.array_pending else iter((NO_TASK,) * len(spots))
        for spot, task in zip(spots, tasks, strict=False):
            if spot.start == NOON:
                limit = -1 if spot.end >= FAR else spot.end - spot.start
                name = spot.entry.partition.name
                found.append(Start(JobId(job_id), name, spot.shares, task, "Main", spot.lane.name, limit_seconds=limit))
    return found


def check_starts(state: State, made: Forecast) -> None:
    """The writer accepts all that is planned for now."""
    starts = starts_now(state, made)
    events = apply_plan(copy.deepcopy(state), ApplyPlan(Plan(NOON, tuple(starts))), NOON)
    assert [event.alloc.shares for event in events if isinstance(event, JobStarted)] == [one.shares for one in starts]


def check_said(state: State, made: Forecast) -> None:
    """Each pending job has a start and nodes, or a reason."""
    assert made.past_window == 0
    for job_id in (*state.queue, *state.deferred):
        said = made.planned[job_id]
        assert bool(said.start_at) == bool(said.nodes) == (said.wait is None)
        assert list(said.nodes) == sorted(set(said.nodes))


@SLOW
@given(clusters(), st.integers(0, 2))
def test_any_request_is_planned_where_there_is_room(state: State, filled: int) -> None:
    kept = PlanMemory()
    for _ in range(filled):
        now = forecast(state)
        assert foresee(state, NOON, reachable=everywhere(state), memory=kept).planned == now.planned
        carried_out(state, Plan(NOON, tuple(starts_now(state, now))), NOON - 30)
        for job_id in list(state.running)[::2]:
            state.running.pop(job_id)
            _leave(state, job_id)
    made = forecast(state)
    again = foresee(state, NOON, reachable=everywhere(state), memory=kept)
    assert again.planned == made.planned, "what is remembered of earlier states changes nothing"
    check_room(state, made)
    check_users(state, made)
    check_starts(state, made)
    check_said(state, made)


def _leave(state: State, job_id: int) -> None:
    job = state.jobs.pop(job_id)
    state.run_log.note(job_id)
    if job.array_job_id:
        state.by_array[job.array_job_id].discard(job_id)
        state.array_running[job.array_job_id] -= 1
    assert job.alloc is not None
    for share in job.alloc.shares:
        state.free.give(share, job.spec.uid, job.spec.request.exclusive, job.alloc.partition)
        del state.node_jobs[share.node][job_id]


@SLOW
@given(reserved_clusters())
def test_nothing_is_planned_on_what_others_reserved(state: State) -> None:
    made = forecast(state)
    check_starts(state, made)
    check_room(state, made)
    for job, spot in planned(state, made):
        # At that time recurring reservations will have moved on.
        later = copy.deepcopy(state)
        for one in list(later.reservations.values()):
            while one.recurs and one.end_at <= spot.start:
                one = advanced(one, ())
            later.reservations[one.name] = one
        shares = spot.shares or tuple(NodeShare(node, 1, ()) for node in spot.nodes)
        start = Start(job.id, spot.entry.partition.name, shares, reservation=spot.lane.name)
        assert allows(later, job, start, spot.start, spot.end), (job.id, spot.start - NOON, spot.lane.name)
    check_parts(state, made)


def check_parts(state: State, made: Forecast) -> None:
    """Where cores are reserved, others get no more than the rest while it lasts, and its own jobs no more."""
    runs = [
        (spot.lane.name, spot.start, spot.end, row)
        for _, spot in planned(state, made)
        for row in spot.rows
        if spot.lane.inside is None or not spot.lane.inside.shares_nodes  # Those may lie over others.
    ]
    for one in state.reservations.values():
        if one.shares_nodes or one.has("TIME_FLOAT") or one.has("FLEX"):
            continue
        for part in one.parts:
            if not part.cores:
                continue
            reserved = ranges.count(part.cores)
            cpus = state.nodes[part.node].spec.cpus
            for time in {start for _, start, _, _ in runs if one.start_at <= start < one.end_at} | {int(one.start_at)}:
                there = [(name, row) for name, start, end, row in runs if start <= time < end and row[1] == part.node]
                assert sum(row[2] for name, row in there if name == one.name) <= reserved
                held = sum(
                    share.cpus
                    for job_id in state.node_jobs[part.node]
                    for share in held_shares(state.jobs[job_id])
                    if share.node == part.node
                    and held_until(state, state.jobs[job_id]) > time
                    and not set(ranges.numbers(share.cores)) & set(ranges.numbers(part.cores))
                )
                assert held + sum(row[2] for name, row in there if name != one.name) <= cpus - reserved


@st.composite
def few_nodes(draw: st.DrawFn) -> State:
    """Accounts that may use one or two nodes, with minutes that are few too."""
    return limited(
        3,
        cpus=6,
        physics=Limits(grp_tres={"node": draw(st.integers(1, 2))}),
        chemistry=Limits(
            grp_tres={"node": 1, "cpu": draw(st.integers(3, 9))},
            grp_tres_run_minutes={"cpu": draw(st.integers(60, 400))},
        ),
    )


@SLOW
@given(limited_clusters() | few_nodes(), st.data())
def test_no_group_is_planned_over_its_limits(state: State, data: st.DataObject) -> None:
    """The oracle: at each planned start all that runs then is put into a state, and the gate that guards real starts is
    asked."""
    state.at = NOON
    for number in range(1, data.draw(st.integers(2, 8))):
        waiting(state, data.draw(limited_jobs(number)))
    made = forecast(state)
    check_room(state, made)
    check_said(state, made)
    every = sorted(planned(state, made), key=lambda one: one[1].start)
    for job, spot in every:
        then = copy.deepcopy(state)
        then.jobs = {}
        for place, (other, run) in enumerate(every):
            if run is not spot and run.start <= spot.start < run.end:
                then.jobs[1000 + place] = _running(other, run, 1000 + place)
        rebuild(then)
        name = spot.entry.partition.name
        limit = job.limit_seconds
        shares = _shares(spot)
        assert Gate(then, UnixTime(spot.start)).after(job, name, shares, limit) is None, (job.id, spot.start - NOON)


def _shares(spot: Spot) -> tuple[NodeShare, ...]:
    return spot.shares or tuple(
        NodeShare(node, cpus, (), memory, (0, gpus[0] - 1) if gpus[0] else (), pick[1])
        for (_, node, cpus, memory, gpus), pick in zip(spot.rows, spot.picks, strict=True)
    )


def _running(job: Job, spot: Spot, job_id: int) -> Job:
    return replace(
        job,
        id=JobId(job_id),
        state=int(JobState.RUNNING),
        started_at=UnixTime(spot.start),
        limit_seconds=spot.end - spot.start,
        array_pending=(),
        array_job_id=0,
        alloc=Allocation(spot.entry.partition.name, _shares(spot)),
    )

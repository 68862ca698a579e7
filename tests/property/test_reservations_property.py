"""Arbitrary reservations and queues: an oracle that looks at every node, core and time."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctld.core import invariants, ranges
from ctld.core.apply import apply
from ctld.core.apply.indexes import rebuild
from ctld.core.commands import ApplyPlan, CreateReservation, ReservationAsk, Tick
from ctld.core.decide import decide
from ctld.core.model import UNLIMITED, GpuRequest, Job
from ctld.core.reservations import Access, Reservation, advanced
from ctld.core.state import State
from ctld.sched.cycle import plan
from muster.errors import MusterError
from muster.ids import UnixTime
from tests.builders import ADMIN, NOON, a_job, a_state
from tests.placing import busy, everywhere, queued

MINUTE = 60
USERS = {"ada": 1000, "bob": 1001}
SLOW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RARE = ("MAINT", "OVERLAP", "IGNORE_JOBS", "FLEX", "MAGNETIC", "DAILY", "HOURLY", "PURGE_COMP")


@st.composite
def asks(draw: st.DrawFn, number: int) -> ReservationAsk:
    who = draw(st.sampled_from(sorted(USERS)))
    flags = draw(st.one_of(st.just(["MAGNETIC"]), st.lists(st.sampled_from(RARE), max_size=2, unique=True)))
    size = draw(
        st.sampled_from(
            (
                {"nodes": "n1"},
                {"nodes": "n[2-3]"},
                {"node_count": 2},
                {"node_count": 1, "core_counts": (3,)},
                {"gpus": (GpuRequest("", 1),)},
                {"nodes": "ALL"},
            )
        )
    )
    return ReservationAsk(
        name=f"r{number}",
        start_at=UnixTime(NOON + MINUTE * draw(st.sampled_from((0, 0, 1, 5, 12)))),
        duration_seconds=MINUTE * draw(st.sampled_from((1, 4, 12, 30))),
        users=Access((who,), draw(st.sampled_from((False, False, True))), ids=(USERS[who],)),
        flags=tuple(flags),
        **size,  # type: ignore[arg-type]
    )


@st.composite
def clusters(draw: st.DrawFn) -> State:
    """A small cluster with running jobs, reservations as they could be made, and a queue."""
    state = a_state(3, cpus=4, memory_mib=4000, gpus=2)
    for node in range(3):
        if draw(st.booleans()):
            limit = MINUTE * draw(st.integers(1, 15))
            busy(state, 900 + node, node, draw(st.integers(1, 3)), limit_seconds=limit)
    for number in range(draw(st.integers(1, 4))):
        try:
            for event in decide(state, CreateReservation(draw(asks(number)), ADMIN), NOON):
                apply(state, event)
        except MusterError:
            continue
    for number in range(1, draw(st.integers(2, 8))):
        queued(state, draw(jobs(number, sorted(state.reservations))))
    rebuild(state)
    return state


@st.composite
def jobs(draw: st.DrawFn, number: int, names: list[str]) -> Job:
    user = draw(st.sampled_from(sorted(USERS)))
    asked = draw(st.sampled_from(([], names[:1], names[-1:], names[:2])))
    minutes = draw(st.sampled_from((1, 1, 2, 5, 10, 20, 0)))
    shape = draw(
        st.sampled_from(({"ntasks": 3}, {"ntasks": 1}, {"nodes_min": 2, "nodes_max": 2}, {"exclusive": "node"}))
    )
    gpus = (GpuRequest("", 1),) if draw(st.booleans()) else ()
    return a_job(
        number,
        uid=USERS[user],
        user=user,
        priority=draw(st.integers(1, 100)),
        limit_seconds=minutes * MINUTE or UNLIMITED,
        memory_per_cpu_mib=1,
        gpus_per_node=gpus,
        reservations=tuple(asked),
        **shape,  # type: ignore[arg-type]
    )


def times_of(one: Reservation, horizon: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while one.start_at < horizon and len(found) < 60:
        found.append((int(one.start_at), int(one.end_at)))
        if not one.recurs:
            break
        one = advanced(one, ())
    return found


def admitted(one: Reservation, job: Job) -> bool:
    """All reservations here are for one user, or for all but one."""
    return (job.spec.uid in one.users.ids) != one.users.deny


def test_nothing_is_started_on_what_others_reserved() -> None:
    seen = {"inside": 0, "outside": 0, "magnetic": 0, "waits": 0}

    @SLOW
    @given(clusters(), st.integers(0, 6))
    def judged(state: State, minutes: int) -> None:
        at = NOON + minutes * MINUTE
        made = plan(state, UnixTime(at), reachable=everywhere(state))
        seen["waits"] += len(state.queue) - len(made.starts)
        for start in made.starts:
            job = state.jobs[start.job_id]
            end = at + job.limit_seconds if job.limit_seconds >= 0 else at + 400 * 86_400
            mine = state.reservations.get(start.reservation)
            asked = job.spec.request.reservations
            assert bool(mine) == bool(start.reservation)
            assert not asked or start.reservation in asked
            if mine is not None:
                seen["magnetic" if not asked else "inside"] += 1
                assert admitted(mine, job)
                assert asked or mine.has("MAGNETIC")
                assert mine.has("FLEX") or (mine.start_at <= at and end <= mine.end_at)
                for share in start.shares if not mine.has("FLEX") else ():
                    [part] = [part for part in mine.parts if part.node == share.node]
                    assert not part.cores or not ranges.difference(share.cores, part.cores)
                    assert not part.cores or not ranges.difference(share.gpus, part.gpus)
            else:
                seen["outside"] += 1
            for other in state.reservations.values():
                if other is mine or (mine is not None and mine.shares_nodes):
                    continue
                if not any(begin < end and until > at for begin, until in times_of(other, end)):
                    continue
                for part in other.parts:
                    for share in start.shares:
                        if share.node == part.node:
                            assert part.cores, (job.id, other.name)
                            assert not ranges.intersection(share.cores, part.cores)
                            assert not ranges.intersection(share.gpus, part.gpus)
        # The writer takes all of it, and its invariants agree.
        events = decide(state, ApplyPlan(made), UnixTime(at))
        assert len(events) == len(made.starts)
        copied = copy.deepcopy(state)
        for event in events:
            apply(copied, event)
            invariants.check_touched(copied, event)

    judged()
    assert seen["outside"] and seen["waits"] and seen["inside"] + seen["magnetic"], seen


@SLOW
@given(clusters())
def test_no_reservation_lies_over_another_unless_it_may(state: State) -> None:
    made = list(state.reservations.values())
    horizon = NOON + 3 * 86_400
    for place, late in enumerate(made):
        if late.shares_nodes:
            continue
        for early in made[:place]:
            meet = any(a < d and c < b for a, b in times_of(late, horizon) for c, d in times_of(early, horizon))
            for one in late.parts if meet else ():
                for other in early.parts:
                    if one.node == other.node:
                        assert one.cores and other.cores
                        assert not ranges.intersection(one.cores, other.cores)
                        assert not ranges.intersection(one.gpus, other.gpus)


@SLOW
@given(clusters())
def test_jobs_that_ran_before_are_gone_when_a_reservation_begins(state: State) -> None:
    for one in state.reservations.values():
        for job_id in state.running if not one.has("IGNORE_JOBS") else ():
            job = state.jobs[job_id]
            assert job.alloc is not None
            for share in job.alloc.shares:
                for part in one.parts:
                    if part.node == share.node and (not part.cores or ranges.intersection(part.cores, share.cores)):
                        assert job.started_at + job.limit_seconds <= max(one.start_at, NOON)


@SLOW
@given(clusters(), st.lists(st.integers(1, 40 * MINUTE), max_size=12))
def test_time_leaves_only_what_lies_ahead(state: State, waits: list[int]) -> None:
    at = int(NOON)
    for wait in waits:
        at += wait
        for _ in range(2):
            for event in decide(state, Tick(), UnixTime(at)):
                apply(state, event)
        for one in state.reservations.values():
            assert one.end_at > at or one.name in state.in_reservation
        for job_id in (*state.queue, *state.deferred):
            for name in state.jobs[job_id].spec.request.reservations:
                assert name in state.reservations

"""The calendar beside advance reservations: their own jobs inside, all others around them."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.plan import Wait
from ctld.core.reservations import Access, Part, Reservation
from ctld.core.state import State
from ctld.sched.calendar import Calendar, foresee
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_job, a_state
from tests.foreseen import let_run, let_wait
from tests.placing import everywhere

MINUTE = 60
WHOLE = {"exclusive": "node", "memory_per_node_mib": 1}


def made(state: State, **options: object) -> Calendar:
    return foresee(state, NOON, reachable=everywhere(state), **options)  # type: ignore[arg-type]


def starts(calendar: Calendar) -> dict[int, int]:
    """Job -> minutes from now; -1: no start."""
    return {
        job_id: (said.start_at - NOON) // MINUTE if said.start_at else -1 for job_id, said in calendar.planned.items()
    }


def small(nodes: int = 2, **fields: object) -> State:
    return a_state(nodes, cpus=8, memory_mib=8000, gpus=0, **fields)  # type: ignore[arg-type]


def reserved(name: str, start: int, minutes: int, *nodes: int, **fields: object) -> Reservation:
    """A reservation of ada's, in minutes from now."""
    return Reservation(
        name=name,
        number=1,
        start_at=UnixTime(NOON + start * MINUTE),
        end_at=UnixTime(NOON + (start + minutes) * MINUTE),
        created_at=NOON,
        parts=tuple(Part(node) for node in nodes),
        users=Access(("ada",), ids=(1000,)),
        **fields,  # type: ignore[arg-type]
    )


def test_maintenance_is_planned_around() -> None:
    # scheduling.md 11: at 15:30 a job of 20 minutes starts before it, one of 40 minutes behind it at 18:00.
    state = small()
    state.reservations["m"] = reserved("m", 30, 120, 0, 1, flags=("MAINT",))
    for job_id, minutes in ((1, 20), (2, 40)):
        let_wait(state, a_job(job_id, limit_seconds=minutes * MINUTE, memory_per_cpu_mib=1))
    assert starts(made(state)) == {1: 0, 2: 150}


def test_a_job_of_a_reservation_lies_in_its_nodes_and_time() -> None:
    state = small()
    state.reservations["mine"] = reserved("mine", 30, 60, 1)
    for job_id, minutes in ((1, 40), (2, 30), (3, 61), (4, 90)):
        named = () if job_id == 4 else ("mine",)
        let_wait(
            state,
            a_job(job_id, limit_seconds=minutes * MINUTE, reservations=named, **WHOLE),  # type: ignore[arg-type]
        )
    calendar = made(state)
    assert starts(calendar) == {1: 30, 2: -1, 3: -1, 4: 0}
    assert (calendar.planned[1].nodes, calendar.planned[4].nodes) == ((1,), (0,))
    assert calendar.planned[3].wait.reason is Reason.RESERVATION  # type: ignore[union-attr]


def test_a_reservation_of_some_cores_leaves_the_others() -> None:
    state = small(1)
    part = Part(0, (0, 5))
    state.reservations["six"] = replace(reserved("six", 0, 60), parts=(part,))
    outside = a_job(1, limit_seconds=600, cpus_per_task=2, memory_per_node_mib=1)
    more = a_job(2, limit_seconds=600, cpus_per_task=3, memory_per_node_mib=1)
    inside = a_job(3, limit_seconds=600, cpus_per_task=6, memory_per_node_mib=1, reservations=("six",))
    second = a_job(4, limit_seconds=600, cpus_per_task=1, memory_per_node_mib=1, reservations=("six",))
    let_wait(state, outside, more, inside, second)
    assert starts(made(state)) == {3: 0, 4: 10, 1: 0, 2: 60}


def test_a_reservation_that_always_begins_later_keeps_longer_jobs_off() -> None:
    state = small(2)
    state.reservations["f"] = replace(reserved("f", 10, 60, 0), flags=("TIME_FLOAT",), float_seconds=10 * MINUTE)
    let_run(state, a_job(100, cpus_per_task=8), 1, minutes=20)
    for job_id, minutes in ((1, 11), (2, 10)):
        let_wait(state, a_job(job_id, limit_seconds=minutes * MINUTE, **WHOLE))  # type: ignore[arg-type]
    assert starts(made(state)) == {1: 20, 2: 0}


def test_a_reservation_that_comes_again_is_planned_around_each_time() -> None:
    state = small(1)
    state.reservations["h"] = reserved("h", 10, 10, 0, flags=("HOURLY",))
    for job_id, minutes in ((1, 50), (2, 10), (3, 51)):
        let_wait(state, a_job(job_id, limit_seconds=minutes * MINUTE, **WHOLE))  # type: ignore[arg-type]
    calendar = made(state, window_seconds=86_400)
    assert starts(calendar) == {1: 20, 2: 0, 3: -1}


def test_a_job_that_draws_a_magnetic_reservation_starts_where_it_can_first() -> None:
    state = small(2)
    state.reservations["m"] = reserved("m", 0, 60, 1, flags=("MAGNETIC",))
    let_run(state, a_job(100, cpus_per_task=8), 0, minutes=20)
    let_wait(
        state,
        a_job(1, uid=1000, limit_seconds=600, **WHOLE),  # type: ignore[arg-type]
        a_job(2, uid=1001, limit_seconds=600, **WHOLE),  # type: ignore[arg-type]
    )
    calendar = made(state)
    assert starts(calendar) == {1: 0, 2: 20}
    assert calendar.planned[1].nodes == (1,)


def test_jobs_inside_and_outside_of_a_flexible_reservation_plan_around_each_other() -> None:
    state = small(2)
    state.reservations["flex"] = reserved("flex", 0, 60, 0, flags=("FLEX",))
    for job_id, named in ((1, ("flex",)), (2, ("flex",)), (3, ())):
        let_wait(
            state,
            a_job(job_id, limit_seconds=1200, reservations=named, **WHOLE),  # type: ignore[arg-type]
        )
    # Its own two jobs have both nodes, and only the second of these is open to the third job.
    calendar = made(state)
    assert starts(calendar) == {1: 0, 2: 0, 3: 20}
    assert calendar.planned[3].nodes == (1,)


def test_what_comes_behind_the_last_known_time_of_a_reservation_is_not_promised() -> None:
    state = small(1)
    state.reservations["d"] = reserved("d", 10, 10, 0, flags=("DAILY",))
    let_wait(state, a_job(1, memory_per_cpu_mib=1))
    said = made(state).planned[1]
    assert (said.start_at, said.wait) == (0, Wait(Reason.RESOURCES)), "a job without limit finds no gap"

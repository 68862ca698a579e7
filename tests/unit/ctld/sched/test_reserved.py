"""Jobs and advance reservations: who starts where and when, and what the others are told."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.apply import apply
from ctld.core.commands import ApplyPlan, CreateReservation, ReservationAsk
from ctld.core.decide import decide
from ctld.core.holds import barred
from ctld.core.model import Job
from ctld.core.plan import Plan
from ctld.core.reservations import Access, Reservation
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.reserved import MAINTENANCE, RESERVED, Gaps, holds, options
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import ADMIN, NOON, a_job, a_state
from tests.placing import busy, carried_out, everywhere, queued

MINUTE = 60
ADA = Access(("ada",), ids=(1000,))
BOB = Access(("bob",), ids=(1001,))


def small(nodes: int = 2, gpus: int = 0) -> State:
    return a_state(nodes, cpus=8, memory_mib=8000, gpus=gpus)


def reserved(state: State, at: int = NOON, **fields: object) -> Reservation:
    """Make a reservation as the controller would."""
    fields.setdefault("users", BOB)
    fields.setdefault("start_at", UnixTime(NOON + 30 * MINUTE))
    fields.setdefault("duration_seconds", 120 * MINUTE)
    if not {"nodes", "node_count", "core_counts", "gpus", "gpus_per_node"} & set(fields):
        fields["nodes"] = "ALL"
    ask = ReservationAsk(**fields)  # type: ignore[arg-type]
    for event in decide(state, CreateReservation(ask, ADMIN), UnixTime(at)):
        apply(state, event)
    return list(state.reservations.values())[-1]


def one_cpu(job_id: int, minutes: int = 20, **fields: object) -> Job:
    fields.setdefault("memory_per_cpu_mib", 1)
    return a_job(job_id, limit_seconds=minutes * MINUTE, **fields)  # type: ignore[arg-type]


def planned(state: State, at: int = NOON) -> Plan:
    """Plan, and check that the writer takes every start."""
    made = plan(state, UnixTime(at), reachable=everywhere(state))
    events = decide(state, ApplyPlan(made), UnixTime(at))
    assert sum(type(event).__name__ == "JobStarted" for event in events) == len(made.starts)
    return made


def started(made: Plan) -> list[int]:
    return [start.job_id for start in made.starts]


def test_a_job_that_ends_before_maintenance_starts_and_a_longer_one_waits_for_its_end() -> None:
    # scheduling.md 11: MAINT on all nodes at 16:00 for 120 minutes; it is 15:30.
    state = small()
    reserved(state, flags=("MAINT",))
    made = planned(queued(state, one_cpu(1, 20), one_cpu(2, 40)))
    assert started(made) == [1]
    wait = made.waits[2]
    assert (wait.reason, wait.text) == (Reason.NODE_NOT_AVAIL, MAINTENANCE)
    assert wait.start_at == NOON + 150 * MINUTE  # 18:00


def test_of_many_jobs_that_wait_for_maintenance_the_first_has_a_planned_start() -> None:
    state = small()
    reserved(state, flags=("MAINT",))
    for node in (0, 1):
        busy(state, 10 + node, node, 8, started_at=UnixTime(NOON), limit_seconds=20 * MINUTE)
    made = planned(queued(state, one_cpu(1, 40), one_cpu(2, 50)))
    assert {job_id: (made.waits[job_id].text, made.waits[job_id].start_at) for job_id in (1, 2)} == {
        1: (MAINTENANCE, NOON + 150 * MINUTE),
        2: (MAINTENANCE, 0),
    }


def test_a_job_that_ends_as_it_begins_may_run_and_a_second_more_is_too_long() -> None:
    state = small()
    reserved(state)
    made = planned(queued(state, one_cpu(1, 30), replace(one_cpu(2), limit_seconds=30 * MINUTE + 1)))
    assert started(made) == [1]


def test_a_job_without_limit_never_runs_into_a_reservation() -> None:
    state = small(1)
    reserved(state)
    assert started(planned(queued(state, a_job(1, memory_per_cpu_mib=1)))) == []


def test_only_the_nodes_of_a_reservation_are_kept() -> None:
    state = small()
    reserved(state, nodes="n1", flags=("MAINT",))
    made = planned(queued(state, one_cpu(1, 90, ntasks=8)))
    assert [share.node for share in made.starts[0].shares] == [1]
    state = small()
    reserved(state, nodes="n1")
    made = planned(queued(state, one_cpu(1, 90, nodelist=("n1",)), one_cpu(2, 90, nodes_min=2, nodes_max=2, ntasks=2)))
    assert made.waits[1].text == RESERVED
    assert made.waits[1].start_at == NOON + 150 * MINUTE
    assert (made.waits[2].reason, made.waits[2].text) == (Reason.RESOURCES, "")


def test_a_job_of_the_reservation_waits_for_it_and_then_runs_inside() -> None:
    state = small()
    reserved(state, name="mine", users=ADA)
    queued(state, one_cpu(1, reservations=("mine",)), one_cpu(2, 90))
    made = planned(state)
    assert started(made) == []
    assert (made.waits[1].reason, made.waits[1].start_at) == (Reason.RESERVATION, NOON + 30 * MINUTE)
    later = planned(state, NOON + 30 * MINUTE)
    assert started(later) == [1]
    assert later.starts[0].reservation == "mine"
    # 31 minutes before its end there is no room for 40.
    queued(state, one_cpu(3, 40, reservations=("mine",)))
    late = planned(state, NOON + 119 * MINUTE)
    assert started(late) == [1]
    assert late.waits[3].reason == Reason.RESERVATION


def test_its_jobs_stay_on_its_nodes_and_cores() -> None:
    state = small(4)
    reserved(state, name="mine", users=ADA, node_count=1, core_counts=(3,), start_at=NOON)
    [part] = state.reservations["mine"].parts
    queued(state, one_cpu(1, ntasks=2, reservations=("mine",)), one_cpu(2, ntasks=2, reservations=("mine",)))
    made = planned(state)
    assert started(made) == [1]
    assert ranges.difference(made.starts[0].shares[0].cores, part.cores) == ()
    assert made.waits[2].reason == Reason.RESOURCES


def test_the_other_cores_of_a_node_stay_usable() -> None:
    state = small(1, gpus=4)
    reserved(state, core_counts=(3,), node_count=1, start_at=NOON)
    made = planned(queued(state, one_cpu(1, 90, ntasks=5), one_cpu(2, 90)))
    assert started(made) == [1]
    assert made.starts[0].shares[0].cores == (3, 7)


def test_a_reservation_of_gpus_leaves_the_other_gpus() -> None:
    from ctld.core.model import GpuRequest

    state = small(1, gpus=4)
    reserved(state, gpus=(GpuRequest("", 2),), name="g", users=ADA, start_at=NOON)
    assert state.reservations["g"].parts[0].gpus == (0, 1)
    assert ranges.count(state.reservations["g"].parts[0].cores) == 4  # half of the node's
    wants = (GpuRequest("", 2),)
    queued(state, one_cpu(1, 90, gpus_per_node=wants), one_cpu(2, 90, gpus_per_node=wants))
    queued(state, one_cpu(3, 90, gpus_per_node=wants, reservations=("g",)))
    made = planned(state)
    by_id = {start.job_id: start.shares[0].gpus for start in made.starts}
    assert by_id == {3: (0, 1), 1: (2, 3)}


def test_jobs_of_a_reservation_stand_before_higher_tiers() -> None:
    from tests.builders import a_partition

    # scheduling.md 1: A (tier 1, 9000), B (tier 2, 10), C (tier 1, 10, reservation): C, B, A.
    state = a_state(1, cpus=8, gpus=0, partitions=(a_partition(nodes=1), a_partition("high", nodes=1, priority_tier=2)))
    reserved(state, name="r", users=ADA, start_at=NOON, flags=("FLEX",), core_counts=(1,), node_count=1)
    queued(
        state,
        one_cpu(1, priority=9000),
        one_cpu(2, priority=10, partitions=("high",)),
        one_cpu(3, priority=10, reservations=("r",)),
    )
    assert started(planned(state)) == [3, 2, 1]


def test_flex_lets_its_jobs_begin_early_end_late_and_leave_its_nodes() -> None:
    state = small(2)
    reserved(state, name="flex", users=ADA, nodes="n1", flags=("FLEX",))
    queued(
        state,
        one_cpu(1, 600, ntasks=8, reservations=("flex",)),
        one_cpu(2, 600, ntasks=8, reservations=("flex",)),
        one_cpu(3, 600),
    )
    made = planned(state)
    assert started(made) == [1, 2]


def test_a_magnetic_one_draws_jobs_that_may_use_it_and_nobody_else() -> None:
    state = small(1)
    reserved(state, name="pull", users=ADA, start_at=NOON, flags=("MAGNETIC",))
    queued(state, one_cpu(1, uid=1001, user="bob"), one_cpu(2))
    made = planned(state)
    assert [(start.job_id, start.reservation) for start in made.starts] == [(2, "pull")]
    state = small(1)
    reserved(state, name="still", users=ADA, start_at=NOON)
    assert started(planned(queued(state, one_cpu(1)))) == []


def test_a_list_is_tried_in_order_and_one_that_is_not_ones_own_is_told() -> None:
    state = small(2)
    reserved(state, name="a", users=ADA, nodes="n1", start_at=NOON)
    reserved(state, name="b", users=ADA, nodes="n2", start_at=NOON)
    queued(state, *(one_cpu(number, ntasks=8, reservations=("a", "b")) for number in (1, 2, 3)))
    queued(state, one_cpu(4, uid=1001, user="bob", reservations=("a",)))
    made = planned(state)
    assert [(start.job_id, start.reservation) for start in made.starts] == [(1, "a"), (2, "b")]
    assert made.waits[3].reason == Reason.RESOURCES
    assert made.waits[4].reason == Reason.RESERVATION_INVALID


def test_nobody_uses_one_that_floats_and_everybody_ends_before_it() -> None:
    state = small(1)
    reserved(state, name="f", users=ADA, start_at=None, float_seconds=30 * MINUTE, flags=("TIME_FLOAT",))
    queued(state, one_cpu(1, 30), one_cpu(2, 31))
    assert started(planned(state)) == [1]
    assert started(planned(state, NOON + 3600)) == [1]


def test_a_job_that_waits_for_others_is_promised_a_start_between_reservations() -> None:
    state = small(1)
    busy(state, 90, 0, 8, limit_seconds=20 * MINUTE)
    reserved(state)
    made = planned(queued(state, one_cpu(1, 10), one_cpu(2, 11, priority=99)))
    assert made.waits[1].start_at == NOON + 20 * MINUTE
    state = small(1)
    busy(state, 90, 0, 8, limit_seconds=20 * MINUTE)
    reserved(state)
    made = planned(queued(state, one_cpu(1, 11)))
    assert made.waits[1].start_at == NOON + 150 * MINUTE


def test_a_plain_one_under_maintenance_cannot_be_used_where_the_maintenance_lies() -> None:
    state = small(2)
    reserved(state, name="mine", users=ADA, start_at=NOON)
    reserved(state, name="fix", nodes="n1", flags=("MAINT",), start_at=NOON)
    queued(state, one_cpu(1, ntasks=8, reservations=("mine",)), one_cpu(2, ntasks=8, reservations=("mine",)))
    made = planned(state)
    assert [start.shares[0].node for start in made.starts] == [1]


def test_a_stale_plan_breaks_no_reservation() -> None:
    state = small(1)
    queued(state, one_cpu(1, 60))
    made = planned(state)
    assert started(made) == [1]
    reserved(state)
    assert decide(state, ApplyPlan(made), NOON) == []


def test_times_of_a_recurring_one_are_expanded_to_the_horizon() -> None:
    state = small(1)
    reserved(state, flags=("DAILY",))
    found = holds(state, NOON, NOON + 3 * 86_400)
    assert [hold.start - NOON for hold in found] == [1800, 1800 + 86_400, 1800 + 2 * 86_400]
    gaps = Gaps(found)
    assert gaps.free_from(0, NOON, 1800) == NOON
    assert gaps.free_from(0, NOON, 1801) == NOON + 1800 + 7200
    assert gaps.free_from(0, NOON, 2 * 86_400) == NOON + 1800 + 7200 + 2 * 86_400


def test_the_next_time_bars_before_the_one_that_is_over_was_moved_on() -> None:
    state = small(1)
    one = reserved(state, flags=("DAILY",))
    assert not barred(state, None, one.end_at, one.start_at + 86_400)
    assert barred(state, None, one.end_at, one.start_at + 86_401)


def test_without_reservations_a_job_has_one_way_and_nothing_is_barred() -> None:
    state = small(1)
    [(name, found)] = options(state, one_cpu(1), NOON, NOON + 60)
    assert (name, bool(found)) == ("", False)
    assert not barred(state, None, NOON, NOON + 60)


def test_carried_out_plans_leave_reserved_nodes_empty() -> None:
    state = small(2)
    reserved(state, nodes="n2")
    queued(state, *(one_cpu(number, 60, ntasks=2) for number in range(1, 9)))
    for _ in range(3):
        made = planned(state)
        carried_out(state, made)
    assert not state.node_jobs[1]

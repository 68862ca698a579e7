"""Reservations: what is made of a request, what time does to them, and who loses what at their end."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Accounts, Association
from ctld.core.apply.indexes import rebuild
from ctld.core.cluster import Settings
from ctld.core.commands import (
    CreateReservation,
    DeleteReservation,
    ReservationAsk,
    Resume,
    Suspend,
    Tick,
    UpdateJob,
    UpdateNode,
    UpdateReservation,
)
from ctld.core.decide import decide
from ctld.core.events import (
    Event,
    JobReservationLost,
    JobStarted,
    KillOrdered,
    ReservationChanged,
    ReservationCreated,
    ReservationDeleted,
)
from ctld.core.holds import may_use
from ctld.core.model import Allocation, Caller, NodeShare
from ctld.core.reservations import Access, Reservation, advanced, occurrences
from muster.errors import Denied, MusterError
from muster.ids import JobId, UnixTime
from muster.states import RESV_DEL_HOLD, Reason
from tests.builders import ADMIN, NOON, USER, a_partition, a_spec
from tests.deciding import Desk

ADA = Access(("ada",), ids=(1000,))
HOUR = 3600


def ask(**fields: object) -> ReservationAsk:
    fields.setdefault("start_at", UnixTime(NOON + HOUR))
    if "end_at" not in fields:
        fields.setdefault("duration_seconds", HOUR)
    fields.setdefault("users", ADA)
    if not {"nodes", "node_count", "core_counts", "gpus", "gpus_per_node", "cpus"} & set(fields):
        fields["nodes"] = "n1"
    return ReservationAsk(**fields)  # type: ignore[arg-type]


def make(desk: Desk, **fields: object) -> Reservation:
    [event] = desk.do(CreateReservation(ask(**fields), ADMIN))
    assert isinstance(event, ReservationCreated)
    return event.reservation


def refusal(desk: Desk, **fields: object) -> tuple[int, str]:
    with pytest.raises(MusterError) as caught:
        desk.do(CreateReservation(ask(**fields), ADMIN))
    return caught.value.slurm_code, caught.value.sentence


def run_in(desk: Desk, job_id: int, name: str, node: int = 0, limit: int = HOUR) -> None:
    alloc = Allocation("main", (NodeShare(node=node, cpus=1, cores=(0, 0)),), reservation=name)
    desk.apply([JobStarted(desk.at, JobId(job_id), alloc, limit)])


def tick(desk: Desk, seconds: int) -> list[Event]:
    desk.at = UnixTime(desk.at + seconds)
    return desk.do(Tick())


# ---- making ----------------------------------------------------------------------------------------------------


def test_two_at_one_time_on_one_node_need_overlap() -> None:
    desk = Desk(2)
    make(desk, name="a")
    assert refusal(desk, name="b") == (2058, "Requested reservation overlaps with another reservation")
    assert refusal(desk, name="a") == (2082, "Duplicate reservation name")
    make(desk, name="c", start_at=UnixTime(NOON + 2 * HOUR))  # begins as the first ends
    make(desk, name="d", nodes="n2")
    make(desk, name="e", flags=("OVERLAP",))
    make(desk, name="f", flags=("MAINT",))
    assert [desk.state.reservations[name].flags for name in "ef"] == [
        ("OVERLAP", "SPEC_NODES"),
        ("MAINT", "SPEC_NODES"),
    ]


def test_one_without_a_name_is_named_after_its_first_user_or_account_and_counted_with_all() -> None:
    desk = Desk(3)
    make(desk, name="fix")
    root = Access(("root", "ada"), ids=(0, 1000))
    assert make(desk, users=root, nodes="n2").name == "root_2"
    assert make(desk, users=None, accounts=Access(("physics",)), nodes="n3").name == "physics_3"


def test_a_count_takes_nodes_that_are_idle_then() -> None:
    desk = Desk(4)
    job = desk.submit(time_limit_minutes=600)
    desk.apply([JobStarted(desk.at, job, Allocation("main", (NodeShare(node=0, cpus=1, cores=(0, 0)),)), 10 * HOUR)])
    short = desk.submit(time_limit_minutes=30)
    desk.apply([JobStarted(desk.at, short, Allocation("main", (NodeShare(node=1, cpus=1, cores=(0, 0)),)), HOUR)])
    make(desk, name="other", nodes="n3")
    assert make(desk, node_count=2).nodes == (1, 3)
    assert refusal(desk, node_count=1)[0] == 2016
    assert refusal(desk, node_count=9) == (2016, "Requested nodes are busy")
    assert make(desk, node_count=1, flags=("IGNORE_JOBS",)).nodes == (0,)
    assert refusal(desk, nodes="n1", start_at=UnixTime(NOON + 3 * HOUR))[0] == 2016


def test_the_time_that_a_job_stood_still_keeps_its_node_busy_for_longer() -> None:
    desk = Desk(1)
    job = desk.submit(time_limit_minutes=60)
    desk.apply([JobStarted(desk.at, job, Allocation("main", (NodeShare(node=0, cpus=1, cores=(0, 0)),)), HOUR)])
    desk.do(Suspend(job, ADMIN))
    desk.wait(60)
    desk.do(Resume(job, ADMIN))
    assert refusal(desk, start_at=UnixTime(NOON + HOUR))[0] == 2016
    assert make(desk, start_at=UnixTime(NOON + HOUR + 60)).nodes == (0,)


def test_cores_for_the_system_are_nobodys_to_reserve() -> None:
    desk = Desk(1)
    spec = replace(desk.state.nodes[0].spec, cpus=8, sockets=1, cores_per_socket=8, core_spec_count=2)
    desk.state.nodes[0] = replace(desk.state.nodes[0], spec=spec)
    rebuild(desk.state)
    assert refusal(desk, core_counts=(7,), node_count=1)[0] == 2016
    assert make(desk, core_counts=(6,), node_count=1).parts[0].cores == (0, 5)


def test_what_cannot_be_is_refused_in_slurms_words() -> None:
    desk = Desk(2)
    assert refusal(desk, users=None)[0] == 2080
    assert refusal(desk, groups=Access(("staff",)))[0] == 2129
    assert refusal(desk, start_at=None)[0] == 2054
    assert refusal(desk, start_at=UnixTime(NOON - 2 * HOUR))[0] == 2054
    assert refusal(desk, duration_seconds=0)[0] == 2054
    assert refusal(desk, flags=("DAILY", "WEEKLY"))[0] == 2036
    assert refusal(desk, flags=("HOURLY",), duration_seconds=HOUR + 1)[0] == 2054
    assert refusal(desk, nodes="n9")[0] == 2018
    assert refusal(desk, nodes="n[1-2]", core_counts=(1,))[0] == 2111
    assert refusal(desk, node_count=1, features="none")[0] == 2014
    assert refusal(desk, partition="none")[0] == 2000
    assert refusal(desk, flags=("PART_NODES",))[0] == 2053
    assert refusal(desk, flags=("LICENSE_ONLY",))[0] == 2048
    assert refusal(desk, licenses=(("matlab", 1),))[0] == 2048
    with pytest.raises(Denied, match="Invalid user id"):
        desk.do(CreateReservation(ask(), USER))


def test_recurring_ones_meet_wherever_their_times_do() -> None:
    desk = Desk(1)
    make(desk, name="daily", flags=("DAILY",))
    assert refusal(desk, start_at=UnixTime(NOON + 9 * 86_400 + HOUR + 60))[0] == 2058
    assert refusal(desk, start_at=UnixTime(NOON), flags=("HOURLY",))[0] == 2058
    make(desk, start_at=UnixTime(NOON + 9 * 86_400 + 3 * HOUR))


def test_core_reservations_share_a_node_but_no_core() -> None:
    desk = Desk(1)
    assert make(desk, core_counts=(2,), node_count=1).parts[0].cores == (0, 1)
    assert make(desk, core_counts=(3,), node_count=1).parts[0].cores == (2, 4)
    assert refusal(desk, node_count=1)[0] == 2016
    assert refusal(desk, nodes="n1")[0] == 2058


# ---- who -------------------------------------------------------------------------------------------------------


def test_all_conditions_must_match_and_a_minus_turns_one_round() -> None:
    desk = Desk(1)
    job = a_spec(uid=1000, account="physics")
    one = make(desk, accounts=Access(("physics",)))
    assert may_use(desk.state, one, job)
    assert not may_use(desk.state, one, replace(job, account="maths"))
    assert not may_use(desk.state, one, replace(job, uid=1001))
    assert may_use(desk.state, one, replace(job, uid=0, account="maths"))
    denies = replace(one, users=replace(ADA, deny=True), accounts=Access())
    assert not may_use(desk.state, denies, job)
    assert may_use(desk.state, denies, replace(job, uid=1001))
    group = replace(one, users=Access(), accounts=Access(), groups=Access(("staff",), ids=(7,), gids=(50,)))
    assert [may_use(desk.state, group, replace(job, uid=uid, gid=gid)) for uid, gid in ((7, 1), (8, 50), (8, 1))] == [
        True, True, False,
    ]  # fmt: skip


def test_an_account_opens_it_to_its_sub_accounts() -> None:
    desk = Desk(1)
    desk.state.accounts = Accounts(
        [Association(1, "root"), Association(2, "physics", 1), Association(3, "optics", 2), Association(4, "maths", 1)]
    )
    one = make(desk, users=None, accounts=Access(("physics",)))
    found = [may_use(desk.state, one, a_spec(account=name)) for name in ("physics", "optics", "maths", "root", "none")]
    assert found == [True, True, False, False, False]
    assert refusal(desk, name="x", accounts=Access(("none",)))[0] == 2045


def test_submit_judges_the_reservations_that_are_named() -> None:
    desk = Desk(1)
    make(desk, name="r", users=Access(("bob",), ids=(1001,)))
    with pytest.raises(MusterError, match="Requested reservation is invalid"):
        desk.submit(reservations=("none", "r"))
    with pytest.raises(Denied, match="Access denied to requested reservation"):
        desk.submit(reservations=("r",))
    job = desk.submit(reservations=("r",), by=Caller(1001, 1001))
    with pytest.raises(MusterError, match="Requested reservation is in use"):
        desk.do(DeleteReservation("r", ADMIN))
    desk.do(UpdateJob(job, Caller(1001, 1001), reservations=()))
    assert desk.do(DeleteReservation("r", ADMIN)) == [ReservationDeleted(desk.at, "r")]


def test_user_delete_lets_its_users_delete_it() -> None:
    desk = Desk(1)
    make(desk, name="r", flags=("USER_DELETE",))
    with pytest.raises(Denied):
        desk.do(DeleteReservation("r", Caller(1001, 1001)))
    desk.do(DeleteReservation("r", USER))
    assert not desk.state.reservations


# ---- time ------------------------------------------------------------------------------------------------------


def test_at_its_end_what_runs_is_ended_and_what_waits_is_held() -> None:
    desk = Desk(2)
    make(desk, name="r")
    runs, waits, two = (desk.submit(reservations=("r",)) for _ in range(3))
    make(desk, name="other", nodes="n2", duration_seconds=9 * HOUR)
    desk.do(UpdateJob(two, USER, reservations=("r", "other")))
    run_in(desk, runs, "r", limit=9 * HOUR)
    assert tick(desk, 2 * HOUR - 1) == []
    events = tick(desk, 1)
    assert [type(event) for event in events] == [KillOrdered, JobReservationLost, JobReservationLost]
    held, other = desk.job(waits), desk.job(two)
    assert (held.hold, held.priority, held.reason) == ("user", 0, Reason.RESERVATION_DELETED)
    assert held.flags & RESV_DEL_HOLD
    assert (other.hold, other.spec.request.reservations) == ("", ("other",))
    assert tick(desk, 1) == []  # it stays until the run is gone
    desk.end(runs)
    assert tick(desk, 1) == [ReservationDeleted(desk.at, "r", "ended")]


def test_a_job_loses_all_that_end_at_once() -> None:
    desk = Desk(2)
    make(desk, name="a")
    make(desk, name="b", nodes="n2")
    job = desk.submit(reservations=("a", "b"))
    events = tick(desk, 2 * HOUR)
    assert [type(event) for event in events] == [JobReservationLost, ReservationDeleted, ReservationDeleted]
    assert (desk.job(job).hold, desk.job(job).spec.request.reservations) == ("user", ())


def test_over_run_gives_running_jobs_more_time_and_no_hold_jobs_after_keeps_those_that_wait() -> None:
    settings = Settings(require_registration=False, reservation_over_run_minutes=10)
    desk = Desk(1, settings=settings)
    make(desk, name="r", flags=("NO_HOLD_JOBS_AFTER",))
    runs, waits = desk.submit(reservations=("r",)), desk.submit(reservations=("r",))
    run_in(desk, runs, "r", limit=9 * HOUR)
    assert tick(desk, 2 * HOUR + 599) == []
    assert [type(event) for event in tick(desk, 1)] == [KillOrdered, JobReservationLost]
    assert (desk.job(waits).hold, desk.can_start(waits)) == ("", True)


def test_a_daily_one_begins_again_a_day_later() -> None:
    desk = Desk(1)
    make(desk, name="r", flags=("DAILY",))
    job = desk.submit(reservations=("r",))
    [event] = tick(desk, 2 * HOUR)
    assert isinstance(event, ReservationChanged)
    assert event.reservation.start_at == NOON + HOUR + 86_400
    assert not desk.job(job).hold
    tick(desk, 10 * 86_400)  # the controller was away
    assert desk.state.reservations["r"].end_at > desk.at
    [event] = desk.do(UpdateReservation(ReservationAsk(name="r", skip=True), ADMIN))
    assert isinstance(event, ReservationChanged)
    assert event.reservation.start_at == NOON + HOUR + 12 * 86_400


@pytest.mark.parametrize(
    ("flag", "first", "days"),
    [
        ("DAILY", "2026-03-06T02:30", [7, 8, 9, 10]),  # the clock of New York jumps on 8 March at 2:00
        ("WEEKDAY", "2026-03-05T08:00", [6, 9, 10, 11, 12, 13, 16]),
        ("WEEKEND", "2026-03-01T08:00", [7, 8, 14, 15]),
        ("WEEKLY", "2026-03-03T08:00", [10, 17, 24]),
    ],
)
def test_recurring_ones_keep_the_local_time_over_a_jump_of_the_clock(flag: str, first: str, days: list[int]) -> None:
    york = ZoneInfo("America/New_York")
    zone = ((0, -5 * HOUR), (1_772_953_200, -4 * HOUR))  # 2026-03-08 07:00 UTC
    start = datetime.fromisoformat(first).replace(tzinfo=york)
    one = Reservation(
        "r", 1, UnixTime(int(start.timestamp())), UnixTime(int(start.timestamp()) + 1800), NOON, flags=(flag,)
    )
    for day in days:
        one = advanced(one, zone)
        found = datetime.fromtimestamp(one.start_at, york)
        jumped = (flag, day) == ("DAILY", 8)
        assert (found.day, found.hour, found.minute) == (day, start.hour + jumped, start.minute)


def test_hourly_counts_hours_not_clock_times() -> None:
    one = Reservation("r", 1, NOON, UnixTime(NOON + 60), NOON, flags=("HOURLY",))
    times = [start for start, _ in occurrences(one, (), NOON + 61, NOON + 3 * HOUR + 1)]
    assert times == [NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR]


def test_purge_comp_deletes_what_nobody_used_for_a_while() -> None:
    desk = Desk(1)
    make(desk, name="r", flags=("PURGE_COMP",), start_at=NOON, duration_seconds=9 * HOUR, purge_seconds=300)
    job = desk.submit(reservations=("r",))
    run_in(desk, job, "r")
    assert tick(desk, 600) == []
    desk.end(job)
    assert [type(event) for event in tick(desk, 1)] == [ReservationChanged]
    assert "r" in desk.state.reservations
    assert not any(isinstance(event, ReservationDeleted) for event in tick(desk, 299))
    assert ReservationDeleted(UnixTime(desk.at + 1), "r", "purged") in tick(desk, 1)


def test_nodes_that_fail_are_replaced_unless_they_were_named_or_are_to_stay() -> None:
    desk = Desk(4)
    make(desk, name="count", node_count=1)
    make(desk, name="named", nodes="n2")
    make(desk, name="stays", node_count=1, flags=("STATIC_ALLOC",))
    assert [desk.state.reservations[name].nodes for name in ("count", "named", "stays")] == [(0,), (1,), (2,)]
    desk.do(UpdateNode((0, 1, 2), ADMIN, state="DRAIN", reason="x"))
    [event] = tick(desk, 1)
    assert isinstance(event, ReservationChanged)
    assert event.reservation.nodes == (3,)
    assert tick(desk, 1) == []


def test_replace_gives_idle_nodes_for_those_that_its_jobs_took() -> None:
    desk = Desk(2)
    make(desk, name="r", node_count=1, flags=("REPLACE",), start_at=NOON)
    run_in(desk, desk.submit(reservations=("r",)), "r")
    [event] = tick(desk, 1)
    assert isinstance(event, ReservationChanged)
    assert event.reservation.nodes == (1,)


def test_one_that_floats_never_starts_and_never_ends() -> None:
    desk = Desk(1)
    make(desk, name="f", start_at=None, float_seconds=HOUR, flags=("TIME_FLOAT",))
    assert tick(desk, 100 * HOUR) == []
    one = desk.state.reservations["f"]
    assert one.times(desk.at) == (desk.at + HOUR, desk.at + 2 * HOUR)
    assert not one.is_active(desk.at)


# ---- changing --------------------------------------------------------------------------------------------------


def test_update_moves_resizes_and_checks_again() -> None:
    desk = Desk(4)
    make(desk, name="r", node_count=2)
    make(desk, name="later", nodes="ALL", start_at=UnixTime(NOON + 5 * HOUR))

    def update(**fields: object) -> list[Event]:
        return desk.do(UpdateReservation(ReservationAsk(name="r", **fields), ADMIN))  # type: ignore[arg-type]

    update(node_count=3)
    assert list(desk.state.reservations["r"].nodes) == [0, 1, 2]
    update(node_count=1)
    assert list(desk.state.reservations["r"].nodes) == [0]
    update(start_at=UnixTime(NOON + 2 * HOUR))
    one = desk.state.reservations["r"]
    assert (one.start_at, one.end_at) == (NOON + 2 * HOUR, NOON + 3 * HOUR)
    with pytest.raises(MusterError, match="overlaps"):
        update(end_at=UnixTime(NOON + 6 * HOUR))
    desk.at = UnixTime(NOON + 2 * HOUR)
    with pytest.raises(MusterError, match="Reservation already started"):
        update(start_at=UnixTime(NOON + 4 * HOUR))
    assert update(end_at=UnixTime(NOON + 4 * HOUR))
    make(desk, name="cores", core_counts=(2,), node_count=1, flags=("OVERLAP",), start_at=desk.at)
    with pytest.raises(MusterError, match="Core-based reservation can not be updated"):
        desk.do(UpdateReservation(ReservationAsk(name="cores", node_count=2), ADMIN))


def test_part_nodes_follow_the_partition() -> None:
    from ctld.core.commands import ApplyConfig

    desk = Desk(3, partitions=(a_partition(nodes=2),))
    make(desk, name="r", nodes="ALL", partition="main", flags=("PART_NODES",))
    make(desk, name="n2", nodes="n2", flags=("OVERLAP",))
    assert desk.state.reservations["r"].nodes == (0, 1)
    specs = tuple(node.spec for node in desk.state.nodes)
    desk.do(ApplyConfig(desk.state.settings, specs[1:], (a_partition(nodes=2),)))
    assert desk.state.reservations["r"].nodes == (0, 1)
    assert desk.state.reservations["n2"].nodes == (0,)  # the node is the first one now


def test_each_day_is_a_day_of_the_calendar() -> None:
    one = Reservation("r", 1, NOON, UnixTime(NOON + 60), NOON, flags=("DAILY",))
    assert advanced(one, ()).start_at - NOON == timedelta(days=1).total_seconds()


def test_decide_changes_nothing() -> None:
    desk = Desk(1)
    decide(desk.state, CreateReservation(ask(), ADMIN), NOON)
    assert not desk.state.reservations


def test_what_skip_would_leave_out_is_refused() -> None:
    """Skip=yes makes an update of its own: nothing beside it may be taken and forgotten."""
    desk = Desk(1)
    assert refusal(desk, name="r", flags=("DAILY",), skip=True)[0] == 2128
    made = make(desk, name="r", flags=("DAILY",))
    with pytest.raises(MusterError, match="Requested") as caught:
        desk.do(UpdateReservation(ReservationAsk(name="r", skip=True, duration_seconds=60), ADMIN))
    assert "changes nothing else" in caught.value.hint
    assert desk.state.reservations["r"] == made


def test_a_number_of_nodes_that_is_not_that_of_the_named_ones_is_refused() -> None:
    desk = Desk(2)
    assert refusal(desk, name="r", nodes="n1", node_count=2) == (2006, "Node count specification invalid")
    assert make(desk, name="r", nodes="n1", node_count=1).parts[0].node == 0

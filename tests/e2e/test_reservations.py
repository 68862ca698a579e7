"""Advance reservations as administrators and users meet them: real commands, real daemons."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cli.cluster import Cluster
from tests.e2e.conftest import SMALL, User, running, until

HOLD = "#!/bin/sh\nexec sleep 600\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from running(SMALL)


def shown(user: User, *words: str) -> dict[str, str]:
    line = user.ok("scontrol", "-o", "show", *words)
    return dict(pair.split("=", 1) for pair in line.split() if "=" in pair)


def reason(user: User, job: int) -> str:
    return user.ok("squeue", "-h", "-j", str(job), "-o", "%r").strip()


def test_a_job_waits_for_its_reservation_and_runs_inside(user: User) -> None:
    nodes = user.ok("sinfo", "-h", "-N", "-o", "%N").split()
    made = user.ok("scontrol", "create", "res", "StartTime=now+8", "Duration=60", f"Nodes={nodes[0]}", "Users=root")
    name = made.removeprefix("Reservation created: ").strip()
    assert name == "root_1"
    inside = user.submit(f"--reservation={name}", "-t", "10", script=HOLD)
    outside = user.submit("-t", "5", "-N2", script=HOLD)
    until(lambda: reason(user, inside) == "Reservation", "the reason Reservation", user.describe)
    record = shown(user, "res", name)
    assert (record["Nodes"], record["State"], record["Users"]) == (nodes[0], "INACTIVE", "root")
    assert user.ok("squeue", "-h", "-R", name, "-o", "%i %v").split() == [str(inside), name]
    assert user.run("scontrol", "delete", f"ReservationName={name}").err.startswith(
        f"delete_reservation ReservationName={name}: Requested reservation is in use\n"
    )
    user.wait_for(inside, "RUNNING")
    started = shown(user, "job", str(inside))
    assert started["StartTime"] >= record["StartTime"]
    assert (started["NodeList"], started["Reservation"]) == (nodes[0], name)
    assert shown(user, "res", name)["State"] == "ACTIVE"
    assert "+RESERVED" in shown(user, "node", nodes[0])["State"]
    assert shown(user, "node", nodes[0])["ReservationName"] == name
    assert user.state(outside) == "PENDING"
    assert user.run("scontrol", "delete", f"ReservationName={name}").code == 1
    user.ok("scancel", f"--reservation={name}")
    user.ended(inside)
    until(lambda: user.ok("sinfo", "-h", "-n", nodes[0], "-o", "%t").strip() == "resv", "the state resv", user.describe)
    assert user.ok("sinfo", "-T").splitlines()[1].split()[:2] == [name, "ACTIVE"]
    user.ok("scontrol", "delete", f"ReservationName={name}")
    user.wait_for(outside, "RUNNING")
    user.ok("scancel", str(outside))
    user.ended(outside)


def test_maintenance_keeps_a_long_job_waiting_with_its_text(user: User) -> None:
    user.ok("scontrol", "create", "res=fix", "StartTime=now+1hour", "Duration=120", "Nodes=ALL", "Users=root",
            "Flags=MAINT")  # fmt: skip
    record = shown(user, "res", "fix")
    assert record["Flags"] == "MAINT,SPEC_NODES"
    assert user.ended(user.submit("-t", "30")) == "COMPLETED"
    long = user.submit("-t", "90")
    until(lambda: reason(user, long) == "ReqNodeNotAvail, Reserved for maintenance", "the text", user.describe)
    assert shown(user, "job", str(long))["StartTime"] == record["EndTime"]
    assert "Reason=ReqNodeNotAvail,_Reserved_for_maintenance" in user.ok("scontrol", "show", "job", str(long))
    user.ok("scancel", str(long))
    user.ok("scontrol", "update", "ReservationName=fix", "StartTime=now")
    until(lambda: user.ok("sinfo", "-h", "-o", "%t").strip() == "maint", "the state maint", user.describe)
    assert shown(user, "node")["State"].endswith("+MAINTENANCE+RESERVED")
    assert user.ok("sinfo", "-h", "-t", "maint", "-o", "%D %i").split() == ["2", "fix"]
    user.ok("scontrol", "delete", "res", "fix")


def test_a_job_that_loses_its_reservation_is_held_and_a_running_one_is_ended(user: User) -> None:
    user.ok("scontrol", "create", "res=brief", "StartTime=now", "Duration=10", "NodeCnt=1", "Users=root")
    runs = user.submit("--reservation=brief", "-t", "5", script=HOLD)
    user.wait_for(runs, "RUNNING")
    waits = user.submit("--reservation=brief", "-t", "60", script=HOLD)
    until(lambda: reason(user, waits) == "Reservation", "the reason Reservation", user.describe)
    end = int(time.time()) + 3
    user.ok("scontrol", "update", "res=brief", f"EndTime=uts{end}")
    assert user.ended(runs) == "TIMEOUT"
    until(lambda: reason(user, waits) == "ReservationDeleted", "the job to be held", user.describe)
    assert user.state(waits) == "RESV_DEL_HOLD"
    until(lambda: user.ok("sinfo", "-T") == "No reservations in the system\n", "the end", user.describe)
    user.ok("scontrol", "release", str(waits))
    user.wait_for(waits, "RUNNING")
    user.ok("scancel", str(waits))


def test_reservations_outlive_the_controller(user: User) -> None:
    user.ok("scontrol", "create", "res=daily", "StartTime=now+2hours", "Duration=30", "NodeCnt=1", "CoreCnt=2",
            "Accounts=physics", "Flags=DAILY")  # fmt: skip
    before = user.ok("scontrol", "show", "res")
    plan = user.cluster.plan()
    assert plan is not None
    user.cluster.stop("ctld")
    user.cluster.up(plan, lambda line: None)
    assert until(lambda: user.run("scontrol", "show", "res").out, "the controller", user.describe) == before
    refused = user.run("scontrol", "create", "res=daily", "StartTime=now", "Duration=1", "NodeCnt=1", "Users=root")
    assert refused.err.startswith("Error creating the reservation: Duplicate reservation name")
    user.ok("scontrol", "delete", "res=daily")

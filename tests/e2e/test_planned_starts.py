"""Planned starts on eight virtual nodes: what squeue --start says, that it comes true, and the planner's own life."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

EXTRA = "KillWait=2\nMinJobAge=300\nSchedulerParameters=bf_window=1440\n"
PLAN = Plan(nodes=8, cpus=2, memory_mib=4000, gpus="", accounting=False, extra=EXTRA)
WHOLE = ("-n2", "-N1", "-o", "/dev/null")
SHORT = "#!/bin/sh\nsleep 3\n"
FOREVER = "#!/bin/sh\nsleep 300\n"
LATE_SECONDS = 5
"""How far behind its planned start a job may begin: what runs until its limit is ended by a tick, and has to go."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Eight nodes of two CPUs."""
    yield from running(PLAN)


def planned(user: User) -> dict[int, tuple[str, str, str]]:
    """Give (start, nodes, reason) of each pending job, as squeue --start shows them."""
    lines = user.ok("squeue", "--start", "-h", "-o", "%A|%S|%Y|%r").splitlines()
    found = (line.strip().split("|") for line in lines)
    return {int(job): (start, nodes, reason) for job, start, nodes, reason in found}


def all_planned(user: User, *jobs: int) -> dict[int, tuple[str, str, str]]:
    """Wait until these jobs, and no others, wait and have planned starts; give them."""

    def look() -> dict[int, tuple[str, str, str]]:
        found = planned(user)
        return found if set(found) == set(jobs) and all(found[job][0] != "N/A" for job in jobs) else {}

    return until(look, f"planned starts of {jobs}", user.describe)


def seconds(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def started(user: User, job: int) -> float:
    """Wait until a job, or the first member of an array, has started and say when that was."""
    text = until(
        lambda: user.ok("squeue", "-h", "-t", "R,CG,CD,TO", "-j", str(job), "-o", "%S").split(),
        f"job {job} to start",
        user.describe,
    )
    return min(seconds(one) for one in text)


def shown(user: User, job: int) -> dict[str, str]:
    words = user.ok("scontrol", "-o", "show", "job", str(job)).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def planner(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = cluster.client().call("GET", "/v1/status")["planner"]
    return found


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_jobs_start_no_later_than_was_shown(user: User) -> None:
    """Seven nodes are left before their limits, the eighth at its limit: what waits for it starts just then."""
    filling = [user.submit(*WHOLE, "-t1", "-w", f"node{node}", script=SHORT) for node in range(1, 8)]
    last = user.submit(*WHOLE, "-t1", "-w", "node8", script=FOREVER)
    for job in (*filling, last):
        user.wait_for(job, "RUNNING")
    behind = user.submit(*WHOLE, "-t5", "-w", "node8", script=SHORT)
    single = [user.submit(*WHOLE, "-t2", script=SHORT) for _ in range(3)]
    wide = user.submit("-N4", "-n8", "-t3", "-o", "/dev/null", script=SHORT)
    array = user.submit(*WHOLE, "-t1", "--array=1-3", script=SHORT)
    promised = all_planned(user, behind, *single, wide, array)

    end = seconds(user.ok("squeue", "-h", "-j", str(last), "-o", "%e").strip())
    assert seconds(promised[behind][0]) == end, "it waits for what runs there until its limit"
    assert promised[behind][1] == "node8"
    assert "," in promised[wide][1] or "-" in promised[wide][1], "four nodes are named"
    field = shown(user, wide)
    assert (field["StartTime"], field["SchedNodeList"]) == promised[wide][:2]
    assert seconds(field["LastSchedEval"]) >= seconds(field["EligibleTime"])

    for job, (start, _, _) in promised.items():
        assert started(user, job) <= seconds(start) + LATE_SECONDS, f"{job} {promised}"
    assert end <= started(user, behind) <= end + LATE_SECONDS
    assert user.ended(behind) == "COMPLETED"


def test_jobs_that_wait_for_something_else_have_no_start(user: User) -> None:
    first = user.submit("-N8", "-n16", "-t1", "-o", "/dev/null", script=FOREVER)
    user.wait_for(first, "RUNNING")
    waiting = user.submit(*WHOLE, "-t1", script=SHORT)
    held = user.submit(*WHOLE, "-H", "-t1", script=SHORT)
    dependent = user.submit(*WHOLE, "-t1", f"--dependency=afterany:{held}", script=SHORT)
    until(lambda: planned(user)[waiting][0] != "N/A", "a planned start", user.describe)
    found = planned(user)
    assert found[held] == ("N/A", "(null)", "JobHeldUser")
    assert found[dependent] == ("N/A", "(null)", "Dependency")
    assert found[waiting][1].startswith("node")
    for job in (first, waiting, held, dependent):
        user.ok("scancel", str(job))
    assert user.ended(first) == "CANCELLED"


def test_starts_in_and_behind_a_reservation_come_true(user: User) -> None:
    made = user.ok("scontrol", "create", "res", "StartTime=now+3", "Duration=2", "Nodes=ALL", "Users=root")
    name = made.removeprefix("Reservation created: ").strip()
    show = user.ok("scontrol", "-o", "show", "res", name).split()
    times = dict(word.split("=", 1) for word in show if "=" in word)
    inside = user.submit(*WHOLE, "-t1", f"--reservation={name}", script="#!/bin/sh\ntrue\n")
    outside = user.submit(*WHOLE, "-t1", script=SHORT)
    promised = all_planned(user, inside, outside)
    assert (promised[inside][0], promised[outside][0]) == (times["StartTime"], times["EndTime"])
    begin = seconds(times["StartTime"])
    assert begin <= started(user, inside) <= begin + LATE_SECONDS
    assert user.ended(inside) == "COMPLETED"
    end = int(time.time()) + 3
    user.ok("scontrol", "update", f"res={name}", f"EndTime=uts{end}")
    until(lambda: outside not in (now := planned(user)) or seconds(now[outside][0]) == end, "a new plan", user.describe)
    assert end <= started(user, outside) <= end + LATE_SECONDS
    assert user.ended(outside) == "COMPLETED"


def test_a_start_past_the_window_is_not_shown(user: User) -> None:
    """bf_window is a day: the second of two runs of two days is beyond it."""
    first = user.submit("-N8", "-n16", "-t1", "-o", "/dev/null", script=FOREVER)
    user.wait_for(first, "RUNNING")
    near = user.submit("-N8", "-n16", "-t2-0", "-o", "/dev/null", script=SHORT)
    far = user.submit("-N8", "-n16", "-t1", "-o", "/dev/null", script=SHORT)
    until(lambda: planned(user)[near][0] != "N/A" and planner(user.cluster)["past_window"], "a plan", user.describe)
    assert planned(user)[far][0] == "N/A"
    for job in (far, near, first):
        user.ok("scancel", str(job))
    assert user.ended(first) == "CANCELLED"


def test_a_killed_planner_comes_back_and_nobody_waits_for_it(user: User) -> None:
    first = user.submit("-N8", "-n16", "-t5", "-o", "/dev/null", script=FOREVER)
    user.wait_for(first, "RUNNING")
    waiting = user.submit(*WHOLE, "-t1", script=SHORT)
    all_planned(user, waiting)
    before = planner(user.cluster)
    os.kill(before["pid"], signal.SIGKILL)
    until(lambda: planner(user.cluster)["restarts"] == before["restarts"] + 1, "ctld to notice", user.describe)
    later = user.submit(*WHOLE, "-t2", script=SHORT)
    all_planned(user, waiting, later)
    after = planner(user.cluster)
    status = user.ok("muster", "status", "--dir", str(user.cluster.folder))
    assert f"planner    up, pid {after['pid']}, 2 jobs planned\n" in status
    assert after["pid"] not in (0, before["pid"])
    log = user.cluster.log("ctld").read_text()
    assert log.count("the planner process ended: signal 9") == 1
    for job in (first, waiting, later):
        user.ok("scancel", str(job))
    assert user.ended(first) == "CANCELLED"


def test_the_planner_goes_with_its_controller(user: User) -> None:
    cluster = user.cluster
    before = planner(cluster)["pid"]
    assert is_alive(before)
    os.kill(cluster.pid("ctld"), signal.SIGKILL)
    until(lambda: not is_alive(before), "the planner to go", user.describe)
    plan = cluster.plan()
    assert plan is not None
    cluster.start("ctld", plan)
    until(cluster.answers, "ctld to answer", user.describe)
    again = planner(cluster)["pid"]
    assert is_alive(again)
    assert cluster.stop("ctld"), "it was asked to end and did"
    assert not is_alive(again)
    cluster.start("ctld", plan)
    until(cluster.answers, "ctld to answer", user.describe)

"""The bf_* bounds of the calendar and what it plans around, on one virtual node: what squeue --start shows of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

EXTRA = (
    "KillWait=2\nLicenses=abc:1\n"
    "SchedulerParameters=bf_resolution=300,bf_max_job_user=5,bf_max_job_array_resv=2,bf_busy_nodes\n"
)
PLAN = Plan(nodes=1, cpus=2, memory_mib=4000, gpus="", accounting=False, extra=EXTRA)
WHOLE = ("-n2", "-N1", "-o", "/dev/null")
FOREVER = "#!/bin/sh\nsleep 300\n"
STEP = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node of two CPUs."""
    yield from running(PLAN)


def starts(user: User) -> dict[int, float]:
    """Job -> its planned start; 0: none is shown."""
    lines = user.ok("squeue", "--start", "-h", "-o", "%A|%S").splitlines()
    pairs = (line.strip().split("|") for line in lines)
    return {int(job): 0 if text == "N/A" else time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
            for job, text in pairs}  # fmt: skip


def test_the_first_jobs_of_a_user_have_starts_on_whole_steps(user: User) -> None:
    filling = user.submit(*WHOLE, "-t3", script=FOREVER)
    user.wait_for(filling, "RUNNING")
    first = user.submit(*WHOLE, "-t7", script=FOREVER)
    array = user.submit(*WHOLE, "-t5", "--array=1-9", script=FOREVER)
    behind = user.submit(*WHOLE, "-t5", script=FOREVER)
    licensed = [user.submit("-n1", "-t5", "-L", "abc", "-o", "/dev/null", script=FOREVER) for _ in range(2)]
    over = user.submit(*WHOLE, "-t5", script=FOREVER)
    jobs = (first, array, behind, *licensed)
    until(lambda: all(starts(user).get(job) for job in jobs), "planned starts", user.describe)
    found = starts(user)
    # The first start is the pass's own, which is exact; the others stand behind it as the calendar has it.
    begin = -(-found[first] // STEP) * STEP
    assert all(found[job] % STEP == 0 for job in jobs[1:])
    assert found[array] == begin + 2 * STEP, "seven minutes end within the second step"
    assert found[behind] == found[array] + 2 * STEP, "two members of the array are planned ahead"
    assert [found[job] for job in licensed] == [found[behind] + STEP, found[behind] + 2 * STEP], "one licence"
    assert found[over] == 0, "a sixth job of the user is not looked at"
    for job in (over, *jobs, filling):
        user.ok("scancel", str(job))
    assert user.ended(filling) == "CANCELLED"

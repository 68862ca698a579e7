"""sdiag end to end: what a small cluster did is counted, behind a job that waits too, and a reset starts anew."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

from cli.cluster import Cluster, Plan
from muster import client
from muster.errors import Denied
from tests.e2e.conftest import User, acting_as, running, until

HOLD = "#!/bin/sh\nwhile [ ! -e open ]; do sleep 0.1; done\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node of four CPUs, and accounting."""
    yield from running(Plan(nodes=1, cpus=4, memory_mib=8000, gpus=""))


def numbers(user: User) -> dict[str, int]:
    """Read the labels as an exporter does."""
    return {label: int(value) for label, value in re.findall(r"^\s*([A-Z][^:\n]*): *(\d+)$", user.ok("sdiag"), re.M)}


def test_jobs_passes_and_calls_are_counted_and_reset(user: User) -> None:
    holder = user.submit("-c3", "--time=10", script=HOLD)
    user.wait_for(holder, "RUNNING")
    large = user.submit("-c4", "--time=10")
    small = user.submit("-c1", "--time=1")
    assert user.ended(small) == "COMPLETED"
    cancelled = user.submit("--array=0-4", "--hold")
    user.ok("scancel", str(cancelled))
    (user.folder / "open").touch()
    assert [user.ended(job) for job in (holder, large)] == ["COMPLETED", "COMPLETED"]
    assert user.ended(user.submit(script="#!/bin/sh\nexit 3\n")) == "FAILED"
    found = numbers(user)
    assert found["Jobs submitted"] == 9
    assert (found["Jobs started"], found["Jobs completed"]) == (4, 3)
    assert (found["Jobs canceled"], found["Jobs failed"], found["Jobs pending"]) == (5, 1, 0)
    assert found["Total backfilled jobs (since last slurm start)"] == 1
    statistics = json.loads(user.ok("sdiag", "--json"))["statistics"]
    assert statistics["schedule_cycle_total"] >= 4
    assert statistics["schedule_cycle_sum"] >= statistics["schedule_cycle_max"] > 0
    kinds = {one["message_type"]: one["count"] for one in statistics["rpcs_by_message_type"]}
    assert (kinds["REQUEST_SUBMIT_BATCH_JOB"], kinds["REQUEST_KILL_JOB"]) == (5, 1)
    assert {one["user_id"] for one in statistics["rpcs_by_user"]} == {os.geteuid()}
    until(lambda: numbers(user)["DBD Agent queue size"] == 0, "accounting to have taken everything", user.describe)
    assert user.ok("sdiag", "--reset") == "Reset scheduling statistics\n"
    found = numbers(user)
    assert (found["Jobs submitted"], found["Total backfilled jobs (since last slurm start)"]) == (0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_a_user_may_look_and_not_reset(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_SOCKET", str(user.cluster.socket))
    with acting_as(65534):
        assert client.call("GET", "/v1/statistics")["jobs"]["running"] == 0
        with pytest.raises(Denied):
            client.call("POST", "/v1/statistics/reset")

"""Preemption through the commands and daemons: a job of a higher tier takes the place of a lower one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

PARTITIONS = """KillWait=2
MinJobAge=300
SchedulerParameters=requeue_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE,GANG
PartitionName=low Nodes=ALL Default=YES
PartitionName=high Nodes=ALL PriorityTier=10
PartitionName=cancelled Nodes=ALL PreemptMode=CANCEL GraceTime=30
PartitionName=still Nodes=ALL PreemptMode=SUSPEND
"""
LONG = "#!/bin/sh\necho run $SLURM_RESTART_COUNT\nsleep 300\n"
SHORT = "#!/bin/sh\nsleep 1\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node of 8 CPUs, and partitions whose jobs fare differently."""
    yield from running(Plan(nodes=1, cpus=8, memory_mib=16000, gpus="", extra=PARTITIONS))


def test_a_victim_is_requeued_and_runs_again(user: User, tmp_path: Path) -> None:
    low = user.submit("-n8", "--mem=100", "-o", "low.out", "--open-mode=append", script=LONG)
    user.wait_for(low, "RUNNING")
    high = user.submit("-n8", "--mem=100", "-p", "high", script=SHORT)
    user.wait_for(high, "RUNNING", "COMPLETED")
    assert user.state(low) == "PENDING"
    assert user.ended(high) == "COMPLETED"
    user.wait_for(low, "RUNNING")
    text = until(lambda: out if (out := (tmp_path / "low.out").read_text()).count("run") == 2 else "", "its second run")
    assert "run 1" in text
    assert "DUE TO PREEMPTION ***" in text
    user.ok("scancel", str(low))
    user.ended(low)


def test_a_victim_has_its_grace_and_ends_preempted(user: User, tmp_path: Path) -> None:
    script = "#!/bin/sh\nsrun --overlap sh -c \"trap 'echo told > told; exit 0' TERM; while :; do sleep 0.1; done\"\n"
    low = user.submit("-n8", "--mem=100", "-p", "cancelled", script=script)
    user.wait_for(low, "RUNNING")
    until(lambda: "1" in user.ok("squeue", "-h", "-s", "-j", str(low)), "its step")
    high = user.submit("-n8", "--mem=100", "-p", "high", script=SHORT)
    assert user.ended(low) == "PREEMPTED"
    assert (tmp_path / "told").read_text() == "told\n"
    assert user.ended(high) == "COMPLETED"


def test_a_victim_stands_still_and_goes_on(user: User, tmp_path: Path) -> None:
    script = "#!/bin/sh\nwhile :; do date +%s%N >> ticks; sleep 0.1; done\n"
    low = user.submit("-n8", "--mem=100", "-p", "still", script=script)
    until(lambda: (tmp_path / "ticks").exists(), "its first tick")
    high = user.submit("-n8", "--mem=100", "-p", "high", script="#!/bin/sh\nsleep 4\n")
    user.wait_for(high, "RUNNING")
    assert user.state(low) == "SUSPENDED"
    until(lambda: _is_still(tmp_path / "ticks"), "it to stand still")
    assert user.ended(high) == "COMPLETED"
    user.wait_for(low, "RUNNING")
    before = (tmp_path / "ticks").read_text()
    until(lambda: (tmp_path / "ticks").read_text() != before, "it to go on")
    user.ok("scancel", str(low))
    assert user.ended(low) == "CANCELLED"


def _is_still(ticks: Path) -> bool:
    import time

    before = ticks.read_text()
    time.sleep(0.5)
    return ticks.read_text() == before


def test_an_administrator_suspends_and_resumes(user: User) -> None:
    job = user.submit("-n8", "--mem=100", "-t5", script=LONG)
    user.wait_for(job, "RUNNING")
    assert "SuspendTime=None SecsPreSuspend=0" in user.ok("scontrol", "show", "job", str(job))
    user.ok("scontrol", "suspend", str(job))
    user.ok("scontrol", "suspend", str(job))
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%t").strip() == "S"
    assert "SuspendTime=2" in user.ok("scontrol", "show", "job", str(job))
    sacct = ("sacct", "-n", "-P", "-X", "-j", str(job), "-o", "State,Suspended")
    until(lambda: user.ok(*sacct).strip() >= "SUSPENDED|00:00:02", "a time of suspension")
    other = user.submit("-n1", "--mem=100", script="#!/bin/sh\nsleep 300\n")
    user.wait_for(other, "RUNNING")
    refused = user.run("scontrol", "resume", str(job))
    assert (refused.code, refused.err.splitlines()[0]) == (1, f"Requested nodes are busy for job {job}")
    user.ok("scancel", str(other))
    user.ended(other)
    user.ok("scontrol", "resume", str(job))
    assert "RUNNING|00:00:02" <= user.ok(*sacct).strip() < "RUNNING|00:05:00"
    again = user.run("scontrol", "resume", str(job))
    assert (again.code, again.err.splitlines()[0]) == (1, f"Job is not suspended for job {job}")
    user.ok("scancel", str(job))
    assert user.ended(job) == "CANCELLED"


def test_what_happened_to_a_victim_can_be_read(user: User) -> None:
    low = user.submit("-n8", "--mem=100", script=LONG)
    user.wait_for(low, "RUNNING")
    high = user.submit("-n8", "--mem=100", "-p", "high", script=SHORT)
    assert user.ended(high) == "COMPLETED"
    user.wait_for(low, "RUNNING")
    rows = until(
        lambda: rows if len(rows := user.ok("sacct", "-n", "-P", "-X", "-D", "-j", str(low), "-o", "State").split()) > 1
        else [], "both runs in the history",
    )  # fmt: skip
    assert sorted(rows) == ["PREEMPTED", "RUNNING"]
    assert "Restarts=1" in user.ok("scontrol", "show", "job", str(low))
    assert "PreemptMode=GANG,SUSPEND" in user.ok("scontrol", "show", "partition", "still")
    assert "GraceTime=30" in user.ok("scontrol", "show", "partition", "cancelled")
    user.ok("scancel", str(low))
    user.ended(low)

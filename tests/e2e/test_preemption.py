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

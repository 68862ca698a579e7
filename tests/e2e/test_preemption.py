"""Preemption through the commands and daemons, on eight virtual nodes: a job of a higher tier takes the place of lower
ones."""

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
HELD = "#!/bin/sh\nwhile [ ! -e open ]; do sleep 0.1; done\n"
WARNED = """#!/bin/sh
srun --overlap sh -c 'trap "touch told-$SLURM_PROCID; exit 0" TERM
touch ready-$SLURM_PROCID
while :; do sleep 0.1; done'
"""
ALL = ("-n8", "--mem=100")
"""A CPU of each node."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Eight nodes of a CPU each, and partitions whose jobs fare differently."""
    yield from running(Plan(nodes=8, cpus=1, memory_mib=2000, gpus="", extra=PARTITIONS))


def test_a_victim_is_requeued_and_runs_again_as_was_planned(user: User, tmp_path: Path) -> None:
    low = user.submit(*ALL, "-t1", "-o", "low.out", "--open-mode=append", script=LONG)
    user.wait_for(low, "RUNNING")
    high = user.submit(*ALL, "-t1", "-p", "high", script=HELD)
    user.wait_for(high, "RUNNING")
    assert user.state(low) == "PENDING"
    end = user.ok("squeue", "-h", "-j", str(high), "-o", "%e").strip()
    planned = ("squeue", "-h", "--start", "-j", str(low), "-o", "%S %Y %r")
    until(lambda: user.ok(*planned).split() == [end, "node[1-8]", "Resources"], "its planned start", user.describe)
    (tmp_path / "open").touch()
    assert user.ended(high) == "COMPLETED"
    user.wait_for(low, "RUNNING")
    started, nodes = user.ok("squeue", "-h", "-j", str(low), "-o", "%S %N").split()
    assert (started <= end, nodes) == (True, "node[1-8]")
    text = until(lambda: out if (out := (tmp_path / "low.out").read_text()).count("run") == 2 else "", "its second run")
    assert "run 1" in text
    assert "DUE TO PREEMPTION ***" in text
    user.ok("scancel", str(low))
    user.ended(low)


def test_of_three_jobs_the_one_goes_that_suffices(user: User, tmp_path: Path) -> None:
    """scheduling.md 9.3: by size the smaller ones would go first, and in vain."""
    jobs = {nodes: user.submit(f"-N{nodes}", "--mem=100", "-t5", script=LONG) for nodes in (1, 2, 5)}
    for job in jobs.values():
        user.wait_for(job, "RUNNING")
    nodes = user.ok("squeue", "-h", "-j", str(jobs[5]), "-o", "%N")
    high = user.submit("-N5", "--mem=100", "-t5", "-p", "high", script=HELD)
    user.wait_for(high, "RUNNING")
    assert user.ok("squeue", "-h", "-j", str(high), "-o", "%N") == nodes
    assert {size: user.state(job) for size, job in jobs.items()} == {1: "RUNNING", 2: "RUNNING", 5: "PENDING"}
    (tmp_path / "open").touch()
    assert user.ended(high) == "COMPLETED"
    user.ok("scancel", *map(str, jobs.values()))
    assert [user.ended(job) for job in jobs.values()] == ["CANCELLED"] * 3


def test_a_victim_has_its_grace_and_ends_preempted(user: User, tmp_path: Path) -> None:
    low = user.submit(*ALL, "-p", "cancelled", script=WARNED)
    user.wait_for(low, "RUNNING")
    until(lambda: len(list(tmp_path.glob("ready-*"))) == 8, "its tasks", user.describe)
    high = user.submit(*ALL, "-p", "high", script=SHORT)
    assert user.ended(low) == "PREEMPTED"
    assert len(list(tmp_path.glob("told-*"))) == 8, "the tasks on every node had their warning"
    assert user.ended(high) == "COMPLETED"


def test_a_victim_stands_still_and_goes_on(user: User, tmp_path: Path) -> None:
    script = "#!/bin/sh\nwhile :; do date +%s%N >> ticks; sleep 0.1; done\n"
    low = user.submit(*ALL, "-p", "still", script=script)
    until(lambda: (tmp_path / "ticks").exists(), "its first tick")
    high = user.submit(*ALL, "-p", "high", script="#!/bin/sh\nsleep 4\n")
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
    job = user.submit(*ALL, "-t5", script=LONG)
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
    low = user.submit(*ALL, script=LONG)
    user.wait_for(low, "RUNNING")
    high = user.submit(*ALL, "-p", "high", script=SHORT)
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

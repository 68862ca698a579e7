"""Why does my job wait? On a cluster of eight nodes: squeue's reason, and behind it the numbers of scontrol explain."""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

ME = pwd.getpwuid(os.geteuid()).pw_name
TREE = f"""\
QOS - 'normal':Description='Normal QOS default'
QOS - 'single':MaxJobsPU=1
Cluster - 'muster':Fairshare=1:QOS='normal,single'
Parent - 'root'
Account - 'free':Fairshare=1
Account - 'tight':GrpTRES=cpu=2
Parent - 'free'
User - '{ME}':DefaultAccount='free'
Parent - 'tight'
User - '{ME}':DefaultAccount='free'
"""
EXTRA = """\
KillWait=2
Licenses=matlab:2
AssociationFile={tree}
AccountingStorageEnforce=limits,qos
EnforcePartLimits=NO
PartitionName=main Nodes=ALL Default=YES
PartitionName=short Nodes=ALL MaxTime=5 MaxNodes=2
PartitionName=shut Nodes=ALL State=DOWN
PartitionName=slim Nodes=ALL MaxMemPerNode=100
"""
HOLD = "#!/bin/sh\nwhile [ ! -e {folder}/open ]; do sleep 0.1; done\n"
CPUS, MEMORY = 4, 4000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Eight nodes of four CPUs and a GPU; licences and a limit."""
    tree: Path = tmp_path_factory.mktemp("tree") / "associations.cfg"
    tree.write_text(TREE)
    extra = EXTRA.format(tree=tree)
    yield from running(Plan(nodes=8, cpus=CPUS, memory_mib=MEMORY, gpus="a100:1", accounting=False, extra=extra))


@pytest.fixture
def jobs(user: User) -> Iterator[list[int]]:
    """Jobs to be cancelled after the test, so that the next one finds the nodes free."""
    made: list[int] = []
    yield made
    if made:
        user.run("scancel", *map(str, made))
        until(lambda: not user.ok("squeue", "-h"), "the queue to be empty", user.describe)


def explained(user: User, job: int | str, reason: str) -> dict[str, Any]:
    """Wait until squeue gives this reason and give the explanation, which has the same."""
    until(
        lambda: user.ok("squeue", "-h", "-j", str(job), "-o", "%r").strip() == reason,
        f"job {job} to wait with {reason}",
        user.describe,
    )
    [found] = json.loads(user.ok("scontrol", "--json", "explain", "job", str(job)))["explanations"]
    assert (found["state"], found["reason_text"]) == ("PENDING", reason)
    assert re.search(r"\d", found["sentence"])
    assert found["sentence"] in user.ok("scontrol", "explain", "job", str(job))
    return dict(found)


def test_what_the_job_itself_waits_for(user: User, jobs: list[int]) -> None:
    held = user.submit("--hold")
    jobs.append(held)
    found = explained(user, held, "JobHeldUser")
    assert found["sentence"].startswith("its priority is 0: it was held by its owner")
    later = user.submit("--begin=now+1hour")
    jobs.append(later)
    sentence = explained(user, later, "BeginTime")["sentence"]
    assert re.fullmatch(r"it may begin in 3[56]\d\d seconds \(BeginTime\)", sentence)
    dependent = user.submit(f"--dependency=afterok:{held}")
    jobs.append(dependent)
    assert explained(user, dependent, "Dependency")["sentence"] == (
        f"1 dependency to be met: afterok:{held}(unfulfilled): job {held} is PENDING"
    )
    failed = user.submit("--mem=10", script="#!/bin/sh\nexit 2\n")
    never = user.submit(f"--dependency=afterok:{failed}")
    jobs.append(never)
    assert explained(user, never, "DependencyNeverSatisfied")["sentence"] == (
        f"1 of 1 dependencies can never be met: afterok:{failed}(failed): job {failed} is FAILED with exit code 2:0"
    )
    array = user.submit("--array=0-5%1", "--time=5", script=HOLD.format(folder=user.folder))
    jobs.append(array)
    user.wait_for(f"{array}_0", "RUNNING")
    sentence = explained(user, f"{array}_3", "JobArrayTaskLimit")["sentence"]
    assert sentence == "1 of at most 1 members of its array run (ArrayTaskThrottle)"


@pytest.mark.parametrize(
    ("options", "reason", "sentence"),
    [
        (("-p", "short", "-t9"), "PartitionTimeLimit", "9 minutes asked for, MaxTime of partition short is 5 minutes"),
        (("-p", "short", "-N3"), "PartitionNodeLimit", "3 nodes are needed and partition short gives at most 2"),
        (("-p", "shut"), "PartitionDown", "partition shut is DOWN: 0 jobs start there"),
        (
            ("-p", "slim", "--mem=200"),
            "MaxMemPerLimit",
            "200 MiB a node are asked for, partition slim gives at most 100",
        ),
        (
            ("-n33", "--mem-per-cpu=1"),
            "PartitionConfig",
            "33 CPUs are asked for, the 8 nodes that could serve have 32",
        ),
        (
            ("-n29", "--mem-per-cpu=1", "-x", "node8"),
            "BadConstraints",
            "29 CPUs are asked for, the 7 nodes that could serve have 28",
        ),
    ],
)
def test_what_no_node_that_comes_free_changes(
    user: User, jobs: list[int], options: tuple[str, ...], reason: str, sentence: str
) -> None:
    job = user.submit(*options)
    jobs.append(job)
    assert explained(user, job, reason)["sentence"] == sentence


def test_limits_and_licences_name_what_is_used(user: User, jobs: list[int]) -> None:
    hold = HOLD.format(folder=user.folder)
    jobs.append(user.submit("-A", "tight", "-c2", "--mem=10", "-t5", "-L", "matlab:1", script=hold))
    user.wait_for(jobs[0], "RUNNING")
    jobs.append(user.submit("-A", "tight", "-c1", "--mem=10", "-t5"))
    found = explained(user, jobs[1], "AssocGrpCpuLimit")
    assert found["sentence"] == "GrpTRES cpu of account tight is 2: 2 in use, 1 more asked for"
    [limit] = found["partitions"][0]["limits"]
    assert (limit["most"], limit["used"], limit["asked"], limit["in_the_way"]) == (2, 2, 1, True)
    jobs.append(user.submit("--mem=10", "-t5", "-L", "matlab:2"))
    assert explained(user, jobs[2], "Licenses")["sentence"] == "2 of matlab asked for, 1 of 2 in use"
    jobs += [user.submit("--qos=single", "--mem=10", "-t5", script=hold) for _ in range(2)]
    assert explained(user, jobs[4], "QOSMaxJobsPerUserLimit")["sentence"] == (
        "MaxJobsPerUser of QOS single is 1: 1 in use, 1 more asked for"
    )


def test_a_full_cluster_says_who_holds_it_until_when_and_the_plan_is_kept(user: User, jobs: list[int]) -> None:
    hold = HOLD.format(folder=user.folder)
    jobs += [user.submit("-c3", "--mem=3000", "-t5", script=hold) for _ in range(7)]
    jobs.append(user.submit("-c1", "--mem=1000", "-t9", "--gres=gpu:1", script=hold))
    for job in jobs:
        user.wait_for(job, "RUNNING")
    wide = user.submit("-N8", "-c2", "--mem=500", "-t5", script=hold)
    behind = user.submit("-N8", "-c4", "--mem=500", "-t5", script=hold)
    late = user.submit("-N8", "-c4", "--mem=500", "-t5", "--deadline=now+7minutes", script=hold)
    jobs += [wide, behind, late]
    found = explained(user, wide, "Resources")
    [view] = found["partitions"]
    counts = {one["name"]: one["nodes"] for one in view["filters"]}
    assert (counts["cluster"], counts["partition"], counts["state"], counts["hardware"]) == (8, 8, 8, 8)
    assert counts["cpus"] < 8
    assert (view["nodes_needed"], view["place"], view["waiting"]) == (8, 1, 3)
    assert "8 nodes with 2 CPUs, 500 MiB each are needed: of 8 that could serve " in found["sentence"]
    start = user.ok("squeue", "-h", "--start", "-j", str(wide), "-o", "%S").strip()
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(found["start_at"])) == start
    ends = {one["id"]: one["ends_at"] for one in found["blockers"]}
    shown = {
        job: user.ok("squeue", "-h", "-j", str(job), "-o", "%e").strip() for job in ends if job not in (wide, behind)
    }
    assert shown
    assert {job: time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end)) for job, end in ends.items()} == shown
    assert max(ends.values()) <= found["start_at"]
    second = explained(user, behind, "Priority")
    ahead = f"1 of 3 jobs stand before it in partition main, the last of them is job {wide};"
    assert second["sentence"].startswith(ahead)
    assert (wide, found["start_at"]) in [(one["id"], one["starts_at"]) for one in second["blockers"]]
    text = user.ok("scontrol", "explain", "job", str(behind))
    assert f"  job {wide} of {ME}: waits, and is promised node[1-8] from {start} on\n" in text
    sentence = explained(user, late, "DeadLine")["sentence"]
    assert re.fullmatch(r"to end by its deadline it has to start within 1[012]\d seconds", sentence)
    user.ok("scancel", str(late))
    (user.folder / "open").touch()
    user.wait_for(wide, "RUNNING", "COMPLETED")
    assert [user.ended(job) for job in (wide, behind)] == ["COMPLETED", "COMPLETED"]


def test_a_drained_node_and_a_reservation_are_counted(user: User, jobs: list[int]) -> None:
    user.ok("scontrol", "update", "nodename=node8", "state=drain", "reason=bad fan")
    try:
        job = user.submit("-N8", "--mem=10", "-t5")
        jobs.append(job)
        found = explained(user, job, "ReqNodeNotAvail, UnavailableNodes:node8")
        assert {one["name"]: one["nodes"] for one in found["partitions"][0]["filters"]}["state"] == 7
        assert "7 are left that answer and are not down or drained; not so node8 drained (bad fan)" in found["sentence"]
    finally:
        user.ok("scontrol", "update", "nodename=node8", "state=resume")
    user.ended(job)
    when = ("StartTime=now+120", "Duration=60", "Flags=MAINT")
    made = user.ok("scontrol", "create", "res", *when, "Nodes=ALL", "Users=root")
    name = made.removeprefix("Reservation created: ").strip()
    mine = user.submit("--mem=10", "-t10", f"--reservation={name}")
    try:
        sentence = explained(user, mine, "Reservation")["sentence"]
        assert re.fullmatch(rf"reservation {name} begins in 1[012]?\d seconds", sentence)
        job = user.submit("--mem=10", "-t30")
        jobs.append(job)
        found = explained(user, job, "ReqNodeNotAvail, Reserved for maintenance")
        filters = {one["name"]: one["nodes"] for one in found["partitions"][0]["filters"]}
        assert (filters["hardware"], filters["reservation"]) == (8, 0)
        assert f"8 nodes of partition main are in reservations before it could end: {name}" in user.ok(
            "scontrol", "explain", "job", str(job)
        )
    finally:
        user.run("scancel", str(job), str(mine))
        user.ok("scontrol", "delete", f"ReservationName={name}")


def test_a_running_and_an_unknown_job(user: User, jobs: list[int]) -> None:
    job = user.submit("--mem=10", "-t5", script=HOLD.format(folder=user.folder))
    jobs.append(job)
    user.wait_for(job, "RUNNING")
    text = user.ok("scontrol", "explain", "job", str(job))
    assert re.search(r"it does not wait: it is RUNNING on node\d in partition main, started by Main\n$", text)
    done = user.run("scontrol", "explain", "job", "999999")
    assert (done.code, done.err) == (1, "slurm_load_jobs error: Invalid job id specified\n")

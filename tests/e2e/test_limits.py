"""Limits of associations and QOS as people meet them: refused, waiting with the reason, and started when room comes."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

ME = pwd.getpwuid(os.getuid()).pw_name
TREE = f"""
QOS - 'normal':Description='Normal QOS default'
QOS - 'single':MaxJobsPU=1
QOS - 'strict':GrpTRES=cpu=4:Flags=DenyOnLimit
Cluster - 'muster':Fairshare=1:QOS='normal,single,strict'
Parent - 'root'
Account - 'physics':Description='Physics':Organization='lab':GrpTRES=cpu=6
Account - 'chem':MaxSubmitJobs=2
Account - 'wall':MaxWall=7
Parent - 'physics'
User - '{ME}':DefaultAccount='physics'
Parent - 'chem'
User - '{ME}':DefaultAccount='physics'
Parent - 'wall'
User - '{ME}':DefaultAccount='physics'
"""
SLEEP = "#!/bin/sh\nsleep 300\n"
QUIET = ("-o", "/dev/null", "--mem=1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of eight CPUs, and limits that hold."""
    tree: Path = tmp_path_factory.mktemp("tree") / "associations.cfg"
    tree.write_text(TREE)
    extra = f"KillWait=2\nAssociationFile={tree}\nAccountingStorageEnforce=limits,qos\n"
    yield from running(Plan(nodes=2, cpus=8, memory_mib=16000, gpus="", extra=extra))


def reason(user: User, job: int, wanted: str) -> None:
    """Wait until squeue gives this reason."""
    until(
        lambda: user.ok("squeue", "-h", "-j", str(job), "-o", "%T %r").strip() == f"PENDING {wanted}",
        f"job {job} to wait with {wanted}",
        user.describe,
    )


def test_a_job_over_the_accounts_share_waits_and_starts_when_room_comes(user: User) -> None:
    first = user.submit(*QUIET, "-c4", script=SLEEP)
    user.wait_for(first, "RUNNING")
    second = user.submit(*QUIET, "-c4", script=SLEEP)
    reason(user, second, "AssocGrpCpuLimit")
    # There is room on the nodes, and who fits under the limit is not held up.
    third = user.submit(*QUIET, "-c2", script=SLEEP)
    user.wait_for(third, "RUNNING")
    user.ok("scancel", str(first))
    user.wait_for(second, "RUNNING")
    user.ok("scancel", str(second), str(third))
    for job in (first, second, third):
        user.ended(job)


def test_a_user_may_run_so_many_jobs_of_a_qos(user: User) -> None:
    first = user.submit(*QUIET, "--qos=single", script=SLEEP)
    user.wait_for(first, "RUNNING")
    second = user.submit(*QUIET, "--qos=single", script=SLEEP)
    reason(user, second, "QOSMaxJobsPerUserLimit")
    user.ok("scancel", str(first))
    user.wait_for(second, "RUNNING")
    user.ok("scancel", str(second))
    user.ended(second)


def test_members_of_an_array_start_as_far_as_the_limit_goes(user: User) -> None:
    array = user.submit(*QUIET, "-c2", "--array=0-4", script=SLEEP)
    until(
        lambda: len(user.ok("squeue", "-h", "-j", str(array), "-t", "R", "-o", "%i").split()) == 3,
        "three members to run",
        user.describe,
    )
    until(
        lambda: user.ok("squeue", "-h", "-j", str(array), "-t", "PD", "-o", "%r").strip() == "AssocGrpCpuLimit",
        "the rest to wait for the limit",
        user.describe,
    )
    user.ok("scancel", str(array))
    until(lambda: not user.ok("squeue", "-h", "-j", str(array), "-t", "R,CG"), "all to end", user.describe)


def test_what_exceeds_a_denying_qos_is_refused(user: User) -> None:
    done = user.run("sbatch", *QUIET, "--qos=strict", "-c5", "--wrap=true")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "sbatch: error: QOSGrpCpuLimit",
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
        "and/or time limits)",
        "sbatch: GrpTRES cpu of QOS strict is 4: 5 is asked for",
    ]
    assert user.ended(user.submit(*QUIET, "--qos=strict", "-c4")) == "COMPLETED"


def test_more_jobs_than_may_be_submitted_are_refused(user: User) -> None:
    held = [user.submit(*QUIET, "-A", "chem", "-H") for _ in range(2)]
    done = user.run("sbatch", *QUIET, "-A", "chem", "--wrap=true")
    assert done.code == 1
    assert done.err.startswith("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job")
    user.ok("scancel", str(held[0]))
    held.append(user.submit(*QUIET, "-A", "chem", "-H"))
    user.ok("scancel", *(str(job) for job in held[1:]))


def test_the_longest_wall_time_is_the_limit_of_who_asks_for_none(user: User) -> None:
    job = user.submit(*QUIET, "-A", "wall", script=SLEEP)
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%l").strip() == "7:00"
    user.ok("scancel", str(job))
    over = user.submit(*QUIET, "-A", "wall", "-t", "8")
    reason(user, over, "AssocMaxWallDurationPerJobLimit")
    user.ok("scancel", str(over))

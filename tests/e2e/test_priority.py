"""Priorities end to end: weights and an association file, usage that outlives a kill -9, and sprio."""

from __future__ import annotations

import os
import pwd
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

TREE = """\
QOS - 'normal':Description='Normal QOS default'
QOS - 'high':Priority=10
QOS - 'hasty':MaxQueueWait=0:02
Cluster - 'muster':Fairshare=1:QOS='normal,high,hasty'
Parent - 'root'
Account - 'greedy':Fairshare=1
Account - 'modest':Fairshare=1
Parent - 'greedy'
User - '{user}':DefaultAccount='greedy'
Parent - 'modest'
User - '{user}':DefaultAccount='greedy'
"""
WEIGHTS = """\
AssociationFile={tree}
AccountingStorageEnforce=associations,qos
PriorityWeightFairshare=10000
PriorityWeightAge=1000
PriorityWeightQOS=500
PriorityWeightTRES=cpu=100
PriorityDecayHalfLife=1-0
PriorityFlags=ACCRUE_ALWAYS
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node, and two accounts with equal shares."""
    with tempfile.TemporaryDirectory(prefix="me-tree") as folder:
        tree = Path(folder) / "tree.cfg"
        tree.write_text(TREE.format(user=pwd.getpwuid(os.geteuid()).pw_name))
        yield from running(
            Plan(nodes=1, cpus=4, memory_mib=8000, gpus="", accounting=False, extra=WEIGHTS.format(tree=tree))
        )


def restart(user: User) -> None:
    """Kill -9 the controller and start it again: priorities are computed anew then."""
    cluster = user.cluster
    plan, pid = cluster.plan(), cluster.pid("ctld")
    assert plan is not None
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not cluster.pid("ctld"), "ctld to be gone", user.describe)
    cluster.start("ctld", plan)
    until(cluster.answers, "ctld to be back", user.describe)


def shown(user: User, job: int) -> int:
    return int(user.ok("squeue", "-h", "-j", str(job), "-o", "%Q"))


def test_the_account_that_used_less_goes_first_and_the_factors_add_up(user: User) -> None:
    whole = ("-N1", "--exclusive")
    holder = user.submit(*whole, script="#!/bin/sh\nwhile [ ! -e open ]; do sleep 0.1; done\n")
    user.wait_for(holder, "RUNNING")
    order = "#!/bin/sh\necho {} >> order\n"
    greedy = user.submit(*whole, "-A", "greedy", script=order.format("greedy"))
    modest = user.submit(*whole, "-A", "modest", "--nice=3", script=order.format("modest"))
    # Nothing had been used when priorities were last computed.
    assert shown(user, greedy) > shown(user, modest)
    until(lambda: user.ok("squeue", "-h", "-j", str(holder), "-o", "%M").strip() != "0:00", "a second to be used")
    restart(user)
    assert shown(user, greedy) < shown(user, modest) - 4000
    for job in (greedy, modest):
        row = user.ok("sprio", "-h", "-j", str(job), "-o", "%Y %A %F %Q %T %N %o").split()
        priority, age, share, qos, tres, nice, account = row
        assert int(priority) == shown(user, job)
        cpus = int(tres.removeprefix("cpu="))
        assert abs(int(age) + int(share) + int(qos) + cpus - int(nice) - int(priority)) <= 2
        assert (int(share), account) == ((10000, "modest") if job == modest else (5000, "greedy"))
        details = user.ok("scontrol", "show", "job", str(job))
        assert f"Priority={priority} Nice={nice} Account={account} QOS=normal" in details
    assert user.ok("sprio", "-w", "-h").split() == ["Weights", "1", "1000", "10000", "500", "cpu=100"]
    (user.folder / "open").touch()
    assert [user.ended(job) for job in (modest, greedy)] == ["COMPLETED", "COMPLETED"]
    assert (user.folder / "order").read_text().split() == ["modest", "greedy"]


def test_a_priority_by_hand_stands_until_it_is_computed_again(user: User) -> None:
    job = user.submit("--begin=now+1hour", "--qos=high")
    before = shown(user, job)
    assert before >= 500
    user.ok("scontrol", "update", f"jobid={job}", "priority=77")
    assert shown(user, job) == 77
    assert user.ok("sprio", "-h", "-j", str(job), "-o", "%Y %F %Q") == "77 0 0\n"
    user.ok("scontrol", "update", f"jobid={job}", "priority=INFINITE", "sitefactor=1000")
    assert shown(user, job) == before + 1000
    user.ok("scontrol", "update", f"jobid={job}", "nice=400")
    assert shown(user, job) == before + 600
    user.ok("scontrol", "hold", str(job))
    assert (shown(user, job), user.ok("sprio", "-h", "-j", str(job))) == (0, "")
    user.ok("scontrol", "release", str(job))
    assert shown(user, job) == before + 600
    user.ok("scancel", str(job))


def test_unknown_accounts_and_qos_are_refused(user: User) -> None:
    done = user.run("sbatch", "-A", "none", "--wrap", "true")
    assert done.code == 1
    assert "Invalid account or account/partition combination specified" in done.err
    assert "may use these accounts: greedy, modest" in done.err
    done = user.run("sbatch", "--qos=best", "--wrap", "true")
    assert done.code == 1
    assert "Invalid qos specification" in done.err
    job = user.submit("--begin=now+1hour", "-A", "MODEST")
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%a %q") == "modest normal\n"
    user.ok("scancel", str(job))


def test_a_job_past_its_longest_wait_goes_first_whatever_its_priority(user: User) -> None:
    whole = ("-N1", "--exclusive", "--time=10")
    holder = user.submit(*whole, script="#!/bin/sh\nwhile [ ! -e open ]; do sleep 0.1; done\n")
    user.wait_for(holder, "RUNNING")
    order = "#!/bin/sh\necho {} >> order\n"
    first = user.submit(*whole, "--qos=high", script=order.format("first"))
    hasty = user.submit(*whole, "--qos=hasty", "--nice=9000", script=order.format("hasty"))

    def reasons() -> list[str]:
        return [user.ok("squeue", "-h", "-j", str(job), "-o", "%r").strip() for job in (hasty, first)]

    until(lambda: reasons() == ["Resources", "Priority"], "the hasty job to stand first", user.describe)
    assert shown(user, hasty) < shown(user, first)
    (user.folder / "open").touch()
    assert [user.ended(job) for job in (hasty, first)] == ["COMPLETED", "COMPLETED"]
    assert (user.folder / "order").read_text().split() == ["hasty", "first"]

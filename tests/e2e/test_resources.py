"""Devices by index, shards, sockets and licences through the real commands and daemons, on eight virtual nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

PLAN = Plan(nodes=8, cpus=8, memory_mib=8000, gpus="h100:4", accounting=False, extra="KillWait=2\nLicenses=matlab:2\n")
GRES = """Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0-3
Name=gpu Type=h100 File=/dev/nvidia[2-3] Cores=4-7
Name=nic File=/dev/nic[0-1]
"""


class Equipped(Cluster):
    """A cluster whose nodes have two sockets with GPUs of two types, shards of them, and network cards."""

    def make(self, plan: Plan) -> Plan:
        """Write the configuration, with a gres.conf beside it."""
        made = super().make(plan)
        text = self.config.read_text()
        text = text.replace("GresTypes=gpu\n", "GresTypes=gpu,shard,nic\n")
        text = text.replace("Gres=gpu:h100:4", "Gres=gpu:a100:2,gpu:h100:2,shard:16,nic:2")
        text = text.replace("CPUs=8 ", "CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 ")
        self.config.write_text(text)
        (self.config.parent / "gres.conf").write_text(GRES)
        return made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from running(PLAN, Equipped)


def lines_of(user: User, job: int) -> str:
    return user.ok("scontrol", "-d", "show", "job", str(job))


SLEEP = (
    "#!/bin/sh\necho gpus=$CUDA_VISIBLE_DEVICES shards=$SLURM_SHARDS_ON_NODE licences=$SLURM_JOB_LICENSES\nsleep 60\n"
)


EACH = "#!/bin/sh\nsrun sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'\nsleep 60\n"


def said(user: User, job: int) -> str:
    output = Path(user.folder) / f"slurm-{job}.out"
    return output.read_text().strip() if output.exists() else ""


def test_devices_by_type_and_index_and_shards_and_cards(user: User) -> None:
    first = user.submit("-w", "node1", "--mem=10", "--gres=gpu:h100:1,nic:1", script=SLEEP)
    parts = user.submit("-w", "node1", "--mem=10", "--gres=shard:3", script=SLEEP)
    for job in (first, parts):
        user.wait_for(job, "RUNNING")
    assert "GRES=gpu:h100:1(IDX:2),nic:1(IDX:0)" in lines_of(user, first)
    assert "CPU_IDs=4 " in lines_of(user, first)
    assert "GRES=shard:a100:3(IDX:0)" in lines_of(user, parts)
    assert "TresPerNode=gres/gpu:h100:1,gres/nic:1" in lines_of(user, first)
    node = user.ok("scontrol", "-d", "show", "node", "node1")
    assert "Gres=gpu:a100:2,gpu:h100:2,shard:a100:8,shard:h100:8,nic:2\n" in node
    assert (
        "GresUsed=gpu:a100:0(IDX:N/A),gpu:h100:1(IDX:2),shard:a100:3(3/4,0/4),shard:h100:0(0/4,0/4),nic:1(IDX:0)"
        in node
    )
    whole = user.submit("-w", "node1", "--gres=gpu:a100:2", "-t1")
    user.wait_for(whole, "PENDING")
    wide = user.submit("-N8", "--mem=10", "--gres=gpu:h100:1,nic:1", script=EACH)
    user.wait_for(wide, "RUNNING")
    shares = re.findall(r"Nodes=(\S+) CPU_IDs=\S+ Mem=10 GRES=(\S+)", lines_of(user, wide))
    assert shares == [
        ("node1", "gpu:h100:1(IDX:3),nic:1(IDX:1)"),
        ("node[2-8]", "gpu:h100:1(IDX:2),nic:1(IDX:0)"),
    ], "on the node that is in use, what is left there"
    said_by_all = ["node1 3", *(f"node{number} 2" for number in range(2, 9))]
    until(lambda: sorted(said(user, wide).splitlines()) == said_by_all, "its tasks", user.describe)
    user.ok("scancel", str(first), str(parts), str(wide))
    assert user.ended(whole) == "COMPLETED"
    assert said(user, first).startswith("gpus=2 shards= ")
    assert said(user, parts).startswith("gpus=0 shards=3 ")


def test_licences_are_counted_shown_and_waited_for(user: User) -> None:
    refused = user.run("sbatch", "-L", "matlab:3", "--wrap", "true")
    assert "Invalid license specification" in refused.err
    holder = user.submit("-L", "matlab:2", script=SLEEP)
    user.wait_for(holder, "RUNNING")
    waiting = user.submit("-L", "matlab")
    user.wait_for(waiting, "PENDING")
    assert "Reason=Licenses" in user.ok("scontrol", "show", "job", str(waiting))
    assert "Licenses=matlab:2 LicensesAlloc=matlab:2" in lines_of(user, holder)
    shown = user.ok("scontrol", "show", "licenses")
    assert shown == "LicenseName=matlab\n    Total=2 Used=2 Free=0 Reserved=0 Remote=no\n"
    user.ok("scancel", str(holder))
    assert user.ended(waiting) == "COMPLETED"
    assert "licences=matlab:2\n" in said(user, holder)


def test_sockets_and_threads_that_no_node_has_are_refused(user: User) -> None:
    refused = user.run("sbatch", "--threads-per-core=2", "--wrap", "true")
    assert "Requested node configuration is not available" in refused.err
    refused = user.run("srun", "--gres=nic:3", "true")
    assert "Requested node configuration is not available" in refused.err
    assert (
        user.ok("srun", "--tres-per-task=cpu=2,gres/gpu=1", "-n1", "sh", "-c", "echo $SLURM_CPUS_PER_TASK").strip()
        == "2"
    )
    job = user.submit("-B2:4", "--ntasks-per-socket=1", "-n2")
    assert user.ended(job) == "COMPLETED"
    shown = user.ok("scontrol", "show", "job", str(job))
    assert "ReqB:S:C:T=0:2:4:*" in shown
    assert "Socks/Node=2 NtasksPerN:B:S:C=0:0:1:* CoreSpec=*" in shown

"""Where the nodes of a job lie, through the real commands and daemons: eight virtual nodes in two racks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import User, running, until

EXTRA = """KillWait=2
SchedulerParameters=max_switch_wait=4
PartitionName=main Default=YES Nodes=ALL MaxTime=UNLIMITED State=UP
PartitionName=tight Nodes=ALL MaxTime=UNLIMITED State=UP DefaultTopology=required:rack
"""
RACKS = """- topology: net
  cluster_default: true
  levels: [spine, rack]
  tree:
    switches:
      - switch: r1
        nodes: node[1-4]
      - switch: r2
        nodes: node[5-8]
      - switch: top
        children: r[1-2]
"""
ALL = [f"node{number}" for number in range(1, 9)]
SLEEP = "#!/bin/sh\nsleep 300\n"
QUIET = ("-o", "/dev/null", "--mem=1")


class Racked(Cluster):
    """A cluster with a topology.yaml."""

    def make(self, plan: Plan) -> Plan:
        """Write the configuration, and the topology beside it."""
        made = super().make(plan)
        (self.config.parent / "topology.yaml").write_text(RACKS)
        return made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Racks r1 (node1 to node4) and r2 (node5 to node8)."""
    yield from running(Plan(nodes=8, cpus=4, memory_mib=4000, gpus="", accounting=False, extra=EXTRA), Racked)


@pytest.fixture
def jobs(user: User) -> Iterator[list[int]]:
    """Jobs that a test leaves running."""
    left: list[int] = []
    yield left
    if left:
        user.ok("scancel", *map(str, left))
    for job in left:
        user.ended(job)


def nodes_of(user: User, job: int) -> str:
    """Wait until a job runs, and give its nodes."""
    user.wait_for(job, "RUNNING")
    return user.ok("squeue", "-h", "-j", str(job), "-o", "%N").strip()


def holding(user: User, jobs: list[int], *nodes: str) -> None:
    """Have these nodes in use."""
    for node in nodes:
        jobs.append(user.submit(*QUIET, "--exclusive", "-w", node, script=SLEEP))
    for job in jobs:
        user.wait_for(job, "RUNNING")


def waits_for(user: User, job: int, reason: str) -> None:
    """Wait until squeue gives this reason."""
    until(
        lambda: user.ok("squeue", "-h", "-j", str(job), "-o", "%T %r").strip() == f"PENDING {reason}",
        f"job {job} to wait with {reason}",
        user.describe,
    )


def shown(user: User, job: int) -> dict[str, str]:
    words = user.ok("scontrol", "-o", "show", "job", str(job)).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def text_of(user: User, job: int) -> list[str]:
    """Wait for the end of a job and give the lines that it wrote."""
    assert user.ended(job) == "COMPLETED"
    return (Path(user.folder) / f"slurm-{job}.out").read_text().splitlines()


def test_a_required_rack_is_waited_for_and_a_preferred_one_is_not(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node4", "node8")
    asked = (*QUIET, "--exclusive", "-N4")
    required = user.submit(*asked, "--topology=required:rack", script=SLEEP)
    waits_for(user, required, "TopologyLevel")
    assert shown(user, required)["Topology"] == "required:rack"
    told = user.ok("scontrol", "explain", "job", str(required))
    assert "at most 3 of these 6 lie in one rack, 4 are needed there" in told
    preferred = user.submit(*asked, "--topology=preferred:rack", "--nice=-1", script=SLEEP)
    jobs.append(preferred)
    assert nodes_of(user, preferred) == "node[1-3,5]"
    jobs.append(required)
    user.ok("scancel", str(jobs[1]), str(preferred))  # node8, and what the other had.
    assert nodes_of(user, required) == "node[5-8]"


def test_a_partition_may_require_a_rack(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node2", "node7")
    job = user.submit(*QUIET, "--exclusive", "-N4", "-ptight", script=SLEEP)
    jobs.append(job)
    waits_for(user, job, "TopologyLevel")
    user.ok("scancel", str(jobs[0]))
    assert nodes_of(user, job) == "node[1-4]"
    free = user.submit(*QUIET, "--exclusive", "-N3", "-ptight", "--topology=unconstrained", script=SLEEP)
    jobs.append(free)
    assert nodes_of(user, free) == "node[5-6,8]"


def test_few_switches_are_waited_for_as_long_as_the_administrator_says(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node1", "node5")
    job = user.submit(*QUIET, "--exclusive", "-N4", "--switches=1@10:00", script=SLEEP)
    jobs.append(job)
    waits_for(user, job, "Resources")
    assert shown(user, job)["Switches"] == "1@00:00:04"
    columns = user.ok("squeue", "-h", "-j", str(job), "-O", "reqswitch:.2,wait4switch:.3")
    assert columns.split() == ["1", "4"]
    assert nodes_of(user, job) == "node[2-4,6]"
    assert int(user.ok("squeue", "-h", "-j", str(job), "-O", "pendingtime:.9")) >= 4


def test_one_switch_that_comes_free_in_time_is_taken(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node1", "node5")
    job = user.submit(*QUIET, "--exclusive", "-N4", "--switches=1", script=SLEEP)
    jobs.append(job)
    waits_for(user, job, "Resources")
    user.ok("scancel", str(jobs[1]))
    assert nodes_of(user, job) == "node[5-8]"


def test_a_node_is_told_its_place_its_level_and_its_segment(user: User) -> None:
    script = "#!/bin/sh\nsrun sh -c 'echo $SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN $SLURM_TOPOLOGY_LEVEL "
    script += "$SLURM_JOB_SEGMENT_SIZE $SLURM_SEGMENT_ID'\n"
    job = user.submit(
        "--mem=1", "--exclusive", "-N4", "-w", "node[2-3,6-7]", "--segment=2:required:rack", script=script
    )
    pattern = "switch.switch.node spine 2"
    assert sorted(text_of(user, job)) == [
        f"top.r1.node2 {pattern} 0",
        f"top.r1.node3 {pattern} 0",
        f"top.r2.node6 {pattern} 1",
        f"top.r2.node7 {pattern} 1",
    ]
    assert shown(user, job)["SegmentSize"] == "2"
    assert shown(user, job)["SegmentLevel"] == "rack"


def test_a_job_that_waits_for_a_rack_can_be_let_go(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node1", "node5")
    job = user.submit(*QUIET, "--exclusive", "-N4", "--topology=required:rack", script=SLEEP)
    jobs.append(job)
    waits_for(user, job, "TopologyLevel")
    user.ok("scontrol", "update", f"jobid={job}", "topology=preferred:rack")
    assert nodes_of(user, job) == "node[2-4,6]"


def test_segments_go_where_each_has_room(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node1", "node5")
    job = user.submit(*QUIET, "--exclusive", "-N6", "--segment=3", script=SLEEP)
    jobs.append(job)
    assert nodes_of(user, job) == "node[2-4,6-8]"


def test_contiguous_nodes_and_few_or_many_of_a_range(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node2", "node6")
    for options, nodes in (
        (("-N2", "--contiguous"), "node[7-8]"),
        (("-N1-3", "--use-min-nodes"), "node1"),
        (("-N1-3",), "node[3-5]"),
    ):
        job = user.submit(*QUIET, "--exclusive", *options, script=SLEEP)
        jobs.append(job)
        assert nodes_of(user, job) == nodes


def test_tasks_are_packed_or_spread(user: User) -> None:
    def count(*options: str) -> list[str]:
        script = "#!/bin/sh\necho $SLURM_JOB_NUM_NODES $SLURM_NTASKS\n"
        return text_of(user, user.submit("--mem=1", *options, script=script))[0].split()

    assert count("-n3", "--place=pack") == ["1", "3"]
    assert count("-n3", "--place=spread") == ["3", "3"]
    assert count("-n9", "--place=spread") == ["8", "9"]  # Different nodes as far as there are any.
    assert count("-n4", "--place=STRICT_PACK") == ["1", "4"]
    assert count("-n3", "--place=strict-spread") == ["3", "3"]
    assert count("--bundle=cpus=3:2") == ["2", "2"]
    assert count("--bundle=cpus=2:2", "--place=strict-pack") == ["1", "2"]


def test_liked_features_are_tried_first(user: User, jobs: list[int]) -> None:
    user.ok("scontrol", "update", "nodename=node[6-7]", "features=fast")
    for nodes in ("node[6-7]", "node[5,8]"):  # Two nodes are left in that rack: it is the tightest.
        job = user.submit(*QUIET, "--exclusive", "-N2", "--prefer=fast", script=SLEEP)
        jobs.append(job)
        assert nodes_of(user, job) == nodes
    assert shown(user, jobs[0])["Prefer"] == "fast"


def test_srun_takes_the_options_for_an_allocation_of_its_own(user: User, jobs: list[int]) -> None:
    holding(user, jobs, "node4", "node7")
    done = user.ok("srun", "--exclusive", "-N3", "--mem=1", "--switches=1", "sh", "-c", "echo $SLURM_TOPOLOGY_LEVEL")
    assert done.split() == ["rack"] * 3
    bundles = user.ok("srun", "--bundle=cpus=3:2", "--mem=1", "sh", "-c", "echo $SLURM_NTASKS $SLURM_CPUS_PER_TASK")
    assert bundles.splitlines() == ["2 3"] * 2
    inside = user.submit("--mem=1", script="#!/bin/sh\nsrun --switches=1 true || echo refused\n")
    assert text_of(user, inside)[-1] == "refused"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("-N2", "--topology=required:shelf"),
            "topology net has no level 'shelf'; its levels are 0 to 1 (0 the finest) or rack, spine",
        ),
        (
            ("-N5", "--topology=required:rack"),
            "--topology=required:rack cannot have 5 nodes: the largest domain of that level has 4 of partition main",
        ),
        (
            ("-N8", "--segment=3"),
            "--segment=3 does not fit the job size (8): node count must be evenly divisible by segment size",
        ),
    ],
)
def test_what_the_topology_cannot_give_is_refused_at_once(user: User, options: tuple[str, ...], line: str) -> None:
    done = user.run("sbatch", *QUIET, *options, "--wrap", "true")
    assert (done.code, done.out) == (1, "")
    assert "Requested topology configuration is not available" in done.err
    assert line in done.err

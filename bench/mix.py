"""The mix: a cluster with running jobs and a queue, made by a generator with a fixed seed.

Few shapes make up many jobs, as in real queues: some 120 to 200 different (node set, per-node request), popular ones
far more often than rare ones. Two thirds of the nodes have CPUs only, the others eight GPUs of one of two types; leaves
of 32 nodes stand under one top switch. Jobs take licences and count against the limits of their accounts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from ctld.core import ranges
from ctld.core.cluster import Node, PartitionSpec, Settings, SwitchSpec, TopologySpec
from ctld.core.model import GpuRequest, Job, NodeShare, Request
from ctld.core.state import State
from ctld.sched.demand import Demand, demand_of
from ctld.sched.fleet import Fleet
from ctld.sched.pools import Claim
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_job, a_node_spec, a_partition, a_state
from tests.placing import queued, running

LEAF = 32
"""Nodes under one switch."""
ACCOUNTS = 40
LIMITS = (600, 1800, 3600, 7200, 14400, 21600, 28800, 43200, 86400, 172800)
"""Popular limits; some jobs ask for odd ones."""


@dataclass(slots=True)
class Mix:
    """What the generator made."""

    state: State
    accounts: dict[int, int] = field(default_factory=dict)
    """Job id -> number of its account."""
    licenses: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Job id -> licence and count, for jobs that take one."""

    def claims(self, job: Job) -> list[Claim]:
        """Give a job's claims: its licence, its account's CPUs and running jobs."""
        made = []
        held = self.licenses.get(job.id)
        nodes = len(self.state.nodes)
        if held is not None:
            made.append(Claim(("license", held[0]), nodes // 2, held[1], Reason.RESOURCES))
        account = self.accounts[job.id]
        cpus = job.spec.request.cpus_per_task * max(1, job.spec.request.ntasks, job.spec.request.nodes_min)
        tight = 8 if account % 10 == 0 else 2
        made.append(Claim(("GrpTRES", account, "cpu"), 64 * nodes // tight, cpus, Reason.RESOURCES))
        made.append(Claim(("GrpJobs", account), 8 * nodes // tight, 1, Reason.RESOURCES))
        return made


def made(nodes: int, pending: int, *, seed: int = 7) -> Mix:
    """Make the mix."""
    dice = random.Random(seed)
    state = _cluster(nodes)
    mix = Mix(state)
    shapes = list(_shapes(dice, nodes))
    weights = [1 / (1 + rank) ** 0.9 for rank in range(len(shapes))]
    number = _fill(mix, dice, shapes, weights)
    jobs = []
    for request, partition in dice.choices(shapes, weights, k=pending):
        limit = dice.choices(LIMITS, (2, 3, 8, 6, 6, 3, 3, 4, 8, 2))[0]
        if dice.random() < 0.05:
            limit = 60 * dice.randrange(5, 2880)
        jobs.append(
            a_job(
                number, request=request, partitions=(partition,), priority=dice.randrange(1, 1_000_000),
                limit_seconds=limit,
            )
        )  # fmt: skip
        _count(mix, dice, number)
        number += 1
    queued(state, *jobs)
    return mix


def _cluster(nodes: int) -> State:
    """Two thirds of the nodes with CPUs, a sixth each with GPUs of two types; features by generation and leaf."""
    large, small = 2 * nodes // 3, 5 * nodes // 6
    specs = []
    for index in range(nodes):
        kind = ("cpu", "a100", "h100")[(index >= large) + (index >= small)]
        old = "old" if index % (4 * LEAF) < LEAF else "new"
        specs.append(
            a_node_spec(
                f"n{index:05}",
                cpus=64 if kind != "h100" else 96,
                memory_mib=256_000 if kind == "cpu" else 1_024_000,
                gpus=8 if kind != "cpu" else 0,
                gpu_type=kind if kind != "cpu" else "",
                features=(old, kind, f"leaf{index // LEAF}"),
            )
        )
    state = a_state(1, settings=Settings(require_registration=False, topologies=(_tree(nodes),)))
    state.nodes = [Node(index=index, spec=spec) for index, spec in enumerate(specs)]
    partitions: tuple[PartitionSpec, ...] = (
        a_partition("main", nodes=nodes),
        a_partition("cpu", nodes=tuple(range(large))),
        a_partition("gpu", nodes=tuple(range(large, nodes))),
        a_partition("short", nodes=tuple(range(nodes // 4))),
    )
    state.partitions = {partition.name: partition for partition in partitions}
    state.free.reset(state.nodes)
    state.node_jobs = [{} for _ in specs]
    return state


def _tree(nodes: int) -> TopologySpec:
    """Leaves of 32 nodes below one switch."""
    leaves = tuple(
        SwitchSpec(f"leaf{first // LEAF}", 0, (first, min(first + LEAF, nodes) - 1)) for first in range(0, nodes, LEAF)
    )
    top = SwitchSpec("top", 1, (0, nodes - 1), tuple(leaf.name for leaf in leaves))
    return TopologySpec(kind="tree", switches=(*leaves, top))


def _shapes(dice: random.Random, nodes: int) -> Iterator[tuple[Request, str]]:
    """Give (request, partition), popular ones first by and by."""
    found: list[tuple[Request, str]] = []
    for cpus in (1, 2, 4, 8, 16, 32, 64):
        for memory in (1000, 2000, 4000):
            for partition, constraint in (("cpu", ""), ("main", ""), ("short", ""), ("cpu", "new")):
                if len(found) < 70:
                    found.append(
                        (Request(cpus_per_task=cpus, memory_per_cpu_mib=memory, constraint=constraint), partition)
                    )
    for gpus in (1, 2, 4, 8):
        for cpus in (4, 8):
            for memory in (16_000, 32_000, 64_000):
                for kind in ("", "a100", "h100"):
                    found.append(
                        (
                            Request(
                                cpus_per_task=cpus * gpus, memory_per_node_mib=memory * gpus,
                                gpus_per_node=(GpuRequest(kind, gpus),),
                            ),
                            "gpu",
                        )
                    )  # fmt: skip
    for count in (8, 16, 48, 128):
        found.append((Request(ntasks=count, memory_per_cpu_mib=2000), "cpu"))
    dice.shuffle(found)
    wide: list[tuple[Request, str]] = []
    for count in (2, 4, 8, 16, 32, 64):
        if count > nodes // 8:
            continue
        for cpus in (16, 32, 64):
            wide.append(
                (
                    Request(
                        nodes_min=count, nodes_max=count, ntasks=count, cpus_per_task=cpus, memory_per_cpu_mib=2000
                    ),
                    "cpu",
                )
            )
        wide.append((Request(nodes_min=count, nodes_max=count, exclusive="node", memory_per_node_mib=0), "cpu"))
        wide.append(
            (
                Request(
                    nodes_min=count, nodes_max=count, cpus_per_task=64, memory_per_node_mib=512_000,
                    gpus_per_node=(GpuRequest("", 8),),
                ),
                "gpu",
            )
        )  # fmt: skip
    dice.shuffle(wide)
    for place, shape in enumerate(found):  # One wide shape for each eight others.
        yield shape
        if place % 6 == 5 and wide:
            yield wide.pop()
    yield from wide


def _fill(mix: Mix, dice: random.Random, shapes: list[tuple[Request, str]], weights: list[float]) -> int:
    """Let about five jobs run on each node, some of them wide; give the next job id."""
    state = mix.state
    fleet = Fleet(state.nodes)
    partitions = state.partitions
    demands: list[Demand] = [demand_of(fleet, state.settings, partitions[name], request) for request, name in shapes]
    single = [number for number, demand in enumerate(demands) if demand.single]
    number = 1
    for node in range(fleet.size):
        kind = fleet.kind[node]
        fitting = [one for one in single if demands[one].alternatives[0].bits >> node & 1]
        chances = [weights[one] for one in fitting]
        for one in dice.choices(fitting, chances, k=dice.randrange(3, 9)):
            cpus, memory, gpus = demands[one].amounts[kind]
            if state.free.cpus[node] < cpus or state.free.memory[node] < memory or state.free.gpu_count[node] < gpus[0]:
                continue
            limit = dice.choice(LIMITS)
            share = NodeShare(
                node, cpus, ranges.from_bitmap(ranges.lowest_bits(state.free.cores[node], cpus)), memory,
                ranges.from_bitmap(ranges.lowest_bits(state.free.gpus[node], gpus[0])) if gpus[0] else (),
            )  # fmt: skip
            request, name = shapes[one]
            job = a_job(number, request=request, partitions=(name,), limit_seconds=limit)
            since = UnixTime(NOON - int(limit * dice.random() * 0.99))
            running(state, job, share, partition=name, since=since)
            _count(mix, dice, number)
            number += 1
    return number


def _count(mix: Mix, dice: random.Random, number: int) -> None:
    """Give a job an account, and now and then a licence."""
    mix.accounts[number] = int(ACCOUNTS * dice.random() ** 2)
    if dice.random() < 0.03:
        mix.licenses[number] = (dice.choice(("matlab", "ansys")), dice.choice((1, 1, 2, 4)))

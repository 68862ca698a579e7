"""Which cores and devices of a node a job gets: the rules of scheduling.md 8.3, 8.8 and 8.10, one test each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.apply.indexes import rebuild
from ctld.core.cluster import Device, NodeSpec, PartitionSpec, Settings
from ctld.core.commands import ApplyPlan
from ctld.core.decide.plan import apply_plan
from ctld.core.model import FineRequest, GpuRequest, GresRequest, GresShare, NodeShare
from ctld.core.plan import Plan
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.demand import Demand
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_job, a_node_spec, a_partition, a_state
from tests.placing import carried_out, everywhere, queued


def cluster(spec: NodeSpec, *, nodes: int = 1, partition: PartitionSpec | None = None, **settings: object) -> State:
    state = a_state(nodes, settings=Settings(require_registration=False, **settings))  # type: ignore[arg-type]
    state.nodes = [replace(node, spec=replace(spec, name=node.spec.name)) for node in state.nodes]
    if partition is not None:
        state.partitions["main"] = partition
    rebuild(state)
    return state


def planned(state: State, *jobs: dict[str, Any]) -> Plan:
    """One pass over these jobs, in their order."""
    for number, fields in enumerate(jobs, 1):
        fields.setdefault("memory_per_cpu_mib", 1)
        queued(state, a_job(max(state.jobs, default=0) + 1, priority=1000 - number, **fields))
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    assert len(apply_plan(state, ApplyPlan(made), UnixTime(NOON))) == len(made.starts)
    return made


def shares(state: State, *jobs: dict[str, Any]) -> list[NodeShare]:
    """The (one) share of each start."""
    made = planned(state, *jobs)
    carried_out(state, made)
    return [start.shares[0] for start in made.starts]


def fine(**fields: Any) -> FineRequest:
    return FineRequest(**fields)


def gpus(count: int, kind: str = "") -> tuple[GpuRequest, ...]:
    return (GpuRequest(kind, count),)


def indexes(flat: tuple[int, ...]) -> list[int]:
    return list(ranges.numbers(flat))


def reason_of(state: State, **fields: Any) -> str:
    made = planned(state, fields)
    assert not made.starts
    job = next(iter(state.queue))
    jobs = state.queue.class_of(job)
    assert jobs is not None
    return (made.waits.get(job) or made.class_waits[jobs.id]).reason


TWO_SOCKETS = a_node_spec(cpus=16, sockets=2, threads=2, gpus=0, memory_mib=8000)
NEAR = replace(
    a_node_spec(cpus=8, sockets=2, gpus=4, memory_mib=8000),
    devices=(Device("gpu", 2, first=0, cores=(0, 3)), Device("gpu", 2, first=2, cores=(4, 7))),
)
SHARDED = replace(a_node_spec(cpus=16, gpus=2), devices=(Device("shard", 2, first=0, each=8),))


# Cores.


@pytest.mark.parametrize(
    ("fields", "cpus"),
    [
        ({"ntasks": 3, "nodes_max": 1}, 4),
        ({"ntasks": 3, "nodes_max": 1, "fine": fine(threads_per_core=1)}, 6),
        ({"ntasks": 3, "nodes_max": 1, "fine": fine(ntasks_per_core=1)}, 6),
        ({"ntasks": 2, "nodes_max": 1, "cpus_per_task": 3, "fine": fine(ntasks_per_core=1)}, 8),
    ],
)
def test_whole_cores_are_taken_and_tasks_kept_apart_on_them(fields: dict[str, Any], cpus: int) -> None:
    assert shares(cluster(TWO_SOCKETS), fields)[0].cpus == cpus


def test_memory_by_cpu_counts_the_threads_that_are_used() -> None:
    found = shares(cluster(TWO_SOCKETS), {"ntasks": 2, "nodes_max": 1, "fine": fine(threads_per_core=1)})
    assert (found[0].cpus, found[0].memory_mib) == (4, 2)


def test_one_task_a_core_may_be_the_rule_of_the_cluster() -> None:
    state = cluster(TWO_SOCKETS, select_flags=("cr_one_task_per_core",))
    assert shares(state, {"ntasks": 3, "nodes_max": 1})[0].cpus == 6


def test_whole_sockets_are_taken_where_sockets_are_the_unit() -> None:
    state = cluster(TWO_SOCKETS, select_flags=("cr_socket",))
    found = shares(state, {}, {"cpus_per_task": 8}, {})
    assert [(share.cpus, share.cores) for share in found] == [(8, (0, 3)), (8, (4, 7))]


def test_tasks_of_a_socket_are_bounded() -> None:
    found = shares(cluster(TWO_SOCKETS), {"ntasks": 2, "nodes_max": 1, "fine": fine(ntasks_per_socket=1)})
    assert indexes(found[0].cores) == [0, 4]
    assert (
        reason_of(cluster(TWO_SOCKETS), ntasks=3, nodes_max=1, fine=fine(ntasks_per_socket=1)) == Reason.BAD_CONSTRAINTS
    )


@pytest.mark.parametrize(
    "rule",
    [{"sockets_per_node": 3}, {"cores_per_socket": 5}, {"threads_per_core": 3}, {"gres": (GresRequest("nic", 1),)}],
)
def test_hardware_that_no_node_has_is_never_waited_for(rule: dict[str, Any]) -> None:
    assert reason_of(cluster(TWO_SOCKETS), fine=fine(**rule)) == Reason.BAD_CONSTRAINTS


def test_memory_bound_jobs_take_one_core_of_each_socket() -> None:
    found = shares(
        cluster(TWO_SOCKETS), {"ntasks": 2, "nodes_max": 1, "fine": fine(threads_per_core=1, cores_in_socket=1)}
    )
    assert indexes(found[0].cores) == [0, 4]


def test_cores_and_memory_of_the_system_are_not_to_be_had() -> None:
    state = cluster(replace(TWO_SOCKETS, core_spec_count=3, memory_spec_mib=1000))
    assert state.free.cores == [0b00110111]
    found = shares(state, {"exclusive": "node", "memory_per_cpu_mib": 0, "memory_per_node_mib": 0})
    assert (found[0].cpus, found[0].memory_mib) == (10, 7000)
    listed = cluster(replace(TWO_SOCKETS, cpu_spec_list=(0, 0, 5, 5)))
    assert listed.free.cores == [0b11111010]


def test_a_job_may_leave_more_cores_to_the_system() -> None:
    assert shares(cluster(TWO_SOCKETS), {"fine": fine(core_spec=2)})[0].cpus == 12


def test_a_partition_has_no_more_than_its_part_of_a_node() -> None:
    state = cluster(TWO_SOCKETS, partition=a_partition(nodes=1, max_cpus_per_node=8))
    assert sum(share.cpus for share in shares(state, *({"cpus_per_task": 3} for _ in range(4)))) == 8


def test_a_partition_has_no_more_than_its_part_of_a_socket() -> None:
    state = cluster(TWO_SOCKETS, partition=a_partition(nodes=1, max_cpus_per_socket=4))
    found = shares(state, *({"cpus_per_task": 2} for _ in range(6)))
    assert sorted(core for share in found for core in indexes(share.cores)) == [0, 1, 4, 5]


# Cores of several jobs.


def test_forced_sharing_lays_jobs_out_in_rows() -> None:
    part = a_partition(nodes=1, oversubscribe="FORCE", oversubscribe_jobs=2)
    state = cluster(a_node_spec(cpus=4, gpus=0), partition=part)
    found = shares(state, *({"cpus_per_task": 3} for _ in range(4)))
    assert [share.row for share in found] == [1, 2]
    assert int(state.free.cpus[0]) == 0 or found[0].cores == found[1].cores


def test_without_asking_nothing_is_shared_where_jobs_have_to_ask() -> None:
    part = a_partition(nodes=1, oversubscribe="YES", oversubscribe_jobs=2)
    state = cluster(a_node_spec(cpus=4, gpus=0), partition=part)
    found = shares(state, {"cpus_per_task": 4, "oversubscribe": True}, {"cpus_per_task": 4})
    assert len(found) == 1
    state.queue.discard(2)
    assert [share.row for share in shares(state, {"cpus_per_task": 4, "oversubscribe": True})] == [2]


# GPUs.


def test_gpus_are_near_the_cores() -> None:
    state = cluster(NEAR)
    found = shares(state, {"gpus_per_node": gpus(2)}, {"gpus_per_node": gpus(1)})
    assert [(indexes(share.gpus), indexes(share.cores)) for share in found] == [([0, 1], [0]), ([2], [4])]


def test_bound_jobs_wait_for_gpus_near_free_cores_and_others_take_what_there_is() -> None:
    state = cluster(NEAR)
    shares(state, {"cpus_per_task": 8 // 2, "fine": fine(cores_in_socket=2)}, {"gpus_per_node": gpus(2)})
    taken = indexes(ranges.from_bitmap(0xF & ~state.free.gpus[0]))
    near = state.free.gpus[0]
    assert taken == [0, 1]
    assert near == 0b1100
    bound = {"gpus_per_node": gpus(3), "fine": fine(gres_flags=("enforce-binding",))}
    assert not shares(state, bound)


def test_far_gpus_fill_up_and_unbound_ones_are_the_lowest() -> None:
    assert indexes(shares(cluster(NEAR), {"gpus_per_node": gpus(3)})[0].gpus) == [0, 1, 2]
    state = cluster(NEAR)
    shares(state, {"cpus_per_task": 4, "fine": fine(cores_in_socket=4)})
    found = shares(state, {"gpus_per_node": gpus(1), "fine": fine(gres_flags=("disable-binding",))})
    assert indexes(found[0].gpus) == [0]


def test_the_next_gpu_is_the_one_with_most_links() -> None:
    links = ((-1, 0, 0, 4), (0, -1, 4, 0), (0, 4, -1, 0), (4, 0, 0, -1))
    devices = tuple(Device("gpu", 1, first=at, links=row) for at, row in enumerate(links))
    state = cluster(replace(a_node_spec(cpus=8, gpus=4), devices=devices))
    found = shares(state, {"gpus_per_node": gpus(2)}, {"gpus_per_node": gpus(2)})
    assert [indexes(share.gpus) for share in found] == [[0, 3], [1, 2]]


def test_gpus_by_socket() -> None:
    rule = fine(sockets_per_node=2, gpus_per_socket=gpus(1))
    found = shares(cluster(NEAR), {"gpus_per_node": gpus(2), "ntasks": 2, "nodes_max": 1, "fine": rule})
    assert (indexes(found[0].gpus), indexes(found[0].cores)) == ([0, 2], [0, 4])


def test_cpus_by_gpu_have_a_default() -> None:
    state = cluster(a_node_spec(cpus=16, gpus=4), def_cpus_per_gpu=3)
    found = shares(state, {"gpus_per_node": gpus(2)}, {"gpus_per_node": gpus(2), "fine": fine(one_cpu=True)})
    assert [share.cpus for share in found] == [6, 1]


def test_some_cores_are_for_jobs_with_gpus_only() -> None:
    state = cluster(replace(NEAR, restricted_cores_per_gpu=1))
    found = shares(state, {"cpus_per_task": 4}, {"cpus_per_task": 4}, {"gpus_per_node": gpus(1), "cpus_per_task": 4})
    assert [share.cpus for share in found] == [4, 4]
    assert not set(indexes(found[0].cores)) & {0, 1, 4, 5}
    assert found[1].gpus


# Parts of GPUs, and other resources.


def shard(count: int, kind: str = "") -> dict[str, Any]:
    return {"fine": fine(gres=(GresRequest("shard", count, kind),))}


def test_shards_fill_partly_used_gpus_first_and_keep_whole_ones_whole() -> None:
    state = cluster(SHARDED)
    found = shares(state, shard(3), shard(5), shard(2), {"gpus_per_node": gpus(1)})
    assert [share.gres[0].indices for share in found] == [(0, 0), (0, 0), (1, 1)]
    assert [share.gres[0].opens for share in found] == [True, False, True]
    assert state.free.gpus == [0]


def test_shards_are_not_of_a_gpu_that_is_given_whole() -> None:
    found = shares(cluster(SHARDED), {"gpus_per_node": gpus(1)}, shard(8), shard(1))
    assert [share.gpus for share in found] == [(0, 0), ()]
    assert found[1].gres == (GresShare("shard", 8, "", (1, 1), True),)


def test_shards_fit_one_gpu_unless_the_cluster_says_otherwise() -> None:
    assert reason_of(cluster(SHARDED), **shard(9)) == Reason.BAD_CONSTRAINTS
    found = shares(cluster(SHARDED, select_flags=("multiple_sharing_gres_pj",)), shard(9))
    assert [(one.indices, one.count) for one in found[0].gres] == [((0, 0), 8), ((1, 1), 1)]


def test_shards_of_the_emptiest_gpu() -> None:
    found = shares(cluster(SHARDED, select_flags=("ll_shared_gres",)), shard(3), shard(3))
    assert [share.gres[0].indices for share in found] == [(0, 0), (1, 1)]


def test_one_task_a_gpu() -> None:
    rule = fine(gres_per_task=(GresRequest("shard", 2),), gres_flags=("one-task-per-sharing",))
    found = shares(cluster(SHARDED), {"ntasks": 2, "nodes_max": 1, "fine": rule})
    assert [one.indices for one in found[0].gres] == [(0, 0), (1, 1)]


def test_other_resources_have_types_and_indexes_and_some_are_not_used_up() -> None:
    devices = (
        Device("nic", 2, "fast", 0),
        Device("nic", 2, "slow", 2),
        Device("bandwidth", 10),
        Device("scratch", 1, no_consume=True),
    )
    state = cluster(replace(a_node_spec(cpus=8, gpus=0), devices=devices))
    asked = fine(gres=(GresRequest("bandwidth", 6), GresRequest("nic", 1, "slow"), GresRequest("scratch", 1)))
    found = shares(state, {"fine": asked}, {"fine": asked}, {"fine": fine(gres=(GresRequest("nic", 3),))})
    assert [[(one.name, one.count, one.indices) for one in share.gres] for share in found] == [
        [("bandwidth", 6, ()), ("nic", 1, (2, 2))],
        [("nic", 2, (0, 1)), ("nic", 1, (3, 3))],
    ]


def test_a_whole_node_has_all_that_is_there() -> None:
    state = cluster(replace(a_node_spec(cpus=8, gpus=2), devices=(Device("nic", 2, first=0), Device("bandwidth", 10))))
    found = shares(state, {"exclusive": "node"})[0]
    assert (indexes(found.gpus), [one.count for one in found.gres]) == ([0, 1], [2, 10])


def test_what_is_given_comes_back() -> None:
    part = a_partition(nodes=1, oversubscribe="FORCE", oversubscribe_jobs=2)
    state = cluster(replace(SHARDED, devices=(*SHARDED.devices, Device("nic", 2, first=0))), partition=part)
    before = state.free.as_lists()
    both = fine(gres=(GresRequest("nic", 1), GresRequest("shard", 3)))
    taken = shares(state, *({"cpus_per_task": 10, "fine": both} for _ in range(2)))
    assert [share.row for share in taken] == [1, 2]
    for share in taken:
        state.free.give(share, 1000, "", "main")
    assert state.free.as_lists() == before


# Licences.


def test_licences_are_waited_for_and_bar_nobody_else() -> None:
    state = cluster(a_node_spec(cpus=8, gpus=0), licenses={"a": 3, "b": 1})
    made = planned(state, {"licenses": "a:2,b:1"}, {"licenses": "a:2"}, {"licenses": "b:1|a:1"}, {})
    assert [(start.job_id, start.licenses) for start in made.starts] == [(1, "a:2,b:1"), (3, "a:1"), (4, "")]
    waiting = state.queue.class_of(2)
    assert waiting is not None
    assert made.class_waits[waiting.id].reason == Reason.LICENSES


def test_nodes_that_can_never_serve_are_not_promised_either() -> None:
    state = a_state(2, cpus=8)
    for index, sockets in enumerate((2, 4)):
        node = state.nodes[index]
        state.nodes[index] = replace(node, spec=replace(node.spec, sockets=sockets, cores_per_socket=8 // sockets))
    rebuild(state)
    memory = PlanMemory()
    memory.follow_config(state)
    request = a_job(1, ntasks=4, nodes_max=1, exclusive="user", fine=fine(cores_in_socket=1)).spec.request
    partition = state.partitions["main"]
    demand = memory.demand(partition, request)
    assert isinstance(demand, Demand)
    assert [one.alternatives[0].nodes for one in (demand, demand.alone(partition, request))] == [[1], [1]]

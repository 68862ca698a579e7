"""Which nodes, cores and GPUs a job gets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ctld.core.cluster import NodeSpec, Settings
from ctld.core.model import GpuRequest, NodeShare
from ctld.core.plan import Start
from ctld.core.state import State
from ctld.sched.cycle import plan
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_node_spec, a_partition, a_state
from tests.placing import busy, everywhere, faults_of, queued


def cluster(*specs: NodeSpec, **settings: object) -> State:
    """A state with these nodes."""
    state = a_state(len(specs), settings=Settings(require_registration=False, **settings))  # type: ignore[arg-type]
    state.nodes = [replace(node, spec=spec) for node, spec in zip(state.nodes, specs, strict=True)]
    state.free.reset(state.nodes)
    return state


def nodes(count: int, **fields: object) -> State:
    fields = {"cpus": 8, "gpus": 0, "memory_mib": 8000, **fields}
    return cluster(*(a_node_spec(f"n{n + 1}", **fields) for n in range(count)))  # type: ignore[arg-type]


def start_of(state: State, **fields: object) -> Start | None:
    """Submit one job and give its start; memory is small unless asked for."""
    if not fields.keys() & {"memory_per_node_mib", "memory_per_gpu_mib", "default_memory"}:
        fields.setdefault("memory_per_cpu_mib", 1)
    fields.pop("default_memory", None)
    queued(state, a_job(1000, **fields))  # type: ignore[arg-type]
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    state.queue.discard(1000)
    if not made.starts:
        return None
    assert faults_of(state, made.starts[0]) == []
    return made.starts[0]


def shares_of(state: State, **fields: object) -> tuple[NodeShare, ...]:
    start = start_of(state, **fields)
    assert start is not None
    return start.shares


def layout(state: State, **fields: object) -> list[tuple[int, int]]:
    """(node, tasks) of the job's nodes."""
    return [(share.node, share.tasks) for share in shares_of(state, **fields)]


def gpu(count: int, name: str = "") -> tuple[GpuRequest, ...]:
    return (GpuRequest(name, count),)


# Counts of nodes and tasks.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [(0, 1)]),
        ({"nodes_min": 2, "nodes_max": 2}, [(0, 1), (1, 1)]),
        ({"ntasks": 5}, [(0, 5)]),
        ({"ntasks": 20}, [(0, 7), (1, 7), (2, 6)]),
        ({"nodes_min": 2, "nodes_max": 2, "ntasks": 5}, [(0, 3), (1, 2)]),
        ({"nodes_min": 1, "nodes_max": 3}, [(0, 1), (1, 1), (2, 1)]),
        ({"nodes_min": 2, "nodes_max": 3, "ntasks": 2}, [(0, 1), (1, 1)]),
        ({"nodes_min": 2, "nodes_max": 2, "ntasks_per_node": 3}, [(0, 3), (1, 3)]),
        ({"ntasks": 6, "ntasks_per_node": 2}, [(0, 2), (1, 2), (2, 2)]),
        ({"ntasks": 2, "cpus_per_task": 8}, [(0, 1), (1, 1)]),
        ({"nodes_min": 4, "nodes_max": 4, "ntasks": 2}, [(0, 1), (1, 1)]),
        ({"nodelist": ("n2", "n3")}, [(1, 1), (2, 1)]),
        ({"nodelist": ("n3",), "ntasks": 10}, [(0, 5), (2, 5)]),
        ({"exclude": ("n1",)}, [(1, 1)]),
    ],
)
def test_counts_of_nodes_and_tasks(fields: dict[str, object], expected: list[tuple[int, int]]) -> None:
    assert layout(nodes(4), **fields) == expected


def test_min_cpus_widens_the_share_of_each_node() -> None:
    assert shares_of(nodes(1), min_cpus=6)[0].cpus == 6


def test_overcommit_takes_one_cpu_a_node_whatever_the_tasks() -> None:
    queued(state := nodes(1), a_job(1000, ntasks=40, overcommit=True, memory_per_cpu_mib=1))
    (start,) = plan(state, UnixTime(NOON), reachable=everywhere(state)).starts
    assert (start.shares[0].cpus, start.shares[0].tasks) == (1, 40)


def test_cpus_are_whole_cores() -> None:
    share = shares_of(nodes(1, threads=2), cpus_per_task=3)[0]
    assert (share.cpus, share.cores) == (4, (0, 1))


def test_a_range_of_nodes_takes_what_is_free_without_waiting() -> None:
    state = nodes(4)
    busy(state, 1, 1, 8)
    assert layout(state, nodes_min=2, nodes_max=4) == [(0, 1), (2, 1), (3, 1)]


# Cores.


def test_cores_are_taken_from_all_sockets_in_turn() -> None:
    state = nodes(1, sockets=2)
    busy(state, 1, 0, 1)
    assert shares_of(state, cpus_per_task=1)[0].cores == (1, 1)
    assert shares_of(state, cpus_per_task=2)[0].cores == (1, 1, 4, 4)
    assert shares_of(state, cpus_per_task=5)[0].cores == (1, 5)
    assert shares_of(state, cpus_per_task=7)[0].cores == (1, 7)


def test_with_block_as_default_cores_are_of_one_socket_and_the_fuller_socket_is_filled_up() -> None:
    state = nodes(1, sockets=2)
    state.settings = replace(state.settings, select_flags=("cr_core_default_dist_block",))
    busy(state, 1, 0, 1)
    assert shares_of(state, cpus_per_task=2)[0].cores == (1, 2)
    assert shares_of(state, cpus_per_task=4)[0].cores == (4, 7)
    assert shares_of(state, cpus_per_task=5)[0].cores == (1, 1, 4, 7)


# Memory.


def test_without_any_memory_setting_a_job_takes_all_of_a_node() -> None:
    assert shares_of(nodes(1), default_memory=True)[0].memory_mib == 8000


def test_memory_defaults_come_from_the_partition_before_the_cluster() -> None:
    state = nodes(1)
    state.settings = replace(state.settings, def_memory_per_cpu_mib=100)
    assert shares_of(state, default_memory=True, cpus_per_task=2)[0].memory_mib == 200
    state.partitions["main"] = a_partition(nodes=1, def_memory_per_node_mib=300)
    assert shares_of(state, default_memory=True, cpus_per_task=2)[0].memory_mib == 300


def test_memory_zero_is_all_and_is_not_shared() -> None:
    state = nodes(2)
    busy(state, 1, 0, 1, memory=1)
    assert layout(state, memory_per_node_mib=0) == [(1, 1)]


def test_memory_per_cpu_above_the_maximum_raises_the_cpus() -> None:
    state = nodes(1)
    state.settings = replace(state.settings, max_memory_per_cpu_mib=1000)
    queued(state, a_job(1, memory_per_cpu_mib=2500))
    (start,) = plan(state, UnixTime(NOON), reachable=everywhere(state)).starts
    assert (start.shares[0].cpus, start.shares[0].memory_mib) == (3, 3 * 834)


def test_memory_that_is_not_consumable_only_filters() -> None:
    state = nodes(2)
    state.settings = replace(state.settings, memory_consumable=False)
    queued(
        state,
        a_job(1, memory_per_node_mib=8000),
        a_job(2, memory_per_node_mib=8000),
        a_job(3, memory_per_node_mib=8001),
    )
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    assert [(start.job_id, start.shares[0].memory_mib) for start in made.starts] == [(1, 0), (2, 0)]


# GPUs.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gpus_per_node": gpu(2), "nodes_min": 2, "nodes_max": 2}, [(0, 1, 2), (1, 1, 2)]),
        ({"gpus": gpu(4)}, [(0, 1, 4)]),
        ({"gpus": gpu(6)}, [(0, 1, 4), (1, 1, 2)]),
        ({"gpus": gpu(6), "nodes_min": 3, "nodes_max": 3}, [(0, 1, 4), (1, 1, 1), (2, 1, 1)]),
        ({"gpus": gpu(6), "gpus_per_node": gpu(2)}, [(0, 1, 2), (1, 1, 2), (2, 1, 2)]),
        ({"gpus": gpu(6), "gpus_per_task": gpu(2)}, [(0, 2, 4), (1, 1, 2)]),
        ({"gpus_per_task": gpu(1), "ntasks": 3}, [(0, 3, 3)]),
        ({"gpus_per_task": gpu(2), "ntasks": 3}, [(0, 2, 4), (1, 1, 2)]),
        ({"gpus_per_node": gpu(4), "gpus_per_task": gpu(2)}, [(0, 2, 4)]),
        ({"ntasks_per_gpu": 2, "ntasks": 6}, [(0, 6, 3)]),
        ({"ntasks_per_gpu": 2, "gpus": gpu(3)}, [(0, 6, 3)]),
        ({"ntasks_per_gpu": 2, "gpus_per_node": gpu(3)}, [(0, 6, 3)]),
        ({"ntasks_per_gpu": 1, "gpus": gpu(6)}, [(0, 4, 4), (1, 2, 2)]),
    ],
)
def test_gpu_counts_combine(fields: dict[str, object], expected: list[tuple[int, int, int]]) -> None:
    shares = shares_of(nodes(4, gpus=4), **fields)
    got = [
        (share.node, share.tasks, sum(hi - lo + 1 for lo, hi in zip(share.gpus[::2], share.gpus[1::2], strict=True)))
        for share in shares
    ]
    assert got == expected


def test_cpus_and_memory_follow_the_gpus_where_asked() -> None:
    share = shares_of(nodes(1, gpus=4), gpus_per_node=gpu(3), cpus_per_gpu=2, memory_per_gpu_mib=500)[0]
    assert (share.cpus, share.memory_mib, share.gpus) == (6, 1500, (0, 2))


@pytest.mark.parametrize(
    "fields", [{"gpus": gpu(5), "gpus_per_node": gpu(2)}, {"gpus": gpu(4), "ntasks_per_gpu": 2, "ntasks": 3}]
)
def test_counts_that_contradict_each_other_never_start(fields: dict[str, object]) -> None:
    assert start_of(nodes(4, gpus=4), **fields) is None


def test_a_type_takes_only_gpus_of_that_type_and_none_any() -> None:
    mixed = replace(a_node_spec("n1", cpus=8, gpus=0), gpus=("a", "b", "a", "b"))
    plain = a_node_spec("n2", cpus=8, gpus=2, gpu_type="b")
    state = cluster(plain, mixed)
    assert [(share.node, share.gpus) for share in shares_of(state, gpus_per_node=gpu(2, "a"))] == [(1, (0, 0, 2, 2))]
    assert [(share.node, share.gpus) for share in shares_of(state, gpus_per_node=gpu(3))] == [(1, (0, 2))]
    assert start_of(state, gpus_per_node=gpu(3, "b")) is None


def test_a_type_is_found_among_nodes_of_one_type_each() -> None:
    state = cluster(a_node_spec("n1", gpu_type="a"), a_node_spec("n2", gpu_type="b"))
    assert layout(state, gpus_per_node=gpu(1, "b")) == [(1, 1)]
    assert start_of(state, gpus_per_node=gpu(1, "c")) is None


# Which nodes.


def test_the_tightest_node_is_taken_and_gpu_nodes_are_left_to_those_who_need_them() -> None:
    state = cluster(
        a_node_spec("n1", cpus=4, gpus=4), a_node_spec("n2", cpus=8, gpus=0), a_node_spec("n3", cpus=8, gpus=0)
    )
    busy(state, 1, 2, 2)
    assert layout(state) == [(2, 1)]


def test_the_lowest_weight_goes_first() -> None:
    state = cluster(a_node_spec("n1", cpus=4, weight=5), a_node_spec("n2", cpus=8, weight=1))
    assert layout(state) == [(1, 1)]
    assert layout(state, ntasks=10) == [(0, 4), (1, 6)]


def test_several_nodes_come_from_the_run_of_consecutive_nodes_that_fits_best() -> None:
    state = nodes(8)
    for place, node in enumerate((2, 6)):
        busy(state, place + 1, node, 8)
    assert layout(state, nodes_min=2, nodes_max=2, cpus_per_task=8) == [(0, 1), (1, 1)]
    assert layout(state, nodes_min=4, nodes_max=4, cpus_per_task=8) == [(3, 1), (4, 1), (5, 1), (7, 1)]
    busy(state, 3, 7, 4)
    assert layout(state, cpus_per_task=4) == [(7, 1)]


def test_weights_cut_runs() -> None:
    specs = [a_node_spec(f"n{n + 1}", cpus=8, gpus=0, weight=10 if n < 2 else 1) for n in range(8)]
    state = cluster(*specs)
    for place, node in enumerate((2, 6)):
        busy(state, place + 1, node, 8)
    assert layout(state, nodes_min=2, nodes_max=2, cpus_per_task=8) == [(3, 1), (4, 1)]


def test_features_choose_nodes() -> None:
    specs = [a_node_spec(f"n{n + 1}", cpus=8, features=("x",) if n % 2 else ("y",)) for n in range(4)]
    state = cluster(*specs)
    assert layout(state, constraint="x") == [(1, 1)]
    assert layout(state, constraint="[x|y]", nodes_min=2, nodes_max=2) == [(1, 1), (3, 1)]
    assert layout(state, constraint="x*1", nodes_min=3, nodes_max=3) == [(1, 1), (2, 1), (3, 1)]
    assert start_of(state, constraint="x&y") is None


# Nodes of one's own.


def test_exclusive_takes_all_cpus_and_gpus_and_memory_as_asked() -> None:
    state = nodes(2, gpus=4)
    busy(state, 1, 0, 1)
    (share,) = shares_of(state, exclusive="node", memory_per_node_mib=100)
    assert share == NodeShare(1, 8, (0, 7), 100, (0, 3), 1)


@pytest.mark.parametrize("fields", [{"exclusive": "NODE"}, {"oversubscribe": "EXCLUSIVE"}])
def test_a_partition_can_make_every_job_exclusive(fields: dict[str, str]) -> None:
    state = nodes(1)
    state.partitions["main"] = a_partition(nodes=1, **fields)
    assert shares_of(state)[0].cpus == 8


def test_a_large_cluster_chooses_as_a_small_one_does() -> None:
    state = nodes(100)
    busy(state, 1, 70, 6)
    busy(state, 2, 71, 7)
    assert layout(state, cpus_per_task=2) == [(70, 1)]
    # 28 nodes lie behind the busy two, 70 before them: the smaller run that suffices.
    assert layout(state, nodes_min=20, nodes_max=20, cpus_per_task=8)[0] == (72, 1)
    assert [node for node, _ in layout(state, ntasks=12)] == [0, 1]

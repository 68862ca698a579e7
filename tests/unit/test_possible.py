"""Requests that can never start, as told at submission."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ctld.core.model import GpuRequest, Request
from ctld.core.state import State
from ctld.sched.memory import PlanMemory
from muster.errors import InvalidInput
from muster.states import Reason
from tests.builders import a_node_spec, a_partition, a_state
from tests.placing import busy
from tests.possible import could_ever


@pytest.fixture
def state() -> State:
    state = a_state(3, cpus=8, gpus=0, memory_mib=8000)
    specs = (
        a_node_spec("n1", cpus=8, gpus=0, memory_mib=8000, features=("x",)),
        a_node_spec("n2", cpus=16, gpus=4, gpu_type="a", memory_mib=8000),
        a_node_spec("n3", cpus=8, gpus=0, memory_mib=32_000),
    )
    state.nodes = [replace(node, spec=spec) for node, spec in zip(state.nodes, specs, strict=True)]
    state.free.reset(state.nodes)
    return state


@pytest.mark.parametrize(
    "request_",
    [
        Request(),
        Request(cpus_per_task=16),
        Request(ntasks=32),
        Request(memory_per_node_mib=32_000),
        Request(gpus_per_node=(GpuRequest("a", 4),)),
        Request(constraint="x"),
        Request(exclusive="node", nodes_min=3, nodes_max=3),
    ],
)
def test_what_fits_the_empty_cluster_is_possible_whatever_runs_or_is_down(state: State, request_: Request) -> None:
    busy(state, 1, 1, 16)
    state.nodes[2] = replace(state.nodes[2], down=True)
    memory = PlanMemory()
    assert could_ever(state, request_, state.partitions["main"], memory) is None
    assert could_ever(state, request_, state.partitions["main"], memory) is None


@pytest.mark.parametrize(
    ("request_", "words", "nearest"),
    [
        (Request(cpus_per_task=17), "a node must give 17 CPUs and has 16 (nearest node n2)", 1),
        (Request(memory_per_node_mib=40_000), "a node must give 40000 MiB of memory and has 32000", 2),
        (Request(gpus_per_node=(GpuRequest("", 5),)), "a node must give 5 GPUs and has 4", 1),
        (Request(gpus_per_node=(GpuRequest("", 5),), exclusive="node"), "a node must give 5 GPUs and has 4", 1),
        (Request(tmp_mib=5), "5 MiB of temporary disk and has 0", 0),
        (Request(ntasks=33), "do not suffice", 0),
    ],
)
def test_what_no_node_can_give_names_the_nearest_and_what_it_lacks(
    state: State, request_: Request, words: str, nearest: int
) -> None:
    never = could_ever(state, request_, state.partitions["main"])
    assert never is not None
    assert (never.reason, never.nearest) == (Reason.BAD_CONSTRAINTS, nearest)
    assert words in never.sentence


def test_more_nodes_than_the_partition_gives_is_its_own_reason(state: State) -> None:
    never = could_ever(state, Request(nodes_min=4, nodes_max=4), state.partitions["main"])
    assert never is not None
    assert never.reason is Reason.PARTITION_NODE_LIMIT
    never = could_ever(state, Request(nodes_min=2, nodes_max=2), a_partition(nodes=3, max_nodes=1))
    assert never is not None
    assert never.reason is Reason.PARTITION_NODE_LIMIT


def test_more_memory_than_the_partition_allows_is_its_own_reason(state: State) -> None:
    never = could_ever(state, Request(memory_per_node_mib=600), a_partition(nodes=3, max_memory_per_node_mib=500))
    assert never is not None
    assert never.reason is Reason.MAX_MEMORY


def test_memory_by_cpu_and_by_gpu_is_multiplied_before_it_is_compared(state: State) -> None:
    tight = a_partition(nodes=3, max_memory_per_node_mib=500)
    assert could_ever(state, Request(memory_per_cpu_mib=250, cpus_per_task=2), tight) is None
    for request in (
        Request(memory_per_cpu_mib=251, cpus_per_task=2),
        Request(memory_per_cpu_mib=251, ntasks=2, nodes_min=1, nodes_max=1),
        Request(memory_per_cpu_mib=251, ntasks=6),
        Request(memory_per_cpu_mib=251, ntasks_per_node=2),
    ):
        never = could_ever(state, request, tight)
        assert never is not None, request
        assert never.reason is Reason.MAX_MEMORY
    # Spread over enough nodes it can start.
    assert could_ever(state, Request(memory_per_cpu_mib=251, ntasks=3), tight) is None


def test_an_unknown_feature_is_bad_input_even_where_another_would_do(state: State) -> None:
    with pytest.raises(InvalidInput, match="Invalid feature specification"):
        could_ever(state, Request(constraint="x|nosuch"), state.partitions["main"])


def test_an_unknown_node_and_a_named_node_of_another_partition_are_impossible(state: State) -> None:
    never = could_ever(state, Request(nodelist=("n9",)), state.partitions["main"])
    assert never is not None
    assert "n9" in never.sentence
    assert could_ever(state, Request(nodelist=("n3",)), a_partition(nodes=(0, 1))) is not None

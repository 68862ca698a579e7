"""What the processes of a job are told of where their node lies."""

from __future__ import annotations

from ctld.core.cluster import Settings, TopologySpec
from ctld.core.model import Job, NodeShare, Request
from ctld.core.state import State
from ctld.sched.addresses import variables
from tests.builders import a_job, a_state
from tests.placing import running
from tests.topologies import a_tree, blocks

RACKS = a_tree((2, 2), (2, 2), levels=("spine", "pod", "rack"))


def a_run(topology: TopologySpec | None, nodes: tuple[int, ...], **shape: object) -> tuple[State, Job]:
    topologies = (topology,) if topology is not None else ()
    state = a_state(8, settings=Settings(require_registration=False, topologies=topologies))
    job = a_job(1, request=Request(len(nodes), len(nodes), **shape))  # type: ignore[arg-type]
    return state, running(state, job, *(NodeShare(node, 1, (0, 0)) for node in nodes))


def test_a_node_of_a_tree_is_told_its_switches_from_the_top() -> None:
    state, job = a_run(RACKS, (4, 5))
    assert variables(state, job, 5) == {
        "SLURM_TOPOLOGY_ADDR": "top.pod1.s2.n6",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.switch.node",
        "SLURM_TOPOLOGY_LEVEL": "rack",
    }


def test_the_level_is_the_finest_that_holds_the_job() -> None:
    for nodes, level in (((0,), "rack"), ((0, 2), "pod"), ((0, 4), "spine")):
        state, job = a_run(RACKS, nodes)
        assert variables(state, job, 0)["SLURM_TOPOLOGY_LEVEL"] == level
    two_trees = TopologySpec(kind="tree", switches=RACKS.switches[:2])
    state, job = a_run(two_trees, (0, 2))
    assert "SLURM_TOPOLOGY_LEVEL" not in variables(state, job, 0)


def test_without_a_topology_a_node_is_all_there_is() -> None:
    state, job = a_run(None, (0, 1), segment=1)
    assert variables(state, job, 1) == {"SLURM_TOPOLOGY_ADDR": "n2", "SLURM_TOPOLOGY_ADDR_PATTERN": "node"}


def segments(topology: TopologySpec, nodes: tuple[int, ...], **shape: object) -> list[str]:
    state, job = a_run(topology, nodes, **shape)
    return [variables(state, job, node)["SLURM_SEGMENT_ID"] for node in nodes]


def test_segments_are_numbered_by_their_first_nodes() -> None:
    assert segments(RACKS, (0, 1, 4, 5, 6, 7), segment=2) == ["0", "0", "1", "1", "2", "2"]
    assert segments(RACKS, (0, 1, 2, 3), segment=2, segment_level="pod") == ["0", "0", "1", "1"]
    assert segments(blocks(2, 4, (4, 8)), (0, 1, 2, 4, 5, 6), segment=3) == ["0", "0", "0", "1", "1", "1"]
    assert segments(blocks(2, 4, (4,)), (0, 1, 2, 3, 4, 5, 6, 7), segment=6) == ["0"] * 6 + ["1"] * 2


def test_a_job_of_one_segment_has_no_number() -> None:
    state, job = a_run(RACKS, (0, 1), segment=2)
    assert "SLURM_SEGMENT_ID" not in variables(state, job, 0)

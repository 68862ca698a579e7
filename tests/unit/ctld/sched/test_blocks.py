"""Selection in block topologies and rings: the worked numbers of scheduling.md 8.7."""

from __future__ import annotations

import pytest

from ctld.core.cluster import BlockSpec, TopologySpec
from tests.topologies import Stage, blocks

FREE = "0-3,4-6,8-11,12-13"
"""4, 3, 4, 2 nodes of b1 to b4."""


@pytest.fixture(params=[64, 0], ids=["lists", "columns"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(blocks(4, 4, (4, 16), levels=("row", "block")), 16, small=request.param)


@pytest.mark.parametrize(("nodes", "expected"), [(4, "0-3"), (3, "4-6"), (2, "12-13"), (6, "0-3,12-13")])
def test_the_least_fragmenting_block_is_taken(stage: Stage, nodes: int, expected: str) -> None:
    assert stage.chosen(FREE, nodes=nodes) == expected


def test_at_most_as_many_base_blocks_as_the_job_needs_are_used(stage: Stage) -> None:
    # Six nodes need two base blocks: 2 + 2 + 2 of three blocks are not taken.
    assert stage.chosen("0-1,4-5,8-9", nodes=6) == "none"


def test_segments_are_placed_one_by_one(stage: Stage) -> None:
    assert stage.chosen(FREE, nodes=8, segment=4) == "0-3,8-11"
    assert stage.chosen(FREE, nodes=6, segment=2) == "0-1,4-5,12-13"
    assert stage.chosen(FREE, nodes=6, segment=2, spread_segments=True) == "0-1,4-5,12-13"
    assert stage.chosen("0-3", nodes=4, segment=2, spread_segments=True) == "none"
    assert stage.chosen("0-3", nodes=4, segment=2) == "0-3"
    assert stage.chosen(FREE, nodes=3, segment=8) == "4-6"


def test_consolidated_segments_share_one_larger_block() -> None:
    stage = Stage(blocks(4, 4, (4, 8)), 16)
    assert stage.chosen("0-3,12-15", nodes=8, segment=4) == "0-3,12-15"
    assert stage.chosen("0-3,12-15", nodes=8, segment=4, consolidate_segments=True) == "none"
    assert stage.chosen("0-3,8-15", nodes=8, segment=4, consolidate_segments=True) == "8-15"


def test_a_level_is_required(stage: Stage) -> None:
    assert stage.chosen(FREE, nodes=6, topology="required:block") == "none"
    assert stage.chosen(FREE, nodes=6, topology="required:row") == "0-3,12-13"
    assert stage.chosen(FREE, nodes=6, topology="preferred:block") == "0-3,12-13"


def test_a_job_larger_than_the_largest_block_has_the_whole_cluster() -> None:
    stage = Stage(blocks(4, 4, (4, 8)), 16)
    assert stage.chosen("0-15", nodes=12) == "0-11"


def test_node_ranges_are_tried_from_the_largest(stage: Stage) -> None:
    assert stage.chosen("0-1,4-5,8-9", nodes_min=2, nodes_max=6) == "0-1"
    assert stage.chosen(FREE, nodes_min=2, nodes_max=7) == "0-6"


def test_named_nodes_are_among_the_placement(stage: Stage) -> None:
    assert stage.chosen(FREE, nodes=2, nodelist=("n9", "n10")) == "8-9"
    assert stage.chosen(FREE, nodes=3, nodelist=("n9",)) == "8-10"


def test_a_ring_gives_nodes_side_by_side_around_its_end() -> None:
    ring = TopologySpec(kind="ring", blocks=(BlockSpec("r1", (0, 7)), BlockSpec("r2", (8, 15))))
    stage = Stage(ring, 16)
    assert stage.chosen("0-1,3,5-7,8-15", nodes=5) == "0-1,5-7"
    assert stage.chosen("0-1,3,5-7", nodes=6) == "none"
    assert stage.chosen("0,2,4,8-10", nodes=2) == "8-9"

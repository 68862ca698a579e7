"""Selection in switch trees: the worked numbers of scheduling.md 8.6 and beyond.md B8."""

from __future__ import annotations

import pytest

from ctld.core.cluster import SwitchSpec, TopologySpec
from ctld.sched.needs import Impossible
from ctld.sched.select import choose
from tests.topologies import Stage, a_tree, shown

FREE = "1-3,4-7,8-9"


@pytest.fixture(params=[64, 0], ids=["lists", "columns"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """Leaves s0{0-3}, s1{4-7}, s2{8-11} below one switch."""
    return Stage(a_tree((4, 4, 4), levels=("spine", "rack")), 12, small=request.param)


@pytest.mark.parametrize(
    ("nodes", "expected"), [(2, "8-9"), (3, "1-3"), (4, "4-7"), (6, "4-9"), (7, "1-7"), (9, "1-9"), (10, "none")]
)
def test_the_best_switch_is_the_tightest_that_holds_the_job(stage: Stage, nodes: int, expected: str) -> None:
    assert stage.chosen(FREE, nodes=nodes) == expected


def test_few_switches_are_waited_for_and_then_not(stage: Stage) -> None:
    demand = stage.demand(nodes=6, switches=1, switches_wait_seconds=600)
    view = stage.view(FREE)
    assert choose(demand, view) is None
    assert demand.manner.switch_wait == 300
    assert shown(choose(demand.relaxed, view)) == "4-9"
    assert stage.demand(nodes=6, switches=1, switches_wait_seconds=60).manner.switch_wait == 60
    assert stage.demand(nodes=6, switches=1).manner.switch_wait == 300


def test_a_node_range_takes_fewer_nodes_for_few_switches(stage: Stage) -> None:
    assert stage.chosen(FREE, nodes_min=2, nodes_max=6, switches=1) == "4-7"
    assert stage.chosen(FREE, nodes_min=2, nodes_max=6, switches=2) == "4-9"
    assert stage.chosen(FREE, nodes_min=5, nodes_max=6, switches=1) == "none"


def test_weights_come_before_switches() -> None:
    stage = Stage(a_tree((2, 2)), 4)
    stage.fleet.weight = [5, 1, 1, 5]
    stage.fleet.weight_column[:] = stage.fleet.weight
    stage.fleet.one_weight = False
    assert stage.chosen("0-3", nodes=2) == "1-2"
    assert stage.chosen("0-3", nodes=3) == "0-2"
    assert stage.chosen("0-3", nodes=2, switches=1) == "0-1"


def test_named_nodes_bring_the_rest_to_their_leaf(stage: Stage) -> None:
    assert stage.chosen("0-11", nodes=3, nodelist=("n10",)) == "8-10"
    assert stage.chosen("0-11", nodes=5, nodelist=("n1", "n12")) == "0-3,11"


def test_no_job_spans_two_trees() -> None:
    switches = (
        SwitchSpec("a", 0, (0, 1)),
        SwitchSpec("b", 0, (2, 4)),
        SwitchSpec("ab", 1, (0, 4), ("a", "b")),
        SwitchSpec("c", 0, (5, 6)),
    )
    spec = TopologySpec(kind="tree", switches=switches)
    stage = Stage(spec, 9)
    assert stage.chosen("0-8", nodes=2) == "0-1"  # The higher tree, although c would be as tight.
    assert stage.chosen("0,5-6", nodes=2) == "5-6"
    assert stage.chosen("0-8", nodes=5) == "0-4"
    assert stage.chosen("0-8", nodes=6) == "none"
    assert stage.chosen("7", nodes=1) == "7"
    assert stage.chosen("7-8", nodes=2) == "none"
    assert Stage(spec, 9, topology_optional=True).chosen("0-8", nodes=6) == "0-5"
    assert Stage(spec, 9, topology_optional=True).chosen("0-8", nodes=6, switches=9) == "none"


def test_the_search_stays_below_the_lowest_switch_that_holds_the_job() -> None:
    stage = Stage(a_tree((4, 4), (4, 4), (4, 4)), 24)
    assert stage.chosen("0-23", nodes=8) == "0-7"
    # The middle pod is the tightest with six; its full leaf comes first.
    assert stage.chosen("0-7,8-9,12-15,16-22", nodes=6) == "8-9,12-15"
    # No pod holds nine: the fullest pod in whole, and the rest where it is tightest.
    assert stage.chosen("0-7,8-9,12-15,16-22", nodes=9) == "0-8"


def test_a_rack_is_required_preferred_or_of_no_matter() -> None:
    stage = Stage(a_tree((4, 4), levels=("spine", "rack")), 8)
    free = "0-2,4-6"
    assert stage.chosen(free, nodes=4, topology="required:rack") == "none"
    assert stage.chosen(free, nodes=4, topology="preferred:rack") == "0-2,4"
    assert stage.chosen(free, nodes=3, topology="required:rack") == "0-2"
    assert stage.chosen(free, nodes=4, topology="required:spine") == "0-2,4"
    assert stage.chosen(free, nodes=4, topology="required:0") == "none"
    assert stage.chosen("0-3,4,6", nodes=2, topology="unconstrained") == "4,6"
    assert stage.chosen("0-3,4", nodes=2, topology="unconstrained") == "0,4"


def test_the_partition_says_what_is_not_asked() -> None:
    stage = Stage(a_tree((4, 4), levels=("spine", "rack")), 8)
    stage.partition = type(stage.partition)(name="main", nodes=tuple(range(8)), default_topology="required:rack")
    assert stage.chosen("0-2,4-6", nodes=4) == "none"
    assert stage.chosen("0-2,4-6", nodes=4, topology="preferred:rack") == "0-2,4"


def test_one_segment_that_names_a_level_is_the_whole_job(stage: Stage) -> None:
    assert stage.chosen("0-2,4-6,8-9", nodes=4, segment=4, segment_level="rack") == "none"
    assert stage.chosen("0-2,4-7,8-9", nodes=4, segment=4, segment_level="rack") == "4-7"
    assert stage.chosen("0,4,8-9", nodes=2, segment=4, segment_level="rack") == "8-9"
    assert stage.chosen("0-2,4-6", nodes=4, segment=4, segment_level="spine") == "0-2,4"
    assert stage.demand(nodes=4, segment=4, segment_level="rack", topology="preferred:rack").manner.mode == "required"


def test_segments_lie_in_a_rack_each_and_all_in_one_pod() -> None:
    stage = Stage(a_tree((4, 4, 4), (4, 4, 4), levels=("top", "pod", "rack")), 24)
    free = "0-2,4-7,8-9,12-15,16-19,20-21"
    wish = {"topology": "required:pod", "segment": 4, "segment_level": "rack"}
    assert stage.chosen(free, nodes=8, **wish) == "12-19"
    assert stage.chosen("0-2,4-7,8-9,12-15", nodes=8, **wish) == "none"
    assert stage.chosen("0-2,4-7,8-9,12-15", nodes=8, segment=4) == "4-7,12-15"
    assert stage.chosen("0-2,4-7,8-9", nodes=8, segment=2) == "0-1,4-9"
    assert stage.chosen("0-11", nodes=4, segment=2, spread_segments=True) == "0-1,4-5"
    assert stage.chosen("0-3,12-15", nodes=8, segment=4, consolidate_segments=True) == "0-3,12-15"


def test_tasks_go_below_the_lowest_switch_with_room() -> None:
    stage = Stage(a_tree((2, 2, 2)), 6)
    view = stage.view("0-5")
    for node, cpus in enumerate((8, 1, 8, 8, 8, 4)):
        view.cpus[node] = cpus
    demand = stage.demand(ntasks=12)
    assert shown(choose(demand, view)) == "4-5"  # 8 + 4 fit exactly; 0 and 2 would do as well, on two leaves.
    assert shown(choose(stage.demand(ntasks=18), view)) == "2-3,5"
    assert choose(stage.demand(ntasks=18, topology="required:0"), view) is None
    assert shown(choose(stage.demand(ntasks=14, topology="required:0"), view)) == "2-3"


def test_a_level_that_is_not_there_is_impossible(stage: Stage) -> None:
    with pytest.raises(Impossible, match="no level 'room'; its levels are 0 to 1 .0 the finest. or rack, spine"):
        stage.demand(nodes=2, topology="required:room")
    with pytest.raises(Impossible, match="no topology"):
        Stage(None, 4).demand(nodes=2, topology="required:0")

"""How nodes are chosen where no topology decides: runs (scheduling.md 8.5), load, spreading, packing scores (beyond.md
B14, B15)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ctld.core.jobspec import shape
from ctld.core.model import GpuRequest
from ctld.sched.demand import demand_of
from ctld.sched.fleet import View
from ctld.sched.needs import Impossible
from ctld.sched.select import choose
from muster.api import JobRequest
from muster.placement_options import as_options
from tests.topologies import Stage, shown


@pytest.fixture(params=[64, 0], ids=["lists", "columns"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(None, 8, small=request.param)


def view_of(stage: Stage, cpus: tuple[int, ...]) -> View:
    view = stage.fleet.capacity()
    for node, count in enumerate(cpus):
        view.cpus[node] = count
    return view


def heavy(stage: Stage, *nodes: int) -> None:
    for node in nodes:
        stage.fleet.weight[node] = 10
    stage.fleet.weight_column[:] = stage.fleet.weight
    stage.fleet.one_weight = False


def test_the_run_that_suffices_with_the_fewest_cpus_is_taken(stage: Stage) -> None:
    view = view_of(stage, (8, 8, 0, 8, 8, 8, 0, 8))
    assert shown(choose(stage.demand(nodes=2), view)) == "0-1"
    view.cpus[7] = 4
    assert shown(choose(stage.demand(nodes=1, cpus_per_task=4), view)) == "7"
    view.cpus[7] = 8
    heavy(stage, 0, 1)
    assert shown(choose(stage.demand(nodes=2), view)) == "3-4"


def test_named_nodes_come_first_and_their_run_next(stage: Stage) -> None:
    view = view_of(stage, (8, 8, 0, 8, 8, 8, 0, 8))
    assert shown(choose(stage.demand(nodes=2, nodelist=("n5",)), view)) == "4-5"
    assert shown(choose(stage.demand(nodes=3, nodelist=("n5",)), view)) == "3-5"
    assert shown(choose(stage.demand(nodes=4, nodelist=("n8",)), view)) == "3-5,7"


def test_contiguous_takes_one_run_whatever_its_weights(stage: Stage) -> None:
    view = view_of(stage, (8, 8, 0, 8, 8, 8, 0, 8))
    heavy(stage, 4)
    assert shown(choose(stage.demand(nodes=3, contiguous=True), view)) == "3-5"
    assert shown(choose(stage.demand(nodes=2, contiguous=True), view)) == "0-1"
    assert choose(stage.demand(nodes=4, contiguous=True), view) is None
    assert shown(choose(stage.demand(nodes=2, contiguous=True, nodelist=("n6",)), view)) == "4-5"
    assert shown(choose(stage.demand(nodes_min=2, nodes_max=8, contiguous=True), view)) == "3-5"


def test_contiguous_tasks_take_the_tightest_window(stage: Stage) -> None:
    view = view_of(stage, (8, 2, 0, 8, 5, 8, 0, 8))
    assert shown(choose(stage.demand(ntasks=13, contiguous=True), view)) == "3-4"
    assert shown(choose(stage.demand(ntasks=10, contiguous=True), view)) == "0-1"
    assert choose(stage.demand(ntasks=22, contiguous=True), view) is None


def test_spreading_takes_as_many_nodes_as_there_are_tasks(stage: Stage) -> None:
    view = view_of(stage, (8, 8, 0, 8, 0, 0, 0, 0))
    assert choose(stage.demand(ntasks=4), view) == [(0, 4, 0)]
    assert choose(stage.demand(ntasks=4, spread_job=True), view) == [(0, 2, 0), (1, 1, 0), (3, 1, 0)]
    assert choose(stage.demand(ntasks=4, nodes_min=1, nodes_max=2, spread_job=True), view) == [(0, 2, 0), (1, 2, 0)]


def test_of_a_range_the_most_or_the_fewest_nodes(stage: Stage) -> None:
    view = view_of(stage, (8, 8, 0, 8, 8, 8, 0, 8))
    assert shown(choose(stage.demand(nodes_min=2, nodes_max=4), view)) == "3-5,7"
    assert shown(choose(stage.demand(nodes_min=2, nodes_max=4, use_min_nodes=True), view)) == "0-1"


def test_least_loaded_nodes_come_first() -> None:
    stage = Stage(None, 4, lln=True)
    view = view_of(stage, (4, 6, 8, 7))
    assert choose(stage.demand(ntasks=1, nodes=1), view) == [(2, 1, 0)]
    assert shown(choose(stage.demand(nodes=2, cpus_per_task=2), view)) == "2-3"
    heavy(stage, 2)
    assert choose(stage.demand(ntasks=1, nodes=1), view) == [(3, 1, 0)]
    stage = Stage(None, 4)
    stage.partition = replace(stage.partition, lln=True)
    assert choose(stage.demand(ntasks=1, nodes=1), view_of(stage, (4, 6, 8, 7))) == [(2, 1, 0)]


def test_serial_jobs_go_to_the_end_of_the_table() -> None:
    stage = Stage(None, 4, pack_serial_at_end=True)
    view = view_of(stage, (4, 8, 8, 0))
    assert choose(stage.demand(ntasks=1, nodes=1), view) == [(2, 1, 0)]
    assert choose(stage.demand(ntasks=2, nodes=1), view) == [(0, 2, 0)]


def test_busy_nodes_come_first_in_a_plan_for_later(stage: Stage) -> None:
    view = view_of(stage, (8, 8, 8, 6, 8, 7, 8, 8))
    demand = stage.demand(nodes=3, cpus_per_task=2)
    assert shown(choose(demand, view, busy=True)) == "0,3,5"
    assert shown(choose(demand, view)) == "0-2"


def test_the_packing_score_fills_nodes() -> None:
    stage = Stage(None, 3, pack_weights=(("cpu", 1.0), ("gres/gpu", 10.0), ("mem", 1.0)))
    view = stage.fleet.capacity()
    for node, free in enumerate((8, 4, 2)):
        view.gpus[0][node] = free
    demand = stage.demand(nodes=1, ntasks=1, gpus_per_node=(GpuRequest("", 2),), memory_per_node_mib=1)
    assert shown(choose(demand, view)) == "2"
    view.cpus[1] = 1  # The second is fuller in CPUs, which weigh less.
    assert shown(choose(demand, view)) == "2"
    view.gpus[0][2] = 1
    assert shown(choose(demand, view)) == "1"


def test_a_preference_is_a_demand_of_its_own() -> None:
    stage = Stage(None, 4)
    stage.state.nodes[2] = replace(stage.state.nodes[2], spec=replace(stage.state.nodes[2].spec, features=("fast",)))
    stage.fleet = type(stage.fleet)(stage.state.nodes)
    demand = stage.demand(nodes=1, prefer="fast")
    assert demand.preferred is not None
    assert shown(choose(demand.preferred, stage.view("0-3"))) == "2"
    assert choose(demand.preferred, stage.view("0-1")) is None
    assert shown(choose(demand, stage.view("0-1"))) == "0"
    assert stage.demand(nodes=2, prefer="fast").preferred is None  # Never two of them.
    assert stage.demand(nodes=1).preferred is None


@pytest.mark.parametrize(
    ("place", "tasks", "expected"),
    [
        ("pack", 4, {1: 4}),  # One node is enough, and the second is the tightest.
        ("pack", 9, {0: 7, 2: 2}),  # The last node is the tightest that has the rest, and tasks are balanced.
        ("spread", 2, {0: 1, 1: 1}),
        ("spread", 4, {0: 2, 1: 1, 2: 1}),
        ("spread", 14, {0: 8, 1: 4, 2: 2}),
        ("strict-pack", 6, {0: 6}),
        ("strict-pack", 9, None),
        ("strict-spread", 3, {0: 1, 1: 1, 2: 1}),
        ("strict-spread", 4, None),
    ],
)
def test_tasks_are_placed_on_three_nodes(place: str, tasks: int, expected: dict[int, int] | None) -> None:
    assert placed({"place": place, "ntasks": tasks}) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"bundle": "cpus=3:2"}, {0: 2}),
        ({"bundle": "cpus=3:2", "place": "spread"}, {0: 1, 1: 1}),
        ({"bundle": "cpus=3:3"}, {0: 2, 1: 1}),
        ({"bundle": "cpus=3:4"}, None),  # All at once, or none.
        ({"bundle": "cpus=1,gpus=1:3", "place": "strict-spread"}, {0: 1, 1: 1, 2: 1}),
        ({"bundle": "cpus=1,gpus=2:3", "place": "strict-pack"}, {0: 3}),
    ],
)
def test_bundles_are_placed_on_three_nodes(values: dict[str, object], expected: dict[int, int] | None) -> None:
    assert placed(values) == expected


def placed(values: dict[str, object]) -> dict[int, int] | None:
    """Give the tasks on each node where 8, 4 and 2 CPUs are free, and as many GPUs."""
    as_options(values)
    stage = Stage(None, 3)
    view = stage.fleet.capacity()
    for node, free in enumerate((8, 4, 2)):
        view.cpus[node] = view.gpus[0][node] = free
    request = shape(JobRequest(script="x", **values), stage.state.settings)  # type: ignore[arg-type]
    try:
        picks = choose(demand_of(stage.fleet, stage.state.settings, stage.partition, request), view)
    except Impossible:
        return None
    return None if picks is None else {node: tasks for node, tasks, _ in picks}

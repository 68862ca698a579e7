"""Nodes chosen in arbitrary small trees and blocks, judged by trying every set of nodes."""

from __future__ import annotations

from itertools import combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ctld.core.cluster import TopologySpec
from ctld.sched.demand import Demand
from ctld.sched.fleet import View
from ctld.sched.select import choose
from ctld.sched.topology import Layout
from tests.topologies import Stage, a_tree, blocks

FEW = settings(max_examples=150, deadline=None)
SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)
TREES = st.lists(SIZES, min_size=1, max_size=3).map(lambda pods: a_tree(*pods))
FREE = st.integers(0, (1 << 14) - 1)


def nodes_of(spec: TopologySpec) -> int:
    return max(switch.nodes[-1] for switch in spec.switches) + 1


def wanted(stage: Stage, free: int, **request: object) -> tuple[Demand, View, list[int] | None]:
    demand = stage.demand(**request)
    view = stage.fleet.capacity(stage.fleet.everything & ~free)
    picks = choose(demand, view)
    return demand, view, None if picks is None else [pick[0] for pick in picks]


def sets(layout: Layout, free: int, count: int, size: int, level: int) -> list[tuple[int, ...]]:
    """All sets of free nodes of this size inside one domain of a level."""
    open_nodes = [node for node in range(size) if free >> node & 1]
    column = layout.domain[level]
    return [
        found for found in combinations(open_nodes, count)
        if len({int(column[node]) for node in found}) == 1 and column[found[0]] >= 0
    ]  # fmt: skip


@FEW
@given(TREES, FREE, st.integers(2, 6), st.data())
def test_a_required_level_is_met_whenever_it_can_be_with_no_more_leaves_than_needed(
    spec: TopologySpec, free: int, count: int, data: st.DataObject
) -> None:
    size = nodes_of(spec)
    assume(count <= size)
    stage = Stage(spec, size)
    levels = max(switch.level for switch in spec.switches)
    level = data.draw(st.integers(0, levels))
    demand, _, chosen = wanted(stage, free, nodes=count, topology=f"required:{level}")
    layout = demand.manner.layout
    assert layout is not None
    able = sets(layout, free, count, size, level)
    if chosen is None:
        assert not able
        return
    assert tuple(chosen) in able
    if level <= 1:  # Right above the leaves: none of the domain's sets has fewer.
        column = layout.domain[level]
        same = [found for found in able if column[found[0]] == column[chosen[0]]]
        assert layout.leaves_of(chosen) == min(layout.leaves_of(found) for found in same)


@FEW
@given(TREES, FREE, st.integers(2, 6), st.integers(1, 3))
def test_few_switches_are_found_whenever_there_are_any(
    spec: TopologySpec, free: int, count: int, switches: int
) -> None:
    size = nodes_of(spec)
    assume(count <= size)
    stage = Stage(spec, size)
    demand, view, chosen = wanted(stage, free, nodes=count, switches=switches)
    layout = demand.manner.layout
    assert layout is not None
    able = sets(layout, free, count, size, layout.depth - 1)
    if chosen is None:
        assert all(layout.leaves_of(found) > switches for found in able)
        assert (choose(demand.relaxed, view) is None) == (not able)
    else:
        assert tuple(chosen) in able
        assert layout.leaves_of(chosen) <= switches


@FEW
@given(TREES, FREE, st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_the_choice_does_not_depend_on_how_columns_are_kept(
    spec: TopologySpec, free: int, least: int, more: int, tasks: bool
) -> None:
    size = nodes_of(spec)
    assume(least <= size)
    request: dict[str, object] = {"nodes_min": least, "nodes_max": least + more}
    if tasks:
        request["ntasks"] = 5 * least
    one = wanted(Stage(spec, size), free, **request)[2]
    assert one == wanted(Stage(spec, size, small=0), free, **request)[2]
    stage = Stage(spec, size)
    wanted(stage, ~free & (1 << size) - 1, **request)
    assert one == wanted(stage, free, **request)[2]  # Caches that other questions filled change nothing.
    assert one is None or all(free >> node & 1 for node in one)


def compact(layout: Layout, free: int, count: int, sizes: tuple[int, ...], level: int) -> list[tuple[int, ...]]:
    """Those sets in one block that lie in no more blocks of the level below than such a job may use."""
    able = sets(layout, free, count, 12, level)
    if level == 0:
        return able
    column, most = layout.domain[level - 1], -(-count // sizes[level - 1])
    return [found for found in able if len({int(column[node]) for node in found}) <= most]


@FEW
@given(FREE, st.integers(1, 9), st.sampled_from(((2,), (2, 4), (2, 8), (2, 4, 8))), st.integers(0, 3))
def test_blocks_give_what_is_asked_for_inside_one_large_enough_block(
    free: int, count: int, sizes: tuple[int, ...], segment: int
) -> None:
    stage = Stage(blocks(6, 2, sizes), 12)
    if segment and count % segment:
        return
    demand, _, chosen = wanted(stage, free, nodes=count, segment=segment)
    layout = demand.manner.layout
    assert layout is not None
    fits = [level for level, size in enumerate(sizes) if size >= count]
    if chosen is None:
        assert segment or not fits or not compact(layout, free, count, sizes, fits[0])
        return
    assert len(set(chosen)) == count
    assert all(free >> node & 1 for node in chosen)
    if fits and not segment:
        assert len({int(layout.domain[fits[0]][node]) for node in chosen}) == 1

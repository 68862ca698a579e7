"""The search for the earliest start."""

from __future__ import annotations

from ctld.core.cluster import Node, Settings
from ctld.core.model import UNLIMITED, Request
from ctld.sched.demand import Demand, demand_of
from ctld.sched.fleet import Fleet
from ctld.sched.profiles import Profiles
from ctld.sched.releases import FAR
from ctld.sched.search import Found, Search, held_rows
from tests.builders import a_node_spec, a_partition

MINUTE = 60
HOUR = 3600


def a_fleet(nodes: int, **fields: object) -> Fleet:
    specs = [a_node_spec(f"n{index + 1}", cpus=8, gpus=0, **fields) for index in range(nodes)]  # type: ignore[arg-type]
    return Fleet([Node(index=index, spec=spec) for index, spec in enumerate(specs)])


def a_demand(fleet: Fleet, **fields: object) -> Demand:
    fields.setdefault("memory_per_node_mib", 1)
    return demand_of(fleet, Settings(), a_partition(nodes=fleet.size), Request(**fields))  # type: ignore[arg-type]


def nodes_of(found: Found | None) -> list[int]:
    assert found is not None
    return [pick[0] for pick in found.picks]


def test_the_calendar_of_the_specification() -> None:
    """scheduling.md section 7.6: four nodes, whole-node jobs, J1 holds n1 and n2 until 3600."""
    fleet = a_fleet(4)
    profiles = Profiles(fleet)
    search = Search(profiles)

    def plan(nodes: int, seconds: int, window: int | None = None) -> tuple[int, list[int]] | None:
        demand = a_demand(fleet, nodes_min=nodes, nodes_max=nodes, exclusive="node", memory_per_node_mib=0)
        found = search.earliest(demand, seconds, 0, window_end=window)
        if found is None:
            return None
        for row in held_rows(demand, found.picks, found.start + seconds):
            profiles.take(row, found.start, found.start + seconds)
        return found.start, nodes_of(found)

    for row in held_rows(a_demand(fleet, cpus_per_task=8), [(0, 1, 0), (1, 1, 0)], HOUR):
        profiles.take(row, 0, HOUR)
    before = profiles.copy()
    assert plan(4, 2 * HOUR) == (3600, [0, 1, 2, 3])
    assert plan(1, 30 * MINUTE) == (0, [2])
    fourth = plan(1, 90 * MINUTE)
    assert fourth is not None
    assert fourth[0] == 10800
    fifth = plan(2, 59 * MINUTE)
    assert fifth is not None
    assert fifth[0] == 10800
    assert not set(fifth[1]) & set(fourth[1])
    assert plan(4, HOUR) == (16200, [0, 1, 2, 3])

    profiles = before  # bf_window of 120 minutes: the calendar ends at 7200.
    search = Search(profiles)
    assert plan(4, 2 * HOUR, 7200) == (3600, [0, 1, 2, 3])
    assert plan(1, 30 * MINUTE, 7200) == (0, [2])
    assert plan(1, 90 * MINUTE, 7200) is None
    assert plan(2, 59 * MINUTE, 7200) is None
    assert plan(4, HOUR, 7200) is None


def test_a_plan_made_again_later_chooses_the_same_nodes() -> None:
    fleet = a_fleet(3)
    profiles = Profiles(fleet)
    search = Search(profiles)
    demand = a_demand(fleet, cpus_per_task=4)
    profiles.take((0, 0, 8, 0, (0,)), 0, 100)
    profiles.take((0, 1, 6, 0, (0,)), 0, 100)
    profiles.take((0, 1, 2, 0, (0,)), 100, 300)
    profiles.take((0, 2, 8, 0, (0,)), 0, 200)
    for now in (0, 50, 99):
        profiles.advance(now)
        for one in (search, Search(profiles, cached=False)):
            found = one.earliest(demand, 50, now)
            assert found is not None
            assert (found.start, nodes_of(found)) == (100, [1])  # The one with less free then.


def test_only_after_jobs_without_limit_is_far_and_too_much_is_never() -> None:
    fleet = a_fleet(2)
    profiles = Profiles(fleet)
    search = Search(profiles)
    for node in (0, 1):
        profiles.take((0, node, 1, 0, (0,)), 0, FAR)
    whole = a_demand(fleet, exclusive="node")
    found = search.earliest(whole, 10, 0)
    assert found is not None
    assert found.start == FAR
    assert search.earliest(whole, 10, 0, window_end=10**9) is None
    seven = search.earliest(a_demand(fleet, cpus_per_task=7), UNLIMITED, 0)
    assert seven is not None
    assert seven.start == 0
    profiles.close([0, 1])
    assert search.earliest(whole, 10, 0) is None


def test_a_reservation_of_whole_nodes_keeps_others_off_the_rest() -> None:
    fleet = a_fleet(1)
    profiles = Profiles(fleet)
    search = Search(profiles)
    demand = a_demand(fleet, cpus_per_task=2)
    for row in held_rows(demand, [(0, 1, 0)], 100, whole_nodes=True):
        profiles.take(row, 50, 100)
    fits = search.earliest(demand, 50, 0)
    crosses = search.earliest(demand, 51, 0)
    assert fits is not None
    assert crosses is not None
    assert (fits.start, crosses.start) == (0, 100)

"""Profiles and the search for starts, judged by a plain oracle that keeps every second of every node."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctld.core.cluster import Node, Settings
from ctld.core.model import UNLIMITED, GpuRequest, Request
from ctld.sched.demand import Demand, demand_of
from ctld.sched.fleet import Column, Fleet, View, bitmap
from ctld.sched.needs import Impossible
from ctld.sched.profiles import Profiles
from ctld.sched.releases import FAR, Row
from ctld.sched.search import Found, Search, held_rows
from ctld.sched.select import Pick, choose, fits_on
from ctld.sched.steps import PAD
from tests.builders import a_node_spec, a_partition
from tests.topologies import a_tree

BEGIN = 1000
SECONDS = 48
"""The oracle knows so many seconds; the last one stands for FAR and all that follows."""
SLOW = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """One to five nodes of mixed hardware, with columns as lists or numpy's."""
    nodes = []
    for index in range(draw(st.integers(1, 5))):
        spec = a_node_spec(
            f"n{index + 1}",
            cpus=draw(st.sampled_from((4, 8))),
            memory_mib=draw(st.sampled_from((500, 1000))),
            gpus=draw(st.sampled_from((0, 2, 4))),
            weight=draw(st.sampled_from((1, 1, 5))),
            features=draw(st.sampled_from((("x",), ("y",), ("x", "y")))),
        )
        nodes.append(Node(index=index, spec=spec))
    return Fleet(nodes, draw(st.sampled_from((0, 64))))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Requests of every kind that is searched for in a way of its own."""
    fields: dict[str, object] = {"cpus_per_task": draw(st.integers(1, 5))}
    shape = draw(st.sampled_from(("one", "one", "even", "tasks", "gpus", "whole", "grows", "features")))
    if shape == "even":
        fields["nodes_min"] = fields["nodes_max"] = draw(st.integers(2, 3))
    elif shape == "grows":
        fields["nodes_min"], fields["nodes_max"] = 1, 3
    elif shape == "tasks":
        fields["ntasks"] = draw(st.integers(2, 6))
        fields["cpus_per_task"] = draw(st.integers(1, 3))
    elif shape == "gpus":
        fields["gpus"] = (GpuRequest("", draw(st.integers(1, 5))),)
    elif shape == "whole":
        fields["exclusive"] = "node"
    elif shape == "features":
        fields["constraint"] = draw(st.sampled_from(("x", "x|y", "[x|y]", "x&y")))
        fields["nodes_min"] = fields["nodes_max"] = draw(st.integers(1, 2))
    if shape in ("one", "even") and draw(st.booleans()):
        fields["gpus_per_node"] = (GpuRequest("", draw(st.integers(1, 2))),)
    fields["memory_per_node_mib"] = draw(st.sampled_from((0, 100, 300)))
    return Request(**fields)  # type: ignore[arg-type]


def demands(fleet: Fleet, asked: list[Request], *, lln: bool) -> list[Demand]:
    partition = a_partition(nodes=fleet.size, lln=lln)
    made = []
    for request in asked:
        try:
            made.append(demand_of(fleet, Settings(), partition, request))
        except Impossible:
            continue
    return made


class Oracle:
    """What is free in every second, by node: CPUs, memory, GPUs."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.free = [
            [[kind.cpus, kind.memory_mib, *kind.gpus] for _ in range(SECONDS)]
            for kind in (fleet.kinds[number] for number in fleet.kind)
        ]

    def second(self, time: int) -> int:
        return min(time - BEGIN, SECONDS - 1)

    def change(self, row: Row, start: int, end: int, sign: int) -> None:
        for second in range(max(0, self.second(start)), self.second(end)):
            for at, count in enumerate((row[2], row[3], *row[4])):
                self.free[row[1]][second][at] += sign * count

    def view(self, start: int, end: int) -> View:
        first, last = self.second(start), min(end - BEGIN, SECONDS)
        spans = [node[first : max(last, first + 1)] for node in self.free]
        least = [[min(column) for column in zip(*span, strict=True)] for span in spans]
        columns: list[Column] = [list(column) for column in zip(*least, strict=True)]
        return View(columns[0], columns[1], columns[2:])

    def steps(self, node: int, now: int) -> list[tuple[int, tuple[int, ...]]]:
        found: list[tuple[int, tuple[int, ...]]] = []
        for second in range(now - BEGIN, SECONDS):
            free = tuple(self.free[node][second])
            if not found or found[-1][1] != free:
                found.append((FAR if second == SECONDS - 1 else BEGIN + second, free))
        return found

    def place(self, demand: Demand, start: int, end: int, barred_until: dict[int, int]) -> list[Pick] | None:
        view = self.view(start, end)
        barred = bitmap(node for node, until in barred_until.items() if until > start)
        if demand.single and demand.manner.tightest:
            fits = [
                node for node in demand.alternatives[0].nodes if fits_on(demand, view, node) and not barred >> node & 1
            ]
            if fits:
                at = self.second(start)

                def rank(node: int) -> tuple[int, int, int, int]:
                    free = self.free[node][at]
                    return demand.fleet.weight[node], free[2], free[0], node

                return [(min(fits, key=rank), demand.tasks, demand.need.gpus_total[0])]
        return choose(demand, view, barred)

    def earliest(
        self, demand: Demand, duration: int, not_before: int, barred_until: dict[int, int]
    ) -> tuple[int, list[Pick]] | None:
        for second in range(self.second(not_before), SECONDS):
            picks = self.place(demand, BEGIN + second, BEGIN + second + duration, barred_until)
            if picks is not None:
                return FAR if second == SECONDS - 1 else BEGIN + second, picks
        return None


def answer(found: Found | None) -> tuple[int, list[Pick]] | None:
    return None if found is None else (found.start, found.picks)


lengths = st.integers(1, 12) | st.just(UNLIMITED)
moments = st.integers(BEGIN, BEGIN + SECONDS - 14)


@st.composite
def shares(draw: st.DrawFn, fleet: Fleet) -> tuple[Row, int, int]:
    node = draw(st.integers(0, fleet.size - 1))
    kind = fleet.kinds[fleet.kind[node]]
    start = draw(moments)
    end = draw(st.integers(start + 1, start + 12) | st.just(FAR))
    cpus, memory = draw(st.integers(0, kind.cpus)), draw(st.sampled_from((0, 100, 400)))
    return (end, node, cpus, memory, (draw(st.integers(0, kind.gpus[0])),)), start, end


@SLOW
@given(st.data())
def test_profiles_are_what_every_second_says(data: st.DataObject) -> None:
    fleet = data.draw(fleets())
    held = data.draw(st.lists(shares(fleet), max_size=6))
    oracle = Oracle(fleet)
    view = fleet.capacity()
    for row, _, end in held:
        oracle.change(row, BEGIN, end, -1)
        view.cpus[row[1]] -= row[2]
        view.memory[row[1]] -= row[3]
        view.gpus[0][row[1]] -= row[4][0]
    profiles = Profiles(fleet, BEGIN - 7)
    profiles.reset(view, [row for row, _, _ in held], BEGIN)
    now = BEGIN
    taken: list[tuple[Row, int, int]] = [(row, BEGIN, end) for row, _, end in held]
    for _ in range(data.draw(st.integers(0, 25))):
        what = data.draw(st.sampled_from(("take", "take", "take", "give", "pass")))
        if what == "take":
            row, start, end = data.draw(shares(fleet))
            profiles.take(row, start, end)
            oracle.change(row, start, end, -1)
            taken.append((row, start, end))
        elif what == "give" and taken:
            row, start, end = taken.pop(data.draw(st.integers(0, len(taken) - 1)))
            start = max(start, data.draw(moments))
            if start < end:
                profiles.give(row, start, end)
                oracle.change(row, start, end, 1)
        elif what == "pass":
            now = min(now + data.draw(st.integers(0, 3)), BEGIN + SECONDS - 14)
            profiles.advance(now)
    for one in (profiles, profiles.copy()):
        for node in range(fleet.size):
            assert one.steps(node) == oracle.steps(node, now)
        start, length = max(now, data.draw(moments)), data.draw(st.integers(1, 12))
        least, wanted = one.window(start, start + length), oracle.view(start, start + length)
        assert [list(least.cpus), list(least.memory)] == [wanted.cpus, wanted.memory]
        assert list(least.gpus[0]) == wanted.gpus[0]


@SLOW
@given(st.data())
def test_the_shares_of_a_job_are_taken_at_once_as_they_are_one_by_one(data: st.DataObject) -> None:
    nodes = [Node(index=index, spec=a_node_spec(f"n{index}", cpus=8, memory_mib=1000, gpus=4)) for index in range(7)]
    fleet = Fleet(nodes)
    one_by_one, at_once = Profiles(fleet, BEGIN), Profiles(fleet, BEGIN)
    assert at_once.free_now.shape == (3, 7)
    for _ in range(data.draw(st.integers(1, 12))):
        row, start, end = data.draw(shares(fleet))
        among = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True))
        rows = [(end, node, row[2] * (1 + number % 2), row[3], row[4]) for number, node in enumerate(among)]
        for one in rows:
            one_by_one.take(one, start, end)
        at_once.take_all(rows, start, end)
        now = data.draw(st.just(at_once.now) | moments)
        for profiles in (one_by_one, at_once):
            profiles.advance(now)
    assert [at_once.steps(node) for node in range(7)] == [one_by_one.steps(node) for node in range(7)]
    assert at_once.free_now.T.tolist() == [list(at_once.steps(node)[0][1]) for node in range(7)]
    assert (at_once.log == one_by_one.log).all()


@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_is_remembered_does_not_change_a_plan_of_many_nodes(dice: random.Random) -> None:
    """More nodes than are compared at once, some of them alike; jobs end early and time passes."""
    specs = [
        a_node_spec(f"n{index}", cpus=8, memory_mib=1000, gpus=4 * (index % 3 == 0), weight=1 + dice.randrange(8) // 7)
        for index in range(150)
    ]
    fleet = Fleet([Node(index=index, spec=spec) for index, spec in enumerate(specs)])
    given_settings = Settings(topologies=(a_tree((50, 50, 50)),) if dice.random() < 0.5 else ())
    partition = a_partition(nodes=fleet.size)
    asked = [
        demand_of(fleet, given_settings, partition, request)
        for request in (
            Request(cpus_per_task=3, memory_per_node_mib=100),
            Request(cpus_per_task=8, memory_per_node_mib=100),
            Request(cpus_per_task=1, memory_per_node_mib=300, gpus_per_node=(GpuRequest("", 2),)),
            Request(cpus_per_task=4, memory_per_node_mib=10, nodes_min=40, nodes_max=40),
            Request(cpus_per_task=4, memory_per_node_mib=10, nodes_min=20, nodes_max=20, ntasks=20),
            Request(cpus_per_task=1, memory_per_node_mib=50, ntasks=30),
        )
    ]
    profiles = Profiles(fleet, BEGIN)
    searches = [Search(profiles), Search(profiles, cached=False)]
    taken: list[tuple[Row, int, int]] = []
    for _ in range(60):
        demand, duration = dice.choice(asked), dice.choice((5, 9, 20, 60, UNLIMITED))
        begin = profiles.now + dice.choice((0, 0, 0, 7, 30))
        barred = {dice.randrange(150): profiles.now + dice.randrange(50) for _ in range(dice.choice((0, 0, 3)))}
        found = [search.earliest(demand, duration, begin, barred_until=barred) for search in searches]
        assert answer(found[0]) == answer(found[1])
        if found[0] is not None and found[0].start < FAR:
            start = found[0].start
            end = FAR if duration == UNLIMITED else start + duration
            rows = held_rows(demand, found[0].picks, end)
            profiles.take_all(rows, start, end)
            taken += [(row, start, end) for row in rows]
        if taken and dice.random() < 0.2:
            row, start, end = taken.pop(dice.randrange(len(taken)))
            profiles.give(row, max(start, profiles.now), end)
        if dice.random() < 0.2:
            profiles.advance(profiles.now + dice.randrange(4))
        if dice.random() < 0.02:
            profiles.forget_log()
    assert int(profiles.data[:, 1:].min(2, where=profiles.data[:, :1] < PAD, initial=0).min()) >= 0


@SLOW
@given(st.data())
def test_the_earliest_start_is_the_earliest(data: st.DataObject) -> None:
    """A plan is made, time passes, jobs end early, and the answers stay those of the oracle, remembered or not."""
    fleet = data.draw(fleets())
    profiles, oracle = Profiles(fleet, BEGIN), Oracle(fleet)
    searches = [Search(profiles), Search(profiles, cached=False)]
    asked = demands(
        fleet,
        data.draw(st.lists(requests(), min_size=1, max_size=4)),
        lln=data.draw(st.sampled_from((False, False, True))),
    )
    taken: list[tuple[Row, int, int]] = []
    now = BEGIN
    for _ in range(data.draw(st.integers(1, 14)) if asked else 0):
        what = data.draw(st.sampled_from(("job", "job", "job", "job", "end", "pass")))
        if what == "end" and taken:
            row, start, end = taken.pop(data.draw(st.integers(0, len(taken) - 1)))
            start = max(start, now)
            if start < end:
                profiles.give(row, start, end)
                oracle.change(row, start, end, 1)
        elif what == "pass":
            now = min(now + data.draw(st.integers(0, 3)), BEGIN + SECONDS - 14)
            profiles.advance(now)
        elif what == "job":
            demand, duration = data.draw(st.sampled_from(asked)), data.draw(lengths)
            length = FAR if duration == UNLIMITED else duration
            begin = data.draw(st.just(now) | moments)
            close = data.draw(st.none() | moments)
            barred = data.draw(st.just({}) | st.dictionaries(st.integers(0, fleet.size - 1), moments, max_size=3))
            wanted = oracle.earliest(demand, length, max(now, begin), barred)
            if wanted is not None and close is not None and wanted[0] > close:
                wanted = None
            for search in searches:
                found = search.earliest(demand, duration, begin, barred_until=barred, window_end=close)
                assert answer(found) == wanted
            if wanted is None or wanted[0] == FAR or wanted[0] > BEGIN + SECONDS - 14:
                continue
            start, end = wanted[0], min(FAR, wanted[0] + length)
            for row in held_rows(demand, wanted[1], end):
                profiles.take(row, start, end)
                oracle.change(row, start, end, -1)
                taken.append((row, start, end))
            assert all(min(second) >= 0 for node in oracle.free for second in node)

"""Profiles: what is free on each node over time."""

from __future__ import annotations

import numpy as np

from ctld.core.cluster import Node
from ctld.sched.fleet import Fleet
from ctld.sched.profiles import Profiles
from ctld.sched.releases import FAR, Row
from tests.builders import a_node_spec


def made(nodes: int = 2) -> Profiles:
    specs = [a_node_spec(f"n{index + 1}", cpus=8, memory_mib=1000, gpus=2) for index in range(nodes)]
    return Profiles(Fleet([Node(index=index, spec=spec) for index, spec in enumerate(specs)]), 100)


def share(cpus: int, node: int = 0) -> Row:
    return (0, node, cpus, 10 * cpus, (cpus // 4,))


def test_steps_are_cut_and_joined() -> None:
    profiles = made()
    profiles.take(share(4), 150, 200)
    profiles.take(share(4), 200, 250)
    assert profiles.steps(0) == [(100, (8, 1000, 2)), (150, (4, 960, 1)), (250, (8, 1000, 2))]
    profiles.give(share(4), 180, 200)
    assert [time for time, _ in profiles.steps(0)] == [100, 150, 180, 200, 250]
    profiles.give(share(4), 150, 180)
    profiles.give(share(4), 200, 250)
    assert profiles.steps(0) == [(100, (8, 1000, 2))]


def test_what_has_no_end_comes_free_at_far() -> None:
    profiles = made()
    profiles.take(share(8), 120, FAR)
    assert profiles.steps(0) == [(100, (8, 1000, 2)), (120, (0, 920, 0)), (FAR, (8, 1000, 2))]
    assert profiles.window(100, FAR).cpus == [0, 8]
    assert profiles.window(FAR, FAR).cpus == [8, 8]
    profiles.take(share(8), FAR, FAR)
    assert profiles.window(FAR, FAR).cpus == [8, 8]


def test_a_closed_node_is_unusable_until_it_is_opened() -> None:
    profiles = made()
    profiles.take(share(4), 120, 130)
    profiles.close([0, 0])
    assert max(profiles.window(FAR, FAR).cpus[:1]) < 0
    profiles.take(share(2), 110, 140)
    profiles.open([0])
    assert [(time, free[0]) for time, free in profiles.steps(0)] == [(100, 8), (110, 6), (120, 2), (130, 6), (140, 8)]


def test_no_step_is_lost_and_the_past_is_forgotten() -> None:
    profiles = made()
    for second in range(1000):
        profiles.take(share(1 + second % 2), 110 + 2 * second, 111 + 2 * second)
    assert len(profiles.steps(0)) == 2001
    profiles.advance(2000)
    assert profiles.steps(0)[0] == (2000, (6, 980, 2))
    slots = profiles.data.shape[2]
    for second in range(10_000):
        profiles.advance(2100 + second)
        profiles.take(share(1), 2101 + 2 * second, 2102 + 2 * second)
        profiles.give(share(1), 2101 + 2 * second, 2102 + 2 * second)
        profiles.take(share(1), 2110 + second, 2112 + second)
    assert profiles.data.shape[2] == slots


def test_running_jobs_come_free_by_node_and_end() -> None:
    profiles = made(3)
    view = profiles.fleet.capacity()
    rows: list[Row] = [(130, 1, 2, 20, (1,)), (130, 1, 1, 10, (0,)), (50, 2, 3, 0, (0,)), (FAR, 1, 5, 0, (0,))]
    for _, node, cpus, memory, gpus in rows:
        view.cpus[node] -= cpus
        view.memory[node] -= memory
        view.gpus[0][node] -= gpus[0]
    profiles.reset(view, rows, 100)
    assert profiles.steps(0) == [(100, (8, 1000, 2))]
    assert profiles.steps(1) == [(100, (0, 970, 1)), (130, (3, 1000, 2)), (FAR, (8, 1000, 2))]
    assert profiles.steps(2) == [(100, (5, 1000, 2)), (101, (8, 1000, 2))]
    assert profiles.fits(np.array([0, 1, 2]), (6, 0, (2,)), 101, 200).tolist() == [True, False, True]

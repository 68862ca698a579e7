"""Simulated clusters, each from a seed. `MUSTER_SIM_SEED=17 pytest tests/sim` runs seed 17 again, alone."""

from __future__ import annotations

import os

import pytest

from tests.sim.cluster import Cluster, Size

SEEDS = 200
_CHUNK = 10
_WANTED = os.environ.get("MUSTER_SIM_SEED", "")
_CHUNKS = [range(first, first + _CHUNK) for first in range(0, SEEDS, _CHUNK)]
BIG = Size(nodes=200, jobs=5000, span=900.0, longest=240.0, fault_every=4.0, act_every=4.0, pass_gap=1.0)


@pytest.mark.skipif(bool(_WANTED), reason="one seed was asked for")
@pytest.mark.parametrize("seeds", _CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_a_cluster_that_breaks_all_the_time_loses_nothing_and_runs_nothing_twice(seeds: range) -> None:
    for seed in seeds:
        Cluster(seed).live()


@pytest.mark.skipif(not _WANTED, reason="MUSTER_SIM_SEED names none")
def test_the_seed_asked_for() -> None:
    Cluster(int(_WANTED)).live()


def test_a_seed_tells_the_same_story_every_time() -> None:
    first, second = Cluster(4), Cluster(4)
    first.live()
    second.live()
    assert first.disk.events == second.disk.events


@pytest.mark.slow
@pytest.mark.skipif(bool(_WANTED), reason="one seed was asked for")
def test_two_hundred_nodes_and_five_thousand_jobs_come_to_their_end() -> None:
    cluster = Cluster(1, BIG)
    cluster.live()
    assert len(cluster.truth.acknowledged) > 4000

"""Preemption on small random clusters against plain counting: what is taken suffices, and nothing of it in vain."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ctld.core import ranges
from ctld.core.model import GpuRequest, Job
from ctld.core.plan import Preempt
from ctld.sched.lost import lost_work
from muster.states import JobState
from tests.preempting import Cluster

CPUS, GPUS, NODES = 8, 4, 3


def filled(seed: int, **rules: Any) -> tuple[Cluster, Preempt | None]:
    """A full cluster of jobs that began at different times, and what a job of a higher tier takes."""
    rng = random.Random(seed)
    cluster = Cluster(NODES, cpus=CPUS, gpus=GPUS, **rules)
    for _ in range(rng.randint(4, 9)):
        cluster.at += rng.randint(1, 500)
        cluster.put(**shape(rng))
    cluster.at += rng.randint(1, 500)
    return cluster, cluster.wants(**shape(rng))


def shape(rng: random.Random) -> dict[str, Any]:
    nodes = rng.choice([1, 1, 1, 2, 3])
    gpus = rng.choice([0, 0, 1, 2, 4])
    return {
        "nodes_min": nodes,
        "nodes_max": nodes,
        "ntasks_per_node": rng.choice([1, 2, 4, 8]),
        "gpus_per_node": (GpuRequest("", gpus),) if gpus else (),
    }


def fits_without(cluster: Cluster, job: Job, gone: set[int]) -> bool:
    """Count plainly whether the job has room when these have gone: as many nodes as it wants have what it needs."""
    request = job.spec.request
    room = 0
    for node in range(NODES):
        cpus, gpus = CPUS, GPUS
        for other in cluster.state.jobs.values():
            if JobState.PENDING < other.state <= JobState.SUSPENDED and other.id not in gone and other.alloc:
                for share in other.alloc.shares:
                    if share.node == node:
                        cpus -= share.cpus
                        gpus -= ranges.count(share.gpus) if share.gpus else 0
        wanted = sum(one.count for one in request.gpus_per_node)
        room += cpus >= request.ntasks_per_node and gpus >= wanted
    return room >= request.nodes_min


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_victims_suffice_and_none_goes_in_vain(seed: int, thrifty: bool, youngest: bool) -> None:
    cluster, made = filled(seed, cost_aware=thrifty, youngest_first=youngest)
    job = cluster.of(cluster.wanting)
    if job.state == JobState.RUNNING:
        return
    low = {int(one.id) for one in cluster.state.jobs.values() if one.alloc is not None and one.id != job.id}
    assert (made is not None) == fits_without(cluster, job, low), "it preempts if and only if that helps"
    if made is None:
        return
    victims = {int(victim.job_id) for victim in made.victims}
    assert fits_without(cluster, job, victims)
    for victim in victims:
        assert not fits_without(cluster, job, victims - {victim}), f"{victim} goes in vain"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_thrifty_choice_loses_the_least_that_is_possible(seed: int) -> None:
    cluster, made = filled(seed, cost_aware=True)
    plain, usual = filled(seed)
    if made is None or usual is None:
        assert made is usual is None
        return
    job = cluster.of(cluster.wanting)
    lost = {
        int(one.id): lost_work(one, "CANCEL", cluster.at)
        for one in cluster.state.jobs.values()
        if one.alloc is not None and one.id != job.id
    }

    def total(some: Iterable[int]) -> int:
        return sum(lost[int(one)] for one in some)

    mine = total(victim.job_id for victim in made.victims)
    assert mine <= total(victim.job_id for victim in usual.victims)
    every = (set(some) for count in range(1, len(lost) + 1) for some in combinations(lost, count))
    assert mine == min(total(some) for some in every if fits_without(cluster, job, some))
    assert plain.at == cluster.at


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["CANCEL", "REQUEUE", "SUSPEND"]))
def test_the_preemptor_starts_where_it_was_promised_whoever_comes_meanwhile(seed: int, mode: str) -> None:
    cluster, made = filled(seed, mode=mode)
    if made is None:
        return
    rng = random.Random(seed + 1)
    for victim in made.victims:
        for _ in range(rng.randint(0, 2)):
            cluster.put(rng.choice(["low", "high"]), **shape(rng))
        if mode != "SUSPEND":
            cluster.leave(victim.job_id)
        cluster.pass_()
    job = cluster.of(cluster.wanting)
    assert job.state == JobState.RUNNING
    assert job.alloc is not None
    assert job.alloc.shares == made.shares

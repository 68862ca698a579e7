"""The plainest planner over the product's profiles, pools and search: job by job in order of priority."""

from __future__ import annotations

from dataclasses import dataclass

from bench.mix import Mix
from ctld.sched.demand import Demand, demand_of
from ctld.sched.fleet import Fleet, free_view
from ctld.sched.pools import Claim, Pools
from ctld.sched.profiles import Profiles
from ctld.sched.releases import FAR, Row, end_of
from ctld.sched.search import Found, Search, held_rows
from tests.builders import NOON


@dataclass(slots=True)
class Planned:
    """What a plan came to."""

    starts: dict[int, tuple[int, list[tuple[int, int, int]]]]
    """Job id -> start and picks."""
    pending: int
    profiles: Profiles
    searches: int = 0


def running_rows(mix: Mix, fleet: Fleet) -> list[Row]:
    """Give the shares of running jobs with their ends."""
    rows: list[Row] = []
    jobs = mix.state.jobs
    for job_id in mix.state.running:
        job = jobs[job_id]
        assert job.alloc is not None
        end = end_of(job.started_at, job.limit_seconds)
        for share in job.alloc.shares:
            gpus = share.gpus[1] - share.gpus[0] + 1 if share.gpus else 0
            rows.append((end, share.node, share.cpus, share.memory_mib, (gpus,)))
    return rows


def prepared(mix: Mix) -> tuple[Fleet, Profiles, Pools]:
    """Give the profiles and pools of the running jobs."""
    fleet = Fleet(mix.state.nodes)
    profiles = Profiles(fleet, NOON)
    profiles.reset(free_view(fleet, mix.state.free, 0), running_rows(mix, fleet), NOON)
    pools = Pools()
    for job_id in mix.state.running:
        job = mix.state.jobs[job_id]
        pools.take(mix.claims(job), NOON, end_of(job.started_at, job.limit_seconds))
    return fleet, profiles, pools


def plan(
    mix: Mix,
    *,
    cached: bool = True,
    whole_nodes: bool = False,
    most: int = 1 << 62,
    window: int | None = None,
    ready: tuple[Fleet, Profiles, Pools] | None = None,
) -> Planned:
    """Plan the whole queue (or its first `most` jobs)."""
    fleet, profiles, pools = ready or prepared(mix)
    state = mix.state
    search = Search(profiles, cached=cached)
    demands: dict[tuple[object, str], Demand] = {}
    queue = sorted((-state.jobs[job_id].priority, job_id) for job_id in state.queue)[:most]
    made = Planned({}, len(queue), profiles)
    last = None if window is None else NOON + window
    for _, job_id in queue:
        job = state.jobs[job_id]
        request, name = job.spec.request, job.spec.partitions[0]
        demand = demands.get((request, name))
        if demand is None:
            demand = demands[request, name] = demand_of(fleet, state.settings, state.partitions[name], request)
        claims = mix.claims(job)
        found = earliest(search, pools, (demand, job.limit_seconds, claims), last, made)
        if found is None:
            continue
        made.starts[job_id] = (found.start, found.picks)
        if found.start >= FAR:
            continue
        end = end_of(found.start, job.limit_seconds)
        whole = whole_nodes and found.start > NOON
        profiles.take_all(held_rows(demand, found.picks, end, whole_nodes=whole), found.start, end)
        pools.take(claims, found.start, end)
    return made


def earliest(
    search: Search, pools: Pools, asked: tuple[Demand, int, list[Claim]], last: int | None, made: Planned
) -> Found | None:
    """Give the first start at which both the nodes and the pools have room."""
    demand, seconds, claims = asked
    start = pools.earliest(claims, seconds, NOON)
    while start is not None:
        made.searches += 1
        found = search.earliest(demand, seconds, start, window_end=last)
        if found is None:
            return None
        if start == found.start:
            return found
        start = pools.earliest(claims, seconds, found.start)
        if start == found.start:
            return found
    return None

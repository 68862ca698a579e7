"""The large job always starts: small jobs cannot keep it waiting for longer than the configuration says."""

from __future__ import annotations

import random
from pathlib import Path

from ctld.sim.machine import from_file, plain
from ctld.sim.replay import replay
from ctld.sim.workload import Asks, TraceJob, in_order

NODES = 64
HOUR, DAY = 3600, 86_400
MONTH = 30 * DAY
LIMIT = DAY
"""The longest time limit: all that may pass once the large job is the first in line."""


def test_a_stream_of_small_jobs_does_not_keep_a_gang_of_all_nodes_waiting() -> None:
    dice = random.Random(11)
    asks = Asks()
    begin = 1_700_000_000
    small = asks.get(nodes=[1, 1], ntasks=1)
    jobs, at = [], begin
    # 12 hours each on 64 nodes at 97 % load: never are all nodes free by chance.
    while at < begin + MONTH:
        runtime = dice.randrange(LIMIT)
        jobs.append(TraceJob("small", at, runtime, small, min(LIMIT, 2 * runtime + 60)))
        at += int(dice.expovariate(0.97 * NODES / (LIMIT / 2)))
    gangs = [
        TraceJob("gang", begin + day * DAY, 6 * HOUR, asks.get(nodes=[NODES, NODES], ntasks=NODES), 8 * HOUR)
        for day in (4, 12, 20)
    ]
    workload = in_order([*jobs, *gangs])
    outcome = replay(plain(NODES, 1), workload)
    for gang in gangs:
        place = workload.index(gang)
        first_in_line = max([gang.submitted_at, *outcome.start[:place]])
        assert outcome.start[place] <= first_in_line + LIMIT
        assert outcome.start[place] <= outcome.promised[place]
        assert len(outcome.shares[place]) == NODES
    assert sum(outcome.backfilled) > len(gangs)


PREFERS_SMALL = """\
ClusterName=c
SlurmctldHost=h
MaxJobCount=1000000
PriorityWeightJobSize=100000
PriorityFavorSmall=YES
NodeName=n[1-16] CPUs=1
PartitionName=p Nodes=ALL Default=YES MaxTime=12:00:00
"""
FEW = 16


def test_max_queue_wait_bounds_the_wait_of_a_job_that_every_small_one_would_pass(tmp_path: Path) -> None:
    """Small jobs have the higher priority and come faster than they can be run, until the stream ends."""
    dice = random.Random(5)
    asks = Asks()
    begin, longest, bound = 1_700_000_000, 12 * HOUR, DAY
    small = asks.get(nodes=[1, 1], ntasks=1)
    jobs, at = [], begin
    while at < begin + 8 * DAY:
        runtime = dice.randrange(60, longest)
        jobs.append(TraceJob("small", at, runtime, small, min(longest, 2 * runtime)))
        at += int(dice.expovariate(1.1 * FEW / (longest / 2)))
    gangs = [
        TraceJob("gang", begin + day * DAY, HOUR, asks.get(nodes=[size, size], ntasks=size), 2 * HOUR)
        for day, size in ((1, 12), (3, 16), (5, 16))
    ]
    workload = in_order([*jobs, *gangs])
    conf = tmp_path / "muster.conf"

    def waits(extra: str) -> list[int]:
        conf.write_text(PREFERS_SMALL + extra)
        outcome = replay(from_file(conf), workload)
        places = [workload.index(gang) for gang in gangs]
        assert all(len(outcome.shares[place]) == len(set(outcome.shares[place])) >= 12 for place in places)
        return [outcome.start[place] - gang.submitted_at for place, gang in zip(places, gangs, strict=True)]

    assert min(waits("")) > bound + longest
    assert max(waits("SchedulerParameters=max_queue_wait=1-0\n")) <= bound + longest

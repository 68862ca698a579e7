"""The large job always starts: small jobs cannot keep it waiting for longer than the configuration says."""

from __future__ import annotations

import random

from ctld.sim.machine import plain
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

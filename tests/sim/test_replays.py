"""Recorded workloads: exact against a reference where one exists, else as good as prototypes of the same policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path

import pytest

from ctld.sim.machine import from_nodes, plain
from ctld.sim.workload import TraceJob
from tests.replays import FULL, judged, trace, with_settings

pytestmark = pytest.mark.replay

KTH = "KTH-SP2-1996-2.1-cln.swf.gz"
OCTOBER = (1506816000, 1509494400)
"""2017-10-01 to 2017-11-01 UTC."""


def first_come_first_served(jobs: Sequence[TraceJob], processors: int) -> list[int]:
    """The reference: each job starts in order of submission, when enough processors are free."""
    starts: list[int] = []
    ends: list[tuple[int, int]] = []
    free, now = processors, 0
    for job in jobs:
        wanted = job.ask.ntasks or 1
        limit = job.limit_seconds or 0
        now = max(now, job.submitted_at)
        while ends and (ends[0][0] <= now or free < wanted):
            end, given = heappop(ends)
            free += given
            now = max(now, end)
        starts.append(now)
        free -= wanted
        heappush(ends, (now + min(job.runtime, limit), wanted))
    return starts


@pytest.mark.parametrize(
    ("name", "processors", "nodes", "cut"),
    [
        (KTH, 100, 1, 3000),
        (KTH, 100, 100, 500),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 1, 3000),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 128, 500),
        ("lublin_256.swf.gz", 256, 1, 1500),
        ("LANL-CM5-1994-4.1-cln.swf.gz", 1024, 1, 3000),
        ("theta-2018-sampled.swf.gz", 4360, 1, 2000),
    ],
)
def test_first_come_first_served_is_exact(name: str, processors: int, nodes: int, cut: int) -> None:
    jobs = trace(name, cut)
    machine = with_settings(plain(nodes, processors // nodes), backfill=False)
    outcome, _ = judged(machine, jobs)
    assert outcome.start == first_come_first_served(jobs.jobs, processors)


def test_kth_with_one_reservation() -> None:
    """EASY on 100 one-core nodes: prototypes had a mean wait of 6,859 s on the whole log."""
    jobs = trace(KTH, 2500)
    _, found = judged(from_nodes(jobs.nodes, jobs.name), jobs)
    wait, slowdown = (7100, 95) if FULL else (8000, 125)
    assert found.waits.wait_mean <= wait
    assert found.waits.slowdown_mean <= slowdown


def test_a_week_on_217_nodes() -> None:
    """UB-HPC: nodes of five kinds, features, memory, GPUs, two partitions."""
    jobs = trace("ubhpc_week.events.gz", 4000)
    policy = Path(__file__).parents[1] / "data" / "sim" / "week.conf"
    _, found = judged(from_nodes(jobs.nodes, jobs.name, policy), jobs)
    assert found.utilisation_cpu >= 0.70
    # The first days are the most crowded.
    assert found.waits.slowdown_mean <= (95 if FULL else 350)


def test_a_month_of_gpu_jobs() -> None:
    """Philly, October 2017, on 60 nodes of 8 GPUs."""
    whole = trace("philly-2017-part1.csv.gz", 100_000)
    month = [job for job in whole.jobs if OCTOBER[0] <= job.submitted_at < OCTOBER[1]]
    jobs = replace(whole, jobs=tuple(month if FULL else month[:6000]))
    _, found = judged(plain(60, 64, gpus=8), jobs)
    assert found.utilisation_gpu is not None
    # The cut's jobs come in the first days and the last of them run for weeks.
    use, slowdown = (0.91, 150) if FULL else (0.53, 45)
    assert found.utilisation_gpu >= use
    assert found.waits.slowdown_mean <= slowdown

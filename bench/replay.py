"""How fast `muster sim` replays a real week: jobs per CPU second of one process, reading not counted."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench import traces
from bench.measure import Taken, median, note, rounded
from ctld.sim.machine import Machine, from_nodes
from ctld.sim.reading import read_trace
from ctld.sim.replay import replay
from ctld.sim.workload import Asks, Trace, TraceJob, TraceNodes, in_order

WEEK = "ubhpc_week.events.gz"
_POLICY = traces.ROOT / "tests" / "data" / "sim" / "week.conf"
_JOBS = 19_579
_SHAPES = 168
_WEEK_SECONDS = 604_800


def replay_week(quick: bool) -> Taken:
    """Replay the week (a tenth of it) on its 217 nodes."""
    folder = traces.folder()
    recorded = folder is not None and (folder / WEEK).is_file()
    trace = read_trace(folder / WEEK) if folder is not None and recorded else _made_up()
    if not recorded:
        note(f"{WEEK} is not here (name its folder in MUSTER_TRACES): a made-up week takes its place")
    jobs = trace.jobs[: len(trace.jobs) // 10] if quick else trace.jobs
    machine = from_nodes(trace.nodes, trace.name, _POLICY)
    rates, plans, passes = [], [], 0
    for number in range(1 if quick else 3):
        rate, plan, passes = _once(machine, jobs)
        note(f"replay {number + 1}: {rate:.0f} jobs per CPU second")
        rates.append(rate)
        plans.append(plan)
    return Taken(
        rounded(median(rates)),
        rounded(max(rates) - min(rates)),
        {
            "jobs": len(jobs),
            "passes": passes,
            "share_of_passes": rounded(median(plans)),
            "us_a_job_beside_passes": rounded((1 - median(plans)) / median(rates) * 1e6),
            "workload": trace.name,
        },
    )


def _once(machine: Machine, jobs: Sequence[TraceJob]) -> tuple[float, float, int]:
    """Give jobs per CPU second, the share of the passes in that time, and how many there were."""
    outcome = replay(machine, jobs)
    return len(jobs) / outcome.cpu_seconds, outcome.plan_seconds / outcome.cpu_seconds, outcome.passes


def _made_up() -> Trace:
    """Make a week of the same size on nodes of the same kinds."""
    dice = random.Random(7)
    asks = Asks()
    shapes = []
    for _ in range(_SHAPES):
        nodes = dice.choice((1, 1, 1, 1, 1, 2, 4))
        tasks = dice.choice((1, 2, 4, 8, 16, 32))
        limit = dice.choice((3600, 4 * 3600, 86_400, 259_200))
        ask = asks.get(nodes=[nodes, nodes], ntasks=nodes * tasks, mem=dice.choice((100, 3_000, 48_000, 187_000)))
        shapes.append((ask, limit))
    jobs = []
    for number in range(_JOBS):
        ask, limit = dice.choice(shapes)
        at = 1_000_000_000 + dice.randrange(_WEEK_SECONDS)
        runtime = 1 + int(limit * dice.random() ** 3)
        jobs.append(TraceJob(str(number), at, runtime, ask, limit, f"user{dice.randrange(60)}"))
    nodes_there = (
        TraceNodes("n[001-087]", 32, 187_000),
        TraceNodes("m[001-096]", 40, 187_000),
        TraceNodes("b[001-024]", 40, 754_000),
        TraceNodes("g[001-010]", 40, 187_000, 2),
    )
    return Trace("made-up week", in_order(jobs), nodes_there)

#!/usr/bin/env python3
"""How long one scheduling pass takes, in CPU time of this process.

Usage: python bench/sched_pass.py [--nodes 1000] [--pending 10000] [--classes 1000] [--profile CASE]
Prints one line a case: full passes over arrays on 8 nodes, a queue in which nothing fits, and events (one job ends,
one pass) on a full cluster. CASE is array, one, stuck or events.
"""

from __future__ import annotations

import argparse
import cProfile
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ctld.core.model import GpuRequest
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_state
from tests.placing import carried_out, ended, everywhere, queued


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--profile", default="", choices=("", "array", "one", "stuck", "events"))
    given = parser.parse_args()
    profile = cProfile.Profile()
    if given.profile in ("", "array"):
        for fits in (8, 16, 64):
            array(fits, profile if given.profile else None)
    if given.profile in ("", "one"):
        one_by_one(profile if given.profile else None)
    if given.profile in ("", "stuck"):
        stuck(profile if given.profile else None)
    if given.profile in ("", "events"):
        events(given.nodes, given.pending, given.classes, profile if given.profile else None)
    if given.profile:
        profile.print_stats("tottime")


def array(fits: int, profile: cProfile.Profile | None) -> None:
    """A pending array of 100,000 members on 8 nodes, of which `fits` can start."""
    state = a_state(8, cpus=fits // 8, gpus=0)
    queued(state, a_job(1, array=(0, 99_999), memory_per_cpu_mib=1, limit_seconds=60))
    times = measure(state, PlanMemory(), 200, profile)
    starts = len(plan(state, UnixTime(NOON), reachable=everywhere(state)).starts)
    report(f"array, {starts} starts on 8 nodes", times, f"{times[len(times) // 2] / starts * 1e6:.1f} us a start")


def one_by_one(profile: cProfile.Profile | None) -> None:
    """The same array on 64 cores, one member ending and one starting at a time."""
    state = a_state(8, cpus=8, gpus=0)
    queued(state, a_job(1, array=(0, 99_999), memory_per_cpu_mib=1, limit_seconds=60))
    memory = PlanMemory()
    carried_out(state, plan(state, UnixTime(NOON), reachable=everywhere(state), memory=memory))
    times = []
    for _ in range(1000):
        ended(state, next(iter(state.running)))
        begin = time.process_time()
        if profile:
            profile.enable()
        made = plan(state, UnixTime(NOON), reachable=everywhere(state), memory=memory)
        if profile:
            profile.disable()
        times.append(time.process_time() - begin)
        carried_out(state, made)
    report("array, one end and one start on 8 nodes", sorted(times))


def stuck(profile: cProfile.Profile | None) -> None:
    """100,000 pending jobs in 10 classes on 8 full nodes."""
    state = a_state(8, cpus=8, gpus=0)
    queued(state, a_job(1, array=(0, 63), memory_per_cpu_mib=1, limit_seconds=3600))
    carried_out(state, plan(state, UnixTime(NOON), reachable=everywhere(state)))
    first = max(state.jobs) + 1
    jobs = (
        a_job(first + n, cpus_per_task=1 + n % 2, limit_seconds=60 * (1 + n % 10), memory_per_cpu_mib=1)
        for n in range(100_000)
    )
    queued(state, *jobs)
    memory = PlanMemory()
    report(
        f"stuck, {len(state.queue)} jobs in {len(state.queue.classes)} classes", measure(state, memory, 200, profile)
    )


def events(nodes: int, pending: int, classes: int, profile: cProfile.Profile | None) -> None:
    """A full cluster with a mixed queue: one job ends, one pass, its starts carried out."""
    dice = random.Random(7)
    state = a_state(nodes, cpus=64, gpus=8)
    memory = PlanMemory()
    shapes: list[dict[str, object]] = []
    for _ in range(classes):
        shape: dict[str, object] = {"limit_seconds": dice.choice((600, 3600, 7200, 43200)) + 60 * dice.randrange(60)}
        kind = dice.random()
        if kind < 0.5:
            shape |= {
                "cpus_per_task": dice.choice((1, 2, 4, 8, 16, 32)),
                "memory_per_cpu_mib": dice.choice((1000, 2000, 3000)),
            }
        elif kind < 0.8:
            shape |= {
                "gpus_per_node": (GpuRequest("", dice.choice((1, 2, 4, 8))),),
                "cpus_per_task": 4,
                "memory_per_node_mib": 16_000,
            }
        elif kind < 0.9:
            shape |= {"ntasks": dice.randrange(2, 200), "memory_per_cpu_mib": 1000}
        else:
            count = dice.choice((2, 4, 8, 16))
            shape |= {"nodes_min": count, "nodes_max": count, "exclusive": "node", "memory_per_node_mib": 0}
        shapes.append(shape)
    number = 0
    at = int(NOON)

    def submit(count: int) -> None:
        nonlocal number
        for _ in range(count):
            number = max(number, 0) + 1
            queued(state, a_job(number, priority=dice.randrange(1, 1000), **dice.choice(shapes)))  # type: ignore[arg-type]

    submit(pending)
    begin = time.process_time()
    made = plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)
    took = (time.process_time() - begin) * 1e3
    print(f"first pass, {nodes} nodes x {pending}: {len(made.starts)} starts in {took:.1f} ms")
    carried_out(state, made, at)
    while len(state.queue) < pending:
        submit(1)
    times = []
    starts = 0
    for _ in range(300):
        at += 1
        if state.running:
            ended(state, dice.choice(list(state.running)))
        begin = time.process_time()
        if profile:
            profile.enable()
        made = plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)
        if profile:
            profile.disable()
        times.append(time.process_time() - begin)
        starts += len(made.starts)
        carried_out(state, made, at)
        submit(len(made.starts))
    label = f"event, {nodes} nodes x {len(state.queue)} in {len(state.queue.classes)} classes, {len(state.running)} run"
    report(label, sorted(times), f"{starts} starts")


def measure(state: State, memory: PlanMemory, repeat: int, profile: cProfile.Profile | None) -> list[float]:
    """Give the sorted times of equal passes."""
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        if profile:
            profile.enable()
        plan(state, UnixTime(NOON), reachable=everywhere(state), memory=memory)
        if profile:
            profile.disable()
        times.append(time.process_time() - begin)
    return sorted(times)


def report(label: str, times: list[float], more: str = "") -> None:
    """Print median, 95th percentile and maximum."""
    shown = [times[len(times) // 2], times[len(times) * 95 // 100], times[-1]]
    print(f"{label}: p50 {shown[0] * 1e6:.0f} us, p95 {shown[1] * 1e6:.0f} us, max {shown[2] * 1e6:.0f} us {more}")


if __name__ == "__main__":
    main()

"""The event pass: one job ends or comes, one pass; how long the pass takes, and how that grows with the queue."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from msgspec import structs

from bench import mix
from bench.foreseen import real
from bench.measure import Taken, median, note, rounded
from ctld.core.model import Job
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from tests.builders import NOON
from tests.placing import carried_out, ended, everywhere, queued


def passes(nodes: int, pending: int, events: int, *, seed: int = 3) -> tuple[list[float], dict[str, object]]:
    """Give the CPU seconds of the passes after events, ascending, and what else is worth telling."""
    state, dice = real(mix.made(nodes, pending)), random.Random(seed)
    memory, at = PlanMemory(), int(NOON)
    begin = time.process_time()
    first = plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)
    took = time.process_time() - begin
    carried_out(state, first, at)
    plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)
    ids = sorted(state.queue)
    number = max(state.jobs)
    gc.collect()
    gc.freeze()
    gc.disable()
    times, starts = [], 0
    ends = [(_end(state.jobs[job_id]), job_id) for job_id in state.running]
    heapify(ends)
    for event in range(events):
        if event % 2:
            number += 1
            like = state.jobs.get(dice.choice(ids)) or state.jobs[next(iter(state.queue))]
            queued(state, structs.replace(like, id=number, priority=dice.randrange(1, 1_000_000)))
        else:
            # Half of them end early, the others at their limits: nobody runs longer.
            while ends[0][1] not in state.running:
                heappop(ends)
            early = ends[0][0] > at and dice.random() < 0.5
            at = at if early else max(at, ends[0][0])
            ended(state, dice.choice(list(state.running)) if early else ends[0][1])
        begin = time.process_time()
        found = plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)
        times.append(time.process_time() - begin)
        starts += len(found.starts)
        if found.starts:
            carried_out(state, found, at)
            for start in found.starts:
                if start.job_id in state.running:  # Of an array: its members are running, the rest waits on.
                    heappush(ends, (_end(state.jobs[start.job_id]), start.job_id))
    gc.enable()
    gc.unfreeze()
    by_kind = {name: _ms(sorted(times[first::2]), 0.5) for first, name in enumerate(("finish", "submit"))}
    times.sort()
    told: dict[str, object] = {
        "events": events, "starts": starts, "first_s": rounded(took), "first_starts": len(first.starts),
        "classes": len(state.queue.classes), "running": len(state.running), "p90_ms": _ms(times, 0.9),
        "p99_ms": _ms(times, 0.99), "max_ms": rounded(times[-1] * 1e3), "p50_ms_of": by_kind,
    }  # fmt: skip
    note(f"{nodes} x {pending}: p50 {_ms(times, 0.5)} ms, {told}")
    return times, told


def budget(nodes: int, pending: int) -> Taken:
    """Milliseconds of CPU time of the longest pass that is told to stop at 50 ms, of those that it takes to begin with
    a whole queue at once."""
    state, at = real(mix.made(nodes, pending)), NOON
    jobs = list(state.queue)
    for job_id in jobs:
        state.queue.discard(job_id)
    memory = PlanMemory()
    plan(state, at, reachable=everywhere(state), memory=memory)
    for job_id in jobs:
        state.queue.add(state.jobs[job_id])
    gc.collect()
    gc.freeze()
    gc.disable()
    times, starts, complete = [], 0, False
    while not complete:
        begin = time.process_time()
        found = plan(state, at, reachable=everywhere(state), memory=memory, spent=_after(0.05))
        times.append(time.process_time() - begin)
        starts, complete = starts + len(found.starts), found.complete
        carried_out(state, found, int(at))
    gc.enable()
    gc.unfreeze()
    times.sort()
    told: dict[str, object] = {"passes": len(times), "starts": starts, "p50_ms": _ms(times, 0.5)}
    note(f"{nodes} x {pending}: longest {times[-1] * 1e3:.1f} ms, {told}")
    return Taken(rounded(times[-1] * 1e3), 0.0, told)


def _after(seconds: float) -> Callable[[], bool]:
    """Give a budget of so much CPU time."""
    until = time.process_time() + seconds
    return lambda: time.process_time() >= until


def _end(job: Job) -> int:
    return job.started_at + job.limit_seconds


def _ms(times: list[float], share: float) -> float:
    return rounded(times[int(len(times) * share)] * 1e3)


def event_pass(nodes: int, pending: int, events: int) -> Taken:
    """Milliseconds of the median pass and of the 99th percentile."""
    times, told = passes(nodes, pending, events)
    return Taken({"p50_ms": _ms(times, 0.5), "p99_ms": _ms(times, 0.99)}, {"p50_ms": 0.0, "p99_ms": 0.0}, told)


def event_growth(nodes: int, less: int, more: int, events: int) -> Taken:
    """The median pass with a long queue over that with a short one."""
    short, _ = passes(nodes, less, events)
    long, _ = passes(nodes, more, events)
    return Taken(rounded(median(long) / median(short)), 0.0, {"short_ms": _ms(short, 0.5), "long_ms": _ms(long, 0.5)})

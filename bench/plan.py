"""The calendar's figures: how long it takes to plan a whole queue, and what planning by resource is worth.

The mix is planned by `plain.plan`, job by job over the product's profiles, pools and search.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time

from bench import mix, plain
from bench.measure import ROOT, Taken, median, note, rounded
from ctld.sched.releases import FAR
from tests.builders import NOON


def calendar(nodes: int, pending: int) -> Taken:
    """CPU seconds of one plan of the whole queue."""
    made = mix.made(nodes, pending)
    gc.collect()
    gc.freeze()
    begin = time.process_time()
    ready = plain.prepared(made)
    prepared = time.process_time() - begin
    begin = time.process_time()
    planned = plain.plan(made, ready=ready)
    took = time.process_time() - begin
    gc.unfreeze()
    starts = [start for start, _ in planned.starts.values()]
    note(f"{nodes} x {pending}: {took:.2f} s, {sum(start == NOON for start in starts)} start now")
    return Taken(
        rounded(took),
        0.0,
        {
            "planned": len(starts),
            "now": sum(start == NOON for start in starts),
            "shapes": len(made.state.queue.classes),
            "running": len(made.state.running),
            "prepare_s": rounded(prepared),
            "steps_of_a_node": int(planned.profiles.lengths.max()),
        },
    )


def against_naive(nodes: int, pending: int) -> Taken:
    """The same plan with what the search remembers, over without."""
    made = mix.made(nodes, pending)
    times, plans = [], []
    for cached in (True, False):
        ready = plain.prepared(made)
        begin = time.process_time()
        plans.append(plain.plan(made, cached=cached, ready=ready).starts)
        times.append(time.process_time() - begin)
        note(f"cached={cached}: {times[-1]:.2f} s")
    if plans[0] != plans[1]:
        raise SystemExit("bench: the plans differ")
    return Taken(rounded(times[0] / times[1]), 0.0, {"cached_s": rounded(times[0]), "naive_s": rounded(times[1])})


def predicted_wait(nodes: int, pending: int) -> Taken:
    """Mean predicted wait when reservations take what jobs ask for, over that when they take whole nodes."""
    made = mix.made(nodes, pending)
    waits = []
    for whole in (False, True):
        starts = [start for start, _ in plain.plan(made, whole_nodes=whole).starts.values() if start < FAR]
        waits.append(sum(start - NOON for start in starts) / len(starts))
        note(f"whole_nodes={whole}: {waits[-1] / 3600:.2f} h")
    return Taken(rounded(waits[0] / waits[1]), 0.0, {"by_resource_s": rounded(waits[0]), "whole_s": rounded(waits[1])})


_IMPORT = (
    "import time; b = time.process_time(); import ctld.sched.cycle, ctld.sched.search; print(time.process_time() - b)"
)


def core_import(rounds: int) -> Taken:
    """CPU seconds of importing the scheduling core, numpy included, in a new interpreter."""
    times = []
    for _ in range(rounds + 1):
        done = subprocess.run([sys.executable, "-c", _IMPORT], cwd=ROOT, capture_output=True, text=True, check=True)
        times.append(float(done.stdout))
    times = times[1:]
    return Taken(rounded(median(times)), rounded(max(times) - min(times)), {"rounds": rounds})

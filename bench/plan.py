"""The calendar's figures: how long it takes to plan a whole queue, and what planning by resource is worth.

The figures of whole plans are those of the product's own calendar (`ctld.sched.calendar.foresee`); what it is compared
with is planned by `plain.plan`, job by job over the same profiles, pools and search.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time

from bench import foreseen, mix, plain
from bench.measure import ROOT, Taken, median, note, rounded
from ctld.collector import not_collecting
from ctld.sched.releases import FAR
from tests.builders import NOON


def calendar(nodes: int, pending: int) -> Taken:
    """CPU seconds of one calendar of the whole queue by the product, from nothing but the state: limits of accounts and
    licences hold."""
    state = foreseen.real(mix.made(nodes, pending))
    gc.collect()
    gc.freeze()
    begin = time.process_time()
    with not_collecting():  # As the planner does.
        made = foreseen.calendar(state)
    took = time.process_time() - begin
    gc.unfreeze()
    starts = [said.start_at for said in made.planned.values() if said.start_at]
    now = sum(start == NOON for start in starts)
    note(f"{nodes} x {pending}: {took:.2f} s, {now} start now")
    if not made.complete or len(made.planned) != pending:
        raise SystemExit(f"bench: {len(made.planned)} of {pending} jobs were looked at")
    return Taken(
        rounded(took),
        0.0,
        {
            "planned": len(starts),
            "now": now,
            "without_start": pending - len(starts),
            "classes": len(state.queue.classes),
            "running": len(state.running),
        },
    )


def against_naive(nodes: int, pending: int) -> Taken:
    """The same plan with what the search remembers, over without."""
    made = mix.made(nodes, pending)
    times, plans = [], []
    for cached in (True, False):
        ready = plain.prepared(made)
        gc.collect()
        begin = time.process_time()
        with not_collecting():
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

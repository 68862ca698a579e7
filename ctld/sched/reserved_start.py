"""Starting jobs around advance reservations, and saying why one waits for them: the pass's side of `reserved`."""

from __future__ import annotations

from collections.abc import Callable

from ctld.core.free import cpus_per_core
from ctld.core.holds import Barred
from ctld.core.model import NodeShare
from ctld.core.plan import Wait
from ctld.sched.demand import Demand
from ctld.sched.fleet import View
from ctld.sched.place import Scratch
from ctld.sched.releases import Row
from ctld.sched.reserved import Gaps
from ctld.sched.select import Pick, choose

_MOST_TRIES = 64
"""Most times that a start is moved behind reservations before its time is left open."""
Found = tuple[int, list[Pick], View]


def place_around(
    scratch: Scratch,
    demand: Demand,
    view: View,
    found: Barred,
    *,
    bits: int,
    uid: int,
    check: Callable[[tuple[NodeShare, ...]], Wait | None],
) -> tuple[NodeShare, ...] | Wait | None:
    """Place a job on what is not barred; takes it off the scratch, or gives None.

    Args:
        view: what it may take as far as other promises go.
        found: what reservations bar.
        bits: bitmap of nodes barred for other reasons.
        check: gives the limit that keeps these shares from the job, which is given back then.
    """
    cores = found.cores
    picks = choose(demand, _narrowed(scratch, view, found) if cores else view, bits | found.nodes)
    if not picks:
        return None
    kept_cores, kept_gpus = scratch.cores, scratch.gpus
    if cores:
        scratch.cores, scratch.gpus = kept_cores.copy(), kept_gpus.copy()
        for node, _, _ in picks:
            scratch.cores[node] &= ~cores.get(node, 0)
            scratch.gpus[node] &= ~found.gpus.get(node, 0)
    shares = scratch.draw(demand, picks)
    limited = check(shares) if shares else None
    if cores:
        scratch.cores, scratch.gpus = kept_cores, kept_gpus
    if shares is None or limited is not None:
        return limited
    scratch.take(demand, shares, uid)
    return shares


def _narrowed(scratch: Scratch, view: View, found: Barred) -> View:
    """Give a view without the cores and GPUs that are barred."""
    view = view.copy()
    for node, bits in found.cores.items():
        left = scratch.cores[node] & ~bits
        free = left.bit_count() * cpus_per_core(scratch.fleet.specs[node])
        view.cpus[node] = min(int(view.cpus[node]), free)
        gpus = scratch.fleet.free_counts(
            node,
            left,
            scratch.gpus[node] & ~found.gpus.get(node, 0),
            more=scratch.more[node],
            rows=scratch.rows_on(node),
        )
        for column, count in zip(view.gpus, gpus, strict=True):
            column[node] = min(int(column[node]), count)
    return view


def earliest_between(
    gaps: Gaps,
    at: int,
    *,
    duration: int,
    barred_until: dict[int, int],
    search: Callable[[list[Row], dict[int, int]], Found | None],
    columns: int,
) -> Found | None:
    """Give the earliest start that lies in nobody's reserved time on any of its nodes.

    Args:
        barred_until: nodes that cannot be had before a time.
        search: gives the earliest start with these events added and these nodes barred.
        columns: number of GPU columns of a row.
    """
    barred_until = dict(barred_until)
    for node in gaps.nodes:
        until = gaps.free_from(node, max(at, barred_until.get(node, at)), duration)
        if until > at:
            barred_until[node] = until
    for _ in range(_MOST_TRIES):
        # Rows that give nothing back: at their times the search looks whether the node has come into reach.
        events: list[Row] = [(until, node, 0, 0, (0,) * columns) for node, until in barred_until.items()]
        found = search(events, barred_until)
        if found is None:
            return None
        start, picks, _ = found
        late = [node for node, _, _ in picks if not gaps.is_free(node, start, duration)]
        if not late:
            return found
        for node in late:
            barred_until[node] = gaps.free_from(node, start, duration)
    return None

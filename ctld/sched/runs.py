"""Choose so many equal nodes by their place in the node table: best fit over runs of consecutive nodes
(scheduling.md 8.5), one run for --contiguous, and the orders of --spread-job, CR_LLN and bf_busy_nodes."""

from __future__ import annotations

import numpy as np

from ctld.sched.fleet import Ints


def by_runs(fits: Ints, seed: list[int], wanted: int, cpus: Ints, weight: Ints | None) -> list[int]:
    """Take the seed, then nodes from maximal runs of consecutive nodes of equal weight.

    Runs with a node of the seed come first, then lower weights; at equal weight one that suffices before one that does
    not, of those that suffice the one with the fewest free CPUs, of the others the one with the most.

    Args:
        fits: the nodes that can be had, ascending; at least `wanted`, the seed among them.
        cpus: free CPUs by node.
        weight: by node; None where all are equal.
    """
    chosen = list(seed)
    missing = wanted - len(chosen)
    if missing <= 0:
        return chosen
    if len(fits) == wanted:
        return [int(node) for node in fits]
    starts = _starts(fits, weight)
    if chosen:
        missing = _around(fits, starts, chosen, missing)
        if not missing:
            return chosen
        fits = fits[~np.isin(fits, chosen)]
        starts = _starts(fits, weight)
    lengths = np.diff(np.append(starts, len(fits)))
    if weight is None:
        return chosen + _from_runs(fits, starts, lengths, missing, cpus)
    mass = weight[fits[starts]]
    for lightest in np.unique(mass):
        these = np.flatnonzero(mass == lightest)
        chosen += _from_runs(fits, starts[these], lengths[these], missing, cpus)
        missing = wanted - len(chosen)
        if not missing:
            break
    return chosen


def _from_runs(fits: Ints, starts: Ints, lengths: Ints, missing: int, cpus: Ints) -> list[int]:
    """Take up to `missing` nodes from runs of one weight: of the emptiest in whole, until one suffices for the rest."""
    sums = np.concatenate(([0], np.cumsum(cpus[fits])))
    room = sums[starts + lengths] - sums[starts]
    order = np.argsort(-room, kind="stable")
    ordered = lengths[order]
    before = np.concatenate(([0], np.cumsum(ordered)[:-1]))
    longest = np.maximum.accumulate(ordered[::-1])[::-1]
    last = np.flatnonzero(longest >= missing - before)
    whole = order[: last[0]] if len(last) else order
    chosen: list[int] = []
    for run in whole.tolist():
        chosen += fits[starts[run] : starts[run] + lengths[run]].tolist()
    missing -= len(chosen)
    if not len(last) or not missing:
        return chosen
    rest = np.sort(order[last[0] :])
    enough = rest[lengths[rest] >= missing]
    run = int(enough[room[enough].argmin()])
    nodes = fits[starts[run] : starts[run] + lengths[run]]
    if missing == 1:
        return [*chosen, int(nodes[cpus[nodes].argmin()])]
    more: list[int] = nodes[:missing].tolist()
    return chosen + more


def contiguous(fits: Ints, seed: list[int], least: int, most: int, cpus: Ints) -> list[int] | None:
    """Give one stretch of consecutive nodes that holds the seed, weights ignored; None when no run is long enough."""
    starts = _starts(fits, None)
    best: tuple[int, int, Ints] | None = None
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(fits)], strict=True):
        if end - start < least:
            continue
        run = fits[start:end]
        if seed and not (run[0] <= min(seed) and max(seed) <= run[-1] and np.isin(seed, run).all()):
            continue
        key = (-min(end - start, most), int(cpus[run].sum()))
        if best is None or key < best[:2]:
            best = (*key, run)
    if best is None:
        return None
    run, wanted = best[2], -best[0]
    if not seed:
        return [int(node) for node in run[:wanted]]
    low, high = int(run[0]), int(run[-1])
    first, last = min(seed), max(seed)
    if last - first + 1 > most:
        return None
    wanted = max(wanted, last - first + 1)
    last = min(high, first + wanted - 1)
    first = max(low, last - wanted + 1)
    return list(range(first, last + 1))


def least_loaded(fits: Ints, seed: list[int], wanted: int, cpus: Ints, weight: Ints | None) -> list[int]:
    """Take the nodes with the most free CPUs, those of lower weight first."""
    rest = fits[~np.isin(fits, seed)] if seed else fits
    keys = (rest, -cpus[rest]) if weight is None else (rest, -cpus[rest], weight[rest])
    return seed + [int(node) for node in rest[np.lexsort(keys)][: max(0, wanted - len(seed))]]


def busy_first(fits: Ints, seed: list[int], wanted: int, idle: Ints, weight: Ints | None) -> list[int]:
    """Take nodes that are in use before idle ones (`idle` is 1), those of lower weight first."""
    rest = fits[~np.isin(fits, seed)] if seed else fits
    keys = (rest, idle[rest]) if weight is None else (rest, idle[rest], weight[rest])
    return seed + [int(node) for node in rest[np.lexsort(keys)][: max(0, wanted - len(seed))]]


def best_scored(fits: Ints, seed: list[int], wanted: int, score: Ints, weight: Ints | None) -> list[int]:
    """Take the nodes of the highest score, those of lower weight first."""
    return least_loaded(fits, seed, wanted, score, weight)


def _starts(fits: Ints, weight: Ints | None) -> Ints:
    """Give where in `fits` the runs begin."""
    cut = np.diff(fits) != 1
    if weight is not None:
        cut |= np.diff(weight[fits]) != 0
    starts: Ints = np.concatenate(([0], np.flatnonzero(cut) + 1))
    return starts


def _around(fits: Ints, starts: Ints, chosen: list[int], missing: int) -> int:
    """Take from the runs that the seed lies in, from each of its nodes upward and then downward; give what is still
    missing."""
    taken = set(chosen)
    ends = [*starts[1:].tolist(), len(fits)]
    places = np.searchsorted(fits, sorted(taken))
    for run in sorted({int(one) for one in np.searchsorted(starts, places, side="right") - 1}):
        nodes = fits[starts[run] : ends[run]].tolist()
        first = min(place for place, node in enumerate(nodes) if node in taken)
        for node in [*nodes[first:], *reversed(nodes[:first])]:
            if not missing:
                return 0
            if node not in taken:
                taken.add(node)
                chosen.append(node)
                missing -= 1
    return missing

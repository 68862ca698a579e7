"""Usage: what an allocation bills, and the decayed usage of run intervals in closed form.

A run that bills b for each second from s to e has at time T the usage b * integral from s to e of 2^(-(T-t)/H) dt, with
H the half-life: exact at every moment, without a periodic pass (design.md 6). Usage is kept as (value, since) with the
rate at which it grows; both the controller and the accounting daemon compute it here. H = 0: nothing decays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

MAX_TRES = "MAX_TRES"
MAX_TRES_GRES = "MAX_TRES_GRES"


def billing(amounts: Mapping[str, float], weights: Mapping[str, float], mode: str = "") -> float:
    """Give what an allocation bills for each second.

    Args:
        amounts: TRES -> amount, `mem` and burst buffers in MiB.
        weights: TRESBillingWeights of the partition, of mem for each MiB; empty: the allocated CPUs are billed.
        mode: "", MAX_TRES (the largest of cpu, mem, node and each gres, and all others) or MAX_TRES_GRES (the largest
            of cpu, mem and node, and all gres, and all others).
    """
    if not weights:
        return float(amounts.get("cpu", 0))
    gres: list[float] = []
    of_node: list[float] = []
    others = 0.0
    for name, weight in weights.items():
        value = weight * amounts.get(name, 0)
        if name in ("cpu", "mem", "node"):
            of_node.append(value)
        elif name.startswith("gres/"):
            gres.append(value)
        else:
            others += value
    if mode == MAX_TRES:
        return max([*of_node, *gres, 0.0]) + others
    if mode == MAX_TRES_GRES:
        return math.fsum(gres) + max([*of_node, 0.0]) + others
    return math.fsum([*of_node, *gres, others])


def remaining(seconds: float, half_life: float) -> float:
    """Give the share of usage that is left of it after so many seconds."""
    return 0.5 ** (seconds / half_life) if half_life else 1.0


def accrued(seconds: float, half_life: float) -> float:
    """Give the usage that a rate of 1 has made over the last so many seconds, as it counts at their end."""
    if not half_life:
        return seconds
    # expm1: a second of a half-life of years must not be lost in 1 - 0.99999999...
    return -math.expm1(-seconds * math.log(2) / half_life) * half_life / math.log(2)


def run_usage(rate: float, started: float, ended: float, now: float, half_life: float) -> float:
    """Give the usage at `now` of a run that billed `rate` from `started` to `ended`."""
    ended = min(ended, now)
    if ended <= started:
        return 0.0
    return rate * accrued(ended - started, half_life) * remaining(now - ended, half_life)

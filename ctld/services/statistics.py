"""The routes of sdiag: `GET /v1/statistics` shows what was counted, `POST /v1/statistics/reset` starts it anew.

Calls are shown by the message that Slurm's own commands would have sent, since exporters and dashboards know those
names and numbers; routes that Slurm has no message for have names of their own, numbered from `_OWN` on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ctld.loops.links import Links
from ctld.loops.statistics import Calls, Cycles, Statistics
from ctld.services.door import Call, Right, Route
from ctld.store.store import Store
from muster.clock import Clock

_OWN = 20_000
_LATENCY_CALLS = 1000
"""Slurm's line says `for 1000 calls`."""

MESSAGES: dict[tuple[str, str], tuple[str, int]] = {
    ("POST", "/v1/jobs"): ("REQUEST_SUBMIT_BATCH_JOB", 4003),
    ("POST", "/v1/jobs/cancel"): ("REQUEST_KILL_JOB", 5032),
    ("POST", "/v1/jobs/hold"): ("REQUEST_UPDATE_JOB", 3001),
    ("POST", "/v1/jobs/release"): ("REQUEST_UPDATE_JOB", 3001),
    ("POST", "/v1/jobs/update"): ("REQUEST_UPDATE_JOB", 3001),
    ("POST", "/v1/jobs/requeue"): ("REQUEST_JOB_REQUEUE", 5023),
    ("POST", "/v1/jobs/suspend"): ("REQUEST_SUSPEND", 5014),
    ("POST", "/v1/jobs/resume"): ("REQUEST_SUSPEND", 5014),
    ("GET", "/v1/jobs/{job}/script"): ("REQUEST_BATCH_SCRIPT", 2051),
    ("GET", "/v1/jobs/{job}/wait"): ("REQUEST_JOB_READY", 4019),
    ("POST", "/v1/nodes/update"): ("REQUEST_UPDATE_NODE", 3002),
    ("POST", "/v1/shutdown"): ("REQUEST_SHUTDOWN", 1005),
    ("POST", "/v1/reservations/create"): ("REQUEST_CREATE_RESERVATION", 3006),
    ("POST", "/v1/reservations/update"): ("REQUEST_UPDATE_RESERVATION", 3009),
    ("POST", "/v1/reservations/delete"): ("REQUEST_DELETE_RESERVATION", 3008),
    ("GET", "/v1/reservations"): ("REQUEST_RESERVATION_INFO", 2024),
    ("POST", "/v1/jobs/{job}/steps"): ("REQUEST_JOB_STEP_CREATE", 5001),
    ("POST", "/v1/jobs/{job}/steps/{step}/signal"): ("REQUEST_CANCEL_JOB_STEP", 5005),
    ("POST", "/v1/jobs/{job}/steps/{step}/cancel"): ("REQUEST_CANCEL_JOB_STEP", 5005),
    ("GET", "/v1/jobs/{job}/steps/{step}"): ("REQUEST_JOB_STEP_INFO", 2005),
    ("GET", "/v1/steps"): ("REQUEST_JOB_STEP_INFO", 2005),
    ("GET", "/v1/jobs"): ("REQUEST_JOB_INFO", 2003),
    ("GET", "/v1/jobs/{job}"): ("REQUEST_JOB_INFO_SINGLE", 2021),
    ("GET", "/v1/nodes"): ("REQUEST_NODE_INFO", 2007),
    ("GET", "/v1/partitions"): ("REQUEST_PARTITION_INFO", 2009),
    ("GET", "/v1/licenses"): ("REQUEST_LICENSE_INFO", 1017),
    ("GET", "/v1/topology"): ("REQUEST_TOPO_INFO", 2028),
    ("GET", "/v1/config"): ("REQUEST_BUILD_INFO", 2001),
    ("GET", "/v1/ping"): ("REQUEST_PING", 1008),
    ("GET", "/v1/priorities"): ("REQUEST_PRIORITY_FACTORS", 2026),
    ("GET", "/v1/statistics"): ("REQUEST_STATS_INFO", 2035),
    ("POST", "/v1/statistics/reset"): ("REQUEST_STATS_INFO", 2035),
    ("GET", "/v1/overview"): ("REQUEST_OVERVIEW", _OWN + 1),
    ("GET", "/v1/status"): ("REQUEST_STATUS", _OWN + 2),
    ("POST", "/v1/history"): ("REQUEST_HISTORY", _OWN + 3),
    ("GET", "/v1/jobs/{job}/explanation"): ("REQUEST_EXPLANATION", _OWN + 4),
}
"""Route -> what its calls count as."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes read from."""

    store: Store
    links: Links
    statistics: Statistics
    clock: Clock
    behind: Callable[[], int]
    """Events that accounting has yet to acknowledge."""


def routes(context: Context) -> list[Route]:
    """Give the routes; every user may look, as with Slurm."""

    async def show(_: Call) -> dict[str, Any]:
        found = _shown(context)
        await context.store.settled()
        return found

    async def reset(_: Call) -> dict[str, Any]:
        context.statistics.reset()
        return {}

    return [
        Route("GET", "/v1/statistics", Right.ANYONE, "cluster", show),
        Route("POST", "/v1/statistics/reset", Right.ADMIN, "cluster", reset),
    ]


def _shown(context: Context) -> dict[str, Any]:
    state, statistics = context.store.state, context.statistics
    day, now = statistics.day, context.clock.now()
    return {
        "now": now,
        "since": day.since,
        "cluster": state.settings.cluster,
        "calls": statistics.open_calls,
        "orders": sum(len(link.launched) for link in context.links.up.values()),
        "events_behind": context.behind(),
        "jobs": {
            **asdict(day.jobs),
            "pending": sum(state.users.values()) - len(state.running),
            "running": len(state.running) - len(state.suspended),
        },
        "main": _cycles(day.passes, now - day.since),
        "deep": _cycles(day.deep, now - day.since),
        "backfilled": statistics.backfilled,
        "backfilled_today": day.backfilled,
        "stale": day.stale,
        "planning": statistics.planning,
        "clock_microseconds": _clock_latency(),
        "kinds": [
            {"name": name, "number": number, **asdict(calls)}
            for (name, number), calls in _by_message(statistics.kinds.items()).items()
        ],
        "users": [{"uid": uid, **asdict(calls)} for uid, calls in statistics.users.items()],
    }


def _cycles(cycles: Cycles, seconds: int) -> dict[str, int]:
    shown = asdict(cycles)
    count = cycles.count
    each = count or 1
    shown.update(mean=cycles.total // each, mean_depth=cycles.depth // each, mean_queue=cycles.queue // each)
    shown.update(mean_table=cycles.table // each)
    # Slurm's own rate begins after the first minute.
    shown["per_minute"] = count * 60 // seconds if seconds > 60 else 0
    return shown


def _by_message(kinds: Iterable[tuple[tuple[str, str], Calls]]) -> dict[tuple[str, int], Calls]:
    """Add up the routes that Slurm has one message for."""
    sums: dict[tuple[str, int], Calls] = {}
    for route, calls in kinds:
        found = sums.setdefault(MESSAGES[route], Calls())
        found.count += calls.count
        found.total += calls.total
        found.longest = max(found.longest, calls.longest)
        found.last = calls.last
    return sums


def _clock_latency() -> int:
    """Give the microseconds that asking this host's clock 1000 times takes."""
    began = time.perf_counter()
    for _ in range(_LATENCY_CALLS):
        time.time()
    return round((time.perf_counter() - began) * 1e6)

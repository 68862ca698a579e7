"""How the controller and what hangs on it are, for `muster status` and `muster doctor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ctld.loops.links import Links
from ctld.loops.planner import Planner
from ctld.loops.schedule import Scheduler
from ctld.services.door import Call, Right, Route
from ctld.store.store import Store
from muster.config.records import ClusterConfig


@dataclass(frozen=True, slots=True)
class Context:
    """What the route looks at."""

    store: Store
    links: Links
    scheduler: Scheduler
    planner: Planner
    config: ClusterConfig
    accounting: Callable[[], bool]
    """Whether dbd follows just now."""


def routes(context: Context) -> list[Route]:
    """Give the route."""

    async def status(_: Call) -> dict[str, Any]:
        found = _status(context)
        await context.store.settled()
        return found

    return [Route("GET", "/v1/status", Right.ANYONE, "cluster", status)]


def _status(context: Context) -> dict[str, Any]:
    state, links, journal = context.store.state, context.links, context.store.journal
    now = links.monotonic()
    nodes = []
    for node in state.nodes:
        pulse = links.pulse(node.index)
        nodes.append(
            {
                "name": node.spec.name,
                "connected": node.index in links.up,
                "silent_seconds": int(now - pulse.heard),
                "skew_ms": pulse.skew_ms,
                "limits_off": list(pulse.limits_off),
                "down": node.down,
                "drain": node.drain,
                "reason": node.reason,
            }
        )
    return {
        "cluster": state.settings.cluster,
        "nodes": nodes,
        "running": len(state.running),
        "pending": len(state.jobs) - len(state.running) - len(state.ended),
        "accounting_configured": bool(context.config.accounting_storage_type),
        "accounting": context.accounting(),
        "last_event": journal.last_durable,
        "log_id": journal.log_id,
        "passes": context.scheduler.passes,
        "last_pass_ms": round(context.scheduler.last_seconds * 1000, 3),
        "planner": _planner(context.planner),
        "without_effect": [f"{file}:{line}: {key}" for key, file, line in context.config.without_effect],
        "warnings": list(context.config.warnings),
    }


def _planner(planner: Planner) -> dict[str, int]:
    foreseen = planner.foreseen
    return {
        "pid": planner.pid,
        "restarts": planner.restarts,
        "cycles": planner.cycles,
        "event": foreseen.number,
        "made_at": foreseen.made_at,
        "planned": len(foreseen),
        "past_window": foreseen.past_window,
    }

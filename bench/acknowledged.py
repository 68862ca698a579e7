"""How soon a controller acknowledges submissions while its planner is at work on a large queue."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import load
from bench.measure import Taken, cpu_seconds, note, rounded, until
from bench.settled import ONE, Settled
from muster.errors import MusterError

GAP_SECONDS = 0.02
"""From one submission to the next, or as long as the first one takes: fifty a second are a busy cluster."""


def ack_under_planning(nodes: int, pending: int, count: int) -> Taken:
    """Give the 99th percentile, in ms, of `count` acknowledgements that came while a plan was being made."""
    folder = Path(tempfile.mkdtemp(prefix="mb"))
    made = Settled(folder, nodes, pending)
    try:
        note(f"writing a state of {nodes} nodes and {pending} pending jobs")
        plan = made.make(ONE)
        made.start("ctld", plan)
        until(made.answers, "the controller answers", seconds=300)
        begun = _statistics(made)
        note(f"{begun['jobs']['running']} jobs run, {begun['jobs']['pending']} wait; copying to the planner")
        while_copying = _times(made, 0, copying=True)
        note("measuring while the planner plans")
        planner = _child(made.pid("ctld"))
        used, began = cpu_seconds(planner), time.perf_counter()
        while_planning = _times(made, count, copying=False)
        busy = (cpu_seconds(planner) - used) / (time.perf_counter() - began)
        if len(while_planning) < count:
            note(f"the plan was ready after {len(while_planning)} submissions")
        return Taken(
            rounded(_percentile(while_planning, 99)),
            0.0,
            {
                "nodes": nodes,
                "pending": begun["jobs"]["pending"],
                "running": begun["jobs"]["running"],
                "submissions": len(while_planning),
                "p50_ms": rounded(_percentile(while_planning, 50)),
                "max_ms": rounded(max(while_planning)),
                "planner_cores": rounded(busy),
                "copying_p99_ms": rounded(_percentile(while_copying, 99)),
                "copying_max_ms": rounded(max(while_copying)),
            },
        )
    finally:
        known = made.plan()
        if known is not None:
            made.stop("ctld")
        shutil.rmtree(folder, ignore_errors=True)


def _times(made: Settled, count: int, *, copying: bool) -> list[float]:
    """Submit one job after the other at a steady rate and give the ms that each took: while the planner gets its copy,
    else `count` of them, or fewer where the plan is ready before."""
    connection = load.Connection(made.socket)
    times: list[float] = []
    number = 0 if copying else 1_000_000
    due = time.perf_counter()
    while copying or len(times) < count:
        time.sleep(max(0.0, due - time.perf_counter()))
        number += 1
        began = time.perf_counter()
        due = began + GAP_SECONDS
        connection.send("/v1/jobs", load.submission(number, held=False))
        while (answer := connection.receive()) is None:
            pass
        assert json.loads(answer)["job_id"]
        times.append((time.perf_counter() - began) * 1000)
        if number % 25 == 0 and _statistics(made)["planning"] is copying:
            break
    connection.socket.close()
    return times


def _statistics(made: Settled) -> dict[str, Any]:
    try:
        found: dict[str, Any] = made.client().call("GET", "/v1/statistics")
    except MusterError as error:
        raise SystemExit(f"bench: {error}") from error
    return found


def _child(pid: int) -> int:
    """Give the one child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def _percentile(values: list[float], share: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]

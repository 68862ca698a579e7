"""The figures and their bars."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench import events, load, plan
from bench.acknowledged import ack_under_planning
from bench.core_memory import core_memory
from bench.measure import (
    BIN,
    Figure,
    Taken,
    bare_python_ms,
    bare_spawn_rate,
    bare_sync_rate,
    cluster,
    cpu_seconds,
    environment_of,
    framed,
    median,
    note,
    rounded,
    rss_bytes,
    until,
    wall_ms,
)
from bench.replay import replay_week
from cli.cluster import Cluster, Plan
from muster.errors import MusterError

EIGHT = Plan(nodes=8, cpus=64, memory_mib=262144, gpus="", accounting=True)
MIB = 1 << 20


def _cli(quick: bool) -> Taken:
    rounds, repetitions = (1, 5) if quick else (5, 15)
    ratios: dict[str, list[float]] = {}
    absolute: dict[str, list[float]] = {}
    with cluster(Plan(nodes=2, gpus="", accounting=False)) as made:
        environment = environment_of(made)
        commands = {
            "sbatch": ["sbatch", "-o", "/dev/null", "--wrap", "true"],
            "squeue": ["squeue"],
            "sinfo": ["sinfo"],
        }
        for _ in range(rounds):
            floor = bare_python_ms(repetitions)
            for name, argv in commands.items():
                took = median(wall_ms([str(BIN / argv[0]), *argv[1:]], repetitions, environment))
                ratios.setdefault(name, []).append(took / floor)
                absolute.setdefault(name, []).append(took)
            held = [_sbatch(environment, "--hold", "--wrap", "true") for _ in range(repetitions)]
            took = median([wall_ms([str(BIN / "scancel"), job], 1, environment)[0] for job in held])
            ratios.setdefault("scancel", []).append(took / floor)
            absolute.setdefault("scancel", []).append(took)
            absolute.setdefault("python", []).append(floor)
    slowest = max(ratios, key=lambda name: median(ratios[name]))
    return Taken(
        rounded(median(ratios[slowest])),
        rounded(max(ratios[slowest]) - min(ratios[slowest])),
        {
            "slowest": slowest,
            "ratio": {name: rounded(median(values)) for name, values in ratios.items()},
            "ms": {name: rounded(median(values)) for name, values in absolute.items()},
        },
    )


def _sbatch(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [str(BIN / "sbatch"), "--parsable", "-o", "/dev/null", *arguments],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def _run_array(made: Cluster, size: int) -> tuple[float, float]:
    """Run an array of `true` jobs; give (seconds from the submission to the last end, ctld's CPU seconds)."""
    plan = made.plan()
    assert plan is not None
    pid = made.pid("ctld")
    before, began = cpu_seconds(pid), time.perf_counter()
    job = _sbatch(environment_of(made), "-t", "5", f"--array=0-{size - 1}", "--wrap", "true")
    client = made.client()
    until(
        lambda: not client.call("GET", f"/v1/jobs?fields=job_id&ids={job}")["rows"],
        f"{size} jobs end",
        seconds=300,
        pause=0.05,
    )
    return time.perf_counter() - began, cpu_seconds(pid) - before


def _array(quick: bool) -> Taken:
    size, rounds = (200, 1) if quick else (2000, 5)
    ratios, rates, floors = [], [], []
    with cluster(EIGHT) as made:
        _run_array(made, 64)
        for number in range(rounds):
            floor = bare_spawn_rate(300)
            seconds, _ = _run_array(made, size)
            note(f"array {number + 1}/{rounds}: {size / seconds:.0f} jobs/s, bare spawn {floor:.0f}/s")
            rates.append(size / seconds)
            floors.append(floor)
            ratios.append(size / seconds / floor)
    return Taken(
        rounded(median(ratios)),
        rounded(max(ratios) - min(ratios)),
        {"jobs_per_second": rounded(median(rates)), "bare_spawns_per_second": rounded(median(floors)), "size": size},
    )


def _array_ctld_cpu(quick: bool) -> Taken:
    size, rounds = (200, 1) if quick else (2000, 5)
    found = []
    with cluster(EIGHT) as made:
        _run_array(made, 64)
        for number in range(rounds):
            _, used = _run_array(made, size)
            found.append(used / size * 1000)
            note(f"array {number + 1}/{rounds}: {found[-1]:.2f} ms of ctld a job")
    return Taken(rounded(median(found)), rounded(max(found) - min(found)), {"size": size})


def _submissions(quick: bool, socket: Callable[[Cluster], Path], *, relay: bool) -> Taken:
    count, rounds = (400, 1) if quick else (4000, 5)
    ratios, rates, floors = [], [], []
    plan = Plan(nodes=1, cpus=4, gpus="", accounting=False)
    with cluster(plan, only_controller=not relay) as made:
        acknowledged: list[int] = []
        for number in range(rounds):
            floor = bare_sync_rate(made.folder, 1000)
            seconds, ids = load.submit(
                socket(made),
                count,
                make=lambda n, number=number: load.submission(number * count + n, held=True),  # type: ignore[misc]
            )
            acknowledged += ids
            rates.append(count / seconds)
            floors.append(floor)
            ratios.append(count / seconds / floor)
            note(f"round {number + 1}/{rounds}: {rates[-1]:.0f} submissions/s, bare append+sync {floor:.0f}/s")
        kept = made.plan()
        assert kept is not None
        os.kill(made.pid("ctld"), signal.SIGKILL)
        until(lambda: not made.pid("ctld"), "ctld is dead")
        made.start("ctld", kept)
        until(lambda: _known(made) is not None, "ctld is back")
        known = _known(made) or set()
        lost = [job for job in acknowledged if job not in known]
        if lost:
            raise SystemExit(f"bench: {len(lost)} acknowledged submissions were lost by kill -9")
    return Taken(
        rounded(median(ratios)),
        rounded(max(ratios) - min(ratios)),
        {
            "submissions_per_second": rounded(median(rates)),
            "syncs_per_second": rounded(median(floors)),
            "found_after_kill": len(acknowledged),
        },
    )


def _known(made: Cluster) -> set[int] | None:
    try:
        rows = made.client().call("GET", "/v1/jobs?fields=job_id")["rows"]
    except MusterError:
        return None
    return {int(row[0]) for row in rows}


def _big_array(quick: bool) -> Taken:
    size, rounds = 100_000, 2 if quick else 7
    times, growths = [], []
    with cluster(Plan(nodes=1, cpus=1, gpus="", accounting=False), only_controller=True) as made:
        pid = made.pid("ctld")
        request = b'{"job_name":"big","hold":true,"work_dir":"/tmp","array":"0-%d"}' % (size - 1)
        body = framed(request, b"#!/bin/sh\ntrue\n", b"A=b\0")
        connection = load.Connection(made.socket)
        for number in range(rounds + 1):
            before = rss_bytes(pid)
            began = time.perf_counter()
            connection.send("/v1/jobs", body)
            while connection.receive() is None:
                pass
            if number:  # the first one warms caches
                times.append((time.perf_counter() - began) * 1000)
                growths.append((rss_bytes(pid) - before) / MIB)
    return Taken(
        {"ms": rounded(median(times)), "mib": rounded(median(growths))},
        {"ms": rounded(max(times) - min(times)), "mib": rounded(max(growths) - min(growths))},
        {"members": size, "rounds": rounds},
    )


def _deep_queue(quick: bool) -> Taken:
    count = 10_000 if quick else 100_000
    with cluster(Plan(nodes=1, cpus=1, gpus="", accounting=False), only_controller=True) as made:
        load.submit(made.socket, 200, make=lambda n: load.submission(-n - 1, held=False))
        pid = made.pid("ctld")
        time.sleep(1.0)
        before = rss_bytes(pid)
        note(f"submitting {count} jobs")
        seconds, _ = load.submit(made.socket, count, make=lambda n: load.submission(n, held=False))
        note(f"submitted at {count / seconds:.0f}/s")
        time.sleep(2.0)
        per_job = (rss_bytes(pid) - before) / count / 1024
        environment = environment_of(made)
        listing = [_squeue(environment, count) for _ in range(2 if quick else 5)]
        note(f"squeue of all: {median(listing):.2f} s")
        kept = made.plan()
        assert kept is not None
        restarts = []
        for _ in range(1 if quick else 3):
            os.kill(made.pid("ctld"), signal.SIGKILL)
            until(lambda: not made.pid("ctld"), "ctld is dead")
            began = time.perf_counter()
            made.start("ctld", kept)
            until(made.answers, "ctld answers", pause=0.01)
            restarts.append(time.perf_counter() - began)
            note(f"restart to answering: {restarts[-1]:.2f} s")
    return Taken(
        {"kib_a_job": rounded(per_job), "squeue_s": rounded(median(listing)), "restart_s": rounded(median(restarts))},
        {
            "kib_a_job": 0.0,
            "squeue_s": rounded(max(listing) - min(listing)),
            "restart_s": rounded(max(restarts) - min(restarts)),
        },
        {"jobs": count, "submissions_per_second": rounded(count / seconds)},
    )


def _squeue(environment: dict[str, str], count: int) -> float:
    began = time.perf_counter()
    done = subprocess.run([str(BIN / "squeue"), "-h"], env=environment, capture_output=True, check=True)
    took = time.perf_counter() - began
    lines = done.stdout.count(b"\n")
    if lines < count:
        raise SystemExit(f"bench: squeue showed {lines} of {count} jobs")
    return took


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "cli", "slowest of sbatch --wrap, squeue, scancel, sinfo over a bare interpreter's start",
            "ratio", 5.0, 3.2, "lower", _cli,
        ),
        Figure(
            "array", "2,000 `true` jobs as one array on 8 virtual nodes over the rate of bare bash -c true",
            "ratio", 0.25, 0.5, "higher", _array,
        ),
        Figure(
            "array_ctld_cpu", "CPU time of ctld for each job of that array",
            "ms", 1.7, 0.8, "lower", _array_ctld_cpu,
        ),
        Figure(
            "submit_durable", "16 connections to ctld's socket over a bare loop of 4 KiB append and fdatasync",
            "ratio", 0.25, 0.6, "higher", lambda quick: _submissions(quick, lambda made: made.socket, relay=False),
        ),
        Figure(
            "submit_relay", "the same through a node agent",
            "ratio", 0.15, 0.4, "higher",
            lambda quick: _submissions(quick, lambda made: made.node_socket("node1"), relay=True),
        ),
        Figure(
            "big_array", "accepting one array of 100,000 members: time and growth of ctld's memory",
            "ms, MiB", {"ms": 50.0, "mib": 1.0}, None, "lower", _big_array,
        ),
        Figure(
            "deep_queue", "100,000 pending jobs: ctld's memory a job, squeue of all, restart to answering",
            "KiB, s, s", {"kib_a_job": 4.0, "squeue_s": 2.0, "restart_s": 10.0},
            {"kib_a_job": 1.5, "squeue_s": 0.8, "restart_s": 3.0}, "lower", _deep_queue,
        ),
        Figure(
            "replay_week", "replay of a real week of 19,579 jobs on its 217 nodes with `muster sim`",
            "jobs per CPU second", 5000.0, 10000.0, "higher", replay_week,
        ),
        Figure(
            "plan_1k_10k", "full-depth calendar of 1,000 nodes and 10,000 pending jobs, CPU time",
            "s", 2.0, 0.8, "lower", lambda quick: plan.calendar(1000, 1000 if quick else 10_000),
        ),
        Figure(
            "plan_10k_10k", "the same of 10,000 nodes and 10,000 jobs",
            "s", 4.0, 1.5, "lower", lambda quick: plan.calendar(10_000, 1000 if quick else 10_000),
        ),
        Figure(
            "plan_10k_100k", "the same of 10,000 nodes and 100,000 jobs",
            "s", 45.0, 15.0, "lower", lambda quick: plan.calendar(10_000, 10_000 if quick else 100_000),
        ),
        Figure(
            "plan_vs_naive", "that plan with what the search remembers over without, 10,000 nodes and 5,000 jobs",
            "ratio", 0.2, 0.05, "lower", lambda quick: plan.against_naive(10_000, 500 if quick else 5000),
        ),
        Figure(
            "predicted_wait", "mean predicted wait by resource over whole nodes, 1,000 nodes and 5,000 jobs",
            "ratio", 0.5, None, "lower", lambda quick: plan.predicted_wait(1000, 500 if quick else 5000),
        ),
        Figure(
            "event_pass", "pass after one job ends or comes, 10,000 nodes and 100,000 pending jobs, CPU time",
            "ms", {"p50_ms": 0.3, "p99_ms": 5.0}, {"p50_ms": 0.1, "p99_ms": 2.0}, "lower",
            lambda quick: events.event_pass(1000, 1000, 100) if quick else events.event_pass(10_000, 100_000, 2000),
        ),
        Figure(
            "event_growth", "its median with 100,000 pending jobs over that with 10,000, on 10,000 nodes",
            "ratio", 1.5, 1.1, "lower",
            lambda quick: (
                events.event_growth(1000, 300, 3000, 100)
                if quick else events.event_growth(10_000, 10_000, 100_000, 2000)
            ),
        ),
        Figure(
            "budget", "longest pass that is told to stop at 50 ms, of 10,000 nodes and 100,000 new jobs, CPU time",
            "ms", 60.0, None, "lower",
            lambda quick: events.budget(1000, 1000) if quick else events.budget(10_000, 100_000),
        ),
        Figure(
            "ack_under_planning",
            "p99 of acknowledging a submission while the planner works on 10,000 nodes and 100,000 pending jobs",
            "ms", 50.0, 15.0, "lower",
            lambda quick: ack_under_planning(1000, 10_000, 200) if quick else ack_under_planning(10_000, 100_000, 1500),
        ),
        Figure(
            "core_memory", "memory of the core's state with 10,000 nodes, 100,000 pending and 47,000 running jobs",
            "MB", 300.0, 150.0, "lower",
            lambda quick: core_memory(1000, 10_000) if quick else core_memory(10_000, 100_000),
        ),
        Figure(
            "core_import", "CPU time of importing the scheduling core with numpy",
            "s", 0.25, None, "lower", lambda quick: plan.core_import(2 if quick else 7),
        ),
    )
}  # fmt: skip

"""The planner process from the controller's side: real processes, and some that only look like one."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ctld.core.commands import ApplyPlan, Cancel, UpdateJob
from ctld.core.model import NodeShare
from ctld.core.plan import Plan, Start
from ctld.loops import planner as module
from ctld.loops.planner import Planner
from ctld.loops.statistics import Statistics
from muster.ids import JobId
from tests.builders import ADMIN, NOON, USER
from tests.nodestream import Desk


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@asynccontextmanager
async def at_work(planner: Planner) -> AsyncIterator[Planner]:
    loop = asyncio.create_task(planner.run())
    try:
        yield planner
    finally:
        loop.cancel()
        await asyncio.wait([loop])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses: what they are for is no matter of a test."""
    for name in ("REST_SECONDS", "REST_TIMES", "COALESCE_SECONDS", "FIRST_PAUSE_SECONDS"):
        monkeypatch.setattr(module, name, 0.01)


def a_desk() -> tuple[Desk, list[int]]:
    """A node that is full for an hour, and three jobs that wait for it."""
    desk = Desk(nodes=1)
    desk.link(0)
    first, *jobs = (desk.submit(cpus_per_task=64, time_limit_minutes=60) for _ in range(4))
    desk.post(ApplyPlan(Plan(NOON, (Start(JobId(first), "main", (NodeShare(0, 64, (0, 63)),)),))))
    return desk, jobs


async def test_every_waiting_job_gets_a_planned_start() -> None:
    desk, jobs = a_desk()
    async with at_work(Planner(desk.store, desk.links, desk.clock)) as planner:
        await until(lambda: len(planner.foreseen) == 3)
        assert planner.foreseen.number == desk.journal.last_queued
        found = [planner.foreseen.of(desk.state, job) for job in jobs]
        assert [one and (one.start_at, one.nodes) for one in found] == [
            (NOON + 3600, (0,)),
            (NOON + 7200, (0,)),
            (NOON + 10800, (0,)),
        ]
        pid = planner.pid
        assert is_alive(pid)
    assert not is_alive(pid)
    assert planner.pid == 0


async def test_a_change_makes_a_new_calendar_and_the_old_one_is_silent_about_it() -> None:
    desk, jobs = a_desk()
    async with at_work(Planner(desk.store, desk.links, desk.clock)) as planner:
        await until(lambda: len(planner.foreseen) == 3)
        desk.post(UpdateJob(JobId(jobs[2]), ADMIN, time_limit_minutes=5))
        assert planner.foreseen.of(desk.state, jobs[2]) is None
        await until(lambda: planner.foreseen.of(desk.state, jobs[2]))
        for job in jobs:
            desk.post(Cancel(JobId(job), USER))
        assert not any(planner.foreseen.of(desk.state, job) for job in jobs)
        await until(lambda: not len(planner.foreseen))


async def test_what_is_planned_for_now_and_nobody_has_started_is_started() -> None:
    desk = Desk(nodes=2)
    desk.link(0)
    statistics = Statistics(desk.clock)
    array = desk.submit(cpus_per_task=32, memory_per_node_mib=1, array=(1, 3), time_limit_minutes=60)
    async with at_work(Planner(desk.store, desk.links, desk.clock, statistics=statistics)) as planner:
        await until(lambda: len(desk.state.running) == 2)
        await until(lambda: planner.foreseen.number == desk.journal.last_queued)
        runs = [desk.state.jobs[job] for job in desk.state.running]
        assert [(job.array_task_id, job.alloc and job.alloc.planned_by) for job in runs] == [
            (1, "Backfill"),
            (2, "Backfill"),
        ]
        assert desk.state.jobs[array].array_pending == (3, 3)
        # The third has to wait: the second node does not answer.
        left = planner.foreseen.of(desk.state, array)
    assert left is not None
    assert left.start_at > NOON
    assert statistics.day.stale == 0


async def test_a_planner_that_is_killed_is_noticed_said_once_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk, _ = a_desk()
    async with at_work(Planner(desk.store, desk.links, desk.clock)) as planner:
        await until(lambda: planner.cycles)
        before = planner.foreseen
        os.kill(planner.pid, signal.SIGKILL)
        await until(lambda: not planner.pid)
        assert planner.foreseen is before, "what was planned stands"
        await until(lambda: planner.foreseen is not before)
        assert planner.restarts == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == ["the planner process ended: signal 9. It is started again in 0.01 s"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import sys; sys.exit(3)", "exit code 3, the log says why"),
        ("import os, sys, time; os.write(int(sys.argv[1]), b'x' * 64); time.sleep(60)", "what it says makes no sense"),
        ("import os, sys; os.close(int(sys.argv[1])); os.kill(os.getpid(), 15)", "signal 15"),
    ],
)
async def test_a_planner_that_fails_holds_nobody_up(script: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    desk, jobs = a_desk()
    command = (sys.executable, "-c", script)
    async with at_work(Planner(desk.store, desk.links, desk.clock, command=command)) as planner:
        await until(lambda: planner.restarts >= 2)
        assert desk.submit() == jobs[-1] + 1
    assert f"the planner process ended: {why}. " in caplog.text


async def test_a_planner_that_hangs_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    desk, _ = a_desk()
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    async with at_work(Planner(desk.store, desk.links, desk.clock, command=command, most_seconds=0.1)) as planner:
        await until(lambda: planner.restarts)
    assert "it gave no answer for 0.2 s" in caplog.text


async def test_a_planner_that_cannot_be_started_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    desk, _ = a_desk()
    async with at_work(Planner(desk.store, desk.links, desk.clock, command=("/nowhere/python",))) as planner:
        await until(lambda: planner.restarts >= 2)
    assert "it cannot be started: No such file or directory" in caplog.text


async def test_the_pause_between_starts_grows_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PAUSE_SECONDS", 0.05)
    desk, _ = a_desk()
    planner = Planner(desk.store, desk.links, desk.clock, command=("/nowhere/python",))
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    loop = asyncio.create_task(planner.run())
    while len(pauses) < 5:
        await sleep(0)
    loop.cancel()
    await asyncio.wait([loop])
    assert pauses[:5] == [0.01, 0.02, 0.04, 0.05, 0.05]


async def test_without_an_interval_there_is_no_process() -> None:
    desk, _ = a_desk()
    planner = Planner(desk.store, desk.links, desk.clock, interval_seconds=-1)
    async with asyncio.timeout(5):
        await planner.run()
    assert planner.pid == 0


@pytest.mark.parametrize("busy", [False, True])
async def test_a_killed_controller_takes_its_planner_along(busy: bool) -> None:
    script = """
import asyncio, pathlib, sys
from ctld.loops.planner import Planner
from tests.nodestream import Desk

async def main():
    desk = Desk(nodes=1)
    desk.link(0)
    desk.submit(cpus_per_task=64)
    planner = Planner(desk.store, desk.links, desk.clock)
    loop = asyncio.create_task(planner.run())
    while not planner.cycles:
        await asyncio.sleep(0.01)
    print(planner.pid, flush=True)
    await loop

asyncio.run(main())
"""
    root = Path(__file__).resolve().parents[4]
    controller = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert controller.stdout is not None
    pid = int(await controller.stdout.readline())
    assert is_alive(pid)
    if busy:  # one that does not read cannot see the end of the stream: the kernel has to end it
        os.kill(pid, signal.SIGSTOP)
    controller.kill()
    await controller.wait()
    await until(lambda: not is_alive(pid))

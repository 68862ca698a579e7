"""kill -9 of the agent, its zygote and both while jobs start and end: each job runs once, with its own result."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from muster.v1 import node_pb2
from tests.fake_controller import BATCH, Agent, FakeController, eventually, world

World = tuple[FakeController, Callable[..., Agent]]
JOBS = 400


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


def script(job_id: int) -> str:
    """A job that says in its own file that it ran, works a moment, and ends with a code of its own."""
    return f"#!/bin/sh\necho ran >> out/{job_id}\nsleep 0.0{job_id % 7}\nexit {job_id % 5}\n"


async def load(controller: FakeController, work_dir: Path, dice: random.Random) -> None:
    """Order jobs in bursts, as the controller does: what is not acknowledged on a stream is repeated on the next."""
    launches = {job: controller.batch(job, script(job), work_dir, std_out="none") for job in range(1, JOBS + 1)}
    waiting = list(launches)
    while waiting:
        burst = waiting[: dice.randint(1, 12)]
        before = len(controller.registrations)

        def done(burst: list[int] = burst, before: int = before) -> bool:
            return len(controller.registrations) > before or all((job, 0, BATCH) in controller.began for job in burst)

        try:
            await controller.launch(*(launches[job] for job in burst))
            await controller.until(done)
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The stream went while this was written: it may have been lost, or not.
            await controller.until(lambda before=before: len(controller.registrations) > before)  # type: ignore[misc]
        known = {run.job_id for run in controller.registrations[-1].runs}
        there = {job for job in launches if (job, 0, BATCH) in controller.began or (job, 0, BATCH) in controller.ended}
        waiting = [job for job in waiting if job not in known and job not in there]


async def torment(
    controller: FakeController, agent: Agent, dice: random.Random, victims: str, kills: list[int]
) -> None:
    """Kill at random moments, and start the agent again, until cancelled."""
    seen = 0
    while True:
        # Some agents are killed before they have come up; most get to work, however slow the machine is.
        if dice.random() < 0.7 and victims != "zygote":
            await controller.until(lambda seen=seen: len(controller.registrations) > seen, 120)  # type: ignore[misc]
        await asyncio.sleep(dice.random() * (0.2 if victims == "zygote" else 0.7))
        seen = len(controller.registrations)
        if victims in ("zygote", "both") and (zygote := agent.zygote()):
            with suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGKILL)
                kills.append(zygote)
        if victims in ("agent", "both"):
            agent.kill()
            agent.start()
            kills.append(0)


@pytest.mark.parametrize("victims", ["agent", "zygote", "both"])
async def test_each_job_runs_once_whatever_is_killed(cluster: World, tmp_path: Path, victims: str) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    controller, make = cluster
    (tmp_path / "out").mkdir()
    agent = make()
    await controller.until(lambda: controller.registrations)
    kills: list[int] = []
    tormenting = asyncio.create_task(torment(controller, agent, dice, victims, kills))
    try:
        async with asyncio.timeout(120):
            await load(controller, tmp_path, dice)
            print(f"{len(kills)} kills while loading")
            await controller.until(lambda: len(kills) >= 3)
    finally:
        tormenting.cancel()
        await asyncio.gather(tormenting, return_exceptions=True)
    for job in range(1, JOBS + 1):
        ended = await controller.batch_result(job)
        assert not ended.error, (job, ended.error)
        assert [(task.rank, task.status) for task in ended.tasks] == [(0, (job % 5) << 8)], job
    for job in range(1, JOBS + 1):
        assert (tmp_path / "out" / str(job)).read_text() == "ran\n", job
        results = {message.SerializeToString(deterministic=True) for message in controller.ended[job, 0, BATCH]}
        assert len(results) == 1, job
    # What was reported while the controller could not acknowledge is acknowledged on the last stream.
    await eventually(lambda: not agent.folders())


async def test_a_job_outlives_its_agent_and_is_taken_over(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    await controller.launch(controller.batch(7, "#!/bin/sh\necho $$ > pid\nread go < gate\nexit 4\n", tmp_path))
    os.mkfifo(tmp_path / "gate")
    await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    agent.kill()
    agent.start()
    await controller.until(lambda: len(controller.registrations) == 2)
    runs = controller.registrations[1].runs
    assert [(run.job_id, run.run, run.step_id, run.running) for run in runs] == [(7, 0, BATCH, True)]
    os.kill(pid, 0)
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    ended = await controller.batch_result(7)
    assert ended.tasks[0].status == 4 << 8


async def test_a_job_that_ends_without_an_agent_is_reported_by_the_next(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    os.mkfifo(tmp_path / "gate")
    await controller.launch(controller.batch(7, "#!/bin/sh\nread go < gate\nexit 4\n", tmp_path))
    await controller.until(lambda: controller.began)
    agent.kill()
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    await eventually(lambda: (agent.spool / "steps" / f"7.0.{BATCH}" / "result").exists())
    agent.start()
    await controller.until(lambda: len(controller.registrations) == 2)
    assert (await controller.batch_result(7)).tasks[0].status == 4 << 8


async def test_unacknowledged_results_are_reported_on_each_stream(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    controller.forgets = False
    key = (7, 0, BATCH)
    await controller.launch(controller.batch(7, "#!/bin/sh\nexit 4\n", tmp_path))
    await controller.result(key)
    await controller.close()
    await controller.open()
    await controller.until(lambda: len(controller.ended[key]) == 2)
    agent.kill()
    agent.start()
    await controller.until(lambda: len(controller.ended[key]) == 3)
    assert len({message.SerializeToString(deterministic=True) for message in controller.ended[key]}) == 1
    await controller.order(forget=[node_pb2.RunHere(job_id=7, run=0, step_id=BATCH)])
    await eventually(lambda: not agent.folders())


async def test_a_killed_stepd_is_reported_and_leaves_nothing(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    text = "#!/bin/bash\nsetsid sleep 1000 &\necho $! > pid.new\nmv pid.new pid\nwait\n"
    await controller.launch(controller.batch(7, text, tmp_path))
    await eventually((tmp_path / "pid").exists)
    grandchild = int((tmp_path / "pid").read_text())
    stepd = int((agent.spool / "steps" / f"7.0.{BATCH}" / "pid").read_text())
    os.kill(stepd, signal.SIGKILL)
    ended = await controller.batch_result(7)
    assert "supervisor was killed" in ended.error
    assert [(task.rank, task.status) for task in ended.tasks] == [(0, 9)]
    await eventually(lambda: not alive(grandchild))


def alive(pid: int) -> bool:
    """Tell whether a process lives (one that has ended and was not waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

"""One agent, a controller that only speaks: batch jobs from launch to forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from muster.v1 import node_pb2
from tests.fake_controller import BATCH, Agent, FakeController, eventually, world

World = tuple[FakeController, Callable[..., Agent]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def test_runs_a_batch_script_and_forgets_it(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    await controller.launch(controller.batch(1, "#!/bin/sh\necho hello $SLURM_JOB_ID\nexit 3\n", tmp_path))
    ended = await controller.batch_result(1)
    assert [(task.rank, task.status) for task in ended.tasks] == [(0, 3 << 8)]
    assert ended.job_gone and not ended.error
    assert (tmp_path / "slurm-1.out").read_text() == "hello 1\n"
    assert controller.began == [(1, 0, BATCH)]
    await eventually(lambda: not agent.folders())


async def test_registers_with_what_was_found_and_beats(cluster: World) -> None:
    controller, make = cluster
    make("n1", "--cpus", "8", "--threads", "2", "--memory", "4096", "--gpus", "h200:2")
    await controller.until(lambda: controller.heartbeats >= 2)
    said = controller.registrations[0]
    assert (said.name, said.protocol, said.cpus, said.sockets, said.cores_per_socket, said.threads_per_core) == (
        "n1", 1, 8, 1, 4, 2,
    )  # fmt: skip
    assert said.memory_mib == 4096 and list(said.gpus) == ["h200", "h200"]
    assert said.boot_at > 0 and said.arch and said.port and said.io_socket.endswith(".io")
    assert any("memory is not limited" in sentence for sentence in said.limits_off)


async def test_a_repeated_launch_is_only_acknowledged(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    launch = controller.batch(1, "#!/bin/sh\necho x >> ran\nread line < gate\n", tmp_path)
    (tmp_path / "gate").write_bytes(b"")
    (tmp_path / "gate").unlink()
    import os

    os.mkfifo(tmp_path / "gate")
    await controller.launch(launch)
    await controller.until(lambda: len(controller.began) == 1)
    await controller.launch(launch)
    await controller.until(lambda: len(controller.began) == 2)
    await eventually(lambda: (tmp_path / "ran").exists())
    with (tmp_path / "gate").open("w") as gate:
        gate.write("go\n")
    await controller.batch_result(1)
    await controller.launch(launch)
    await controller.until(lambda: len(controller.began) == 3)
    assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_missing_blob_is_asked_for(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    launch = controller.batch(1, "#!/bin/sh\nexit 0\n", tmp_path)
    controller.send_blobs = False
    await controller.launch(launch)
    await controller.until(lambda: set(controller.missing) == {launch.script, launch.environment})
    assert not controller.began
    controller.send_blobs = True
    await controller.launch(launch)
    await controller.batch_result(1)


async def test_the_end_of_a_run_that_is_not_here_is_answered_and_remembered(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    await controller.order(end_run=[node_pb2.EndRun(job_id=1, run=0, now=True)])
    await controller.until(lambda: (1, 0) in controller.gone)
    await controller.launch(controller.batch(1, "#!/bin/sh\ntouch ran\n", tmp_path))
    await controller.launch(controller.batch(2, "#!/bin/sh\nexit 0\n", tmp_path))
    await controller.batch_result(2)
    assert (1, 0, BATCH) not in controller.began and not (tmp_path / "ran").exists()

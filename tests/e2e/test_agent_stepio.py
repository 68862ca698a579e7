"""Step input and output as srun sees it: on this host, through another agent, too early, too late, gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from muster import frames
from muster.v1 import node_pb2
from tests.fake_controller import ROOT, Agent, FakeController, eventually, world

World = tuple[FakeController, Callable[..., Agent]]
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts as other users")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


class Srun:
    """One connection for step input and output."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.answer: dict[str, Any] = {}

    @classmethod
    async def connect(cls, agent: Agent, *, also: bytes = b"", node: str = "n1", step: int = 0, **more: Any) -> Srun:
        """Connect and ask for job 1's step; `also` goes out in the same write as the first line."""
        await eventually(Path(f"{agent.socket}.io").exists)
        reader, writer = await asyncio.open_unix_connection(f"{agent.socket}.io", limit=1 << 24)
        srun = cls(reader, writer)
        writer.write(json.dumps({"job": 1, "run": 0, "step": step, "node": node, **more}).encode() + b"\n" + also)
        await writer.drain()
        return srun

    async def greeted(self) -> dict[str, Any]:
        """Read the answer's line."""
        self.answer = json.loads(await asyncio.wait_for(self.reader.readline(), 30))
        if "error" in self.answer:
            self.writer.close()
            await self.writer.wait_closed()
        return self.answer

    async def frames(self) -> list[tuple[int, int, bytes]]:
        """Read all frames to the end."""
        found: list[tuple[int, int, bytes]] = []
        cutter = frames.Reader()
        async with asyncio.timeout(30):
            while data := await self.reader.read(1 << 18):
                found += cutter.feed(data)
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
        return found


def output(found: list[tuple[int, int, bytes]], kind: int = frames.STDOUT, rank: int = 0) -> bytes:
    """Join what a task wrote."""
    return b"".join(data for one, of, data in found if (one, of) == (kind, rank))


async def test_frames_sent_with_the_first_line_reach_the_task(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    await controller.launch(controller.step(1, 0, ["cat"], tmp_path, step={"std_in_mode": "stream"}))
    await controller.until(lambda: controller.began)
    early = frames.pack(frames.STDIN, frames.ALL, b"hello\n") + frames.pack(frames.STDIN_END, frames.ALL)
    srun = await Srun.connect(agent, also=early)
    assert await srun.greeted() == {"ok": True}
    found = await srun.frames()
    assert output(found) == b"hello\n"
    kinds = [kind for kind, _, _ in found]
    assert kinds[0] == frames.BEGAN
    assert frames.EXITED in kinds
    assert kinds[-1] == frames.DONE
    ended = await controller.result((1, 0, 0))
    assert [(task.rank, task.status) for task in ended.tasks] == [(0, 0)]
    assert not ended.job_gone


async def test_srun_may_come_before_the_launch(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    srun = await Srun.connect(agent)
    await controller.launch(controller.step(1, 0, ["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, tasks=2))
    assert await srun.greeted() == {"ok": True}
    found = await srun.frames()
    for rank in (0, 1):
        assert output(found, frames.STDOUT, rank) == b"out\n"
        assert output(found, frames.STDERR, rank) == b"err\n"
        assert output(found, frames.EXITED, rank) == frames.NUMBER.pack(3 << 8)


async def test_a_step_of_another_node_is_reached_through_its_agent(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    here, there = make("n1"), make("n2")
    await controller.until(lambda: {said.name for said in controller.registrations} == {"n1", "n2"})
    said = next(said for said in controller.registrations if said.name == "n2")
    data = bytes(range(256)) * 4096
    launch = controller.step(1, 0, ["cat"], tmp_path, step={"std_in_mode": "stream"})
    launch.here.node_name = "n2"
    srun = await Srun.connect(here, node="n2", addr=f"127.0.0.1:{said.port}")
    await controller.launch(launch, node="n2")
    assert await srun.greeted() == {"ok": True}

    async def write() -> None:
        for start in range(0, len(data), 65536):
            srun.writer.write(frames.pack(frames.STDIN, 0, data[start : start + 65536]))
            await srun.writer.drain()
        srun.writer.write(frames.pack(frames.STDIN_END, 0))
        await srun.writer.drain()

    _, found = await asyncio.gather(write(), srun.frames())
    assert output(found) == data
    assert found[-1][0] == frames.DONE
    assert there.folders() == [] or (await controller.result((1, 0, 0)))


async def test_what_cannot_be_attached_is_said(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    await controller.until(lambda: controller.registrations)
    srun = await Srun.connect(agent, node="n9")
    assert "no address was given" in (await srun.greeted())["error"]
    srun = await Srun.connect(agent, node="n9", addr="127.0.0.1:1")
    assert "the agent of node n9 cannot be reached at 127.0.0.1:1" in (await srun.greeted())["error"]
    port = controller.registrations[0].port
    srun = await Srun.connect(agent, node="n9", addr=f"127.0.0.1:{port}")
    assert "node n9 is asked for at the agent of n1" in (await srun.greeted())["error"]
    srun = await Srun.connect(agent, job="x")
    assert "the first line for step input and output is wrong" in (await srun.greeted())["error"]
    controller.forgets = False
    await controller.launch(controller.step(1, 0, ["true"], tmp_path, std_out="none", std_err="none"))
    await controller.until(lambda: controller.began)
    first = await Srun.connect(agent)
    await first.greeted()
    await first.frames()
    await controller.result((1, 0, 0))
    srun = await Srun.connect(agent)
    assert await srun.greeted() == {"error": "StepId=1.0 has ended"}


async def test_a_step_goes_on_when_srun_is_gone(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    text = "echo ready; read line; i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; echo $? > done"
    await controller.launch(controller.step(1, 0, ["sh", "-c", text], tmp_path, step={"std_in_mode": "stream"}))
    srun = await Srun.connect(agent)
    await srun.greeted()
    await srun.reader.readuntil(b"ready")
    # The input ends with it: the read fails, the loop writes more than a pipe holds.
    srun.writer.close()
    ended = await controller.result((1, 0, 0))
    assert ended.tasks[0].status == 0
    assert (tmp_path / "done").read_text() == "0\n"


async def test_an_ended_step_tells_srun_that_comes_late(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    await controller.launch(controller.step(1, 0, ["sh", "-c", "echo early; exit 2"], tmp_path))
    await eventually(lambda: any("1.0.0" in name for name in agent.folders()))
    srun = await Srun.connect(agent)
    assert await srun.greeted() == {"ok": True}
    found = await srun.frames()
    assert output(found) == b"early\n"
    assert output(found, frames.EXITED) == frames.NUMBER.pack(2 << 8)


async def test_a_program_that_is_not_there_is_said_to_srun(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    await controller.launch(controller.step(1, 0, ["/no/such/program"], tmp_path))
    srun = await Srun.connect(agent)
    await srun.greeted()
    found = await srun.frames()
    assert b"error: execve(): /no/such/program: No such file or directory" in output(found, frames.STDERR)
    assert output(found, frames.EXITED) == frames.NUMBER.pack(2 << 8)


@pytest.mark.root
@root
async def test_another_user_may_not_attach(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    await controller.launch(controller.step(1, 0, ["cat"], tmp_path, step={"std_in_mode": "stream"}))
    await controller.until(lambda: controller.began)
    await eventually(Path(f"{agent.socket}.io").exists)
    tmp_path.chmod(0o711)
    program = (
        "import os, socket, sys\n"
        "connection = socket.socket(socket.AF_UNIX)\n"
        "os.chdir(sys.argv[1])\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "connection.connect('n1.sock.io')\n"
        'connection.sendall(b\'{"job":1,"run":0,"step":0,"node":"n1"}\\n\')\n'
        "print(connection.makefile().readline())\n"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=True, cwd=ROOT
    )
    assert json.loads(done.stdout) == {"error": "StepId=1.0 belongs to another user"}
    await controller.order(end_step=[node_pb2.EndStep(job_id=1, run=0, step_id=0, now=True)])
    await controller.result((1, 0, 0))


async def test_a_bad_exit_ends_the_other_tasks_when_asked(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    text = 'if [ "$SLURM_PROCID" = 1 ]; then exit 5; fi; sleep 1000'
    launch = controller.step(1, 0, ["sh", "-c", text], tmp_path, tasks=2, step={"kill_on_bad_exit": True})
    await controller.launch(launch)
    srun = await Srun.connect(agent)
    await srun.greeted()
    found = await srun.frames()
    said = b"".join(data for kind, _, data in found if kind == frames.MESSAGE).decode()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
    line = rf"\[{stamp}\.\d{{3}}\] error: \*\*\* STEP 1\.0 ON n1 CANCELLED AT {stamp} DUE TO TASK FAILURE \*\*\*"
    assert re.fullmatch(line, said)
    ended = await controller.result((1, 0, 0))
    assert [(task.rank, task.status) for task in ended.tasks] == [(0, 15), (1, 5 << 8)]


async def test_an_unbuffered_step_writes_to_a_terminal(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    agent = make()
    text = "test -t 1 && echo terminal; test -t 2 || echo no terminal >&2"
    await controller.launch(controller.step(1, 0, ["sh", "-c", text], tmp_path, step={"unbuffered": True}))
    srun = await Srun.connect(agent)
    await srun.greeted()
    found = await srun.frames()
    assert output(found) == b"terminal\n"
    assert output(found, frames.STDERR) == b"no terminal\n"

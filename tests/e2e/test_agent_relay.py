"""People's calls on the agent's socket, and what an administrator sees of an agent that cannot serve."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from muster.v1 import node_pb2
from tests.fake_controller import Agent, FakeController, eventually, world

World = tuple[FakeController, Callable[..., Agent]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def call(agent: Agent, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, object]]:
    """Make one call on an agent's socket."""
    await eventually(agent.socket.exists)
    connector = aiohttp.UnixConnector(str(agent.socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        answer = await session.request(method, f"http://muster{path}", data=body)
        return answer.status, json.loads(await answer.read())


async def test_a_call_is_passed_on_with_the_caller_that_the_kernel_names(cluster: World) -> None:
    controller, make = cluster
    agent = make()
    body = b"x" * 200_000
    assert await call(agent, "POST", "/jobs?user=1", body) == (200, {"path": "/jobs?user=1"})
    (request,) = controller.calls
    assert (request.method, request.path, request.body) == ("POST", "/jobs?user=1", body)
    assert (request.uid, request.gid, request.pid) == (os.getuid(), os.getgid(), os.getpid())
    assert request.host == socket.gethostname()


async def test_calls_are_answered_together(cluster: World) -> None:
    _, make = cluster
    agent = make()
    answers = await asyncio.gather(*(call(agent, "GET", f"/jobs/{number}") for number in range(64)))
    assert answers == [(200, {"path": f"/jobs/{number}"}) for number in range(64)]


async def test_without_a_controller_a_call_gets_slurms_words(cluster: World) -> None:
    controller, make = cluster
    agent = make()
    await controller.until(lambda: controller.registrations)
    await controller.close()
    status, answer = await call(agent, "GET", "/jobs")
    assert status == 503
    error = answer["error"]
    assert isinstance(error, dict)
    assert (error["code"], error["sentence"], error["slurm_code"]) == (
        "UNAVAILABLE", "Unable to contact slurm controller (connect failure)", 1800,
    )  # fmt: skip
    await controller.open()
    await controller.until(lambda: len(controller.registrations) == 2)
    assert (await call(agent, "GET", "/jobs"))[0] == 200


async def test_a_second_agent_on_the_same_spool_is_told_so(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    first = make()
    await controller.until(lambda: controller.registrations)
    second = make("n1")
    assert second.process is not None
    assert first.process is not None
    assert await asyncio.to_thread(second.process.wait, 30) == 1
    assert f"another noded has the spool {first.spool} (process {first.process.pid})" in second.said()
    assert first.process.poll() is None


async def test_an_agent_that_is_refused_for_good_ends_and_says_why(cluster: World) -> None:
    controller, make = cluster
    controller.refusal = node_pb2.Refusal(sentence="the certificate may not register n1", final=True)
    agent = make()
    assert agent.process is not None
    assert await asyncio.to_thread(agent.process.wait, 30) == 1
    assert "the controller refuses node n1 for good: the certificate may not register n1" in agent.said()


async def test_an_agent_that_is_refused_for_now_tries_again(cluster: World) -> None:
    controller, make = cluster
    controller.refusal = node_pb2.Refusal(sentence="not yet")
    agent = make()
    await eventually(lambda: "the controller refuses this node: not yet; trying again" in agent.said())
    controller.refusal = None
    await controller.until(lambda: controller.registrations)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cpus", "8", "--sockets", "3", "--cores", "5"], "--cpus=8 does not fit 3 sockets of 5 cores"),
        (["--gpus", "/no/such/file"], "--gpus=/no/such/file: cannot read the file: No such file or directory"),
        (["--socket", "/" + "x" * 120], "has 121 bytes, 100 are the most"),
        (["--certificates", "/no/such/folder"], "cannot read the certificate file /no/such/folder/compute-n1.key"),
    ],
)
async def test_a_wrong_option_ends_it_with_one_sentence(cluster: World, arguments: list[str], sentence: str) -> None:
    _, make = cluster
    agent = make("n1", *arguments)
    assert agent.process is not None
    assert await asyncio.to_thread(agent.process.wait, 30) == 1
    assert sentence in agent.said()
    assert "Traceback" not in agent.said()

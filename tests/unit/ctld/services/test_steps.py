"""srun's routes: making a step, waiting for room, signals, ends, and whose step it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ctld.core.commands import Cancel, FinishStep
from ctld.core.model import Caller, StepResult, TaskResult
from ctld.services import changes, steps
from ctld.services.door import Door
from muster.ids import JobId, StepId
from tests.builders import ADMIN, OTHER, USER
from tests.nodestream import Desk


class Srun:
    """The routes over a desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.door = Door()
        context = steps.Context(desk.store, desk.links, desk.dispatcher, desk.blobs, desk.clock)  # type: ignore[arg-type]
        self.door.add(steps.routes(context))

    async def ask(self, method: str, target: str, body: bytes = b"", by: Caller = USER) -> tuple[int, Any]:
        answer = await self.door.answer(by, method, target, body)
        return answer.status, json.loads(answer.body)

    async def create(self, job: int, query: str = "", *, by: Caller = USER, **request: Any) -> tuple[int, Any]:
        body = json.dumps({"name": "s", "argv": ["true"], **request}).encode()
        return await self.ask("POST", f"/v1/jobs/{job}/steps{query}", body, by)

    def end(self, job: int, step: int) -> None:
        self.desk.post(FinishStep(JobId(job), 0, StepId(step), StepResult(node=0, tasks=(TaskResult(0, 0),))))


@pytest.fixture
async def srun() -> Srun:
    return Srun(Desk())


def turned(task: asyncio.Task[Any]) -> None:
    assert not task.done()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_step_is_answered_with_where_it_runs(srun: Srun) -> None:
    desk = srun.desk
    desk.link(0)
    desk.links.pulse(0).io_socket = "/run/n1.io"
    job = desk.running(0, 1, script=b"")
    status, made = await srun.create(job, ntasks=2, nodes=[2, 2])
    assert status == 200
    assert (made["step_id"], made["run"], made["ntasks"], made["nodelist"]) == (0, 0, 2, "n[1-2]")
    assert [(node["name"], node["io"], node["ranks"]) for node in made["nodes"]] == [
        ("n1", "/run/n1.io", [0]),
        ("n2", "", [1]),
    ]


async def test_an_answer_comes_when_the_step_is_durable_and_names_the_run_it_was_made_in(srun: Srun) -> None:
    desk = srun.desk
    job = desk.running(0)
    desk.journal.holding = True
    creating = asyncio.create_task(srun.create(job))
    await settle()
    turned(creating)
    assert list(desk.state.steps[JobId(job)]) == [0]
    # Meanwhile the job ends and leaves memory; its srun is answered all the same.
    del desk.state.jobs[JobId(job)]
    desk.journal.release()
    status, made = await creating
    assert (status, made["run"]) == (200, 0)


async def test_a_repeated_request_is_answered_with_the_step_it_made(srun: Srun) -> None:
    job = srun.desk.running(0)
    first = await srun.create(job, token="abc")
    assert await srun.create(job, token="abc") == first
    srun.end(job, 0)
    assert (await srun.create(job, token="abc"))[1]["step_id"] == 1


async def test_a_step_that_finds_no_room_is_refused_at_once_or_waits_for_it(srun: Srun) -> None:
    job = srun.desk.running(0)
    assert (await srun.create(job))[0] == 200
    status, refused = await srun.create(job)
    assert (status, refused["error"]["slurm_code"]) == (409, steps.BUSY)
    waiting = [asyncio.create_task(srun.create(job, "?wait=30")) for _ in range(2)]
    await settle()
    for one in waiting:
        turned(one)
    srun.end(job, 0)
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert [task.result()[1]["step_id"] for task in done] == [1]
    # The other goes on waiting, and hears when the job ends.
    srun.desk.post(Cancel(JobId(job), USER))
    srun.end(job, 1)
    (left,) = pending
    status, refused = await asyncio.wait_for(left, 10)
    assert status == 409
    assert refused["error"]["slurm_code"] != steps.BUSY


async def test_a_step_that_waits_in_vain_is_refused(srun: Srun) -> None:
    job = srun.desk.running(0)
    await srun.create(job)
    status, refused = await srun.create(job, "?wait=0.01")
    assert (status, refused["error"]["slurm_code"]) == (409, steps.BUSY)


async def test_who_stops_waiting_makes_no_step(srun: Srun) -> None:
    job = srun.desk.running(0)
    await srun.create(job)
    waiting = asyncio.create_task(srun.create(job, "?wait=30"))
    await settle()
    waiting.cancel()
    await asyncio.wait([waiting])
    srun.end(job, 0)
    await settle()
    assert not srun.desk.state.steps.get(JobId(job))


async def test_more_than_may_wait_are_told_to_come_back(srun: Srun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_WAITING", 1)
    job = srun.desk.running(0)
    await srun.create(job)
    waiting = asyncio.create_task(srun.create(job, "?wait=30"))
    await settle()
    assert (await srun.create(job, "?wait=30"))[0] == 503
    srun.end(job, 0)
    assert (await asyncio.wait_for(waiting, 10))[0] == 200


@pytest.mark.parametrize(
    ("query", "request_fields", "said"),
    [
        ("?wait=soon", {}, "wait='soon' is no number of seconds"),
        ("?wait=nan", {}, "wait='nan' is no number of seconds"),
        ("", {"environment": ["nothing"]}, "the environment's entry 'nothing' is not NAME=value"),
        ("", {"environment": ["A=b\0c"]}, "holds a NUL byte"),
        ("", {"nodes": [1]}, "nodes"),
        ("", {"input_mode": "odd"}, "input_mode"),
    ],
)
async def test_a_request_that_cannot_be_read_is_refused(
    srun: Srun, query: str, request_fields: dict[str, Any], said: str
) -> None:
    job = srun.desk.running(0)
    status, refused = await srun.create(job, query, **request_fields)
    assert status == 400
    assert said in refused["error"]["sentence"]
    assert not srun.desk.state.steps.get(JobId(job))


async def test_other_resources_than_gpus_are_refused_for_a_step_by_name(srun: Srun) -> None:
    job = srun.desk.running(0)
    status, told = await srun.create(job, gres="gpu:1,nic:2")
    assert (status, told["error"]["hint"]) == (
        409,
        "--gres=nic is not supported for a step: without --gres it has what its job has of it",
    )


async def test_a_torn_frame_is_refused(srun: Srun) -> None:
    job = srun.desk.running(0)
    status, refused = await srun.ask("POST", f"/v1/jobs/{job}/steps", b"MSTR1 1\n")
    assert (status, "torn" in refused["error"]["sentence"]) == (400, True)


async def test_a_signal_reaches_the_steps_tasks(srun: Srun) -> None:
    desk = srun.desk
    link = desk.link(0)
    job = desk.running(0)
    await srun.create(job)
    link.take()
    signalling = asyncio.create_task(srun.ask("POST", f"/v1/jobs/{job}/steps/0/signal?signal=USR1"))
    await settle()
    orders = link.take()
    assert orders is not None
    assert [(one.signo, one.scope, one.step_id) for one in orders.signal] == [(10, "step", 0)]
    desk.dispatcher.signalled([orders.signal[0].serial])
    assert await signalling == (200, {})


async def test_a_signal_that_no_node_takes_is_unavailable_and_an_odd_one_wrong(srun: Srun) -> None:
    job = srun.desk.running(0)
    await srun.create(job)
    assert (await srun.ask("POST", f"/v1/jobs/{job}/steps/0/signal?signal=USR1"))[0] == 503
    assert (await srun.ask("POST", f"/v1/jobs/{job}/steps/0/signal?signal=ODD"))[0] == 400


async def test_a_cancelled_step_is_ended_on_its_node(srun: Srun) -> None:
    link = srun.desk.link(0)
    job = srun.desk.running(0)
    await srun.create(job)
    link.take()
    assert await srun.ask("POST", f"/v1/jobs/{job}/steps/0/cancel") == (200, {})
    orders = link.take()
    assert orders is not None
    assert [one.step_id for one in orders.end_step] == [0]


async def test_a_step_is_shown_until_it_ends(srun: Srun) -> None:
    job = srun.desk.running(0)
    await srun.create(job)
    target = f"/v1/jobs/{job}/steps/0"
    assert await srun.ask("GET", target) == (200, {"running": True, "job_state": "RUNNING", "lost": []})
    srun.end(job, 0)
    assert await srun.ask("GET", target) == (200, {"running": False, "job_state": "RUNNING", "lost": []})


@pytest.mark.parametrize(
    ("method", "suffix"), [("POST", "/signal?signal=USR1"), ("POST", "/cancel"), ("GET", "")], ids=str
)
async def test_a_step_is_its_owners_and_an_administrators(srun: Srun, method: str, suffix: str) -> None:
    link = srun.desk.link(0)
    job = srun.desk.running(0)
    await srun.create(job)
    link.take()
    target = f"/v1/jobs/{job}/steps/0{suffix}"
    status, refused = await srun.ask(method, target, by=OTHER)
    assert (status, refused["error"]["slurm_code"]) == (403, 2002)
    assert link.take() is None
    assert (await srun.create(job, by=OTHER))[0] == 403
    admin = asyncio.create_task(srun.ask(method, target, by=ADMIN))
    await settle()
    orders = link.take()
    srun.desk.dispatcher.signalled([one.serial for one in orders.signal] if orders is not None else [])
    assert (await admin)[0] == 200


@pytest.mark.parametrize(("target", "status"), [("99/steps/0", 404), ("x/steps/0", 400), ("1/steps/" + "9" * 12, 400)])
async def test_a_step_that_cannot_be_is_said(srun: Srun, target: str, status: int) -> None:
    srun.desk.running(0)
    assert (await srun.ask("GET", f"/v1/jobs/{target}"))[0] == status


async def test_a_step_that_does_not_run_cannot_be_signalled(srun: Srun) -> None:
    job = srun.desk.running(0)
    status, refused = await srun.ask("POST", f"/v1/jobs/{job}/steps/7/signal?signal=USR1")
    assert (status, refused["error"]["slurm_code"]) == (404, 2017)

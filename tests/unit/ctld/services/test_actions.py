"""Submitting and waiting, as the door's routes do it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec
import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import ApplyPlan, Cancel, FinishBatch, ReleaseNode, Submit
from ctld.core.model import Caller, Job, NodeShare, StepResult, TaskResult
from ctld.core.plan import Plan, Start
from ctld.services import names
from ctld.services.actions import Context, routes
from ctld.services.door import Door
from ctld.store.memory import MemoryBlobs, MemoryJournal
from ctld.store.store import Store
from muster.clock import SystemClock
from muster.errors import Unavailable
from muster.ids import JobId
from tests.builders import ADMIN, NOON, USER, a_spec, a_state
from tests.serving import RecordedSignals


class FullJournal(MemoryJournal):
    """A journal on a disk that has only so much room."""

    room = 0

    def ensure_room(self, nbytes: int) -> None:
        if nbytes > self.room:
            raise Unavailable("the disk is nearly full")


class Controller:
    """A door over a state in memory."""

    def __init__(self, journal: MemoryJournal | None = None, **settings: Any) -> None:
        self.state = a_state(settings=Settings(require_registration=False, **settings))
        self.journal = journal or MemoryJournal()
        self.store = Store(self.state, self.journal)
        self.blobs = MemoryBlobs(self.journal)
        self.signals = RecordedSignals()
        self.door = Door()
        self.door.add(routes(Context(self.store, self.signals, SystemClock(), self.blobs, lambda: None)))

    async def call(self, method: str, target: str, body: bytes = b"", caller: Caller = USER) -> tuple[int, Any]:
        answer = await self.door.answer(caller, method, target, body)
        return answer.status, msgspec.json.decode(answer.body)

    def submit(self, **fields: Any) -> Job:
        self.store.post(Submit(a_spec(**fields), USER), at=NOON)
        return next(reversed(self.state.jobs.values()))

    def start(self, job_id: int) -> None:
        share = NodeShare(node=job_id % 4, cpus=1, cores=(0, 0))
        self.store.post(ApplyPlan(Plan(NOON, (Start(JobId(job_id), "main", (share,)),))), at=NOON)

    def end(self, job_id: int, status: int) -> None:
        result = StepResult(node=job_id % 4, tasks=(TaskResult(0, status),))
        self.store.post(FinishBatch(JobId(job_id), self.state.jobs[job_id].restarts, result), at=NOON)


def framed(body: bytes, script: bytes = b"#!/bin/sh\n", environment: bytes = b"") -> bytes:
    return b"MSTR1 %d %d %d\n" % (len(body), len(script), len(environment)) + body + script + environment


async def test_both_forms_of_a_submission_make_the_same_job() -> None:
    controller = Controller()
    plain = b'{"work_dir": "/w", "script": "#!/bin/sh\\n", "environment": ["A=b", "C=d"], "ntasks": 3}'
    frame = framed(b'{"work_dir": "/w", "ntasks": 3}', b"#!/bin/sh\n", b"A=b\0C=d\0")
    assert await controller.call("POST", "/v1/jobs", plain) == (
        200,
        {"job_id": 1, "cluster": "cluster", "messages": []},
    )
    assert (await controller.call("POST", "/v1/jobs", frame))[1]["job_id"] == 2
    first, second = (controller.state.jobs[i].spec for i in (1, 2))
    assert first == second
    assert controller.blobs.get(first.environment) == b"A=b\0C=d\0"
    assert len(controller.journal.blobs) == 2, "equal scripts and environments are stored once"


async def test_blobs_and_event_are_one_append() -> None:
    appended: list[tuple[int, int]] = []

    class Noting(MemoryJournal):
        def append(self, payloads: Sequence[bytes], blobs: Sequence[tuple[bytes, bytes]] = ()) -> Awaitable[int]:
            appended.append((len(payloads), len(blobs)))
            return super().append(payloads, blobs)

    controller = Controller(Noting())
    await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/"}', environment=b"A=b\0"))
    assert appended == [(1, 2)]


async def test_the_owner_is_who_the_kernel_says() -> None:
    controller = Controller()
    status, _ = await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/"}'), Caller(uid=0, gid=0))
    assert status == 200
    spec = controller.state.jobs[1].spec
    assert (spec.uid, spec.gid, spec.user, spec.group) == (0, 0, "root", "root")
    status, answer = await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/", "uid": 5}'))
    assert (status, "no field uid" in answer["error"]["sentence"]) == (400, True)


async def test_a_number_without_a_name_is_its_own() -> None:
    cache = names.NameCache(monotonic=lambda: clock[0])
    clock = [0.0]
    assert cache.known(3_999_999, 3_999_998) is None
    found = await cache.find(3_999_999, 3_999_998)
    assert (found.user, found.group) == ("3999999", "3999998")
    clock[0] = 59.0
    assert cache.known(3_999_999, 3_999_998) == found
    clock[0] = 60.0
    assert cache.known(3_999_999, 3_999_998) is None


async def test_a_disk_without_room_refuses_in_one_sentence_and_changes_nothing() -> None:
    journal = FullJournal()
    controller = Controller(journal)
    status, answer = await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/"}'))
    assert (status, answer["error"]["sentence"]) == (503, "the disk is nearly full")
    assert not controller.state.jobs
    journal.room = 10_000
    assert (await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/"}')))[0] == 200
    big = framed(b'{"work_dir": "/"}', environment=b"A=" + b"x" * 20_000 + b"\0")
    assert (await controller.call("POST", "/v1/jobs", big))[0] == 503


async def test_a_refused_submission_leaves_no_blob() -> None:
    controller = Controller()
    status, _ = await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/", "partition": "none"}'))
    assert (status, controller.journal.blobs, controller.journal.last_queued) == (400, {}, 0)


async def test_the_queue_full_is_a_refusal_and_the_next_after_it_is_taken() -> None:
    controller = Controller(max_job_count=1)
    assert (await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/"}')))[0] == 200
    status, answer = await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/"}'))
    assert (status, answer["error"]["sentence"]) == (409, "MaxJobCount limit reached")


async def test_waiting_is_answered_when_it_happens() -> None:
    controller = Controller()
    controller.submit()
    started = asyncio.ensure_future(controller.call("GET", "/v1/jobs/1/wait?for=start&seconds=30"))
    ended = asyncio.ensure_future(controller.call("GET", "/v1/jobs/1/wait?for=end&seconds=30"))
    await asyncio.sleep(0)
    controller.start(1)
    _, answer = await asyncio.wait_for(started, 5)
    assert (answer["state"], answer["started"], answer["ended"], answer["nodes"]) == ("RUNNING", True, False, "n2")
    assert not ended.done()
    controller.end(1, 3 << 8)
    _, answer = await asyncio.wait_for(ended, 5)
    assert (answer["state"], answer["ended"], answer["exit_code"]) == ("FAILED", True, 3)


async def test_waiting_is_over_after_its_time() -> None:
    controller = Controller()
    controller.submit()
    for seconds in ("0", "0.05"):
        status, answer = await controller.call("GET", f"/v1/jobs/1/wait?seconds={seconds}")
        assert (status, answer["ended"], answer["state"]) == (200, False, "PENDING")


async def test_an_end_is_awaited_until_nothing_is_left_on_the_nodes() -> None:
    controller = Controller()
    controller.submit(nodes_min=2, nodes_max=2, ntasks=2)
    shares = tuple(NodeShare(node=node, cpus=1, cores=(0, 0)) for node in (1, 2))
    controller.store.post(ApplyPlan(Plan(NOON, (Start(JobId(1), "main", shares),))), at=NOON)
    waiting = asyncio.ensure_future(controller.call("GET", "/v1/jobs/1/wait?seconds=30"))
    await asyncio.sleep(0)
    controller.end(1, 0)
    _, answer = await controller.call("GET", "/v1/jobs/1/wait")
    assert (answer["state"], answer["ended"]) == ("COMPLETED", False)
    assert not waiting.done()
    controller.store.post(ReleaseNode(JobId(1), 0, 2), at=NOON)
    _, answer = await asyncio.wait_for(waiting, 5)
    assert answer["ended"]


async def test_an_array_is_over_with_its_last_member_and_has_the_worst_exit_code() -> None:
    controller = Controller()
    controller.submit(array=(0, 2))
    waiting = asyncio.ensure_future(controller.call("GET", "/v1/jobs/1/wait?seconds=30"))
    member = asyncio.ensure_future(controller.call("GET", "/v1/jobs/1_0/wait?seconds=30"))
    await asyncio.sleep(0)
    start = Start(JobId(1), "main", (NodeShare(node=2, cpus=1, cores=(0, 0)),), task_id=0)
    controller.store.post(ApplyPlan(Plan(NOON, (start,))), at=NOON)
    controller.end(2, 7 << 8)
    _, answer = await asyncio.wait_for(member, 5)
    assert (answer["ended"], answer["exit_code"]) == (True, 7)
    assert not waiting.done()
    controller.store.post(Cancel(JobId(1), USER), at=NOON)
    _, answer = await asyncio.wait_for(waiting, 5)
    assert (answer["ended"], answer["exit_code"]) == (True, 7)


async def test_a_signalled_end_counts_as_exit_code_1() -> None:
    controller = Controller()
    controller.submit()
    controller.start(1)
    controller.end(1, 9)
    _, answer = await controller.call("GET", "/v1/jobs/1/wait")
    assert (answer["exit_code"], answer["exit_status"]) == (1, 9)


async def test_too_many_waiting_calls_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctld.services.changes.MOST_WAITING", 1)
    controller = Controller()
    controller.submit()
    first = asyncio.ensure_future(controller.call("GET", "/v1/jobs/1/wait?seconds=30"))
    await asyncio.sleep(0)
    status, answer = await controller.call("GET", "/v1/jobs/1/wait?seconds=30")
    assert (status, answer["error"]["code"]) == (503, "UNAVAILABLE")
    controller.store.post(Cancel(JobId(1), USER), at=NOON)
    assert (await asyncio.wait_for(first, 5))[1]["ended"]


async def test_a_large_selection_is_ended_in_slices_that_let_others_in() -> None:
    controller = Controller()
    for _ in range(1000):
        controller.submit()
    cancelling = asyncio.ensure_future(controller.call("POST", "/v1/jobs/cancel", b'{"state": "PENDING"}', ADMIN))
    turns = 0
    while not cancelling.done():
        await asyncio.sleep(0)
        turns += 1
    status, answer = cancelling.result()
    assert (status, len(answer["results"])) == (200, 1000)
    assert turns >= 8
    assert all(job.state == 4 for job in controller.state.jobs.values())


async def test_a_signal_that_a_node_cannot_carry_out_is_said_of_its_job() -> None:
    controller = Controller()
    for _ in range(2):
        controller.submit()
    controller.start(1)
    controller.start(2)

    async def signal(job: Job, signo: int, scope: str, step_id: int = 0) -> None:
        if job.id == 1:
            raise Unavailable("Communication connection failure", slurm_code=1001)

    controller.signals.signal = signal  # type: ignore[method-assign]
    status, answer = await controller.call("POST", "/v1/jobs/cancel", b'{"ids": ["1", "2"], "signal": "USR1"}')
    assert status == 200
    assert [(one["id"], one.get("error", {}).get("slurm_code")) for one in answer["results"]] == [
        ("1", 1001),
        ("2", None),
    ]


async def test_the_estimate_leaves_the_state_as_it_is() -> None:
    controller = Controller()
    controller.submit()
    controller.start(1)
    version, last = controller.state.queue.version, controller.journal.last_queued
    body = framed(b'{"work_dir": "/", "test_only": true, "gpus_per_node": "2", "nodes": [2, 2]}')
    status, answer = await controller.call("POST", "/v1/jobs", body)
    assert status == 200
    assert {key: answer[key] for key in ("cpus", "nodes", "partition", "job_id")} == {
        "cpus": 2,
        "nodes": "n[1-2]",
        "partition": "main",
        "job_id": 2,
    }
    assert (controller.state.queue.version, controller.journal.last_queued) == (version, last)
    assert controller.state.next_job_id == 2


async def test_an_estimate_of_what_cannot_start_says_why() -> None:
    controller = Controller()
    body = b'{"nodes": "n[1-4]", "state": "DOWN", "reason": "x"}'
    assert (await controller.call("POST", "/v1/nodes/update", body, ADMIN))[0] == 200
    status, answer = await controller.call("POST", "/v1/jobs", framed(b'{"work_dir": "/", "test_only": true}'))
    assert (status, answer["error"]["sentence"]) == (409, "Requested nodes are busy")
    assert "n[1-4]" in answer["error"]["hint"]

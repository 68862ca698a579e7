from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctld.core.events import JobRequeued
from ctld.core.model import Allocation, Caller, Job, NodeShare, Step
from ctld.services import tail as tail_module
from ctld.services.door import Door
from ctld.services.followers import FollowersService
from ctld.services.history import History
from ctld.store.memory import MemoryJournal
from dbd.database import open_database
from dbd.ingest import Ingest, Taken
from dbd.migrations import migrate
from dbd.services.accounting import AccountingService
from muster import rpc
from muster.clock import SystemClock
from muster.ids import JobId, StepId, UnixTime
from muster.states import JobState
from muster.v1 import accounting_pb2_grpc
from tests.builders import a_job, a_state
from tests.unit.ctld.services.accounting_rig import EventStore, certificates, finished, identity, step_finished
from tests.unit.dbd.outcomes import NOON, a_run, a_step

ADA = Caller(uid=1000, gid=1000)
BOB = Caller(uid=1001, gid=1001)
ROOT = Caller(uid=0, gid=0, admin=True)
LOG = "00" * 8


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certs"))


class Rig:
    """A controller's history with a dbd that can be taken away."""

    def __init__(self, certs: Path, folder: Path, journal: MemoryJournal | None = None) -> None:
        self.certs = certs
        self.engine = open_database(f"sqlite:///{folder / 'h.db'}")
        migrate(self.engine)
        self.ingest = Ingest(self.engine)
        self.store = EventStore(journal)
        settings = self.store.state.settings
        self.store.state.__dict__.update(a_state().__dict__)
        self.store.state.settings = settings
        self.door = Door()
        self.server = rpc.server()

    async def open(self) -> None:
        accounting_pb2_grpc.add_AccountingServicer_to_server(
            AccountingService(self.engine, ThreadPoolExecutor(1)), self.server
        )
        port = rpc.listen(self.server, identity(self.certs, "accounting", "dbd"), "127.0.0.1:0")
        await self.server.start()
        followers = FollowersService(self.store, "here")
        ctld = identity(self.certs, "controller", "ctld")
        self.history = History(self.store, followers, ctld, f"127.0.0.1:{port}", SystemClock())
        self.door.add(self.history.routes())

    def take(self, *outcomes: Taken, up_to: int) -> None:
        """What dbd's follower would have done by now."""
        self.ingest.take("here", LOG, outcomes, up_to)

    def run(self, job: Job, *steps: Step) -> None:
        """Have a job in memory."""
        self.store.state.jobs[job.id] = job
        self.store.state.steps[job.id] = {int(step.step_id): step for step in steps}

    async def ask(self, caller: Caller = ROOT, **asked: Any) -> Any:
        answer = await self.door.answer(caller, "POST", "/v1/history", msgspec.json.encode(asked))
        return json.loads(answer.body)

    async def rows(self, caller: Caller = ROOT, **asked: Any) -> list[tuple[int, int, str, list[int]]]:
        found = await self.ask(caller, **asked)
        assert (found["away_since"], found["missing_before"], found["why"]) == (0, 0, "")
        return rows_of(found)


def rows_of(answer: Any) -> list[tuple[int, int, str, list[int]]]:
    return sorted(
        (
            entry["run"]["job_id"],
            entry["run"]["run"],
            entry["run"]["state"],
            sorted(step["step_id"] for step in entry.get("steps", ())),
        )
        for entry in answer["jobs"]
    )


@asynccontextmanager
async def opened(certs: Path, folder: Path, journal: MemoryJournal | None = None) -> AsyncIterator[Rig]:
    rig = Rig(certs, folder, journal)
    await rig.open()
    task = asyncio.create_task(rig.history.run())
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await rig.server.stop(0)
        rig.engine.dispose()


def running(job_id: int, *, uid: int = 1000) -> Job:
    share = NodeShare(node=0, cpus=2, memory_mib=1024, cores=(0, 1))
    return a_job(
        job_id,
        state=int(JobState.RUNNING),
        started_at=UnixTime(NOON - 30),
        submitted_at=NOON - 60,
        alloc=Allocation(partition="main", shares=(share,)),
        uid=uid,
    )


BATCH = 0xFFFFFFFB


async def test_a_job_is_there_once_whether_accounting_has_taken_it_or_not(certs: Path, tmp_path: Path) -> None:
    async with opened(certs, tmp_path) as rig:
        event = finished(5, steps=2)
        rig.store.add(event)
        await asyncio.sleep(0)
        wanted = [(5, 0, "COMPLETED", [0, BATCH])]
        assert await rig.rows() == wanted
        rig.take(Taken(1, event.record, event.steps), up_to=1)
        assert await rig.rows() == wanted
        rig.store.add(finished(6))
        await asyncio.sleep(0)
        assert await rig.rows() == [*wanted, (6, 0, "COMPLETED", [BATCH])]
        assert await rig.rows(allocations_only=True, jobs=[{"job_id": 5}]) == [(5, 0, "COMPLETED", [])]


async def test_live_jobs_show_with_the_steps_that_have_ended_and_that_go_on(certs: Path, tmp_path: Path) -> None:
    async with opened(certs, tmp_path) as rig:
        share = NodeShare(node=0, cpus=1, memory_mib=512, cores=(0, 0))
        going_on = Step(
            job_id=JobId(9),
            step_id=StepId(2),
            name="sh",
            uid=1000,
            created_at=UnixTime(NOON),
            shares=(share,),
            ntasks=1,
        )
        rig.run(running(9), going_on)
        rig.run(a_job(10, submitted_at=NOON))
        rig.store.add(step_finished(9, 0), step_finished(9, 1))
        await asyncio.sleep(0)
        rig.take(Taken(1, None, (a_step(9, 0),)), up_to=1)
        assert await rig.rows() == [(9, 0, "RUNNING", [0, 1, 2, BATCH]), (10, 0, "PENDING", [])]
        found = await rig.ask(jobs=[{"job_id": 9}])
        steps = {step["step_id"]: step["state"] for step in found["jobs"][0]["steps"]}
        assert steps == {0: "COMPLETED", 1: "COMPLETED", 2: "RUNNING", BATCH: "RUNNING"}
        assert await rig.rows(states=["PENDING"], start=NOON + 10, end=NOON + 10) == [(10, 0, "PENDING", [])]


async def test_users_ask_for_their_own_jobs_and_root_for_all(certs: Path, tmp_path: Path) -> None:
    async with opened(certs, tmp_path) as rig:
        rig.run(running(1))
        rig.run(running(2, uid=1001))
        rig.store.add(finished(3), finished(4, uid=1001))
        await asyncio.sleep(0)
        assert [row[0] for row in await rig.rows(ADA, own=True)] == [1, 3]
        assert [row[0] for row in await rig.rows(BOB, own=True)] == [2, 4]
        assert [row[0] for row in await rig.rows(ROOT, own=True)] == [1, 2, 3, 4]
        assert [row[0] for row in await rig.rows(ADA, users=[1001])] == [2, 4]


async def test_only_the_newest_run_unless_all_are_wanted(certs: Path, tmp_path: Path) -> None:
    async with opened(certs, tmp_path) as rig:
        record = a_run(5, state="REQUEUED")
        event = JobRequeued(at=UnixTime(NOON), job_id=JobId(5), begin_at=UnixTime(NOON), priority=1, record=record)
        rig.store.add(event)
        await asyncio.sleep(0)
        rig.run(a_job(5, restarts=1, submitted_at=NOON + 10))
        assert await rig.rows() == [(5, 1, "PENDING", [])]
        assert await rig.rows(duplicates=True) == [(5, 0, "REQUEUED", []), (5, 1, "PENDING", [])]


async def test_a_former_log_is_history_too(certs: Path, tmp_path: Path) -> None:
    async with opened(certs, tmp_path) as rig:
        rig.ingest.take("here", "f" * 16, [Taken(1, a_run(5, name="old"), (a_step(5),))], 1)
        rig.store.add(finished(5, steps=2, ended_at=NOON + 99))
        await asyncio.sleep(0)
        assert await rig.rows(duplicates=True) == [(5, 0, "COMPLETED", [0, BATCH]), (5, 0, "COMPLETED", [BATCH])]
        assert await rig.rows() == [(5, 0, "COMPLETED", [0, BATCH])]


async def test_while_accounting_is_away_the_tail_answers_and_says_how_far_it_reaches(
    certs: Path, tmp_path: Path
) -> None:
    async with opened(certs, tmp_path) as rig:
        rig.store.add(finished(5), finished(6))
        rig.run(running(9))
        await asyncio.sleep(0)
        await rig.server.stop(0)
        found = await rig.ask()
        assert [row[0] for row in rows_of(found)] == [5, 6, 9]
        assert found["missing_before"] == NOON + 5
        assert found["away_since"] > NOON
        assert found["why"]


async def test_the_tail_is_read_back_from_the_journal_at_a_start(
    certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = MemoryJournal()
    before = EventStore(journal)
    before.add(*(finished(n) for n in range(1, 8)))
    monkeypatch.setattr(tail_module, "_CHUNK_EVENTS", 2)
    async with opened(certs, tmp_path, journal) as rig:
        rig.store.add(finished(8))
        assert [row[0] for row in await rig.rows()] == list(range(1, 9))


async def test_says_when_accounting_lags_behind_what_the_tail_holds(certs: Path, tmp_path: Path) -> None:
    journal = MemoryJournal(after=10)
    async with opened(certs, tmp_path, journal) as rig:
        rig.take(up_to=4)
        rig.store.add(finished(8))
        await asyncio.sleep(0)
        found = await rig.ask()
        assert found["why"] == "accounting has taken events up to 4 only"
        assert [row[0] for row in rows_of(found)] == [8]


async def test_what_is_wrong_is_said(certs: Path, tmp_path: Path) -> None:
    async with opened(certs, tmp_path) as rig:
        assert "nonsense" in (await rig.ask(nonsense=1))["error"]["sentence"]
        assert (await rig.ask(nodelist="n[1-"))["error"]["code"] == "INVALID_INPUT"
        none = History(
            rig.store, FollowersService(rig.store, "here"), identity(certs, "controller", "ctld"), "", SystemClock()
        )
        door = Door()
        door.add(none.routes())
        answer = await door.answer(ADA, "POST", "/v1/history", b"{}")
        assert json.loads(answer.body)["error"]["sentence"] == "Slurm accounting storage is disabled"

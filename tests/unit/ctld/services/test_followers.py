from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
from sqlalchemy import Engine, func, select

from ctld.core.events import JobEligible
from ctld.services import followers as followers_module
from ctld.services.followers import FollowersService
from ctld.store.journal import Journal
from ctld.store.memory import MemoryJournal
from dbd.database import open_database
from dbd.ingest import Ingest
from dbd.migrations import migrate
from dbd.schema import RUNS, STEPS
from dbd.services.follow import Follower
from muster import errors, rpc
from muster.ids import JobId, UnixTime
from muster.v1 import accounting_pb2_grpc
from tests.unit.ctld.services.accounting_rig import (
    EventStore,
    certificates,
    dialling,
    finished,
    identity,
    serving,
    step_finished,
)
from tests.unit.dbd.outcomes import NOON


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    found = open_database(f"sqlite:///{tmp_path / 'history.db'}")
    migrate(found)
    return found


def job_ids(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(select(RUNS.c.job_id).order_by(RUNS.c.log, RUNS.c.number)).scalars())


async def until(condition: Callable[[], bool], seconds: float = 8.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def following(certs: Path, engine: Engine, port: int) -> AsyncIterator[None]:
    with ThreadPoolExecutor(1) as thread:
        task = asyncio.create_task(Follower(Ingest(engine), dialling(certs, port), thread).run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def opened(directory: Path) -> Journal:
    recovery = Journal.recover(directory)
    for _ in recovery:
        pass
    return Journal.start(recovery)


async def test_history_comes_first_and_then_what_happens(certs: Path, engine: Engine) -> None:
    store = EventStore()
    followers = FollowersService(store, "here")
    store.add(*(finished(n, steps=2) for n in range(1, 1501)))
    store.add(JobEligible(at=UnixTime(NOON), job_id=JobId(1501)))
    async with serving(certs, followers) as port, following(certs, engine, port):
        await until(lambda: followers.held_from == 1502)
        store.add(finished(1501))
        await until(lambda: followers.held_from == 1503)
    assert job_ids(engine) == list(range(1, 1502))
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(STEPS)).scalar() == 3001
    assert Ingest(engine).cursor("here", store.journal.log_id) == 1502


async def test_nothing_is_lost_or_doubled_while_events_come_in_the_middle_of_reading(
    certs: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A bound of 5 makes live feeds overflow all the time: the stream changes over between journal and feed.
    monkeypatch.setattr(followers_module, "MAX_QUEUED", 5)
    monkeypatch.setattr(followers_module, "CHUNK_EVENTS", 7)
    store = EventStore()
    followers = FollowersService(store, "here")
    async with serving(certs, followers) as port, following(certs, engine, port):
        for n in range(1, 401):
            store.add(finished(n), JobEligible(at=UnixTime(NOON), job_id=JobId(n)))
            if n % 9 == 0:
                await asyncio.sleep(0.001)
        await until(lambda: followers.held_from == 801)
    assert job_ids(engine) == list(range(1, 401))


async def test_goes_on_after_the_controller_was_away(certs: Path, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    journal = opened(tmp_path / "state")
    store = EventStore(journal)
    followers = FollowersService(store, "here")
    assert followers.away_since is not None
    async with serving(certs, followers) as port:
        async with following(certs, engine, port):
            store.add(finished(1), step_finished(2, 0))
            await until(lambda: followers.held_from == 3)
            assert followers.away_since is None
        await until(lambda: followers.away_since is not None)
        store.add(finished(2))
        await store.settled()
        assert followers.held_from == 3
    await journal.close()

    journal = opened(tmp_path / "state")
    store = EventStore(journal)
    followers = FollowersService(store, "here")
    assert followers.held_from == 1
    async with following(certs, engine, port), serving(certs, followers, port):
        store.add(finished(3))
        await until(lambda: followers.held_from == 5)
    await journal.close()
    assert job_ids(engine) == [1, 2, 3]


async def test_a_log_begun_anew_is_followed_from_its_beginning_and_keeps_what_was(certs: Path, engine: Engine) -> None:
    for log_id in ("a" * 16, "b" * 16):
        store = EventStore(MemoryJournal(log_id=log_id))
        followers = FollowersService(store, "here")
        store.add(finished(1), finished(2))
        async with serving(certs, followers) as port, following(certs, engine, port):
            await until(lambda f=followers: f.held_from == 3)  # type: ignore[misc]
    assert job_ids(engine) == [1, 2, 1, 2]


async def test_a_loss_is_said_on_both_sides_and_the_rest_is_taken(
    certs: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    store = EventStore()
    followers = FollowersService(store, "here")
    store.add(*(finished(n) for n in range(1, 8)))
    await store.journal.prune(4)
    async with serving(certs, followers) as port, following(certs, engine, port):
        await until(lambda: followers.held_from == 8)
    assert job_ids(engine) == [5, 6, 7]
    said = {record.name: record.getMessage() for record in caplog.records if record.levelno == logging.ERROR}
    assert "LOST the events 1 to 4" in said["ctld.followers"]
    assert "events 1 to 4 of cluster here are LOST to accounting" in said["dbd.follow"]


async def test_a_log_restored_from_an_old_copy_goes_on_from_its_end(
    certs: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    log_id = "c" * 16
    Ingest(engine).take("here", log_id, [], 50)
    store = EventStore(MemoryJournal(log_id=log_id))
    followers = FollowersService(store, "here")
    store.add(finished(1), finished(2))
    async with serving(certs, followers) as port, following(certs, engine, port):
        await until(lambda: followers.held_from == 3)
        store.add(finished(3))
        await until(lambda: followers.held_from == 4)
    assert job_ids(engine) == [3]
    assert "restored from an old copy" in caplog.text


async def test_only_an_accounting_host_may_follow(certs: Path) -> None:
    followers = FollowersService(EventStore(), "here")
    async with serving(certs, followers) as port:
        channel = rpc.dial(identity(certs, "compute", "n1"), f"127.0.0.1:{port}", "controller")
        call = accounting_pb2_grpc.FollowersStub(channel).Follow()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert isinstance(rpc.from_status(caught.value), errors.Denied)
        await channel.close()
    assert followers.held_from == 1


async def test_a_database_that_is_away_is_waited_for(
    certs: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    store = EventStore()
    followers = FollowersService(store, "here")
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE runs RENAME TO away")
    async with serving(certs, followers) as port, following(certs, engine, port):
        store.add(finished(1))
        await until(lambda: "the database cannot be written" in caplog.text)
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO runs")
        await until(lambda: followers.held_from == 2)
    assert job_ids(engine) == [1]


def test_without_accounting_nothing_is_held() -> None:
    store = EventStore()
    store.add(finished(1))
    assert FollowersService(store, "here", expected=False).held_from == 2
    assert FollowersService(store, "here").held_from == 1

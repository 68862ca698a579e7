from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from ctld.services.followers import FollowersService
from dbd.database import open_database
from dbd.schema import RUNS, STEPS
from muster import rpc
from muster.errors import Denied
from muster.records import HistoryFilter
from muster.v1 import accounting_pb2, accounting_pb2_grpc
from tests.unit.ctld.services.accounting_rig import EventStore, certificates, finished, identity, serving

SOURCE = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def dbd(
    url: str, certs: Path, controller: int, listen: int, log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The daemon as a process; killed at the end if it still lives."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dbd", "--database", url, "--controller", f"127.0.0.1:{controller}",
        "--certificates", str(certs), "--listen", f"127.0.0.1:{listen}", "--log", str(log), cwd=SOURCE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def taken(url: str) -> int:
    """Rows so far; 0 while there is no table."""
    engine = open_database(url)
    try:
        with engine.connect().execution_options(muster_read=True) as connection:
            return connection.execute(select(func.count()).select_from(RUNS)).scalar() or 0
    except DBAPIError:
        return 0
    finally:
        engine.dispose()


async def test_killed_between_batches_it_loses_and_doubles_nothing(url: str, tmp_path: Path) -> None:
    certs = certificates(tmp_path / "certs")
    store = EventStore()
    followers = FollowersService(store, "here")
    store.add(*(finished(n, steps=3) for n in range(1, 6_001)))
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    listen = free_port()
    async with serving(certs, followers) as port:
        for round_number in range(3):
            async with dbd(url, certs, port, listen, tmp_path / "log") as process:
                goal = taken(url) + chance.randrange(1, 1_500)
                async with asyncio.timeout(60):
                    while taken(url) < min(goal, 6_000):
                        assert process.returncode is None, (seed, (tmp_path / "log").read_text())
                        await asyncio.sleep(chance.uniform(0.001, 0.02))
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()
            store.add(finished(6_001 + round_number))
        async with dbd(url, certs, port, listen, tmp_path / "log") as process:
            async with asyncio.timeout(60):
                while followers.held_from <= 6_003:
                    assert process.returncode is None, (seed, (tmp_path / "log").read_text())
                    await asyncio.sleep(0.02)
            process.terminate()
            async with asyncio.timeout(20):
                assert await process.wait() == 0
    engine = open_database(url)
    with engine.connect() as connection:
        numbers = Counter(connection.execute(select(RUNS.c.job_id)).scalars())
        assert numbers == Counter(range(1, 6_004)), seed
        assert connection.execute(select(func.count()).select_from(STEPS)).scalar() == 6_000 * 3 + 3
        assert connection.execute(text("SELECT number FROM logs")).scalar() == 6_003
    engine.dispose()


async def test_answers_the_controller_and_refuses_others(tmp_path: Path) -> None:
    certs = certificates(tmp_path / "certs")
    store = EventStore()
    followers = FollowersService(store, "here")
    store.add(finished(7, steps=2))
    listen = free_port()
    url = f"sqlite:///{tmp_path / 'h.db'}"
    async with serving(certs, followers) as port, dbd(url, certs, port, listen, tmp_path / "log"):
        async with asyncio.timeout(30):
            while followers.held_from < 2:
                await asyncio.sleep(0.02)
        packed = msgspec.msgpack.encode(HistoryFilter(cluster="here", log_id=store.journal.log_id))
        channel = rpc.dial(identity(certs, "controller", "ctld"), f"127.0.0.1:{listen}", "accounting")
        reply = await accounting_pb2_grpc.AccountingStub(channel).Query(
            accounting_pb2.HistoryQuery(filter=packed), timeout=10
        )
        await channel.close()
        assert (reply.cursor, [(one.number, len(one.steps)) for one in reply.outcomes]) == (1, [(1, 2)])
        channel = rpc.dial(identity(certs, "compute", "n1"), f"127.0.0.1:{listen}", "accounting")
        with pytest.raises(Denied, match="role compute may not ask"):
            await rpc.call(
                lambda: accounting_pb2_grpc.AccountingStub(channel).Query(accounting_pb2.HistoryQuery(), timeout=10)
            )
        await channel.close()

"""The accounting daemon's composition root."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Engine
from sqlalchemy.exc import OperationalError

from dbd.database import configured_url, open_database
from dbd.ingest import Ingest
from dbd.migrations import migrate
from dbd.services.accounting import AccountingService
from dbd.services.follow import Follower
from muster import rpc
from muster.auth import identity_at
from muster.config.load import load_dbd
from muster.errors import InvalidInput
from muster.log import set_up
from muster.service import Service
from muster.v1 import accounting_pb2_grpc

QUERY_THREADS = 4
"""Questions that the database works on at the same time; more of them wait."""
DATABASE_RETRY_SECONDS = 5.0
DEFAULT_PORT = 6819


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    database: str
    """URL; empty: as `config` says."""
    controller: str
    """host:port"""
    certificates: Path
    listen: str = ""
    """host:port; empty: the configured port on the loopback."""
    config: Path | None = None
    """dbd.conf or its folder."""
    log_file: Path | None = None
    log_level: str = "INFO"


class Accounting:
    """dbd, from its start to its end."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def live(self, service: Service) -> None:
        """Follow and answer until told to stop."""
        options = self._options
        log = set_up("dbd", file=options.log_file, level=options.log_level)
        identity = identity_at(options.certificates, "accounting", "dbd")
        url, listen = _configured(options)
        engine = open_database(url)
        writing = ThreadPoolExecutor(1, "ingest")
        asking = ThreadPoolExecutor(QUERY_THREADS, "query")
        server = rpc.server()
        accounting_pb2_grpc.add_AccountingServicer_to_server(AccountingService(engine, asking), server)
        port = rpc.listen(server, identity, listen)
        await server.start()
        follower = Follower(Ingest(engine), lambda: rpc.dial(identity, options.controller, "controller"), writing)

        async def follow() -> None:
            await _until_migrated(engine, writing, log.warning)
            log.info("accounting ready: port %d, controller %s", port, options.controller)
            service.ready()
            await follower.run()

        service.start(follow(), "follow")
        await service.stopping.wait()
        service.cancel_loops()
        await server.stop(1.0)
        # A transaction that runs is finished; its acknowledgement may be missing, which does no harm.
        await asyncio.to_thread(writing.shutdown, cancel_futures=True)
        await asyncio.to_thread(asking.shutdown, cancel_futures=True)
        engine.dispose()
        log.info("accounting stopped")


def _configured(options: Options) -> tuple[str | URL, str]:
    """Give the database and the address to listen on, from the command line or dbd.conf."""
    if options.database:
        if options.config is not None:
            raise InvalidInput("--database and --config both name the database", "give one of the two")
        return options.database, options.listen or f"127.0.0.1:{DEFAULT_PORT}"
    config = load_dbd(options.config)
    return configured_url(config), options.listen or f"127.0.0.1:{config.port}"


async def _until_migrated(engine: Engine, thread: ThreadPoolExecutor, say: Callable[..., None]) -> None:
    """Bring the tables up to date, waiting for a database that is away."""
    attempt = 0
    while True:
        try:
            done: Awaitable[int] = asyncio.get_running_loop().run_in_executor(thread, migrate, engine)
            await done
            return
        except OperationalError as error:
            if attempt % 12 == 0:
                say("the database cannot be opened, trying again: %s", (str(error.orig).splitlines() or [""])[0])
            attempt += 1
            await asyncio.sleep(random.uniform(0.5, 1.0) * DATABASE_RETRY_SECONDS)

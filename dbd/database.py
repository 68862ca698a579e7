"""One way to open the database, whichever it is, and how its transactions begin."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError

from muster.config.records import DbdConfig
from muster.errors import InvalidInput

log = logging.getLogger("dbd.database")

_BUSY_MS = 15_000
_FORMS = "write sqlite:///PATH or postgresql://..."
QUERY_SECONDS = 15
"""Postgres ends a question that takes longer: the controller has given up on it by then."""


def configured_url(config: DbdConfig) -> URL:
    """Give the database that dbd.conf names; the password never stands in a message.

    Raises:
        InvalidInput: StoragePassScript fails, or prints no TOKEN= line.
    """
    if config.storage_type.endswith("sqlite"):
        return URL.create("sqlite", database=config.storage_database)
    host = config.storage_host
    query = {}
    if host.startswith("unix:"):
        # libpq takes a folder of sockets for a host.
        query, host = {"host": host.removeprefix("unix:")}, ""
    return URL.create(
        "postgresql",
        username=config.storage_user or None,
        password=_password(config) or None,
        host=host or None,
        port=config.storage_port if host else None,
        database=config.storage_database,
        query=query,
    )


def _password(config: DbdConfig) -> str:
    script = config.storage_password_script
    if not script:
        return config.storage_password
    try:
        done = subprocess.run(
            [script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"StoragePassScript {script} cannot be run: {error}") from error
    for line in done.stdout.splitlines():
        name, equals, token = line.partition("=")
        if equals and name.strip() == "TOKEN":
            return token.strip()
    raise InvalidInput(f"StoragePassScript {script} printed no TOKEN= line (exit code {done.returncode})")


def open_database(url: str | URL) -> Engine:
    """Give an engine for `sqlite:///PATH` or `postgresql://USER@HOST/NAME`; nothing is connected yet.

    SQLite runs in WAL mode, so that questions do not wait for writes, with synchronous=FULL. NORMAL would keep rows
    and cursor in step, since they are in one transaction: a power cut takes the newest transactions away whole, and
    the cursor with them. But the controller forgets what was acknowledged, and would have nothing left to send
    again. FULL syncs the log once a batch, before the acknowledgement, as Postgres does by default.

    Raises:
        InvalidInput: the URL is of another kind.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput("cannot read the database URL", "write sqlite:///PATH or postgresql://...") from None
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise InvalidInput(f"dbd does not know databases of kind {kind!r}", _FORMS)
    try:
        if kind == "postgresql":
            return create_engine(
                parsed.set(drivername="postgresql+psycopg"),
                pool_pre_ping=True,
                pool_size=6,
                connect_args={
                    "connect_timeout": 5,
                    "keepalives_idle": 10,
                    "keepalives_interval": 5,
                    "keepalives_count": 3,
                    "application_name": "muster-dbd",
                },
            )
        engine = create_engine(parsed, connect_args={"check_same_thread": False, "timeout": _BUSY_MS / 1000})
    except (ArgumentError, NoSuchModuleError) as error:
        shown = parsed.render_as_string(hide_password=True)
        raise InvalidInput(f"cannot use the database URL {shown}: {error}") from None
    event.listen(engine, "connect", _prepare_sqlite)
    if parsed.database and parsed.database != ":memory:":
        _watch_file(engine, parsed.database)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Read several tables as they were at one moment."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {QUERY_SECONDS * 1000}")
            yield connection
        return
    with engine.connect().execution_options(muster_read=True) as connection, connection.begin():
        yield connection


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Take the beginning of transactions out of the driver's hands, which begins them only at the first write."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _watch_file(engine: Engine, path: str) -> None:
    """Use no connection to a file that was removed or replaced: what is written there would be gone with the process,
    and the controller forgets what was acknowledged."""

    def remember(_connection: Any, record: Any) -> None:
        record.info["file"] = _identity(path)

    def check(_connection: Any, record: Any, _proxy: object) -> None:
        if record.info.get("file") != _identity(path):
            log.error("the database file %s was removed or replaced: opening what is there now", path)
            raise DisconnectionError

    event.listen(engine, "connect", remember)
    event.listen(engine, "checkout", check)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE: a transaction that reads the cursor and then writes must not find that another one wrote in between.
    read = connection.get_execution_options().get("muster_read", False)
    connection.exec_driver_sql("BEGIN" if read else "BEGIN IMMEDIATE")

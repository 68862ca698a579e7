"""Numbered steps of the schema, forward only: `migrate` brings a database of any earlier version to this program's.

Each step is a function of a connection and stays as it was written: it makes what its version had, whatever
`dbd/schema.py` says by now. All steps and the version run in one transaction (SQLite and Postgres both undo DDL).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sqlalchemy import BigInteger, Column, Connection, Engine, Integer, MetaData, Table, func, insert, select, text

from dbd.migrations import m0001_history, m0002_suspension
from muster.errors import Refused

log = logging.getLogger("dbd.migrations")

STEPS: tuple[tuple[int, Callable[[Connection], None]], ...] = (
    (1, m0001_history.forward),
    (2, m0002_suspension.forward),
)
"""(version, step) in order."""

VERSIONS = Table(
    "schema_versions",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", BigInteger, nullable=False),
)
_LOCK = 0x4D757374
"""Postgres advisory lock, so that two daemons that start at once do not migrate at once (SQLite locks by itself)."""


def migrate(engine: Engine) -> int:
    """Bring the database to this program's version and give that.

    Raises:
        Refused: the database is of a newer version than this program knows.
        sqlalchemy.exc.OperationalError: the database cannot be reached.
    """
    newest = STEPS[-1][0]
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        VERSIONS.create(connection, checkfirst=True)
        found = connection.execute(select(func.max(VERSIONS.c.version))).scalar() or 0
        if found > newest:
            raise Refused(
                f"the database is of schema version {found}, this dbd knows versions up to {newest}",
                "start the newer release of dbd that made it",
            )
        for version, forward in STEPS:
            if version > found:
                forward(connection)
                connection.execute(insert(VERSIONS).values(version=version, applied_at=int(time.time())))
                log.info("the database is now of schema version %d", version)
    return newest

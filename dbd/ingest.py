"""Outcomes into rows: idempotent, and the cursor moves in the same transaction.

Whatever comes twice (a batch whose acknowledgement was lost, two daemons on one database) is left out by its number;
whatever is cut off in the middle has moved no cursor and comes again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Table, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from dbd.rows import run_row, step_row
from dbd.schema import LOGS, RUNS, STEPS
from muster.records import RunRecord, StepRecord

log = logging.getLogger("dbd.ingest")

MAX_BATCH = 2_000
"""Outcomes that callers put into one transaction at most: about a second of Postgres."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one event says: the end of a run, of steps, or both."""

    number: int
    run: RunRecord | None
    steps: tuple[StepRecord, ...] = ()


class Ingest:
    """The only writer of the tables. Every method blocks: call it in a thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def cursor(self, cluster: str, log_id: str) -> int:
        """Give the last event of this log that is in the tables; 0 for a log not yet known."""
        with self._engine.begin() as connection:
            found = connection.execute(_of(cluster, log_id)).first()
            return int(found.number) if found is not None else 0

    def take(self, cluster: str, log_id: str, outcomes: Sequence[Taken], up_to: int) -> int:
        """Take outcomes in, and all events up to `up_to` as seen; give the cursor.

        Args:
            outcomes: in order of their numbers, none above `up_to`.
            up_to: everything up to this event is contained.

        Raises:
            sqlalchemy.exc.OperationalError: the database is away, nothing has changed; the same call may work later.
        """
        try:
            with self._engine.begin() as connection:
                return self._take(connection, cluster, log_id, outcomes, up_to)
        except (DataError, IntegrityError) as error:
            # Rows are made to fit (dbd/rows.py); should one not, it must not keep all others out for ever.
            log.error("the database refuses a batch, its outcomes are taken one by one: %s", error)
        for one in outcomes:
            try:
                with self._engine.begin() as connection:
                    self._take(connection, cluster, log_id, (one,), one.number)
            except (DataError, IntegrityError) as error:
                log.error("event %d is LOST to accounting, the database refuses it: %s", one.number, error)
        return self.take(cluster, log_id, (), up_to)

    def set_back(self, cluster: str, log_id: str, number: int) -> None:
        """Move the cursor back: the log is shorter than what was taken of it (restored from an old copy)."""
        with self._engine.begin() as connection:
            connection.execute(
                update(LOGS).where(LOGS.c.cluster == cluster, LOGS.c.log_id == log_id).values(number=number)
            )

    def _take(self, connection: Connection, cluster: str, log_id: str, outcomes: Sequence[Taken], up_to: int) -> int:
        known = self._log(connection, cluster, log_id)
        if up_to <= known.number:
            return known.number
        # A dictionary: one statement may not touch a row twice, and the newest counts.
        runs: dict[tuple[int, int, int], dict[str, Any]] = {}
        steps: dict[tuple[int, int, int], dict[str, Any]] = {}
        for one in outcomes:
            if one.number <= known.number:
                continue
            if one.run is not None:
                row = run_row(known.id, one.number, one.run)
                runs[row["job_id"], row["run"], row["part"]] = row
            for step in one.steps:
                row = step_row(known.id, one.number, step)
                steps[row["job_id"], row["run"], row["step_id"]] = row
        _upsert(connection, RUNS, list(runs.values()))
        _upsert(connection, STEPS, list(steps.values()))
        connection.execute(update(LOGS).where(LOGS.c.id == known.id).values(number=up_to, updated_at=int(time.time())))
        return up_to

    def _log(self, connection: Connection, cluster: str, log_id: str) -> _Log:
        """Find the log's row, locked until the transaction ends; make it where it is new."""
        wanted = _of(cluster, log_id).with_for_update()
        found = connection.execute(wanted).first()
        if found is None:
            new = {"cluster": cluster, "log_id": log_id, "number": 0, "updated_at": int(time.time())}
            connection.execute(_insert(connection, LOGS).values(new).on_conflict_do_nothing())
            found = connection.execute(wanted).one()
        return _Log(found.id, found.number)


@dataclass(frozen=True, slots=True)
class _Log:
    id: int
    number: int


def _of(cluster: str, log_id: str) -> Any:
    return select(LOGS.c.id, LOGS.c.number).where(LOGS.c.cluster == cluster, LOGS.c.log_id == log_id)


def _insert(connection: Connection, table: Table) -> Any:
    """Give the dialect's own insert: ON CONFLICT is spelled alike, but is no part of the common language."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def _upsert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    statement = _insert(connection, table)
    keys = {column.name for column in table.primary_key}
    changed = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    statement = statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)
    connection.execute(statement, rows)

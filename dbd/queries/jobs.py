"""A filter of sacct to the runs and steps that it lets through.

SQL narrows by what is indexed; `muster.history` has the last word on each row. Runs, steps and the cursor are read in
one snapshot, so that the controller can add what came after the cursor without a gap and without a double.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, Engine, and_, or_, select

from dbd.database import snapshot
from dbd.rows import record_of
from dbd.schema import LOGS, RUNS, STEPS
from muster.errors import TooLarge
from muster.history import OPEN_WORDS, Matcher
from muster.records import HistoryFilter, RunRecord, StepRecord

MAX_RUNS = 200_000
"""Runs that one answer holds at most."""
_MAX_LISTED = 1_000
"""Values in one IN (...); SQLite takes 32,766 in a statement."""


@dataclass(slots=True)
class Found:
    """A run with its ended steps; without `run`: ended steps of a run that goes on."""

    number: int
    """Of the event that ended the run; 0 for a run of another log, and where there is no run."""
    run: RunRecord | None
    steps: list[StepRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class History:
    """What the tables held at one moment."""

    found: list[Found]
    cursor: int
    """Last event of the log asked for that is in the tables; 0 if none is."""


def find(engine: Engine, asked: HistoryFilter, now: int) -> History:
    """Read what a filter lets through; blocks.

    Raises:
        TooLarge: more than `MAX_RUNS` runs.
        InvalidInput: a list of nodes that cannot be read.
    """
    matcher = Matcher(asked, now)
    with snapshot(engine) as connection:
        logs = connection.execute(select(LOGS).where(LOGS.c.cluster == asked.cluster)).all()
        current = next((log for log in logs if log.log_id == asked.log_id), None)
        runs: dict[tuple[int, int, int, int], Found] = {}
        for log in logs:
            for found, key in _runs(connection, log.id, matcher):
                found.number = found.number if log is current else 0
                runs[log.id, *key] = found
                if len(runs) > MAX_RUNS:
                    raise TooLarge(
                        "Query result exceeds size limit",
                        f"more than {MAX_RUNS} runs: ask for a shorter time or for fewer users",
                        slurm_code=7006,
                    )
        others: dict[tuple[int, int], Found] = {}
        if not asked.allocations_only:
            for log in logs:
                wanted = {(key[1], key[2]): found for key, found in runs.items() if key[0] == log.id and not key[3]}
                if log is current:
                    others = {key: Found(0, None) for key in asked.open_runs if key not in wanted}
                    wanted |= others
                _add_steps(connection, log.id, wanted)
        return History(
            [*runs.values(), *(found for found in others.values() if found.steps)],
            current.number if current is not None else 0,
        )


def _runs(connection: Connection, log: int, matcher: Matcher) -> Iterator[tuple[Found, tuple[int, int, int]]]:
    statement = select(RUNS).where(RUNS.c.log == log, *_narrow(matcher)).order_by(RUNS.c.job_id, RUNS.c.run)
    with connection.execution_options(yield_per=2_000).execute(statement) as rows:
        for row in rows.mappings():
            record = record_of(RunRecord, row)
            if matcher.passes(record):
                yield Found(row["number"], record), (record.job_id, record.run, row["part"])


def _narrow(matcher: Matcher) -> list[ColumnElement[bool]]:
    """Give conditions that every row to be found fulfils (others may fulfil them too)."""
    asked, runs = matcher.asked, RUNS.c
    # A row is of a run that has ended; it waits from its submission at the earliest.
    conditions: list[ColumnElement[bool]] = [runs.submitted_at <= matcher.end]
    if matcher.start > 0:
        conditions.append(runs.ended_at >= matcher.start)
    if asked.jobs:
        numbers = sorted({one.job_id for one in asked.jobs})
        if len(numbers) <= _MAX_LISTED:
            conditions.append(or_(runs.job_id.in_(numbers), runs.array_job_id.in_(numbers)))
        else:
            low, high = numbers[0], numbers[-1]
            conditions.append(or_(runs.job_id.between(low, high), runs.array_job_id.between(low, high)))
    if 0 < len(asked.users) <= _MAX_LISTED:
        conditions.append(runs.uid.in_(asked.users))
    for column, values in ((runs.account, asked.accounts), (runs.qos, asked.qos), (runs.name, asked.names)):
        if 0 < len(values) <= _MAX_LISTED:
            conditions.append(column.in_(values))
    if asked.states and OPEN_WORDS.isdisjoint(asked.states):
        conditions.append(and_(runs.state.in_(asked.states), runs.ended_at <= matcher.end))
    return conditions


def _add_steps(connection: Connection, log: int, wanted: dict[tuple[int, int], Found]) -> None:
    numbers: Sequence[int] = sorted({job_id for job_id, _run in wanted})
    for begin in range(0, len(numbers), _MAX_LISTED):
        some = numbers[begin : begin + _MAX_LISTED]
        statement = select(STEPS).where(STEPS.c.log == log, STEPS.c.job_id.in_(some)).order_by(STEPS.c.step_id)
        for row in connection.execute(statement).mappings():
            found = wanted.get((row["job_id"], row["run"]))
            if found is not None:
                found.steps.append(record_of(StepRecord, row))

"""Outcome records to rows of the tables, and back.

Text and numbers are brought into what both databases hold: Postgres takes no zero byte in a text, and neither takes
more than 64 bits. A record that a database refuses would stop accounting for good, so nothing of it is left to chance.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from sqlalchemy import RowMapping

from muster.records import RunRecord, StepRecord

Record = TypeVar("Record", RunRecord, StepRecord)

_MAX = (1 << 63) - 1
_AMOUNTS = msgspec.json.Decoder(dict[str, int])


def run_row(log: int, number: int, record: RunRecord) -> dict[str, Any]:
    """Give the row of a run that event `number` of a log ended."""
    row = _row(log, number, record)
    row["part"] = number if record.array_tasks else 0
    return row


def step_row(log: int, number: int, record: StepRecord) -> dict[str, Any]:
    """Give the row of a step that event `number` of a log ended."""
    return _row(log, number, record)


def record_of(kind: type[Record], row: RowMapping) -> Record:
    """Rebuild the record of a row."""
    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        value = row[name]
        values[name] = _AMOUNTS.decode(value) if name.endswith("_tres") else value
    return kind(**values)


def _row(log: int, number: int, record: RunRecord | StepRecord) -> dict[str, Any]:
    row: dict[str, Any] = {"log": log, "number": number}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, dict):
            value = msgspec.json.encode(value, order="sorted").decode()
        if isinstance(value, int):
            row[name] = max(-_MAX, min(value, _MAX))
        else:
            row[name] = value.replace("\x00", "�") if "\x00" in value else value
    return row

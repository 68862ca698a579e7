from __future__ import annotations

import pytest
from sqlalchemy import Engine, MetaData, Table, inspect, text

from dbd.database import open_database
from dbd.migrations import STEPS, migrate
from dbd.schema import METADATA, RUNS
from dbd.schema import STEPS as STEP_TABLE
from muster.errors import InvalidInput, Refused
from muster.records import RunRecord, StepRecord


def columns(engine: Engine, table: Table) -> dict[str, tuple[str, bool | None]]:
    return {column.name: (str(column.type.compile(engine.dialect)), column.nullable) for column in table.columns}


def test_the_steps_make_what_the_schema_says(engine: Engine) -> None:
    made = MetaData()
    made.reflect(engine)
    for table in METADATA.sorted_tables:
        found = made.tables[table.name]
        assert columns(engine, found) == columns(engine, table)
        assert [c.name for c in found.primary_key] == [c.name for c in table.primary_key]
        indexes = {i["name"]: i["column_names"] for i in inspect(engine).get_indexes(table.name) if not i["unique"]}
        assert indexes == {str(i.name): [c.name for c in i.columns] for i in table.indexes}


def test_a_second_start_changes_nothing(engine: Engine) -> None:
    assert migrate(engine) == STEPS[-1][0]
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM schema_versions")).scalar() == len(STEPS)


def test_refuses_the_database_of_a_newer_release(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO schema_versions VALUES (99, 0)"))
    with pytest.raises(Refused, match="schema version 99"):
        migrate(engine)


def test_every_field_of_a_record_has_its_column() -> None:
    assert set(RunRecord.__struct_fields__) | {"log", "part", "number"} == {c.name for c in RUNS.columns}
    assert set(StepRecord.__struct_fields__) | {"log", "number"} == {c.name for c in STEP_TABLE.columns}


@pytest.mark.parametrize("url", ["mysql://host/db", "nonsense", "postgresql:"])
def test_names_what_it_cannot_open(url: str) -> None:
    with pytest.raises(InvalidInput, match="database"):
        open_database(url)

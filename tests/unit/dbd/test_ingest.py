from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from dbd.ingest import Ingest, Taken
from dbd.rows import record_of
from dbd.schema import LOGS, RUNS, STEPS
from muster.records import RunRecord, StepRecord
from tests.unit.dbd.outcomes import a_run, a_step

LOG = "a" * 16


def rows(engine: Engine) -> tuple[list[Any], list[Any]]:
    with engine.connect() as connection:
        runs = connection.execute(select(RUNS).order_by(*RUNS.primary_key)).all()
        steps = connection.execute(select(STEPS).order_by(*STEPS.primary_key)).all()
    return [tuple(row) for row in runs], [tuple(row) for row in steps]


def test_a_record_comes_back_as_it_went_in(engine: Engine) -> None:
    run = a_run(5, comment="ünï 'quoted' %s \\ 雪", requested_tres={"cpu": 8}, cancelled_by=0, state="CANCELLED")
    step = a_step(5, 0, max_rss_bytes=13_664_256, max_rss_node="n1", allocated_tres={"cpu": 1})
    Ingest(engine).take("c", LOG, [Taken(3, run, (step,))], 7)
    with engine.connect() as connection:
        assert record_of(RunRecord, connection.execute(select(RUNS)).mappings().one()) == run
        assert record_of(StepRecord, connection.execute(select(STEPS)).mappings().one()) == step
    assert Ingest(engine).cursor("c", LOG) == 7


def test_a_record_that_databases_do_not_like_is_made_to_fit(engine: Engine) -> None:
    run = a_run(5, comment="a\x00b", exit_status=1 << 70, name="\U0001f680")
    assert Ingest(engine).take("c", LOG, [Taken(1, run)], 1) == 1
    with engine.connect() as connection:
        found = connection.execute(select(RUNS.c.comment, RUNS.c.exit_status, RUNS.c.name)).one()
    assert tuple(found) == ("a�b", (1 << 63) - 1, "\U0001f680")


def test_a_batch_that_comes_again_changes_nothing(engine: Engine) -> None:
    ingest = Ingest(engine)
    batch = [Taken(2, a_run(1), (a_step(1),)), Taken(5, a_run(2))]
    ingest.take("c", LOG, batch, 6)
    before = rows(engine)
    assert ingest.take("c", LOG, batch, 6) == 6
    assert ingest.take("c", LOG, [Taken(2, a_run(1, state="FAILED"))], 4) == 6
    assert rows(engine) == before


def test_members_cancelled_out_of_an_array_do_not_replace_its_last_member(engine: Engine) -> None:
    ingest = Ingest(engine)
    first = a_run(10, array_job_id=10, array_tasks="4-5", state="CANCELLED", started_at=0)
    second = a_run(10, array_job_id=10, array_tasks="6", state="CANCELLED", started_at=0)
    last = a_run(10, array_job_id=10, array_task_id=1)
    ingest.take("c", LOG, [Taken(1, first), Taken(2, second), Taken(3, last)], 3)
    with engine.connect() as connection:
        found = connection.execute(select(RUNS.c.array_tasks, RUNS.c.state).order_by(RUNS.c.number)).all()
    assert [tuple(row) for row in found] == [("4-5", "CANCELLED"), ("6", "CANCELLED"), ("", "COMPLETED")]


def test_a_new_log_keeps_the_history_of_the_former_one(engine: Engine) -> None:
    ingest = Ingest(engine)
    ingest.take("c", LOG, [Taken(1, a_run(1, name="old"))], 9)
    assert ingest.cursor("c", "b" * 16) == 0
    ingest.take("c", "b" * 16, [Taken(1, a_run(1, name="new"))], 1)
    with engine.connect() as connection:
        assert sorted(connection.execute(select(RUNS.c.name)).scalars()) == ["new", "old"]
        assert sorted(connection.execute(select(LOGS.c.number)).scalars()) == [1, 9]


def test_one_row_that_the_database_refuses_does_not_keep_the_others_out(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    ingest = Ingest(engine)
    with engine.begin() as connection:
        kind = "CREATE UNIQUE INDEX no_two_names ON runs (name)"
        connection.exec_driver_sql(kind)
    batch = [Taken(1, a_run(1, name="a")), Taken(2, a_run(2, name="a")), Taken(3, a_run(3, name="b"))]
    assert ingest.take("c", LOG, batch, 8) == 8
    with engine.connect() as connection:
        assert sorted(connection.execute(select(RUNS.c.job_id)).scalars()) == [1, 3]
    assert "event 2 is LOST to accounting" in caplog.text


EVENTS = [
    Taken(n, a_run(n), (a_step(n), a_step(n, 0))) if n % 3 else Taken(n, None, (a_step(n - 1, 1),))
    for n in range(1, 31)
]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=12), number=st.integers(0, 10**9))
def test_duplicates_and_restarts_give_the_rows_of_one_clean_pass(
    engine: Engine, spans: list[tuple[int, int]], number: int
) -> None:
    # Each span: a batch that begins somewhere at or before the cursor, as after a lost acknowledgement, and a new
    # Ingest, as after a restart. A last pass brings the rest.
    plain, mixed = f"{number:015x}p", f"{number:015x}m"
    Ingest(engine).take("c", plain, EVENTS, 30)
    for begin, size in [*spans, (30, 30)]:
        ingest = Ingest(engine)
        since = min(begin, ingest.cursor("c", mixed))
        if (begin, size) == (30, 30):
            size = 30 - since
        upto = min(30, since + size)
        ingest.take("c", mixed, EVENTS[since:upto], upto)
    with engine.connect() as connection:
        logs = {row.log_id: row for row in connection.execute(select(LOGS))}
        assert logs[mixed].number == logs[plain].number == 30
        for table in (RUNS, STEPS):
            found = [
                [tuple(row)[1:] for row in connection.execute(
                    select(table).where(table.c.log == logs[log].id).order_by(*table.primary_key)
                )]
                for log in (plain, mixed)
            ]  # fmt: skip
            assert found[0] == found[1]
            assert found[0]

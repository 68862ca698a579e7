from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from dbd.ingest import Ingest, Taken
from dbd.queries.jobs import find
from muster.errors import InvalidInput
from muster.records import HistoryFilter, JobSelector
from tests.unit.dbd.outcomes import NOON, a_run, a_step

LOG, OLD = "a" * 16, "b" * 16
NOW = NOON + 10_000


@pytest.fixture
def history(engine: Engine) -> Engine:
    ingest = Ingest(engine)
    ingest.take("c", OLD, [Taken(4, a_run(1, name="former"), (a_step(1),))], 4)
    ingest.take(
        "c",
        LOG,
        [
            Taken(1, a_run(1), (a_step(1), a_step(1, 0))),
            Taken(2, a_run(2, uid=1001, account="bio", partition="cpu", state="FAILED")),
            Taken(3, a_run(3, array_job_id=3, array_task_id=7, nodelist="n[3-5]", qos="high", name="sweep")),
            Taken(4, a_run(3, array_job_id=3, array_tasks="8-9", state="CANCELLED", started_at=0)),
            Taken(5, a_run(5, state="REQUEUED"), (a_step(5),)),
            Taken(6, a_run(5, run=1, ended_at=NOON + 500)),
            Taken(7, None, (a_step(9, 0), a_step(9, 1, run=1))),
        ],
        8,
    )
    ingest.take("other", LOG, [Taken(1, a_run(77))], 1)
    return engine


def numbers(engine: Engine, **fields: Any) -> list[tuple[int, int]]:
    asked = HistoryFilter(cluster="c", log_id=LOG, **fields)
    return sorted((one.run.job_id, one.number) for one in find(engine, asked, NOW).found if one.run is not None)


ALL = [(1, 0), (1, 1), (2, 2), (3, 3), (3, 4), (5, 5), (5, 6)]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, ALL),
        ({"jobs": (JobSelector(3),)}, [(3, 3), (3, 4)]),
        ({"jobs": (JobSelector(3, 7),)}, [(3, 3)]),
        ({"jobs": (JobSelector(3, 9), JobSelector(2, step_id=0))}, [(2, 2), (3, 4)]),
        ({"jobs": tuple(JobSelector(n) for n in range(2, 2_000))}, ALL[2:]),
        ({"users": (1001,)}, [(2, 2)]),
        ({"accounts": ("bio", "chem")}, [(2, 2)]),
        ({"partitions": ("cpu",)}, [(2, 2)]),
        ({"qos": ("high",)}, [(3, 3)]),
        ({"names": ("sweep", "former")}, [(1, 0), (3, 3)]),
        ({"nodelist": "n[4,9]"}, [(3, 3)]),
        ({"states": ("FAILED", "REQUEUED")}, [(2, 2), (5, 5)]),
        ({"states": ("FAILED",), "start": NOON + 3}, []),
        ({"states": ("RUNNING",), "start": NOON + 490, "end": NOON + 490}, [(5, 6)]),
        ({"states": ("PENDING",), "start": NOON + 431, "end": NOON + 431}, [(5, 6)]),
        ({"start": NOON + 5}, [(5, 5), (5, 6)]),
        ({"end": NOON - 69}, [(1, 0), (1, 1)]),
    ],
)
def test_lets_through_what_the_filter_says(history: Engine, fields: dict[str, Any], wanted: list[Any]) -> None:
    assert numbers(history, **fields) == wanted


def test_gives_each_run_its_own_steps_and_the_cursor(history: Engine) -> None:
    found = find(history, HistoryFilter(cluster="c", log_id=LOG, jobs=(JobSelector(1), JobSelector(5))), NOW)
    assert found.cursor == 8
    steps = {(one.number, one.run.run): [step.step_id for step in one.steps] for one in found.found if one.run}
    assert steps == {(0, 0): [0xFFFFFFFB], (1, 0): [0, 0xFFFFFFFB], (5, 0): [0xFFFFFFFB], (6, 1): []}


def test_gives_ended_steps_of_runs_that_go_on(history: Engine) -> None:
    asked = HistoryFilter(cluster="c", log_id=LOG, users=(4711,), open_runs=((9, 1), (10, 0)))
    (one,) = find(history, asked, NOW).found
    assert one.run is None
    assert [(step.job_id, step.run, step.step_id) for step in one.steps] == [(9, 1, 1)]


def test_leaves_steps_out_where_only_allocations_are_wanted(history: Engine) -> None:
    asked = HistoryFilter(cluster="c", log_id=LOG, allocations_only=True, open_runs=((9, 1),))
    found = find(history, asked, NOW).found
    assert len(found) == len(ALL)
    assert not any(one.steps for one in found)


def test_knows_no_cursor_of_a_log_that_it_does_not_know(history: Engine) -> None:
    assert find(history, HistoryFilter(cluster="c", log_id="f" * 16), NOW).cursor == 0


def test_names_a_list_of_nodes_that_cannot_be_read(history: Engine) -> None:
    with pytest.raises(InvalidInput):
        numbers(history, nodelist="n[3-")

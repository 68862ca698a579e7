"""The overlay of planned starts: swapped in whole, and silent about jobs that have changed since."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.sched.calendar import Planned
from ctld.sched.foreseen import Foreseen, with_planned
from muster.ids import UnixTime
from muster.states import JobState, Reason
from tests.builders import NOON, a_job, a_spec, a_state
from tests.placing import queued

LATER = Planned(UnixTime(NOON + 600), (1, 2), "main", None)
JOB = a_job(7)


def foreseen(then: Job, now: Job | None = None) -> Foreseen:
    found = Foreseen(3, NOON)
    found.take([(then.id, LATER)], {then.id: then}, {then.id: now} if now is not None else {})
    return found


def state_with(job: Job) -> State:
    return queued(a_state(), job)


def test_what_was_planned_for_a_job_is_given_while_it_waits() -> None:
    assert foreseen(JOB, JOB).of(state_with(JOB), 7) == LATER
    assert foreseen(JOB, JOB).of(state_with(JOB), 8) is None


@pytest.mark.parametrize(
    "change",
    [
        {"limit_seconds": 60},
        {"array_pending": (2, 3)},
        {"begin_at": UnixTime(NOON + 5)},
        {"eligible_at": UnixTime(0)},
        {"hold": "user"},
        {"priority": 5},
        {"nice": 5},
        {"restarts": 1},
        {"spec": a_spec(ntasks=3)},
        {"state": int(JobState.RUNNING)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_nothing_is_given_for_a_job_that_has_changed(change: dict[str, Any]) -> None:
    changed = structs.replace(JOB, **change)
    since = foreseen(JOB, JOB)
    state = state_with(JOB)
    state.jobs[7] = changed
    assert since.of(state, 7) is None
    before = foreseen(JOB, changed)
    assert len(before) == 0
    assert before.of(state, 7) is None


def test_nothing_is_given_for_a_job_that_has_gone() -> None:
    assert foreseen(JOB, JOB).of(a_state(), 7) is None
    assert len(foreseen(JOB)) == 0


def test_a_change_that_moves_no_job_leaves_its_plan() -> None:
    state = state_with(JOB)
    state.jobs[7] = structs.replace(JOB, accrues_at=UnixTime(NOON + 5))
    assert foreseen(JOB, JOB).of(state, 7) == LATER


def test_the_calendar_fills_up_what_the_pass_leaves_open() -> None:
    wait = Wait(Reason.PRIORITY)
    assert with_planned(wait, None, NOON) is wait
    found = with_planned(wait, LATER, NOON)
    assert (found.reason, found.start_at, found.nodes) == (Reason.PRIORITY, NOON + 600, (1, 2))


def test_a_start_of_the_pass_is_newer_than_the_calendars() -> None:
    wait = Wait(Reason.RESOURCES, "", UnixTime(NOON + 60), (0,))
    assert with_planned(wait, LATER, NOON) is wait


def test_a_start_that_should_have_been_is_due_now() -> None:
    assert with_planned(Wait(Reason.PRIORITY), LATER, UnixTime(NOON + 700)).start_at == NOON + 700


def test_the_calendars_reason_stands_where_the_pass_only_says_priority() -> None:
    never = Planned(UnixTime(0), (), "main", Wait(Reason.DEPENDENCY))
    assert with_planned(Wait(Reason.PRIORITY), never, NOON).reason is Reason.DEPENDENCY
    assert with_planned(Wait(Reason.RESOURCES), never, NOON).reason is Reason.RESOURCES
    assert with_planned(Wait(Reason.PRIORITY, "a text"), never, NOON).text == "a text"

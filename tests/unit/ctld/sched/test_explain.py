"""Why a job waits."""

from __future__ import annotations

import pytest

from ctld.core.model import Clause
from ctld.core.plan import Plan, Wait
from ctld.sched.cycle import plan
from ctld.sched.explain import lasting_reason, reason_of
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_job, a_state
from tests.placing import busy, everywhere, queued

LATER = UnixTime(NOON + 60)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"hold": "user", "priority": 0}, Reason.HELD_USER),
        ({"hold": "admin", "priority": 0}, Reason.HELD_ADMIN),
        ({"priority": 0}, Reason.HELD_ADMIN),
        ({"hold": "admin", "priority": 0, "reason": "JobHoldMaxRequeue"}, Reason.MAX_REQUEUE),
        ({"hold": "user", "priority": 0, "clauses": (Clause("afterok", 3),)}, Reason.HELD_USER),
        ({"clauses": (Clause("afterok", 3),), "begin_at": LATER}, Reason.DEPENDENCY),
        ({"clauses": (Clause("afterok", 3),), "reason": "DependencyNeverSatisfied"}, Reason.DEPENDENCY_NEVER),
        ({"begin_at": LATER}, Reason.BEGIN_TIME),
        ({"begin_at": NOON}, Reason.PRIORITY),
        ({"completing": (1,)}, Reason.CLEANING),
        ({}, Reason.PRIORITY),
    ],
)
def test_what_lasts_is_told_without_a_plan(fields: dict[str, object], reason: Reason) -> None:
    assert lasting_reason(a_job(1, **fields), NOON).reason is reason  # type: ignore[arg-type]


def test_text_of_the_job_goes_with_its_reason() -> None:
    job = a_job(1, hold="user", priority=0, state_text="launch failed requeued held")
    assert lasting_reason(job, NOON) == Wait(Reason.HELD_USER, "launch failed requeued held")


def test_before_the_first_pass_a_job_waits_for_priority() -> None:
    state = queued(a_state(1), a_job(1))
    assert reason_of(state, None, state.jobs[1], NOON).reason is Reason.PRIORITY


def test_the_last_pass_gives_the_reason_of_each_job_or_of_its_class() -> None:
    state = a_state(1, cpus=8)
    busy(state, 1, 0, 8, limit_seconds=60)
    queued(state, a_job(2), a_job(3), a_job(4, cpus_per_task=2, priority=1))
    made = plan(state, NOON, reachable=everywhere(state))
    assert reason_of(state, made, state.jobs[2], NOON) == Wait(Reason.RESOURCES, "", LATER, (0,))
    assert reason_of(state, made, state.jobs[3], NOON).reason is Reason.PRIORITY
    assert reason_of(state, made, state.jobs[4], NOON).reason is Reason.PRIORITY


def test_a_job_that_was_held_after_the_pass_shows_the_hold() -> None:
    state = a_state(1)
    overlay = Plan(NOON, waits={1: Wait(Reason.RESOURCES)})
    assert reason_of(state, overlay, a_job(1, hold="user", priority=0), NOON).reason is Reason.HELD_USER


def test_a_job_that_came_after_the_pass_waits_for_priority() -> None:
    state = queued(a_state(1), a_job(1))
    assert reason_of(state, Plan(NOON), state.jobs[1], NOON).reason is Reason.PRIORITY

"""Running jobs whose group has used up what it may."""

from __future__ import annotations

import pytest

from ctld.core.accounts import Limits, Qos
from ctld.core.commands import Tick
from ctld.core.decide import decide
from ctld.core.events import KillOrdered
from ctld.core.model import NodeShare
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import JobState
from tests.builders import NOON
from tests.limited import LIMITS, SAFE, job_of, limited, run


def ended(state: State, at: int) -> list[int]:
    """Jobs that a look at this time ends."""
    events = decide(state, Tick(overuse=True), UnixTime(at))
    assert all(isinstance(event, KillOrdered) and event.kill.state == JobState.TIMEOUT for event in events)
    return [event.job_id for event in events]  # type: ignore[union-attr]


def two_running(enforce: tuple[str, ...] = LIMITS, **limits: Limits) -> State:
    """ada runs a job of 4 CPUs and one of 2, eve one of 4, all since NOON."""
    state = limited(enforce=enforce, **limits)  # type: ignore[arg-type]
    state.at = NOON
    run(state, job_of("ada", 1, 4, limit_seconds=7200), NodeShare(0, 4, (0, 3), 4))
    run(state, job_of("ada", 2, 2, limit_seconds=7200), NodeShare(0, 2, (4, 5), 2))
    run(state, job_of("eve", 3, 4, limit_seconds=7200), NodeShare(0, 4, (6, 9), 4))
    return state


@pytest.mark.parametrize(
    ("limits", "since", "jobs"),
    [
        # 6 CPUs for 60 minutes are 360 CPU minutes.
        ({"physics": Limits(grp_tres_minutes={"cpu": 360})}, 3600, [1, 2]),
        ({"ada": Limits(grp_tres_minutes={"cpu": 360})}, 3600, [1, 2]),
        # Two jobs for 50 minutes are 100 minutes of wall time.
        ({"ada": Limits(grp_wall_minutes=100)}, 3000, [1, 2]),
        # The first job alone has 4 CPUs.
        ({"ada": Limits(max_tres_minutes_per_job={"cpu": 240})}, 3601, [1]),
    ],
)
def test_jobs_end_when_their_group_has_used_up_its_minutes(
    limits: dict[str, Limits], since: int, jobs: list[int]
) -> None:
    state = two_running(**limits)  # type: ignore[arg-type]
    assert ended(state, NOON + since - 1) == []
    assert ended(state, NOON + since) == jobs


def test_nothing_is_ended_when_only_jobs_that_can_end_in_time_are_started() -> None:
    state = two_running(SAFE, physics=Limits(grp_tres_minutes={"cpu": 1}))
    assert ended(state, NOON + 3600) == []


def test_what_the_root_association_has_used_ends_nobody() -> None:
    state = two_running(root=Limits(grp_tres_minutes={"cpu": 1}, grp_wall_minutes=1))
    assert ended(state, NOON + 3600) == []


def test_minutes_of_a_qos_end_its_jobs() -> None:
    qos = [Qos(2, "high", limits=Limits(grp_tres_minutes={"cpu": 60}))]
    state = limited(qos=qos)
    state.at = NOON
    run(state, job_of("ada", 1, 1, qos="high"), NodeShare(0, 1, (0, 0), 1))
    run(state, job_of("ada", 2, 1), NodeShare(0, 1, (1, 1), 1))
    assert ended(state, NOON + 3599) == []
    assert ended(state, NOON + 3600) == [1]


def test_a_tick_that_does_not_ask_ends_nobody() -> None:
    state = two_running(physics=Limits(grp_tres_minutes={"cpu": 1}))
    assert decide(state, Tick(), UnixTime(NOON + 3600)) == []

"""What is counted for sdiag: jobs by their events, passes, calls; and when it starts anew."""

from __future__ import annotations

import pytest

from ctld.core.events import ArrayTasksCancelled, Event, JobFinished, JobStarted, JobSubmitted
from ctld.core.model import Allocation
from ctld.core.plan import Plan
from ctld.core.record import run_record
from ctld.loops.statistics import MOST_USERS, Statistics
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import NOON, a_job, a_state
from tests.served import StandingClock


def a_finish(state: JobState) -> Event:
    return JobFinished(NOON, JobId(1), int(state), run_record(a_state(), a_job()))


def counted(*events: Event, clock: StandingClock | None = None) -> Statistics:
    statistics = Statistics(clock or StandingClock())
    statistics.take(list(enumerate(events, 1)))
    return statistics


def test_each_member_of_an_array_counts() -> None:
    jobs = counted(JobSubmitted(NOON, a_job(1)), JobSubmitted(NOON, a_job(2, array=(0, 9, 20, 20)))).day.jobs
    assert jobs.submitted == 12
    record = run_record(a_state(), a_job())
    assert counted(ArrayTasksCancelled(NOON, JobId(2), (0, 4, 20, 20), record)).day.jobs.cancelled == 6


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        (JobState.COMPLETED, (1, 0, 0)),
        (JobState.CANCELLED, (0, 1, 0)),
        (JobState.PREEMPTED, (0, 1, 0)),
        (JobState.FAILED, (0, 0, 1)),
        (JobState.TIMEOUT, (0, 0, 1)),
        (JobState.NODE_FAIL, (0, 0, 1)),
        (JobState.DEADLINE, (0, 0, 1)),
    ],
)
def test_an_end_counts_by_its_state(state: JobState, counts: tuple[int, int, int]) -> None:
    jobs = counted(a_finish(state)).day.jobs
    assert (jobs.completed, jobs.cancelled, jobs.failed) == counts


def test_backfilled_starts_are_counted_apart() -> None:
    main, behind = (
        JobStarted(NOON, JobId(1), Allocation("main", (), planned_by=by), 60) for by in ("Main", "Backfill")
    )
    statistics = counted(main, behind, behind)
    assert (statistics.day.jobs.started, statistics.backfilled, statistics.day.backfilled) == (3, 2, 2)


def test_passes_are_added_up() -> None:
    statistics = Statistics(StandingClock())
    statistics.planned(Plan(NOON, looked_at=4), seconds=0.003, queue=10)
    statistics.planned(Plan(NOON, looked_at=2, complete=False), seconds=0.001, queue=6)
    day = statistics.day
    passes = day.passes
    assert (passes.count, passes.last, passes.longest, passes.total) == (2, 1000, 3000, 4000)
    assert (passes.last_depth, passes.depth, passes.last_queue, passes.queue) == (2, 6, 6, 16)
    assert (passes.whole, passes.out_of_time) == (1, 1)


def test_midnight_utc_starts_the_day_anew_and_leaves_calls_and_all_backfilled_jobs() -> None:
    clock = StandingClock()
    statistics = counted(JobStarted(NOON, JobId(1), Allocation("main", (), planned_by="Backfill"), 60), clock=clock)
    statistics.called("GET", "/v1/jobs", 1000, 0.002)
    clock.at = UnixTime(NOON - NOON % 86400 + 86400 - 1)
    assert (statistics.day.since, statistics.day.backfilled) == (NOON, 1)
    clock.at = UnixTime(clock.at + 1)
    assert (statistics.day.since, statistics.day.jobs.started, statistics.day.backfilled) == (clock.at, 0, 0)
    assert (statistics.backfilled, statistics.users[1000].total) == (1, 2000)


def test_a_reset_starts_everything_anew() -> None:
    clock = StandingClock()
    statistics = counted(JobStarted(NOON, JobId(1), Allocation("main", (), planned_by="Backfill"), 60), clock=clock)
    statistics.called("GET", "/v1/jobs", 1000, 0.002)
    clock.at = UnixTime(NOON + 5)
    statistics.reset()
    assert (statistics.day.since, statistics.day.jobs.started, statistics.backfilled) == (NOON + 5, 0, 0)
    assert not statistics.kinds
    assert not statistics.users


def test_users_beyond_the_bound_count_by_kind_only() -> None:
    statistics = Statistics(StandingClock())
    for uid in range(MOST_USERS + 5):
        statistics.called("GET", "/v1/ping", uid, 0.0)
    assert (len(statistics.users), statistics.kinds["GET", "/v1/ping"].count) == (MOST_USERS, MOST_USERS + 5)

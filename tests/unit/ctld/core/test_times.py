from __future__ import annotations

import pytest

from ctld.core.times import latest_start, stretched
from muster.ids import UnixTime
from tests.builders import a_job


@pytest.mark.parametrize(
    ("limit", "time_min", "until", "found"),
    [
        (3600, 10, -1, 3600),
        (3600, 10, 7200, 3600),
        (3600, 10, 1800, 1800),
        (3600, 10, 1859, 1800),
        (3600, 10, 600, 600),
        (3600, 10, 10, 600),
        (-1, 10, -1, -1),
        (-1, 10, 90_001, 90_000),
    ],
)
def test_a_shortened_limit_is_the_largest_in_whole_minutes_that_nothing_is_in_the_way_of(
    limit: int, time_min: int, until: int, found: int
) -> None:
    assert stretched(limit, time_min, until) == found


def test_the_latest_start_leaves_time_for_the_shortest_run() -> None:
    assert latest_start(a_job(limit_seconds=3600, deadline_at=UnixTime(10_000))) == 6400
    assert latest_start(a_job(limit_seconds=3600, time_min_minutes=10, deadline_at=UnixTime(10_000))) == 9400
    assert latest_start(a_job(deadline_at=UnixTime(10_000))) == 10_000

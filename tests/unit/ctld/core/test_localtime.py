"""Days in local time, against the C library."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ctld.configure import clock_changes
from ctld.core.localtime import Zone, days_later, offset_at, weekday

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Australia/Sydney", "Asia/Kolkata", "Africa/Casablanca")


@contextmanager
def zone(name: str) -> Iterator[Zone]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield clock_changes.__wrapped__()
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@pytest.mark.parametrize("name", ZONES)
def test_offsets_and_days_are_those_of_the_c_library(name: str) -> None:
    with zone(name) as changes:
        for when in range(1_735_700_000, 1_767_300_000, 7919):  # the year 2025
            local = time.localtime(when)
            assert offset_at(changes, when) == local.tm_gmtoff
            assert weekday(changes, when) == (local.tm_wday + 1) % 7
            later = time.localtime(days_later(changes, when, 1))
            assert (
                time.mktime((local.tm_year, local.tm_mon, local.tm_mday + 1, *local[3:6], 0, 0, -1))
                in (
                    days_later(changes, when, 1),
                    days_later(changes, when, 1) + 3600,  # of an hour that comes twice either may be meant
                )
                or later[3:6] == ((local.tm_hour + 1) % 24, *local[4:6])
            )


def test_a_zone_without_changes_is_utc() -> None:
    with zone("UTC") as changes:
        assert changes == ()
    assert days_later((), 1000, 2) == 1000 + 172_800

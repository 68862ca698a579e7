"""What the notations print, they read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from muster import units
from muster.errors import InvalidInput
from muster.timepoints import format_time_point, parse_time_point

NOW = 1_777_633_200


@given(st.integers(0, 400 * 86_400))
def test_a_printed_duration_reads_back(seconds: int) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds
    if seconds >= 60 and seconds <= units.YEAR:
        assert units.parse_duration(units.format_duration_short(seconds)) == seconds


@given(st.integers(0, 1 << 40))
def test_a_printed_memory_size_without_halves_reads_back(mib: int) -> None:
    assert units.parse_memory_mib(units.format_memory_mib(mib, noconvert=True)) == mib
    text = units.format_memory_mib(mib)
    if "." not in text and text[-1] != "P":
        assert units.parse_memory_mib(text) == mib


@given(st.lists(st.integers(0, 4), max_size=40))
def test_run_lengths_read_back(values: list[int]) -> None:
    assert units.parse_runs(units.format_runs(values)) == values


@given(st.text(alphabet="0123456789-: munlited.", max_size=12))
def test_a_duration_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        seconds = units.parse_duration(text)
    except InvalidInput:
        return
    assert seconds is None or seconds >= 0
    assert (seconds is None) == (text in ("-1", "unlimited", "infinite"))


@given(st.integers(86_400, 4_000_000_000))
def test_a_printed_time_reads_back_unless_the_clock_was_set_back(when: int) -> None:
    text = format_time_point(when, environ={})
    again = parse_time_point(text, NOW)
    # In the hour that a night has twice, one of the two is meant.
    assert format_time_point(again, environ={}) == text
    assert abs(again - when) <= 7200


@given(st.integers(0, 10_000), st.sampled_from(["seconds", "minutes", "hours", "days", "weeks"]))
def test_now_plus_agrees_with_the_standard_library(amount: int, unit: str) -> None:
    wanted = datetime.fromtimestamp(NOW, UTC) + timedelta(**{unit: amount})
    assert parse_time_point(f"now+{amount}{unit}", NOW) == int(wanted.timestamp())


@given(st.text(alphabet="0123456789-/.:Tt apmnowus+", max_size=20), st.booleans())
def test_a_time_point_is_read_or_refused_and_nothing_else(text: str, past: bool) -> None:
    when: int | None = None
    refusal = ""
    try:
        when = parse_time_point(text, NOW, past=past)
    except InvalidInput as error:
        refusal = error.sentence
    assert (when is None) == refusal.startswith("Invalid time specification (pos=")

"""Points in time: all forms, in a zone with daylight saving time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from muster.errors import InvalidInput
from muster.timepoints import format_time_point, parse_time_point


@pytest.fixture(autouse=True)
def central_europe() -> Iterator[None]:
    """A zone given by its rules, so that no zone files are needed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        patched.delenv("SLURM_TIME_FORMAT", raising=False)
        time.tzset()
        yield
    time.tzset()


def at(text: str) -> int:
    """Epoch seconds of a local time, by the standard library's own parser."""
    return int(time.mktime((*time.strptime(text, "%Y-%m-%d %H:%M:%S")[:8], -1)))


NOW = "2026-05-01 13:00:00"  # a Friday


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("14:30", "2026-05-01 14:30:00"),
        ("9:05", "2026-05-02 09:05:00"),
        ("13:00", "2026-05-01 13:00:00"),
        ("12:59:59", "2026-05-02 12:59:59"),
        ("4:00 PM", "2026-05-01 16:00:00"),
        ("4:00pm", "2026-05-01 16:00:00"),
        ("12:00AM", "2026-05-02 00:00:00"),
        ("12:30:15 pm", "2026-05-02 12:30:15"),
        ("today", "2026-05-01 00:00:00"),
        ("Tomorrow", "2026-05-02 00:00:00"),
        ("tomorrow18:00", "2026-05-02 18:00:00"),
        ("18:00 tomorrow", "2026-05-02 18:00:00"),
        ("today 08:00", "2026-05-01 08:00:00"),
        ("noon tomorrow", "2026-05-02 12:00:00"),
        ("midnight", "2026-05-02 00:00:00"),
        ("noon", "2026-05-02 12:00:00"),
        ("elevenses", "2026-05-02 11:00:00"),
        ("FIKA", "2026-05-01 15:00:00"),
        ("teatime", "2026-05-01 16:00:00"),
        ("050226", "2026-05-02 00:00:00"),
        ("0502", "2026-05-02 00:00:00"),
        ("0430", "2027-04-30 00:00:00"),
        ("05/02/26", "2026-05-02 00:00:00"),
        ("5/2", "2026-05-02 00:00:00"),
        ("05.02.27", "2027-05-02 00:00:00"),
        ("04/30", "2027-04-30 00:00:00"),
        ("05/01", "2026-05-01 00:00:00"),
        ("02/29", "2028-02-29 00:00:00"),
        ("05/02-06:30", "2026-05-02 06:30:00"),
        ("05/02/27-06:30:15", "2027-05-02 06:30:15"),
        ("05/02/27 06:30", "2027-05-02 06:30:00"),
        ("2026-05-03", "2026-05-03 00:00:00"),
        ("2026-05-03T10:20", "2026-05-03 10:20:00"),
        ("2026-05-03t10:20:30", "2026-05-03 10:20:30"),
        ("2026-05-03 noon", "2026-05-03 12:00:00"),
        ("now", NOW),
        ("now+60", "2026-05-01 13:01:00"),
        ("NOW+1hour", "2026-05-01 14:00:00"),
        ("now + 2 minutes", "2026-05-01 13:02:00"),
        ("now-3days", "2026-04-28 13:00:00"),
        ("now+1week", "2026-05-08 13:00:00"),
        ("now+10seconds", "2026-05-01 13:00:10"),
    ],
)
def test_every_form_of_a_time_point_is_read(text: str, wanted: str) -> None:
    assert format_time_point(parse_time_point(text, at(NOW))) == wanted.replace(" ", "T")


def test_epoch_seconds_are_taken_as_they_are() -> None:
    assert parse_time_point("uts1777633200", at(NOW)) == 1_777_633_200
    assert parse_time_point("UTS1000000", at(NOW)) == 1_000_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("18:00", "2026-05-01 18:00:00"),
        ("9:05", "2026-05-01 09:05:00"),
        ("midnight", "2026-05-01 00:00:00"),
        ("05/02", "2025-05-02 00:00:00"),
        ("05/01", "2026-05-01 00:00:00"),
        ("04/30-06:00", "2026-04-30 06:00:00"),
        ("02/29", "2024-02-29 00:00:00"),
    ],
)
def test_queries_about_the_past_look_backwards(text: str, wanted: str) -> None:
    assert parse_time_point(text, at(NOW), past=True) == at(wanted)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("   ", 3),
        ("4pm", 1),
        ("25:00", 0),
        ("12:60", 3),
        ("12:5", 3),
        ("12:30:61", 6),
        ("13:00 PM", 0),
        ("0:30 am", 0),
        ("yesterday", 0),
        ("tomorrow x", 9),
        ("today tomorrow", 6),
        ("12:00 13:00", 6),
        ("13/01", 0),
        ("04/31", 3),
        ("02/29/27", 3),
        ("043126", 2),
        ("12345", 0),
        ("2026-13-01", 5),
        ("2026-02-30", 8),
        ("2026-5-1", 5),
        ("2026-05-01T", 11),
        ("05/02/2026", 6),
        ("now5", 3),
        ("now+", 4),
        ("now+5fortnights", 5),
        ("now+5m", 5),
        ("now+999999999999weeks", 4),
        ("now-999999999999", 4),
        ("uts999999", 3),
        ("uts1777633200x", 13),
        ("utsx", 3),
        ("١٢:٠٠", 0),
    ],
)
def test_an_error_names_the_position_and_the_text(text: str, position: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_time_point(text, at(NOW))
    assert caught.value.sentence == f"Invalid time specification (pos={position}): {text}"


def test_a_very_long_text_is_refused_and_cut() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_time_point("1" * 100_000, at(NOW))
    assert len(caught.value.sentence) < 400


def test_tomorrow_keeps_the_clock_on_short_and_long_nights() -> None:
    short, long = at("2026-03-28 12:00:00"), at("2026-10-24 12:00:00")
    assert parse_time_point("12:00 tomorrow", short) - short == 23 * 3600
    assert parse_time_point("12:00 tomorrow", long) - long == 25 * 3600
    assert parse_time_point("tomorrow", at("2026-10-25 00:10:00")) == at("2026-10-26 00:00:00")
    assert parse_time_point("now+1day", short) - short == 24 * 3600


def test_tomorrow_crosses_the_end_of_the_year() -> None:
    assert parse_time_point("tomorrow", at("2026-12-31 23:59:59")) == at("2027-01-01 00:00:00")


def test_a_missing_time_prints_the_word_of_the_column() -> None:
    assert format_time_point(0) == "Unknown"
    assert format_time_point(None, unset="N/A") == "N/A"


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (NOW, "13:00:00"),
        ("2026-04-30 23:05:00", "Ystday 23:05"),
        ("2026-05-02 00:00:00", "Tomorr 00:00"),
        ("2026-05-02 23:59:59", "Tomorr 23:59"),
        ("2026-05-03 08:00:00", "Sun 08:00"),
        ("2026-05-07 08:00:00", "Thu 08:00"),
        ("2026-05-08 08:00:00", "8 May 08:00"),
        ("2026-04-25 08:00:00", "25 Apr 08:00"),
        ("2025-05-02 08:00:00", "2 May 08:00"),
        ("2024-05-02 08:00:00", "2 May 2024"),
        ("2027-12-31 08:00:00", "31 Dec 2027"),
    ],
)
def test_relative_times_follow_the_distance_in_days(when: str, text: str) -> None:
    relative = {"SLURM_TIME_FORMAT": "relative"}
    assert format_time_point(at(when), now=at(NOW), environ=relative) == text


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("standard", "2026-05-01T13:00:00"),
        ("", "2026-05-01T13:00:00"),
        ("nonsense", "2026-05-01T13:00:00"),
        ("%H h", "13 h"),
        ("%d.%m.%y", "01.05.26"),
        ("%H" + "x" * 40, "2026-05-01T13:00:00"),
    ],
)
def test_the_environment_chooses_the_format(monkeypatch: pytest.MonkeyPatch, style: str, text: str) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", style)
    assert format_time_point(at(NOW)) == text


def test_epoch_seconds_can_be_asked_for() -> None:
    assert format_time_point(at(NOW), environ={"SLURM_TIME_FORMAT": "%s"}) == str(at(NOW))

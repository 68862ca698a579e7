"""Text forms of durations, memory, counts and run lengths."""

from __future__ import annotations

import pytest

from muster import units
from muster.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("4:00", 240),
        ("1:30:00", 90 * 60),
        ("2-12", 60 * 3600),
        ("2-12:30", 60 * 3600 + 1800),
        ("1-00:00:00", 86_400),
    ],
)
def test_n04_the_six_time_limit_forms(text: str, seconds: int) -> None:
    assert units.parse_duration(text) == seconds
    assert units.parse_limit_minutes(text) == seconds // 60


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0:1", 1),
        ("90:00", 5400),
        ("0-36", 36 * 3600),
        ("1-", 86_400),
        ("1-2:3:4", 86_400 + 7384),
        ("0:36000", 36_000),
        ("-1", None),
        ("INFINITE", None),
        ("Unlimited", None),
    ],
)
def test_durations_are_read_to_the_second(text: str, seconds: int | None) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " 5", "5 ", "5m", "1.5", "-2", "-", "-5:00", "1:-5", "1:2-3", "1-2-3", "1:2:3:4", "1-2:3:4:5", "1::2", ":5",
     "5:", "1-:5", "1-2:", "forever", "+5", "٣", "9" * 30, "99999999999", "unlimitedx", "1h"],
)  # fmt: skip
def test_what_is_no_duration_is_an_error_never_unlimited(text: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid duration"):
        units.parse_duration(text)
    with pytest.raises(InvalidInput, match="Invalid duration"):
        units.parse_limit_minutes(text, zero_is_unlimited=True)


def test_limits_are_rounded_up_and_zero_is_unlimited_for_jobs_only() -> None:
    assert units.parse_limit_minutes("0:01") == 1
    assert units.parse_limit_minutes("1:01") == 2
    assert units.parse_limit_minutes("0") == 0
    assert units.parse_limit_minutes("0", zero_is_unlimited=True) is None
    assert units.parse_limit_minutes("00:00:00", zero_is_unlimited=True) is None
    assert units.parse_limit_minutes("UNLIMITED") is None


@pytest.mark.parametrize(
    ("seconds", "long", "short", "sinfo"),
    [
        (0, "00:00:00", "0:00", "0:00"),
        (59, "00:00:59", "0:59", "0:59"),
        (1800, "00:30:00", "30:00", "30:00"),
        (3600, "01:00:00", "1:00:00", "1:00:00"),
        (14_400, "04:00:00", "4:00:00", "4:00:00"),
        (86_399, "23:59:59", "23:59:59", "23:59:59"),
        (86_400, "1-00:00:00", "1-00:00:00", "1-00:00:00"),
        (10 * 86_400 + 3661, "10-01:01:01", "10-01:01:01", "10-01:01:01"),
        (366 * 86_400, "366-00:00:00", "INVALID", "366-00:00:00"),
        (-5, "INVALID", "INVALID", "0:00"),
        (None, "UNLIMITED", "UNLIMITED", "infinite"),
    ],
)
def test_durations_print_as_each_command_does(seconds: int | None, long: str, short: str, sinfo: str) -> None:
    assert units.format_duration(seconds) == long
    assert units.format_duration_short(seconds) == short
    assert units.format_duration_sinfo(seconds) == sinfo


def test_a_partition_without_a_default_limit_reads_na() -> None:
    assert units.format_duration_sinfo(None, is_set=False) == "n/a"


@pytest.mark.parametrize(
    ("total_ms", "text"),
    [
        (0, "00:00:00"),
        (1234, "00:01.234"),
        (1000, "00:00:01"),
        (59 * 60_000 + 1, "59:00.001"),
        (3_600_001, "01:00:00"),
        (90_061_500, "1-01:01:01"),
    ],
)
def test_processor_time_shows_milliseconds_under_an_hour(total_ms: int, text: str) -> None:
    assert units.format_cpu_time(total_ms) == text


@pytest.mark.parametrize(
    ("text", "mib"),
    [("0", 0), ("500", 500), ("500M", 500), ("500mb", 500), ("4G", 4096), ("4gB", 4096), ("2T", 2 << 20),
     ("1K", 1), ("1024K", 1), ("1025k", 2), ("1025KB", 2)],
)  # fmt: skip
def test_memory_sizes_are_read_as_mib(text: str, mib: int) -> None:
    assert units.parse_memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "G", "1.5G", "5X", "B", "5B", "-1", "1 G", "1GG", "1GiB", "٣", "9" * 18 + "T"])
def test_what_is_no_memory_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid memory size"):
        units.parse_memory_mib(text)


@pytest.mark.parametrize(
    ("mib", "text", "plain"),
    [
        (0, "0", "0"),
        (500, "500M", "500M"),
        (512, "512M", "512M"),
        (1000, "1000M", "1000M"),
        (1024, "1G", "1024M"),
        (1536, "1.50G", "1536M"),
        (2560, "2.50G", "2560M"),
        (4096, "4G", "4096M"),
        (256_000, "250G", "256000M"),
        (1 << 20, "1T", "1048576M"),
        (1000 << 20, "1000T", "1048576000M"),
    ],
)
def test_memory_prints_in_the_largest_exact_unit(mib: int, text: str, plain: str) -> None:
    assert units.format_memory_mib(mib) == text
    assert units.format_memory_mib(mib, noconvert=True) == plain


def test_measured_bytes_print_as_sacct_does() -> None:
    assert units.format_bytes_sacct(13_664_256) == "13344K"
    assert units.format_bytes_sacct(0) == "0"
    assert units.format_bytes_sacct(6977) == "6977"
    assert units.format_bytes_sacct(2 << 20) == "2048K"
    assert units.format_bytes_sacct(13_664_256, "M") == "13.03M"
    assert units.format_bytes_sacct(13_664_256, "g") == "0.01G"
    assert units.format_bytes_sacct(13_664_256, noconvert=True) == "13664256"
    with pytest.raises(InvalidInput, match="Invalid unit: 'X'"):
        units.format_bytes_sacct(5, "X")


def test_counts_take_the_suffixes_of_their_kind() -> None:
    assert units.parse_count("12") == 12
    assert units.parse_count("2k") == 2048
    assert units.parse_count("1M") == 1 << 20
    assert units.parse_count("3G", suffixes="KMGTP") == 3 << 30
    for text in ("", "k", "1G", "-1", "1.5k", "1kk", "9" * 30):
        with pytest.raises(InvalidInput, match="Invalid count"):
            units.parse_count(text)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([72, 72, 36], "72(x2),36"),
        ([2, 2, 2, 1], "2(x3),1"),
        ([4], "4"),
        ([1, 2, 1], "1,2,1"),
        ([], ""),
        ([0, 0], "0(x2)"),
    ],
)
def test_run_lengths_print_and_read_back(values: list[int], text: str) -> None:
    assert units.format_runs(values) == text
    assert units.parse_runs(text) == values


@pytest.mark.parametrize("text", ["a", "1,", "2(x3", "2(3)", "2(xa)", "2(x)", "1(x999999999999)"])
def test_bad_run_lengths_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid run lengths"):
        units.parse_runs(text)

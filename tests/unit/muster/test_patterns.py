"""File-name patterns of batch jobs and steps."""

from __future__ import annotations

import pytest

from muster.patterns import (
    DEFAULT_ARRAY_OUTPUT,
    DEFAULT_OUTPUT,
    batch_values,
    codes_of,
    expand,
    is_none,
    needs_task_codes,
    stream_mode,
)

PLAIN = batch_values(job_id=42, job_name="train", user="ada", node="n7")
MEMBER = batch_values(job_id=50, job_name="a/b", user="ada", array_job_id=42, array_index=13, restarts=2)
STEP: dict[str, str | int] = {"j": 42, "J": "42.3", "s": 3, "t": 11, "n": 1, "N": "n7", "u": "ada", "x": "train"}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (DEFAULT_OUTPUT, "slurm-42.out"),
        ("%x-%j.out", "train-42.out"),
        ("%%j", "%j"),
        ("100%%", "100%"),
        ("%A_%a", "42_4294967294"),
        ("%b", "4"),
        ("%J.%s", "42.batch"),
        ("%u@%N", "ada@n7"),
        ("%r%t%n", "000"),
        ("%5j", "00042"),
        ("%05j", "00042"),
        ("%12j", "0000000042"),
        ("%999999999999999999j", "0000000042"),
        ("%0j", "42"),
        ("%5x", "train"),
        ("%5N", "n7"),
        ("%5s", "batch"),
        ("%q", "%q"),
        ("%5q", "%5q"),
        ("%5%", "%5%"),
        ("x%", "x%"),
        ("x%5", "x%5"),
        ("%S", "%S"),
        (r"\slurm-%j.out", "slurm-%j.out"),
        (r"a\\b%%", "ab%%"),
        ("a b/%j", "a b/42"),
        ("", ""),
    ],
)
def test_patterns_of_a_batch_job(pattern: str, name: str) -> None:
    assert expand(pattern, PLAIN) == name


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (DEFAULT_ARRAY_OUTPUT, "slurm-42_13.out"),
        ("%A-%3a-%j-%b-%r", "42-013-50-3-2"),
        ("%x/%j", "a/b/50"),
        ("%N", "%N"),
    ],
)
def test_patterns_of_an_array_member(pattern: str, name: str) -> None:
    assert expand(pattern, MEMBER) == name


@pytest.mark.parametrize(
    ("pattern", "name"), [("%J", "42.3"), ("%5J", "00042.3"), ("%2t", "11"), ("%3t.%n", "011.1"), ("%s", "3")]
)
def test_patterns_of_a_step(pattern: str, name: str) -> None:
    assert expand(pattern, STEP) == name


def test_codes_that_need_the_task() -> None:
    assert needs_task_codes("%j-%t")
    assert needs_task_codes("%3n")
    assert needs_task_codes("%N")
    assert needs_task_codes("%u")
    assert not needs_task_codes("%j-%x")
    assert not needs_task_codes("%%t")
    assert not needs_task_codes(r"\%t")
    assert codes_of("%x/%5j-%j%q%%t") == "xj"


def test_b02_none_is_no_file_in_any_case() -> None:
    assert is_none("none")
    assert is_none("None")
    assert not is_none("none.out")


def test_special_values_of_srun() -> None:
    assert stream_mode("all", 4) == ("all", -1)
    assert stream_mode("-", 4) == ("all", -1)
    assert stream_mode("NONE", 4) == ("none", -1)
    assert stream_mode("3", 4) == ("task", 3)
    assert stream_mode("4", 4) == ("file", -1)
    assert stream_mode("%t", 4) == ("file", -1)

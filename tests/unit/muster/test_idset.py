"""Array indices: the two notations, the refusals, and what a million members cost."""

from __future__ import annotations

import time

import pytest

from muster.errors import InvalidInput
from muster.idset import IdSet, format_task_list, parse_array, task_list_bytes


@pytest.mark.parametrize(
    ("text", "members", "limit"),
    [
        ("7", [7], 0),
        ("0-3", [0, 1, 2, 3], 0),
        ("0-9:3,7%4", [0, 3, 6, 7, 9], 4),
        ("5,5,5", [5], 0),
        ("1,,2", [1, 2], 0),
        ("3-4:100", [3], 0),
        ("0-9%0", list(range(10)), 0),
        ("0-1%x", [0, 1], 0),
        ("0-1%", [0, 1], 0),
        ("0-1%-1", [0, 1], 0),
        ("0-1%3x", [0, 1], 3),
        ("[1-2]", [1, 2], 0),
        ("[1-2%5]", [1, 2], 5),
        ("[1-2]%5", [1, 2], 5),
        ("4,1-2,2-3", [1, 2, 3, 4], 0),
    ],
)
def test_an_array_text_gives_indices_and_limit(text: str, members: list[int], limit: int) -> None:
    tasks, allowed = parse_array(text, 1001)
    assert (list(tasks), allowed) == (members, limit)


@pytest.mark.parametrize(
    "text",
    ["", ",", "%2", "x", "1-", "-1", "3-1", "0-9:0", "0-9:1001", "0-9:", "1:2", "1-2-3", "1 ,2", "1-2:1:1", "²", "1]",
     "[[1]]", "9" * 5000],
)  # fmt: skip
def test_a_bad_array_is_refused_in_slurms_words(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_array(text, 1001)
    assert caught.value.sentence == "Invalid job array specification"
    assert caught.value.slurm_code == 2081
    assert caught.value.hint


@pytest.mark.parametrize(("text", "count"), [("1-1000", 1000), ("0-1000:2", 501), ("5,5,5", 1)])
def test_n11_the_limit_is_on_the_index_not_on_the_number(text: str, count: int) -> None:
    assert len(parse_array(text, 1001)[0]) == count


@pytest.mark.parametrize(("text", "index"), [("1-1001", 1001), ("1001-1100", 1001), ("5,2000", 2000)])
def test_n11_the_message_names_the_limit_and_the_index(text: str, index: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_array(text, 1001)
    assert caught.value.hint == f"index {index} is over the limit: the largest index is 1000"


@pytest.mark.parametrize(
    ("members", "limit", "text"),
    [
        ([0, 1, 2, 3, 7], 0, "0-3,7"),
        (range(100), 0, "0-99"),
        (range(5, 10), 2, "5-9%2"),
        (range(1, 101, 7), 0, "1-99:7"),
        (range(0, 12, 2), 0, "0,2,4,6,8,10"),  # spans 10, not more
        (range(0, 13, 2), 3, "0-12:2%3"),
        (range(0, 41, 10), 0, "0,10,20,30,40"),  # five, not more
        ([1, 2], 0, "1-2"),
        ([], 0, ""),
    ],
)
def test_the_task_list_prints_ranges_or_one_step(members: list[int] | range, limit: int, text: str) -> None:
    assert format_task_list(IdSet.from_iterable(members), limit) == text


def test_a_long_task_list_is_cut_with_dots_before_the_limit() -> None:
    tasks = IdSet.from_iterable([*range(0, 100, 3), 100])
    full = ",".join(map(str, tasks)).replace("99,100", "99-100")
    assert format_task_list(tasks, 5, 0) == full + "%5"
    assert format_task_list(tasks, 5) == full[:60] + "...%5"
    assert format_task_list(tasks, 0, 4096) == full
    fits = IdSet.from_iterable([1, *range(10, 50, 2)])
    assert len(format_task_list(fits, 0)) == 61
    assert format_task_list(IdSet.from_iterable([*fits, 63]), 0).endswith("...")


@pytest.mark.parametrize(
    ("asked", "size"), [("", 64), ("0", 0), ("200", 200), ("9999", 4096), ("-1", 64), ("x", 64), ("9" * 5000, 64)]
)
def test_the_environment_chooses_the_length_of_task_lists(asked: str, size: int) -> None:
    assert task_list_bytes({"SLURM_BITSTR_LEN": asked}) == size
    assert task_list_bytes({}) == 64


def test_a_set_is_one_run_whatever_its_size() -> None:
    assert IdSet.from_iterable(range(100_000)).to_tuple() == ((0, 99_999, 1),)
    assert parse_array("0-999999:2", 4_000_001)[0].to_tuple() == ((0, 999_998, 2),)


def test_the_normal_form_does_not_depend_on_the_way_there() -> None:
    evens = IdSet.from_iterable(range(0, 10, 2))
    odds = IdSet.from_iterable(range(1, 10, 2))
    assert evens.union(odds) == IdSet.from_iterable(range(10))
    assert evens.union(odds).remove_many(odds) == evens
    assert evens.union(IdSet.from_iterable([3])).to_tuple() == ((0, 0, 1), (2, 4, 1), (6, 6, 1), (8, 8, 1))


def test_starting_a_hundred_thousand_tasks_one_by_one_is_cheap() -> None:
    tasks = IdSet.from_iterable(range(100_000))
    started = time.process_time()
    while tasks:
        tasks = tasks.without(tasks.min)
    assert time.process_time() - started < 2


def test_a_million_overlapping_indices_are_read_quickly() -> None:
    started = time.process_time()
    tasks, _ = parse_array("0-999999,0-999999:2,1-999999:3", 1_000_001)
    assert tasks.to_tuple() == ((0, 999_999, 1),)
    assert time.process_time() - started < 0.5


def test_an_empty_set_has_no_smallest_member() -> None:
    assert not IdSet()
    with pytest.raises(ValueError, match="no smallest member"):
        _ = IdSet().min
    with pytest.raises(ValueError, match="no largest member"):
        _ = IdSet().max


@pytest.mark.parametrize("runs", [((5, 3, 1),), ((0, 3, 1), (2, 9, 1)), ((-1, 3, 1),), ((0, 3, 0),), ((0, 3),)])
def test_stored_runs_are_checked(runs: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(InvalidInput, match="Not a set of numbers"):
        IdSet.from_tuple(runs)


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="negative"):
        IdSet.from_iterable([3, -1])
    with pytest.raises(InvalidInput, match="negative"):
        IdSet.from_iterable(range(5, -2, -1))

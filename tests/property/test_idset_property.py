"""IdSet against Python's sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.idset import IdSet, format_task_list, parse_array

small = st.sets(st.integers(0, 40))
spaced = st.builds(
    lambda first, count, step: set(range(first, first + count * step, step)),
    st.integers(0, 30),
    st.integers(0, 12),
    st.integers(1, 4),
)
members = st.one_of(small, spaced, st.builds(set.union, spaced, spaced), st.builds(set.union, spaced, small))


@given(members)
def test_a_set_holds_what_it_was_made_of(numbers: set[int]) -> None:
    made = IdSet.from_iterable(numbers)
    assert list(made) == sorted(numbers)
    assert len(made) == len(numbers)
    assert [number for number in range(-1, 90) if number in made] == sorted(numbers)
    assert IdSet.from_tuple([list(run) for run in made.to_tuple()]) == made
    if numbers:
        assert (made.min, made.max) == (min(numbers), max(numbers))


@given(members, members)
def test_set_operations_agree_and_give_the_normal_form(one: set[int], two: set[int]) -> None:
    a, b = IdSet.from_iterable(one), IdSet.from_iterable(two)
    for got, wanted in (
        (a.union(b), one | two),
        (a.intersect(b), one & two),
        (a.remove_many(b), one - two),
        (a.remove_many(two), one - two),
    ):
        assert list(got) == sorted(wanted)
        assert len(got) == len(wanted)
        assert got == IdSet.from_iterable(wanted)
        assert hash(got) == hash(IdSet.from_iterable(wanted))
    assert (a == b) == (one == two)


@given(members, st.integers(0, 90))
def test_taking_one_away_gives_the_normal_form(numbers: set[int], gone: int) -> None:
    assert IdSet.from_iterable(numbers).without(gone) == IdSet.from_iterable(numbers - {gone})


@given(members)
def test_taking_the_smallest_away_ends_with_nothing(numbers: set[int]) -> None:
    left = IdSet.from_iterable(numbers)
    expected = sorted(numbers)
    while left:
        assert left.min == expected.pop(0)
        left = left.without(left.min)
        assert left == IdSet.from_iterable(expected)
        assert len(left) == len(expected)
    assert not expected


@given(members, st.integers(-1, 60))
def test_first_gives_the_smallest(numbers: set[int], count: int) -> None:
    wanted = sorted(numbers)[: max(0, count)]
    assert IdSet.from_iterable(numbers).first(count) == IdSet.from_iterable(wanted)


@given(members.filter(bool), st.integers(0, 9))
def test_the_full_task_list_reads_back(numbers: set[int], limit: int) -> None:
    made = IdSet.from_iterable(numbers)
    assert parse_array(format_task_list(made, limit, 0), 1001) == (made, limit)
    assert parse_array(f"[{format_task_list(made, limit, 0)}]", 1001) == (made, limit)


parts = st.builds(
    lambda first, more, step: (f"{first}-{first + more}:{step}", set(range(first, first + more + 1, step))),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(1, 60),
)


@given(st.lists(parts, min_size=1, max_size=5))
def test_overlapping_parts_of_an_array_merge(listed: list[tuple[str, set[int]]]) -> None:
    text = ",".join([part for part, _ in listed])
    assert parse_array(text, 1001)[0] == IdSet.from_iterable(set().union(*[held for _, held in listed]))

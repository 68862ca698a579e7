from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctld.core import ranges

sets = st.sets(st.integers(0, 40))


@given(sets, st.integers(0, 42), st.integers(0, 45))
def test_one_set_behaves_like_a_python_set(members: set[int], number: int, amount: int) -> None:
    flat = ranges.from_ints(members)
    assert list(ranges.numbers(flat)) == sorted(members)
    assert ranges.count(flat) == len(members)
    assert ranges.contains(flat, number) == (number in members)
    assert ranges.without(flat, number) == ranges.from_ints(members - {number})
    assert ranges.first(flat, amount) == ranges.from_ints(sorted(members)[:amount])


@given(sets, sets)
def test_two_sets_behave_like_python_sets(one: set[int], other: set[int]) -> None:
    left, right = ranges.from_ints(one), ranges.from_ints(other)
    assert ranges.difference(left, right) == ranges.from_ints(one - other)
    assert ranges.intersection(left, right) == ranges.from_ints(one & other)
    assert ranges.union(left, right) == ranges.from_ints(one | other)


@given(sets)
def test_a_bitmap_comes_back_as_the_same_ranges(members: set[int]) -> None:
    flat = ranges.from_ints(members)
    assert ranges.to_bitmap(flat) == sum(1 << number for number in members)
    assert ranges.from_bitmap(ranges.to_bitmap(flat)) == flat


@given(sets, st.integers(0, 45))
def test_lowest_bits_are_the_first_members(members: set[int], amount: int) -> None:
    bits = ranges.to_bitmap(ranges.from_ints(members))
    assert ranges.lowest_bits(bits, amount) == ranges.to_bitmap(ranges.first(ranges.from_ints(members), amount))


def test_a_step_leaves_single_numbers() -> None:
    assert ranges.from_step(1, 10, 4) == (1, 1, 5, 5, 9, 9)
    assert ranges.from_step(1, 10) == (1, 10)


def test_the_nth_member_is_the_one_with_so_many_before_it() -> None:
    members = (2, 4, 9, 9, 20, 21)
    assert [ranges.nth(members, place) for place in range(6)] == list(ranges.numbers(members))
    with pytest.raises(IndexError):
        ranges.nth(members, 6)

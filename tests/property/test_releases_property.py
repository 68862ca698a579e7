"""What comes free when, and sets of numbers as bitmaps, beside plain lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctld.sched.fleet import Fleet, View
from ctld.sched.releases import Row, Timeline
from ctld.sched.sorted_rows import SortedRows, columns_of
from ctld.sched.tally import Thresholds, bitmap_of, places
from tests.builders import a_state

AT = 100
ROWS = st.tuples(
    st.integers(0, 300), st.integers(0, 2), st.integers(0, 8), st.integers(0, 64), st.tuples(st.integers(0, 4))
)


@given(st.lists(ROWS, max_size=40), st.lists(st.tuples(st.booleans(), ROWS), max_size=40), st.integers(2, 6))
def test_rows_stay_sorted_whatever_comes_and_goes(rows: list[Row], changes: list[tuple[bool, Row]], block: int) -> None:
    found, plain = SortedRows(5, rows, block=block), sorted(rows)
    for comes, row in changes:
        if comes:
            found.add(row)
            plain = sorted([*plain, row])
        elif plain:
            gone = plain.pop(row[0] % len(plain))
            found.remove(gone)
    assert list(found) == plain
    for place in range(len(found)):
        part = found.columns(place)
        assert found.last(place) == part[0, -1]
    shown = [found.columns(place) for place in range(len(found))]
    if plain:
        assert np.array_equal(np.concatenate(shown, 1), columns_of(plain, 5))
    for end in (-1, 50, 300):
        behind = found.from_end(end)
        assert all(int(found.columns(place)[0, -1]) <= end for place in range(behind))
        assert behind == len(found) or found.last(behind) > end


@given(st.lists(ROWS, max_size=30), st.lists(ROWS, max_size=6), st.integers(0, 320), st.integers(0, 320), st.booleans())
def test_a_timeline_gives_back_what_ends_between_two_times(
    rows: list[Row], more: list[Row], after: int, until: int, small: bool
) -> None:
    state = a_state(3)
    fleet = Fleet(list(state.nodes), 64 if small else 0)
    timeline = Timeline(fleet, SortedRows(5, rows, block=4), AT, sorted(more))
    clipped = sorted((max(row[0], AT + 1), *row[1:]) for row in [*rows, *more])
    assert sorted(timeline.rows()) == clipped
    ends = [row[0] for row in clipped]
    assert timeline.ends(after, until) == sorted({end for end in ends if after < end <= until})
    marks = list(timeline.marks())
    assert marks == sorted(set(marks))
    assert marks[-1:] == ends[-1:]
    assert set(marks) <= set(ends)
    none = [0, 0, 0]
    view = (
        View(none[:], none[:], [none[:]])
        if small
        else View(np.zeros(3, np.int64), np.zeros(3, np.int64), [np.zeros(3, np.int64)])
    )
    timeline.release(view, after, until)
    there = [row for row in clipped if after < row[0] <= until]
    for node in range(3):
        assert view.cpus[node] == sum(row[2] for row in there if row[1] == node)
        assert view.memory[node] == sum(row[3] for row in there if row[1] == node)
        assert view.gpus[0][node] == sum(row[4][0] for row in there if row[1] == node)
    if not small:
        last = [max((row[0] for row in clipped if row[1] == node and row[0] <= until), default=0) for node in range(3)]
        assert timeline.last_ends(until).tolist() == last


@given(st.sets(st.integers(0, 200)))
def test_a_bitmap_reads_back(numbers: set[int]) -> None:
    bits = sum(1 << number for number in numbers)
    assert places(bits).tolist() == sorted(numbers)
    assert bitmap_of(np.array(sorted(numbers), np.int64)) == bits


@given(st.lists(st.integers(-3, 9), max_size=20), st.integers(-5, 12))
def test_thresholds_give_what_is_no_more(amounts: list[int], most: int) -> None:
    found = Thresholds()
    for number, amount in enumerate(amounts):
        found.add(amount, number)
    assert found.of(most) == sum(1 << number for number, amount in enumerate(amounts) if amount <= most)

"""What a benchmark prints: the figure beside its bar, judged only where all the work was done."""

from __future__ import annotations

import pytest

from bench.measure import Figure, Taken, Value


def a_figure(value: Value, bar: Value, better: str) -> Figure:
    return Figure("f", "what", "s", bar, None, better, lambda quick: Taken(value, 0.0, {}))


@pytest.mark.parametrize(
    ("value", "bar", "better", "met"),
    [
        (2.0, 2.0, "lower", True),
        (2.1, 2.0, "lower", False),
        (2.0, 2.0, "higher", True),
        (1.9, 2.0, "higher", False),
        ({"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.0}, "lower", False),
        ({"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 2.0}, "lower", True),
    ],
)
def test_a_figure_of_all_the_work_is_judged_by_its_bar(value: Value, bar: Value, better: str, met: bool) -> None:
    assert a_figure(value, bar, better).take(quick=False)["bar_met"] is met


def test_a_figure_of_a_tenth_of_the_work_is_not_judged() -> None:
    taken = a_figure(1.0, 2.0, "lower").take(quick=True)
    assert (taken["bar_met"], taken["detail"]) == (None, {"quick": True})

"""Billing values of scheduling.md 3.1, and the closed form against 3.2's stepwise numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.usage import accrued, billing, remaining, run_usage

WEIGHTS = {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 2.0, "license/a": 1.5}
WEEK = 604_800


@pytest.mark.parametrize(
    ("amounts", "plain", "most", "most_and_gres"),
    [
        ({"cpu": 1, "mem": 8192}, 3.0, 2.0, 2.0),
        ({"cpu": 1, "mem": 8192, "license/a": 1}, 4.5, 3.5, 3.5),
        ({"cpu": 1, "mem": 8192, "gres/gpu": 1}, 5.0, 2.0, 4.0),
        ({"cpu": 16, "mem": 60 * 1024, "gres/gpu": 8}, 47.0, 16.0, 32.0),
    ],
)
def test_the_worked_billing_values(amounts: dict[str, int], plain: float, most: float, most_and_gres: float) -> None:
    assert billing(amounts, WEIGHTS) == pytest.approx(plain, abs=1e-9)
    assert billing(amounts, WEIGHTS, "MAX_TRES") == pytest.approx(most, abs=1e-9)
    assert billing(amounts, WEIGHTS, "MAX_TRES_GRES") == pytest.approx(most_and_gres, abs=1e-9)


def test_without_weights_cpus_are_billed_and_with_them_only_what_is_listed() -> None:
    assert billing({"cpu": 12, "mem": 9}, {}) == 12
    assert billing({"cpu": 12, "mem": 9}, {"gres/gpu": 1.0}) == 0


def test_a_gpu_centred_site() -> None:
    weights = {"cpu": 0.0625, "mem": 0.002 / 1024, "gres/gpu": 1.0}
    assert billing({"cpu": 16, "mem": 128 * 1024, "gres/gpu": 2}, weights, "MAX_TRES") == 2.0


def test_the_worked_decay_of_a_period_holds_to_a_thousandth() -> None:
    d = 1 - 0.693 / WEEK
    assert d == pytest.approx(0.9999988541666667, abs=1e-9)
    assert d**300 == pytest.approx(0.9996563088783914, abs=1e-9)
    assert 300 * d**300 == pytest.approx(299.8968926635174, abs=1e-9)
    assert d**WEEK == pytest.approx(0.5000733971527376, abs=1e-9)
    assert remaining(300, WEEK) == pytest.approx(0.9996563088783914, rel=1e-3)
    assert remaining(WEEK, WEEK) == 0.5
    assert accrued(300, WEEK) == pytest.approx(299.8968926635174, rel=1e-3)
    assert run_usage(20, 0, 300, 300, WEEK) == pytest.approx(5997.937853270348, rel=1e-3)


def stepwise(rate: float, ended: int, now: int, half_life: int, period: int) -> float:
    """3.2 as written: in each period old usage is aged, and what a run added as if spent at the slice's beginning."""
    d = 1 - 0.693 / half_life if half_life else 1.0
    usage, last = 0.0, 0
    while last < now:
        until = min(now, last + period)
        usage *= d ** (until - last)
        spent = max(0, min(until, ended) - last)
        usage += spent * d**spent * rate
        last = until
    return usage


@given(
    rate=st.floats(0.1, 1000),
    length=st.integers(1, 30 * 86400),
    later=st.integers(0, 7 * 86400),
    half_life=st.sampled_from([0, WEEK, 2 * WEEK, 30 * 86400]),
)
def test_the_closed_form_agrees_with_the_steps(rate: float, length: int, later: int, half_life: int) -> None:
    period = max(300, (length + later) // 300)
    fine = period <= 2000
    expected = stepwise(rate, length, length + later, half_life, 300 if fine else 1200)
    found = run_usage(rate, 0, length, length + later, half_life)
    # The reference's factor is of first order and counts a slice as spent at its beginning: that is worth up to
    # 0.02 % for each half-life, and half a period.
    lives = (length + later) / half_life if half_life else 0
    assert found == pytest.approx(expected, rel=1e-3 + 3e-4 * lives)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0, 3600, WEEK]))
def test_usage_in_parts_is_usage_in_one(first: int, second: int, later: int, half_life: int) -> None:
    end = first + second
    whole = run_usage(3.0, 0, end, end + later, half_life)
    parts = run_usage(3.0, 0, first, end + later, half_life) + run_usage(3.0, first, end, end + later, half_life)
    assert parts == pytest.approx(whole, rel=1e-9, abs=1e-9)


def test_a_run_that_goes_on_counts_up_to_now() -> None:
    assert run_usage(2.0, 100, math.inf, 150, 0) == 100
    assert run_usage(2.0, 100, 200, 50, 0) == 0

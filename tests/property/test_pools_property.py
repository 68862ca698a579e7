"""Pools against an oracle that keeps the use of every minute."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctld.sched.pools import Claim, Pools
from ctld.sched.releases import FAR
from muster.states import Reason

HORIZON = 40
"""The oracle's minutes; the last one stands for all that follow."""
CAPACITY = {"a": 5, "b": 3}
claims = st.dictionaries(st.sampled_from("ab"), st.integers(0, 6), min_size=1).map(
    lambda amounts: [
        Claim(("limit", name), CAPACITY[name], amount, Reason.RESOURCES) for name, amount in sorted(amounts.items())
    ]
)
spans = st.tuples(st.integers(0, HORIZON - 10), st.one_of(st.integers(1, 9), st.just(FAR)))


class Oracle:
    def __init__(self) -> None:
        self.minutes: dict[tuple[object, ...], list[int]] = {("limit", name): [0] * HORIZON for name in CAPACITY}

    def add(self, asked: list[Claim], start: int, end: int, sign: int) -> None:
        for one in asked:
            for minute in range(start, min(end, HORIZON)):
                self.minutes[one.key][minute] += sign * one.amount

    def room(self, one: Claim, minute: int) -> bool:
        return not one.amount or self.minutes[one.key][min(minute, HORIZON - 1)] + one.amount <= one.capacity

    def earliest(self, asked: list[Claim], duration: int, not_before: int) -> int | None:
        if any(one.amount > one.capacity for one in asked):
            return None
        for start in range(not_before, HORIZON):
            if all(self.room(one, t) for one in asked for t in range(start, min(start + duration, HORIZON + 1))):
                return start
        return None


@given(
    st.lists(st.tuples(claims, spans, st.booleans()), max_size=12),
    claims,
    st.integers(1, 12) | st.just(FAR),
    st.integers(0, HORIZON - 1),
    st.integers(0, HORIZON - 1),
)
def test_pools_agree_with_every_minute(
    held: list[tuple[list[Claim], tuple[int, int], bool]], asked: list[Claim], duration: int, at: int, now: int
) -> None:
    pools, oracle = Pools(), Oracle()
    for taken, (start, length), back in held:
        end = min(FAR, start + length)
        pools.take(taken, start, end)
        oracle.add(taken, start, end, 1)
        if back:
            pools.give(taken, (start + min(end, HORIZON)) // 2, end)
            oracle.add(taken, (start + min(end, HORIZON)) // 2, end, -1)
    kept = pools.copy()
    pools.advance(min(at, now))
    for one in (pools, kept):
        assert one.earliest(asked, duration, at) == oracle.earliest(asked, duration, at)
        assert one.short(asked, at) == next((claim for claim in asked if not oracle.room(claim, at)), None)
    for taken, (start, length), back in held:
        end = min(FAR, start + length)
        kept.give(taken, start, (start + min(end, HORIZON)) // 2 if back else end)
    assert kept.earliest(asked, duration, 0) == Oracle().earliest(asked, duration, 0)
    kept.advance(0)
    assert not kept._uses

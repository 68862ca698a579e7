"""Pools: what a group has in all, over time."""

from __future__ import annotations

from ctld.sched.pools import Claim, Pools
from ctld.sched.releases import FAR
from muster.states import Reason

KEY = ("license", "matlab")


def claim(amount: int, capacity: int = 10, key: tuple[object, ...] = KEY) -> Claim:
    return Claim(key, capacity, amount, Reason.RESOURCES)


def test_room_comes_when_what_is_held_is_given_back() -> None:
    pools = Pools()
    pools.take([claim(7)], 0, 100)
    assert pools.short([claim(3)], 0) is None
    assert pools.short([claim(4)], 0) == claim(4)
    assert pools.earliest([claim(4)], 10, 0) == 100
    pools.give([claim(7)], 40, 100)  # Ended early.
    assert pools.earliest([claim(4)], 10, 0) == 40
    assert pools.used(KEY, 39) == 7
    assert pools.used(KEY, 40) == 0


def test_a_gap_that_is_too_short_is_passed_over() -> None:
    pools = Pools()
    pools.take([claim(10)], 0, 10)
    pools.take([claim(10)], 20, 30)
    assert pools.earliest([claim(1)], 10, 0) == 10
    assert pools.earliest([claim(1)], 11, 0) == 30
    assert pools.earliest([claim(1)], FAR, 0) == 30


def test_all_claims_must_have_room_at_once() -> None:
    pools = Pools()
    pools.take([claim(10, key=("a",))], 0, 10)
    pools.take([claim(10, key=("b",))], 10, 20)
    pools.take([claim(10, key=("a",))], 25, 30)
    both = [claim(1, key=("a",)), claim(1, key=("b",))]
    assert pools.earliest(both, 5, 0) == 20
    assert pools.earliest(both, 6, 0) == 30
    assert pools.short(both, 0) == both[0]
    assert pools.short(both, 12) == both[1]


def test_what_is_held_for_ever_never_comes_back() -> None:
    pools = Pools()
    pools.take([claim(8)], 5, FAR)
    assert pools.earliest([claim(3)], 5, 0) == 0
    assert pools.earliest([claim(3)], 6, 0) is None
    assert pools.earliest([claim(2)], FAR, 0) == 0
    assert pools.earliest([claim(11)], 1, 0) is None


def test_an_amount_of_nothing_has_room_in_an_overdrawn_pool() -> None:
    pools = Pools()
    pools.take([claim(12)], 0, FAR)
    assert pools.short([claim(0)], 0) is None
    assert pools.earliest([claim(0)], 10, 0) == 0


def test_what_is_filled_in_at_once_is_what_is_taken_one_by_one() -> None:
    key = ("license", "a")
    ends = {100 + 5: 2, 100 + 9: 0, 100 + 3: 4, 100 - 1: 7, FAR: 1}
    one, other = Pools(), Pools()
    one.fill(key, 100, list(ends), list(ends.values()))
    for end, amount in ends.items():
        other.take((Claim(key, 10, amount, Reason.LICENSES),), 100, end)
    times = range(100 - 1, 100 + 12)
    assert [one.used(key, time) for time in times] == [other.used(key, time) for time in times]
    wanted = (Claim(key, 6, 4, Reason.LICENSES),)
    assert one.earliest(wanted, FAR, 100) == other.earliest(wanted, FAR, 100) == 100 + 5
    more = (Claim(key, 10, 1, Reason.LICENSES),)
    one.take(more, 100 + 2, 100 + 20)
    other.take(more, 100 + 2, 100 + 20)
    assert [one.used(key, time) for time in times] == [other.used(key, time) for time in times]

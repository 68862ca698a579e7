"""Sets of non-negative integers as flat ranges `(lo, hi, lo, hi, ...)`: array members, cores, GPUs, ranks.

Every function gives canonical ranges (sorted, disjoint, merged where they touch) when it is given such; the
empty set is `()`. A contiguous array of a million members costs the same as one member.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from ctld.core.model import Ranges


def from_ints(numbers: Iterable[int]) -> Ranges:
    """Give the ranges of these numbers; order and repetition do not matter."""
    flat: list[int] = []
    for number in sorted(set(numbers)):
        if flat and flat[-1] == number - 1:
            flat[-1] = number
        else:
            flat += (number, number)
    return tuple(flat)


def from_step(first: int, last: int, step: int = 1) -> Ranges:
    """Give `first, first + step, ...` up to `last`."""
    if step == 1:
        return (first, last) if last >= first else ()
    return tuple(number for value in range(first, last + 1, step) for number in (value, value))


def numbers(ranges: Ranges) -> Iterator[int]:
    """Walk through the members in ascending order."""
    for place in range(0, len(ranges), 2):
        yield from range(ranges[place], ranges[place + 1] + 1)


def count(ranges: Ranges) -> int:
    """Count the members."""
    if len(ranges) == 2:
        return ranges[1] - ranges[0] + 1
    return sum(ranges[1::2]) - sum(ranges[::2]) + len(ranges) // 2


def nth(ranges: Ranges, place: int) -> int:
    """Give the member before which there are `place` others; IndexError where there are not so many."""
    for low, high in zip(ranges[::2], ranges[1::2], strict=True):
        if place <= high - low:
            return low + place
        place -= high - low + 1
    raise IndexError(place)


def contains(ranges: Ranges, number: int) -> bool:
    """Tell whether `number` is a member; O(log ranges)."""
    if not ranges:
        return False
    place = bisect_right(ranges, number)
    # Odd: behind a lo and before its hi. Even: outside, unless it is the hi itself.
    return place % 2 == 1 or (place > 0 and ranges[place - 1] == number)


def first(ranges: Ranges, amount: int) -> Ranges:
    """Give the `amount` lowest members (all, when there are fewer)."""
    if amount <= 0:
        return ()
    flat: list[int] = []
    for place in range(0, len(ranges), 2):
        low, high = ranges[place], ranges[place + 1]
        size = high - low + 1
        if size >= amount:
            flat += (low, low + amount - 1)
            break
        flat += (low, high)
        amount -= size
    return tuple(flat)


def without(ranges: Ranges, number: int) -> Ranges:
    """Take one number out; unchanged when it is no member."""
    if not ranges:
        return ()
    low, high = ranges[0], ranges[1]
    if number == low:  # Array members start in order: this is the usual case.
        return (low + 1, *ranges[1:]) if low < high else ranges[2:]
    place = bisect_left(ranges, number)
    start = place if place % 2 == 0 else place - 1
    if start >= len(ranges):
        return ranges
    low, high = ranges[start], ranges[start + 1]
    if not low <= number <= high:
        return ranges
    middle: Ranges = ()
    if low < number:
        middle = (low, number - 1)
    if number < high:
        middle += (number + 1, high)
    return ranges[:start] + middle + ranges[start + 2 :]


def difference(ranges: Ranges, taken: Ranges) -> Ranges:
    """Give the members of `ranges` that are not in `taken`; linear in the ranges."""
    flat: list[int] = []
    at = 0
    for place in range(0, len(ranges), 2):
        low, high = ranges[place], ranges[place + 1]
        while at < len(taken) and taken[at + 1] < low:
            at += 2
        scan = at
        while scan < len(taken) and taken[scan] <= high:
            if low < taken[scan]:
                flat += (low, taken[scan] - 1)
            low = max(low, taken[scan + 1] + 1)
            scan += 2
        if low <= high:
            flat += (low, high)
    return tuple(flat)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """Give the common members; linear in the ranges."""
    flat: list[int] = []
    here = there = 0
    while here < len(one) and there < len(other):
        low, high = max(one[here], other[there]), min(one[here + 1], other[there + 1])
        if low <= high:
            flat += (low, high)
        if one[here + 1] < other[there + 1]:
            here += 2
        else:
            there += 2
    return tuple(flat)


def union(one: Ranges, other: Ranges) -> Ranges:
    """Give the members of either."""
    pairs = sorted([*zip(one[::2], one[1::2], strict=True), *zip(other[::2], other[1::2], strict=True)])
    flat: list[int] = []
    for low, high in pairs:
        if flat and low <= flat[-1] + 1:
            flat[-1] = max(flat[-1], high)
        else:
            flat += (low, high)
    return tuple(flat)


def to_bitmap(ranges: Ranges) -> int:
    """Give an integer whose bit n is set for each member n."""
    bits = 0
    for place in range(0, len(ranges), 2):
        low, high = ranges[place], ranges[place + 1]
        bits |= ((1 << (high - low + 1)) - 1) << low
    return bits


def from_bitmap(bits: int) -> Ranges:
    """Give the members of a bitmap (bit n set: n is in)."""
    flat: list[int] = []
    base = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        low = base + zeros
        ones = (~bits & (bits + 1)).bit_length() - 1  # Length of the run of ones at the bottom.
        flat += (low, low + ones - 1)
        bits >>= ones
        base = low + ones
    return tuple(flat)


def lowest_bits(bits: int, amount: int) -> int:
    """Give the bitmap of the `amount` lowest set bits (all, when there are fewer)."""
    taken = 0
    while bits and amount > 0:
        low = bits & -bits
        taken |= low
        bits ^= low
        amount -= 1
    return taken

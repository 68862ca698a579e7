"""Local time without a clock or a zone file: a table of UTC offsets, kept with the settings, says what a day is here.

A table is `((since, offset), ...)` in ascending order, seconds; an empty one is UTC. Times before the first entry have
its offset.
"""

from __future__ import annotations

from bisect import bisect_right

Zone = tuple[tuple[int, int], ...]
"""(epoch second from which it holds, seconds east of UTC)."""

DAY = 86_400
FRIDAY, SATURDAY, SUNDAY = 5, 6, 0


def offset_at(zone: Zone, when: int) -> int:
    """Give the offset from UTC that holds at a time."""
    if not zone:
        return 0
    return zone[max(0, bisect_right(zone, (when, 1 << 60)) - 1)][1]


def weekday(zone: Zone, when: int) -> int:
    """Give the local day of the week, 0 for Sunday."""
    return ((when + offset_at(zone, when)) // DAY + 4) % 7


def days_later(zone: Zone, when: int, days: int) -> int:
    """Give the same local time of day so many days later.

    A time that the clock jumps over is as much later as the jump; of a time that comes twice the first is meant.
    """
    local = when + offset_at(zone, when) + days * DAY
    before, after = offset_at(zone, local - DAY), offset_at(zone, local + DAY)
    for offset in (before, after):
        if offset_at(zone, local - offset) == offset:
            return local - offset
    return local - before

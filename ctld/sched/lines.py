"""Waiting jobs in lines, kept between passes: a line has the classes that ask for the same nodes for the same time.

What holds for the first job of a line (no place is free) holds for all behind it, so that a pass looks at lines, and
only at those that something has come free for.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from ctld.core.queue import JobClass
from ctld.sched.demand import Demand
from ctld.sched.fleet import Fleet
from ctld.sched.memory import Entry
from ctld.sched.releases import end_of
from ctld.sched.units import Units
from ctld.sched.wake import NOWHERE, Place, WakeTable

LineKey = tuple[int, str, int, int, int]


class Line:
    """Classes that ask for the same nodes, in the same partition, for the same time."""

    __slots__ = (
        "_heap", "alone", "awake", "called", "demand", "entries", "failing", "limit_seconds", "number", "parked",
        "partition", "place", "stuck", "tier",
    )  # fmt: skip

    def __init__(self, number: int, entry: Entry, demand: Demand) -> None:
        self.number = number
        self.demand = demand
        self.partition = entry.partition.name
        self.limit_seconds = entry.limit_seconds
        self.tier, self.place = entry.tier, entry.place
        self.entries: dict[int, Entry] = {}
        """By class number."""
        self.parked: set[int] = set()
        """Classes that something else than nodes keeps from starting."""
        self.awake = True
        """There may be a place for its first job, on any node."""
        self.stuck: Place = NOWHERE
        """Where it is not awake: no job that stands here or behind finds a place."""
        self.alone = demand.single and demand.manner.tightest and not demand.need.uneven and not demand.by_node
        self.alone = self.alone and not demand.varies
        """Its jobs take the tightest of the nodes that have room."""
        self.called: Place | None = None
        """Where it stands in line for the pass."""
        self.failing = False
        """Counts promised a place last time, and the bitmaps did not hold it."""
        self._heap: list[tuple[int, int]] = []
        """(order key of the first job, class number); may hold what is not true any more."""

    def push(self, number: int, key: int) -> None:
        """Note where a class stands."""
        heappush(self._heap, (key, number))

    def first(self, heads: Mapping[int, int]) -> tuple[int, int] | None:
        """Give order key and class of the first job that is not parked.

        Args:
            heads: class number -> order key of its first job that may start.
        """
        heap = self._heap
        while heap:
            key, number = heap[0]
            if heads.get(number) == key and number not in self.parked and number in self.entries:
                return key, number
            heappop(heap)
        return None

    def standing(self, key: int) -> Place:
        """Give the place in the order of a pass of a job of this line."""
        return self.tier, key, self.place


class Lines:
    """All lines, by what they ask for and by class."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.table = WakeTable(fleet)
        self.heads: dict[int, int] = {}
        """Class number -> order key of its first job that may start."""
        self.all: list[Line] = []
        """By number."""
        self.odd: set[int] = set()
        """Classes that need more than a look at nodes that came free: the plain pass has to do them."""
        self.timed: list[Line] = []
        """Those whose jobs come to ask for less with time: no line of these stays asleep."""
        self.by_node = False
        """Some line is choosy about cores and devices, which counts do not tell."""
        self._of: dict[LineKey, Line] = {}
        self._of_class: dict[int, list[Line]] = {}
        self._in: dict[str, int] = {}
        self._units: dict[Demand, Units] = {}

    def units(self, demand: Demand) -> Units:
        """Give how units of a demand are counted; made at the first use."""
        found = self._units.get(demand)
        if found is None:
            found = self._units[demand] = Units(demand)
        return found

    def join(self, jobs: JobClass, entries: tuple[Entry, ...]) -> list[Line]:
        """Put a class into its lines, and give these."""
        found = self._of_class.get(jobs.id)
        if found is not None:
            return found
        found = self._of_class[jobs.id] = []
        for entry in entries:
            demand = entry.demand
            if entry.bar is not None or demand is None:
                continue
            if entry.reserved or demand.need.user:
                self.odd.add(jobs.id)
            line = self._line(entry, demand)
            line.entries[jobs.id] = entry
            found.append(line)
        return found

    def leave(self, number: int) -> list[Line]:
        """Take a class out of its lines; give the partitions' lines that it was in."""
        self.heads.pop(number, None)
        self.odd.discard(number)
        lines = self._of_class.pop(number, [])
        for line in lines:
            line.entries.pop(number, None)
            line.parked.discard(number)
        return lines

    def of_class(self, number: int) -> list[Line]:
        """Give the lines of a class."""
        return self._of_class.get(number, [])

    def of_partition(self, partition: str) -> int:
        """Give the lines of a partition as a bitmap by number."""
        return self._in.get(partition, 0)

    def _line(self, entry: Entry, demand: Demand) -> Line:
        key = demand.number, entry.partition.name, entry.limit_seconds, entry.tier, entry.place
        line = self._of.get(key)
        if line is None:
            number = self.table.add(self.units(demand), end_of(0, entry.limit_seconds), entry.tier)
            line = self._of[key] = Line(number, entry, demand)
            self.all.append(line)
            self._in[line.partition] = self._in.get(line.partition, 0) | 1 << number
            self.by_node = self.by_node or demand.by_node
            if demand.manner.switches:
                self.timed.append(line)
        return line

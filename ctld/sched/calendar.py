"""The calendar: a start and nodes for every pending job, in the order of the queue.

Each job in turn gets the earliest start that what runs and what stands before it leave, and takes it, so that no job
delays one before it (conservative backfill: Mu'alem and Feitelson 2001), by resource and with exact times. The order is
that of the event pass (`cycle`): partition tier, priority, id. A job of several partitions is looked at once for each
tier: the earliest start wins, and between equal ones the partition that is named first.

Jobs that are not in the queue yet, as their begin time has not come, are planned behind all others: until then nothing
waits for them. An array is planned member by member, so many of them as `Planning.array_members` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ctld.core import ranges
from ctld.core.model import Job
from ctld.core.plan import Start, Wait
from ctld.core.queue import JobClass, order_key
from ctld.core.state import State
from ctld.sched.ahead import Ahead, Spot
from ctld.sched.explain import lasting_reason
from ctld.sched.memory import PRIORITY, Entry, PlanMemory
from ctld.sched.quota import Quota
from ctld.sched.releases import FAR
from muster.ids import NO_TASK, UnixTime
from muster.states import Reason


@dataclass(frozen=True, slots=True)
class Planned:
    """What the calendar says of one pending job (of an array: of its next member)."""

    start_at: UnixTime
    """0: none is known: it lies past the window, or `wait` says why."""
    nodes: tuple[int, ...]
    """Node indexes, ascending; empty without a start."""
    partition: str
    """The one that it would start in."""
    wait: Wait | None
    """Why no start can be known: a hold, a dependency, a limit that nothing planned makes room for ..."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The planned starts of a whole queue."""

    made_at: UnixTime
    planned: dict[int, Planned]
    """By job id, every pending job that was looked at, in order of the queue; behind them those that are not in it."""
    complete: bool
    """False: the budget ran out."""
    past_window: int
    """Jobs whose start lies past the window."""
    starts: tuple[Start, ...] = ()
    """What is planned for now, with concrete cores and devices, in order of the queue."""


def never() -> bool:
    """A budget that does not run out."""
    return False


def foresee(
    state: State,
    at: UnixTime,
    *,
    reachable: int | npt.NDArray[np.bool_],
    spent: Callable[[], bool] = never,
    window_seconds: int | None = None,
    depth: int | None = None,
    memory: PlanMemory | None = None,
) -> Calendar:
    """Plan the whole queue; the state is not changed.

    Args:
        state: what is.
        at: now.
        reachable: the nodes whose daemons answer, as a bitmap (bit = node index) or a column of booleans.
        spent: says when the time for this is over; asked after each job.
        window_seconds: last start that is looked for, seconds from now; None: what the settings say.
        depth: most jobs that are looked at; None: what the settings say.
        memory: what the last call left behind; makes this one cheaper and changes no result. Not the one of the event
            pass, which means something else by what it has seen.
    """
    memory = memory or PlanMemory()
    memory.follow(state, reachable)
    rules = state.settings.planning
    window = rules.window_seconds or None if window_seconds is None else window_seconds
    one = Forecast(state, at, memory, window)
    complete = one.run(spent, rules.jobs or None if depth is None else depth)
    one.planned.update(one.held)
    memory.prune(state)
    return Calendar(at, one.planned, complete, one.past_window, tuple(one.starts))


_Item = tuple[int, int, int, list[Entry]]
"""A job in line: tier, order key, class, entries of that tier (none: no partition takes it)."""


class Forecast:
    """One calendar in the making. `keep`: remember every start that is planned, of each member of an array too."""

    def __init__(
        self, state: State, at: UnixTime, memory: PlanMemory, window: int | None = None, *, keep: bool = False
    ) -> None:
        self._state = state
        self._at = at
        self._memory = memory
        self.planned: dict[int, Planned] = {}
        self.past_window = 0
        self.starts: list[Start] = []
        self._bars: dict[int, Wait] = {}
        """Class -> why no partition takes its jobs."""
        self._several: set[int] = set()
        """Classes whose jobs come up more than once."""
        self.spots: dict[int, list[Spot]] = {}
        """Of their jobs (with `keep` of all): what is planned."""
        self._keep = keep
        self._early: list[tuple[Job, tuple[Entry, ...]]] = []
        """Jobs whose begin time has not come."""
        self.held: dict[int, Planned] = {}
        """Jobs that wait for something else than room: why."""
        self._line = self._line_up()
        self._look_at_others()
        named = {name for job in self._askers() for name in job.spec.request.reservations}
        by_user = any(entry.demand is not None and entry.demand.need.user for entry in self._entries())
        self._ahead = Ahead(state, at, memory, named=named, by_user=by_user, window=window)
        self._quota = Quota(state.settings.planning)
        self._since: dict[str, int] = {}
        """Partition -> time before which nothing starts there, behind a job that closed it."""

    def run(self, spent: Callable[[], bool], depth: int | None) -> bool:
        """Plan the jobs in line, then those whose begin time has not come; False when the budget ran out."""
        seen = 0
        for _, key, number, entries in self._line:
            job = self._state.jobs[key & 0xFFFFFFFF]
            if job.id not in self.planned:
                if depth is not None and seen >= depth:
                    break
                if not self._quota.admits(job, [entry.partition.name for entry in entries]):
                    continue
                seen += 1
            self._plan(job, number, entries, self._since)
            if spent():
                return False
        for job, early in self._early:
            if depth is not None and seen >= depth:
                break
            seen += 1
            begin = max(job.begin_at, self._at + 1)
            opened = [entry for entry in early if entry.bar is None]
            since = {entry.partition.name: max(begin, self._since.get(entry.partition.name, 0)) for entry in opened}
            spots = self._plan_open(job, opened, since, early[0].bar)
            if self._keep:
                self.spots[job.id] = spots
            if spent():
                return False
        return True

    # Who is looked at, and when.

    def _line_up(self) -> list[_Item]:
        line: list[_Item] = []
        for number, jobs in self._state.queue.classes.items():
            tiers: dict[int, list[Entry]] = {}
            entries = self._memory.entries(self._state, jobs)
            for entry in entries:
                if entry.bar is None:
                    tiers.setdefault(entry.tier, []).append(entry)
            if not tiers:
                tiers[entries[0].tier] = []
                self._bars[number] = entries[0].bar or PRIORITY
            elif len(tiers) > 1:
                self._several.add(number)
            for tier, of_tier in tiers.items():
                line += [(tier, key, number, of_tier) for key in jobs.order]
        line.sort()  # No two are of one tier and key.
        return line

    def _look_at_others(self) -> None:
        """Say why the jobs wait that are not in the queue; those that wait for their time alone are planned."""
        state, at = self._state, self._at
        found: list[tuple[int, int, Job, tuple[Entry, ...]]] = []
        for job_id in state.deferred:
            job = state.jobs[job_id]
            wait = lasting_reason(job, at)
            if wait is not PRIORITY and wait.reason is not Reason.BEGIN_TIME:
                self.held[job_id] = Planned(UnixTime(0), (), job.spec.partitions[0], wait)
                continue
            key = order_key(state.queue.priority(job), job.id)
            jobs = JobClass(0, state.queue.class_key(job))
            jobs.order.insert(key)
            entries = self._memory.entries_apart(state, jobs)
            found.append((min(entry.tier for entry in entries), key, job, entries))
        self._early = [(job, entries) for _, _, job, entries in sorted(found, key=lambda one: one[:2])]

    def _askers(self) -> Iterator[Job]:
        """Give one job of each class, and those whose begin time has not come."""
        for jobs in self._state.queue.classes.values():
            yield self._state.jobs[jobs.head]
        for job, _ in self._early:
            yield job

    def _entries(self) -> Iterator[Entry]:
        for jobs in self._state.queue.classes.values():
            yield from self._memory.entries(self._state, jobs)
        for _, entries in self._early:
            yield from entries

    # One job.

    def _plan(self, job: Job, number: int, entries: list[Entry], since: dict[str, int]) -> None:
        if job.booking is not None and job.id in self._ahead.promised:
            self.planned[job.id] = self._promised(job)
        elif job.id in self.spots:
            self._improve(job, entries)
        else:
            found = self._plan_open(job, entries, since, self._bars.get(number))
            if self._keep or number in self._several:
                self.spots[job.id] = found

    def _promised(self, job: Job) -> Planned:
        """Give the start that a preemption has promised."""
        promised, booking = self._ahead.promised, job.booking
        assert booking is not None
        wait = promised.waits.get(job.id)
        if wait is None:
            nodes = tuple(share.node for share in booking.shares)
            return Planned(self._at, nodes, booking.partition, None)
        if wait.start_at:
            return Planned(wait.start_at, wait.nodes, booking.partition, None)
        return Planned(UnixTime(0), (), booking.partition, wait)

    def _plan_open(self, job: Job, entries: list[Entry], since: dict[str, int], bar: Wait | None) -> list[Spot]:
        """Plan a job, or the members of an array, and take what was found; gives it."""
        if not entries:
            self.planned[job.id] = Planned(UnixTime(0), (), job.spec.partitions[0], bar or PRIORITY)
            return []
        spots: list[Spot] = []
        ahead, members = 0, self._state.settings.planning.array_members
        for _ in range(ranges.count(job.array_pending) if job.array_pending else 1):
            found = self._ahead.earliest(entries, job, since=since)
            if not spots:
                self.planned[job.id] = self._said(entries, found)
            if not isinstance(found, Spot):
                if not spots:
                    self.past_window += found is None
                self._close(self._closing(entries, job), found)
                break
            future = found.start > self._at
            if future:
                self._close(self._closing(entries, job), found)
                if not self._quota.may_reserve(found.entry.partition.name) or (job.array_pending and not members):
                    break  # It was an estimate.
            self._take(found, job, len(spots))
            spots.append(found)
            ahead += future
            if job.array_pending and ahead >= members:
                break
        return spots

    def _improve(self, job: Job, entries: list[Entry]) -> None:
        """Look for earlier starts of what is planned, in partitions of a lower tier."""
        spots = self.spots[job.id]
        for place, spot in enumerate(spots):
            if spot.start <= self._at:
                continue
            named_before = min(entry.place for entry in entries) < spot.entry.place
            self._ahead.give(spot, job)
            found = self._ahead.earliest(entries, job, since=self._since, before=spot.start + named_before)
            spots[place] = found if isinstance(found, Spot) else spot
            self._take(spots[place], job, place)
        if spots:
            best = min(spots, key=lambda spot: spot.start)
            self.planned[job.id] = self._said(entries, best)
        elif not self.planned[job.id].start_at:
            said = self.planned[job.id]
            was_past = said.wait is None
            again = self._plan_open(job, entries, self._since, said.wait)
            self.past_window -= was_past and (bool(again) or self.planned[job.id].wait is None)
            self.spots[job.id] = again

    def _take(self, spot: Spot, job: Job, place: int) -> None:
        """Let what is planned later plan around a job, or around this member of an array."""
        self._ahead.take(spot, job)
        if not spot.shares:
            return
        entry = spot.entry
        shorter = entry.limit_seconds != entry.asked_seconds  # --time-min
        self.starts.append(
            Start(
                job.id,
                entry.partition.name,
                spot.shares,
                task_id=ranges.nth(job.array_pending, place) if job.array_pending else NO_TASK,
                planned_by="Backfill",
                reservation=spot.lane.name,
                limit_seconds=spot.end - spot.start if shorter else 0,
            )
        )

    def _said(self, entries: list[Entry], found: Spot | Wait | None) -> Planned:
        if isinstance(found, Spot):
            return Planned(UnixTime(found.start), found.nodes, found.entry.partition.name, None)
        return Planned(UnixTime(0), (), entries[0].partition.name, found)

    def _closing(self, entries: list[Entry], job: Job) -> list[str]:
        """Give the partitions that a job closes for those behind it, if it has to wait now."""
        settings = self._state.settings
        if settings.backfill and not settings.limit_stops_partition:
            return []
        names = []
        for entry in entries:
            if entry.reserved or self._ahead.bar(entry) is not None:
                continue
            if self._ahead.passed_by(entry, job, limits_only=False):
                stops = settings.limit_stops_partition and self._ahead.passed_by(entry, job, limits_only=True)
            else:
                stops = not settings.backfill
            if stops:
                names.append(entry.partition.name)
        return names

    def _close(self, names: list[str], found: Spot | Wait | None) -> None:
        """Let nothing behind a job that has to wait start before it. One that will be removed keeps nobody waiting."""
        if isinstance(found, Wait) and found.reason is Reason.DEADLINE:
            return
        until = found.start if isinstance(found, Spot) else FAR
        for name in names:
            self._since[name] = max(self._since.get(name, self._at), until)

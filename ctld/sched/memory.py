"""What a pass remembers for the next one: the nodes as columns, the demands of all classes, and which of them found no
place.

All of it can be thrown away at any time: a pass with a fresh memory gives the same plan, only later.
"""

from __future__ import annotations

from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ctld.core.accounts import Accounts
from ctld.core.cluster import Node, PartitionSpec, Settings
from ctld.core.decide.plan import run_limit_seconds
from ctld.core.holds import Bars
from ctld.core.limits.asked import least
from ctld.core.limits.book import Book, Ruleset
from ctld.core.limits.check import Asked
from ctld.core.model import Job, Request
from ctld.core.plan import Wait
from ctld.core.queue import JobClass
from ctld.core.state import State
from ctld.core.times import planned_seconds
from ctld.core.usable import usable
from ctld.sched import limits
from ctld.sched.demand import Demand, demand_of
from ctld.sched.fleet import SMALL, Fleet, View, bitmap, rules
from ctld.sched.needs import Impossible
from ctld.sched.place import unfit
from ctld.sched.preempt_rules import qos_ranks
from ctld.sched.releases import Releases
from ctld.sched.select import choose
from muster.errors import InvalidInput
from muster.hostlist import sort_compress
from muster.states import PartitionState, Reason

if TYPE_CHECKING:
    from ctld.sched.board import Board
    from ctld.sched.book import Hold

MAX_DEMANDS = 8192
"""Most demands that are kept; at the bound all are dropped and made anew as they are needed."""
MAX_GROWN = 64
"""When more came free on more nodes than this, everything is tried again instead of asking demand by demand."""

_TIER_BITS = 32

PRIORITY = Wait(Reason.PRIORITY)
_RESERVED_FIRST = 1 << 20
"""Jobs with an advance reservation stand before those of every partition tier."""


class Entry:
    """A class in one of its partitions."""

    __slots__ = (
        "asked", "asked_seconds", "bar", "demand", "jobs", "licenses", "limit_seconds", "limited", "partition", "place",
        "reserved", "rules", "tier",
    )  # fmt: skip

    def __init__(self, jobs: JobClass, place: int, partition: PartitionSpec, demand: Demand | None, bar: Wait | None):
        self.jobs = jobs
        self.place = place
        """Place of the partition in the job's list."""
        self.partition = partition
        self.reserved = bool(jobs.request.reservations)
        """Its jobs name advance reservations."""
        self.tier = -partition.priority_tier - (_RESERVED_FIRST if self.reserved else 0)
        self.demand = demand
        self.bar = bar
        """Why no job of the class can start here, whatever comes free."""
        self.limit_seconds = self.asked_seconds = jobs.limit_seconds
        """Of a run in this partition, as it is planned (--time-min) and as it was asked for."""
        self.asked: Asked | None = None
        """What limits compare; None where none hold."""
        self.rules: Ruleset | None = None
        self.licenses = jobs.request.licenses
        self.limited = bool(self.licenses)
        """Something else than nodes may keep its jobs from starting: limits or licences."""


class PlanMemory:
    """Kept by whoever calls `plan` again and again. `small`: up to so many nodes columns are plain lists."""

    def __init__(self, small: int = SMALL) -> None:
        self._small = small
        self.fleet = Fleet((), small)
        self.releases = Releases(self.fleet)
        self.closed_now = 0
        """Bitmap of nodes that cannot be used now."""
        self.closed_later = 0
        """... nor when everything that is being cleaned up has been."""
        self.seen: View | None = None
        """What was free at the end of the last pass, its own starts taken off: `no_fit` of a demand means this."""
        self.bars = Bars()
        """What advance reservations bar."""
        self.board: Board | None = None
        """What the event pass keeps."""
        self.holds: dict[str, Hold] = {}
        """What it has promised, by partition."""
        self._nodes: list[Node] = []
        self._partitions: dict[str, PartitionSpec] = {}
        self._settings = Settings()
        self._book: Book | None = None
        self._ranked: Accounts | None = None
        self._ranks: dict[str, int] = {}
        """Of the QOS of `_ranked`: which may preempt which."""
        self._rules = self.fleet.rules
        self._shut = 0
        """Bitmap of nodes that their own state keeps from use."""
        self._closings = 0
        """Counts changes of `closed_later`."""
        self._entries: dict[int, tuple[Entry, ...]] = {}
        self._demands: dict[tuple[Request, str, int, int], Demand | Wait] = {}
        self._asked: dict[tuple[Request, str, str, int, tuple[str, ...]], Asked] = {}
        self._numbers = 0
        self._full: View | None = None

    def follow(self, state: State, reachable: int | npt.NDArray[np.bool_]) -> None:
        """Bring everything that is derived from nodes, partitions and settings up to the state."""
        self.follow_config(state)
        if isinstance(reachable, int):
            silent = self.fleet.everything & ~reachable
        else:
            silent = bitmap(np.flatnonzero(~reachable).tolist())
        closed = self._shut | silent
        if closed != self.closed_later:
            self.closed_later = closed
            self._closings += 1
        for job_id in state.completing:
            for node in state.jobs[job_id].completing:
                closed |= 1 << node
        self.closed_now = closed

    def follow_config(self, state: State) -> None:
        """Drop what no longer holds when nodes, partitions or settings have changed. Records that are the same object
        compare at once, so that this costs microseconds when nothing has changed."""
        registration = self._settings.require_registration != state.settings.require_registration
        if self._settings != state.settings or self._partitions != state.partitions:
            self._settings = state.settings
            self._partitions = dict(state.partitions)
            self._rules = rules(state.settings, state.partitions.values())
            self._forget()
        if self._book is not state.limits:
            self._book = state.limits
            self._entries.clear()
            self._asked.clear()
            self.board = None
        if self._nodes != state.nodes:
            changed = self._changed(state)
            if changed is not None and not registration and self.fleet.rules == self._rules:
                for index in changed:
                    self._nodes[index] = node = state.nodes[index]
                    self._shut &= ~(1 << index)
                    self._shut |= (not usable(state.settings, node)) << index
                return
            self._nodes = list(state.nodes)
        elif not registration and self.fleet.rules == self._rules:
            return
        if [node.spec for node in self._nodes] != self.fleet.specs or self.fleet.rules != self._rules:
            if self.fleet.size:  # Else nothing was followed yet: the promises are those that it was given.
                self.holds.clear()
            self.fleet = Fleet(self._nodes, self._small, self._settings, self._partitions.values())
            self.releases = Releases(self.fleet)
            self.seen = None
            self._full = None
            self._forget()
        self._shut = bitmap(index for index, node in enumerate(self._nodes) if not usable(state.settings, node))

    def _changed(self, state: State) -> list[int] | None:
        """Give the nodes with another record than before; None: their hardware is another too."""
        if len(self._nodes) != len(state.nodes):
            return None
        changed = list(compress(range(len(self._nodes)), map(is_not, self._nodes, state.nodes)))
        if any(self._nodes[index].spec != state.nodes[index].spec for index in changed):
            return None
        return changed

    def _forget(self) -> None:
        self._entries.clear()
        self._demands.clear()
        self.board = None
        self._asked.clear()

    def entries(self, state: State, jobs: JobClass) -> tuple[Entry, ...]:
        """Give a class's entries, one for each of its partitions."""
        found = self._entries.get(jobs.id)
        if found is None:
            found = self._entries[jobs.id] = self.entries_apart(state, jobs)
        return found

    def entries_apart(self, state: State, jobs: JobClass) -> tuple[Entry, ...]:
        """Give the entries of a class that is not one of the queue's: they are not kept."""
        return tuple(self._entry(state, jobs, place, name) for place, name in enumerate(jobs.partitions))

    def prune(self, state: State) -> None:
        """Drop entries of classes that are gone, when they are many, and reservations that are gone."""
        self.bars.prune(state)
        if len(self._entries) > 2 * len(state.queue.classes) + 256:
            classes = state.queue.classes
            self._entries = {number: found for number, found in self._entries.items() if number in classes}

    def _entry(self, state: State, jobs: JobClass, place: int, name: str) -> Entry:
        partition = self._partitions.get(name)
        if partition is None:
            return Entry(jobs, place, PartitionSpec(name=name, nodes=()), None, Wait(Reason.PARTITION_DOWN))
        if partition.state == PartitionState.DOWN:
            return Entry(jobs, place, partition, None, Wait(Reason.PARTITION_DOWN))
        if partition.state == PartitionState.INACTIVE:
            return Entry(jobs, place, partition, None, Wait(Reason.PARTITION_INACTIVE))
        # A job that asked for no limit has the default of the partition it starts in; all of a class asked alike.
        job = state.jobs[jobs.head]
        limit = run_limit_seconds(job, partition)
        if state.queue.apart:
            partition = limits.lifted(state, job, partition)
            asked = self._asked_of(state, job, jobs.request, name, limit) if state.limits.enforced else None
            bar = limits.bar(state, job, partition, limit, asked)
            if bar is not None:
                return Entry(jobs, place, partition, None, bar)
        if partition.max_minutes >= 0 and not 0 <= limit <= partition.max_minutes * 60:
            return Entry(jobs, place, partition, None, Wait(Reason.PARTITION_TIME_LIMIT))
        demand = self.demand(partition, jobs.request)
        if isinstance(demand, Wait):
            return Entry(jobs, place, partition, None, demand)
        entry = Entry(jobs, place, partition, demand, None)
        entry.asked_seconds = limit
        entry.limit_seconds = planned_seconds(limit, jobs.request.time_min_minutes)
        if state.settings.preemption.rule == "qos":
            entry.tier -= self._rank(state, job.spec.qos) << _TIER_BITS
        if state.limits.enforced:
            entry.asked = self._asked_of(state, job, jobs.request, name, limit)
            entry.rules = limits.rules_of(state, job, partition)
            entry.limited = True
        return entry

    def _asked_of(self, state: State, job: Job, request: Request, name: str, limit: int) -> Asked:
        """Give what limits compare of a job in a partition: the same for all jobs of one request, whoever sent them."""
        key = (request, name, job.spec.partitions[0], limit, job.spec.exempt)
        found = self._asked.get(key)
        if found is None:
            if len(self._asked) >= MAX_DEMANDS:
                self._asked.clear()
            found = self._asked[key] = least(state, job, name, limit)
        return found

    def _rank(self, state: State, qos: str) -> int:
        if self._ranked is not state.accounts:
            self._ranked = state.accounts
            self._ranks = qos_ranks(state.accounts.qos)
        return self._ranks.get(qos, 0)

    def demand(self, partition: PartitionSpec, request: Request) -> Demand | Wait:
        """Give the demand of a request in a partition, or why it can never be met there. Requests that ask for the
        same nodes have the same."""
        if request.licenses or request.time_min_minutes:
            request = replace(request, licenses="", time_min_minutes=0)
        key = (request, partition.name, partition.min_nodes, partition.max_nodes)
        found = self._demands.get(key)
        if found is None:
            if len(self._demands) >= MAX_DEMANDS:
                self._forget()
            self._numbers += 1
            try:
                found = demand_of(self.fleet, self._settings, partition, request, self._numbers)
            except Impossible as error:
                found = Wait(error.reason)
            except InvalidInput:
                found = Wait(Reason.BAD_CONSTRAINTS)
            else:
                if found.picky:
                    found.leave_out(unfit(self.fleet, found))
                if self._full is None:
                    self._full = self.fleet.capacity(self.fleet.future)
                if choose(found.eventual, self._full) is None:
                    cpus = sum(self.fleet.kinds[self.fleet.kind[node]].cpus for node in partition.nodes)
                    found = Wait(Reason.PARTITION_CONFIG if found.least_cpus > cpus else Reason.BAD_CONSTRAINTS)
            self._demands[key] = found
        return found

    def thaw(self, view: View) -> None:
        """Let those demands be tried again that something which has come free since the last pass may serve."""
        frozen = [one for one in self._demands.values() if isinstance(one, Demand) and one.no_fit]
        if not frozen:
            return
        grown = self._grown(view)
        if grown is None:
            for demand in frozen:
                demand.no_fit = False
            return
        for node in grown:
            cpus, memory, gpus = int(view.cpus[node]), int(view.memory[node]), int(view.gpus[0][node])
            for demand in frozen:
                if demand.no_fit and demand.serves(node, cpus, memory, gpus):
                    demand.no_fit = False

    def _grown(self, view: View) -> list[int] | None:
        """Give the nodes with more free than at the end of the last pass; None: too many to tell."""
        seen = self.seen
        if seen is None:
            return None
        pairs = [
            (view.cpus, seen.cpus),
            (view.memory, seen.memory),
            *zip(view.gpus, seen.gpus, strict=True),
        ]
        if self.fleet.small:
            more: set[int] = set()
            for now, then in pairs:
                if now != then:
                    more.update(node for node in range(self.fleet.size) if now[node] > then[node])
            return sorted(more)
        grown = np.zeros(self.fleet.size, np.bool_)
        for now, then in pairs:
            grown |= np.asarray(now) > np.asarray(then)
        listed: list[int] = np.flatnonzero(grown).tolist()
        return listed if len(listed) <= MAX_GROWN else None

    def lost(self, entry: Entry) -> bool:
        """Tell whether a class cannot start because nodes that it needs cannot be used at all at present."""
        demand = entry.demand
        if demand is None or not self.closed_later:
            return False
        if demand.lost_at != self._closings:
            demand.lost_at = self._closings
            alone = demand.eventual.alone(entry.partition, entry.jobs.request)
            demand.lost = choose(alone, self.fleet.capacity(self.closed_later)) is None
        return demand.lost

    def unavailable(self, demand: Demand) -> Wait:
        """Give the wait that names the nodes that a lost class would need."""
        wanted = 0
        for alternative in demand.alternatives:
            wanted |= alternative.bits
        if demand.required_bits & self.closed_later:
            wanted = demand.required_bits
        names = [
            self.fleet.specs[node].name for node in range(self.fleet.size) if (wanted & self.closed_later) >> node & 1
        ]
        return Wait(Reason.NODE_NOT_AVAIL, f"{Reason.NODE_NOT_AVAIL}, UnavailableNodes:{sort_compress(names)}")

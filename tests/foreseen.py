"""A slow, plain oracle for calendars: what is free on every node in every minute, and each job in turn in the first
minute that has room. Where foresee has several nodes to choose from the oracle takes its choice, after a check."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from ctld.core import licenses, ranges
from ctld.core.apply.indexes import put
from ctld.core.model import UNLIMITED, Allocation, Job, NodeShare
from ctld.core.queue import order_key
from ctld.core.state import State
from ctld.core.times import latest_start
from ctld.core.usable import usable
from ctld.sched.ahead import Spot
from ctld.sched.calendar import Forecast, Planned
from muster.ids import UnixTime
from muster.states import JobState
from tests.builders import NOON

MINUTES = 240
"""The oracle's horizon; what is free in the last minute is free for ever."""


def let_wait(state: State, *jobs: Job) -> State:
    """Put pending jobs in."""
    for job in jobs:
        put(state, None, job)
        if job.array_job_id:
            state.by_array.setdefault(job.array_job_id, set()).add(job.id)
    return state


def let_run(state: State, job: Job, node: int, *, minutes: int, memory: int = 0, gpus: int = 0) -> Job:
    """Let a job run on the lowest free cores of a node for so many minutes more (-1: without limit)."""
    cores = ranges.lowest_bits(state.free.cores[node], job.spec.request.cpus_per_task)
    bits = ranges.lowest_bits(state.free.gpus[node], gpus)
    share = NodeShare(
        node, job.spec.request.cpus_per_task, ranges.from_bitmap(cores), memory, ranges.from_bitmap(bits)
    )  # fmt: skip
    limit = UNLIMITED if minutes < 0 else (minutes + 5) * 60
    held = licenses.text_of(licenses.wanted_of(job.spec.request.licenses)[:1]) if job.spec.request.licenses else ""
    job = replace(
        job,
        state=int(JobState.RUNNING),
        started_at=UnixTime(NOON - 300),
        limit_seconds=limit,
        alloc=Allocation(job.spec.partitions[0], (share,), licenses=held),
        array_pending=(),
    )
    put(state, None, job)
    return job


@dataclass
class Table:
    """What is free by node and minute: CPUs, memory, GPUs; and what is taken of licences and arrays by minute."""

    state: State
    free: list[list[list[int]]] = field(default_factory=list)
    taken: dict[object, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = self.state
        for node in state.nodes:
            spec = node.spec
            up = usable(state.settings, node)
            self.free.append([[spec.cpus if up else -1, spec.memory_mib, len(spec.gpus)] for _ in range(MINUTES)])
        for job_id in state.running:
            job = state.jobs[job_id]
            assert job.alloc is not None
            end = MINUTES
            if job.limit_seconds >= 0:
                end = (job.started_at + job.limit_seconds - NOON) // 60
            for share in job.alloc.shares:
                for minute in self.free[share.node][:end]:
                    minute[0] -= share.cpus
                    minute[1] -= share.memory_mib
                    minute[2] -= ranges.count(share.gpus)
            for key, amount in self.keys(job).items():
                self.use(key, amount, 0, end)

    def keys(self, job: Job) -> dict[object, int]:
        """Give what a job takes beside nodes."""
        found: dict[object, int] = {}
        if job.alloc is not None:
            found.update(licenses.held(job.alloc.licenses))
        else:
            for one in licenses.wanted_of(job.spec.request.licenses)[:1]:
                found.update(dict(one))
        if job.array_job_id:
            found[job.array_job_id] = 1
        return found

    def use(self, key: object, amount: int, start: int, end: int) -> None:
        column = self.taken.setdefault(key, [0] * MINUTES)
        for minute in range(start, min(end, MINUTES)):
            column[minute] += amount

    def room_of(self, job: Job, key: object) -> int:
        if key == job.array_job_id:
            return job.array_limit or 1 << 30
        return self.state.settings.licenses.get(str(key), 0)

    def amounts(self, job: Job, node: int) -> list[int]:
        """Give what the job takes of a node."""
        request, spec = job.spec.request, self.state.nodes[node].spec
        if request.exclusive == "node":
            return [spec.cpus, request.memory_per_node_mib, len(spec.gpus)]
        return [request.cpus_per_task, request.memory_per_node_mib, sum(one.count for one in request.gpus_per_node)]

    def span(self, job: Job, start: int) -> range:
        """Give the minutes of a run."""
        limit = job.limit_seconds
        if job.spec.request.time_min_minutes:
            limit = job.spec.request.time_min_minutes * 60
        return range(start, MINUTES if limit < 0 else min(MINUTES, start + limit // 60))

    def is_reserved(self, job: Job, node: int, minutes: range) -> bool:
        """Tell whether reservations keep a node from a run."""
        asked = job.spec.request.reservations
        for one in self.state.reservations.values():
            low, high = (one.start_at - NOON) // 60, (one.end_at - NOON) // 60
            if one.name in asked:
                if not (low <= minutes.start and minutes.stop <= high and node in one.nodes):
                    return True
            elif node in one.nodes and minutes.start < high and low < minutes.stop:
                return True
        return False

    def ready(self, job: Job, name: str, start: int) -> list[int]:
        """Give the nodes of a partition on which the job could have a share from this minute on."""
        minutes = self.span(job, start)
        request = job.spec.request
        for key, amount in self.keys(job).items():
            column = self.taken.get(key, [0] * MINUTES)
            if any(column[minute] + amount > self.room_of(job, key) for minute in minutes):
                return []
        found = []
        for node in self.state.partitions[name].nodes:
            spec = self.state.nodes[node].spec
            wanted = self.amounts(job, node)
            big = [spec.cpus, spec.memory_mib, len(spec.gpus)]
            if spec.name in request.exclude or any(want > have for want, have in zip(wanted, big, strict=True)):
                continue
            if self.is_reserved(job, node, minutes):
                continue
            here = self.free[node]
            if all(have >= want for minute in minutes for have, want in zip(here[minute], wanted, strict=True)):
                found.append(node)
        return found

    def earliest(self, job: Job, names: list[str], since: int, until: int = MINUTES - 1) -> tuple[int, str] | None:
        """Give the first minute in which the job could start in one of the partitions, and which."""
        if job.spec.deadline_at:
            until = min(until, (latest_start(job) - NOON) // 60 + 1)
        for start in range(since, until):
            for name in names:
                if len(self.ready(job, name, start)) >= job.spec.request.nodes_min:
                    return start, name
        return None

    def hold(self, job: Job, nodes: tuple[int, ...], start: int, sign: int = 1) -> None:
        """Take what the job has, or give it back."""
        minutes = self.span(job, start)
        for node in nodes:
            wanted = self.amounts(job, node)
            for minute in minutes:
                for at, amount in enumerate(wanted):
                    self.free[node][minute][at] -= sign * amount
        for key, amount in self.keys(job).items():
            self.use(key, sign * amount, minutes.start, minutes.stop)

    def check(self) -> None:
        """Nothing is taken twice in any minute."""
        for node, minutes in enumerate(self.free):
            if usable(self.state.settings, self.state.nodes[node]):
                assert all(min(minute) >= 0 for minute in minutes), node


def order_of(state: State) -> list[tuple[int, int, Job, list[str]]]:
    """Give the queue: tier and key, each job with the partitions of that tier that could ever take it (one entry with
    none where none could)."""
    found = []
    for job_id in state.queue:
        job = state.jobs[job_id]
        first = 1 << 20 if job.spec.request.reservations else 0
        tiers: dict[int, list[str]] = {}
        for name in job.spec.partitions:
            if _takes(state, job, name):
                tiers.setdefault(-state.partitions[name].priority_tier - first, []).append(name)
        tiers = tiers or {-state.partitions[job.spec.partitions[0]].priority_tier - first: []}
        found += [(tier, order_key(job.priority, job.id), job, names) for tier, names in tiers.items()]
    return sorted(found, key=lambda one: one[:2])


def _takes(state: State, job: Job, name: str) -> bool:
    """Tell whether a partition's nodes could serve the job were they all empty."""
    request = job.spec.request
    able = 0
    for node in state.partitions[name].nodes:
        spec = state.nodes[node].spec
        gpus = sum(one.count for one in request.gpus_per_node)
        able += (
            spec.name not in request.exclude
            and request.cpus_per_task <= spec.cpus
            and request.memory_per_node_mib <= spec.memory_mib
            and gpus <= len(spec.gpus)
        )
    return able >= request.nodes_min


def minute_of(time: int) -> int:
    """Give a time in minutes of the oracle."""
    assert (time - NOON) % 60 == 0, time
    return (time - NOON) // 60


class Judge:
    """Goes through the queue beside a forecast, one turn of a job after the other, and takes what was planned after a
    check: member by member of an array; in a later turn, in partitions of a lower tier, only what comes earlier."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._table = Table(state)
        self._line = order_of(state)
        self._turns = 0
        self._held: dict[int, list[Spot]] = {}

    def follow(self, made: Forecast) -> bool:
        """Look at the turn that was just taken; to be called by the forecast as its budget, which never runs out."""
        _, _, job, names = self._line[self._turns]
        self._turns += 1
        before = self._held.get(job.id, [])
        spots = list(made.spots.get(job.id, []))
        if before:
            self._improved(job, names, before, spots)
        else:
            self._planned(job, names, spots, made.planned[job.id])
        self._held[job.id] = spots
        if spots:
            first = min(spots, key=lambda spot: spot.start)
            said = made.planned[job.id]
            shown = (said.start_at, said.nodes, said.partition, said.wait)
            assert shown == (first.start, first.nodes, first.entry.partition.name, None)
        self._table.check()
        return False

    def done(self) -> None:
        """Every job had its turns."""
        assert self._turns == len(self._line)

    def _planned(self, job: Job, names: list[str], spots: list[Spot], said: Planned) -> None:
        most, ahead = self._state.settings.planning.array_members, 0
        for number in range(ranges.count(job.array_pending) if job.array_pending else 1):
            wanted = self._table.earliest(job, names, 0)
            found = spots[number] if number < len(spots) else None
            about = (job.id, number, found, wanted, described(self._state))
            if wanted is None:
                assert found is None, about
                if not number:
                    assert (said.start_at, said.nodes) == (0, ()), about
                    assert said.wait is not None, about
                return
            assert found is not None, about
            self._take(job, found, wanted)
            ahead += wanted[0] > 0
            if ahead >= most:
                assert len(spots) == number + 1, about
                return

    def _improved(self, job: Job, names: list[str], before: list[Spot], spots: list[Spot]) -> None:
        assert len(spots) == len(before)
        order = job.spec.partitions
        for held, found in zip(before, spots, strict=True):
            start, name = minute_of(held.start), held.entry.partition.name
            if not start:
                assert found == held
                continue
            self._table.hold(job, held.nodes, start, -1)
            first = min(order.index(one) for one in names) < order.index(name)
            wanted = self._table.earliest(job, names, 0, start + first)
            self._take(job, found, wanted or (start, name))

    def _take(self, job: Job, found: Spot, wanted: tuple[int, str]) -> None:
        about = (job.id, found, wanted, described(self._state))
        assert (minute_of(found.start), found.entry.partition.name) == wanted, about
        assert len(found.nodes) == job.spec.request.nodes_min, about
        assert set(found.nodes) <= set(self._table.ready(job, wanted[1], wanted[0])), about
        self._table.hold(job, found.nodes, wanted[0])


def described(state: State) -> str:
    """Say what a state holds, for a failed comparison."""
    lines = [f"{one.spec.name} cpus={one.spec.cpus} gpus={len(one.spec.gpus)} down={one.down}" for one in state.nodes]
    lines += [f"{one.name} tier={one.priority_tier} nodes={one.nodes}" for one in state.partitions.values()]
    lines += [f"{one.name} {minute_of(one.start_at)}-{minute_of(one.end_at)} {one.nodes}"
              for one in state.reservations.values()]  # fmt: skip
    for job in state.jobs.values():
        lines.append(
            f"job {job.id} state={job.state} priority={job.priority} limit={job.limit_seconds} {job.spec.partitions}"
            f" array={job.array_pending}%{job.array_limit} deadline={job.spec.deadline_at}"
            f" {job.spec.request}"
        )
        if job.alloc is not None:
            lines.append(f"    on {job.alloc.shares}")
    return "\n".join(lines)

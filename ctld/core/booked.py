"""What is free and yet promised: to jobs for which others were preempted, and to suspended jobs whose CPUs come back.

A booking names concrete cores and devices. What of them is free already nobody else may take; what victims still hold
comes to it as they go. The same words serve the scheduler and the check of its plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ctld.core import ranges
from ctld.core.apply.indexes import SUSPENDED, held_shares
from ctld.core.free import cpus_per_core
from ctld.core.holds import FOREVER, allows
from ctld.core.model import Job, NodeShare
from ctld.core.plan import Start
from ctld.core.state import State
from ctld.core.times import grace_end
from ctld.core.usable import usable


@dataclass(frozen=True, slots=True)
class Room:
    """An amount of one node, with its concrete cores and GPUs as bitmaps."""

    cores: int
    gpus: int
    memory_mib: int
    cpus: int

    def holds(self, share: NodeShare, *, memory_counts: bool) -> bool:
        """Tell whether a share is all in here."""
        cores, gpus = ranges.to_bitmap(share.cores), ranges.to_bitmap(share.gpus)
        return (
            0 < share.cpus <= self.cpus
            and cores & self.cores == cores
            and gpus & self.gpus == gpus
            and (share.memory_mib <= self.memory_mib or not memory_counts)
        )


def is_ending(job: Job) -> bool:
    """Tell whether what a job holds comes free soon by what is decided already."""
    return bool(job.completing) or job.kill is not None or bool(grace_end(job))


def valid(state: State, job: Job) -> bool:
    """Tell whether a job's booking can still be kept: all its nodes are there and may be used."""
    booking = job.booking
    if booking is None or booking.partition not in job.spec.partitions:
        return False
    if booking.partition not in state.partitions:
        return False
    for share in booking.shares:
        if share.node >= len(state.nodes) or not usable(state.settings, state.nodes[share.node]):
            return False
    if not state.reservations:
        return True
    # Somebody may have reserved it since.
    end = state.at + job.limit_seconds if job.limit_seconds >= 0 else FOREVER
    return allows(state, job, Start(job.id, booking.partition, booking.shares, booking.task_id), state.at, end)


class Promises:
    """All bookings and returning CPUs of a state, by node; made for one decision or pass."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.bookings: dict[int, list[tuple[int, NodeShare]]] = {}
        """Node -> (job id, share) of the bookings that can be kept."""
        self.returning: dict[int, int] = {}
        """Node -> cores that belong to suspended jobs which go on when they are free."""
        for job_id in state.booked:
            job = state.jobs[job_id]
            if job.booking is not None and valid(state, job):
                for share in job.booking.shares:
                    self.bookings.setdefault(share.node, []).append((job_id, share))
        for job_id in state.suspended:
            job = state.jobs[job_id]
            if job.preempted is not None and job.kill is None and job.alloc is not None:
                for share in job.alloc.shares:
                    self.returning[share.node] = self.returning.get(share.node, 0) | ranges.to_bitmap(share.cores)

    def __bool__(self) -> bool:
        """Whether anything is promised at all."""
        return bool(self.bookings or self.returning)

    @property
    def nodes(self) -> list[int]:
        """Nodes of which something is promised."""
        return sorted(self.bookings.keys() | self.returning.keys())

    def kept(self, node: int, job_id: int = 0) -> Room:
        """Give what of the free resources of a node is kept from a job (0: from jobs without a booking).

        Memory that victims still hold for a booking need not be kept of what is free.
        """
        cores = gpus = memory = own = 0
        for owner, share in self.bookings.get(node, ()):
            if owner == job_id:
                own |= ranges.to_bitmap(share.cores)
                continue
            cores |= ranges.to_bitmap(share.cores)
            gpus |= ranges.to_bitmap(share.gpus)
            memory += share.memory_mib
        cores |= self.returning.get(node, 0) & ~own
        free = self._state.free
        cores &= free.cores[node]
        if memory:
            memory = max(0, memory - self._coming_memory(node))
        return Room(cores, gpus & free.gpus[node], memory, 0)

    def soon(self, node: int, victims: Mapping[int, str], job_id: int = 0) -> Room:
        """Give what of a node is a job's for the asking once all that is ending, and the victims, have gone.

        Args:
            victims: job id -> mode.
            job_id: whose booking does not count (0: all count).
        """
        state, free = self._state, self._state.free
        cores, gpus = free.cores[node], free.gpus[node]
        memory, cpus = int(free.memory[node]), int(free.cpus[node])
        returning = self.returning.get(node, 0)
        for other in state.node_jobs[node]:
            job = state.jobs[other]
            mode = victims.get(other, "")
            if not mode and not is_ending(job):
                continue
            for share in held_shares(job):
                if share.node == node:
                    cores |= ranges.to_bitmap(share.cores)
                    cpus += share.cpus
                    if mode != "SUSPEND" or is_ending(job):
                        gpus |= ranges.to_bitmap(share.gpus)
                        memory += share.memory_mib
            if job.state == SUSPENDED and mode and job.alloc is not None:
                returning &= ~cores_on(job, node)
        for owner, share in self.bookings.get(node, ()):
            if owner != job_id:
                cores &= ~ranges.to_bitmap(share.cores)
                gpus &= ~ranges.to_bitmap(share.gpus)
                memory -= share.memory_mib
                cpus -= share.cpus
        lost = cores & returning
        cpus -= lost.bit_count() * threads(state, node)
        return Room(cores & ~returning, gpus, memory, cpus)

    def _coming_memory(self, node: int) -> int:
        state = self._state
        return sum(
            share.memory_mib
            for other in state.node_jobs[node]
            if is_ending(state.jobs[other])
            for share in held_shares(state.jobs[other])
            if share.node == node
        )


def cores_on(job: Job, node: int) -> int:
    """Give the cores of a job's allocation on a node."""
    if job.alloc is None:
        return 0
    return sum(ranges.to_bitmap(share.cores) for share in job.alloc.shares if share.node == node)


def threads(state: State, node: int) -> int:
    """CPUs that come with one core of a node."""
    return cpus_per_core(state.nodes[node].spec)

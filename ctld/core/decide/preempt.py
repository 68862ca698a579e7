"""Preemptions of a plan: each checked against the state of this moment, whole or not at all, and turned into events.

Victims are warned (or suspended) at once; what they leave is booked for the job that they go for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ctld.core import ranges
from ctld.core.booked import Promises, Room, is_ending, valid
from ctld.core.cluster import PartitionSpec
from ctld.core.decide.ending import kill_of, may_requeue
from ctld.core.events import Event, JobBooked, JobPreempted, JobSuspended, JobWarned, KillOrdered
from ctld.core.free import exclusive_mode
from ctld.core.model import Booking, Job, NodeShare, Preempted
from ctld.core.plan import Preempt, Start, Victim
from ctld.core.state import State
from ctld.core.times import limit_end
from muster.ids import UnixTime
from muster.states import JobState


class Starts(Protocol):
    """What the check of a plan's starts knows (`ctld.core.decide.plan`)."""

    def candidate(self, start: Start) -> tuple[Job, PartitionSpec] | None:
        """Give the job and the partition, if the job may start as far as itself goes."""

    def taken(self, node: int) -> Room:
        """Give what the plan's starts have taken of a node."""

    def could_host(self, job: Job, partition: PartitionSpec, node: int) -> bool:
        """Tell whether the plan's starts leave the node open to the job."""


def preemptions(state: State, asked: Sequence[Preempt], starts: Starts, at: UnixTime) -> list[Event]:
    """Give the events of those preemptions that still hold, in order; each sees what those before it took."""
    desk = _Desk(state, starts)
    events: list[Event] = []
    for one in asked:
        events += desk.decide(one, at)
    return events


class _Desk:
    """The state, and what this plan has given away so far."""

    def __init__(self, state: State, starts: Starts) -> None:
        self._state = state
        self._starts = starts
        self._promises = Promises(state)
        self._victims: dict[int, str] = {}
        """Job id -> mode, of the preemptions that hold."""
        self._shares: dict[int, list[NodeShare]] = {}
        """Node -> shares that they book."""
        self._booked: set[int] = set()

    def decide(self, one: Preempt, at: UnixTime) -> list[Event]:
        found = self._starts.candidate(Start(one.job_id, one.partition, one.shares, one.task_id))
        if found is None or one.job_id in self._booked or not one.victims:
            return []
        job, partition = found
        if valid(self._state, job) or not all(self._is_there(victim, job) for victim in one.victims):
            return []
        victims = {int(victim.job_id): victim.mode for victim in one.victims}
        if not self._fits(job, partition, one.shares, {**self._victims, **victims}):
            return []
        self._victims.update(victims)
        self._booked.add(job.id)
        for share in one.shares:
            self._shares.setdefault(share.node, []).append(share)
        return list(self._events(one, at))

    def _is_there(self, victim: Victim, preemptor: Job) -> bool:
        """Tell whether a victim is the run that was meant, and not going already."""
        job = self._state.jobs.get(victim.job_id)
        return (
            job is not None
            and job.id != preemptor.id
            and JobState.PENDING < job.state <= JobState.SUSPENDED
            and job.restarts == victim.run
            and victim.job_id not in self._victims
            and not is_ending(job)
            and victim.mode in ("CANCEL", "REQUEUE", "SUSPEND")
        )

    def _fits(self, job: Job, partition: PartitionSpec, shares: tuple[NodeShare, ...], victims: dict[int, str]) -> bool:
        counts = self._state.settings.memory_consumable
        before = -1
        for share in shares:
            node = share.node
            if share.gres or share.row or node <= before or not self._starts.could_host(job, partition, node):
                return False
            before = node
            room = self._room(node, victims, job.id)
            if not room.holds(share, memory_counts=counts) or not self._may_join(job, partition, node, victims):
                return False
        return True

    def _room(self, node: int, victims: dict[int, str], job_id: int) -> Room:
        room, taken = self._promises.soon(node, victims, job_id), self._starts.taken(node)
        cores, gpus = room.cores & ~taken.cores, room.gpus & ~taken.gpus
        memory, cpus = room.memory_mib - taken.memory_mib, room.cpus - taken.cpus
        for share in self._shares.get(node, ()):
            cores &= ~ranges.to_bitmap(share.cores)
            gpus &= ~ranges.to_bitmap(share.gpus)
            memory -= share.memory_mib
            cpus -= share.cpus
        return Room(cores, gpus, memory, cpus)

    def _may_join(self, job: Job, partition: PartitionSpec, node: int, victims: dict[int, str]) -> bool:
        """Tell whether the job may be on a node with those that stay there."""
        state = self._state
        how = exclusive_mode(job.spec.request.exclusive, partition)
        for other_id in state.node_jobs[node]:
            other = state.jobs[other_id]
            if is_ending(other) or victims.get(other_id) in ("CANCEL", "REQUEUE"):
                continue
            stands = other.state == JobState.SUSPENDED or victims.get(other_id) == "SUSPEND"
            if how == "node" and not stands:
                return False
            there = state.partitions.get(other.alloc.partition) if other.alloc is not None else None
            kept = exclusive_mode(other.spec.request.exclusive, there)
            if "user" in (how, kept) and other.spec.uid != job.spec.uid:
                return False
            if kept == "node" and not stands:
                return False
        booked = any(owner != job.id for owner, _ in self._promises.bookings.get(node, ()))
        return not (how and (booked or self._shares.get(node)))

    def _events(self, one: Preempt, at: UnixTime) -> Iterator[Event]:
        state, last = self._state, int(at)
        for victim in one.victims:
            job = state.jobs[victim.job_id]
            mode = victim.mode
            if mode == "SUSPEND":
                yield JobSuspended(at=at, job_id=job.id, preempted=Preempted(mode, at, at, int(one.job_id)))
                continue
            if mode == "REQUEUE" and not may_requeue(job):
                mode = "CANCEL"
            ends_at = at + victim.grace_seconds
            limit = limit_end(job, at)
            if limit >= 0:
                ends_at = max(int(at), min(ends_at, limit))
            if job.state == JobState.SUSPENDED:
                ends_at = int(at)  # It stands still: it could not use its grace.
            chosen = Preempted(mode, at, UnixTime(ends_at), int(one.job_id))
            yield JobPreempted(at=at, job_id=job.id, preempted=chosen)
            wants_own_signal = state.settings.preemption.send_user_signal and job.spec.signal is not None
            if ends_at > at and wants_own_signal and not job.warned:
                yield JobWarned(at=at, job_id=job.id)
            if ends_at <= at:
                yield KillOrdered(at=at, job_id=job.id, kill=kill_of(chosen, at))
            last = max(last, ends_at + state.settings.kill_wait_seconds)
        booking = Booking(one.partition, one.shares, at, UnixTime(last), one.task_id)
        yield JobBooked(at=at, job_id=one.job_id, booking=booking)

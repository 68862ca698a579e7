"""What time does to reservations: an end, the next time of one that recurs, purging, and nodes that are replaced."""

from __future__ import annotations

from msgspec import structs

from ctld.core.apply.indexes import PENDING
from ctld.core.decide.reservation_nodes import Wanted, candidates, taken_at
from ctld.core.events import Event, JobReservationLost, KillOrdered, ReservationChanged, ReservationDeleted
from ctld.core.model import Job, Kill
from ctld.core.reservations import Part, Reservation, advanced
from ctld.core.state import State
from ctld.core.usable import usable
from muster.ids import UnixTime
from muster.states import JobState


def due(state: State, at: UnixTime) -> list[Event]:
    """Decide what has fallen due of reservations."""
    events: list[Event] = []
    replaced = False
    gone = frozenset(one.name for one in state.reservations.values() if _is_over(one, at) and not one.recurs)
    for one in state.reservations.values():
        if _is_over(one, at):
            events += _over(state, one, gone, at)
            continue
        if one.purge_seconds and one.is_active(at):
            idle = _idle(state, one, at)
            if idle:
                events += idle
                continue
        if not replaced:
            # One at a time: two decided in one breath might take the same node.
            change = _replacement(state, one, at)
            if change is not None:
                events.append(change)
                replaced = True
    return events


def _is_over(one: Reservation, at: UnixTime) -> bool:
    return at >= one.end_at and not one.has("TIME_FLOAT")


def _over(state: State, one: Reservation, gone: frozenset[str], at: UnixTime) -> list[Event]:
    jobs = [state.jobs[job_id] for job_id in state.in_reservation.get(one.name, ())]
    running = [job for job in jobs if job.state != PENDING]
    events: list[Event] = []
    if running and not one.has("FLEX"):
        minutes = state.settings.reservation_over_run_minutes
        if minutes >= 0 and at >= one.end_at + 60 * minutes:
            kill = Kill(state=int(JobState.TIMEOUT), at=at, why="TIME LIMIT")
            events += [KillOrdered(at=at, job_id=job.id, kill=kill) for job in running if job.kill is None]
        elif minutes > 0:
            return []
    if one.recurs:
        following = advanced(one, state.settings.clock_changes)
        while following.end_at <= at:
            following = advanced(following, state.settings.clock_changes)
        return [*events, ReservationChanged(at=at, reservation=following)]
    events += [
        _left_without(state, job, gone, at)
        for job in jobs
        # One that names several that are over loses them all at once, with the first.
        if job.state == PENDING and next(name for name in job.spec.request.reservations if name in gone) == one.name
    ]
    if not running:
        events.append(ReservationDeleted(at=at, name=one.name, why="ended"))
    return events


def _left_without(state: State, job: Job, gone: frozenset[str], at: UnixTime) -> JobReservationLost:
    """Take the reservations that are over from a job that waits for them."""
    asked = job.spec.request.reservations
    left = tuple(name for name in asked if name not in gone and name in state.reservations)
    kept = any(name in gone and state.reservations[name].has("NO_HOLD_JOBS_AFTER") for name in asked)
    return JobReservationLost(at, job.id, left, hold=not left and not kept)


def _idle(state: State, one: Reservation, at: UnixTime) -> list[Event]:
    """Purge a reservation that nobody used for a while (PURGE_COMP), or note since when nobody does."""
    if one.name in state.in_reservation:
        if not one.idle_since:
            return []
        return [ReservationChanged(at=at, reservation=structs.replace(one, idle_since=UnixTime(0)))]
    if not one.idle_since:
        return [ReservationChanged(at=at, reservation=structs.replace(one, idle_since=at))]
    if at - one.idle_since < one.purge_seconds:
        return []
    if one.recurs:
        return [ReservationChanged(at=at, reservation=advanced(one, state.settings.clock_changes))]
    return [ReservationDeleted(at=at, name=one.name, why="purged")]


def _replacement(state: State, one: Reservation, at: UnixTime) -> ReservationChanged | None:
    """Exchange nodes that failed (with REPLACE also those that its own jobs have) for idle ones; only of reservations
    whose nodes were not named."""
    if any(one.has(flag) for flag in ("SPEC_NODES", "STATIC_ALLOC", "MAINT", "PART_NODES")) or one.by_cores:
        return None
    lost = [node for node in one.nodes if not usable(state.settings, state.nodes[node])]
    if one.has("REPLACE"):
        lost += [node for node in one.nodes if node not in lost and _runs_there(state, one, node)]
    if not lost:
        return None
    wanted = Wanted(partition=one.partition, features=one.features)
    taken = taken_at(state, one, at).whole()
    idle = [
        node
        for node in candidates(state, one, wanted)
        if not taken >> node & 1 and node not in one.nodes and not state.node_jobs[node]
    ]
    if not idle:
        return None
    gone = set(lost[: len(idle)])
    nodes = sorted([node for node in one.nodes if node not in gone] + idle[: len(gone)])
    return ReservationChanged(at=at, reservation=structs.replace(one, parts=tuple(Part(node) for node in nodes)))


def _runs_there(state: State, one: Reservation, node: int) -> bool:
    jobs = state.jobs
    return any(
        (alloc := jobs[job_id].alloc) is not None and alloc.reservation == one.name for job_id in state.node_jobs[node]
    )

"""Events of advance reservations."""

from __future__ import annotations

from msgspec import structs

from ctld.core.apply.indexes import put
from ctld.core.apply.intern import interned
from ctld.core.events import JobReservationLost, ReservationChanged, ReservationCreated, ReservationDeleted
from ctld.core.reservations import Part, Reservation
from ctld.core.state import State
from muster.states import RESV_DEL_HOLD, Reason


def created(state: State, event: ReservationCreated) -> None:
    """Take a new reservation in."""
    state.reservations[event.reservation.name] = event.reservation
    state.next_reservation = event.reservation.number + 1
    state.free.version += 1  # what jobs may have has changed: a scheduler looks again


def changed(state: State, event: ReservationChanged) -> None:
    """Put the record in the place of the one of its name."""
    state.reservations[event.reservation.name] = event.reservation
    state.free.version += 1


def deleted(state: State, event: ReservationDeleted) -> None:
    """Forget a reservation."""
    state.reservations.pop(event.name, None)
    state.free.version += 1


def lost(state: State, event: JobReservationLost) -> None:
    """Take a reservation from a pending job; one with none left is held."""
    job = state.jobs[event.job_id]
    request = structs.replace(job.spec.request, reservations=event.reservations)
    new = structs.replace(job, spec=interned(state, structs.replace(job.spec, request=request)))
    if event.hold:
        new = structs.replace(
            new,
            hold="user",
            priority=0,
            priority_set=False,
            reason=str(Reason.RESERVATION_DELETED),
            state_text="",
            flags=job.flags | RESV_DEL_HOLD,
        )
    put(state, job, new)


def follow_nodes(state: State, moved: dict[int, int]) -> None:
    """Give the nodes their new indexes; nodes that are gone fall out, and with PART_NODES the partition's are taken."""
    for name, one in state.reservations.items():
        parts = tuple(
            sorted(
                (structs.replace(part, node=moved[part.node]) for part in one.parts if part.node in moved),
                key=lambda part: part.node,
            )
        )
        state.reservations[name] = structs.replace(one, parts=_of_partition(state, one) or parts)


def _of_partition(state: State, one: Reservation) -> tuple[Part, ...]:
    partition = state.partitions.get(one.partition)
    if partition is None or not one.has("PART_NODES"):
        return ()
    return tuple(Part(node) for node in partition.nodes)

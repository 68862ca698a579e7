"""The checkpoint's sections: every record of the state by kind, and the state rebuilt from them.

Adding a field to a record needs nothing here; a new kind of record needs a new section, and unknown sections
are an error of the reader, never skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ctld.core.accounts import Accounts, Association, Qos
from ctld.core.apply.indexes import rebuild
from ctld.core.apply.intern import interned, interned_job
from ctld.core.cluster import Node, PartitionSpec, Settings
from ctld.core.model import Job, JobSpec, Record, Step
from ctld.core.reservations import Reservation
from ctld.core.state import State
from ctld.core.usage import UsageRecord
from muster.errors import Damaged
from muster.ids import JobId, UnixTime


class Counters(Record, frozen=True):
    """What the state counts."""

    next_job_id: int
    at: int
    usage_reset_at: int = 0
    next_reservation: int = 1


class ArrayStatus(Record, frozen=True):
    """Worst exit status of purged members of an array."""

    array_job_id: int
    status: int


SECTION_TYPES: dict[str, type[Record]] = {
    "counters": Counters,
    "settings": Settings,
    "nodes": Node,
    "partitions": PartitionSpec,
    "associations": Association,
    "qos": Qos,
    "usage": UsageRecord,
    "jobs": Job,
    "steps": Step,
    "arrays": ArrayStatus,
    "reservations": Reservation,
}
"""Section name -> type of its records, in the order in which they are written."""


def dump(state: State) -> list[tuple[str, Iterator[Record]]]:
    """Give the sections of a shallow copy of the state: records are frozen, so later events do not show in
    it."""
    steps = [step for of_job in state.steps.values() for step in of_job.values()]
    arrays = [ArrayStatus(array, status) for array, status in state.array_status.items()]
    counters = Counters(
        next_job_id=state.next_job_id,
        at=state.at,
        usage_reset_at=state.usage.reset_at,
        next_reservation=state.next_reservation,
    )
    return [
        ("counters", iter([counters])),
        ("settings", iter([state.settings])),
        ("nodes", iter(list(state.nodes))),
        ("partitions", iter(list(state.partitions.values()))),
        ("associations", iter(list(state.accounts.associations.values()))),
        ("qos", iter(list(state.accounts.qos.values()))),
        ("usage", iter(state.usage.records())),
        ("jobs", iter(list(state.jobs.values()))),
        ("steps", iter(steps)),
        ("arrays", iter(arrays)),
        ("reservations", iter(list(state.reservations.values()))),
    ]


def load(sections: Iterable[tuple[str, Iterable[Any]]]) -> State:
    """Make a state of what `dump` gave (records of the types in SECTION_TYPES).

    Raises:
        Damaged: for a section that this release does not know.
    """
    state = State()
    array_specs: dict[int, JobSpec] = {}
    associations: list[Association] = []
    qos: list[Qos] = []
    for name, records in sections:
        if name not in SECTION_TYPES:
            raise Damaged(
                f"the checkpoint has a section {name!r} that this release does not know",
                "start the release that wrote it, or a newer one",
            )
        for record in records:
            match record:
                case Association():
                    associations.append(record)
                case Qos():
                    qos.append(record)
                case _:
                    _take(state, record, array_specs)
    state.accounts = Accounts(associations, qos)
    rebuild(state)
    return state


def _take(state: State, record: Record, array_specs: dict[int, JobSpec]) -> None:
    match record:
        case Job():
            spec = _shared_spec(state, record, array_specs)
            state.jobs[record.id] = interned_job(state, record, spec)
        case Step():
            state.steps.setdefault(record.job_id, {})[record.step_id] = record
        case Node():
            state.nodes.append(record)
        case PartitionSpec():
            state.partitions[record.name] = record
        case Settings():
            state.settings = record
        case ArrayStatus():
            state.array_status[record.array_job_id] = record.status
        case UsageRecord():
            state.usage.take(record)
        case Counters():
            state.usage.reset_at = record.usage_reset_at
            state.next_job_id = JobId(record.next_job_id)
            state.at = UnixTime(record.at)
            state.next_reservation = record.next_reservation
        case Reservation():
            state.reservations[record.name] = record


def _shared_spec(state: State, job: Job, array_specs: dict[int, JobSpec]) -> JobSpec:
    """Members of an array share one spec, unless one was changed by itself."""
    if job.array_job_id:
        known = array_specs.get(job.array_job_id)
        if known is not None and known == job.spec:
            return known
    spec = interned(state, job.spec)
    if job.array_job_id:
        array_specs.setdefault(job.array_job_id, spec)
    return spec

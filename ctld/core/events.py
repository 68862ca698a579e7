"""Events: the facts that the journal holds, past tense, frozen. `apply` never refuses one.

Every event has `at`, the time of the decision. The tag (`kind`) is what is stored; a class is never renamed
on disk.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ctld.core.accounts import Association, Qos
from ctld.core.cluster import NodeFacts, NodeSpec, PartitionSpec, Settings
from ctld.core.model import Allocation, Booking, Clause, Job, Kill, Placement, Preempted, Ranges, Step, StepResult
from ctld.core.reservations import Reservation
from muster.ids import NO_TASK, JobId, StepId, UnixTime
from muster.records import RunRecord, StepRecord


class EventBase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind"):
    """Base of all events."""

    at: UnixTime


class ConfigApplied(EventBase, frozen=True, tag="config"):
    """Nodes, partitions and settings as configured from now on. Nodes are matched by name; the index is their
    place here."""

    settings: Settings
    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...]


class AccountsApplied(EventBase, frozen=True, tag="accounts"):
    """The association tree and the QOS from now on, whole; parents stand before their children."""

    associations: tuple[Association, ...]
    qos: tuple[Qos, ...]


class UsageReset(EventBase, frozen=True, tag="usagereset"):
    """A period of PriorityUsageResetPeriod began: what associations and QOS have used is forgotten."""


class AccrualChanged(EventBase, frozen=True, tag="accrual"):
    """The age of some waiting jobs begins to count (a slot of an accrue limit came free), that of others does not
    count."""

    begun: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()


class JobSubmitted(EventBase, frozen=True, tag="submit"):
    """A job or a whole array is in the queue."""

    job: Job


class JobStarted(EventBase, frozen=True, tag="start"):
    """A run has got its nodes. With `task_id` the member was split off the array's pending rest
    `array_job_id` (job_id equal to array_job_id: it was the last one and keeps the array's own id)."""

    job_id: JobId
    alloc: Allocation
    limit_seconds: int
    array_job_id: int = 0
    task_id: int = NO_TASK


class ArrayMemberSplit(EventBase, frozen=True, tag="split"):
    """A pending member got a record of its own (it was updated, held or released by itself)."""

    array_job_id: JobId
    task_id: int
    job_id: JobId


class KillOrdered(EventBase, frozen=True, tag="kill"):
    """A running job is to be ended on its nodes; repeated to them until its end is reported."""

    job_id: JobId
    kill: Kill


class JobPreempted(EventBase, frozen=True, tag="preempt"):
    """A run was chosen to make room: it is warned at once, and its end ordered when its grace is over (mode SUSPEND: it
    is suspended at once)."""

    job_id: JobId
    preempted: Preempted


class JobBooked(EventBase, frozen=True, tag="book"):
    """A waiting job was promised what its victims leave."""

    job_id: JobId
    booking: Booking


class JobSuspended(EventBase, frozen=True, tag="suspend"):
    """A run stands still on its nodes: its CPUs are free, memory and devices are not. `preempted`: for another job,
    and it goes on once its CPUs are free again."""

    job_id: JobId
    preempted: Preempted | None = None


class JobResumed(EventBase, frozen=True, tag="resume"):
    """A suspended run goes on."""

    job_id: JobId


class StepKillOrdered(EventBase, frozen=True, tag="stepkill"):
    """One step is to be ended."""

    job_id: JobId
    step_id: StepId
    kill: Kill


class JobFinished(EventBase, frozen=True, tag="finish"):
    """A job has ended (or was cancelled while pending: no record of an allocation then).

    `completing` are the nodes of the run that have not yet said that nothing is left there. `record` and
    `steps` carry the whole outcome for accounting. Open steps end with the run.
    """

    job_id: JobId
    state: int
    record: RunRecord
    steps: tuple[StepRecord, ...] = ()
    exit_status: int = 0
    reason: str = ""
    state_text: str = ""
    failed_node: str = ""
    completing: tuple[int, ...] = ()


class ArrayTasksCancelled(EventBase, frozen=True, tag="untask"):
    """Members that had not started were taken out of an array's pending rest; when none is left the record
    ends."""

    job_id: JobId
    tasks: Ranges
    record: RunRecord
    """One record for all of them (`array_tasks` names them)."""
    state: int = 4
    """CANCELLED, or DEADLINE: how the record ends when none is left."""


class JobRequeued(EventBase, frozen=True, tag="requeue"):
    """The job is pending again, with one more restart; its last run is in `record` (absent when it had ended
    before)."""

    job_id: JobId
    begin_at: UnixTime
    priority: int
    hold: str = ""
    state_text: str = ""
    reason: str = ""
    record: RunRecord | None = None
    steps: tuple[StepRecord, ...] = ()
    completing: tuple[int, ...] = ()
    clauses: tuple[Clause, ...] = ()


class NodesReleased(EventBase, frozen=True, tag="release"):
    """Nothing of the ended run is left on these nodes: their resources are free."""

    job_id: JobId
    nodes: tuple[int, ...]


class JobHeld(EventBase, frozen=True, tag="hold"):
    """The job will not start until it is released; priority 0."""

    job_id: JobId
    by: str
    """user | admin."""


class JobReleased(EventBase, frozen=True, tag="unhold"):
    """The hold is gone."""

    job_id: JobId
    priority: int
    priority_set: bool = False
    """The priority was given by hand, and stands."""


class JobChanged(EventBase, frozen=True, tag="change"):
    """Fields changed by `scontrol update`; None: unchanged."""

    job_id: JobId
    limit_seconds: int | None = None
    time_limit_minutes: int | None = None
    nice: int | None = None
    priority: int | None = None
    priority_set: bool | None = None
    site_factor: int | None = None
    name: str | None = None
    comment: str | None = None
    begin_at: UnixTime | None = None
    clauses: tuple[Clause, ...] | None = None
    clauses_any: bool | None = None
    array_limit: int | None = None
    partitions: tuple[str, ...] | None = None
    requeue: bool | None = None
    deadline_at: UnixTime | None = None
    time_min_minutes: int | None = None
    reservations: tuple[str, ...] | None = None
    exempt: tuple[str, ...] | None = None
    placement: Placement | None = None


class JobEligible(EventBase, frozen=True, tag="eligible"):
    """Nothing but resources stands in its way from now on (dependencies met, begin time reached)."""

    job_id: JobId


class DependencyChanged(EventBase, frozen=True, tag="depend"):
    """Some clauses are fulfilled or have failed for good; `clauses` is the rest."""

    job_id: JobId
    clauses: tuple[Clause, ...]
    never: bool = False


class JobWarned(EventBase, frozen=True, tag="warn"):
    """The signal of --signal was ordered for this run."""

    job_id: JobId


class JobStopped(EventBase, frozen=True, tag="stop"):
    """SIGSTOP (or SIGCONT) went to the whole job."""

    job_id: JobId
    stopped: bool


class JobsPurged(EventBase, frozen=True, tag="purge"):
    """Ended jobs older than MinJobAge left memory."""

    job_ids: tuple[int, ...]


class StepCreated(EventBase, frozen=True, tag="step"):
    """A numbered step has its place in the allocation and is to be launched."""

    step: Step


class StepReported(EventBase, frozen=True, tag="stepresult"):
    """One node says how its part of a step ended; the step goes on elsewhere."""

    job_id: JobId
    step_id: StepId
    result: StepResult


class StepFinished(EventBase, frozen=True, tag="stepdone"):
    """The step has ended on all its nodes."""

    job_id: JobId
    step_id: StepId
    record: StepRecord


class NodeRegistered(EventBase, frozen=True, tag="register"):
    """A node said what it is; the administrative state that follows from it."""

    node: int
    facts: NodeFacts
    down: bool
    drain: bool
    invalid: bool
    reason: str = ""
    reason_uid: int = 0


class NodeChanged(EventBase, frozen=True, tag="node"):
    """Administrative or automatic change of a node's state."""

    node: int
    down: bool
    drain: bool
    fail: bool
    reason: str = ""
    reason_uid: int = 0
    weight: int | None = None
    features: tuple[str, ...] | None = None


class ReservationCreated(EventBase, frozen=True, tag="reserve"):
    """An advance reservation was made."""

    reservation: Reservation


class ReservationChanged(EventBase, frozen=True, tag="rereserve"):
    """An advance reservation was changed, moved on to its next time, or got other nodes."""

    reservation: Reservation


class ReservationDeleted(EventBase, frozen=True, tag="unreserve"):
    """An advance reservation is gone: deleted, over, or purged when nobody used it."""

    name: str
    why: str = "deleted"
    """deleted | ended | purged."""


class JobReservationLost(EventBase, frozen=True, tag="noresv"):
    """A pending job named a reservation that is gone; `reservations` are those that are left to it."""

    job_id: JobId
    reservations: tuple[str, ...] = ()
    hold: bool = True
    """None is left, and it is held."""


Event: TypeAlias = (
    ConfigApplied
    | AccountsApplied
    | UsageReset
    | AccrualChanged
    | JobSubmitted
    | JobStarted
    | ArrayMemberSplit
    | KillOrdered
    | JobPreempted
    | JobBooked
    | JobSuspended
    | JobResumed
    | StepKillOrdered
    | JobFinished
    | ArrayTasksCancelled
    | JobRequeued
    | NodesReleased
    | JobHeld
    | JobReleased
    | JobChanged
    | JobEligible
    | DependencyChanged
    | JobWarned
    | JobStopped
    | JobsPurged
    | StepCreated
    | StepReported
    | StepFinished
    | NodeRegistered
    | NodeChanged
    | ReservationCreated
    | ReservationChanged
    | ReservationDeleted
    | JobReservationLost
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)

encode = _ENCODER.encode
"""Event -> journal payload."""
decode = _DECODER.decode
"""Journal payload -> event; raises msgspec.ValidationError on what is no event."""

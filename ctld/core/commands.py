"""Commands: what may be asked of the controller's state. `decide` turns each into events, or refuses it.

They live only in memory. Who asks stands in each as `by`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ctld.core.accounts import Association, Qos
from ctld.core.cluster import NodeFacts, NodeSpec, PartitionSpec, Settings
from ctld.core.model import Caller, GpuRequest, JobSpec, Placement, Ranges, StepResult
from ctld.core.plan import Plan
from ctld.core.reservations import Access
from muster.ids import JobId, StepId, UnixTime


@dataclass(frozen=True, slots=True)
class ApplyConfig:
    """Take this configuration; no event when nothing changed."""

    settings: Settings
    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...]


@dataclass(frozen=True, slots=True)
class ApplyAccounts:
    """Take this association tree and these QOS; no event when nothing changed.

    Associations are known by user, account and partition, QOS by name: those that are there already keep their
    numbers, others get new ones (the numbers given here only say who is whose parent).
    """

    associations: tuple[Association, ...]
    qos: tuple[Qos, ...]


@dataclass(frozen=True, slots=True)
class ResetUsage:
    """Forget what associations and QOS have used; no event when there is nobody to forget it of."""


@dataclass(frozen=True, slots=True)
class GrantAccrual:
    """Give the slots of accrue limits to these jobs, and take them from those; jobs that wait no more are left out."""

    begin: tuple[int, ...]
    stop: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Submit:
    """Put a job into the queue. `dependency`, `array` and `time` texts are already parsed into the spec
    except the dependency text."""

    spec: JobSpec
    by: Caller
    dependency: str = ""
    nice: int = 0
    hold: bool = False
    priority: int | None = None
    array_limit: int = 0
    qos_given: bool = True
    """False: the QOS is the association's default, whatever the spec says."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job: `tasks` selects members of the array `job_id` (None: the job, or the whole array)."""

    job_id: JobId
    by: Caller
    tasks: Ranges | None = None


@dataclass(frozen=True, slots=True)
class CancelStep:
    """End one step at once."""

    job_id: JobId
    step_id: StepId
    by: Caller


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold a job (an array's pending rest, or with `tasks` some members, which are split off)."""

    job_id: JobId
    by: Caller
    tasks: Ranges | None = None
    as_user: bool = False
    """uhold: an administrator's hold that the owner may release."""


@dataclass(frozen=True, slots=True)
class Release:
    """Release a held job."""

    job_id: JobId
    by: Caller
    tasks: Ranges | None = None


@dataclass(frozen=True, slots=True)
class Requeue:
    """Send a running or ended batch job back to the queue."""

    job_id: JobId
    by: Caller
    tasks: Ranges | None = None
    hold: bool = False


COMPUTED = (1 << 32) - 1
"""The priority that takes back one given by hand (INFINITE)."""


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Change a job's fields; None: unchanged. Times are absolute, limits in minutes (-1 unlimited)."""

    job_id: JobId
    by: Caller
    tasks: Ranges | None = None
    time_limit_minutes: int | None = None
    nice: int | None = None
    priority: int | None = None
    """COMPUTED: as computed again; 0: held."""
    site_factor: int | None = None
    name: str | None = None
    comment: str | None = None
    begin_at: UnixTime | None = None
    dependency: str | None = None
    array_limit: int | None = None
    partition: str | None = None
    requeue: bool | None = None
    deadline_at: UnixTime | None = None
    time_min_minutes: int | None = None
    reservations: tuple[str, ...] | None = None
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class NoteStopped:
    """SIGSTOP or SIGCONT was sent to a whole job."""

    job_id: JobId
    by: Caller
    stopped: bool


@dataclass(frozen=True, slots=True)
class Suspend:
    """`scontrol suspend`: stop the job's processes; it keeps its nodes, memory and devices, and gives its CPUs up."""

    job_id: JobId
    by: Caller
    tasks: Ranges | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """`scontrol resume`."""

    job_id: JobId
    by: Caller
    tasks: Ranges | None = None


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """A node's stream came up. `runs` are the (job_id, run) of which it has anything, running or finished and
    not yet acknowledged; runs that the state has on this node are ended (NODE_FAIL or requeue) if the node
    booted since, else what the node does not know is launched again by the dispatcher."""

    name: str
    facts: NodeFacts
    runs: frozenset[tuple[int, int]] = frozenset()
    ended_runs: frozenset[tuple[int, int]] = frozenset()
    """Those of them whose batch script has ended there: their outcome survives a boot, and is yet to be reported."""


@dataclass(frozen=True, slots=True)
class LoseNodes:
    """These nodes were silent for the whole time-out: DOWN, their runs end with NODE_FAIL or are requeued."""

    nodes: tuple[int, ...]
    reason: str = "Not responding"


@dataclass(frozen=True, slots=True)
class UpdateNode:
    """`scontrol update NodeName=`: state word in upper case (DRAIN, DOWN, FAIL, RESUME, UNDRAIN, IDLE),
    reason, weight."""

    nodes: tuple[int, ...]
    by: Caller
    state: str | None = None
    reason: str | None = None
    weight: int | None = None
    features: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """Start what a scheduling pass chose; each start is checked against the state of this moment, stale ones
    are dropped."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class FinishBatch:
    """The batch step of a run has ended on its first node (or could not be launched: `error`). Nothing of the
    job is left on that node."""

    job_id: JobId
    run: int
    result: StepResult


@dataclass(frozen=True, slots=True)
class LoseBatch:
    """A node that stands registered does not know a run whose launch it had acknowledged."""

    job_id: JobId
    run: int
    why: str


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """A node says that nothing of an ended run is left on it."""

    job_id: JobId
    run: int
    node: int


@dataclass(frozen=True, slots=True)
class CreateStep:
    """Make a step inside a running allocation; see `StepRequest`."""

    job_id: JobId
    by: Caller
    request: StepRequest


@dataclass(frozen=True, slots=True)
class StepRequest:
    """What srun asks for; 0 and empty mean not given (inherited from the job)."""

    name: str
    argv: tuple[str, ...]
    nodes_min: int = 0
    nodes_max: int = 0
    ntasks: int = 0
    ntasks_per_node: int = 0
    cpus_per_task: int = 0
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    relative: int = -1
    exact: bool = False
    overlap: bool = False
    gpus_per_node: int = -1
    """-1: all that the job has there; 0: none."""
    memory_mib: int = 0
    limit_minutes: int = 0
    kill_on_bad_exit: bool = False
    distribution: str = ""
    environment: bytes = b""
    launch: bytes = b""


@dataclass(frozen=True, slots=True)
class FinishStep:
    """One node says how its part of a step ended."""

    job_id: JobId
    run: int
    step_id: StepId
    result: StepResult


@dataclass(frozen=True, slots=True)
class ReservationAsk:
    """What is asked for of a reservation, read but not judged; None: not given (unchanged)."""

    name: str = ""
    start_at: UnixTime | None = None
    end_at: UnixTime | None = None
    duration_seconds: int | None = None
    float_seconds: int | None = None
    """Start of one with TIME_FLOAT, from now on."""
    nodes: str | None = None
    """A host list, or ALL."""
    node_count: int | None = None
    core_counts: tuple[int, ...] | None = None
    cpus: int | None = None
    """In all; whole cores are taken."""
    gpus: tuple[GpuRequest, ...] | None = None
    """In all."""
    gpus_per_node: tuple[GpuRequest, ...] | None = None
    partition: str | None = None
    features: str | None = None
    licenses: tuple[tuple[str, int], ...] | None = None
    users: Access | None = None
    groups: Access | None = None
    accounts: Access | None = None
    qos: Access | None = None
    partitions: Access | None = None
    flags: tuple[str, ...] | None = None
    purge_seconds: int | None = None
    comment: str | None = None
    skip: bool = False
    """Move a recurring one on to its next time."""
    add: frozenset[str] = frozenset()
    """Of users, accounts, flags: those given are added to what is there."""
    remove: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Make an advance reservation."""

    ask: ReservationAsk
    by: Caller


@dataclass(frozen=True, slots=True)
class UpdateReservation:
    """Change an advance reservation."""

    ask: ReservationAsk
    by: Caller


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Delete an advance reservation that nobody uses or waits for."""

    name: str
    by: Caller


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: time limits, warnings, begin times, dependencies with minutes, purging of old jobs,
    orphaned allocations."""

    limit: int = 10_000
    """Most events to decide at once; the rest follows with the next tick."""
    overuse: bool = False
    """Look also for running jobs whose group has used up its minutes."""


Command: TypeAlias = (
    ApplyConfig
    | ApplyAccounts
    | ResetUsage
    | GrantAccrual
    | Submit
    | Cancel
    | CancelStep
    | Hold
    | Release
    | Requeue
    | UpdateJob
    | NoteStopped
    | Suspend
    | Resume
    | RegisterNode
    | LoseNodes
    | UpdateNode
    | ApplyPlan
    | FinishBatch
    | LoseBatch
    | ReleaseNode
    | CreateStep
    | FinishStep
    | CreateReservation
    | UpdateReservation
    | DeleteReservation
    | Tick
)

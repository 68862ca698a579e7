"""The controller's records: what a job, its allocation and a step are. Frozen; a change makes a new record. Those
of nodes, partitions and settings stand in `ctld.core.cluster`.

They are journaled and checkpointed as they stand (msgpack maps with defaults left out), so a new field needs
a default, and a field is never given a second meaning. Numbers of whole sets (array members, cores) are kept
as flat ranges `(lo, hi, lo, hi, ...)`, both ends inside: an array of a million members costs what one member
costs.
"""

from __future__ import annotations

import msgspec

from muster.ids import NO_TASK, JobId, StepId, UnixTime

Ranges = tuple[int, ...]
"""Sorted disjoint ranges, flat: (lo, hi, lo, hi, ...), both ends inside."""

UNLIMITED = -1


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all stored records."""


class Caller(Record, frozen=True):
    """Who asks, as the kernel or the channel says; never taken from a message's body."""

    uid: int
    gid: int
    admin: bool = False
    """root or the controller's own user, on a host that may act for administrators."""
    host: str = ""
    groups: tuple[str, ...] = ()
    """Names of the user's groups beyond the primary one, where a decision may ask for them (submit, update)."""


class GpuRequest(Record, frozen=True):
    """A count of GPUs of one type (empty: any)."""

    type: str
    count: int


class GresRequest(Record, frozen=True):
    """A count of a generic resource other than GPUs, of one type (empty: any)."""

    name: str
    count: int
    type: str = ""


class FineRequest(Record, frozen=True):
    """The rare rules of a request: which cores and devices of a node, not only how many. Apart from `Request`, so
    that plain shapes stay small to compare."""

    gres: tuple[GresRequest, ...] = ()
    """Of each node, without GPUs."""
    gres_per_task: tuple[GresRequest, ...] = ()
    gpus_per_socket: tuple[GpuRequest, ...] = ()
    """Stands in `Request.gpus_per_node` too, times `sockets_per_node`."""
    gres_flags: tuple[str, ...] = ()
    """Of enforce-binding, disable-binding, one-task-per-sharing, multiple-tasks-per-sharing, allow-task-sharing."""
    sockets_per_node: int = 0
    """Nodes with fewer will not do; 0: any, as in the next two."""
    cores_per_socket: int = 0
    threads_per_core: int = 0
    """... and no more threads of a core are used."""
    ntasks_per_core: int = 0
    """Most tasks on a core; 0: no bound, as in the next two."""
    ntasks_per_socket: int = 0
    cores_in_socket: int = 0
    """Most cores that a job takes of a socket (--hint=memory_bound)."""
    core_spec: int = -1
    """Cores of each node that are left to the system (--core-spec); -1: not given."""
    thread_spec: int = -1
    one_cpu: bool = False
    """One CPU a task was asked for in so many words, so that DefCpuPerGPU does not hold."""


class Request(Record, frozen=True):
    """The shape of a job: what it needs, nothing about who or when. Equal shapes are one scheduling class."""

    nodes_min: int = 1
    nodes_max: int = 0
    """0: not given (as many as needed)."""
    ntasks: int = 0
    """0: not given."""
    ntasks_per_node: int = 0
    cpus_per_task: int = 1
    min_cpus: int = 0
    """CPUs that each node must give at least (--mincpus)."""
    memory_per_node_mib: int = -1
    """-1: not given (configured default); 0: all memory of each node."""
    memory_per_cpu_mib: int = 0
    memory_per_gpu_mib: int = 0
    tmp_mib: int = 0
    gpus_per_node: tuple[GpuRequest, ...] = ()
    gpus: tuple[GpuRequest, ...] = ()
    """For the whole job."""
    gpus_per_task: tuple[GpuRequest, ...] = ()
    cpus_per_gpu: int = 0
    ntasks_per_gpu: int = 0
    constraint: str = ""
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclusive: str = ""
    """"" | node | user."""
    time_min_minutes: int = 0
    """--time-min: the run may be planned, and limited, as short as that; 0: not given."""
    oversubscribe: bool = False
    overcommit: bool = False
    reservations: tuple[str, ...] = ()
    """Advance reservations that it may run in, in the order in which they are tried."""
    prefer: str = ""
    """A constraint that is tried first and dropped where the job cannot start with it at once."""
    topology: str = ""
    """--topology: required:LEVEL, preferred:LEVEL or unconstrained."""
    switches: int = 0
    """Most leaf switches; 0: any number."""
    switches_wait_seconds: int = -1
    """How long to wait for so few switches; -1: max_switch_wait."""
    segment: int = 0
    """Nodes of a segment; 0: none."""
    segment_level: str = ""
    """Level in which each segment lies; empty: the lowest that is large enough."""
    spread_segments: bool = False
    consolidate_segments: bool = False
    contiguous: bool = False
    spread_job: bool = False
    """As many nodes as possible."""
    use_min_nodes: bool = False
    """Of a range of node counts the smallest."""
    licenses: str = ""
    """As `ctld.core.licenses` prints them: `a:2,b:1` all, `a:2|b:1` any one."""
    fine: FineRequest | None = None


class Placement(Record, frozen=True):
    """Where nodes lie, as an update changes it in a request: fields of `Request`; None: unchanged."""

    prefer: str | None = None
    topology: str | None = None
    switches: int | None = None
    switches_wait_seconds: int | None = None
    segment: int | None = None
    segment_level: str | None = None
    contiguous: bool | None = None

    def given(self) -> dict[str, object]:
        """Give the fields that are changed."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


class SignalSpec(Record, frozen=True):
    """--signal: warn the job `seconds` before its end."""

    signo: int
    seconds: int = 60
    shell_only: bool = False


class ArraySpec(Record, frozen=True):
    """An array as submitted; `Job.array_pending` says what of it has not started."""

    tasks: Ranges
    size: int
    step: int = 1


class Clause(Record, frozen=True):
    """One dependency: `kind:job_id[_task][+minutes]`; singleton has job_id 0."""

    kind: str
    """after | afterany | afterok | afternotok | aftercorr | singleton."""
    job_id: int = 0
    task_id: int = NO_TASK
    """A member of an array target; NO_TASK: the whole job or array."""
    minutes: int = 0
    failed: bool = False


class JobSpec(Record, frozen=True):
    """A job as its owner asked for it; shared by all members of an array."""

    name: str
    uid: int
    gid: int
    user: str
    group: str
    work_dir: str
    request: Request
    partitions: tuple[str, ...]
    account: str = ""
    qos: str = "normal"
    batch: bool = True
    """False: an allocation for srun (its step 0 ends the job)."""
    script: bytes = b""
    """Hash of the script's blob."""
    environment: bytes = b""
    """Hash of the blob of the environment: NAME=value entries, each ended by NUL."""
    script_args: tuple[str, ...] = ()
    std_in: str = ""
    std_out: str = ""
    """Pattern as asked; empty: the default name."""
    std_err: str = ""
    open_mode: str = ""
    """"a", "t" or empty (configured default)."""
    command: str = ""
    """Path of the script, for show job; empty for --wrap and standard input."""
    submit_line: str = ""
    submit_host: str = ""
    sid: int = 0
    comment: str = ""
    wckey: str = ""
    exempt: tuple[str, ...] = ()
    """What an administrator gave beyond what the owner may have: `time` (over MaxWall), `qos` (not open to the
    association)."""
    time_limit_minutes: int = 0
    """As asked: 0 not given, -1 unlimited."""
    begin_at: UnixTime = UnixTime(0)
    deadline_at: UnixTime = UnixTime(0)
    """--deadline: the job is removed when it cannot end by then; 0: none."""
    signal: SignalSpec | None = None
    requeue: bool = True
    kill_invalid_depend: bool = False
    array: ArraySpec | None = None
    umask: int = 0o022
    rlimits: dict[str, int] = {}
    """Soft limits to set in the job by lower-case name without RLIMIT_: {"nofile": 1024}; -1 is infinity."""
    export: str = ""
    """Text of --export unless ALL: goes into SLURM_EXPORT_ENV."""
    get_user_env: bool = False
    echo: dict[str, str] = {}
    """SLURM_* variables that repeat given options inside the job (SLURM_GPUS, SLURM_NTASKS_PER_NODE, ...)."""
    tasks_given: bool = False
    """A number of tasks was asked for, of the job or by node or GPU: the job then sees SLURM_NTASKS."""


class GresShare(Record, frozen=True):
    """What an allocation has of a generic resource other than whole GPUs on one node."""

    name: str
    count: int
    type: str = ""
    indices: Ranges = ()
    """Devices by index; of shards the GPU that they are on; empty: only counted."""
    opens: bool = False
    """Shards: the GPU was nobody's before, and cannot be had as a whole while they are held."""


class NodeShare(Record, frozen=True):
    """What an allocation has on one node."""

    node: int
    """Index in the node table."""
    cpus: int
    cores: Ranges
    """Core numbers (whole cores; each has ThreadsPerCore CPUs)."""
    memory_mib: int = 0
    gpus: Ranges = ()
    """GPU indexes."""
    tasks: int = 1
    gres: tuple[GresShare, ...] = ()
    row: int = 0
    """0: the cores are the job's alone; else others of its partition may have them too, each row once."""


class Allocation(Record, frozen=True):
    """The nodes of a run, in node-table order."""

    partition: str
    shares: tuple[NodeShare, ...]
    planned_by: str = "Main"
    """Main or Backfill: which pass started it."""
    reservation: str = ""
    """The advance reservation that it runs in."""
    licenses: str = ""
    """What it holds of them: `a:2,b:1`."""


class Kill(Record, frozen=True):
    """An order to end a run: TERM, then KILL after KillWait (or KILL at once)."""

    state: int
    """Base state that the run will end in (CANCELLED, TIMEOUT, NODE_FAIL, ...)."""
    at: UnixTime
    by: int = -1
    """uid of who cancelled it."""
    why: str = "SIGNAL"
    """SIGNAL (scancel), TIME LIMIT, JOB REQUEUE, NODE FAILURE: the words of the line on the job's stderr."""
    now: bool = False
    """KILL at once."""
    requeue: bool = False
    """The job goes back to the queue when the run has ended."""
    hold: bool = False
    """... and is held there."""


class Preempted(Record, frozen=True):
    """A run was chosen to make room for another job."""

    mode: str
    """CANCEL | REQUEUE | SUSPEND: what becomes of it."""
    at: UnixTime
    ends_at: UnixTime
    """When its grace is over and its end is ordered."""
    by: int = 0
    """Job id of the preemptor (of an array its own)."""


class Booking(Record, frozen=True):
    """What a waiting job was promised when others were preempted for it: it starts there once all of it is free."""

    partition: str
    shares: tuple[NodeShare, ...]
    at: UnixTime
    starts_at: UnixTime = UnixTime(0)
    """When the grace of all victims and KillWait are over."""
    task_id: int = NO_TASK
    """Member to start, of an array."""


class Job(Record, frozen=True):
    """A job: its spec and all that has become of it. A pending array is one record."""

    id: JobId
    spec: JobSpec
    submitted_at: UnixTime
    priority: int
    """Larger first; 0 means held."""
    priority_set: bool = False
    """Given by hand: it stands as it is and is not computed."""
    state: int = 0
    """A muster.states.JobState."""
    flags: int = 0
    nice: int = 0
    site_factor: int = 0
    """Added to a computed priority as it is."""
    hold: str = ""
    """"" | user | admin."""
    eligible_at: UnixTime = UnixTime(0)
    """First time it could start as far as dependencies, begin time and holds go; 0: not yet."""
    accrues_at: UnixTime = UnixTime(0)
    """When its age began to count anew, by a release or by a free slot of an accrue limit; 0: with its being eligible;
    below 0: it waits for a slot."""
    begin_at: UnixTime = UnixTime(0)
    started_at: UnixTime = UnixTime(0)
    ended_at: UnixTime = UnixTime(0)
    limit_seconds: int = UNLIMITED
    """In force for the run (or for the next one)."""
    array_job_id: int = 0
    """0: no array. The record that keeps the array's own id is its pending rest, and later its last
    member."""
    array_task_id: int = NO_TASK
    array_pending: Ranges = ()
    array_limit: int = 0
    """Most members that may run at once; 0: no limit."""
    clauses: tuple[Clause, ...] = ()
    """Dependencies not yet fulfilled."""
    clauses_any: bool = False
    """One of them suffices (written with ?)."""
    restarts: int = 0
    alloc: Allocation | None = None
    kill: Kill | None = None
    completing: tuple[int, ...] = ()
    """Node indexes that have not yet said that nothing of the run is left there."""
    exit_status: int = 0
    """Wait status word: code << 8 | signal."""
    derived_status: int = 0
    reason: str = ""
    """Why it ended, or a lasting reason of a pending job; passing reasons are an overlay outside the
    state."""
    state_text: str = ""
    """Free text that replaces the reason where it is shown."""
    failed_node: str = ""
    next_step: int = 0
    warned: bool = False
    """--signal was sent in this run."""
    preempted: Preempted | None = None
    """Its run was chosen as a victim."""
    booking: Booking | None = None
    """What it was promised, while it waits for its victims to go."""
    suspended_at: UnixTime = UnixTime(0)
    """When its run was last suspended; 0: never."""
    suspended_seconds: int = 0
    """Of its run, without a suspension that goes on."""
    cpus_gone: bool = False
    """Its run ended while it stood still: what is being cleaned up holds no CPUs."""


class Step(Record, frozen=True):
    """A numbered step (srun). The batch script is no Step record: it begins and ends with its run."""

    job_id: JobId
    step_id: StepId
    name: str
    uid: int
    created_at: UnixTime
    shares: tuple[NodeShare, ...]
    """`tasks` holds the task count on each node; cpus/cores/gpus what the step may use there."""
    ntasks: int
    cpus_per_task: int = 1
    argv: tuple[str, ...] = ()
    ranks: tuple[Ranges, ...] = ()
    """Ranks on each node of `shares`, as ranges."""
    overlap: bool = False
    limit_seconds: int = UNLIMITED
    environment: bytes = b""
    """Hash of the blob of srun's environment."""
    launch: bytes = b""
    """msgpack of the launch options that only the nodes need (stdio modes, umask, ...)."""
    kill: Kill | None = None
    kill_on_bad_exit: bool = False
    results: tuple[StepResult, ...] = ()
    """One for each node that has reported."""


class TaskResult(Record, frozen=True):
    """How one task ended."""

    rank: int
    status: int
    """Wait status word."""


class StepResult(Record, frozen=True):
    """What one node says of a step that ended there."""

    node: int
    tasks: tuple[TaskResult, ...] = ()
    started_at: UnixTime = UnixTime(0)
    ended_at: UnixTime = UnixTime(0)
    user_ms: int = 0
    system_ms: int = 0
    max_rss_bytes: int = 0
    oom: bool = False
    error: str = ""
    """Launch failure in one sentence; empty when the tasks ran."""
    node_at_fault: bool = False
    """No step can be begun there, as on a full disk."""

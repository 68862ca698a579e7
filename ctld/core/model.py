"""The controller's records: what a job, a node, a partition and a step are. Frozen; a change makes a new
record.

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


class Device(Record, frozen=True):
    """Equal devices of a node: a line of gres.conf, or what Gres= of the node line says where no line does."""

    name: str
    count: int
    type: str = ""
    first: int = -1
    """Index of the first; -1: they are only counted, not told apart."""
    each: int = 0
    """Shards and their like: how many on each of the GPUs `first`, `first + 1`, ..."""
    cores: Ranges = ()
    """Cores near them; empty: all are equally near."""
    links: tuple[int, ...] = ()
    """Links to device 0, 1, ...; -1 stands for itself."""
    files: tuple[str, ...] = ()
    no_consume: bool = False
    """Nodes must have them; jobs do not use them up."""


class NodeSpec(Record, frozen=True):
    """A node as configured."""

    name: str
    hostname: str = ""
    addr: str = ""
    port: int = 0
    cpus: int = 1
    boards: int = 1
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    memory_mib: int = 1
    tmp_mib: int = 0
    weight: int = 1
    features: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """Type of each GPU by index; "" where no type is given."""
    state: str = "UNKNOWN"
    """State= of the node line: UNKNOWN, DOWN, DRAIN, FAIL, FUTURE."""
    reason: str = ""
    devices: tuple[Device, ...] = ()
    """All generic resources but GPUs of which nothing is known but type and number (those stand in `gpus`)."""
    core_spec_count: int = 0
    """Cores kept for the system (see `ctld.core.free.reserved_cores`)."""
    cpu_spec_list: Ranges = ()
    memory_spec_mib: int = 0
    """Memory kept for the system."""
    restricted_cores_per_gpu: int = 0
    """Cores near each GPU that only jobs with GPUs may have."""


class NodeFacts(Record, frozen=True):
    """What a node says of itself when it registers."""

    hostname: str = ""
    addr: str = ""
    port: int = 0
    version: str = ""
    arch: str = ""
    os: str = ""
    boot_at: UnixTime = UnixTime(0)
    boot_id: str = ""
    """The kernel's id of this boot."""
    agent_started_at: UnixTime = UnixTime(0)
    cpus: int = 0
    sockets: int = 0
    cores_per_socket: int = 0
    threads_per_core: int = 0
    memory_mib: int = 0
    tmp_mib: int = 0
    gpus: tuple[str, ...] = ()


class Node(Record, frozen=True):
    """A node: configuration, registration, administrative state. Use is derived (`State.free`), reachability
    is an overlay."""

    index: int
    spec: NodeSpec
    facts: NodeFacts | None = None
    """None until the first registration."""
    down: bool = False
    drain: bool = False
    fail: bool = False
    invalid: bool = False
    """Registered with less than configured."""
    reason: str = ""
    reason_uid: int = 0
    reason_at: UnixTime = UnixTime(0)
    last_busy_at: UnixTime = UnixTime(0)


class PartitionSpec(Record, frozen=True):
    """A partition."""

    name: str
    nodes: tuple[int, ...]
    """Node indexes, ascending."""
    default: bool = False
    state: str = "UP"
    max_minutes: int = UNLIMITED
    default_minutes: int = 0
    """0: not set (then max_minutes)."""
    min_nodes: int = 0
    max_nodes: int = UNLIMITED
    priority_tier: int = 1
    priority_job_factor: int = 1
    allow_groups: tuple[str, ...] = ()
    """Empty: all."""
    allow_accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    exclusive: str = "NO"
    """NO | NODE | USER."""
    oversubscribe: str = "NO"
    oversubscribe_jobs: int = 1
    """Jobs that may share a CPU."""
    max_cpus_per_node: int = UNLIMITED
    """Of all jobs of the partition together, as the next one."""
    max_cpus_per_socket: int = UNLIMITED
    def_cpus_per_gpu: int = 0
    """0: the cluster's."""
    def_memory_per_gpu_mib: int = 0
    def_memory_per_node_mib: int = 0
    def_memory_per_cpu_mib: int = 0
    max_memory_per_node_mib: int = 0
    max_memory_per_cpu_mib: int = 0
    root_only: bool = False
    disable_root_jobs: bool = False
    hidden: bool = False
    billing_weights: dict[str, float] = {}
    """TRESBillingWeights, of mem for each MiB; empty: the allocated CPUs are billed."""
    qos: str = ""
    """The partition's own QOS, whose limits hold for all its jobs; empty: none."""
    topology: str = ""
    """Name of one of the settings' topologies; empty: the first."""
    default_topology: str = ""
    """What --topology is where a job does not say."""
    lln: bool = False
    """Least loaded nodes first."""
    preempt_mode: str = ""
    """OFF | CANCEL | REQUEUE | SUSPEND; empty: the cluster's."""
    grace_seconds: int = 0


class Preemption(Record, frozen=True):
    """Who may preempt whom, and how: PreemptType, PreemptMode, PreemptParameters, PreemptExemptTime."""

    rule: str = ""
    """"" (nobody) | partition_prio | qos."""
    mode: str = "OFF"
    """OFF | CANCEL | REQUEUE | SUSPEND: where partition or QOS name none."""
    by_priority: bool = False
    """PRIORITY: the preemptor's job priority counts too."""
    within: bool = False
    """WITHIN: jobs of one QOS may preempt each other by priority."""
    exempt_seconds: int = 0
    """A run is not preempted before it lasted so long; -1: not set."""
    min_exempt_priority: int = -1
    """Jobs of a higher priority are never preempted; -1: not set."""
    reorder_count: int = 1
    strict_order: bool = False
    youngest_first: bool = False
    cost_aware: bool = False
    send_user_signal: bool = False
    suspend_grace_seconds: int = 2
    """Between SIGTSTP and SIGSTOP."""


class PrioritySettings(Record, frozen=True):
    """What priorities are computed from (PriorityType, PriorityWeight..., PriorityFlags and their like)."""

    multifactor: bool = True
    """PriorityType=priority/multifactor; else order of submission."""
    age: int = 0
    """This and the following are weights."""
    assoc: int = 0
    fairshare: int = 0
    job_size: int = 0
    partition: int = 0
    qos: int = 0
    tres: dict[str, float] = {}
    half_life_seconds: int = 604800
    """0: usage does not decay."""
    calc_period_seconds: int = 300
    max_age_seconds: int = 604800
    favor_small: bool = False
    flags: tuple[str, ...] = ()
    """Of PriorityFlags, NO_NORMAL_ALL taken apart."""
    usage_reset: str = "NONE"
    """PriorityUsageResetPeriod."""
    dampening: int = 1
    """FairShareDampeningFactor."""

    @property
    def computes(self) -> bool:
        """Whether there is anything to compute: multifactor, and a weight that is not 0."""
        weights = (self.age, self.assoc, self.fairshare, self.job_size, self.partition, self.qos, *self.tres.values())
        return self.multifactor and any(weights)


class SwitchSpec(Record, frozen=True):
    """A switch of a tree topology."""

    name: str
    level: int = 0
    """0: a leaf."""
    nodes: Ranges = ()
    """Node indexes below it."""
    switches: tuple[str, ...] = ()
    """The switches right below it."""


class BlockSpec(Record, frozen=True):
    """A base block, or a ring."""

    name: str
    nodes: Ranges


class TopologySpec(Record, frozen=True):
    """How nodes hang together."""

    name: str = "default"
    kind: str = "flat"
    """flat | tree | block | ring."""
    switches: tuple[SwitchSpec, ...] = ()
    blocks: tuple[BlockSpec, ...] = ()
    """Base blocks, or rings, in the order of the configuration."""
    block_sizes: tuple[int, ...] = ()
    """Base size first, each a power-of-two multiple of it."""
    levels: tuple[str, ...] = ()
    """Names of the levels, coarse to fine; the last is that of the leaves or base blocks."""


class Settings(Record, frozen=True):
    """The cluster-wide settings that decisions depend on (a part of the configuration, journaled with it)."""

    cluster: str = "cluster"
    first_job_id: int = 1
    max_job_id: int = 67043328
    max_job_count: int = 10000
    max_array_size: int = 1001
    max_step_count: int = 40000
    max_tasks_per_node: int = 512
    min_job_age_seconds: int = 300
    kill_wait_seconds: int = 30
    node_timeout_seconds: int = 300
    batch_start_timeout_seconds: int = 10
    requeue_delay_seconds: int = 120
    max_batch_requeue: int = 5
    job_requeue: bool = True
    job_file_append: bool = False
    kill_on_bad_exit: bool = False
    kill_invalid_depend: bool = False
    enforce_part_limits: str = "NO"
    return_to_service: int = 0
    over_time_minutes: int = 0
    memory_consumable: bool = True
    def_memory_per_node_mib: int = 0
    def_memory_per_cpu_mib: int = 0
    max_memory_per_node_mib: int = 0
    max_memory_per_cpu_mib: int = 0
    max_script_bytes: int = 4194304
    gres_names: tuple[str, ...] = ("gpu",)
    accounting_enforce: tuple[str, ...] = ()
    """Of associations, limits, qos, safe, ...: what AccountingStorageEnforce says, with what that implies."""
    limit_stops_partition: bool = False
    """SchedulerParameters=assoc_limit_stop: behind a job that a limit keeps back nothing of its partition starts."""
    backfill: bool = True
    """False (SchedulerType=sched/builtin): nothing of a partition starts behind a job that has to wait there."""
    priority: PrioritySettings = PrioritySettings()
    licenses: dict[str, int] = {}
    allow_zero_licenses: bool = False
    """More licences than there are may be asked for, and are waited for."""
    select_flags: tuple[str, ...] = ()
    """Of SelectTypeParameters, in lower case, what is not the default."""
    def_cpus_per_gpu: int = 0
    def_memory_per_gpu_mib: int = 0
    allow_spec_resources: bool = False
    require_registration: bool = True
    administrators: tuple[int, ...] = (0,)
    """uids of root and of the controller's own user."""
    clock_changes: tuple[tuple[int, int], ...] = ()
    """Local time here: see `ctld.core.localtime`; empty: UTC."""
    reservation_over_run_minutes: int = 0
    """So long jobs may run on behind the end of their reservation; -1: for ever."""
    topologies: tuple[TopologySpec, ...] = ()
    """The default one first; none: flat."""
    topology_optional: bool = False
    """TopologyParam=TopoOptional: only jobs with --switches or --topology look at the tree."""
    max_switch_wait_seconds: int = 300
    lln: bool = False
    """CR_LLN: least loaded nodes first."""
    pack_serial_at_end: bool = False
    pack_weights: tuple[tuple[str, float], ...] = ()
    """Of GPU_BINPACK by TRES (cpu, mem, gres/gpu); empty: best fit."""
    preemption: Preemption = Preemption()

"""The records of the cluster: nodes, partitions, topologies and the settings, as configured and as nodes register.

Stored like those of `ctld.core.model`, by the same rules.
"""

from __future__ import annotations

import msgspec

from ctld.core.model import UNLIMITED, Ranges, Record
from muster.ids import UnixTime


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
    billing_weights: dict[str, float] = msgspec.field(default_factory=dict)
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


class Planning(Record, frozen=True):
    """How the calendar is made: the bf_* options of SchedulerParameters; 0: not set, no bound."""

    window_seconds: int = 0
    """Starts that lie further ahead are not looked for."""
    resolution_seconds: int = 0
    """Starts in the future are multiples of it; 0: exact."""
    jobs: int = 0
    """Most jobs that are planned, first ones first."""
    jobs_of_user: int = 0
    jobs_of_partition: int = 0
    jobs_of_association: int = 0
    jobs_of_user_in_partition: int = 0
    array_members: int = 20
    """Most members of one array that are planned ahead."""
    reserving_in_partition: int = 0
    """Most jobs of a partition for which nodes are kept; the others get an estimate."""
    busy_nodes: bool = False
    """Starts in the future prefer nodes that are in use."""


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
    tres: dict[str, float] = msgspec.field(default_factory=dict)
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
    licenses: dict[str, int] = msgspec.field(default_factory=dict)
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
    any_constraint: bool = False
    """SchedulerParameters=ignore_constraint_validation: features that no node has (yet) may be asked for."""
    any_prefer: bool = False
    """... ignore_prefer_validation: the same for --prefer."""
    lln: bool = False
    """CR_LLN: least loaded nodes first."""
    pack_serial_at_end: bool = False
    pack_weights: tuple[tuple[str, float], ...] = ()
    """Of GPU_BINPACK by TRES (cpu, mem, gres/gpu); empty: best fit."""
    preemption: Preemption = Preemption()
    max_queue_wait_seconds: int = -1
    """SchedulerParameters=max_queue_wait: a job that waited longer stands first in its tier; below 0: no bound."""
    planning: Planning = Planning()

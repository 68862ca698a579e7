"""The configuration as frozen records. Memory is MiB, times are what the name says, None stands for unlimited.

Names of nodes are expanded and in the order of the file everywhere. Only msgspec is imported, so that pure code
may take these records.
"""

from __future__ import annotations

import msgspec


class Controller(msgspec.Struct, frozen=True, gc=False):
    """A SlurmctldHost: the first is primary, the rest stand by in order."""

    host: str
    addr: str
    """Where to reach it; the host name unless given in parentheses."""


class Gres(msgspec.Struct, frozen=True, gc=False):
    """Countable devices of a node; `type` is empty when the line names none."""

    name: str
    type: str
    count: int
    no_consume: bool = False
    """Jobs need it and do not use it up."""


class NodeConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One node, as configured: what registers must have at least this."""

    name: str
    hostname: str
    addr: str
    port: int
    cpus: int = 1
    boards: int = 1
    sockets: int = 1
    """Of the whole node."""
    cores_per_socket: int = 1
    threads_per_core: int = 1
    real_memory_mib: int = 1
    tmp_disk_mib: int = 0
    weight: int = 1
    features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    state: str = "UNKNOWN"
    """UNKNOWN, DOWN, DRAIN, FAIL, FAILING, CLOUD or FUTURE."""
    reason: str = ""
    core_spec_count: int = 0
    cpu_spec_list: tuple[int, ...] = ()
    mem_spec_limit_mib: int = 0
    restricted_cores_per_gpu: int = 0
    configured_by_cpus: bool = False
    """Neither sockets, cores nor threads were given: the layout is a guess that registration may replace."""


class PartitionConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One partition; a limit that the line does not set is None where the cluster's then holds."""

    name: str
    nodes: tuple[str, ...] = ()
    """In the order of the file's NodeName lines."""
    default: bool = False
    state: str = "UP"
    """UP, DOWN, DRAIN or INACTIVE."""
    max_time_minutes: int | None = None
    default_time_minutes: int | None = None
    """MaxTime unless given."""
    min_nodes: int = 0
    max_nodes: int | None = None
    priority_tier: int = 1
    priority_job_factor: int = 1
    allow_groups: tuple[str, ...] | None = None
    """None: every group. The same holds for the two below."""
    allow_accounts: tuple[str, ...] | None = None
    allow_qos: tuple[str, ...] | None = None
    deny_accounts: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    alternate: str = ""
    qos: str = ""
    oversubscribe: str = "NO"
    """NO, YES or FORCE, for CPUs only."""
    oversubscribe_jobs: int = 1
    """Jobs that may share a CPU."""
    exclusive: str = "NO"
    """NO, NODE, USER or TOPO."""
    preempt_mode: str = ""
    """OFF, CANCEL, REQUEUE or SUSPEND; empty: the cluster's."""
    grace_time_seconds: int = 0
    billing_weights: dict[str, float] = {}
    """By TRES, memory per MiB; empty: billing is the number of CPUs."""
    def_mem_per_node_mib: int | None = None
    def_mem_per_cpu_mib: int | None = None
    def_mem_per_gpu_mib: int | None = None
    max_mem_per_node_mib: int | None = None
    max_mem_per_cpu_mib: int | None = None
    def_cpus_per_gpu: int | None = None
    max_cpus_per_node: int | None = None
    max_cpus_per_socket: int | None = None
    over_time_limit_minutes: int | None = None
    """None: the cluster's; -1: unlimited."""
    lln: bool = False
    root_only: bool = False
    require_reservation: bool = False
    hidden: bool = False
    disable_root_jobs: bool | None = None
    topology: str = ""
    default_topology: str = ""
    """What --topology is where a job does not say."""
    node_sets: str = ""
    """Nodes= as written, for display."""


class GresLine(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One line of gres.conf; `nodes` None means every node."""

    nodes: tuple[str, ...] | None = None
    autodetect: str = ""
    """nvml, nvidia, rsmi, oneapi, nrt, full or off; empty when the line does not say."""
    name: str = ""
    """Empty on a line that only sets AutoDetect for its nodes."""
    type: str = ""
    count: int | None = None
    """None: the number of files, else 1; for shard and mps an even split over the GPUs."""
    files: tuple[str, ...] = ()
    multiple_files: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    """Env flags are inherited from the line before of the same nodes, name and type."""


class GresConfig(msgspec.Struct, frozen=True, gc=False):
    """gres.conf; without the file, no lines and no detection."""

    autodetect: str = ""
    lines: tuple[GresLine, ...] = ()

    def for_node(self, node: str) -> tuple[GresLine, ...]:
        """The device lines that hold on a node, in order of the file."""
        return tuple(line for line in self.lines if line.name and (line.nodes is None or node in line.nodes))

    def autodetect_on(self, node: str) -> str:
        """How a node looks for devices: its own line's word, else the file's; empty when neither says."""
        own = ""
        for line in self.lines:
            if line.autodetect and line.nodes is not None and node in line.nodes:
                own = line.autodetect
        return own or self.autodetect


class Switch(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A switch: a leaf has nodes, an upper one has switches; `level` 0 is a leaf."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    level: int = 0
    all_nodes: tuple[str, ...] = ()
    """Every node below it, in node order."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """A block of nodes, or a ring."""

    name: str
    nodes: tuple[str, ...]


class Topology(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How nodes hang together; `kind` is flat, tree, block or ring."""

    name: str = "default"
    kind: str = "flat"
    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()
    """Base first, each a power-of-two multiple of it."""
    rings: tuple[Block, ...] = ()
    levels: tuple[str, ...] = ()
    """Names of the levels, coarse to fine; the last names the leaves, base blocks or rings."""


class CgroupConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """cgroup.conf, for one node or for all."""

    plugin: str = "autodetect"
    """autodetect, cgroup/v2 or disabled."""
    mountpoint: str = "/sys/fs/cgroup"
    slice: str = "system.slice"
    job_id_paths: bool = False
    constrain_cores: bool = False
    constrain_devices: bool = False
    constrain_ram_space: bool = False
    constrain_swap_space: bool = False
    allowed_ram_percent: float = 100.0
    allowed_swap_percent: float = 0.0
    max_ram_percent: float = 100.0
    max_swap_percent: float = 100.0
    min_ram_mib: int = 30
    ignore_systemd: bool = False
    ignore_systemd_on_failure: bool = False
    enable_controllers: bool = False


class ClusterConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The whole configuration: global keys by the names of `slurmkeys.GLOBALS`, then nodes, partitions and files."""

    # identity, hosts, ports, state
    cluster_name: str
    controllers: tuple[Controller, ...]
    slurmctld_addr: str
    """A floating address of the active controller, or empty."""
    controller_ports: tuple[int, int]
    slurmd_port: int
    slurm_user: str
    state_dir: str
    spool_dir: str
    """With %h and %n; see `spool_dir_of`."""
    slurmctld_timeout_seconds: int
    slurmd_timeout_seconds: int
    message_timeout_seconds: int
    tcp_timeout_seconds: int
    follower_backlog_mib: int | None
    auth_info: dict[str, str]
    private_data: tuple[str, ...]
    disable_root_jobs: bool

    # scheduling
    scheduler_type: str
    scheduler_parameters: dict[str, str]
    """By option in lower case; a bare option has the empty value."""
    select_type: str
    select_type_parameters: tuple[str, ...]
    topology_plugin: str
    topology_parameters: tuple[str, ...]
    pack_weights: dict[str, float]
    """Of SelectTypeParameters=GPU_BINPACK, by TRES."""
    priority_type: str
    priority_weight_age: int
    priority_weight_assoc: int
    priority_weight_fairshare: int
    priority_weight_jobsize: int
    priority_weight_partition: int
    priority_weight_qos: int
    priority_weight_tres: dict[str, float]
    priority_decay_half_life_seconds: int
    """0: usage does not decay."""
    priority_calc_period_seconds: int
    priority_max_age_seconds: int
    priority_favor_small: bool
    priority_flags: tuple[str, ...]
    priority_usage_reset_period: str
    fair_share_dampening: int
    preempt_type: str
    preempt_mode: tuple[str, ...]
    preempt_parameters: dict[str, str]
    preempt_exempt_time_seconds: int | None
    licenses: dict[str, int]
    complete_wait_seconds: int
    over_time_limit_minutes: int | None
    enforce_part_limits: str
    def_mem_per_node_mib: int
    """0: unlimited, as for the other four."""
    def_mem_per_cpu_mib: int
    def_mem_per_gpu_mib: int
    max_mem_per_node_mib: int
    max_mem_per_cpu_mib: int
    def_cpus_per_gpu: int
    gres_types: tuple[str, ...]
    allow_spec_resources: bool
    first_job_id: int
    max_job_id: int
    max_job_count: int
    min_job_age_seconds: int
    """0: finished jobs stay in memory for ever."""
    max_array_size: int
    max_step_count: int
    max_tasks_per_node: int
    max_batch_requeue: int
    job_requeue: bool
    requeue_exit: tuple[int, ...]
    requeue_exit_hold: tuple[int, ...]
    dependency_parameters: dict[str, str]
    inactive_limit_seconds: int
    """0: none."""
    kill_wait_seconds: int
    kill_on_bad_exit: bool
    wait_time_seconds: int
    batch_start_timeout_seconds: int
    reservation_over_run_minutes: int | None

    # accounting and metrics
    accounting_storage_type: str
    """`accounting_storage/slurmdbd`, or empty: no accounting daemon."""
    accounting_storage_host: str
    accounting_storage_backup_host: str
    accounting_storage_port: int
    accounting_enforce: tuple[str, ...]
    """With what it implies: limits brings associations, and so on."""
    association_file: str
    """Path of the associations and QOS (a dump of sacctmgr), or empty."""
    accounting_tres: tuple[str, ...]
    accounting_store_flags: tuple[str, ...]
    track_wckey: bool
    job_acct_gather_type: str
    job_acct_gather_frequency: dict[str, int]
    """Seconds for task, energy, network and filesystem; 0: not sampled."""
    job_acct_gather_parameters: tuple[str, ...]
    metrics_type: str
    metrics_parameters: dict[str, str]

    # launch, processes, scripts
    proctrack_type: str
    task_plugins: tuple[str, ...]
    """Of affinity and cgroup."""
    task_plugin_parameters: tuple[str, ...]
    prologs: tuple[str, ...]
    epilogs: tuple[str, ...]
    controller_prologs: tuple[str, ...]
    controller_epilogs: tuple[str, ...]
    task_prolog: str
    task_epilog: str
    srun_prolog: str
    srun_epilog: str
    prolog_flags: tuple[str, ...]
    """With what it implies: every flag brings Alloc, X11 and RunInJob bring Contain."""
    prolog_timeout_seconds: int | None
    epilog_timeout_seconds: int | None
    prolog_epilog_timeout_seconds: int | None
    health_check_program: str
    health_check_interval_seconds: int
    health_check_timeout_seconds: int
    health_check_node_state: tuple[str, ...]
    reboot_program: str
    unkillable_step_program: str
    unkillable_step_timeout_seconds: int
    launch_parameters: tuple[str, ...]
    interactive_step_options: str
    mpi_default: str
    mpi_parameters: dict[str, str]
    propagate_limits: tuple[str, ...]
    propagate_limits_except: tuple[str, ...]
    job_file_append: bool
    mail_program: str
    mail_domain: str
    tmp_fs: str
    slurmd_parameters: tuple[str, ...]
    slurmctld_parameters: dict[str, str]

    # logging, reboot
    controller_log_level: str
    node_log_level: str
    controller_log_file: str
    node_log_file: str
    log_time_format: tuple[str, ...]
    debug_flags: tuple[str, ...]
    resume_timeout_seconds: int
    return_to_service: int

    # records and companion files
    nodes: tuple[NodeConfig, ...]
    partitions: tuple[PartitionConfig, ...]
    gres: GresConfig
    topologies: tuple[Topology, ...]
    """The first is the default."""
    cgroup: CgroupConfig
    cgroup_by_node: dict[str, CgroupConfig]
    """Only nodes that a NodeName= line of cgroup.conf names."""
    raw: dict[str, str]
    """Every global key that was given, by the manual's spelling, as written; passwords as `(set)`."""
    path: str
    """The main file."""
    config_hash: str
    """Over the main file and its Includes; nodes compare it with the controller's."""
    without_effect: tuple[tuple[str, str, int], ...]
    """Known keys that change nothing in this release: key, file, line. The daemon logs them once at start."""
    warnings: tuple[str, ...]
    """Sentences that the daemon logs once at start."""

    @property
    def controller_host(self) -> str:
        """The primary's host."""
        return self.controllers[0].host

    @property
    def controller_addr(self) -> str:
        """Where to dial: the floating address, else the primary's."""
        return self.slurmctld_addr or self.controllers[0].addr

    @property
    def controller_port(self) -> int:
        """The port that the controller listens on."""
        return self.controller_ports[0]

    @property
    def topology(self) -> Topology:
        """The cluster's default topology."""
        return self.topologies[0]

    def spool_dir_of(self, node: NodeConfig) -> str:
        """SlurmdSpoolDir on a node: %h is its host name, %n its node name."""
        return expand_node_path(self.spool_dir, node)

    def cgroup_of(self, node: str) -> CgroupConfig:
        """cgroup.conf as it holds on a node."""
        return self.cgroup_by_node.get(node, self.cgroup)


class DbdConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """dbd.conf (slurmdbd.conf)."""

    host: str
    addr: str
    backup_host: str = ""
    port: int = 6819
    storage_type: str
    """accounting_storage/postgresql or accounting_storage/sqlite."""
    storage_host: str = "localhost"
    """A host, or `unix:/path`."""
    storage_backup_host: str = ""
    storage_port: int = 5432
    storage_database: str = "slurm_acct_db"
    """The database; the path of the file for sqlite."""
    storage_user: str = ""
    """Empty: the user of the process."""
    storage_password: str = ""
    storage_password_script: str = ""
    storage_parameters: dict[str, str] = {}
    slurm_user: str = "root"
    commit_delay_seconds: int = 0
    message_timeout_seconds: int = 10
    tcp_timeout_seconds: int = 2
    log_file: str = ""
    log_level: str = "info"
    log_time_format: tuple[str, ...] = ("iso8601_ms",)
    debug_flags: tuple[str, ...] = ()
    private_data: tuple[str, ...] = ()
    track_wckey: bool = False
    allow_no_default_account: bool = False
    default_qos: str = ""
    parameters: tuple[str, ...] = ()
    max_query_range_seconds: int | None = None
    max_purge_rows: int = 50000
    purge_after: dict[str, tuple[int, str]] = {}
    """By record (event, job, resv, step, suspend, txn, usage, jobscript, jobenv): number and hours, days or months."""
    archive_dir: str = "/tmp"
    archive: tuple[str, ...] = ()
    """The records to write to ArchiveDir before they are purged."""
    path: str = ""
    without_effect: tuple[tuple[str, str, int], ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The file alone: the record holds a password, which must not get into logs and tracebacks."""
        return f"DbdConfig({self.path!r})"


def expand_node_path(path: str, node: NodeConfig) -> str:
    """A path with %h and %n replaced by the node's host name and node name."""
    return path.replace("%h", node.hostname).replace("%n", node.name)

"""The keys of record lines (NodeName, PartitionName, ...) and of the companion files, table by table."""

from __future__ import annotations

from muster.config import effects
from muster.config.keys import UNBOUNDED, Key, Table
from muster.config.slurmkeys import DEBUG_FLAGS, LOG_TIMES, UINT32

SMALL = 65533


def _k(
    name: str, kind: str = "text", field: str = "", *, low: int = 0, high: int = UINT32, endless: bool = False,
    choices: tuple[str, ...] = (), alias_of: str = "", tier: int = 1,
) -> Key:  # fmt: skip
    return Key(name, kind, "", tier, field, "", low, high, endless, choices, alias_of)


NODE_STATES = ("UNKNOWN", "DOWN", "DRAIN", "FAIL", "FAILING", "CLOUD", "FUTURE")
OLD_NODE_STATES = {"IDLE": "UNKNOWN", "DRAINED": "DRAIN", "DRAINING": "DRAIN"}
"""States that existing files carry although the manual does not name them, and what they mean there."""
PARTITION_STATES = ("UP", "DOWN", "DRAIN", "INACTIVE")

NODE = Table(
    "on a NodeName line",
    (
        _k("NodeName", "text", "names"),
        _k("NodeHostname", "text", "hostnames"),
        _k("NodeAddr", "text", "addrs"),
        _k("BcastAddr", "text"),
        _k("Port", "text", "ports"),
        _k("CPUs", "number", "cpus", low=1, high=65535),
        _k("Procs", alias_of="CPUs"),
        _k("Boards", "number", "boards", low=1, high=65535),
        _k("SocketsPerBoard", "number", "sockets_per_board", low=1, high=65535),
        _k("Sockets", "number", "sockets", low=1, high=65535),
        _k("CoresPerSocket", "number", "cores_per_socket", low=1, high=65535),
        _k("Cores", alias_of="CoresPerSocket"),
        _k("ThreadsPerCore", "number", "threads_per_core", low=1, high=65535),
        _k("RealMemory", "memory", "real_memory_mib", low=1, high=1 << 50),
        _k("TmpDisk", "memory", "tmp_disk_mib"),
        _k("Weight", "number", "weight"),
        _k("Features", "list", "features"),
        _k("Feature", alias_of="Features"),
        _k("Gres", "text", "gres"),
        _k("State", "word", "state", choices=(*NODE_STATES, *OLD_NODE_STATES)),
        _k("Reason", "text", "reason"),
        _k("CoreSpecCount", "number", "core_spec_count", high=65535, tier=2),
        _k("CpuSpecList", "text", "cpu_spec_list", tier=2),
        _k("MemSpecLimit", "memory", "mem_spec_limit_mib"),
        _k("CpuBind", tier=2),
        _k("RestrictedCoresPerGPU", "number", "restricted_cores_per_gpu", high=65535, tier=2),
        _k("SuspendTime", tier=2),
        _k("Topology", tier=2),
        _k("Parameters", tier=2),
        _k("GresConf", tier=3),
        _k("TRESWeights", tier=3),
    ),
    acted_on=effects.NODES,
)

DOWN_NODES = Table(
    "on a DownNodes line",
    (
        _k("DownNodes", "text", "names"),
        _k("State", "word", "state", choices=("DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE")),
        _k("Reason", "text", "reason"),
    ),
)

NODE_SET = Table(
    "on a NodeSet line",
    (_k("NodeSet", "text", "name"), _k("Nodes", "text", "nodes"), _k("Feature", "text", "feature")),
)

PARTITION = Table(
    "on a PartitionName line",
    (
        _k("PartitionName", "list", "names"),
        _k("Nodes", "text", "nodes"),
        _k("Default", "flag", "default"),
        _k("State", "word", "state", choices=PARTITION_STATES),
        _k("MaxTime", "minutes", "max_time_minutes"),
        _k("DefaultTime", "text", "default_time"),
        _k("MinNodes", "number", "min_nodes"),
        _k("MaxNodes", "number", "max_nodes", endless=True),
        _k("PriorityTier", "number", "priority_tier", high=SMALL),
        _k("PriorityJobFactor", "number", "priority_job_factor", high=SMALL),
        _k("Priority", "number", "priority", high=SMALL),
        _k("AllowGroups", "list", "allow_groups"),
        _k("AllowAccounts", "list", "allow_accounts"),
        _k("AllowQos", "list", "allow_qos"),
        _k("DenyAccounts", "list", "deny_accounts"),
        _k("DenyQos", "list", "deny_qos"),
        _k("AllocNodes", tier=2),
        _k("Alternate", "text", "alternate", tier=2),
        _k("QOS", "text", "qos"),
        _k("OverSubscribe", "text", "oversubscribe"),
        _k("Shared", alias_of="OverSubscribe"),
        _k("Exclusive", "text", "exclusive"),
        _k("ExclusiveUser", "flag", "exclusive_user"),
        _k("ExclusiveTopo", "flag", "exclusive_topo"),
        _k("PreemptMode", "word", "preempt_mode", choices=("OFF", "CANCEL", "REQUEUE", "SUSPEND", "PRIORITY")),
        _k("GraceTime", "number", "grace_time_seconds"),
        _k("TRESBillingWeights", "weights", "billing_weights"),
        _k("DefMemPerNode", "memory", "def_mem_per_node_mib", endless=True),
        _k("DefMemPerCPU", "memory", "def_mem_per_cpu_mib", endless=True),
        _k("DefMemPerGPU", "memory", "def_mem_per_gpu_mib", endless=True),
        _k("MaxMemPerNode", "memory", "max_mem_per_node_mib", endless=True),
        _k("MaxMemPerCPU", "memory", "max_mem_per_cpu_mib", endless=True),
        _k("DefCpuPerGPU", "number", "def_cpus_per_gpu"),
        _k("JobDefaults", tier=2),
        _k("MaxCPUsPerNode", "number", "max_cpus_per_node", endless=True, tier=2),
        _k("MaxCPUsPerSocket", "number", "max_cpus_per_socket", endless=True, tier=2),
        _k("LLN", "flag", "lln", tier=2),
        _k("SelectTypeParameters", tier=2),
        _k("OverTimeLimit", "number", "over_time_limit_minutes", high=SMALL, endless=True, tier=2),
        _k("RootOnly", "flag", "root_only", tier=2),
        _k("ReqResv", "flag", "require_reservation", tier=2),
        _k("Hidden", "flag", "hidden", tier=2),
        _k("DisableRootJobs", "flag", "disable_root_jobs", tier=2),
        _k("CpuBind", tier=2),
        *(_k(name, tier=2) for name in ("SuspendTime", "SuspendTimeout", "ResumeTimeout", "PowerDownOnIdle")),
        _k("Topology", "text", "topology", tier=2),
        _k("DefaultTopology", "text", "default_topology", tier=2),
    ),
    acted_on=effects.PARTITIONS,
)

POWER_ACTION = Table(
    "on a PowerAction line", (_k("PowerAction", tier=3), _k("Location", tier=3), _k("Program", tier=3))
)

AUTODETECT = ("nvml", "nvidia", "rsmi", "oneapi", "nrt", "full", "off")
GRES_FLAGS = (
    "CountOnly", "explicit", "one_sharing", "all_sharing", "nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env",
    "opencl_env", "no_gpu_env", "env_uuid",
)  # fmt: skip

GRES = Table(
    "in gres.conf",
    (
        _k("AutoDetect", "word", "autodetect", choices=AUTODETECT),
        _k("NodeName", "text", "nodes"),
        _k("Name", "text", "name"),
        _k("Type", "text", "type"),
        _k("File", "text", "files"),
        _k("MultipleFiles", "text", "multiple_files"),
        _k("Count", "count", "count", high=UNBOUNDED),
        _k("Cores", "text", "cores"),
        _k("CPUs", alias_of="Cores"),
        _k("Links", "text", "links"),
        _k("Flags", "flags", "flags", choices=GRES_FLAGS),
    ),
    acted_on=effects.GRES,
)

SWITCH = Table(
    "on a SwitchName line",
    (
        _k("SwitchName", "text", "name"),
        _k("Nodes", "text", "nodes"),
        _k("Switches", "text", "switches"),
        # Slurm itself ignores LinkSpeed; it is listed like every key without effect.
        _k("LinkSpeed", tier=3),
    ),
)
BLOCK = Table("on a BlockName line", (_k("BlockName", "text", "name"), _k("Nodes", "text", "nodes")))
RING = Table("on a RingName line", (_k("RingName", "text", "name"), _k("Nodes", "text", "nodes")))

CGROUP_OBSOLETE = (
    "ConstrainKmemSpace", "AllowedKmemSpace", "MaxKmemPercent", "MinKmemSpace", "CgroupAutomount",
    "CgroupReleaseAgentDir", "AllowedDevicesFile", "TaskAffinity",
)  # fmt: skip

CGROUP = Table(
    "in cgroup.conf",
    (
        _k("NodeName", "text", "nodes"),
        _k("CgroupPlugin", "text", "plugin"),
        _k("CgroupMountpoint", "directory", "mountpoint"),
        _k("CgroupSlice", "text", "slice", tier=2),
        _k("CgroupJobIdPaths", "flag", "job_id_paths"),
        _k("ConstrainCores", "flag", "constrain_cores"),
        _k("ConstrainDevices", "flag", "constrain_devices"),
        _k("ConstrainRAMSpace", "flag", "constrain_ram_space"),
        _k("ConstrainSwapSpace", "flag", "constrain_swap_space"),
        _k("AllowedRAMSpace", "float", "allowed_ram_percent"),
        _k("AllowedSwapSpace", "float", "allowed_swap_percent"),
        _k("MaxRAMPercent", "float", "max_ram_percent", tier=2),
        _k("MaxSwapPercent", "float", "max_swap_percent", tier=2),
        _k("MinRAMSpace", "memory", "min_ram_mib", tier=2),
        _k("MemorySwappiness", tier=3),
        _k("SignalChildrenProcesses", "flag", tier=2),
        _k("SystemdTimeout", "number", tier=2),
        _k("IgnoreSystemd", "flag", "ignore_systemd"),
        _k("IgnoreSystemdOnFailure", "flag", "ignore_systemd_on_failure"),
        _k("EnableControllers", "flag", "enable_controllers", tier=2),
        _k("EnableExtraControllers", tier=3),
        *(_k(name, tier=3) for name in CGROUP_OBSOLETE),
    ),
    acted_on=effects.NOT_YET,
)

PURGED = ("Event", "Job", "Resv", "Step", "Suspend", "TXN", "Usage", "JobScript", "JobEnv")
DBD_PRIVATE = ("accounts", "events", "jobs", "reservations", "usage", "users")
DBD_DEBUG = tuple(f"DB_{what}" for what in (
    "ARCHIVE", "ASSOC", "EVENT", "FEDERATION", "FR_CLUSTER", "JOB", "QOS", "QUERY", "RESERVATION", "RESOURCE", "STEP",
    "TRES", "USAGE", "WCKEY",
))  # fmt: skip

DBD = Table(
    "in dbd.conf",
    (
        _k("DbdHost", "text", "host"),
        _k("DbdAddr", "text", "addr", tier=2),
        _k("DbdBackupHost", "text", "backup_host", tier=2),
        _k("DbdPort", "port", "port"),
        _k("StorageType", "text", "storage_type"),
        _k("StorageHost", "text", "storage_host"),
        _k("StorageBackupHost", "text", "storage_backup_host"),
        _k("StoragePort", "port", "storage_port"),
        _k("StorageLoc", "text", "storage_database"),
        _k("StorageUser", "text", "storage_user"),
        _k("StoragePass", "text", "storage_password"),
        _k("StoragePassScript", "text", "storage_password_script"),
        _k("StorageParameters", "options", "storage_parameters", tier=2),
        _k("SlurmUser", "text", "slurm_user"),
        *(_k(name) for name in ("AuthType", "AuthInfo", "AuthAltTypes", "AuthAltParameters")),
        _k("CommitDelay", "number", "commit_delay_seconds", high=SMALL, tier=2),
        _k("MessageTimeout", "number", "message_timeout_seconds", low=1, high=SMALL, tier=2),
        _k("TCPTimeout", "number", "tcp_timeout_seconds", low=1, high=SMALL, tier=2),
        _k("LogFile", "text", "log_file"),
        _k("DebugLevel", "level", "log_level"),
        _k("DebugLevelSyslog", "level"),
        _k("LogTimeFormat", "flags", "log_time_format", choices=LOG_TIMES),
        _k("PidFile"),
        _k("DebugFlags", "flags", "debug_flags", choices=(*DBD_DEBUG, *DEBUG_FLAGS), tier=2),
        _k("PrivateData", "flags", "private_data", choices=DBD_PRIVATE),
        _k("TrackWCKey", "flag", "track_wckey", tier=2),
        _k("TrackSlurmctldDown", "flag", tier=2),
        _k("AllowNoDefAcct", "flag", "allow_no_default_account", tier=2),
        *(_k(name, "flag", tier=2) for name in ("AllResourcesAbsolute", "DisableCoordDBD", "DisableRollups")),
        _k("DisableArchiveCommands", "flag", tier=2),
        _k("DefaultQOS", "text", "default_qos", tier=2),
        _k("Parameters", "flags", "parameters", tier=2,
           choices=("PreserveCaseUser", "PreserveCaseResource", "PreserveCaseAll")),
        _k("MaxQueryTimeRange", "duration", "max_query_range_seconds", tier=2),
        _k("MaxPurgeLimit", "number", "max_purge_rows", low=1, tier=2),
        *(_k(f"Purge{name}After", "text", f"purge_{name.lower()}") for name in PURGED),
        _k("ArchiveDir", "directory", "archive_dir", tier=2),
        *(_k(f"Archive{name}", "flag", f"archive_{name.lower()}", tier=2)
          for name in ("Events", "Jobs", "Resvs", "Steps", "Suspend", "TXN", "Usage", "JobScript", "JobEnv")),
        _k("ArchiveScript", tier=3),
        *(_k(name, tier=3) for name in ("CommunicationParameters", "PluginDir", "HashPlugin", "TLSType",
                                        "TLSParameters", "SerializerParameters", "SerializerPlugins")),
    ),
)  # fmt: skip

"""THE table of the global keys of slurm.conf (muster.conf), in the order of slurm.conf(5)'s themes.

A row with a field fills that field of ClusterConfig; a row without one is known without effect in this release.
Keys of munge, auth/slurm, JWT and credentials are among the latter: certificates replace them.
"""

from __future__ import annotations

from muster.config.keys import UNBOUNDED, Key, Table

SECONDS_HIGH = 65533
OLD_SELECT = "select/cons_res"
"""What select/cons_tres replaced; existing files still carry it."""
UINT32 = (1 << 32) - 2

PRIORITY_FLAGS = (
    "ACCRUE_ALWAYS", "CALCULATE_RUNNING", "DEPTH_OBLIVIOUS", "NO_FAIR_TREE", "INCR_ONLY", "MAX_TRES", "MAX_TRES_GRES",
    "NO_NORMAL_ALL", "NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES", "SMALL_RELATIVE_TO_TIME",
)  # fmt: skip
PRIVATE_DATA = ("accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users")
PROLOG_FLAGS = ("Alloc", "Contain", "DeferBatch", "NoHold", "ForceRequeueOnFail", "RunInJob", "Serial", "X11")
RECONFIG_FLAGS = ("KeepPartInfo", "KeepPartState", "KeepPowerSaveSettings")
SELECT_FLAGS = (
    "CR_CPU", "CR_CPU_Memory", "CR_Core", "CR_Core_Memory", "CR_Socket", "CR_Socket_Memory", "CR_Memory",
    "CR_ONE_TASK_PER_CORE", "CR_CORE_DEFAULT_DIST_BLOCK", "CR_LLN", "CR_Pack_Nodes", "LL_SHARED_GRES",
    "MULTIPLE_SHARING_GRES_PJ", "ENFORCE_BINDING_GRES", "ONE_TASK_PER_SHARING_GRES", "CR_NO_DIST_TOPO_BLOCK",
    "GPU_BINPACK",
)  # fmt: skip
DEBUG_FLAGS = (
    "Accrue", "Agent", "AuditRPCs", "AuditTLS", "Backfill", "BackfillMap", "BurstBuffer", "Cgroup", "ConMgr",
    "CPU_Bind", "CpuFrequency", "Data", "DBD_Agent", "Dependency", "Elasticsearch", "Energy", "Federation",
    "FrontEnd", "GLOB_SILENCE", "Gres", "Hetjob", "Interconnect", "JobAccountGather", "JobComp", "JobContainer",
    "License", "Metrics", "MPI", "Namespace", "Network", "NetworkRaw", "NodeFeatures", "NO_CONF_HASH", "Power",
    "Priority", "Profile", "Protocol", "Reservation", "Route", "Sackd", "Script", "SelectType", "Steps", "Switch",
    "TLS", "TraceJobs", "Triggers", "WorkQueue",
)  # fmt: skip
LIMITS = ("ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")
PREEMPT_MODES = ("OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "PRIORITY", "WITHIN")
HEALTH_STATES = ("ALLOC", "ANY", "CYCLE", "IDLE", "NONDRAINED_IDLE", "MIXED", "REBOOT_ONLY", "START_ONLY")
LOG_TIMES = ("iso8601", "iso8601_ms", "rfc5424", "rfc5424_ms", "rfc3339", "clock", "short", "thread_id", "omit")
RESET_PERIODS = ("NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY")


def _k(
    name: str, kind: str = "text", default: str = "", tier: int = 1, field: str = "", *, unit: str = "", low: int = 0,
    high: int = UNBOUNDED, endless: bool = False, choices: tuple[str, ...] = (), alias_of: str = "",
) -> Key:  # fmt: skip
    return Key(name, kind, default, tier, field, unit, low, high, endless, choices, alias_of)


def _seconds(name: str, default: str, tier: int, field: str = "", *, endless: bool = False, low: int = 0) -> Key:
    return _k(name, "number", default, tier, field, unit="sec", low=low, high=SECONDS_HIGH, endless=endless)


_IDENTITY = (
    _k("ClusterName", "text", "", 1, "cluster_name"),
    _k("SlurmctldHost", "text", "", 1, "controllers"),
    _k("SlurmctldAddr", "text", "", 2, "slurmctld_addr"),
    _k("SlurmctldPort", "ports", "6817", 1, "controller_ports"),
    _k("SlurmdPort", "port", "6818", 1, "slurmd_port"),
    _k("SlurmUser", "text", "root", 1, "slurm_user"),
    _k("SlurmdUser", "text", "root", 2),
    _k("StateSaveLocation", "directory", "/var/spool", 1, "state_dir"),
    _k("SlurmdSpoolDir", "directory", "/var/spool/slurmd", 1, "spool_dir"),
    _k("SlurmctldPidFile", "text", "/var/run/slurmctld.pid", 1),
    _k("SlurmdPidFile", "text", "/var/run/slurmd.pid", 1),
    _seconds("SlurmctldTimeout", "120", 1, "slurmctld_timeout_seconds"),
    _seconds("SlurmdTimeout", "300", 1, "slurmd_timeout_seconds"),
    _k("SlurmctldPrimaryOnProg", tier=2),
    _k("SlurmctldPrimaryOffProg", tier=2),
    _seconds("MessageTimeout", "10", 1, "message_timeout_seconds", low=1),
    _seconds("TCPTimeout", "2", 2, "tcp_timeout_seconds", low=1),
    _k("TreeWidth", "number", "16", 1, low=1, high=SECONDS_HIGH + 2),
    _k("CommunicationParameters", "options", "", 2),
    _k("SrunPortRange", "ports", "", 2),
    _k("PluginDir", tier=2),
    _k("PlugStackConfig", tier=2),
    _k("HashPlugin", default="hash/k12", tier=3),
    *(_k(name, tier=2) for name in ("TLSType", "TLSParameters")),
    *(_k(name, tier=3) for name in ("CertgenType", "CertgenParameters", "CertmgrType", "CertmgrParameters")),
    *(_k(name, tier=3) for name in ("DataParserParameters", "HttpParserType", "UrlParserType")),
    _k("FollowerBacklog", "memory", "", 1, "follower_backlog_mib", low=64),
)

_AUTHENTICATION = (
    _k("AuthType", default="auth/munge"),
    _k("AuthAltTypes"),
    _k("AuthAltParameters"),
    _k("AuthInfo", "options", "", 1, "auth_info"),
    _k("CredType", default="cred/munge", tier=2),
    _k("PrivateData", "flags", "none", 1, "private_data", choices=PRIVATE_DATA),
    _k("DisableRootJobs", "flag", "no", 2, "disable_root_jobs"),
    _k("UsePAM", "flag", "no", 3),
    *(_k(name, tier=3) for name in ("MCSPlugin", "MCSParameters", "SlurmctldHttpAuthParameters")),
    *(_k(name, tier=3) for name in ("SlurmdHttpAuthParameters", "MetricsAuthUsers")),
)

_SCHEDULING = (
    _k("SchedulerType", "plugin", "sched/backfill", 1, "scheduler_type", choices=("sched/backfill", "sched/builtin")),
    _k("SchedulerParameters", "options", "", 1, "scheduler_parameters"),
    _k("SchedulerTimeSlice", "number", "30", 3, unit="sec", low=5, high=SECONDS_HIGH),
    _k("SelectType", "plugin", "select/cons_tres", 1, "select_type",
       choices=("select/cons_tres", "select/linear", OLD_SELECT)),
    _k("SelectTypeParameters", "flags", "CR_Core_Memory", 1, "select_type_parameters", choices=SELECT_FLAGS),
    _k("TopologyPlugin", "plugin", "topology/flat", 1, "topology_plugin",
       choices=("topology/flat", "topology/tree", "topology/block", "topology/ring", "topology/default")),
    _k("TopologyParam", "list", "", 2, "topology_parameters"),
    _k("PackWeights", "weights", "", 2, "pack_weights"),
    _k("PriorityType", "plugin", "priority/multifactor", 1, "priority_type",
       choices=("priority/multifactor", "priority/basic")),
    *(_k(f"PriorityWeight{name}", "number", "0", 1, f"priority_weight_{name.lower()}", high=UINT32)
      for name in ("Age", "Assoc", "Fairshare", "JobSize", "Partition", "QOS")),
    _k("PriorityWeightTRES", "weights", "", 1, "priority_weight_tres"),
    _k("PriorityDecayHalfLife", "duration", "7-0", 1, "priority_decay_half_life_seconds"),
    _k("PriorityCalcPeriod", "duration", "5", 1, "priority_calc_period_seconds"),
    _k("PriorityMaxAge", "duration", "7-0", 1, "priority_max_age_seconds"),
    _k("PriorityFavorSmall", "flag", "no", 1, "priority_favor_small"),
    _k("PriorityFlags", "flags", "", 1, "priority_flags", choices=PRIORITY_FLAGS),
    _k("PriorityUsageResetPeriod", "word", "NONE", 2, "priority_usage_reset_period", choices=RESET_PERIODS),
    _k("PriorityParameters", tier=3),
    _k("PrioritySiteFactorPlugin", tier=3),
    _k("PrioritySiteFactorParameters", tier=3),
    _k("FairShareDampeningFactor", "number", "1", 3, "fair_share_dampening", low=1, high=SECONDS_HIGH),
    _k("PreemptType", "plugin", "preempt/none", 1, "preempt_type",
       choices=("preempt/partition_prio", "preempt/qos")),
    _k("PreemptMode", "flags", "OFF", 1, "preempt_mode", choices=PREEMPT_MODES),
    _k("PreemptParameters", "options", "", 2, "preempt_parameters"),
    _k("PreemptExemptTime", "duration", "0", 1, "preempt_exempt_time_seconds"),
    _k("Licenses", "list", "", 2, "licenses"),
    _k("LicenseParameters", tier=3),
    _k("CompleteWait", "number", "0", 2, "complete_wait_seconds", unit="sec", high=SECONDS_HIGH),
    _k("OverTimeLimit", "number", "0", 2, "over_time_limit_minutes", unit="min", high=SECONDS_HIGH, endless=True),
    _k("EnforcePartLimits", "word", "NO", 1, "enforce_part_limits", choices=("NO", "ANY", "ALL", "YES")),
    _k("DefMemPerNode", "memory", "0", 1, "def_mem_per_node_mib", endless=True),
    _k("DefMemPerCPU", "memory", "0", 1, "def_mem_per_cpu_mib", endless=True),
    _k("DefMemPerGPU", "memory", "0", 1, "def_mem_per_gpu_mib", endless=True),
    _k("MaxMemPerNode", "memory", "0", 1, "max_mem_per_node_mib", endless=True),
    _k("MaxMemPerCPU", "memory", "0", 1, "max_mem_per_cpu_mib", endless=True),
    _k("DefCpuPerGPU", "number", "0", 1, "def_cpus_per_gpu", high=UINT32),
    _k("JobDefaults", tier=2),
    _k("GresTypes", "list", "", 1, "gres_types"),
    _k("FirstJobId", "number", "1", 2, "first_job_id", low=1, high=67108863),
    _k("MaxJobId", "number", "67043328", 2, "max_job_id", low=1, high=67108863),
    _k("MaxJobCount", "number", "10000", 1, "max_job_count", low=1, high=UINT32),
    _k("MinJobAge", "number", "300", 1, "min_job_age_seconds", unit="sec", high=UINT32),
    _k("MaxArraySize", "number", "1001", 1, "max_array_size", high=4000001),
    _k("MaxStepCount", "number", "40000", 2, "max_step_count", low=1, high=UINT32),
    _k("MaxTasksPerNode", "number", "512", 2, "max_tasks_per_node", low=1, high=SECONDS_HIGH),
    _k("MaxNodeCount", "number", "", 2, low=1, high=65536),
    _k("MaxBatchRequeue", "number", "5", 2, "max_batch_requeue", high=UINT32),
    _k("JobRequeue", "flag", "1", 1, "job_requeue"),
    _k("RequeueExit", "codes", "", 2, "requeue_exit"),
    _k("RequeueExitHold", "codes", "", 2, "requeue_exit_hold"),
    _k("DependencyParameters", "options", "", 2, "dependency_parameters"),
    _seconds("InactiveLimit", "0", 2, "inactive_limit_seconds", endless=True),
    _seconds("KillWait", "30", 1, "kill_wait_seconds"),
    _k("KillOnBadExit", "flag", "0", 1, "kill_on_bad_exit"),
    _seconds("WaitTime", "0", 2, "wait_time_seconds"),
    _seconds("BatchStartTimeout", "10", 1, "batch_start_timeout_seconds"),
    _k("GroupUpdateForce", "flag", "1", 2),
    _seconds("GroupUpdateTime", "600", 2),
    _k("ResvOverRun", "number", "0", 2, "reservation_over_run_minutes", unit="min", high=SECONDS_HIGH, endless=True),
    _k("ResvProlog", tier=3),
    _k("ResvEpilog", tier=3),
    _k("FederationParameters", tier=3),
    _k("ScronParameters", tier=2),
    _k("BurstBufferType", tier=3),
)  # fmt: skip

_ACCOUNTING = (
    _k("AccountingStorageType", "text", "", 1, "accounting_storage_type"),
    _k("AccountingStorageHost", "text", "localhost", 1, "accounting_storage_host"),
    _k("AccountingStorageBackupHost", "text", "", 1, "accounting_storage_backup_host"),
    _k("AccountingStoragePort", "port", "6819", 1, "accounting_storage_port"),
    _k("AccountingStoragePass", tier=2),
    _k("AccountingStorageUser", tier=3),
    _k("AccountingStorageEnforce", "text", "none", 1, "accounting_enforce"),
    _k("AccountingStorageTRES", "list", "", 1, "accounting_tres"),
    _k("AccountingStorageParameters", tier=3),
    _k("AccountingStorageExternalHost", tier=3),
    _k("AccountingStoreFlags", "flags", "", 1, "accounting_store_flags",
       choices=("job_comment", "job_env", "job_extra", "job_script", "no_stdio")),
    _k("AssociationFile", "text", "", 1, "association_file"),
    _k("MaxDBDMsgs", "number", "", 1, low=10000, high=UINT32),
    _k("TrackWCKey", "flag", "no", 2, "track_wckey"),
    _k("JobAcctGatherType", "plugin", "", 1, "job_acct_gather_type",
       choices=("jobacct_gather/cgroup", "jobacct_gather/linux")),
    _k("JobAcctGatherFrequency", "text", "task=30", 1, "job_acct_gather_frequency"),
    _k("JobAcctGatherParams", "list", "", 2, "job_acct_gather_parameters"),
    _seconds("AcctGatherNodeFreq", "0", 2),
    _k("AcctGatherEnergyType", tier=2),
    *(_k(f"AcctGather{name}Type", tier=3) for name in ("Interconnect", "Filesystem", "Profile")),
    _k("JobCompType", tier=2),
    *(_k(f"JobComp{name}", tier=2) for name in ("Loc", "Host", "Port", "User", "Pass", "PassScript", "Params")),
    _k("MetricsType", "plugin", "", 1, "metrics_type", choices=("metrics/openmetrics",)),
    _k("MetricsParameters", "options", "", 1, "metrics_parameters"),
)  # fmt: skip

_LAUNCH = (
    _k("ProctrackType", "plugin", "proctrack/cgroup", 1, "proctrack_type",
       choices=("proctrack/cgroup", "proctrack/linuxproc", "proctrack/pgid")),
    _k("TaskPlugin", "text", "", 1, "task_plugins"),
    _k("TaskPluginParam", "list", "", 2, "task_plugin_parameters"),
    _k("Prolog", "text", "", 1, "prologs"),
    _k("Epilog", "text", "", 1, "epilogs"),
    _k("PrologSlurmctld", "text", "", 1, "controller_prologs"),
    _k("EpilogSlurmctld", "text", "", 1, "controller_epilogs"),
    _k("TaskProlog", "text", "", 1, "task_prolog"),
    _k("TaskEpilog", "text", "", 1, "task_epilog"),
    _k("SrunProlog", "text", "", 2, "srun_prolog"),
    _k("SrunEpilog", "text", "", 2, "srun_epilog"),
    _k("PrologFlags", "flags", "", 1, "prolog_flags", choices=PROLOG_FLAGS),
    _seconds("PrologTimeout", "", 1, "prolog_timeout_seconds", endless=True),
    _seconds("EpilogTimeout", "", 1, "epilog_timeout_seconds", endless=True),
    _seconds("PrologEpilogTimeout", "", 1, "prolog_epilog_timeout_seconds", endless=True),
    _k("PrEpPlugins", default="prep/script", tier=3),
    _k("PrEpParameters", tier=3),
    _k("EpilogMsgTime", "number", "2000", 2, unit="usec", high=1000000),
    _k("HealthCheckProgram", "text", "", 1, "health_check_program"),
    _seconds("HealthCheckInterval", "0", 1, "health_check_interval_seconds"),
    _seconds("HealthCheckTimeout", "60", 1, "health_check_timeout_seconds", low=1),
    _k("HealthCheckNodeState", "flags", "ANY", 1, "health_check_node_state", choices=HEALTH_STATES),
    _k("RebootProgram", "text", "", 1, "reboot_program"),
    _k("UnkillableStepProgram", "text", "", 1, "unkillable_step_program"),
    _seconds("UnkillableStepTimeout", "", 1, "unkillable_step_timeout_seconds"),
    _k("LaunchParameters", "list", "", 1, "launch_parameters"),
    _k("InteractiveStepOptions", "text", "--interactive --preserve-env --pty $SHELL", 1, "interactive_step_options"),
    _k("MpiDefault", "text", "none", 1, "mpi_default"),
    _k("MpiParams", "options", "", 2, "mpi_parameters"),
    _k("PropagateResourceLimits", "flags", "ALL", 1, "propagate_limits", choices=LIMITS),
    _k("PropagateResourceLimitsExcept", "flags", "", 1, "propagate_limits_except", choices=LIMITS),
    _k("PropagatePrioProcess", "number", "0", 3, high=2),
    _k("JobFileAppend", "flag", "0", 1, "job_file_append"),
    _k("JobSubmitPlugins", tier=2),
    _k("CliFilterPlugins", tier=2),
    _k("CliFilterParameters", tier=2),
    _k("MailProg", "text", "/bin/mail", 1, "mail_program"),
    _k("MailDomain", "text", "", 1, "mail_domain"),
    _k("TmpFS", "directory", "/tmp", 1, "tmp_fs"),
    _k("NamespaceType", tier=2),
    _k("DefRuntimePlugin", tier=3),
    _k("BcastExclude", default="/lib,/usr/lib,/lib64,/usr/lib64", tier=3),
    _k("BcastParameters", tier=3),
    _k("CpuFreqDef", tier=3),
    _k("CpuFreqGovernors", default="OnDemand,Performance,UserSpace", tier=3),
    _k("GpuFreqDef", tier=3),
    _k("VSizeFactor", "number", "0", 3, unit="percent", high=SECONDS_HIGH),
    _seconds("EioTimeout", "60", 2),
    _k("X11Parameters", tier=3),
    _k("AllowSpecResourcesUsage", "flag", "no", 3, "allow_spec_resources"),
    _k("NodeFeaturesPlugins", tier=2),
    _k("SwitchType", tier=3),
    _k("SwitchParameters", tier=3),
    _k("SlurmdParameters", "list", "", 1, "slurmd_parameters"),
    _k("SlurmstepdParameters", tier=3),
    _k("SlurmrestdParameters", tier=3),
    _k("SlurmctldParameters", "options", "", 1, "slurmctld_parameters"),
)  # fmt: skip

_LOGGING = (
    _k("SlurmctldDebug", "level", "info", 1, "controller_log_level"),
    _k("SlurmdDebug", "level", "info", 1, "node_log_level"),
    _k("SlurmctldLogFile", "text", "", 1, "controller_log_file"),
    _k("SlurmdLogFile", "text", "", 1, "node_log_file"),
    _k("SlurmctldSyslogDebug", "level", "", 2),
    _k("SlurmdSyslogDebug", "level", "", 2),
    _k("SlurmSchedLogFile", tier=2),
    _k("SlurmSchedLogLevel", "number", "0", 2),
    _k("LogTimeFormat", "flags", "iso8601_ms", 1, "log_time_format", choices=LOG_TIMES),
    _k("DebugFlags", "flags", "", 1, "debug_flags", choices=DEBUG_FLAGS),
)

_POWER = (
    *(_k(name, tier=2) for name in ("SuspendProgram", "ResumeProgram", "ResumeFailProgram")),
    _k("SuspendTime", "number", "INFINITE", 2, unit="sec", endless=True),
    _k("SuspendRate", "number", "60", 2, unit="nodes/min", high=UINT32),
    _k("ResumeRate", "number", "300", 2, unit="nodes/min", high=UINT32),
    _seconds("SuspendTimeout", "30", 2),
    _k("ResumeTimeout", "number", "60", 2, "resume_timeout_seconds", unit="sec", low=1, high=UINT32),
    *(_k(name, tier=2) for name in ("SuspendExcNodes", "SuspendExcParts", "SuspendExcStates")),
    _k("ReconfigFlags", "flags", "", 2, choices=RECONFIG_FLAGS),
    _k("ReturnToService", "number", "0", 1, "return_to_service", high=2),
)

OBSOLETE = (
    "SallocDefaultCommand", "LaunchType", "RoutePlugin", "CoreSpecPlugin", "SbcastParameters", "GetEnvTimeout",
    "KeepAliveTime", "PowerPlugin", "PowerParameters", "ExtSensorsType", "ExtSensorsFreq", "AcctGatherInfinibandType",
    "JobCredentialPrivateKey", "JobCredentialPublicCertificate", "SlurmdPlugstack", "MemLimitEnforce", "CacheGroups",
    "CheckpointType", "JobCheckpointDir", "JobContainerPlugin", "SchedulerPort", "SchedulerRootFilter",
    "SchedulerAuth", "UseSpecResources", "AcctGatherEnergyFreq", "AccountingStorageLoc", "SlurmctldPlugstack",
    "DefaultStorageHost", "DefaultStorageLoc", "DefaultStoragePass", "DefaultStoragePort", "DefaultStorageType",
    "DefaultStorageUser", "DynAllocPort",
)  # fmt: skip
"""Keys of older releases that existing files carry: accepted, told once, ignored."""

OLD_CONTROLLERS = ("ControlMachine", "ControlAddr", "BackupController", "BackupAddr")
"""They make up the controllers where SlurmctldHost does not."""

_OLD = (
    *(_k(name, tier=3) for name in OLD_CONTROLLERS),
    _k("FastSchedule", "number", tier=3),
    _k("CryptoType", alias_of="CredType", tier=3),
    _k("JobContainerType", alias_of="NamespaceType", tier=3),
    _k("AccountingStoreJobComment", tier=3),
    *(_k(name, tier=3) for name in OBSOLETE),
)

GLOBALS = Table(
    "in slurm.conf",
    (*_IDENTITY, *_AUTHENTICATION, *_SCHEDULING, *_ACCOUNTING, *_LAUNCH, *_LOGGING, *_POWER, *_OLD),
    records=("NodeName", "PartitionName", "NodeSet", "DownNodes", "PowerAction", "Include"),
)

SECRET = ("AccountingStoragePass", "JobCompPass")
"""Values that are neither kept in `ClusterConfig.raw` nor shown."""

SHOWN = tuple(row for row in GLOBALS.rows if row not in _OLD)
"""The rows that `scontrol show config` prints."""

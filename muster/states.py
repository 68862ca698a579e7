"""States of jobs and nodes, and the reasons why a job waits or ended.

The enums are for daemons; commands get the words on the wire. A job holds one base state and a set of flags (bits
of a plain int: `enum.Flag` arithmetic costs a microsecond an operation, and this is on the path of every event).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class JobState(IntEnum):
    """Base states, numbered as Slurm numbers them; anything above SUSPENDED has ended."""

    PENDING = 0
    RUNNING = 1
    SUSPENDED = 2
    COMPLETED = 3
    CANCELLED = 4
    FAILED = 5
    TIMEOUT = 6
    NODE_FAIL = 7
    PREEMPTED = 8
    BOOT_FAIL = 9
    DEADLINE = 10
    OUT_OF_MEMORY = 11


COMPACT = ("PD", "R", "S", "CD", "CA", "F", "TO", "NF", "PR", "BF", "DL", "OOM")

# Flags of a job, bits of Job.flags.
COMPLETING = 1
CONFIGURING = 2
REQUEUED = 4
REQUEUE_HOLD = 8
SPECIAL_EXIT = 16
STOPPED = 32
LAUNCH_FAILED = 64
RESV_DEL_HOLD = 128

# (bit, long, compact) in the order in which the single-word rendering tests them.
_SINGLE_WORD = (
    (COMPLETING, "COMPLETING", "CG"),
    (CONFIGURING, "CONFIGURING", "CF"),
    (REQUEUED, "REQUEUED", "RQ"),
    (REQUEUE_HOLD, "REQUEUE_HOLD", "RH"),
    (SPECIAL_EXIT, "SPECIAL_EXIT", "SE"),
    (STOPPED, "STOPPED", "ST"),
    (RESV_DEL_HOLD, "RESV_DEL_HOLD", "RD"),
)


def finished(state: int) -> bool:
    """Tell whether a base state is an end."""
    return state > JobState.SUSPENDED


def state_word(state: int, flags: int) -> str:
    """Give the single-word rendering: the first flag set wins over the base state."""
    if flags:
        for bit, word, _ in _SINGLE_WORD:
            if flags & bit:
                return word
    return JobState(state).name


def state_compact(state: int, flags: int) -> str:
    """Give the two-letter rendering by the same rule."""
    if flags:
        for bit, _, word in _SINGLE_WORD:
            if flags & bit:
                return word
    return COMPACT[state]


class Reason(StrEnum):
    """Why a job waits, or why it ended. The value is the word that users and tools see."""

    NONE = "None"
    PRIORITY = "Priority"
    RESOURCES = "Resources"
    TOPOLOGY_LEVEL = "TopologyLevel"
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER = "DependencyNeverSatisfied"
    BEGIN_TIME = "BeginTime"
    HELD_USER = "JobHeldUser"
    HELD_ADMIN = "JobHeldAdmin"
    ARRAY_LIMIT = "JobArrayTaskLimit"
    RESERVATION = "Reservation"
    RESERVATION_DELETED = "ReservationDeleted"
    RESERVATION_INVALID = "ReservationInvalid"
    NODE_NOT_AVAIL = "ReqNodeNotAvail"
    PARTITION_NODE_LIMIT = "PartitionNodeLimit"
    PARTITION_TIME_LIMIT = "PartitionTimeLimit"
    PARTITION_DOWN = "PartitionDown"
    PARTITION_INACTIVE = "PartitionInactive"
    BAD_CONSTRAINTS = "BadConstraints"
    CLEANING = "Cleaning"
    DEADLINE = "DeadLine"
    LICENSES = "Licenses"
    MAX_REQUEUE = "JobHoldMaxRequeue"
    MAX_MEMORY = "MaxMemPerLimit"
    NON_ZERO_EXIT = "NonZeroExitCode"
    RAISED_SIGNAL = "RaisedSignal"
    TIME_LIMIT = "TimeLimit"
    OUT_OF_MEMORY = "OutOfMemory"
    NODE_DOWN = "NodeDown"
    LAUNCH_FAILURE = "JobLaunchFailure"
    SYSTEM_FAILURE = "SystemFailure"
    INACTIVE_LIMIT = "InactiveLimit"

    # Limits of associations, QOS and partitions, as Slurm spells them (ctld.core.limits finds them by their parts).
    INVALID_ACCOUNT = "InvalidAccount"
    INVALID_QOS = "InvalidQOS"
    ACCOUNT_NOT_ALLOWED = "AccountNotAllowed"
    QOS_NOT_ALLOWED = "QOSNotAllowed"
    QOS_USAGE_THRESHOLD = "QOSUsageThreshold"
    PARTITION_CONFIG = "PartitionConfig"
    ACCOUNTING_POLICY = "AccountingPolicy"
    ASSOC_GRP_JOBS_LIMIT = "AssocGrpJobsLimit"
    ASSOC_GRP_SUBMIT_JOBS_LIMIT = "AssocGrpSubmitJobsLimit"
    ASSOC_GRP_WALL_LIMIT = "AssocGrpWallLimit"
    ASSOC_MAX_JOBS_LIMIT = "AssocMaxJobsLimit"
    ASSOC_MAX_SUBMIT_JOB_LIMIT = "AssocMaxSubmitJobLimit"
    ASSOC_MAX_WALL_DURATION_PER_JOB_LIMIT = "AssocMaxWallDurationPerJobLimit"
    ASSOC_GRP_CPU_LIMIT = "AssocGrpCpuLimit"
    ASSOC_GRP_MEM_LIMIT = "AssocGrpMemLimit"
    ASSOC_GRP_NODE_LIMIT = "AssocGrpNodeLimit"
    ASSOC_GRP_GRES = "AssocGrpGRES"
    ASSOC_GRP_LICENSE = "AssocGrpLicense"
    ASSOC_GRP_BB = "AssocGrpBB"
    ASSOC_GRP_ENERGY = "AssocGrpEnergy"
    ASSOC_GRP_BILLING = "AssocGrpBilling"
    ASSOC_GRP_UNKNOWN = "AssocGrpUnknown"
    ASSOC_GRP_CPU_MINUTES_LIMIT = "AssocGrpCPUMinutesLimit"
    ASSOC_GRP_MEM_MINUTES = "AssocGrpMemMinutes"
    ASSOC_GRP_NODE_MINUTES = "AssocGrpNodeMinutes"
    ASSOC_GRP_GRES_MINUTES = "AssocGrpGRESMinutes"
    ASSOC_GRP_LICENSE_MINUTES = "AssocGrpLicenseMinutes"
    ASSOC_GRP_BB_MINUTES = "AssocGrpBBMinutes"
    ASSOC_GRP_ENERGY_MINUTES = "AssocGrpEnergyMinutes"
    ASSOC_GRP_BILLING_MINUTES = "AssocGrpBillingMinutes"
    ASSOC_GRP_UNKNOWN_MINUTES = "AssocGrpUnknownMinutes"
    ASSOC_GRP_CPU_RUN_MINUTES_LIMIT = "AssocGrpCPURunMinutesLimit"
    ASSOC_GRP_MEM_RUN_MINUTES = "AssocGrpMemRunMinutes"
    ASSOC_GRP_NODE_RUN_MINUTES = "AssocGrpNodeRunMinutes"
    ASSOC_GRP_GRES_RUN_MINUTES = "AssocGrpGRESRunMinutes"
    ASSOC_GRP_LICENSE_RUN_MINUTES = "AssocGrpLicenseRunMinutes"
    ASSOC_GRP_BB_RUN_MINUTES = "AssocGrpBBRunMinutes"
    ASSOC_GRP_ENERGY_RUN_MINUTES = "AssocGrpEnergyRunMinutes"
    ASSOC_GRP_BILLING_RUN_MINUTES = "AssocGrpBillingRunMinutes"
    ASSOC_GRP_UNKNOWN_RUN_MINUTES = "AssocGrpUnknownRunMinutes"
    ASSOC_MAX_CPU_PER_JOB_LIMIT = "AssocMaxCpuPerJobLimit"
    ASSOC_MAX_MEM_PER_JOB = "AssocMaxMemPerJob"
    ASSOC_MAX_NODE_PER_JOB_LIMIT = "AssocMaxNodePerJobLimit"
    ASSOC_MAX_GRES_PER_JOB = "AssocMaxGRESPerJob"
    ASSOC_MAX_LICENSE_PER_JOB = "AssocMaxLicensePerJob"
    ASSOC_MAX_BB_PER_JOB = "AssocMaxBBPerJob"
    ASSOC_MAX_ENERGY_PER_JOB = "AssocMaxEnergyPerJob"
    ASSOC_MAX_BILLING_PER_JOB = "AssocMaxBillingPerJob"
    ASSOC_MAX_UNKNOWN_PER_JOB = "AssocMaxUnknownPerJob"
    ASSOC_MAX_CPU_PER_NODE = "AssocMaxCpuPerNode"
    ASSOC_MAX_MEM_PER_NODE = "AssocMaxMemPerNode"
    ASSOC_MAX_GRES_PER_NODE = "AssocMaxGRESPerNode"
    ASSOC_MAX_ENERGY_PER_NODE = "AssocMaxEnergyPerNode"
    ASSOC_MAX_BILLING_PER_NODE = "AssocMaxBillingPerNode"
    ASSOC_MAX_UNKNOWN_PER_NODE = "AssocMaxUnknownPerNode"
    ASSOC_MAX_CPU_MINUTES_PER_JOB_LIMIT = "AssocMaxCpuMinutesPerJobLimit"
    ASSOC_MAX_MEM_MINUTES_PER_JOB = "AssocMaxMemMinutesPerJob"
    ASSOC_MAX_NODE_MINUTES_PER_JOB = "AssocMaxNodeMinutesPerJob"
    ASSOC_MAX_GRES_MINUTES_PER_JOB = "AssocMaxGRESMinutesPerJob"
    ASSOC_MAX_LICENSE_MINUTES_PER_JOB = "AssocMaxLicenseMinutesPerJob"
    ASSOC_MAX_BB_MINUTES_PER_JOB = "AssocMaxBBMinutesPerJob"
    ASSOC_MAX_ENERGY_MINUTES_PER_JOB = "AssocMaxEnergyMinutesPerJob"
    ASSOC_MAX_BILLING_MINUTES_PER_JOB = "AssocMaxBillingMinutesPerJob"
    ASSOC_MAX_UNKNOWN_MINUTES_PER_JOB = "AssocMaxUnknownMinutesPerJob"
    QOS_GRP_JOBS_LIMIT = "QOSGrpJobsLimit"
    QOS_GRP_SUBMIT_JOBS_LIMIT = "QOSGrpSubmitJobsLimit"
    QOS_GRP_WALL_LIMIT = "QOSGrpWallLimit"
    QOS_MAX_JOBS_PER_USER_LIMIT = "QOSMaxJobsPerUserLimit"
    QOS_MAX_SUBMIT_JOB_PER_USER_LIMIT = "QOSMaxSubmitJobPerUserLimit"
    QOS_MAX_WALL_DURATION_PER_JOB_LIMIT = "QOSMaxWallDurationPerJobLimit"
    MAX_JOBS_PER_ACCOUNT = "MaxJobsPerAccount"
    MAX_SUBMIT_JOBS_PER_ACCOUNT = "MaxSubmitJobsPerAccount"
    QOS_GRP_CPU_LIMIT = "QOSGrpCpuLimit"
    QOS_GRP_MEM_LIMIT = "QOSGrpMemLimit"
    QOS_GRP_NODE_LIMIT = "QOSGrpNodeLimit"
    QOS_GRP_GRES = "QOSGrpGRES"
    QOS_GRP_LICENSE = "QOSGrpLicense"
    QOS_GRP_BB = "QOSGrpBB"
    QOS_GRP_ENERGY = "QOSGrpEnergy"
    QOS_GRP_BILLING = "QOSGrpBilling"
    QOS_GRP_UNKNOWN = "QOSGrpUnknown"
    QOS_GRP_CPU_MINUTES_LIMIT = "QOSGrpCPUMinutesLimit"
    QOS_GRP_MEMORY_MINUTES = "QOSGrpMemoryMinutes"
    QOS_GRP_NODE_MINUTES = "QOSGrpNodeMinutes"
    QOS_GRP_GRES_MINUTES = "QOSGrpGRESMinutes"
    QOS_GRP_LICENSE_MINUTES = "QOSGrpLicenseMinutes"
    QOS_GRP_BB_MINUTES = "QOSGrpBBMinutes"
    QOS_GRP_ENERGY_MINUTES = "QOSGrpEnergyMinutes"
    QOS_GRP_BILLING_MINUTES = "QOSGrpBillingMinutes"
    QOS_GRP_UNKNOWN_MINUTES = "QOSGrpUnknownMinutes"
    QOS_GRP_CPU_RUN_MINUTES_LIMIT = "QOSGrpCPURunMinutesLimit"
    QOS_GRP_MEMORY_RUN_MINUTES = "QOSGrpMemoryRunMinutes"
    QOS_GRP_NODE_RUN_MINUTES = "QOSGrpNodeRunMinutes"
    QOS_GRP_GRES_RUN_MINUTES = "QOSGrpGRESRunMinutes"
    QOS_GRP_LICENSE_RUN_MINUTES = "QOSGrpLicenseRunMinutes"
    QOS_GRP_BB_RUN_MINUTES = "QOSGrpBBRunMinutes"
    QOS_GRP_ENERGY_RUN_MINUTES = "QOSGrpEnergyRunMinutes"
    QOS_GRP_BILLING_RUN_MINUTES = "QOSGrpBillingRunMinutes"
    QOS_GRP_UNKNOWN_RUN_MINUTES = "QOSGrpUnknownRunMinutes"
    QOS_MAX_CPU_PER_JOB_LIMIT = "QOSMaxCpuPerJobLimit"
    QOS_MAX_MEMORY_PER_JOB = "QOSMaxMemoryPerJob"
    QOS_MAX_NODE_PER_JOB_LIMIT = "QOSMaxNodePerJobLimit"
    QOS_MAX_GRES_PER_JOB = "QOSMaxGRESPerJob"
    QOS_MAX_LICENSE_PER_JOB = "QOSMaxLicensePerJob"
    QOS_MAX_BB_PER_JOB = "QOSMaxBBPerJob"
    QOS_MAX_ENERGY_PER_JOB = "QOSMaxEnergyPerJob"
    QOS_MAX_BILLING_PER_JOB = "QOSMaxBillingPerJob"
    QOS_MAX_UNKNOWN_PER_JOB = "QOSMaxUnknownPerJob"
    QOS_MAX_CPU_PER_NODE = "QOSMaxCpuPerNode"
    QOS_MAX_MEMORY_PER_NODE = "QOSMaxMemoryPerNode"
    QOS_MAX_GRES_PER_NODE = "QOSMaxGRESPerNode"
    QOS_MAX_ENERGY_PER_NODE = "QOSMaxEnergyPerNode"
    QOS_MAX_BILLING_PER_NODE = "QOSMaxBillingPerNode"
    QOS_MAX_UNKNOWN_PER_NODE = "QOSMaxUnknownPerNode"
    QOS_MAX_CPU_PER_USER_LIMIT = "QOSMaxCpuPerUserLimit"
    QOS_MAX_MEMORY_PER_USER = "QOSMaxMemoryPerUser"
    QOS_MAX_NODE_PER_USER_LIMIT = "QOSMaxNodePerUserLimit"
    QOS_MAX_GRES_PER_USER = "QOSMaxGRESPerUser"
    QOS_MAX_LICENSE_PER_USER = "QOSMaxLicensePerUser"
    QOS_MAX_BB_PER_USER = "QOSMaxBBPerUser"
    QOS_MAX_ENERGY_PER_USER = "QOSMaxEnergyPerUser"
    QOS_MAX_BILLING_PER_USER = "QOSMaxBillingPerUser"
    QOS_MAX_UNKNOWN_PER_USER = "QOSMaxUnknownPerUser"
    QOS_MAX_CPU_MINUTES_PER_JOB_LIMIT = "QOSMaxCpuMinutesPerJobLimit"
    QOS_MAX_MEMORY_MINUTES_PER_JOB = "QOSMaxMemoryMinutesPerJob"
    QOS_MAX_NODE_MINUTES_PER_JOB = "QOSMaxNodeMinutesPerJob"
    QOS_MAX_GRES_MINUTES_PER_JOB = "QOSMaxGRESMinutesPerJob"
    QOS_MAX_LICENSE_MINUTES_PER_JOB = "QOSMaxLicenseMinutesPerJob"
    QOS_MAX_BB_MINUTES_PER_JOB = "QOSMaxBBMinutesPerJob"
    QOS_MAX_ENERGY_MINUTES_PER_JOB = "QOSMaxEnergyMinutesPerJob"
    QOS_MAX_BILLING_MINUTES_PER_JOB = "QOSMaxBillingMinutesPerJob"
    QOS_MAX_UNKNOWN_MINUTES_PER_JOB = "QOSMaxUnknownMinutesPerJob"
    QOS_MIN_CPU_NOT_SATISFIED = "QOSMinCpuNotSatisfied"
    QOS_MIN_MEMORY = "QOSMinMemory"
    QOS_MIN_NODE = "QOSMinNode"
    QOS_MIN_GRES = "QOSMinGRES"
    QOS_MIN_LICENSE = "QOSMinLicense"
    QOS_MIN_BB = "QOSMinBB"
    QOS_MIN_ENERGY = "QOSMinEnergy"
    QOS_MIN_BILLING = "QOSMinBilling"
    QOS_MIN_UNKNOWN = "QOSMinUnknown"
    MAX_CPU_PER_ACCOUNT = "MaxCpuPerAccount"
    MAX_MEMORY_PER_ACCOUNT = "MaxMemoryPerAccount"
    MAX_NODE_PER_ACCOUNT = "MaxNodePerAccount"
    MAX_GRES_PER_ACCOUNT = "MaxGRESPerAccount"
    MAX_LICENSE_PER_ACCOUNT = "MaxLicensePerAccount"
    MAX_BB_PER_ACCOUNT = "MaxBBPerAccount"
    MAX_ENERGY_PER_ACCOUNT = "MaxEnergyPerAccount"
    MAX_BILLING_PER_ACCOUNT = "MaxBillingPerAccount"
    MAX_UNKNOWN_PER_ACCOUNT = "MaxUnknownPerAccount"
    MAX_CPU_RUN_MINS_PER_USER = "MaxCpuRunMinsPerUser"
    MAX_MEMORY_RUN_MINS_PER_USER = "MaxMemoryRunMinsPerUser"
    MAX_NODE_RUN_MINS_PER_USER = "MaxNodeRunMinsPerUser"
    MAX_GRES_RUN_MINS_PER_USER = "MaxGRESRunMinsPerUser"
    MAX_LICENSE_RUN_MINS_PER_USER = "MaxLicenseRunMinsPerUser"
    MAX_BB_RUN_MINS_PER_USER = "MaxBBRunMinsPerUser"
    MAX_ENERGY_RUN_MINS_PER_USER = "MaxEnergyRunMinsPerUser"
    MAX_BILLING_RUN_MINS_PER_USER = "MaxBillingRunMinsPerUser"
    MAX_UNKNOWN_RUN_MINS_PER_USER = "MaxUnknownRunMinsPerUser"
    MAX_CPU_RUN_MINS_PER_ACCOUNT = "MaxCpuRunMinsPerAccount"
    MAX_MEMORY_RUN_MINS_PER_ACCOUNT = "MaxMemoryRunMinsPerAccount"
    MAX_NODE_RUN_MINS_PER_ACCOUNT = "MaxNodeRunMinsPerAccount"
    MAX_GRES_RUN_MINS_PER_ACCOUNT = "MaxGRESRunMinsPerAccount"
    MAX_LICENSE_RUN_MINS_PER_ACCOUNT = "MaxLicenseRunMinsPerAccount"
    MAX_BB_RUN_MINS_PER_ACCOUNT = "MaxBBRunMinsPerAccount"
    MAX_ENERGY_RUN_MINS_PER_ACCOUNT = "MaxEnergyRunMinsPerAccount"
    MAX_BILLING_RUN_MINS_PER_ACCOUNT = "MaxBillingRunMinsPerAccount"
    MAX_UNKNOWN_RUN_MINS_PER_ACCOUNT = "MaxUnknownRunMinsPerAccount"


class PartitionState(StrEnum):
    """What a partition takes: UP queues and runs, DOWN queues, DRAIN runs, INACTIVE neither."""

    UP = "UP"
    DOWN = "DOWN"
    DRAIN = "DRAIN"
    INACTIVE = "INACTIVE"

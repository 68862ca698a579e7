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

# (bit, long, compact) in the order in which the single-word rendering tests them.
_SINGLE_WORD = (
    (COMPLETING, "COMPLETING", "CG"),
    (CONFIGURING, "CONFIGURING", "CF"),
    (REQUEUED, "REQUEUED", "RQ"),
    (REQUEUE_HOLD, "REQUEUE_HOLD", "RH"),
    (SPECIAL_EXIT, "SPECIAL_EXIT", "SE"),
    (STOPPED, "STOPPED", "ST"),
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
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER = "DependencyNeverSatisfied"
    BEGIN_TIME = "BeginTime"
    HELD_USER = "JobHeldUser"
    HELD_ADMIN = "JobHeldAdmin"
    ARRAY_LIMIT = "JobArrayTaskLimit"
    NODE_NOT_AVAIL = "ReqNodeNotAvail"
    PARTITION_NODE_LIMIT = "PartitionNodeLimit"
    PARTITION_TIME_LIMIT = "PartitionTimeLimit"
    PARTITION_DOWN = "PartitionDown"
    PARTITION_INACTIVE = "PartitionInactive"
    BAD_CONSTRAINTS = "BadConstraints"
    CLEANING = "Cleaning"
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


class PartitionState(StrEnum):
    """What a partition takes: UP queues and runs, DOWN queues, DRAIN runs, INACTIVE neither."""

    UP = "UP"
    DOWN = "DOWN"
    DRAIN = "DRAIN"
    INACTIVE = "INACTIVE"

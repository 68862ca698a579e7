"""What an explanation says: why a job waits, stage by stage, with the numbers behind each."""

from __future__ import annotations

from dataclasses import dataclass

from ctld.core.plan import LimitNumbers, Wait
from muster.ids import UnixTime


@dataclass(frozen=True, slots=True)
class Stage:
    """One question that a job has to pass before it starts."""

    name: str
    """hold | dependency | begin time | deadline | array | cleaning | partition | access | time limit | request |
    limits | usage | licenses | reservation | nodes."""
    passed: bool
    sentence: str
    """What was asked and found, with its numbers."""


@dataclass(frozen=True, slots=True)
class Filter:
    """How many nodes are left after one more question; each counts only nodes that passed those before it."""

    name: str
    """cluster | partition | state | excluded | named | features | hardware | reservation | cleaning | memory | cpus |
    gpus (or another generic resource) | others | together."""
    nodes: int
    sentence: str
    asked: int = 0
    """Of each node, at least: MiB, CPUs or a count (of `together` of the whole job); 0: nothing is counted."""
    most: int = 0
    """What is there of it: on the node that has most, of those that passed before (of `together` on all of them)."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that holds for the job, and how it stands."""

    numbers: LimitNumbers
    in_the_way: bool


@dataclass(frozen=True, slots=True)
class PartitionView:
    """How the job stands in one of its partitions."""

    name: str
    stages: tuple[Stage, ...]
    limits: tuple[Limit, ...]
    filters: tuple[Filter, ...]
    """Empty where the request could not be laid over the partition."""
    nodes_needed: int
    place: int
    """In line, 1 for the first; 0: it is not in line."""
    waiting: int
    """Jobs in line there, an array as one."""
    next_before: int
    """The job right before it; 0: none."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A job that has what this one would need."""

    job_id: int
    nodes: tuple[int, ...]
    """Of those that matter here."""
    ends_at: int
    """Of a running one, at the latest; 0: it is about to be over; FAR: nobody knows."""
    starts_at: int = 0
    """Of a waiting one, to which the nodes are promised from then on; 0: it runs."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All of it, of one pending job at one time."""

    job_id: int
    made_at: UnixTime
    wait: Wait
    """Reason, free text, planned start and nodes, as squeue shows them."""
    sentence: str
    """The reason with the number that failed, in one sentence."""
    stages: tuple[Stage, ...]
    """What hangs on no partition."""
    partitions: tuple[PartitionView, ...]
    blockers: tuple[Blocker, ...]
    """Those that end or start first; at most MOST_BLOCKERS."""
    blocking: int
    """How many there are."""
    priority: int
    waited_seconds: int
    """Since it could first start; 0: it could not yet."""
    longest_seconds: int
    """max_queue_wait of the job; below 0: none."""
    late: bool
    """It has waited longer and goes first in its tier."""

"""The kinds of limits, the order in which they are looked at, and the reason that each gives.

The order is that of Slurm's own checks (scheduling.md 10.4), since the first limit in the way is the one shown.
"""

from __future__ import annotations

from enum import IntEnum

from muster.states import Reason


class Kind(IntEnum):
    """What is limited: of a group (GRP_*), of a job (JOB_*), of a node of a job, of a user's or an account's jobs in
    a QOS, of a user's jobs in an association (MAX_*)."""

    GRP_TRES = 0
    GRP_TRES_MINUTES = 1
    GRP_TRES_RUN_MINUTES = 2
    GRP_JOBS = 3
    GRP_SUBMIT_JOBS = 4
    GRP_WALL = 5
    MAX_JOBS = 6
    MAX_SUBMIT_JOBS = 7
    JOB_TRES = 8
    NODE_TRES = 9
    JOB_TRES_MINUTES = 10
    JOB_WALL = 11
    USER_TRES = 12
    USER_TRES_RUN_MINUTES = 13
    USER_JOBS = 14
    USER_SUBMIT_JOBS = 15
    ACCOUNT_TRES = 16
    ACCOUNT_TRES_RUN_MINUTES = 17
    ACCOUNT_JOBS = 18
    ACCOUNT_SUBMIT_JOBS = 19
    MIN_TRES = 20


NAMES = {
    Kind.GRP_TRES: "GrpTRES",
    Kind.GRP_TRES_MINUTES: "GrpTRESMins",
    Kind.GRP_TRES_RUN_MINUTES: "GrpTRESRunMins",
    Kind.GRP_JOBS: "GrpJobs",
    Kind.GRP_SUBMIT_JOBS: "GrpSubmitJobs",
    Kind.GRP_WALL: "GrpWall",
    Kind.MAX_JOBS: "MaxJobs",
    Kind.MAX_SUBMIT_JOBS: "MaxSubmitJobs",
    Kind.JOB_TRES: "MaxTRESPerJob",
    Kind.NODE_TRES: "MaxTRESPerNode",
    Kind.JOB_TRES_MINUTES: "MaxTRESMinsPerJob",
    Kind.JOB_WALL: "MaxWall",
    Kind.USER_TRES: "MaxTRESPerUser",
    Kind.USER_TRES_RUN_MINUTES: "MaxTRESRunMinsPerUser",
    Kind.USER_JOBS: "MaxJobsPerUser",
    Kind.USER_SUBMIT_JOBS: "MaxSubmitJobsPerUser",
    Kind.ACCOUNT_TRES: "MaxTRESPerAccount",
    Kind.ACCOUNT_TRES_RUN_MINUTES: "MaxTRESRunMinsPerAccount",
    Kind.ACCOUNT_JOBS: "MaxJobsPerAccount",
    Kind.ACCOUNT_SUBMIT_JOBS: "MaxSubmitJobsPerAccount",
    Kind.MIN_TRES: "MinTRES",
}
"""As sacctmgr writes them."""

RUNNING_JOBS = frozenset((Kind.GRP_JOBS, Kind.MAX_JOBS, Kind.USER_JOBS, Kind.ACCOUNT_JOBS))
SUBMITTED_JOBS = frozenset(
    (Kind.GRP_SUBMIT_JOBS, Kind.MAX_SUBMIT_JOBS, Kind.USER_SUBMIT_JOBS, Kind.ACCOUNT_SUBMIT_JOBS)
)
RUNNING_TRES = frozenset((Kind.GRP_TRES, Kind.USER_TRES, Kind.ACCOUNT_TRES))
RUN_MINUTES = frozenset((Kind.GRP_TRES_RUN_MINUTES, Kind.USER_TRES_RUN_MINUTES, Kind.ACCOUNT_TRES_RUN_MINUTES))
PAST_USE = frozenset((Kind.GRP_TRES_MINUTES, Kind.GRP_WALL))

# How a limit is looked at: plain numbers, since a look is made for every job that might start.
BY_JOBS, BY_SUBMITTED, BY_TRES, BY_NODES, BY_JOB, BY_NODE, BY_WALL, BY_MINIMUM = range(8)
BY_PAST_WALL, BY_RUN_MINUTES, BY_JOB_MINUTES, BY_PAST_TRES = range(8, 12)
_HOW = {
    **dict.fromkeys(RUNNING_JOBS, BY_JOBS),
    **dict.fromkeys(SUBMITTED_JOBS, BY_SUBMITTED),
    **dict.fromkeys(RUNNING_TRES, BY_TRES),
    **dict.fromkeys(RUN_MINUTES, BY_RUN_MINUTES),
    Kind.JOB_TRES: BY_JOB,
    Kind.NODE_TRES: BY_NODE,
    Kind.JOB_WALL: BY_WALL,
    Kind.MIN_TRES: BY_MINIMUM,
    Kind.GRP_WALL: BY_PAST_WALL,
    Kind.JOB_TRES_MINUTES: BY_JOB_MINUTES,
    Kind.GRP_TRES_MINUTES: BY_PAST_TRES,
}


def how(kind: Kind, tres: str) -> int:
    """Tell how a limit is looked at: one of the numbers above."""
    return BY_NODES if kind in RUNNING_TRES and tres == "node" else _HOW[kind]


_QOS_AT_SUBMIT = (
    Kind.ACCOUNT_TRES,
    Kind.USER_TRES,
    Kind.GRP_TRES,
    Kind.GRP_SUBMIT_JOBS,
    Kind.JOB_TRES_MINUTES,
    Kind.GRP_TRES_MINUTES,
    Kind.GRP_TRES_RUN_MINUTES,
    Kind.ACCOUNT_TRES_RUN_MINUTES,
    Kind.USER_TRES_RUN_MINUTES,
    Kind.JOB_WALL,
    Kind.GRP_WALL,
    Kind.JOB_TRES,
    Kind.NODE_TRES,
    Kind.ACCOUNT_SUBMIT_JOBS,
    Kind.USER_SUBMIT_JOBS,
    Kind.MIN_TRES,
)
_ASSOCIATION_AT_SUBMIT = (
    Kind.GRP_TRES,
    Kind.GRP_SUBMIT_JOBS,
    Kind.GRP_TRES_MINUTES,
    Kind.GRP_TRES_RUN_MINUTES,
    Kind.GRP_WALL,
    Kind.JOB_TRES,
    Kind.NODE_TRES,
    Kind.MAX_SUBMIT_JOBS,
    Kind.JOB_TRES_MINUTES,
    Kind.JOB_WALL,
)
_QOS_BEFORE = (Kind.GRP_JOBS, Kind.GRP_WALL, Kind.ACCOUNT_JOBS, Kind.USER_JOBS, Kind.JOB_WALL)
_ASSOCIATION_BEFORE = (Kind.GRP_JOBS, Kind.GRP_WALL, Kind.MAX_JOBS, Kind.JOB_WALL)
_QOS_AFTER = (
    Kind.GRP_TRES_MINUTES,
    Kind.GRP_TRES,
    Kind.GRP_TRES_RUN_MINUTES,
    Kind.JOB_TRES_MINUTES,
    Kind.JOB_TRES,
    Kind.NODE_TRES,
    Kind.MIN_TRES,
    Kind.ACCOUNT_TRES,
    Kind.USER_TRES,
    Kind.ACCOUNT_TRES_RUN_MINUTES,
    Kind.USER_TRES_RUN_MINUTES,
)
_ASSOCIATION_AFTER = (
    Kind.GRP_TRES_MINUTES,
    Kind.GRP_TRES,
    Kind.GRP_TRES_RUN_MINUTES,
    Kind.JOB_TRES_MINUTES,
    Kind.JOB_TRES,
    Kind.NODE_TRES,
)


def _places(*kinds: tuple[Kind, ...]) -> dict[Kind, int]:
    return {kind: place for place, kind in enumerate(kind for part in kinds for kind in part)}


AT_SUBMIT = (_places(_ASSOCIATION_AT_SUBMIT), _places(_QOS_AT_SUBMIT))
"""Kind -> its place in the order; [0] of an association, [1] of a QOS. A kind that is not in it is not looked at."""
BEFORE = (_places(_ASSOCIATION_BEFORE), _places(_QOS_BEFORE))
"""... when a job is looked at, before nodes are chosen."""
AFTER = (_places(_ASSOCIATION_AFTER), _places(_QOS_AFTER))
"""... when its nodes are known."""

_TYPES = {"cpu": "Cpu", "mem": "Memory", "node": "Node", "billing": "Billing", "energy": "Energy"}
_FAMILIES = {"gres": "GRES", "license": "License", "bb": "BB"}

_FORMS = {
    (Kind.GRP_TRES, False): "AssocGrp{}",
    (Kind.GRP_TRES_MINUTES, False): "AssocGrp{}Minutes",
    (Kind.GRP_TRES_RUN_MINUTES, False): "AssocGrp{}RunMinutes",
    (Kind.JOB_TRES, False): "AssocMax{}PerJob",
    (Kind.NODE_TRES, False): "AssocMax{}PerNode",
    (Kind.JOB_TRES_MINUTES, False): "AssocMax{}MinutesPerJob",
    (Kind.GRP_TRES, True): "QOSGrp{}",
    (Kind.GRP_TRES_MINUTES, True): "QOSGrp{}Minutes",
    (Kind.GRP_TRES_RUN_MINUTES, True): "QOSGrp{}RunMinutes",
    (Kind.JOB_TRES, True): "QOSMax{}PerJob",
    (Kind.NODE_TRES, True): "QOSMax{}PerNode",
    (Kind.JOB_TRES_MINUTES, True): "QOSMax{}MinutesPerJob",
    (Kind.USER_TRES, True): "QOSMax{}PerUser",
    (Kind.USER_TRES_RUN_MINUTES, True): "Max{}RunMinsPerUser",
    (Kind.ACCOUNT_TRES, True): "Max{}PerAccount",
    (Kind.ACCOUNT_TRES_RUN_MINUTES, True): "Max{}RunMinsPerAccount",
    (Kind.MIN_TRES, True): "QOSMin{}",
}
_WHOLE = {
    (Kind.GRP_JOBS, False): Reason.ASSOC_GRP_JOBS_LIMIT,
    (Kind.GRP_SUBMIT_JOBS, False): Reason.ASSOC_GRP_SUBMIT_JOBS_LIMIT,
    (Kind.GRP_WALL, False): Reason.ASSOC_GRP_WALL_LIMIT,
    (Kind.MAX_JOBS, False): Reason.ASSOC_MAX_JOBS_LIMIT,
    (Kind.MAX_SUBMIT_JOBS, False): Reason.ASSOC_MAX_SUBMIT_JOB_LIMIT,
    (Kind.JOB_WALL, False): Reason.ASSOC_MAX_WALL_DURATION_PER_JOB_LIMIT,
    (Kind.GRP_JOBS, True): Reason.QOS_GRP_JOBS_LIMIT,
    (Kind.GRP_SUBMIT_JOBS, True): Reason.QOS_GRP_SUBMIT_JOBS_LIMIT,
    (Kind.GRP_WALL, True): Reason.QOS_GRP_WALL_LIMIT,
    (Kind.JOB_WALL, True): Reason.QOS_MAX_WALL_DURATION_PER_JOB_LIMIT,
    (Kind.USER_JOBS, True): Reason.QOS_MAX_JOBS_PER_USER_LIMIT,
    (Kind.USER_SUBMIT_JOBS, True): Reason.QOS_MAX_SUBMIT_JOB_PER_USER_LIMIT,
    (Kind.ACCOUNT_JOBS, True): Reason.MAX_JOBS_PER_ACCOUNT,
    (Kind.ACCOUNT_SUBMIT_JOBS, True): Reason.MAX_SUBMIT_JOBS_PER_ACCOUNT,
}
_WORDS = {reason.value: reason for reason in Reason}


def type_of(tres: str) -> str:
    """Give the word that reasons have for a TRES: Cpu, Memory, Node, GRES, License, BB, Energy, Billing, Unknown."""
    return _TYPES.get(tres) or _FAMILIES.get(tres.partition("/")[0], "Unknown")


def reason(kind: Kind, of_qos: bool, tres: str = "") -> Reason:
    """Give the reason of a limit. Slurm spells CPUs, nodes and memory in its own way in some of them."""
    whole = _WHOLE.get((kind, of_qos))
    if whole is not None:
        return whole
    form = _FORMS[kind, of_qos]
    word = type_of(tres)
    for spelling in _spellings(form, word, of_qos):
        found = _WORDS.get(spelling)
        if found is not None:
            return found
    # Such as a MaxTRESPerNode of nodes, which says nothing.
    return _WORDS[form.format("Unknown")]


def _spellings(form: str, word: str, of_qos: bool) -> tuple[str, ...]:
    """Give the spellings that may be in use, the most particular first."""
    if word == "Cpu":
        return (
            form.format("CPU") + "Limit",
            form.format(word) + "Limit",
            form.format(word) + "NotSatisfied",
            form.format(word),
        )
    if word == "Memory":
        return form.format("Mem") + "Limit", form.format(word if of_qos else "Mem")
    return form.format(word) + "Limit", form.format(word)

"""Each reason that a limit can give a job that waits, and its sentence: the limit, whose it is, and the numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Limits, Qos, Share
from ctld.core.apply.indexes import put
from ctld.core.limits.kinds import Kind, reason
from ctld.core.model import GpuRequest, Job, NodeShare
from ctld.core.state import State
from ctld.sched.cycle import plan
from muster.ids import UnixTime
from tests.builders import NOON
from tests.explained import HOUR, explained
from tests.limited import job_of, limited, run, waiting
from tests.placing import everywhere

AMOUNTS = {"cpu": 8, "mem": 8, "node": 2, "gres/gpu": 2, "license/a": 2, "billing": 8}
"""What each job has, or asks for, of what jobs are counted by ..."""
OF_A_NODE = {"cpu": 4, "mem": 4, "node": 1, "gres/gpu": 1, "billing": 4}
"""... on one of its two nodes."""
NOT_COUNTED = ("bb/x", "energy", "fs/disk")
"""Of these no job has or asks for anything: only a minimum of them keeps one waiting. Licences are of no node."""

SAID = {
    (Kind.GRP_TRES, False): ("GrpTRES", "account physics"),
    (Kind.GRP_TRES_MINUTES, False): ("GrpTRESMins", "account physics"),
    (Kind.GRP_TRES_RUN_MINUTES, False): ("GrpTRESRunMins", "account physics"),
    (Kind.GRP_JOBS, False): ("GrpJobs", "account physics"),
    (Kind.GRP_WALL, False): ("GrpWall", "account physics"),
    (Kind.MAX_JOBS, False): ("MaxJobs", "user ada in account physics"),
    (Kind.JOB_TRES, False): ("MaxTRESPerJob", "user ada in account physics"),
    (Kind.NODE_TRES, False): ("MaxTRESPerNode", "user ada in account physics"),
    (Kind.JOB_TRES_MINUTES, False): ("MaxTRESMinsPerJob", "user ada in account physics"),
    (Kind.JOB_WALL, False): ("MaxWall", "user ada in account physics"),
    (Kind.GRP_TRES, True): ("GrpTRES", "QOS high"),
    (Kind.GRP_TRES_MINUTES, True): ("GrpTRESMins", "QOS high"),
    (Kind.GRP_TRES_RUN_MINUTES, True): ("GrpTRESRunMins", "QOS high"),
    (Kind.GRP_JOBS, True): ("GrpJobs", "QOS high"),
    (Kind.GRP_WALL, True): ("GrpWall", "QOS high"),
    (Kind.JOB_TRES, True): ("MaxTRESPerJob", "QOS high"),
    (Kind.NODE_TRES, True): ("MaxTRESPerNode", "QOS high"),
    (Kind.JOB_TRES_MINUTES, True): ("MaxTRESMinsPerJob", "QOS high"),
    (Kind.JOB_WALL, True): ("MaxWall", "QOS high"),
    (Kind.USER_TRES, True): ("MaxTRESPerUser", "QOS high"),
    (Kind.USER_TRES_RUN_MINUTES, True): ("MaxTRESRunMinsPerUser", "QOS high"),
    (Kind.USER_JOBS, True): ("MaxJobsPerUser", "QOS high"),
    (Kind.ACCOUNT_TRES, True): ("MaxTRESPerAccount", "QOS high"),
    (Kind.ACCOUNT_TRES_RUN_MINUTES, True): ("MaxTRESRunMinsPerAccount", "QOS high"),
    (Kind.ACCOUNT_JOBS, True): ("MaxJobsPerAccount", "QOS high"),
    (Kind.MIN_TRES, True): ("MinTRES", "QOS high"),
}
"""(kind, of a QOS) -> its name as sacctmgr writes it, and whose it is."""
_JOBS = {Kind.GRP_JOBS, Kind.MAX_JOBS, Kind.USER_JOBS, Kind.ACCOUNT_JOBS}
_RUNNING = {Kind.GRP_TRES, Kind.USER_TRES, Kind.ACCOUNT_TRES}
_RUN_MINUTES = {Kind.GRP_TRES_RUN_MINUTES, Kind.USER_TRES_RUN_MINUTES, Kind.ACCOUNT_TRES_RUN_MINUTES}


def numbers(kind: Kind, tres: str) -> tuple[int, int, int]:
    """Give a limit that a second job of an hour breaks after the first has run for an hour, what is in use of it, and
    what the second asks for."""
    amount = AMOUNTS.get(tres, 0)
    if kind in _JOBS:
        return 1, 1, 1
    if kind in _RUNNING:
        return 2 * amount - 1, amount, amount
    if kind in _RUN_MINUTES:
        return 120 * amount - 1, 60 * amount, 60 * amount
    if kind == Kind.GRP_TRES_MINUTES:
        return 60 * amount, 60 * amount, 0
    if kind == Kind.GRP_WALL:
        return 60, 60, 0
    if kind == Kind.JOB_TRES_MINUTES:
        return 60 * amount - 1, 0, 60 * amount
    if kind == Kind.JOB_WALL:
        return 59, 0, 60
    if kind == Kind.NODE_TRES:
        return OF_A_NODE.get(tres, 1) - 1, 0, OF_A_NODE.get(tres, 0)
    return (amount + 1, 0, amount) if kind == Kind.MIN_TRES else (amount - 1, 0, amount)


def limits(kind: Kind, tres: str, most: int) -> Limits:
    match kind:
        case Kind.GRP_TRES:
            return Limits(grp_tres={tres: most})
        case Kind.GRP_TRES_MINUTES:
            return Limits(grp_tres_minutes={tres: most})
        case Kind.GRP_TRES_RUN_MINUTES:
            return Limits(grp_tres_run_minutes={tres: most})
        case Kind.GRP_JOBS:
            return Limits(grp_jobs=most)
        case Kind.GRP_WALL:
            return Limits(grp_wall_minutes=most)
        case Kind.MAX_JOBS:
            return Limits(max_jobs=most)
        case Kind.JOB_TRES:
            return Limits(max_tres_per_job={tres: most})
        case Kind.NODE_TRES:
            return Limits(max_tres_per_node={tres: most})
        case Kind.JOB_TRES_MINUTES:
            return Limits(max_tres_minutes_per_job={tres: most})
        case Kind.JOB_WALL:
            return Limits(max_wall_minutes_per_job=most)
    return Limits()


def share(kind: Kind, tres: str, most: int) -> Share:
    """What a user, or an account, may have of a QOS."""
    if kind in (Kind.USER_TRES, Kind.ACCOUNT_TRES):
        return Share(tres={tres: most})
    if kind in (Kind.USER_TRES_RUN_MINUTES, Kind.ACCOUNT_TRES_RUN_MINUTES):
        return Share(tres_run_minutes={tres: most})
    return Share(jobs=most) if kind in (Kind.USER_JOBS, Kind.ACCOUNT_JOBS) else Share()


def under(kind: Kind, of_qos: bool, tres: str, most: int) -> State:
    """Four nodes of four CPUs under this limit."""
    given = limits(kind, tres, most)
    if not of_qos:
        grouped = kind in (*_RUNNING, *_RUN_MINUTES, Kind.GRP_TRES_MINUTES, Kind.GRP_JOBS, Kind.GRP_WALL)
        return limited(cpus=4, physics=given) if grouped else limited(cpus=4, ada=given)
    part = share(kind, tres, most)
    of_users = kind in (Kind.USER_TRES, Kind.USER_TRES_RUN_MINUTES, Kind.USER_JOBS)
    least = {tres: most} if kind == Kind.MIN_TRES else {}
    qos = Qos(2, "high", limits=given, min_tres_per_job=least)
    return limited(cpus=4, qos=[replace(qos, **{"per_user" if of_users else "per_account": part})])


def a_pair(state: State) -> State:
    """Let one job run since an hour, with an hour to go, and an equal one wait for the other two nodes."""

    def job(number: int, seconds: int) -> Job:
        wants = {"nodes_min": 2, "nodes_max": 2, "gpus_per_node": (GpuRequest("", 1),), "licenses": "a:2"}
        return job_of("ada", number, 4, qos="high", limit_seconds=seconds, **wants)

    state.settings = replace(state.settings, licenses={"a": 10})
    state.at = UnixTime(NOON - HOUR)
    parts = [NodeShare(node, 4, (0, 3), 4, (0, 0), 1) for node in (0, 1)]
    first = run(state, job(1, 2 * HOUR), *parts, since=NOON - HOUR)
    assert first.alloc is not None
    put(state, first, replace(first, alloc=replace(first.alloc, licenses="a:2")))
    waiting(state, job(7, HOUR))
    return state


_PLAIN = (*_JOBS, Kind.GRP_WALL, Kind.JOB_WALL)
CASES = [
    (kind, of_qos, tres)
    for kind, of_qos in SAID
    for tres in (("",) if kind in _PLAIN else OF_A_NODE if kind == Kind.NODE_TRES else AMOUNTS)
] + [(Kind.MIN_TRES, True, tres) for tres in NOT_COUNTED]


@pytest.mark.parametrize(("kind", "of_qos", "tres"), CASES)
def test_a_limit_in_the_way_is_named_with_its_numbers(kind: Kind, of_qos: bool, tres: str) -> None:
    most, used, asked = numbers(kind, tres)
    found = explained(a_pair(under(kind, of_qos, tres, most)), 7)
    name, whose = SAID[kind, of_qos]
    end = f"{used} in use, {asked} more asked for" if used else f"{asked} is asked for"
    what = f"{name} {tres}" if tres else name
    assert (found.wait.reason, found.sentence) == (reason(kind, of_qos, tres), f"{what} of {whose} is {most}: {end}")


NEVER = [
    (kind, of_qos, tres)
    for kind, of_qos in SAID
    if kind not in (*_PLAIN, Kind.MIN_TRES)
    for tres in (*NOT_COUNTED, *(("license/a",) if kind == Kind.NODE_TRES else ()))
]


@pytest.mark.parametrize(("kind", "of_qos"), dict.fromkeys(one[:2] for one in NEVER))
def test_what_no_job_asks_for_keeps_nobody(kind: Kind, of_qos: bool) -> None:
    for tres in (one[2] for one in NEVER if one[:2] == (kind, of_qos)):
        # Of what is past none may have been used.
        state = a_pair(under(kind, of_qos, tres, 1 if kind == Kind.GRP_TRES_MINUTES else 0))
        assert [start.job_id for start in plan(state, NOON, reachable=everywhere(state)).starts] == [7], tres

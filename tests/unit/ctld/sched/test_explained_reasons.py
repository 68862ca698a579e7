"""Each reason with which a job waits has a sentence that names the number that failed.

Those of limits of associations and QOS have a test of their own, and so has that none is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Limits
from ctld.core.apply.indexes import put, rebuild
from ctld.core.cluster import PartitionSpec, Settings
from ctld.core.model import Clause, GpuRequest, NodeShare
from ctld.core.reservations import Access, Part, Reservation
from ctld.core.state import State
from ctld.sched.calendar import foresee
from ctld.sched.cycle import plan
from ctld.sched.explain import reason_of
from ctld.sched.explaining import explain
from ctld.sched.explanation import Explanation
from ctld.sched.foreseen import with_planned
from ctld.sched.memory import PlanMemory
from ctld.sched.releases import FAR
from muster.ids import UnixTime
from muster.states import JobState, Reason
from tests.builders import NOON, a_job, a_partition, a_state
from tests.explained import HOUR, Made, explained, full, small, under
from tests.limited import LIMITS, SAFE, job_of, limited, run, waiting
from tests.placing import busy, everywhere, queued
from tests.topologies import a_tree


def held(**fields: object) -> Callable[[], Made]:
    return lambda: (small(a_job(7, priority=0, **fields)), 7)  # type: ignore[arg-type]


def asking(**fields: object) -> Callable[[], Made]:
    return lambda: (small(a_job(7, **fields)), 7)  # type: ignore[arg-type]


def after(clause: Clause, *, reason: str = "", **target: object) -> Callable[[], Made]:
    def made() -> Made:
        job = a_job(7, clauses=(clause,), reason=reason)
        return small(a_job(3, **target), job), 7  # type: ignore[arg-type]

    return made


def throttled() -> Made:
    state = small(a_job(7, array=(0, 9), array_limit=2))
    for number, task in ((8, 0), (9, 1)):
        share = NodeShare(0, 1, (number - 8, number - 8))
        run(state, a_job(number, array_job_id=7, array_task_id=task, limit_seconds=HOUR), share)
    return state, 7


def cleaned() -> Made:
    state = small()
    share = NodeShare(1, 1, (0, 0))
    put(state, None, replace(a_job(7, completing=(1,)), alloc=run(a_state(2), a_job(9), share).alloc))
    return state, 7


def in_partition(**fields: object) -> Callable[[], Made]:
    job = a_job(7, limit_seconds=2 * HOUR, time_limit_minutes=120, nodes_min=2, nodes_max=2)
    return lambda: (small(job, **fields), 7)  # type: ignore[arg-type]


def behind() -> Made:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    for number in (8, 9):
        put(
            state,
            None,
            a_job(number, cpus_per_task=8, memory_per_node_mib=1, priority=100 - number, limit_seconds=HOUR),
        )
    return state, 9


def drained() -> Made:
    state = small(a_job(7, nodes_min=2, nodes_max=2))
    state.nodes[1] = replace(state.nodes[1], drain=True, reason="bad fan")
    return state, 7


def licensed() -> Made:
    state = small()
    state.settings = replace(state.settings, licenses={"matlab": 4})
    run(state, a_job(1, licenses="matlab:3"), NodeShare(0, 1, (0, 0)))
    state.jobs[1] = replace(state.jobs[1], alloc=replace(state.jobs[1].alloc, licenses="matlab:3"))  # type: ignore[type-var]
    put(state, None, a_job(7, licenses="matlab:2"))
    rebuild(state)
    return state, 7


BOB, ADA = Access(("bob",), ids=(1001,)), Access(("ada",), ids=(1000,))


def reserved(start: int, *, of: Access = BOB, flags: tuple[str, ...] = (), **asked: object) -> Made:
    state = small(a_job(7, limit_seconds=HOUR, **asked))  # type: ignore[arg-type]
    state.reservations["r1"] = Reservation(
        "r1",
        1,
        UnixTime(NOON + start),
        UnixTime(NOON + start + HOUR),
        NOON,
        parts=(Part(0), Part(1)),
        users=of,
        flags=flags,
    )
    return state, 7


def split() -> Made:
    state = a_state(
        4, cpus=8, settings=Settings(require_registration=False, topologies=(a_tree((2, 2), levels=("spine", "rack")),))
    )
    for job_id, node in ((1, 1), (2, 3)):
        busy(state, job_id, node, 8, limit_seconds=HOUR)
    return queued(state, a_job(7, nodes_min=2, nodes_max=2, exclusive="node", topology="required:rack")), 7


def of_account(enforce: tuple[str, ...] = (*LIMITS, "qos"), **fields: object) -> Callable[[], Made]:
    def made() -> Made:
        partition = fields.pop("partition", a_partition())
        assert isinstance(partition, PartitionSpec)
        return waiting(limited(enforce=enforce, partitions=(partition,)), job_of("ada", 7, **fields)), 7  # type: ignore[arg-type]

    return made


def spent() -> Made:
    from tests.unit.ctld.sched.test_limits import a_qos

    state = limited(qos=[a_qos("high", 2, usage_threshold=0.5, flags=("EnforceUsageThreshold",))])
    state.at = UnixTime(NOON - HOUR)
    run(state, job_of("ada", 1, 4, limit_seconds=9 * HOUR), since=NOON - HOUR)
    return waiting(state, job_of("ada", 7, qos="high")), 7


CASES: dict[str, tuple[Callable[[], Made], Reason, str]] = {
    "held by its owner": (
        held(hold="user"),
        Reason.HELD_USER,
        "its priority is 0: it was held by its owner; `scontrol release 7` lets it go",
    ),
    "held by an administrator": (
        held(hold="admin"),
        Reason.HELD_ADMIN,
        "its priority is 0: it was held by an administrator; `scontrol release 7` lets it go",
    ),
    "launch failed": (
        held(hold="user", state_text="launch failed requeued held"),
        Reason.HELD_USER,
        "its priority is 0: it was held by its owner (launch failed requeued held); `scontrol release 7` lets it go",
    ),
    "requeued too often": (
        held(hold="user", restarts=6, reason="JobHoldMaxRequeue"),
        Reason.MAX_REQUEUE,
        "it was requeued 6 times, MaxBatchRequeue is 5; `scontrol release 7` tries again",
    ),
    "its reservation is gone": (
        held(hold="user", reason="ReservationDeleted"),
        Reason.RESERVATION_DELETED,
        "its reservation is gone and 0 are left to it; `scontrol release 7` lets it run without one",
    ),
    "a dependency": (
        after(Clause("afterok", 3)),
        Reason.DEPENDENCY,
        "1 dependency to be met: afterok:3(unfulfilled): job 3 is PENDING",
    ),
    "a dependency that never holds": (
        after(
            Clause("afterok", 3, failed=True),
            reason="DependencyNeverSatisfied",
            state=int(JobState.FAILED),
            exit_status=2 << 8,
        ),
        Reason.DEPENDENCY_NEVER,
        "1 of 1 dependencies can never be met: afterok:3(failed): job 3 is FAILED with exit code 2:0",
    ),
    "held, and its dependency never holds": (
        lambda: (
            small(
                a_job(3, state=int(JobState.FAILED), exit_status=9),
                a_job(
                    7,
                    hold="user",
                    priority=0,
                    clauses=(Clause("afterok", 3, failed=True),),
                    reason="DependencyNeverSatisfied",
                ),
            ),
            7,
        ),
        Reason.DEPENDENCY_NEVER,
        "1 of 1 dependencies can never be met: afterok:3(failed): job 3 is FAILED with exit code 0:9",
    ),
    "begin time": (
        asking(begin_at=UnixTime(NOON + 90), eligible_at=UnixTime(0)),
        Reason.BEGIN_TIME,
        "it may begin in 90 seconds (BeginTime)",
    ),
    "array limit": (throttled, Reason.ARRAY_LIMIT, "2 of at most 2 members of its array run (ArrayTaskThrottle)"),
    "cleaning up": (cleaned, Reason.CLEANING, "its last run is being cleaned up on 1 nodes: n2"),
    "partition down": (
        in_partition(state="DOWN"),
        Reason.PARTITION_DOWN,
        "partition main is DOWN: 0 jobs start there",
    ),
    "partition gone": (
        asking(partitions=("gone",)),
        Reason.PARTITION_DOWN,
        "there is no partition gone (any more); there are 1",
    ),
    "partition inactive": (
        in_partition(state="INACTIVE"),
        Reason.PARTITION_INACTIVE,
        "partition main is INACTIVE: 0 jobs start there",
    ),
    "partition time limit": (
        in_partition(max_minutes=60),
        Reason.PARTITION_TIME_LIMIT,
        "120 minutes asked for, MaxTime of partition main is 60 minutes",
    ),
    "partition node limit": (
        in_partition(max_nodes=1),
        Reason.PARTITION_NODE_LIMIT,
        "2 nodes are needed and partition main gives at most 1",
    ),
    "memory limit": (
        lambda: (small(a_job(7, memory_per_node_mib=5000), max_memory_per_node_mib=4000), 7),
        Reason.MAX_MEMORY,
        "5000 MiB a node are asked for, partition main gives at most 4000",
    ),
    "no such nodes": (
        asking(nodes_min=2, nodes_max=2, cpus_per_task=9),
        Reason.BAD_CONSTRAINTS,
        "2 nodes with 9 CPUs, 8000 MiB each are needed: 0 of partition main could ever give that",
    ),
    "more CPUs than the partition has": (
        asking(ntasks=17, memory_per_cpu_mib=1),
        Reason.PARTITION_CONFIG,
        "17 CPUs are asked for, the 2 nodes that could serve have 16",
    ),
    "too many CPUs on what may serve": (
        lambda: (small(a_job(7, ntasks=17, exclude=("n3",), memory_per_cpu_mib=1), nodes=3), 7),
        Reason.BAD_CONSTRAINTS,
        "17 CPUs are asked for, the 2 nodes that could serve have 16",
    ),
    "no such node": (
        asking(cpus_per_task=9, memory_per_node_mib=1),
        Reason.BAD_CONSTRAINTS,
        "1 node with 9 CPUs, 1 MiB is needed: 0 of partition main could ever give that",
    ),
    "too many GPUs in all": (
        asking(gpus=(GpuRequest("", 5),), nodes_max=2, memory_per_cpu_mib=1),
        Reason.BAD_CONSTRAINTS,
        "5 GPUs are asked for, the 2 nodes that could serve have 4",
    ),
    "unknown node": (asking(nodelist=("n99",)), Reason.BAD_CONSTRAINTS, "node n99 of --nodelist is not known"),
    "a node drained": (
        drained,
        Reason.NODE_NOT_AVAIL,
        "2 nodes with 1 CPUs, 8000 MiB each are needed: 1 are left that answer and are not down or drained; "
        "not so n2 drained (bad fan) (ReqNodeNotAvail, UnavailableNodes:n2)",
    ),
    "reserved for maintenance": (
        lambda: reserved(600, flags=("MAINT",)),
        Reason.NODE_NOT_AVAIL,
        "1 node with 1 CPUs, 8000 MiB is needed: of 2 that could serve 0 are left outside of the reservations of "
        "others (ReqNodeNotAvail, Reserved for maintenance)",
    ),
    "reserved for others": (
        lambda: reserved(600),
        Reason.RESOURCES,
        "1 node with 1 CPUs, 8000 MiB is needed: of 2 that could serve 0 are left outside of the reservations of "
        "others",
    ),
    "its reservation has not begun": (
        lambda: reserved(600, of=ADA, reservations=("r1",)),
        Reason.RESERVATION,
        "reservation r1 begins in 600 seconds",
    ),
    "too little is left of its reservation": (
        lambda: reserved(-600, of=ADA, reservations=("r1",)),
        Reason.RESERVATION,
        "3000 seconds are left of its reservations, its time limit is 3600 seconds",
    ),
    "a reservation of others": (
        lambda: reserved(600, reservations=("r1",)),
        Reason.RESERVATION_INVALID,
        "it may use 0 of the 1 reservations that it names: r1",
    ),
    "licences": (licensed, Reason.LICENSES, "2 of matlab asked for, 3 of 4 in use"),
    "memory in use": (
        full(memory_per_node_mib=7000),
        Reason.RESOURCES,
        "1 node with 1 CPUs, 7000 MiB is needed: of 2 that could serve 0 are left with 7000 MiB of memory free; "
        "6000 on the one that has most",
    ),
    "CPUs in use": (
        full(nodes_min=2, nodes_max=2, cpus_per_task=3, memory_per_node_mib=1),
        Reason.RESOURCES,
        "2 nodes with 3 CPUs, 1 MiB each are needed: of 2 that could serve 1 are left with 3 CPUs free; "
        "4 on the one that has most",
    ),
    "GPUs in use": (
        full(gpus_per_node=(GpuRequest("", 2),), memory_per_node_mib=1),
        Reason.RESOURCES,
        "1 node with 1 CPUs, 1 MiB, 2 GPUs is needed: of 2 that could serve 0 are left with 2 GPUs free; "
        "1 on the one that has most",
    ),
    "too few CPUs free in all": (
        full(ntasks=7, memory_per_cpu_mib=1),
        Reason.RESOURCES,
        "1 node with 1 CPUs, 1 MiB is needed: 6 CPUs are free on these 2 together, 7 are asked for in all",
    ),
    "not in one rack": (
        split,
        Reason.TOPOLOGY_LEVEL,
        "2 nodes with 8 CPUs, 256000 MiB, 8 GPUs each are needed: at most 1 of these 2 lie in one rack, "
        "2 are needed there",
    ),
    "behind others": (
        behind,
        Reason.PRIORITY,
        "2 of 3 jobs stand before it in partition main, the last of them is job 8; 1 node with 8 CPUs, 1 MiB is "
        "needed: of 2 that could serve 0 are left with 8 CPUs free; 4 on the one that has most",
    ),
    "a limit of the group": (
        under(Limits(grp_tres={"cpu": 6})),
        Reason.ASSOC_GRP_CPU_LIMIT,
        "GrpTRES cpu of account physics is 6: 4 in use, 4 more asked for",
    ),
    "a limit on jobs": (
        under(Limits(grp_jobs=1)),
        Reason.ASSOC_GRP_JOBS_LIMIT,
        "GrpJobs of account physics is 1: 1 in use, 1 more asked for",
    ),
    "a limit on one job": (
        under(Limits(max_tres_per_job={"cpu": 3})),
        Reason.ASSOC_MAX_CPU_PER_JOB_LIMIT,
        "MaxTRESPerJob cpu of user ada in account physics is 3: 4 is asked for",
    ),
    "unknown account": (
        of_account(account="astrology"),
        Reason.INVALID_ACCOUNT,
        "none of 6 associations is user ada in account astrology",
    ),
    "unknown QOS": (
        of_account(qos="best"),
        Reason.INVALID_QOS,
        "QOS best is none of the 2 that it may use: high, normal",
    ),
    "account not let in": (
        of_account(partition=a_partition(allow_accounts=("chemistry",))),
        Reason.ACCOUNT_NOT_ALLOWED,
        "account physics is none of the 1 that partition main takes: chemistry",
    ),
    "an account above it kept out": (
        of_account(partition=a_partition(deny_accounts=("root", "x"))),
        Reason.ACCOUNT_NOT_ALLOWED,
        "account physics (below root) is one of the 2 that partition main does not take: root, x",
    ),
    "QOS kept out": (
        of_account(partition=a_partition(deny_qos=("normal",))),
        Reason.QOS_NOT_ALLOWED,
        "QOS normal is one of the 1 that partition main does not take: normal",
    ),
    "usage threshold": (
        spent,
        Reason.QOS_USAGE_THRESHOLD,
        "the fairshare factor is 0.3333, UsageThreshold of QOS high is 0.5000",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_reason_names_the_number_that_failed(name: str) -> None:
    made, reason, sentence = CASES[name]
    state, job_id = made()
    found = explained(state, job_id)
    assert (found.wait.reason, found.sentence) == (reason, sentence)
    assert re.search(r"\d", found.sentence)


# ---- what only a plan that looks ahead finds -----------------------------------------------------------------------


def foreseen(state: State, job_id: int) -> Explanation:
    """Explain a job that the pass only says Priority of, with what the calendar says."""
    memory, at = PlanMemory(), NOON
    made = plan(state, at, reachable=everywhere(state), memory=memory)
    wait = reason_of(state, made, state.jobs[job_id], at)
    assert wait.reason is Reason.PRIORITY
    planned = foresee(state, at, reachable=everywhere(state)).planned[job_id]
    return explain(state, at, memory, state.jobs[job_id], with_planned(wait, planned, at), overlay=made)


def a_busy_node(**settings: object) -> State:
    """One node of eight CPUs, all of them in use for twenty minutes more."""
    state = limited(1, cpus=8, enforce=SAFE, **settings)  # type: ignore[arg-type]
    run(state, job_of("eve", 100, 8, limit_seconds=1200))
    return state


def test_a_deadline_that_cannot_be_kept_is_told_with_what_is_left() -> None:
    first = job_of("eve", 1, 8, limit_seconds=HOUR, priority=900)
    late = job_of("eve", 2, 8, limit_seconds=HOUR, deadline_at=UnixTime(NOON + 2 * HOUR))
    found = foreseen(waiting(a_busy_node(), first, late), 2)
    assert (found.wait.reason, found.sentence) == (
        Reason.DEADLINE,
        "to end by its deadline it has to start within 3600 seconds",
    )


def test_minutes_that_are_used_up_by_what_is_planned_before_are_told_with_the_limit() -> None:
    jobs = [job_of("ada", number, 4, limit_seconds=600, priority=10 - number) for number in (1, 2, 3)]
    found = foreseen(waiting(a_busy_node(physics=Limits(grp_tres_minutes={"cpu": 100})), *jobs), 3)
    assert (found.wait.reason, found.sentence) == (
        Reason.ASSOC_GRP_CPU_MINUTES_LIMIT,
        "GrpTRESMins cpu of account physics is 100: 40 is asked for, and what is planned before it leaves too little",
    )


def test_nodes_that_nobody_gives_back_are_waited_for_with_the_numbers() -> None:
    state = limited(1, cpus=8)
    run(state, job_of("eve", 100, 8))
    found = foreseen(waiting(state, *[job_of("ada", number, 8, priority=10 - number) for number in (1, 2)]), 2)
    assert (found.wait.reason, found.wait.start_at) == (Reason.RESOURCES, 0)
    assert found.sentence == (
        "1 node with 8 CPUs, 8 MiB is needed: of 1 that could serve 0 are left with 8 CPUs free; "
        "0 on the one that has most"
    )
    assert [(one.job_id, one.ends_at) for one in found.blockers] == [(100, FAR)]

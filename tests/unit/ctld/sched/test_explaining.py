"""Why a job waits, in words: each reason names the number that failed, and nothing is changed by asking."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Limits
from ctld.core.apply.indexes import put, rebuild
from ctld.core.cluster import PartitionSpec, Settings
from ctld.core.model import Clause, GpuRequest, Job, NodeShare
from ctld.core.plan import LimitNumbers, Wait
from ctld.core.reservations import Access, Part, Reservation
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.explain import reason_of
from ctld.sched.explaining import MOST_BLOCKERS, explain
from ctld.sched.explanation import Explanation, Filter, PartitionView
from ctld.sched.memory import PlanMemory
from ctld.sched.releases import FAR
from muster.ids import UnixTime
from muster.states import JobState, Reason
from tests.builders import NOON, a_job, a_partition, a_state
from tests.limited import LIMITS, job_of, limited, run, waiting
from tests.placing import busy, everywhere, queued
from tests.topologies import a_tree

HOUR = 3600
Made = tuple[State, int]
"""A state, and the job that is asked about."""


def explained(state: State, job_id: int, at: int = NOON, *, reachable: int | None = None) -> Explanation:
    """Make a pass and explain what it left waiting; asking twice gives the same, and changes no later plan."""
    memory = PlanMemory()
    bits = everywhere(state) if reachable is None else reachable
    made = plan(state, UnixTime(at), reachable=bits, memory=memory)
    job = state.jobs[job_id]
    wait = reason_of(state, made, job, UnixTime(at))
    found = explain(state, UnixTime(at), memory, job, wait, overlay=made)
    assert explain(state, UnixTime(at), memory, job, wait, overlay=made) == found
    assert plan(state, UnixTime(at), reachable=bits, memory=memory) == plan(state, UnixTime(at), reachable=bits)
    return found


def small(*jobs: Job, nodes: int = 2, **partition: object) -> State:
    """Nodes of 8 CPUs, 8000 MiB, 2 GPUs."""
    state = a_state(nodes, cpus=8, memory_mib=8000, gpus=2, partitions=(a_partition(nodes=nodes, **partition),))  # type: ignore[arg-type]
    for job in jobs:
        put(state, None, job)
    return state


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


def full(**asked: object) -> Callable[[], Made]:
    """Node 1 has 2 CPUs, 1000 MiB and no GPU left, node 2 has 4 CPUs, 6000 MiB and a GPU; both until in an hour."""

    def made() -> Made:
        state = small()
        run(state, a_job(1, limit_seconds=HOUR), NodeShare(0, 6, (0, 5), 7000, (0, 1)))
        run(state, a_job(2, limit_seconds=HOUR), NodeShare(1, 4, (0, 3), 2000, (0, 0)))
        put(state, None, a_job(7, limit_seconds=HOUR, **asked))  # type: ignore[arg-type]
        return state, 7

    return made


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


def under(limits: Limits, cpus: int = 4) -> Callable[[], Made]:
    def made() -> Made:
        state = limited(physics=limits)
        run(state, job_of("bob", 1, 4, limit_seconds=HOUR))
        return waiting(state, job_of("ada", 7, cpus, limit_seconds=HOUR)), 7

    return made


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
    "too many CPUs in all": (
        asking(ntasks=20, memory_per_cpu_mib=1),
        Reason.BAD_CONSTRAINTS,
        "20 CPUs are asked for, the 2 nodes that could serve have 16",
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


def test_every_reason_that_the_scheduler_gives_is_among_them() -> None:
    """Those of limits are one kind, with numbers of their own."""
    from pathlib import Path

    import ctld.sched

    sources = Path(ctld.sched.__file__).parent.glob("*.py")
    given = {word for path in sources for word in re.findall(r"Wait\((?:Reason\.)([A-Z_]+)", path.read_text())}
    given |= {word for path in sources for word in re.findall(r"Impossible\(\s*Reason\.([A-Z_]+)", path.read_text())}
    # A deadline that cannot be kept is found by a plan that looks ahead: see below.
    assert given - {"DEADLINE"} <= {reason.name for _, reason, _ in CASES.values()}
    assert len(given) >= 15


def test_a_deadline_that_cannot_be_kept_is_told_with_what_is_left() -> None:
    state = small(a_job(7, deadline_at=UnixTime(NOON + 2 * HOUR), limit_seconds=HOUR))
    found = explain(state, UnixTime(NOON + 600), PlanMemory(), state.jobs[7], Wait(Reason.DEADLINE))
    assert found.sentence == "to end by its deadline it has to start within 3000 seconds"


# ---- the parts ------------------------------------------------------------------------------------------------------


def counters(view: PartitionView) -> dict[str, int]:
    return {one.name: one.nodes for one in view.filters}


def test_the_nodes_are_counted_question_by_question() -> None:
    state = small(nodes=8)
    state.partitions["main"] = a_partition(nodes=7)
    for index, features in enumerate((("a",), ("a",), ("a",), ("a",), ("a",), ("b",), ("a",))):
        node = state.nodes[index]
        state.nodes[index] = replace(node, spec=replace(node.spec, features=features))
    state.nodes[4] = replace(state.nodes[4], spec=replace(state.nodes[4].spec, gpus=()))
    state.nodes[6] = replace(state.nodes[6], down=True)
    rebuild(state)
    busy(state, 1, 0, 1, memory=7000, limit_seconds=HOUR)
    busy(state, 2, 1, 8, limit_seconds=HOUR)
    busy(state, 3, 2, 1, gpus=2, limit_seconds=HOUR)
    asked = {"constraint": "a", "memory_per_node_mib": 2000, "gpus_per_node": (GpuRequest("", 1),), "cpus_per_task": 2}
    queued(state, a_job(7, nodes_min=2, nodes_max=2, limit_seconds=HOUR, **asked))  # type: ignore[arg-type]
    found = explained(state, 7)
    (view,) = found.partitions
    assert counters(view) == {
        "cluster": 8,
        "partition": 7,
        "state": 6,
        "features": 5,
        "hardware": 4,
        "memory": 3,
        "cpus": 2,
        "gpus": 1,
    }
    assert view.filters[-1] == Filter("gpus", 1, "with 1 GPUs free; 2 on the one that has most", 1, 2)
    assert view.nodes_needed == 2
    assert (found.wait.start_at, found.wait.nodes) == (NOON + HOUR, (0, 3))


def test_who_holds_the_nodes_is_named_with_the_end_of_each() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    busy(state, 3, 1, 1)
    found = explained(state, 7)
    assert [(one.job_id, one.nodes, one.ends_at) for one in found.blockers] == [(1, (0,), NOON + HOUR)]
    put(state, state.jobs[7], None)
    put(state, None, a_job(8, nodes_min=2, nodes_max=2, cpus_per_task=8, memory_per_node_mib=1))
    found = explained(state, 8)
    assert [(one.job_id, one.ends_at) for one in found.blockers] == [(1, NOON + HOUR), (2, NOON + HOUR), (3, FAR)]


def test_a_job_that_is_promised_the_nodes_stands_among_the_blockers() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    put(state, None, a_job(8, cpus_per_task=2, priority=1, memory_per_node_mib=1, limit_seconds=3 * HOUR))
    put(state, None, a_job(9, cpus_per_task=5, priority=1, memory_per_node_mib=1, limit_seconds=3 * HOUR))
    found = explained(state, 9)
    assert (7, (0,), NOON + HOUR) in [(one.job_id, one.nodes, one.starts_at) for one in found.blockers]


def test_many_blockers_are_counted_and_the_first_to_go_are_named() -> None:
    state = small(nodes=40)
    for number in range(40):
        busy(state, 100 + number, number, 8, limit_seconds=HOUR - number)
    queued(state, a_job(7, nodes_min=40, nodes_max=40, limit_seconds=HOUR))
    found = explained(state, 7)
    assert (found.blocking, len(found.blockers)) == (40, MOST_BLOCKERS)
    assert [one.job_id for one in found.blockers[:2]] == [139, 138]


def test_limits_that_hold_are_all_listed_with_what_is_used() -> None:
    state, _ = under(Limits(grp_tres={"cpu": 6}, grp_jobs=9, max_wall_minutes_per_job=90))()
    (view,) = explained(state, 7).partitions
    assert [(one.numbers, one.in_the_way) for one in view.limits] == [
        (LimitNumbers("MaxWall", "", "user ada in account physics", 90, 0, 60), False),
        (LimitNumbers("GrpJobs", "", "account physics", 9, 1, 1), False),
        (LimitNumbers("GrpTRES", "cpu", "account physics", 6, 4, 4), True),
    ]


def test_what_a_partition_lets_in_is_told_with_its_numbers() -> None:
    tight = a_partition(nodes=2, allow_accounts=("physics", "chemistry"), deny_qos=("low",), max_minutes=90)
    state = a_state(2, cpus=8, partitions=(tight,))
    busy(state, 1, 0, 8, limit_seconds=HOUR)
    busy(state, 2, 1, 8, limit_seconds=HOUR)
    queued(state, a_job(7, account="physics", limit_seconds=HOUR))
    (view,) = explained(state, 7).partitions
    assert [(one.name, one.passed, one.sentence) for one in view.stages[:3]] == [
        ("partition", True, "partition main is UP"),
        (
            "access",
            True,
            "account physics is one of the 2 that it takes; QOS normal is none of the 1 that it does not take",
        ),
        ("time limit", True, "60 minutes asked for, MaxTime of partition main is 90 minutes"),
    ]


def test_each_partition_of_a_job_is_explained_for_itself() -> None:
    partitions = (
        a_partition(nodes=1),
        a_partition("long", nodes=2, priority_tier=3),
        a_partition("shut", state="DOWN"),
    )
    state = a_state(2, cpus=8, partitions=partitions)
    busy(state, 1, 0, 8, limit_seconds=HOUR)
    busy(state, 2, 1, 8, limit_seconds=HOUR)
    queued(
        state,
        a_job(5, partitions=("long",), priority=1, limit_seconds=HOUR),
        a_job(6, partitions=("main",), priority=200, limit_seconds=HOUR),
        a_job(7, partitions=("main", "long", "shut"), priority=100, limit_seconds=HOUR),
    )
    views = explained(state, 7).partitions
    assert [(one.name, one.place, one.waiting, one.next_before) for one in views] == [
        ("main", 2, 2, 6),
        ("long", 1, 2, 0),
        ("shut", 0, 0, 0),
    ]
    assert [(one.name, one.passed) for one in views[2].stages] == [("partition", False)]


def test_a_job_that_is_held_is_looked_at_as_if_it_were_not() -> None:
    state = small(a_job(7, hold="user", priority=0, nodes_min=2, nodes_max=2))
    busy(state, 1, 0, 8, limit_seconds=HOUR)
    (view,) = explained(state, 7).partitions
    assert (counters(view)["cpus"], view.place) == (1, 0)


def test_a_job_that_would_fit_says_where_and_who_stands_before() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    put(state, None, a_job(9, cpus_per_task=2, priority=1, memory_per_node_mib=1))
    found = explained(state, 9)
    assert found.wait.reason is Reason.PRIORITY
    assert found.sentence.endswith("1 node with 2 CPUs, 1 MiB is needed: there is room now")
    assert found.partitions[0].filters[-1].sentence == "that it would have now if no other waited: n1"


def test_it_says_how_long_the_job_has_waited_and_may() -> None:
    state, _ = full(cpus_per_task=8, memory_per_node_mib=1)()
    state.settings = replace(state.settings, max_queue_wait_seconds=60)
    rebuild(state)
    found = explained(state, 7, NOON + 90)
    assert (found.waited_seconds, found.longest_seconds, found.late) == (90, 60, False)
    state.queue.hasten(NOON + 90)
    assert explained(state, 7, NOON + 90).late


def test_before_the_first_pass_there_is_an_explanation_too() -> None:
    state = small(a_job(7))
    found = explain(state, NOON, PlanMemory(), state.jobs[7], reason_of(state, None, state.jobs[7], NOON))
    assert (found.wait.reason, found.partitions[0].place) == (Reason.PRIORITY, 1)
    assert found.sentence.startswith("it is first of 1 in partition main: the next pass looks at it")
    assert counters(found.partitions[0])["partition"] == 2

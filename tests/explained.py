"""Jobs that wait on small clusters, and the explanation of why, for tests of reasons in words."""

from __future__ import annotations

from collections.abc import Callable

from ctld.core.accounts import Limits
from ctld.core.apply.indexes import put
from ctld.core.model import Job, NodeShare
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.explain import reason_of
from ctld.sched.explaining import explain
from ctld.sched.explanation import Explanation
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_partition, a_state
from tests.limited import job_of, limited, run, waiting
from tests.placing import everywhere

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


def full(**asked: object) -> Callable[[], Made]:
    """Node 1 has 2 CPUs, 1000 MiB and no GPU left, node 2 has 4 CPUs, 6000 MiB and a GPU; both until in an hour."""

    def made() -> Made:
        state = small()
        run(state, a_job(1, limit_seconds=HOUR), NodeShare(0, 6, (0, 5), 7000, (0, 1)))
        run(state, a_job(2, limit_seconds=HOUR), NodeShare(1, 4, (0, 3), 2000, (0, 0)))
        put(state, None, a_job(7, limit_seconds=HOUR, **asked))  # type: ignore[arg-type]
        return state, 7

    return made


def under(limits: Limits, cpus: int = 4) -> Callable[[], Made]:
    def made() -> Made:
        state = limited(physics=limits)
        run(state, job_of("bob", 1, 4, limit_seconds=HOUR))
        return waiting(state, job_of("ada", 7, cpus, limit_seconds=HOUR)), 7

    return made

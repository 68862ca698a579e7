"""States with an association tree and limits that are enforced, for tests of limits."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ctld.core.accounts import Accounts, Association, Limits, Qos
from ctld.core.apply.indexes import put, rebuild
from ctld.core.cluster import PartitionSpec, PrioritySettings, Settings
from ctld.core.model import Allocation, Job, NodeShare
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import JobState
from tests.builders import NOON, a_job, a_state

ROOT, PHYSICS, ADA, BOB, CHEMISTRY, EVE = 1, 2, 3, 4, 5, 6
LIMITS = ("associations", "limits")
SAFE = ("associations", "limits", "safe")


def a_tree(**limits: Limits) -> list[Association]:
    """root > physics > ada, bob; root > chemistry > eve. Limits are given by name: `ada=Limits(max_jobs=1)`."""
    rows = [
        ("root", ROOT, "root", 0, ""),
        ("physics", PHYSICS, "physics", ROOT, ""),
        ("ada", ADA, "physics", PHYSICS, "ada"),
        ("bob", BOB, "physics", PHYSICS, "bob"),
        ("chemistry", CHEMISTRY, "chemistry", ROOT, ""),
        ("eve", EVE, "chemistry", CHEMISTRY, "eve"),
    ]
    assert not limits.keys() - {row[0] for row in rows}, limits
    return [
        Association(number, account, parent, user, limits=limits.get(name, Limits()), qos=("normal", "high"))
        if name == "root"
        else Association(number, account, parent, user, limits=limits.get(name, Limits()))
        for name, number, account, parent, user in rows
    ]


def limited(
    nodes: int = 4,
    *,
    cpus: int = 64,
    qos: Iterable[Qos] = (),
    partitions: tuple[PartitionSpec, ...] | None = None,
    enforce: tuple[str, ...] = LIMITS,
    gpu_type: str = "",
    threads: int = 1,
    **limits: Limits,
) -> State:
    """A state with that tree, whose limits hold, and whose usage does not decay. QOS that are not given are plain."""
    lasting = PrioritySettings(half_life_seconds=0)
    settings = Settings(require_registration=False, accounting_enforce=enforce, priority=lasting)
    state = a_state(nodes, cpus=cpus, settings=settings, partitions=partitions, gpu_type=gpu_type, threads=threads)
    known = {one.name: one for one in qos}
    for number, name in enumerate(("normal", "high"), 1):
        known.setdefault(name, Qos(number, name))
    state.accounts = Accounts(a_tree(**limits), known.values())
    rebuild(state)
    return state


UIDS = {"ada": 1000, "bob": 1001, "eve": 1002}


def job_of(user: str, job_id: int, cpus: int = 1, **fields: object) -> Job:
    """A job of so many CPUs by one of the tree's users."""
    fields.setdefault("account", "chemistry" if user == "eve" else "physics")
    fields.setdefault("memory_per_cpu_mib", 1)
    fields.setdefault("cpus_per_task", cpus)
    return a_job(job_id, user=user, uid=UIDS[user], **fields)  # type: ignore[arg-type]


def waiting(state: State, *jobs: Job) -> State:
    """Put pending jobs in."""
    for job in jobs:
        put(state, None, job)
        if job.array_job_id:
            state.by_array.setdefault(job.array_job_id, set()).add(job.id)
    return state


def run(state: State, job: Job, *shares: NodeShare, partition: str = "main", since: int = NOON) -> Job:
    """Let a job run; without shares on the lowest free CPUs of the first node with room."""
    if not shares:
        cpus = job.spec.request.cpus_per_task
        node = next(node for node in range(len(state.nodes)) if state.free.cpus[node] >= cpus)
        low = (state.free.cores[node] & -state.free.cores[node]).bit_length() - 1
        shares = (NodeShare(node, cpus, (low, low + cpus - 1), cpus),)
    new = replace(job, state=int(JobState.RUNNING), started_at=UnixTime(since), alloc=Allocation(partition, shares))
    put(state, state.jobs.get(job.id), new)
    return new

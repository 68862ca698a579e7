"""What must hold in every state, whatever came before; simulated tests check it after each event."""

from __future__ import annotations

from collections.abc import Iterable

from ctld.core import devices, ranges
from ctld.core.apply.indexes import PENDING, SUSPENDED, held_shares, mode, rebuild, size, startable
from ctld.core.cluster import NodeSpec
from ctld.core.devices import SHARING
from ctld.core.events import (
    AccountsApplied,
    AccrualChanged,
    ConfigApplied,
    Event,
    JobsPurged,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    NodeRegistered,
    NodesReleased,
    ReservationChanged,
    ReservationCreated,
    ReservationDeleted,
    StepCreated,
    UsageReset,
)
from ctld.core.free import core_count, cpus_per_core, selectable_cores, selectable_cpus, selectable_memory
from ctld.core.holds import FOREVER, barred
from ctld.core.model import GresShare, Job
from ctld.core.record import requested_size
from ctld.core.reservations import ordered_flags
from ctld.core.state import State
from muster.ids import NO_TASK


class BrokenInvariant(AssertionError):
    """The state contradicts itself: a bug in `decide` or `apply`, never a fault of input."""


def check(state: State) -> None:
    """Check everything; costs a rebuild.

    Raises:
        BrokenInvariant: saying what contradicts what.
    """
    for job in state.jobs.values():
        _check_job(state, job)
    for node in range(len(state.nodes)):
        _check_node(state, node)
    _check_reservations(state)
    _check_derived(state)
    for job_id, steps in state.steps.items():
        _require(job_id in state.running and bool(steps), f"job {job_id} has open steps and does not run")


def check_touched(state: State, event: Event) -> None:
    """Check only what an event touched; costs microseconds.

    Raises:
        BrokenInvariant: saying what contradicts what.
    """
    match event:
        case ConfigApplied() | AccountsApplied() | UsageReset():
            check(state)
            return
        case NodeRegistered(node=node) | NodeChanged(node=node):
            _check_node(state, node)
            return
        case AccrualChanged(begun=begun, stopped=stopped):
            for job_id in (*begun, *stopped):
                _check_job(state, state.jobs[job_id])
            return
        case JobsPurged(job_ids=job_ids):
            for job_id in job_ids:
                _require(job_id not in state.jobs and job_id not in state.ended, f"job {job_id} is still there")
            return
        case JobSubmitted(job=submitted):
            job = state.jobs[submitted.id]
        case StepCreated(step=step):
            job = state.jobs[step.job_id]
        case ReservationCreated() | ReservationChanged() | ReservationDeleted():
            _check_reservations(state)
            return
        case _:
            # A member of an array may have been named by its array's id.
            job = state.jobs[getattr(event, "job_id", 0)]
    _check_job(state, job)
    if isinstance(event, JobStarted):
        _check_start(state, event, job)
    nodes = {share.node for share in job.alloc.shares} if job.alloc is not None else set()
    for node in nodes.union(event.nodes if isinstance(event, NodesReleased) else ()):
        _check_node(state, node)


# ---- one job ---------------------------------------------------------------------------------------------------


def _check_job(state: State, job: Job) -> None:
    name = f"job {job.id}"
    pending, running = job.state == PENDING, PENDING < job.state <= SUSPENDED
    ended = job.state > SUSPENDED
    _require((job.id in state.queue) == (pending and startable(job)), f"{name}: wrong about the queue")
    _require((job.id in state.deferred) == (pending and not startable(job)), f"{name}: wrong about deferred")
    _require((job.id in state.running) == running, f"{name}: wrong about running")
    _require((job.id in state.ended) == ended, f"{name}: wrong about ended")
    _require((job.id in state.completing) == bool(job.completing), f"{name}: wrong about completing")
    if running:
        _require(job.alloc is not None, f"{name} runs without nodes")
        _require(not job.completing, f"{name} runs and completes")
        _check_gang(job)
    if job.completing:
        nodes = {share.node for share in job.alloc.shares} if job.alloc is not None else set()
        _require(nodes.issuperset(job.completing), f"{name} completes on nodes that it did not have")
    _require(job.booking is None or pending, f"{name} is booked for and does not wait")
    if pending and not job.completing:
        _require(job.alloc is None, f"{name} waits and has nodes")
    for share in job.alloc.shares if job.alloc is not None else ():
        held = running or share.node in job.completing
        _require(
            (job.id in state.node_jobs[share.node]) == held, f"{name}: node {share.node} disagrees on what it holds"
        )
    if job.array_job_id:
        _require(job.id in state.by_array.get(job.array_job_id, ()), f"{name} is missing in its array")
        if pending and job.array_task_id == NO_TASK:
            _require(bool(job.array_pending), f"{name} is an array's rest of nothing")
    if pending:
        for clause in job.clauses:
            _require(job.id in state.dependants.get(clause.job_id, ()), f"{name} waits for {clause.job_id} unnoticed")


def _check_gang(job: Job) -> None:
    """A run has all that it asked for, or it would not run."""
    assert job.alloc is not None, "a running job has nodes"
    shares = job.alloc.shares
    nodes = [share.node for share in shares]
    _require(nodes == sorted(set(nodes)), f"job {job.id}: nodes out of order or twice")
    tasks, least = requested_size(job.spec.request)
    _require(len(shares) >= least, f"job {job.id} runs on {len(shares)} of {least} nodes")
    _require(sum(share.tasks for share in shares) >= tasks, f"job {job.id} has no place for {tasks} tasks")


def _check_start(state: State, event: JobStarted, job: Job) -> None:
    """A start takes nothing that is not there, and nothing that is kept for others."""
    free = state.free
    if job.array_limit:
        running = state.array_running[job.array_job_id]
        _require(running <= job.array_limit, f"array {job.array_job_id} runs {running} of {job.array_limit} members")
    if state.reservations:
        inside = state.reservations.get(event.alloc.reservation)
        end = event.at + event.limit_seconds if event.limit_seconds >= 0 else FOREVER
        kept = barred(state, inside, event.at, end)
        _require(
            not any(kept.forbids(share) for share in event.alloc.shares), f"job {job.id} takes what others reserved"
        )
    how = mode(state, job)
    for share in event.alloc.shares:
        node = state.nodes[share.node].spec
        _require(int(free.cpus[share.node]) >= 0, f"{node.name} gives more CPUs than it has")
        if state.settings.memory_consumable:
            _require(int(free.memory[share.node]) >= 0, f"{node.name} gives more memory than it has")
        _require(ranges.to_bitmap(share.cores) >> core_count(node) == 0, f"{node.name} has no such cores")
        _require(ranges.to_bitmap(share.gpus) >> len(node.gpus) == 0, f"{node.name} has no such GPUs")
        _require(all(_known(node, one) for one in share.gres), f"{node.name} has no such devices")
        _require(all(amount >= 0 for amount in free.more[share.node].values()), f"{node.name} gives more than it has")
        others = [state.jobs[other] for other in state.node_jobs[share.node] if other != job.id]
        moving = [other for other in others if other.state != SUSPENDED]
        _require(how != "node" or not moving, f"{node.name} was to be job {job.id}'s alone")
        for other in others:
            alone = "user" in (how, mode(state, other))
            _require(
                not alone or other.spec.uid == job.spec.uid, f"{node.name} has jobs of two users and is kept for one"
            )


def _known(spec: NodeSpec, share: GresShare) -> bool:
    """Tell whether a node is configured with such devices."""
    return any(
        one.name == share.name and one.type == share.type and (one.first < 0) == (not share.indices)
        for one in spec.devices
    )


# ---- one node --------------------------------------------------------------------------------------------------


def _check_node(state: State, node: int) -> None:
    name = state.nodes[node].spec.name
    cores = gpus = cpus = memory = shared = 0
    left = dict(state.free.whole[node])
    rows: dict[tuple[str, int], int] = {}
    owners: set[int] = set()
    exclusive = False
    for job_id in state.node_jobs[node]:
        job = state.jobs[job_id]
        share = next((share for share in held_shares(job) if share.node == node), None)
        if share is None:
            raise BrokenInvariant(f"{name}: job {job_id} is noted there and holds nothing")
        its_cores, its_gpus = ranges.to_bitmap(share.cores), ranges.to_bitmap(share.gpus)
        if share.row:
            row = (job.alloc.partition if job.alloc else "", share.row)
            _require(not rows.get(row, 0) & its_cores, f"{name}: a core is given twice in a row (job {job_id})")
            rows[row] = rows.get(row, 0) | its_cores
        else:
            _require(not cores & its_cores, f"{name}: a core is given twice (job {job_id})")
            cores |= its_cores
            cpus += share.cpus
        _require(not gpus & its_gpus, f"{name}: a GPU is given twice (job {job_id})")
        gpus |= its_gpus
        for one in share.gres:
            if one.indices and one.name not in SHARING:
                bits = ranges.to_bitmap(one.indices)
                _require(left.get(one.name, bits) & bits == bits, f"{name}: a device is given twice (job {job_id})")
        devices.take(left, share.gres)
        shared |= devices.shared_gpus(share.gres)
        memory += share.memory_mib
        owners.add(job.spec.uid)
        exclusive = exclusive or mode(state, job) == "user"
    spec, free = state.nodes[node].spec, state.free
    all_cores, all_gpus = selectable_cores(spec), (1 << len(spec.gpus)) - 1
    by_partition: dict[str, int] = {}
    for (partition, _), bits in rows.items():
        _require(not cores & bits, f"{name}: cores of partition {partition} are given to others too")
        by_partition[partition] = by_partition.get(partition, 0) | bits
    for bits in by_partition.values():
        _require(not cores & bits, f"{name}: cores are shared by two partitions")
        cores |= bits
        cpus += (bits & all_cores).bit_count() * cpus_per_core(spec)
    _require(not gpus & shared, f"{name}: a GPU is given whole and in shares")
    gpus |= shared
    _require(free.more[node] == left, f"{name}: free devices are wrong")
    _require(int(free.cpus[node]) == selectable_cpus(spec) - cpus, f"{name}: free CPUs are wrong")
    _require(int(free.memory[node]) == selectable_memory(spec) - memory, f"{name}: free memory is wrong")
    _require(free.cores[node] == all_cores & ~cores, f"{name}: free cores are wrong")
    _require(free.gpus[node] == all_gpus & ~gpus, f"{name}: free GPUs are wrong")
    _require(int(free.gpu_count[node]) == free.gpus[node].bit_count(), f"{name}: count of free GPUs is wrong")
    _require(int(free.jobs[node]) == len(state.node_jobs[node]), f"{name}: number of jobs is wrong")
    _require((free.owner[node] != -1) == exclusive, f"{name}: its owner is wrong")
    # Others may be there still where the partition became exclusive under them.
    _require(free.owner[node] < 0 or free.owner[node] in owners, f"{name} is kept for somebody who is not there")


# ---- reservations ----------------------------------------------------------------------------------------------


def _check_reservations(state: State) -> None:
    for name, one in state.reservations.items():
        _require(name == one.name, f"reservation {one.name} is kept under the name {name}")
        _require(one.number < state.next_reservation, f"reservation {name} has a number that was not given out")
        _require(one.start_at < one.end_at, f"reservation {name} ends before it starts")
        nodes = list(one.nodes)
        _require(nodes == sorted(set(nodes)), f"reservation {name}: nodes out of order or twice")
        _require(all(0 <= node < len(state.nodes) for node in nodes), f"reservation {name} has a node that is gone")
        _require(one.flags == ordered_flags(set(one.flags)), f"reservation {name}: flags out of order")


# ---- everything derived ----------------------------------------------------------------------------------------


def derived(state: State) -> dict[str, object]:
    """Give all derived parts as plain values, for comparing two states (numbers of classes may differ)."""
    return {
        "free": state.free.as_lists(),
        "queue": state.queue.contents(),
        "by_array": state.by_array,
        "dependants": state.dependants,
        "running": set(state.running),
        "completing": set(state.completing),
        "node_jobs": [set(jobs) for jobs in state.node_jobs],
        "deferred": set(state.deferred),
        "ended": set(state.ended),
        "users": state.users,
        "members": state.members,
        "array_running": state.array_running,
        "usage": state.usage.rates(),
        "due": state.due.times(),
        "in_reservation": {name: set(jobs) for name, jobs in state.in_reservation.items()},
        "timed": set(state.timed),
        "booked": set(state.booked),
        "suspended": set(state.suspended),
        "node_index": state.node_index,
        "partition_nodes": state.partition_nodes,
        "load": state.load.contents(),
    }


def records(state: State) -> dict[str, object]:
    """Give all records and counters, for comparing two states."""
    return {
        "settings": state.settings,
        "jobs": state.jobs,
        "steps": state.steps,
        "nodes": state.nodes,
        "partitions": state.partitions,
        "accounts": state.accounts,
        "usage": {(one.kind, one.id): one for one in state.usage.records()},
        "usage_reset_at": state.usage.reset_at,
        "reservations": state.reservations,
        "next_reservation": state.next_reservation,
        "next_job_id": state.next_job_id,
        "at": state.at,
        "array_status": state.array_status,
    }


def rebuilt(state: State) -> State:
    """Give a state of the same records whose derived parts are made anew."""
    other = State()
    other.settings = state.settings
    other.jobs = dict(state.jobs)
    other.steps = {job_id: dict(steps) for job_id, steps in state.steps.items()}
    other.nodes = list(state.nodes)
    other.partitions = dict(state.partitions)
    other.accounts = state.accounts
    other.reservations = dict(state.reservations)
    other.next_reservation = state.next_reservation
    other.next_job_id = state.next_job_id
    other.at = state.at
    for record in state.usage.records():
        other.usage.take(record)
    other.usage.reset_at = state.usage.reset_at
    other.array_status = dict(state.array_status)
    other.queue.priorities = dict(state.queue.priorities)
    other.queue.patience.late = dict(state.queue.patience.late)
    rebuild(other)
    return other


def _check_derived(state: State) -> None:
    live, fresh = derived(state), derived(rebuilt(state))
    wrong: Iterable[str] = [name for name in live if live[name] != fresh[name]]
    _require(not wrong, "derived from the records differently: " + ", ".join(wrong))
    alive = sum(size(job) for job in state.jobs.values() if job.state <= SUSPENDED)
    _require(sum(state.users.values()) == alive, "jobs are not counted by their owners")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenInvariant(otherwise)

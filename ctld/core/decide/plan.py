"""A scheduling pass's starts, each checked against the state of this moment; what is stale is dropped.

The plan may have been made on an older state (the planner process works on its own copy), so nothing in it is
believed: not that the job waits, not that the nodes are free, not that the shares add up to the request.
"""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core import devices, ranges
from ctld.core.apply.indexes import startable
from ctld.core.booked import Promises, Room
from ctld.core.cluster import PartitionSpec
from ctld.core.commands import ApplyPlan
from ctld.core.decide.admission import limit_seconds
from ctld.core.decide.numbering import JobIds
from ctld.core.decide.preempt import preemptions
from ctld.core.devices import rows_of
from ctld.core.events import Event, JobStarted
from ctld.core.free import cpus_per_core, exclusive_mode
from ctld.core.holds import FOREVER, allows
from ctld.core.licenses import Licences
from ctld.core.limits.gate import Gate
from ctld.core.model import UNLIMITED, Allocation, FineRequest, Job, NodeShare, Ranges, Request
from ctld.core.plan import Start
from ctld.core.record import requested_size
from ctld.core.state import State
from ctld.core.times import latest_start
from ctld.core.usable import usable
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import JobState, PartitionState


def apply_plan(state: State, command: ApplyPlan, at: UnixTime) -> list[Event]:
    """Start what can still be started, in the order of the plan, then make room for those that are to have it."""
    view = _View(state, at)
    events: list[Event] = []
    for start in command.plan.starts:
        event = view.start(start, at)
        if event is not None:
            events.append(event)
    if command.plan.preemptions:
        events += preemptions(state, command.plan.preemptions, view, at)
    return events


def started_limit(job: Job, partition: PartitionSpec, start: Start, at: UnixTime) -> int:
    """Give the limit of a run that starts now: what the plan says where that is between --time-min and what was asked
    for, and not beyond the deadline."""
    limit, asked = run_limit_seconds(job, partition), start.limit_seconds
    least = job.spec.request.time_min_minutes * 60
    if least and asked >= least and (limit == UNLIMITED or asked <= limit):
        limit = asked
    if job.spec.deadline_at:
        left = max(60, job.spec.deadline_at - at)
        limit = left if limit == UNLIMITED else min(limit, left)
    return limit


def run_limit_seconds(job: Job, partition: PartitionSpec) -> int:
    """Give the limit of a run: as asked, else the partition's default, else its maximum; -1: unlimited."""
    if job.spec.time_limit_minutes or job.limit_seconds >= 0:
        return job.limit_seconds
    return limit_seconds(job.spec, partition)


_NOTHING = Room(0, 0, 0, 0)


class _Node:
    """What is left of one node behind the starts of this plan."""

    __slots__ = ("cores", "cpus", "gpus", "memory", "more", "planned_uids", "rows", "threads", "whole")

    def __init__(self, state: State, node: int) -> None:
        free = state.free
        self.cpus = int(free.cpus[node])
        self.cores = free.cores[node]
        self.memory = int(free.memory[node])
        self.gpus = free.gpus[node]
        self.more = free.more[node]
        self.whole = free.whole[node]
        self.threads = cpus_per_core(state.nodes[node].spec)
        self.rows = {name: list(rows) for name, rows in free.rows[node].items()} if free.rows else {}
        """Cores of watched partitions (`FreeTable.rows`)."""
        self.planned_uids: set[int] = set()
        """Owners of the jobs that this plan starts there."""

    def fits(
        self, share: NodeShare, memory_counts: bool, kept: Room, *, partition: PartitionSpec, most_rows: int
    ) -> bool:
        """Check a share beside what is kept for others.

        Args:
            most_rows: jobs of the partition that may have the same cores; 0: the job shares none.
        """
        cores, gpus = ranges.to_bitmap(share.cores), ranges.to_bitmap(share.gpus)
        if share.row:
            if share.row > most_rows or cores & self._among(partition.name, share.row) != cores:
                return False
        elif not share.cpus <= self.cpus or cores & self.cores != cores:
            return False
        return (
            share.cpus > 0
            and not cores & kept.cores
            and gpus & self.gpus & ~kept.gpus == gpus
            and (share.memory_mib <= self.memory - kept.memory_mib or not memory_counts)
            and (not share.gres or devices.holds(self.more, self.whole, self.gpus & ~gpus, share.gres))
            and self._within_bounds(cores, partition)
        )

    def _among(self, name: str, row: int) -> int:
        """Give the cores that a job may have in a row: nobody's, or those of other rows."""
        rows = self.rows.get(name, [0])
        among = self.cores
        for other in rows[1:]:
            among |= other
        return among & ~rows[row] if row < len(rows) else among

    def _within_bounds(self, cores: int, partition: PartitionSpec) -> bool:
        """Check MaxCPUsPerNode; of a socket's bound the pass takes care, as it moves nothing that others need."""
        if partition.max_cpus_per_node == UNLIMITED:
            return True
        used = self.rows.get(partition.name, [0])[0] | cores
        return used.bit_count() * self.threads <= partition.max_cpus_per_node

    def take(self, share: NodeShare, uid: int, partition: str, watched: bool) -> None:
        cores = ranges.to_bitmap(share.cores)
        self.cpus -= (cores & self.cores).bit_count() * self.threads if share.row else share.cpus
        self.cores &= ~cores
        self.memory -= share.memory_mib
        self.gpus &= ~ranges.to_bitmap(share.gpus)
        if share.gres:
            self.more = dict(self.more)
            devices.take(self.more, share.gres)
            self.gpus &= ~devices.shared_gpus(share.gres)
        if share.row or watched:
            rows = self.rows.setdefault(partition, [0])
            rows[0] |= cores
            rows.extend([0] * (share.row + 1 - len(rows)))
            if share.row:
                rows[share.row] |= cores
        self.planned_uids.add(uid)


class _View:
    """The state with the plan's earlier starts taken off it."""

    def __init__(self, state: State, at: UnixTime) -> None:
        self._state = state
        self._at = at
        self._gate = Gate(state, at)
        self._ids = JobIds(state)
        self._nodes: dict[int, _Node] = {}
        self._owners: dict[int, int] = {}
        self._started: set[int] = set()
        self._pending: dict[int, Ranges] = {}
        """Array job id -> members of its pending rest that this plan has not started."""
        self._array_starts: dict[int, int] = {}
        self._usable: dict[int, bool] = {}
        self._promises = Promises(state) if state.booked or state.suspended else None
        self._licences = Licences(state.settings.licenses, state.free.licenses)

    def start(self, start: Start, at: UnixTime) -> JobStarted | None:
        """Check one start and take its resources off; None when it cannot be any more."""
        found = self.candidate(start)
        if found is None:
            return None
        job, partition = found
        if not self._fits(job, start.shares, partition):
            return None
        held = ""
        if job.spec.request.licenses:
            free = self._licences.free(job.spec.request.licenses, start.licenses)
            if free is None:
                return None
            held = free
        limit = started_limit(job, partition, start, at)
        end = at + limit if limit >= 0 else FOREVER
        if not allows(self._state, job, start, at, end):
            return None
        self._gate.took(job, partition.name, start.shares, limit)
        self._take(job, start.shares, partition)
        if held:
            self._licences.take(held)
        array_job_id, job_id = 0, job.id
        if start.task_id != NO_TASK:
            array_job_id = job.array_job_id
            job_id = self._take_member(job, start.task_id)
        else:
            self._started.add(job.id)
        if job.array_job_id:
            self._array_starts[job.array_job_id] = self._array_starts.get(job.array_job_id, 0) + 1
        return JobStarted(
            at=at,
            job_id=job_id,
            alloc=Allocation(
                partition=start.partition,
                shares=start.shares,
                planned_by=start.planned_by,
                reservation=start.reservation,
                licenses=held,
            ),
            limit_seconds=limit,
            array_job_id=array_job_id,
            task_id=start.task_id,
        )

    def candidate(self, start: Start) -> tuple[Job, PartitionSpec] | None:
        """Give the job and the partition of a start, if the job itself may start; room is not looked at."""
        job = self._state.jobs.get(start.job_id)
        if job is None or job.state != JobState.PENDING or not startable(job) or not self._is_free_to_start(job, start):
            return None
        if job.spec.deadline_at and self._at > latest_start(job):
            return None  # The next Tick removes it.
        partition = self._partition(job, start)
        if partition is None or not satisfies(job.spec.request, start.shares, self._state.settings.memory_consumable):
            return None
        limit = run_limit_seconds(job, partition)
        if self._gate.after(job, partition.name, start.shares, limit) is not None:
            return None
        return job, partition

    def _is_free_to_start(self, job: Job, start: Start) -> bool:
        if job.id in self._started:
            return False
        if job.array_limit and job.array_job_id:
            running = self._state.array_running.get(job.array_job_id, 0)
            if running + self._array_starts.get(job.array_job_id, 0) >= job.array_limit:
                return False
        if job.array_pending:
            return start.task_id != NO_TASK and ranges.contains(
                self._pending.get(job.id, job.array_pending), start.task_id
            )
        return start.task_id == NO_TASK

    def _partition(self, job: Job, start: Start) -> PartitionSpec | None:
        partition = self._state.partitions.get(start.partition)
        if partition is None or start.partition not in job.spec.partitions:
            return None
        return partition if partition.state in (PartitionState.UP, PartitionState.DRAIN) else None

    def _fits(self, job: Job, shares: Sequence[NodeShare], partition: PartitionSpec) -> bool:
        """Check that every share is there: a gang starts whole or not at all."""
        if not shares:
            return False
        mode = exclusive_mode(job.spec.request.exclusive, partition)
        members = self._members_of(partition)
        most_rows = 0 if mode == "node" else rows_of(partition, job.spec.request.oversubscribe)
        before = -1
        for share in shares:
            if share.node <= before or share.node not in members or not self._is_usable(share.node):
                return False
            before = share.node
            node = self._node(share.node)
            kept = self._promises.kept(share.node, job.id) if self._promises is not None else _NOTHING
            if not node.fits(
                share, self._state.settings.memory_consumable, kept, partition=partition, most_rows=most_rows
            ):
                return False
            if mode == "node" and (node.planned_uids or self._is_shared(share.node)):
                return False
            owner = self._owners.get(share.node, self._state.free.owner[share.node])
            if owner not in (-1, job.spec.uid):
                return False
            if (mode == "user" or owner != -1) and self._uids(share.node) - {job.spec.uid}:
                return False
        return True

    def _is_shared(self, node: int) -> bool:
        """Tell whether a job has this node that does not stand still."""
        state = self._state
        return any(state.jobs[job_id].state != JobState.SUSPENDED for job_id in state.node_jobs[node])

    def taken(self, node: int) -> Room:
        """Give what this plan's starts have taken of a node."""
        free, left = self._state.free, self._nodes.get(node)
        if left is None:
            return _NOTHING
        cores, gpus = free.cores[node] & ~left.cores, free.gpus[node] & ~left.gpus
        return Room(cores, gpus, int(free.memory[node]) - left.memory, int(free.cpus[node]) - left.cpus)

    def could_host(self, job: Job, partition: PartitionSpec, node: int) -> bool:
        """Tell whether a node is the partition's and may be used, and this plan starts nobody there whom the job
        could not be beside."""
        if node not in self._members_of(partition) or not self._is_usable(node):
            return False
        left = self._nodes.get(node)
        uids = left.planned_uids if left is not None else set()
        mode = exclusive_mode(job.spec.request.exclusive, partition)
        if mode == "node":
            return not uids
        owner = self._owners.get(node, -1)
        return not (mode == "user" or owner != -1) or uids <= {job.spec.uid}

    def _members_of(self, partition: PartitionSpec) -> frozenset[int]:
        known = self._state.partition_nodes.get(partition.name)
        return known if known is not None else frozenset(partition.nodes)

    def _is_usable(self, node: int) -> bool:
        known = self._usable.get(node)
        if known is None:
            state = self._state
            known = self._usable[node] = node < len(state.nodes) and usable(state.settings, state.nodes[node])
        return known

    def _node(self, node: int) -> _Node:
        view = self._nodes.get(node)
        if view is None:
            view = self._nodes[node] = _Node(self._state, node)
        return view

    def _uids(self, node: int) -> set[int]:
        jobs = self._state.jobs
        return self._node(node).planned_uids.union(jobs[job_id].spec.uid for job_id in self._state.node_jobs[node])

    def _take(self, job: Job, shares: Sequence[NodeShare], partition: PartitionSpec) -> None:
        mode = exclusive_mode(job.spec.request.exclusive, partition)
        for share in shares:
            watched = partition.name in self._state.free.watched
            self._node(share.node).take(share, job.spec.uid, partition.name, watched)
            if mode == "user":
                self._owners[share.node] = job.spec.uid

    def _take_member(self, job: Job, task_id: int) -> JobId:
        """Take a member out of the pending rest; the last one keeps the array's own id."""
        left = ranges.without(self._pending.get(job.id, job.array_pending), task_id)
        self._pending[job.id] = left
        if left:
            return self._ids.take()
        self._started.add(job.id)
        return job.id


def satisfies(request: Request, shares: Sequence[NodeShare], memory_counts: bool = True) -> bool:
    """Tell whether the shares together are at least what was asked for; where memory is no consumable resource,
    shares have none."""
    tasks, nodes = requested_size(request)
    if len(shares) < max(1, request.nodes_min) or (request.nodes_max and len(shares) > request.nodes_max):
        return False
    if len(shares) < nodes:
        return False
    if not request.ntasks and request.ntasks_per_node:
        tasks = len(shares) * request.ntasks_per_node
    placed = sum(share.tasks for share in shares)
    if placed < tasks:
        return False
    per_node = sum(part.count for part in request.gpus_per_node)
    per_task = sum(part.count for part in request.gpus_per_task)
    gpus = 0
    for share in shares:
        here = ranges.count(share.gpus) if share.gpus else 0
        gpus += here
        if share.cpus < request.min_cpus or share.tasks < 1:
            return False
        if not request.overcommit and share.cpus < share.tasks * request.cpus_per_task:
            return False
        if here < max(per_node, share.tasks * per_task):
            return False
        if memory_counts and request.memory_per_node_mib > 0 and share.memory_mib < request.memory_per_node_mib:
            return False
        if request.fine is not None and not _has_gres(request.fine, share):
            return False
    return gpus >= sum(part.count for part in request.gpus)


def _has_gres(fine: FineRequest, share: NodeShare) -> bool:
    """Tell whether a share has the other generic resources that were asked for. Those that are not used up are in no
    share, and a whole node has what there is."""
    for wanted, times in [(one, 1) for one in fine.gres] + [(one, share.tasks) for one in fine.gres_per_task]:
        mine = [one for one in share.gres if one.name == wanted.name]
        have = sum(one.count for one in mine if wanted.type in ("", one.type))
        if mine and have < wanted.count * times:
            return False
    return True

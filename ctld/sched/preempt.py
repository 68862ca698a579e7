"""Preemption: who has to go so that a job which found no place can start, and what has been promised already.

Who may preempt whom, and what becomes of a victim, is a matter of partition tiers or of QOS (PreemptType). Candidates
are taken in order, lowest tier and smallest first, until the job fits; then the order is turned round once more, and a
backwards pass spares everybody who is not needed after all. With `PreemptParameters=cost_aware` the set that loses the
fewest GPU-seconds is taken instead. Victims are whole jobs, and only taken when the job then really fits: what is
chosen goes with the place that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ctld.core import ranges
from ctld.core.apply.indexes import held_shares
from ctld.core.booked import Promises, Room, cores_on, is_ending, threads
from ctld.core.cluster import PartitionSpec
from ctld.core.decide.ending import may_requeue
from ctld.core.free import exclusive_mode
from ctld.core.model import Job, NodeShare
from ctld.core.plan import Preempt, Start, Victim
from ctld.core.state import State
from ctld.sched.demand import Demand
from ctld.sched.fleet import Fleet, View, free_view
from ctld.sched.lost import fewest_lost, lost_work
from ctld.sched.place import Scratch
from ctld.sched.preempt_rules import grace_on, may_preempt, mode_on, weight_of
from ctld.sched.select import Pick, choose
from muster.ids import NO_TASK, JobId
from muster.states import JobState

_NODE_BITS = 16
_MOST_NODES = (1 << _NODE_BITS) - 1

Leaves = list[tuple[int, int, int, tuple[int, ...]]]
"""What a victim leaves: (node, CPUs, memory in MiB, GPUs by column)."""
Bound = Callable[[View], None]
"""Lowers a view to what is not kept for others at a later time."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that may be preempted."""

    job: Job
    mode: str
    nodes: frozenset[int]
    leaves: Leaves
    lost: int
    """What preempting it loses; see `ctld.sched.lost`."""

    @property
    def id(self) -> int:
        """Of the job."""
        return self.job.id


class Preempting:
    """The preemptions of one pass: each call sees what those before it have taken."""

    def __init__(self, state: State, fleet: Fleet, at: int, closed: int, promises: Promises | None = None) -> None:
        """Args:
        state: what is.
        fleet: its nodes as columns.
        at: now.
        closed: bitmap of the nodes that cannot be used, also when everything has been cleaned up.
        promises: what is booked already.
        """
        self._state = state
        self._fleet = fleet
        self._at = at
        self._closed = closed
        self._promises = promises or Promises(state)
        self._base: View | None = None
        """What is free once everything that is ending has gone, bookings and starts of the pass taken off."""
        self._taken: dict[int, list[NodeShare]] = {}
        """Node -> shares of the pass's starts and preemptions."""
        self._counted = 0
        self._victims: dict[int, str] = {}

    def room_for(
        self,
        demand: Demand,
        job: Job,
        partition: PartitionSpec,
        starts: Sequence[Start],
        *,
        task_id: int = NO_TASK,
        bound: Bound | None = None,
        closed: int = 0,
    ) -> Preempt | None:
        """Give the preemption that makes room for a job which found no place now, None when there is none or when
        waiting for what is ending anyway is enough.

        Args:
            demand: what it needs in the partition.
            job: the waiting job.
            partition: where it is to run.
            starts: of this pass so far.
            task_id: the member that is to start, of an array.
            bound: lowers a view to what the job may take of it (what later reservations leave).
            closed: bitmap of nodes that are kept from this job (by advance reservations).
        """
        self._follow(starts)
        alone = exclusive_mode(job.spec.request.exclusive, partition) == "user"

        def fits(some: Iterable[Candidate]) -> list[Pick] | None:
            victims = tuple(some)
            view = self._view_without(victims)
            if bound is not None:
                bound(view)
            return choose(demand, view, closed | self._barred(demand, job, victims, alone=alone))

        if fits(()) is not None:
            return None
        candidates = self._candidates(demand, job, partition, alone=alone)
        if not candidates:
            return None

        parameters = self._state.settings.preemption
        victims = in_order(candidates, fits, parameters.reorder_count, strict=parameters.strict_order)
        if victims is None:
            return None
        victims = spared(victims, fits, reversed(candidates))
        if parameters.cost_aware:
            victims = fewest_lost(candidates, victims, fits)
        picks = fits(victims)
        assert picks is not None, "a set of victims makes room"
        shares = self._placed(demand, job, picks, victims)
        if shares is None or any(share.gres or share.row for share in shares):
            # Promises are made of cores, GPUs and memory, not of other devices or of cores that jobs share.
            return None
        for victim in victims:
            self._victims[victim.id] = victim.mode
        self._base = self._view_without(victims)
        self._take(shares, partition.name)
        return Preempt(
            job_id=job.id,
            partition=partition.name,
            shares=shares,
            victims=tuple(
                Victim(JobId(one.id), one.job.restarts, one.mode, grace_on(self._state, one.job)) for one in victims
            ),
            task_id=task_id,
        )

    # ---- what there is -----------------------------------------------------------------------------------------

    def _follow(self, starts: Sequence[Start]) -> None:
        if self._base is None:
            self._base = self._first_view()
        for start in starts[self._counted :]:
            self._take(start.shares, start.partition)
        self._counted = len(starts)

    def _first_view(self) -> View:
        state = self._state
        view = free_view(self._fleet, state.free, self._closed)
        nodes = set(self._promises.nodes)
        for job_id in (*state.completing, *state.running):
            job = state.jobs[job_id]
            if is_ending(job):
                nodes.update(share.node for share in held_shares(job))
        for node in nodes:
            if not self._closed >> node & 1:
                room = self._promises.soon(node, {})
                view.cpus[node], view.memory[node] = room.cpus, room.memory_mib
                rows = state.free.rows[node] if state.free.rows else {}
                more = state.free.more[node]
                counts = self._fleet.free_counts(node, room.cores, room.gpus, more=more, rows=rows)
                for column, count in zip(view.gpus, counts, strict=True):
                    column[node] = count
        return view

    def _take(self, shares: Iterable[NodeShare], partition: str) -> None:
        assert self._base is not None, "there is a view to take from"
        for share in shares:
            self._taken.setdefault(share.node, []).append(share)
            self._base.cpus[share.node] -= share.cpus
            self._base.memory[share.node] -= share.memory_mib
            counts = self._fleet.counts_of(share, partition)
            for column, count in zip(self._base.gpus, counts, strict=True):
                column[share.node] -= count

    def _view_without(self, victims: Iterable[Candidate]) -> View:
        """Give what is free once these have gone too."""
        assert self._base is not None, "there is a view"
        view = self._base.copy()
        for victim in victims:
            _add_to(view, victim)
        return view

    # ---- candidates --------------------------------------------------------------------------------------------

    def _candidates(self, demand: Demand, job: Job, partition: PartitionSpec, *, alone: bool) -> list[Candidate]:
        """Give all whom the job may preempt and who have something on nodes that it could use, in order."""
        state = self._state
        usable = 0
        for alternative in demand.alternatives:
            usable |= alternative.bits
        usable &= ~self._closed
        found: list[Candidate] = []
        for job_id in state.running:
            other = state.jobs[job_id]
            if other.alloc is None or job_id in self._victims or is_ending(other):
                continue
            if alone and other.spec.uid != job.spec.uid:
                continue
            if not any(usable >> share.node & 1 for share in other.alloc.shares):
                continue
            if any(share.row for share in other.alloc.shares):
                continue  # Its cores are others' too: they do not come free with it.
            if not may_preempt(state, job, partition, other, self._at):
                continue
            mode = mode_on(state, other)
            if mode == "REQUEUE" and not may_requeue(other):
                mode = "CANCEL"
            found.append(
                Candidate(
                    job=other,
                    mode=mode,
                    nodes=frozenset(share.node for share in other.alloc.shares),
                    leaves=self._leaves(other, mode),
                    lost=lost_work(other, mode, self._at),
                )
            )
        return self._sorted(found)

    def _sorted(self, found: list[Candidate]) -> list[Candidate]:
        if self._state.settings.preemption.youngest_first:
            return sorted(found, key=lambda one: (-one.job.started_at, -one.id))

        def key(one: Candidate) -> tuple[int, int, int]:
            weight = weight_of(self._state, one.job) << _NODE_BITS
            return weight + min(len(one.nodes), _MOST_NODES), -one.job.started_at, -one.id

        return sorted(found, key=key)

    def _leaves(self, job: Job, mode: str) -> Leaves:
        state, fleet = self._state, self._fleet
        leaves: Leaves = []
        for share in held_shares(job):
            node = share.node
            cpus = share.cpus
            if job.state == JobState.SUSPENDED:
                back = cores_on(job, node) & state.free.cores[node] & self._promises.returning.get(node, 0)
                cpus = back.bit_count() * threads(state, node)
            if mode == "SUSPEND":
                leaves.append((node, cpus, 0, (0,) * fleet.width))
            else:
                counts = fleet.counts_of(share, job.alloc.partition if job.alloc is not None else "")
                leaves.append((node, cpus, share.memory_mib, counts))
        return leaves

    # ---- places ------------------------------------------------------------------------------------------------

    def _barred(self, demand: Demand, job: Job, victims: Sequence[Candidate], *, alone: bool) -> int:
        """Give the nodes that are kept for another user even when the victims have gone."""
        state, uid = self._state, job.spec.uid
        if not alone and max(state.free.owner, default=-1) == -1:
            return 0
        going = {one.id for one in victims if one.mode != "SUSPEND"}
        going |= {job_id for job_id, mode in self._victims.items() if mode != "SUSPEND"}
        bits = 0
        for node in {node for alternative in demand.alternatives for node in alternative.nodes}:
            if not alone and state.free.owner[node] in (-1, uid):
                continue
            others = (state.jobs[one] for one in state.node_jobs[node] if one not in going)
            barred = any(other.spec.uid != uid and not is_ending(other) for other in others)
            if barred or (alone and (self._taken.get(node) or self._promises.bookings.get(node))):
                bits |= 1 << node
        return bits

    def _placed(
        self, demand: Demand, job: Job, picks: list[Pick], victims: Sequence[Candidate]
    ) -> tuple[NodeShare, ...] | None:
        """Give the shares with concrete cores and GPUs, None where a node's do not hold what its counts promise."""
        modes = {**self._victims, **{one.id: one.mode for one in victims}}
        scratch = Scratch(self._state, self._fleet, self._view_without(victims))
        scratch.cores, scratch.gpus = scratch.cores.copy(), scratch.gpus.copy()
        for node, _, _ in picks:
            room = self._room(node, modes)
            scratch.cores[node], scratch.gpus[node] = room.cores, room.gpus
        return scratch.place(demand, picks, job.spec.uid)

    def _room(self, node: int, victims: dict[int, str]) -> Room:
        room = self._promises.soon(node, victims)
        cores, gpus = room.cores, room.gpus
        for share in self._taken.get(node, ()):
            cores &= ~ranges.to_bitmap(share.cores)
            gpus &= ~ranges.to_bitmap(share.gpus)
        return Room(cores, gpus, room.memory_mib, room.cpus)


def in_order(
    candidates: Sequence[Candidate],
    fits: Callable[[Iterable[Candidate]], list[Pick] | None],
    reorder_count: int,
    *,
    strict: bool,
) -> list[Candidate] | None:
    """Take candidates in order until the job fits; then try again with the last one taken in front, `reorder_count`
    times. Gives those that have something on the nodes chosen in the end, None when all together do not suffice."""
    order = list(candidates)
    found = _least_prefix(order, fits)
    if found is None:
        return None
    count, picks = found
    for _ in range(reorder_count):
        if count <= 1:
            break
        last = order[count - 1]
        others = order[: count - 1] + order[count:]
        if not strict:
            nodes = {pick[0] for pick in picks}
            others.sort(key=lambda one: -len(one.nodes & nodes))
        order = [last, *others]
        again = _least_prefix(order, fits)
        assert again is not None, "the same candidates suffice in any order"
        count, picks = again
    nodes = {pick[0] for pick in picks}
    return [one for one in order[:count] if one.nodes & nodes]


def _least_prefix(
    order: Sequence[Candidate], fits: Callable[[Iterable[Candidate]], list[Pick] | None]
) -> tuple[int, list[Pick]] | None:
    """Give how many of the first have to go at least, and the place that makes; by bisection, as more room never
    makes a job fit less."""
    best = fits(order)
    if best is None:
        return None
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        picks = fits(order[:middle])
        if picks is None:
            low = middle
        else:
            high, best = middle, picks
    return high, best


def spared(
    victims: Sequence[Candidate],
    fits: Callable[[Iterable[Candidate]], list[Pick] | None],
    order: Iterable[Candidate],
) -> list[Candidate]:
    """Let those go free, in this order, without whom the job fits as well."""
    kept = list(victims)
    for one in order:
        if one in kept and len(kept) > 1:
            without = [other for other in kept if other is not one]
            if fits(without) is not None:
                kept = without
    return kept


def _add_to(view: View, victim: Candidate) -> None:
    for node, cpus, memory, gpus in victim.leaves:
        view.cpus[node] += cpus
        view.memory[node] += memory
        for column, count in zip(view.gpus, gpus, strict=True):
            column[node] += count

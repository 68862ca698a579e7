"""Explains why a job waits: what the pass asks, asked again one question after the other, with the numbers of each.

The questions are those of the pass and its structures (`PlanMemory.entries`, `Demand`, the rules of limits, what is
free), the reason is the one that the last pass found. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest

from ctld.core.decide.plan import run_limit_seconds
from ctld.core.holds import Barred
from ctld.core.limits.asked import least
from ctld.core.limits.check import Check
from ctld.core.limits.past import Meters
from ctld.core.model import Job
from ctld.core.plan import Plan, Wait
from ctld.core.queue import JobClass, order_key
from ctld.core.state import State
from ctld.sched import grounds
from ctld.sched.demand import Demand, demand_of
from ctld.sched.explanation import Blocker, Explanation, Filter, Limit, PartitionView, Stage
from ctld.sched.fleet import bitmap, members
from ctld.sched.limits import Thresholds, rules_of
from ctld.sched.memory import Entry, PlanMemory
from ctld.sched.needs import Impossible
from ctld.sched.node_filters import Sieve, share_text
from ctld.sched.place import unfit
from ctld.sched.releases import end_of, held_until
from ctld.sched.reserved import access, options
from muster.errors import InvalidInput
from muster.ids import UnixTime
from muster.states import Reason

MOST_BLOCKERS = 10
_BY_REASON = {
    Reason.DEPENDENCY: "dependency",
    Reason.DEPENDENCY_NEVER: "dependency",
    Reason.BEGIN_TIME: "begin time",
    Reason.ARRAY_LIMIT: "array",
    Reason.CLEANING: "cleaning",
    Reason.DEADLINE: "deadline",
    Reason.LICENSES: "licenses",
    Reason.RESERVATION: "reservation",
    Reason.RESERVATION_INVALID: "reservation",
    Reason.QOS_USAGE_THRESHOLD: "usage",
    Reason.RESOURCES: "nodes",
    Reason.TOPOLOGY_LEVEL: "nodes",
    Reason.NODE_NOT_AVAIL: "nodes",
}
"""Reason -> the stage that says it, where it is not the first that the job did not pass."""


def explain(
    state: State, at: UnixTime, memory: PlanMemory, job: Job, wait: Wait, *, overlay: Plan | None = None
) -> Explanation:
    """Explain why a pending job waits.

    Args:
        memory: what the last pass left behind.
        wait: the reason and the planned start that are shown for it.
        overlay: what the last pass promised to others; None before the first one.
    """
    if memory.fleet.size != len(state.nodes):  # No pass has seen these nodes yet.
        memory.follow_config(state)
    look = _Look(state, at, memory, job, wait)
    views = [look.partition(entry) for entry in look.entries]
    stages = grounds.lasting(state, job, wait, at)
    blockers, blocking = look.blockers(overlay)
    patience = state.queue.patience
    return Explanation(
        job_id=job.id,
        made_at=at,
        wait=wait,
        sentence=_sentence(wait, stages, views, look.limits.get(wait.reason)),
        stages=tuple(stages),
        partitions=tuple(views),
        blockers=tuple(blockers),
        blocking=blocking,
        priority=state.queue.priority(job),
        waited_seconds=max(0, at - job.eligible_at) if job.eligible_at else 0,
        longest_seconds=patience.longest(job),
        late=job.id in patience.late,
    )


class _Look:
    """One job, looked at with the eyes of the pass."""

    def __init__(self, state: State, at: UnixTime, memory: PlanMemory, job: Job, wait: Wait) -> None:
        self._state = state
        self._at = at
        self._memory = memory
        self._job = job
        self._wait = wait
        self._key = state.queue.key_of(job.id)
        jobs = state.queue.class_of(job.id)
        if jobs is None:
            jobs = JobClass(0, state.queue.class_key(job))
            jobs.order.insert(order_key(state.queue.priority(job), job.id))
            self.entries: Sequence[Entry] = memory.entries_apart(state, jobs)
        else:
            self.entries = memory.entries(state, jobs)
        self._short = 0
        """Bitmap of nodes that could serve and have not enough free."""
        self._could = 0
        self.limits: dict[Reason, Limit] = {}
        """Those that hold for it, the first of each reason."""

    # ---- one partition ----------------------------------------------------------------------------------------------

    def partition(self, entry: Entry) -> PartitionView:
        """Ask all questions about one of the job's partitions."""
        state, job, partition = self._state, self._job, entry.partition
        sieve = Sieve(state, self._memory, job, partition.nodes, partition.name)
        stages: list[Stage] = []
        limits: tuple[Limit, ...] = ()
        demand, problem = entry.demand, ""
        asked = run_limit_seconds(job, partition)
        if entry.bar is not None:
            name, problem = grounds.barred(state, job, partition, entry.bar, asked)
            if name == "request":
                demand, problem = self._request(entry, problem)
            stages.append(Stage(name, False, problem))
        else:
            stages += grounds.admitted(state, job, partition, asked)
        if partition.name in state.partitions:
            limits = tuple(self._limits(entry))
            stages += self._limiting(entry, limits)
        licences = grounds.licensing(state, job)
        if licences is not None:
            stages.append(licences)
        reserved, barred = self._reserved(entry)
        stages += reserved
        if demand is not None:
            sieve.sift(demand, self._at, barred)
            self._could |= sieve.could
            self._short |= sieve.could & ~sieve.left
            if entry.bar is None:
                stages.append(self._nodes(demand, sieve))
        place, waiting, before = self._place(entry)
        return PartitionView(
            partition.name,
            tuple(stages),
            limits,
            tuple(sieve.filters),
            demand.need.nodes if demand is not None else max(1, job.spec.request.nodes_min),
            place,
            waiting,
            before,
        )

    def _request(self, entry: Entry, otherwise: str) -> tuple[Demand | None, str]:
        """Lay a request over a partition that can never serve it, to say why."""
        fleet, partition = self._memory.fleet, entry.partition
        try:
            demand = demand_of(fleet, self._state.settings, partition, entry.jobs.request)
        except Impossible as error:
            return None, error.sentence
        except InvalidInput as error:
            return None, str(error)
        if demand.picky:
            demand.leave_out(unfit(fleet, demand))
        able = [node for one in demand.alternatives for node in one.nodes]
        count, need = len(set(able)), demand.need
        if count < need.nodes:
            return demand, f"{_needed(demand)}: {count} of partition {partition.name} could ever give that"
        cpus = sum(fleet.kinds[fleet.kind[node]].cpus for node in set(able))
        gpus = sum(fleet.kinds[fleet.kind[node]].gpus[0] for node in set(able))
        if cpus < demand.least_cpus:
            return demand, f"{demand.least_cpus} CPUs are asked for, the {count} nodes that could serve have {cpus}"
        if gpus < need.gpus_total[0]:
            return demand, f"{need.gpus_total[0]} GPUs are asked for, the {count} nodes that could serve have {gpus}"
        return (
            demand,
            f"{need.nodes} nodes are needed, and the {count} that could serve never lie as is asked ({otherwise})",
        )

    def _limits(self, entry: Entry) -> Iterator[Limit]:
        state = self._state
        if not state.limits.enforced:
            return
        rules = rules_of(state, self._job, entry.partition)
        check = Check(state.load, Meters(state), self._at, safe=state.limits.safe)
        limit = run_limit_seconds(self._job, entry.partition)
        asked = least(state, self._job, entry.partition.name, limit)
        for rule in (*rules.before, *rules.after):
            found = check.standing(rule, asked, rules.usage_factor)
            if found is not None:
                one = Limit(*found)
                self.limits.setdefault(rule.reason, one)
                yield one

    def _limiting(self, entry: Entry, limits: tuple[Limit, ...]) -> Iterator[Stage]:
        state = self._state
        over = next((one for one in limits if one.in_the_way), None)
        if over is not None and (entry.bar is None or entry.bar.limit is None):
            yield Stage("limits", False, over.numbers.sentence())
        elif limits and over is None:
            yield Stage("limits", True, f"{len(limits)} limits hold, none is in the way")
        if state.limits.enforced:
            rules = rules_of(state, self._job, entry.partition)
            factor = Thresholds(state, self._at).factor(rules)
            if factor is not None:
                yield Stage("usage", factor >= rules.threshold, grounds.threshold(rules, factor))

    def _reserved(self, entry: Entry) -> tuple[list[Stage], Barred]:
        """Give the stage of advance reservations, and what they keep from the job now."""
        state, job, at = self._state, self._job, self._at
        asked = job.spec.request.reservations
        if not asked and not state.reservations:
            return [], Barred()
        end = end_of(at, entry.limit_seconds)
        ways = options(state, job, at, end)
        if not asked:
            found = ways[-1][1]
            if not found:
                return [], found
            nodes = found.nodes | bitmap([*found.cores, *found.gpus])
            mine = (nodes & bitmap(entry.partition.nodes)).bit_count()
            names = ", ".join(sorted(_in_the_way(state, at, end)))
            text = f"{mine} nodes of partition {entry.partition.name} are in reservations before it could end: {names}"
            return [Stage("reservation", True, text)], found
        names = ",".join(asked)
        if ways:
            return [Stage("reservation", True, f"{ways[0][0]} of {names} can take it now")], ways[0][1]
        ahead = [one for one in access(state, job, at) if one.inside is not None]
        if not ahead:
            text = f"it may use 0 of the {len(asked)} reservations that it names: {names}"
        elif later := [one for one in ahead if one.start > at]:
            first = min(later, key=lambda one: one.start)
            assert first.inside is not None
            text = f"reservation {first.inside.name} begins in {first.start - at} seconds"
        else:
            left = max(one.end for one in ahead) - at
            text = f"{left} seconds are left of its reservations, its time limit is {entry.limit_seconds} seconds"
        return [Stage("reservation", False, text)], Barred()

    def _nodes(self, demand: Demand, sieve: Sieve) -> Stage:
        """Say whether there is room now, and if not, which question leaves too few nodes."""
        need = demand.need.nodes
        wanted = _needed(demand)
        if sieve.fits:
            return Stage("nodes", True, f"{wanted}: there is room now")
        failing = sieve.failing(need)
        assert failing is not None, "who does not fit fails a question"
        could = sieve.could.bit_count()
        if failing.name == "together":
            return Stage("nodes", False, f"{wanted}: {failing.sentence}")
        of = f"of {could} that could serve " if _is_about_room(failing) else ""
        return Stage("nodes", False, f"{wanted}: {of}{failing.nodes} are left {failing.sentence}")

    # ---- the others -------------------------------------------------------------------------------------------------

    def _place(self, entry: Entry) -> tuple[int, int, int]:
        """Give the place in the line of a partition, how many wait there, and the job right before."""
        name, key = entry.partition.name, self._key
        before, waiting, last = 0, 0, (-(1 << 62), -1)
        for jobs in self._state.queue.classes.values():
            if name not in jobs.partitions:
                continue
            other = self._memory.entries(self._state, jobs)[jobs.partitions.index(name)]
            if other.bar is not None:
                continue
            waiting += len(jobs)
            if other.tier > entry.tier:
                continue
            count, greatest = jobs.order.below(key if other.tier == entry.tier else 1 << 80)
            before += count
            if count:
                last = max(last, (other.tier, greatest))
        if not key or entry.bar is not None:
            return 0, waiting, 0
        return before + 1, waiting, last[1] & 0xFFFFFFFF if before else 0

    def blockers(self, overlay: Plan | None) -> tuple[list[Blocker], int]:
        """Give the jobs that run on, or are promised, what this one would need, and how many there are: nodes that
        could serve and have not enough free, of the planned ones where a start is planned."""
        state = self._state
        planned = bitmap(self._wait.nodes)
        wanted = planned & self._short or planned or self._short or self._could
        running = {job_id for node in members(wanted) if node < len(state.nodes) for job_id in state.node_jobs[node]}
        ends = {job_id: held_until(state, state.jobs[job_id]) for job_id in running}
        # Of what ends later the planned start does not wait.
        waited_for = {job_id: end for job_id, end in ends.items() if end <= self._wait.start_at} or ends
        found: list[tuple[int, int, tuple[int, ...]]] = [(end, job_id, ()) for job_id, end in waited_for.items()]
        found += self._promised(overlay, planned or self._could)
        blockers = []
        for when, job_id, nodes in nsmallest(MOST_BLOCKERS, found):
            alloc = state.jobs[job_id].alloc
            if nodes or alloc is None:
                blockers.append(Blocker(job_id, nodes, 0, when))
            else:
                mine = tuple(one.node for one in alloc.shares if wanted >> one.node & 1)
                blockers.append(Blocker(job_id, mine, when))
        return blockers, len(found)

    def _promised(self, overlay: Plan | None, wanted: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Give start, id and nodes of the jobs before this one to which some of the nodes are promised."""
        state = self._state
        own = min((entry.tier for entry in self.entries), default=0), self._key
        for job_id, wait in overlay.waits.items() if overlay is not None and self._key else ():
            nodes = tuple(node for node in wait.nodes if wanted >> node & 1)
            jobs = state.queue.class_of(job_id)
            if job_id == self._job.id or not wait.start_at or not nodes or jobs is None:
                continue
            tier = min(entry.tier for entry in self._memory.entries(state, jobs))
            if (tier, state.queue.key_of(job_id)) < own:
                yield wait.start_at, job_id, nodes


def _needed(demand: Demand) -> str:
    count, share = demand.need.nodes, share_text(demand)
    return f"{count} nodes with {share} each are needed" if count > 1 else f"1 node with {share} is needed"


def _sentence(wait: Wait, stages: Sequence[Stage], views: Sequence[PartitionView], limit: Limit | None) -> str:
    """Give the sentence of the stage that the reason means; for Priority who stands before.

    Args:
        limit: that the reason is of, if it is of one.
    """
    if wait.limit is not None:
        return wait.limit.sentence()
    if limit is not None:  # Found by the calendar, which looks ahead.
        ahead = "" if limit.in_the_way else ", and what is planned before it leaves too little"
        return limit.numbers.sentence() + ahead
    failed = [one for one in stages if not one.passed]
    by_partition = [one for view in views for one in view.stages if not one.passed]
    if wait.reason is Reason.PRIORITY:
        return _behind(views)
    name = _BY_REASON.get(wait.reason)
    if name is None:
        return (*failed, *by_partition)[0].sentence if failed or by_partition else _behind(views)
    every = [*stages, *(one for view in views for one in view.stages)]
    found = [one for one in every if one.name == name and not one.passed]
    if not found:  # It has passed since the pass was made, or there is room, but not outside of reservations.
        also = "reservation" if name == "nodes" else name
        found = [one for one in every if one.name == also]
    if not found:
        return _behind(views)
    return f"{found[0].sentence} ({wait.text})" if wait.text and name == "nodes" else found[0].sentence


def _behind(views: Sequence[PartitionView]) -> str:
    """Say who stands before the job, and whether there would be room."""
    lined = [view for view in views if view.place]
    if not lined:
        return next(
            (one.sentence for view in views for one in view.stages if not one.passed), "the next pass looks at it"
        )
    said = []
    for view in lined:
        if view.place == 1:
            said.append(f"it is first of {view.waiting} in partition {view.name}: the next pass looks at it")
        else:
            text = f"{view.place - 1} of {view.waiting} jobs stand before it in partition {view.name}"
            said.append(f"{text}, the last of them is job {view.next_before}")
    room = next((one.sentence for view in lined for one in view.stages if one.name == "nodes"), "")
    return "; ".join(said) + (f"; {room}" if room else "")


def _is_about_room(failing: Filter) -> bool:
    return failing.name not in ("cluster", "partition", "state", "excluded", "named", "features", "hardware")


def _in_the_way(state: State, at: int, end: int) -> set[str]:
    return {one.name for one in state.reservations.values() if one.parts and one.times(at)[0] < end}

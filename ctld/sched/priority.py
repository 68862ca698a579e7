"""The multifactor priority: one sum of weighted factors for each pair of partition and QOS that a job may use.

`Weigher` is what one pass computes with (settings, tree, fairshare and sizes of one moment): it gives the terms of one
job for sprio, and the priorities of many at once. `Ranking` keeps the queue's computed priorities up: all of them
every PriorityCalcPeriod in slices, and single ones when a job comes or changes. Both are exact: the terms are doubles
added in the order of scheduling.md 2.1 and cut to an integer once, so that what sprio adds up is what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from ctld.core import devices
from ctld.core.cluster import PartitionSpec, PrioritySettings
from ctld.core.licenses import as_tres
from ctld.core.model import UNLIMITED, Job
from ctld.core.record import licensed, requested_size, requested_tres, tres
from ctld.core.state import State
from ctld.sched.fairshare import FairShare, fairshare
from muster.ids import UnixTime
from muster.states import JobState

LARGEST = (1 << 32) - 1
CHUNK = 64
"""Jobs between two looks at the clock in a pass: half a millisecond, 3 ms when each is of a shape of its own."""
_UNLIMITED_MINUTES = LARGEST
_PENDING = int(JobState.PENDING)
_SUSPENDED = int(JobState.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Terms:
    """The weighted terms of a priority, and the factors that they come from."""

    partition: str
    qos: str
    site: int
    age: float
    assoc: float
    fairshare: float
    job_size: float
    of_partition: float
    of_qos: float
    tres: tuple[tuple[str, float], ...]
    """In the order of PriorityWeightTRES."""
    nice: int
    factors: Factors

    def total(self) -> int:
        """Add up."""
        raw = self.site + self.age
        for term in (self.assoc, self.fairshare, self.job_size, self.of_partition, self.of_qos):
            raw += term
        raw += _summed(self.tres)
        return truncated(raw - self.nice)


@dataclass(frozen=True, slots=True)
class Factors:
    """What the weights are multiplied with."""

    age: float
    assoc: float
    fairshare: float
    job_size: float
    partition: float
    qos: float
    tres: tuple[tuple[str, float], ...]


def truncated(raw: float) -> int:
    """Cut a sum to a priority: 0 is kept for what is held."""
    return min(int(raw), LARGEST) if raw >= 1 else 1


def age_factor(accrues_from: int, now: int, max_age_seconds: int) -> float:
    """Give the age factor; 0 before it accrues."""
    if not accrues_from or accrues_from >= now:
        return 0.0
    return min(1.0, (now - accrues_from) / max_age_seconds)


def size_factor(
    nodes: int, cpus: int, minutes: int, of_nodes: int, of_cpus: int, *, favor_small: bool, relative: bool
) -> float:
    """Give the job-size factor.

    Args:
        nodes, cpus: what the job asks for; cpus 0: not known.
        minutes: its time limit.
        of_nodes, of_cpus: what the cluster has.
        favor_small: PriorityFavorSmall.
        relative: PriorityFlags=SMALL_RELATIVE_TO_TIME.
    """
    if not of_nodes or not of_cpus:
        return 0.0
    if relative:
        factor = max(nodes * of_cpus / of_nodes, cpus) / max(1, minutes) / of_cpus
        factor = 1.0 - factor if favor_small else factor
    elif favor_small:
        factor = (of_nodes - nodes) / of_nodes if nodes < of_nodes else 0.0
        factor = (factor + (of_cpus - cpus) / of_cpus) / 2 if cpus else factor
    else:
        factor = nodes / of_nodes
        factor = (factor + cpus / of_cpus) / 2 if cpus else factor
    return min(1.0, max(0.0, factor))


def accrues_from(job: Job, settings: PrioritySettings, *, limited: bool) -> int:
    """Give the time from which a pending job's age counts; 0: it does not.

    Args:
        limited: AccountingStorageEnforce has limits: then a hold ends the counting, and a release begins it anew.
    """
    if "ACCRUE_ALWAYS" in settings.flags:
        return job.submitted_at
    if not limited:
        return job.eligible_at
    if job.accrues_at < 0 or job.hold or not job.priority:
        return 0
    return max(job.eligible_at, job.accrues_at) if job.eligible_at else 0


# ---- one moment ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Jobs whose terms differ in age, nice and site only, with the terms of their best pair."""

    terms: tuple[float, float, float, float, float, float]
    """assoc, fairshare, size, partition, QOS, TRES."""
    kept: tuple[object, ...]
    """What the key has the addresses of: it stays as long as the key."""


class Weigher:
    """Priorities with the settings, tree, fairshare and cluster of one moment."""

    def __init__(self, state: State, at: UnixTime, shares: Mapping[int, FairShare]) -> None:
        self.at = at
        self.settings = state.settings.priority
        self.shares = shares
        self._state = state
        self._accounts = state.accounts
        self._partitions = state.partitions
        self._fleet = state.nodes
        """The list of this configuration: another one makes another list."""
        self._limited = "limits" in state.settings.accounting_enforce
        flags = self.settings.flags
        self._raw = {name: f"NO_NORMAL_{name}" in flags for name in ("ASSOC", "PART", "QOS", "TRES")}
        self._relative = "SMALL_RELATIVE_TO_TIME" in flags
        specs = [node.spec for node in state.nodes if node.spec.state != "FUTURE"]
        self._nodes, self._cpus = len(specs), sum(spec.cpus for spec in specs)
        self._top_factor = max((one.priority_job_factor for one in state.partitions.values()), default=0)
        self._totals: dict[str, dict[str, int]] = {}
        self._groups: dict[tuple[object, ...], _Group] = {}

    def terms(self, job: Job) -> list[Terms]:
        """Give the terms of each pair of partition and QOS that a job may use, in its order."""
        settings = self.settings
        age = age_factor(accrues_from(job, settings, limited=self._limited), self.at, settings.max_age_seconds)
        names = (job.alloc.partition,) if job.alloc is not None and job.state != _PENDING else job.spec.partitions
        amounts = self._amounts(job)
        found: list[Terms] = []
        for name in names:
            partition = self._partitions.get(name)
            for qos in job.spec.qos.split(","):
                factors = self._factors(job, partition, qos, age, amounts)
                weighted = tuple((tres, settings.tres[tres] * factor) for tres, factor in factors.tres)
                found.append(
                    Terms(
                        partition=name,
                        qos=qos,
                        site=job.site_factor,
                        age=settings.age * factors.age,
                        assoc=settings.assoc * factors.assoc,
                        fairshare=settings.fairshare * factors.fairshare,
                        job_size=settings.job_size * factors.job_size,
                        of_partition=settings.partition * factors.partition,
                        of_qos=settings.qos * factors.qos,
                        tres=weighted,
                        nice=job.nice,
                        factors=factors,
                    )
                )
        return found

    def best(self, job: Job) -> Terms:
        """Give the terms of the pair that gives the job its priority: the one with the largest sum."""
        return max(self.terms(job), key=_fixed)

    def priority(self, job: Job) -> int:
        """Give one job's priority."""
        return self.best(job).total()

    def priorities(self, jobs: Sequence[Job]) -> npt.NDArray[np.int64]:
        """Give the priorities of many jobs."""
        settings, limited = self.settings, self._limited
        groups: dict[int, int] = {}
        rows: list[tuple[float, ...]] = []
        places: list[int] = []
        for job in jobs:
            group = self._group(job)
            place = groups.get(id(group))
            if place is None:
                place = groups[id(group)] = len(rows)
                rows.append(group.terms)
            places.append(place)
        fixed = np.array(rows, dtype=np.float64).reshape(-1, 6)[np.array(places, dtype=np.int64)]
        accrual = np.array([accrues_from(job, settings, limited=limited) for job in jobs], dtype=np.int64)
        ages = np.minimum(1.0, (self.at - accrual) / settings.max_age_seconds)
        ages[(accrual == 0) | (accrual >= self.at)] = 0.0
        raw = np.array([job.site_factor for job in jobs], dtype=np.float64) + settings.age * ages
        for column in range(6):
            raw += fixed[:, column]
        raw -= np.array([job.nice for job in jobs], dtype=np.float64)
        found: npt.NDArray[np.int64] = np.clip(np.trunc(raw), 1, LARGEST).astype(np.int64)
        return found

    # ---- parts -------------------------------------------------------------------------------------------------

    def _group(self, job: Job) -> _Group:
        # Equal parts of specs are kept once (see `intern`), so that their addresses stand for them.
        spec = job.spec
        allocated = job.alloc if job.state != _PENDING else None
        key = (
            id(spec.request),
            id(spec.partitions),
            job.limit_seconds,
            spec.user,
            spec.account,
            spec.qos,
            id(allocated),
        )
        group = self._groups.get(key)
        if group is None:
            best = self.best(job)
            terms = (
                best.assoc, best.fairshare, best.job_size, best.of_partition, best.of_qos, _summed(best.tres),
            )  # fmt: skip
            group = self._groups[key] = _Group(terms, (spec.request, spec.partitions, allocated))
        return group

    def _amounts(self, job: Job) -> dict[str, int]:
        if job.alloc is not None and _PENDING < job.state <= _SUSPENDED:
            return tres(self._state, job.alloc.shares) | licensed(job)
        return requested_tres(self._state, job)

    def _factors(
        self, job: Job, partition: PartitionSpec | None, qos: str, age: float, amounts: Mapping[str, int]
    ) -> Factors:
        settings, accounts, spec = self.settings, self._accounts, job.spec
        association = accounts.find(spec.user, spec.account, partition.name if partition is not None else "")
        number = association.id if association is not None else 0
        share = self.shares.get(number)
        of_qos = accounts.qos.get(qos)
        return Factors(
            age=age,
            assoc=self._normal("ASSOC", accounts.priority(number), accounts.top_priority) if number else 0.0,
            fairshare=share.factor if share is not None else 0.0,
            job_size=self._size(job, partition, amounts),
            partition=self._normal("PART", partition.priority_job_factor, self._top_factor) if partition else 0.0,
            qos=self._normal("QOS", of_qos.priority, accounts.top_qos_priority) if of_qos is not None else 0.0,
            tres=tuple((name, self._tres(name, amounts, partition)) for name in settings.tres),
        )

    def _normal(self, kind: str, value: int, top: int) -> float:
        if self._raw[kind]:
            return float(value)
        return value / top if top > 0 else 0.0

    def _size(self, job: Job, partition: PartitionSpec | None, amounts: Mapping[str, int]) -> float:
        if not self.settings.job_size:
            return 0.0
        allocated = job.alloc is not None and _PENDING < job.state <= _SUSPENDED
        nodes = amounts.get("node", 1) if allocated else requested_size(job.spec.request)[1]
        if job.limit_seconds != UNLIMITED:
            minutes = -(-job.limit_seconds // 60)
        else:
            most = partition.max_minutes if partition is not None else UNLIMITED
            minutes = _UNLIMITED_MINUTES if most == UNLIMITED else most
        return size_factor(
            nodes,
            amounts.get("cpu", 0),
            minutes,
            self._nodes,
            self._cpus,
            favor_small=self.settings.favor_small,
            relative=self._relative,
        )

    def _tres(self, name: str, amounts: Mapping[str, int], partition: PartitionSpec | None) -> float:
        count = amounts.get(name, 0)
        if not count or name == "billing" or partition is None:
            return 0.0
        if self._raw["TRES"]:
            return float(count)
        total = self._total(partition).get(name, 0)
        return count / total if total else 0.0

    def _total(self, partition: PartitionSpec) -> dict[str, int]:
        """Count what a partition has of each TRES; licences are the whole cluster's."""
        known = self._totals.get(partition.name)
        if known is not None:
            return known
        totals: dict[str, int] = {"node": len(partition.nodes), "cpu": 0, "mem": 0, "gres/gpu": 0}
        for index in partition.nodes:
            spec = self._fleet[index].spec
            totals["cpu"] += spec.cpus
            totals["mem"] += spec.memory_mib
            totals["gres/gpu"] += len(spec.gpus)
            for kind in spec.gpus:
                if kind:
                    totals[f"gres/gpu:{kind}"] = totals.get(f"gres/gpu:{kind}", 0) + 1
            for device in spec.devices:
                for name in devices.names(device) if device.name != "gpu" else ():
                    totals[f"gres/{name}"] = totals.get(f"gres/{name}", 0) + devices.size(device)
        totals |= as_tres(self._state.settings.licenses.items())
        self._totals[partition.name] = totals
        return totals


def _summed(terms: Iterable[tuple[str, float]]) -> float:
    total = 0.0
    for _, term in terms:
        total += term
    return total


def _fixed(terms: Terms) -> float:
    return terms.assoc + terms.fairshare + terms.job_size + terms.of_partition + terms.of_qos + _summed(terms.tres)


# ---- all the time ----------------------------------------------------------------------------------------------


class Ranking:
    """Keeps the computed priorities of a state's queue up."""

    def __init__(self) -> None:
        self.weigher: Weigher | None = None
        """What priorities are computed with; None while there is nothing to compute."""
        self._before: Weigher | None = None
        """During a pass: what the jobs that it has not reached were computed with."""
        self._made_of: tuple[object, ...] = ()

    def outdated(self, state: State) -> bool:
        """Tell whether settings, partitions, nodes or accounts are others than the last pass computed with."""
        made_of = (state.settings, state.partitions, state.accounts)
        return any(one is not other for one, other in zip(made_of, self._made_of or (None,) * 3, strict=True))

    def usage(self, state: State, at: UnixTime) -> dict[int, float]:
        """Give the decayed usage of every association: what the next pass's fairshare is computed from."""
        if not state.settings.priority.fairshare:
            return {}
        return {number: state.usage.raw(number, at) for number in state.accounts.associations}

    def passing(self, state: State, at: UnixTime, shares: Mapping[int, FairShare] | None = None) -> Iterator[int]:
        """Compute all pending jobs' priorities anew, some at each step (the number of jobs so far is given).

        The state may change between steps. `shares`: fairshare at `at`, computed here if it is not given.
        """
        queue, settings = state.queue, state.settings.priority
        self._made_of = (state.settings, state.partitions, state.accounts)
        if not settings.computes:
            self.weigher = self._before = None
            queue.unrated = None
            if queue.priorities:
                queue.reprioritise({number: job.priority for number in queue if (job := state.jobs[number]).priority})
                queue.priorities.clear()
            return
        if shares is None:
            shares = fairshare(state.accounts, self.usage(state, at), settings.flags, settings.dampening)
        self._before, self.weigher = self.weigher, Weigher(state, at, shares)
        queue.unrated = {}
        numbers: list[int] = [*queue, *state.deferred]
        if "CALCULATE_RUNNING" in settings.flags:
            numbers += state.running
        waiting = iter(numbers)
        done = 0
        while chunk := list(islice(waiting, CHUNK)):
            self._rate(state, chunk)
            done += len(chunk)
            yield done
        self._before = None

    def follow(self, state: State) -> None:
        """Compute the priorities of jobs that came or changed since the last call."""
        noted = state.queue.unrated
        if noted and self.weigher is not None:
            numbers = list(noted)
            noted.clear()
            self._rate(state, numbers)

    def terms(self, state: State, job: Job) -> list[Terms]:
        """Give the terms of each pair of partition and QOS; the largest sum is the job's shown priority.

        There are none while its priority is not computed (held, set by hand).
        """
        if self.weigher is None or not job.priority or job.priority_set:
            return []
        found = self.weigher.terms(job)
        shown = state.queue.priorities.get(job.id)
        if self._before is not None and max(found, key=_fixed).total() != shown:
            earlier = self._before.terms(job)
            if max(earlier, key=_fixed).total() == shown:
                return earlier
        return found

    def _rate(self, state: State, numbers: Sequence[int]) -> None:
        assert self.weigher is not None, "there is something to compute"
        queue = state.queue
        jobs = [
            job
            for number in numbers
            if (job := state.jobs.get(number)) is not None
            and job.state <= _SUSPENDED
            and job.priority
            and not job.priority_set
        ]
        if not jobs:
            return
        if len(jobs) == 1:
            values: dict[int, int] = {jobs[0].id: self.weigher.priority(jobs[0])}
        else:
            values = dict(zip((job.id for job in jobs), self.weigher.priorities(jobs).tolist(), strict=True))
        if "INCR_ONLY" in self.weigher.settings.flags:
            known = queue.priorities
            values = {number: max(value, known.get(number, 0)) for number, value in values.items()}
        queue.reprioritise(values)

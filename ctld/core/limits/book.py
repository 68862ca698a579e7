"""Which limits hold for a job: the precedence of partition QOS, job QOS and associations (scheduling.md 10.1).

A `Book` belongs to one feed of associations and one configuration; whatever it has worked out it keeps. Jobs of one
user, account, QOS and partition share a `Ruleset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from ctld.core.accounts import NORMAL, UNSET, Accounts, Association, Qos, Tres
from ctld.core.cluster import NodeSpec, PartitionSpec, Settings
from ctld.core.limits.kinds import AFTER, AT_SUBMIT, BEFORE, PAST_USE, RUN_MINUTES, Kind, how, reason
from ctld.core.model import UNLIMITED, Job
from muster.states import JobState, Reason

Key = tuple[str | int, ...]
"""Whose use is counted and what of it: ("association", 7, "cpu"), ("qos", "high", "jobs"), ("qos user", "high", "ada",
"cpu"), ("qos account", "high", "physics", "cpu minutes")."""
JOBS = "jobs"
SUBMITTED = "submitted"
MINUTES = " minutes"
"""Behind the name of a TRES: what its running use will still add up to."""
NODE = "node"

_ORDER = {name: place for place, name in enumerate(("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem"))}
_MAX_RULESETS = 65536
"""Most rulesets that are kept; at the bound all are dropped and made anew as they are needed."""


class Rule(NamedTuple):
    """A limit that holds for a job."""

    kind: Kind
    tres: str
    """Empty where jobs or time are limited."""
    limit: int
    """MiB, minutes, or a number."""
    key: Key
    """Of the use that counts; empty for a limit on the job itself."""
    reason: Reason
    of: str
    """Whose limit it is: `account physics`, `QOS high`."""
    how: int
    """It is looked at: see `kinds.how`."""
    root: bool = False
    """Of the root association."""

    @property
    def is_past_use(self) -> bool:
        """Whether it looks at what was used before now."""
        return self.kind in PAST_USE


class Ruleset:
    """All limits of the jobs of one user, account, QOS and partition."""

    __slots__ = (
        "after",
        "association",
        "at_submit",
        "before",
        "by_node",
        "counted",
        "deny",
        "flags",
        "partition",
        "qos",
        "spent",
        "threshold",
        "usage_factor",
        "wall_minutes",
    )

    def __init__(
        self, association: Association | None, qos: tuple[Qos, ...], partition: str, *, enforced: bool
    ) -> None:
        self.association = association
        self.qos = qos
        """Of the partition and of the job, the one that goes first in front; unknown ones are not in it."""
        self.partition = partition
        self.flags = frozenset(flag.lower() for one in qos for flag in one.flags) if enforced else frozenset()
        self.deny = not qos or "denyonlimit" in self.flags
        """A request that alone exceeds a limit is refused at submit, not left waiting."""
        self.usage_factor = 1.0
        """Counts in what is reserved of minutes, with UsageFactorSafe."""
        self.by_node = False
        """Some limit is on what a job has on one node."""
        self.threshold = -1.0
        """Least fairshare factor with which a job starts; negative: none."""
        self.wall_minutes = UNSET
        """Longest time limit, and that of jobs which ask for none where no shorter one is set."""
        self.at_submit: tuple[Rule, ...] = ()
        self.before: tuple[Rule, ...] = ()
        """Looked at before nodes are chosen, the first in the way gives the reason ..."""
        self.after: tuple[Rule, ...] = ()
        """... and when they are known."""
        self.spent: tuple[Rule, ...] = ()
        """Looked at while the job runs. What the root association has used ends nobody."""
        self.counted: tuple[tuple[Key, str], ...] = ()
        """(key, what of the job counts there) for everything that a limit of anybody looks at."""

    def lifted(self, partition: PartitionSpec) -> PartitionSpec:
        """Give a partition without those of its own limits that the QOS sets aside."""
        changes: dict[str, int] = {}
        if "partitiontimelimit" in self.flags and partition.max_minutes != UNLIMITED:
            changes["max_minutes"] = UNLIMITED
        if "partitionmaxnodes" in self.flags and partition.max_nodes != UNLIMITED:
            changes["max_nodes"] = UNLIMITED
        if "partitionminnodes" in self.flags and partition.min_nodes:
            changes["min_nodes"] = 0
        return replace(partition, **changes) if changes else partition


class Book:
    """The limits in force."""

    def __init__(
        self,
        settings: Settings | None = None,
        accounts: Accounts | None = None,
        partitions: Mapping[str, PartitionSpec] | None = None,
        nodes: Iterable[NodeSpec] = (),
    ) -> None:
        settings = settings or Settings()
        self.accounts = accounts or Accounts()
        self.enforced = "limits" in settings.accounting_enforce
        """Whether limits hold at all."""
        self.safe = "safe" in settings.accounting_enforce
        """A job starts only if it can end within the minutes that are left."""
        self._partitions = dict(partitions or {})
        self._nodes = tuple(nodes)
        self._rulesets: dict[tuple[str, str, str, str], Ruleset] = {}
        self._totals: dict[str, Tres] = {}

    def of(self, job: Job) -> Ruleset:
        """Give the limits of a job where it runs, or in the first of its partitions."""
        runs = job.alloc is not None and job.state != JobState.PENDING
        partition = job.alloc.partition if runs and job.alloc is not None else job.spec.partitions[0]
        return self.ruleset(job.spec.user, job.spec.account, job.spec.qos, partition)

    def ruleset(self, user: str, account: str, qos: str, partition: str) -> Ruleset:
        """Give the limits of jobs of a user in an account with a QOS in a partition."""
        # Of several QOS that a job may use the first one counts.
        qos = qos.partition(",")[0]
        key = (user, account, qos, partition)
        found = self._rulesets.get(key)
        if found is None:
            if len(self._rulesets) >= _MAX_RULESETS:
                self._rulesets.clear()
            found = self._rulesets[key] = self._made(user, account, qos, partition)
        return found

    # ---- making one --------------------------------------------------------------------------------------------

    def _made(self, user: str, account: str, qos: str, partition: str) -> Ruleset:
        accounts = self.accounts
        association = accounts.find(user, account, partition)
        own = self._partitions.get(partition)
        of_partition = accounts.qos.get(own.qos) if own is not None else None
        of_job = accounts.qos.get(qos or NORMAL)
        found = Ruleset(association, _in_order(of_partition, of_job), partition, enforced=self.enforced)
        if not self.enforced:
            return found
        name = association.account if association is not None else account
        lines = [self._of_qos(one, user, name, one is of_partition, partition) for one in found.qos]
        factor = next((one.limit_factor for one in found.qos if one.limit_factor >= 0), 1.0)
        if association is not None:
            lines += [self._of_association(one, one is association, factor) for one in accounts.path(association.id)]
        rules = _first_defined(lines, len(found.qos))
        found.at_submit = _sorted(rules, len(found.qos), AT_SUBMIT)
        found.before = _sorted(rules, len(found.qos), BEFORE)
        found.after = _sorted(rules, len(found.qos), AFTER)
        found.by_node = any(rule.kind is Kind.NODE_TRES for rule in found.after)
        found.threshold = next(
            (
                one.usage_threshold
                for one in found.qos
                if one.usage_threshold >= 0 and _has(one, "enforceusagethreshold")
            ),
            -1.0,
        )
        found.spent = tuple(
            rule
            for rule in (*found.before, *found.after)
            if rule.kind is Kind.JOB_TRES_MINUTES or (rule.is_past_use and not rule.root)
        )
        found.wall_minutes = next((rule.limit for rule in found.before if rule.kind is Kind.JOB_WALL), UNSET)
        found.counted = tuple(dict.fromkeys(self._counted(association, found.qos, user, name)))
        if self.safe and "usagefactorsafe" in found.flags and of_job is not None:
            found.usage_factor = of_job.usage_factor
        return found

    def _of_qos(self, qos: Qos, user: str, account: str, of_partition: bool, partition: str) -> list[Rule]:
        whole: Key = ("qos", qos.name)
        limits = qos.limits
        said = f"QOS {qos.name}"
        rules: list[Rule] = []
        size = self._size(partition if of_partition else "") if _has(qos, "relative") else None

        def tres(kind: Kind, amounts: Tres, scope: Key, suffix: str = "") -> None:
            for name in _by_order(amounts):
                amount = amounts[name]
                if size is not None and kind not in _MINUTE_KINDS:
                    amount = size.get(name, 0) * amount // 100
                key = (*scope, name + suffix) if scope else ()
                rules.append(Rule(kind, name, amount, key, reason(kind, True, name), said, how(kind, name)))

        def number(kind: Kind, limit: int, key: Key) -> None:
            if limit != UNSET:
                rules.append(Rule(kind, "", limit, key, reason(kind, True), said, how(kind, "")))

        tres(Kind.GRP_TRES, limits.grp_tres, whole)
        tres(Kind.GRP_TRES_MINUTES, limits.grp_tres_minutes, whole, MINUTES)
        tres(Kind.GRP_TRES_RUN_MINUTES, limits.grp_tres_run_minutes, whole, MINUTES)
        number(Kind.GRP_JOBS, limits.grp_jobs, (*whole, JOBS))
        number(Kind.GRP_SUBMIT_JOBS, limits.grp_submit_jobs, (*whole, SUBMITTED))
        number(Kind.GRP_WALL, limits.grp_wall_minutes, whole)
        tres(Kind.JOB_TRES, limits.max_tres_per_job, ())
        tres(Kind.NODE_TRES, limits.max_tres_per_node, ())
        tres(Kind.JOB_TRES_MINUTES, limits.max_tres_minutes_per_job, ())
        number(Kind.JOB_WALL, limits.max_wall_minutes_per_job, ())
        tres(Kind.MIN_TRES, qos.min_tres_per_job, ())
        for share, scope, kinds in (
            (qos.per_user, ("qos user", qos.name, user), _USER_KINDS),
            (qos.per_account, ("qos account", qos.name, account), _ACCOUNT_KINDS),
        ):
            tres(kinds[0], share.tres, scope)
            tres(kinds[1], share.tres_run_minutes, scope, MINUTES)
            number(kinds[2], share.jobs, (*scope, JOBS))
            number(kinds[3], share.submit_jobs, (*scope, SUBMITTED))
        return rules

    def _of_association(self, one: Association, own: bool, factor: float) -> list[Rule]:
        """Give the limits of one level; maxima are those of the job's own association, which has inherited them."""
        root = not one.parent_id
        scope: Key = ("association", one.id)
        said = name_of(one)
        rules: list[Rule] = []

        def tres(kind: Kind, amounts: Tres, suffix: str = "") -> None:
            for name in _by_order(amounts):
                amount = int(amounts[name] * factor) if kind in (Kind.GRP_TRES, Kind.JOB_TRES) else amounts[name]
                key = (*scope, name + suffix) if kind < Kind.GRP_JOBS else ()
                rules.append(Rule(kind, name, amount, key, reason(kind, False, name), said, how(kind, name), root))

        def number(kind: Kind, limit: int, key: Key) -> None:
            if limit != UNSET:
                rules.append(Rule(kind, "", limit, key, reason(kind, False), said, how(kind, ""), root))

        limits = one.limits
        tres(Kind.GRP_TRES, limits.grp_tres)
        tres(Kind.GRP_TRES_MINUTES, limits.grp_tres_minutes, MINUTES)
        tres(Kind.GRP_TRES_RUN_MINUTES, limits.grp_tres_run_minutes, MINUTES)
        number(Kind.GRP_JOBS, limits.grp_jobs, (*scope, JOBS))
        number(Kind.GRP_SUBMIT_JOBS, limits.grp_submit_jobs, (*scope, SUBMITTED))
        number(Kind.GRP_WALL, limits.grp_wall_minutes, scope)
        if own:
            limits = self.accounts.limits(one.id)
            number(Kind.MAX_JOBS, limits.max_jobs, (*scope, JOBS))
            number(Kind.MAX_SUBMIT_JOBS, limits.max_submit_jobs, (*scope, SUBMITTED))
            tres(Kind.JOB_TRES, limits.max_tres_per_job)
            tres(Kind.NODE_TRES, limits.max_tres_per_node)
            tres(Kind.JOB_TRES_MINUTES, limits.max_tres_minutes_per_job)
            number(Kind.JOB_WALL, limits.max_wall_minutes_per_job, ())
        return rules

    def _size(self, partition: str) -> Tres:
        """Count what the cluster or a partition has, for limits in per cent of it."""
        found = self._totals.get(partition)
        if found is None:
            specs = self._nodes
            if partition:
                specs = tuple(self._nodes[index] for index in self._partitions[partition].nodes)
            found = self._totals[partition] = _total(specs)
        return found

    # ---- what has to be counted --------------------------------------------------------------------------------

    def _counted(
        self, association: Association | None, qos: tuple[Qos, ...], user: str, account: str
    ) -> Iterator[tuple[Key, str]]:
        """Give what of a job has to be counted where: also where it is under no limit itself, others may be."""
        for one in qos:
            yield from _limited(
                ("qos", one.name),
                one.limits.grp_tres,
                one.limits.grp_tres_run_minutes,
                one.limits.grp_jobs,
                one.limits.grp_submit_jobs,
            )
            yield from self._reserved(("qos", one.name), one.limits.grp_tres_minutes)
            for scope, share in (
                (("qos user", one.name, user), one.per_user),
                (("qos account", one.name, account), one.per_account),
            ):
                yield from _limited(scope, share.tres, share.tres_run_minutes, share.jobs, share.submit_jobs)
        for level in self.accounts.path(association.id) if association is not None else ():
            limits = level.limits if level is not association else self.accounts.limits(level.id)
            jobs = max(limits.grp_jobs, limits.max_jobs if level is association else UNSET)
            submitted = max(limits.grp_submit_jobs, limits.max_submit_jobs if level is association else UNSET)
            yield from _limited(
                ("association", level.id), limits.grp_tres, limits.grp_tres_run_minutes, jobs, submitted
            )
            yield from self._reserved(("association", level.id), limits.grp_tres_minutes)

    def _reserved(self, scope: Key, amounts: Tres) -> Iterator[tuple[Key, str]]:
        if self.safe:
            for name in amounts:
                yield (*scope, name + MINUTES), name + MINUTES


_MINUTE_KINDS = RUN_MINUTES | {Kind.GRP_TRES_MINUTES, Kind.JOB_TRES_MINUTES}
_USER_KINDS = (Kind.USER_TRES, Kind.USER_TRES_RUN_MINUTES, Kind.USER_JOBS, Kind.USER_SUBMIT_JOBS)
_ACCOUNT_KINDS = (
    Kind.ACCOUNT_TRES,
    Kind.ACCOUNT_TRES_RUN_MINUTES,
    Kind.ACCOUNT_JOBS,
    Kind.ACCOUNT_SUBMIT_JOBS,
)
_SHADOWED = {
    Kind.MAX_JOBS: (Kind.USER_JOBS, Kind.ACCOUNT_JOBS),
    Kind.MAX_SUBMIT_JOBS: (Kind.USER_SUBMIT_JOBS, Kind.ACCOUNT_SUBMIT_JOBS),
}
"""Limits of associations that count the same as one of a QOS under another name."""


def name_of(one: Association) -> str:
    """Name an association as people do: `user ada in account physics`."""
    if not one.user:
        return f"account {one.account}"
    where = f", partition {one.partition}" if one.partition else ""
    return f"user {one.user} in account {one.account}{where}"


def _in_order(of_partition: Qos | None, of_job: Qos | None) -> tuple[Qos, ...]:
    if of_partition is None or of_job is None or of_partition is of_job:
        one = of_partition or of_job
        return (one,) if one is not None else ()
    return (of_job, of_partition) if _has(of_job, "overpartqos") else (of_partition, of_job)


def _has(qos: Qos, flag: str) -> bool:
    return any(one.lower() == flag for one in qos.flags)


def _first_defined(lines: list[list[Rule]], of_qos: int) -> list[tuple[int, Rule]]:
    """Keep of each limit the first one, with the place of its source; group limits of associations hold at all
    levels."""
    defined: set[tuple[Kind, str]] = set()
    kept: list[tuple[int, Rule]] = []
    for place, line in enumerate(lines):
        for rule in line:
            shadows = _SHADOWED.get(rule.kind, (rule.kind,))
            if not any((kind, rule.tres) in defined for kind in shadows):
                kept.append((place, rule))
        if place < of_qos:
            defined.update((rule.kind, rule.tres) for rule in line)
    return kept


def _sorted(
    rules: list[tuple[int, Rule]], of_qos: int, order: tuple[dict[Kind, int], dict[Kind, int]]
) -> tuple[Rule, ...]:
    """Put the rules that one look has into their order: source by source, kind by kind, TRES by TRES (they are)."""
    chosen = [
        (place, order[place < of_qos][rule.kind], number, rule)
        for number, (place, rule) in enumerate(rules)
        if rule.kind in order[place < of_qos]
    ]
    return tuple(item[3] for item in sorted(chosen))


def _limited(scope: Key, tres: Tres, run_minutes: Tres, jobs: int, submitted: int) -> Iterator[tuple[Key, str]]:
    for name in tres:
        yield (*scope, name), name
    for name in run_minutes:
        yield (*scope, name + MINUTES), name + MINUTES
    if jobs != UNSET:
        yield (*scope, JOBS), JOBS
    if submitted != UNSET:
        yield (*scope, SUBMITTED), SUBMITTED


def _by_order(amounts: Tres) -> list[str]:
    return sorted(
        (name for name, amount in amounts.items() if amount >= 0), key=lambda name: (_ORDER.get(name, 99), name)
    )


def _total(specs: Iterable[NodeSpec]) -> Tres:
    total: Tres = {}
    for spec in specs:
        amounts = {"cpu": spec.cpus, "mem": spec.memory_mib, NODE: 1, "billing": spec.cpus}
        for kind in spec.gpus:
            amounts["gres/gpu"] = amounts.get("gres/gpu", 0) + 1
            if kind:
                amounts[f"gres/gpu:{kind}"] = amounts.get(f"gres/gpu:{kind}", 0) + 1
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total

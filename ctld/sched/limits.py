"""Limits for the scheduler: what keeps a job out whatever runs beside it, and what it takes out of which pool.

The rules and their precedence are `ctld.core.limits`; here they take the form that a calendar needs. Jobs of one
class of the queue (`ctld.core.queue.ClassKey`) share all of it.

What a plain pool cannot say is `Gate`'s to check when a job is to start: a limit of nodes (a node that the group uses
already counts once), minutes that are still reserved (they shrink while a job runs), and past use (which decays).
"""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core.cluster import PartitionSpec
from ctld.core.limits.asked import least
from ctld.core.limits.book import JOBS, MINUTES, NODE, SUBMITTED, Key, Rule, Ruleset
from ctld.core.limits.check import Asked, static
from ctld.core.limits.gate import wait_of
from ctld.core.limits.holding import holding
from ctld.core.limits.kinds import RUN_MINUTES, RUNNING_JOBS, RUNNING_TRES
from ctld.core.model import Job, JobSpec
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.sched.fairshare import FairShare, fairshare
from ctld.sched.pools import Claim
from ctld.sched.releases import end_of
from muster.ids import UnixTime
from muster.states import Reason

NO_LIMIT = 1 << 62
"""Capacity of a pool for a job that others share with but that is under no limit there itself."""


def rules_of(state: State, job: Job, partition: PartitionSpec) -> Ruleset:
    """Give the limits of a job in a partition."""
    return state.limits.ruleset(job.spec.user, job.spec.account, job.spec.qos, partition.name)


def bar(
    state: State, job: Job, partition: PartitionSpec, limit_seconds: int, asked: Asked | None = None
) -> Wait | None:
    """Say why a job can never start in a partition as things are configured; None: it can.

    What changes with the load or with time is not looked at: the answer holds until the configuration or the
    associations change.

    Args:
        partition: as `lifted` gives it.
        limit_seconds: of a run there.
        asked: what the job asks for there, where that is known already.
    """
    spec = job.spec
    rules = rules_of(state, job, partition)
    enforce = state.settings.accounting_enforce
    if "associations" in enforce and state.accounts and rules.association is None:
        return Wait(Reason.INVALID_ACCOUNT)
    if "qos" in enforce and state.accounts.qos and not _may_use(state, rules, spec):
        return Wait(Reason.INVALID_QOS)
    if partition.allow_accounts or partition.deny_accounts:
        names = state.accounts.with_above(spec.account)
        if not _is_let_in(names, partition.allow_accounts, partition.deny_accounts):
            return Wait(Reason.ACCOUNT_NOT_ALLOWED)
    if not _is_let_in((spec.qos,), partition.allow_qos, partition.deny_qos):
        return Wait(Reason.QOS_NOT_ALLOWED)
    if not state.limits.enforced:
        return None
    lasting = [rule for rule in (*rules.before, *rules.after) if state.limits.safe or not rule.is_past_use]
    asked = asked or least(state, job, partition.name, limit_seconds)
    return wait_of(static(lasting, asked, rules.usage_factor))


def _may_use(state: State, rules: Ruleset, spec: JobSpec) -> bool:
    names = set(spec.qos.split(","))
    if not names <= state.accounts.qos.keys():
        return False
    if rules.association is None or "qos" in spec.exempt:
        return True
    return names <= set(state.accounts.allowed_qos(rules.association.id))


def _is_let_in(names: Sequence[str], allowed: Sequence[str], denied: Sequence[str]) -> bool:
    """Tell whether one of these names is let in, or none of them is kept out."""
    return any(name in allowed for name in names) if allowed else not any(name in denied for name in names)


class Thresholds:
    """Which jobs wait because their association has used more than its QOS tolerates: its fairshare factor is under
    UsageThreshold, and the QOS says EnforceUsageThreshold. The factors of one time are computed when first asked."""

    def __init__(self, state: State, at: UnixTime) -> None:
        self._state = state
        self._at = at
        self._shares: dict[int, FairShare] | None = None

    def bar(self, rules: Ruleset) -> Wait | None:
        """Say that a job with these limits has to wait; None: it has not."""
        factor = self.factor(rules)
        if factor is None or factor >= rules.threshold:
            return None
        return Wait(Reason.QOS_USAGE_THRESHOLD)

    def factor(self, rules: Ruleset) -> float | None:
        """Give the fairshare factor that a threshold is compared with; None: there is no threshold, or no factor."""
        if rules.association is None or rules.threshold < 0:
            return None
        if self._shares is None:
            state, priority = self._state, self._state.settings.priority
            usage = {number: state.usage.raw(number, self._at) for number in state.accounts.associations}
            self._shares = fairshare(state.accounts, usage, priority.flags, priority.dampening)
        share = self._shares.get(rules.association.id)
        return None if share is None else share.factor


def lifted(state: State, job: Job, partition: PartitionSpec) -> PartitionSpec:
    """Give a partition without those of its own limits that the job's QOS sets aside."""
    return rules_of(state, job, partition).lifted(partition)


def claims(state: State, job: Job, partition: PartitionSpec, limit_seconds: int) -> tuple[Claim, ...]:
    """Give what a job takes at least out of the pools of its groups, those that limit it first and in order.

    Minutes are claimed for the whole run: planned starts under such a limit are never too early.
    """
    if not state.limits.enforced:
        return ()
    rules = rules_of(state, job, partition)
    return claims_for(rules, least(state, job, partition.name, limit_seconds))


def claims_of_running(state: State, job: Job, at: UnixTime) -> tuple[Claim, ...]:
    """Give what a running job holds until its end; nothing limits it any more."""
    found = holding(state, job, 1) if state.limits.enforced else None
    if found is None or not found.amounts:
        return ()
    taken: list[Claim] = []
    for key, what in found.rules.counted:
        if what == JOBS:
            amount = 1
        elif what in (NODE, SUBMITTED):
            continue
        elif what.endswith(MINUTES):
            left = max(0, found.end - at)
            amount = -(-found.amounts.get(what.removesuffix(MINUTES), 0) * left // 60)
        else:
            amount = found.amounts.get(what, 0)
        if amount:
            taken.append(Claim(key, NO_LIMIT, amount, Reason.ACCOUNTING_POLICY))
    return tuple(taken)


def end_of_running(job: Job, at: UnixTime) -> int:
    """Give the time to which a running job holds its claims; one that is past its limit holds them a moment yet."""
    return max(end_of(job.started_at, job.limit_seconds), at + 1)


def claims_for(rules: Ruleset, asked: Asked) -> tuple[Claim, ...]:
    """Give what a job that asks for so much takes out of the pools of its groups; see `claims`."""
    made: dict[Key, Claim] = {}
    for rule in (*rules.before, *rules.after):
        amount = _amount(rule, asked, rules.usage_factor)
        if amount:
            before = made.get(rule.key)
            if before is None or rule.limit < before.capacity:
                made[rule.key] = Claim(rule.key, rule.limit, amount, rule.reason)
    for key, what in rules.counted:
        if key in made or what in (NODE, SUBMITTED):
            continue
        amount = 1 if what == JOBS else _counted(what, asked)
        if amount:
            made[key] = Claim(key, NO_LIMIT, amount, Reason.ACCOUNTING_POLICY)
    return tuple(made.values())


def _amount(rule: Rule, asked: Asked, factor: float) -> int:
    if rule.kind in RUNNING_JOBS:
        return 1
    if rule.kind in RUNNING_TRES and rule.tres != NODE:
        return asked.amounts.get(rule.tres, 0)
    if rule.kind in RUN_MINUTES:
        return int(asked.amounts.get(rule.tres, 0) * asked.whole_minutes * factor)
    return 0


def _counted(what: str, asked: Asked) -> int:
    if what.endswith(MINUTES):
        return asked.amounts.get(what.removesuffix(MINUTES), 0) * asked.whole_minutes
    return asked.amounts.get(what, 0)

"""May this job start now? Asked by the scheduler while it plans, and again by the one who carries the plan out."""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core.limits.asked import given
from ctld.core.limits.book import Key, Rule, Ruleset
from ctld.core.limits.check import Asked, Check, NothingUsed, PastUse
from ctld.core.limits.holding import bounded, started
from ctld.core.limits.load import Load
from ctld.core.limits.past import Meters
from ctld.core.model import Job, NodeShare
from ctld.core.plan import LimitNumbers, Wait
from ctld.core.state import State
from muster.ids import UnixTime

NOTHING_USED = NothingUsed()


class Gate:
    """The limits at one time, with the starts of one plan counted in."""

    def __init__(self, state: State, at: UnixTime, past: PastUse | None = None) -> None:
        self.open = not state.limits.enforced
        """Nothing is limited."""
        self._state = state
        self._at = at
        self._extra = Load(state.load)
        self._check = Check(self._extra, past or Meters(state), at, safe=state.limits.safe)
        self._starts = 0

    def before(self, job: Job, partition: str, asked: Asked) -> Wait | None:
        """Say what keeps a job from starting, whatever nodes are chosen for it; None: nothing.

        Args:
            asked: its `least`.
        """
        return wait_of(self.rule_before(job, partition, asked))

    def rule_before(self, job: Job, partition: str, asked: Asked) -> tuple[Rule, LimitNumbers] | None:
        """Give the first limit that keeps a job from starting, with its numbers; see `before`."""
        if self.open:
            return None
        rules = self._rules(job, partition)
        return self._check.first((*rules.before, *rules.after), asked, rules.usage_factor)

    def count(self, key: Key) -> int:
        """Give how much of a counter is in use, the starts of the plan counted in."""
        return self._extra.count(key)

    def after(self, job: Job, partition: str, shares: Sequence[NodeShare], limit_seconds: int) -> Wait | None:
        """Say what keeps a job from starting on these shares; None: nothing."""
        if self.open:
            return None
        rules = self._rules(job, partition)
        asked = given(self._state, job, partition, shares, limit_seconds, by_node=rules.by_node)
        return wait_of(self._check.first((*rules.before, *rules.after), asked, rules.usage_factor))

    def took(self, job: Job, partition: str, shares: tuple[NodeShare, ...], limit_seconds: int) -> None:
        """Count a start in."""
        if not self.open:
            self._starts += 1
            end = self._at + bounded(limit_seconds)
            self._extra.put(None, started(self._state, job, partition, shares, end=end, number=self._starts))

    def _rules(self, job: Job, partition: str) -> Ruleset:
        spec = job.spec
        return self._state.limits.ruleset(spec.user, spec.account, spec.qos, partition)


def wait_of(found: tuple[Rule, LimitNumbers] | None) -> Wait | None:
    """Give what is shown of a limit in the way."""
    return Wait(found[0].reason, limit=found[1]) if found is not None else None

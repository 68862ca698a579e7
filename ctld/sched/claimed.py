"""What the jobs of a calendar take over time beside nodes: licences, members of their arrays, and what limits count.

`Pools` has it as step functions. Two things no pool can say: a limit of nodes (a node that a group uses already counts
once) is `NodeUse`, and of what was used in the past only what is known now is looked at: with `safe` the minutes that
are left are a stock that every planned run takes from; decay, which fills it again, is not foreseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ctld.core import ranges
from ctld.core.limits.asked import given
from ctld.core.limits.book import MINUTES, NODE, Key, Rule, Ruleset
from ctld.core.limits.check import Asked, Check, static
from ctld.core.limits.gate import wait_of
from ctld.core.limits.kinds import BY_NODES, Kind
from ctld.core.limits.past import Meters
from ctld.core.model import Job, NodeShare
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.sched import limits
from ctld.sched.demand import Demand
from ctld.sched.licenses import licence_claims
from ctld.sched.limits import NO_LIMIT, Thresholds
from ctld.sched.memory import Entry
from ctld.sched.pools import Claim, Pools
from ctld.sched.releases import FAR, Row, held_until
from ctld.sched.reserved import pool_holds
from ctld.sched.select import Pick
from muster.ids import UnixTime
from muster.states import Reason

Claims = tuple[Claim, ...]
_Has = tuple[tuple[int, int, int], ...]
"""Of each node of a run the kind, tasks and GPUs."""
_Shape = tuple[Demand, int, bool, bool, _Has]
"""What a run has, as far as limits look at it: demand, time limit, whether that is exempt, whether single nodes matter,
and its nodes."""
ARRAY = "array"
"""In front of the key of an array's own pool."""
_SPENT = "spent"
"""In front of a rule's key: the pool of what may be used in all."""


class Claimed:
    """The pools of one calendar, and what jobs claim of them."""

    def __init__(self, state: State, at: UnixTime, horizon: int) -> None:
        self.pools = Pools()
        self.nodes = NodeUse()
        self.enforced = state.limits.enforced
        self._state = state
        self._at = at
        self._thresholds = Thresholds(state, at)
        self._past = Meters(state)
        self._least: dict[int, Claims] = {}
        """By identity of the entry (of its rules, where only they matter), as the next ones."""
        self._bars: dict[int, Wait | None] = {}
        self._licences: dict[str, tuple[Claims, ...]] = {"": ((),)}
        """By the text of what is asked for."""
        self._node_keys: dict[Ruleset, tuple[Key, ...]] = {}
        self._asked: dict[_Shape, Asked] = {}
        self._had: dict[tuple[Demand, bool, _Has], Asked] = {}
        """The same whatever the time limit."""
        self._given: dict[tuple[int, _Shape], tuple[Claims, Wait | None]] = {}
        self._stock = state.limits.enforced and state.limits.safe
        """Some claims are for good."""
        limited = {job.array_job_id for job in (state.jobs[job_id] for job_id in state.queue) if job.array_limit}
        self._hold_running(limited)
        for key, amount, start, end, _ in pool_holds(state, at, horizon):
            self.pools.take((Claim(key, NO_LIMIT, amount, Reason.LICENSES),), max(start, at), end)

    def _hold_running(self, limited: set[int]) -> None:
        """Count the running jobs in, those that hold the same together. `limited`: arrays with a limit of their own."""
        state, at, jobs = self._state, self._at, self._state.jobs
        groups: dict[tuple[object, ...], tuple[list[Claim], list[int]]] = {}
        timed: dict[Ruleset | None, bool] = {None: False}  # Limits of which some depend on the end of a run.
        for job_id in state.running:
            job = jobs[job_id]
            rules = state.limits.of(job) if self.enforced else None
            if rules not in timed:
                timed[rules] = any(what.endswith(MINUTES) for _, what in rules.counted) if rules is not None else False
            alike = None if timed[rules] or job.array_job_id in limited else self._alike(job, rules)
            group = groups.get(alike) if alike is not None else None
            if group is None:
                group = groups[alike or (job_id,)] = self._held(job, limited), []
            if not group[0] and rules is None:
                continue
            end = max(held_until(state, job), at + 1)
            group[1].append(end)
            keys = self._keys(rules)
            if keys and job.alloc is not None:
                self.nodes.occupy(keys, [share.node for share in job.alloc.shares], at, end)
        held: dict[tuple[object, ...], tuple[list[int], list[int]]] = {}
        for claims, ends in groups.values():
            for claim in claims:
                times, amounts = held.setdefault(claim.key, ([], []))
                times += ends
                amounts += [claim.amount] * len(ends)
        for key, (times, amounts) in held.items():
            self.pools.fill(key, at, times, amounts)

    def _alike(self, job: Job, rules: Ruleset | None) -> tuple[object, ...] | None:
        """Give what tells what a running job holds; None: it is to be looked at by itself."""
        alloc = job.alloc
        if alloc is None or len(alloc.shares) != 1 or alloc.shares[0].gres:
            return None
        share = alloc.shares[0]
        types = self._state.nodes[share.node].spec.gpus if share.gpus else ()
        return (
            rules, job.state, alloc.partition, alloc.licenses, share.cpus, share.memory_mib, share.gpus, types,
        )  # fmt: skip

    def _held(self, job: Job, limited: set[int]) -> list[Claim]:
        """Give what a running job holds."""
        taken: list[Claim] = []
        if self.enforced:
            taken += limits.claims_of_running(self._state, job, self._at)
        if job.alloc is not None and job.alloc.licenses:
            taken += licence_claims(self._state.settings, job)[0]
        if job.array_job_id in limited:
            taken.append(_member(job, NO_LIMIT))
        return taken

    def bar(self, entry: Entry) -> Wait | None:
        """Say which limit keeps the jobs of an entry from starting at any time that can be foreseen; None: none."""
        if not self.enforced or entry.asked is None or entry.rules is None:
            return None
        known = id(entry)
        if known not in self._bars:
            rules = entry.rules
            past = [rule for rule in (*rules.before, *rules.after) if rule.is_past_use]
            check = Check(self._state.load, self._past, self._at, safe=self._state.limits.safe)
            wait = self._thresholds.bar(rules)
            self._bars[known] = wait or wait_of(check.first(past, entry.asked, rules.usage_factor))
        return self._bars[known]

    def least(self, entry: Entry, job: Job) -> Claims:
        """Give what a job takes at least of what limits count (licences not among it)."""
        found = self._claims_of(entry)
        return (*found, _member(job, job.array_limit)) if job.array_limit else found

    def _claims_of(self, entry: Entry) -> Claims:
        found = self._least.get(id(entry))
        if found is None:
            found = self._least[id(entry)] = self._claims(entry, entry.asked) if entry.asked is not None else ()
        return found

    def licences(self, job: Job) -> tuple[Claims, ...]:
        """Give the alternatives of licences, each to be taken as a whole."""
        wanted = job.spec.request.licenses
        found = self._licences.get(wanted)
        if found is None:
            found = self._licences[wanted] = licence_claims(self._state.settings, job)
        return found

    def given(
        self, entry: Entry, job: Job, picks: Sequence[Pick], rows: Sequence[Row], demand: Demand
    ) -> Claims | Wait:
        """Give what a job takes with these nodes (licences not among it), or the limit that it breaks there alone."""
        if not self.enforced or entry.asked is None or entry.rules is None:
            return self.least(entry, job)
        kinds = demand.fleet.kind
        has = tuple([(kinds[node], tasks, gpus) for node, tasks, gpus in picks])
        if len(has) > 1:
            has = tuple(sorted(has))
        shape = demand, entry.asked_seconds, entry.asked.any_time, entry.rules.by_node, has
        key = id(entry.rules), shape
        found = self._given.get(key)
        if found is None:
            asked = self._asked.get(shape)
            if asked is None:
                had = self._had.get((demand, entry.rules.by_node, has))
                if had is None:
                    shares = [_share(demand, row, pick[1]) for row, pick in zip(rows, picks, strict=True)]
                    had = self._had[demand, entry.rules.by_node, has] = self._with_shares(entry, job, shares)
                asked = replace(had, minutes=entry.asked.minutes, any_time=entry.asked.any_time)
                self._asked[shape] = asked
            rules = entry.rules
            if asked.amounts == entry.asked.amounts and not rules.by_node:
                found = self._claims_of(entry), None  # As it was looked at before the nodes were known.
            else:
                lasting = [rule for rule in rules.after if not rule.is_past_use and rule.how != BY_NODES]
                wait = wait_of(static(lasting, asked, rules.usage_factor))
                found = self._claims(entry, asked), wait
            self._given[key] = found
        claims, wait = found
        if wait is not None:
            return wait
        return (*claims, _member(job, job.array_limit)) if job.array_limit else claims

    def _with_shares(self, entry: Entry, job: Job, shares: list[NodeShare]) -> Asked:
        """Give what a job has with these shares."""
        least = entry.asked
        assert least is not None and entry.rules is not None, "limits hold for the entry"
        asked = given(self._state, job, entry.partition.name, shares, entry.asked_seconds, by_node=entry.rules.by_node)
        # Other generic resources are in no share yet.
        more = {name: max(amount, asked.amounts.get(name, 0)) for name, amount in least.amounts.items()}
        return replace(asked, amounts={**asked.amounts, **more})

    def _claims(self, entry: Entry, asked: Asked) -> Claims:
        assert entry.rules is not None, "limits hold for the entry"
        made = limits.claims_for(entry.rules, asked)
        return made + self._spends(entry, asked) if self._stock else made

    def node_rules(self, entry: Entry) -> list[Rule]:
        """Give the limits of nodes in use that hold for an entry."""
        if entry.rules is None or not self.enforced:
            return []
        return [rule for rule in entry.rules.after if rule.how == BY_NODES]

    def take(self, entry: Entry, claims: Claims, nodes: Sequence[int], start: int, end: int) -> None:
        """Count a planned run in."""
        self.pools.take(self._lasting(claims), start, end)
        if self._stock:
            self.pools.take(self._consumed(claims), start, FAR)
        keys = self._keys(entry.rules)
        if keys:
            self.nodes.occupy(keys, nodes, start, end)

    def give(self, entry: Entry, claims: Claims, nodes: Sequence[int], start: int, end: int) -> None:
        """Undo `take`."""
        self.pools.give(self._lasting(claims), start, end)
        self.pools.give(self._consumed(claims), start, FAR)
        self.nodes.leave(self._keys(entry.rules), nodes, start, end)

    def _keys(self, rules: Ruleset | None) -> tuple[Key, ...]:
        """Give whose use of nodes jobs under some limits add to."""
        if not self.enforced or rules is None:
            return ()
        known = self._node_keys.get(rules)
        if known is None:
            known = self._node_keys[rules] = tuple(key for key, what in rules.counted if what == NODE)
        return known

    def earliest(self, claims: Claims, seconds: int, start: int) -> int | None:
        """Give the first time at which all claims have room; None: never."""
        if not claims:
            return start
        consumed = self._consumed(claims)
        while consumed:
            found = self.pools.earliest(consumed, FAR, start)
            if found is None:
                return None
            again = self.pools.earliest(self._lasting(claims), seconds, found)
            if again is None or again == found:
                return again
            start = again
        return self.pools.earliest(claims, seconds, start)

    def _consumed(self, claims: Claims) -> Claims:
        return tuple(claim for claim in claims if claim.key[0] == _SPENT) if self._stock else ()

    def _lasting(self, claims: Claims) -> Claims:
        return tuple(claim for claim in claims if claim.key[0] != _SPENT) if self._stock else claims

    def never(self, claims: Claims) -> Wait:
        """Give the wait of a job for whose claims there will be no room."""
        for claim in claims:
            if claim.amount > claim.capacity:
                return Wait(claim.reason)
        short = self.pools.short(claims, FAR - 1)
        return Wait(short.reason if short is not None else claims[0].reason)

    def _spends(self, entry: Entry, asked: Asked) -> Claims:
        """Give what a run takes for good of the minutes that are left, where a job may only start if they suffice."""
        rules = entry.rules
        if rules is None or not self._state.limits.safe:
            return ()
        made: list[Claim] = []
        for rule in (*rules.before, *rules.after):
            if not rule.is_past_use:
                continue
            if rule.kind == Kind.GRP_WALL:
                used, amount = self._past.wall_minutes(rule.key, self._at), asked.whole_minutes
            else:
                name = str(rule.key[-1]).removesuffix(MINUTES)
                used = self._past.tres_minutes(rule.key[:-1], name, self._at)
                used += self._state.load.seconds_left(rule.key, self._at) / 60
                amount = int(asked.amounts.get(rule.tres, 0) * asked.whole_minutes * rules.usage_factor)
            if amount:
                capacity = int(rule.limit - used)
                made.append(Claim((_SPENT, rule.kind, *rule.key), capacity, amount, rule.reason))
        return tuple(made)


class NodeUse:
    """Which nodes a group uses over time."""

    def __init__(self) -> None:
        self._uses: dict[Key, list[tuple[int, int, frozenset[int]]]] = {}

    def occupy(self, keys: Iterable[Key], nodes: Sequence[int], start: int, end: int) -> None:
        """Note a run on these nodes over [start, end)."""
        for key in keys:
            self._uses.setdefault(key, []).append((start, end, frozenset(nodes)))

    def leave(self, keys: Iterable[Key], nodes: Sequence[int], start: int, end: int) -> None:
        """Undo `occupy`."""
        for key in keys:
            self._uses[key].remove((start, end, frozenset(nodes)))

    def free_from(self, rule: Rule, nodes: Sequence[int], start: int, end: int) -> int:
        """Give `start` if a run over [start, end) on these nodes keeps to a limit of nodes, else the end of the first
        run after which it may be different (FAR: none ends)."""
        mine = frozenset(nodes)
        runs = [one for one in self._uses.get(rule.key, ()) if one[0] < end and one[1] > start]
        for time in sorted({start, *(one[0] for one in runs if one[0] > start)}):
            there = [one for one in runs if one[0] <= time < one[1]]
            used: frozenset[int] = frozenset().union(*(one[2] for one in there))
            after = len(used | mine)
            if after > rule.limit and after > len(used):
                return min((one[1] for one in there), default=FAR)
        return start


def _member(job: Job, most: int) -> Claim:
    return Claim((ARRAY, job.array_job_id or job.id), most, 1, Reason.ARRAY_LIMIT)


def _share(demand: Demand, row: Row, tasks: int) -> NodeShare:
    """Give a share as limits count it: which of equal cores and GPUs it has is no matter."""
    _, node, cpus, memory, counts = row
    gpus = 0
    if counts[0]:
        types = demand.fleet.specs[node].gpus
        wanted = dict(zip(demand.fleet.types, counts[1:], strict=False))
        for index, kind in enumerate(types):
            if wanted.get(kind, 0) > 0:
                gpus |= 1 << index
                wanted[kind] -= 1
        for index in range(len(types)):
            if gpus.bit_count() < counts[0]:
                gpus |= 1 << index
    return NodeShare(node, cpus, (), memory, ranges.from_bitmap(gpus), tasks)

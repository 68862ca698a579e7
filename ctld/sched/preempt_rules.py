"""Who may preempt whom, and what becomes of a victim: PreemptType, PreemptMode and the exemptions."""

from __future__ import annotations

from ctld.core.accounts import UNSET, Qos
from ctld.core.cluster import PartitionSpec
from ctld.core.model import Job
from ctld.core.state import State
from ctld.core.times import suspended_until
from muster.states import JobState

_NO_QOS = Qos(0, "")
_MODIFIERS = ("GANG", "PRIORITY", "WITHIN", "CLUSTER", "")


def may_preempt(state: State, job: Job, partition: PartitionSpec, victim: Job, at: int) -> bool:
    """Tell whether a job that is to run in this partition may take the place of one that runs; that they have a node
    in common is not looked at."""
    rules = state.settings.preemption
    there = _partition_of(state, victim)
    if there is None or victim.id == job.id or mode_on(state, victim) == "OFF":
        return False
    mine, theirs = state.queue.priority(job), state.queue.priority(victim)
    if rules.rule == "partition_prio":
        if there.priority_tier >= partition.priority_tier or (rules.by_priority and mine < theirs):
            return False
    elif rules.rule == "qos":
        own = _qos(state, job.spec.qos)
        if victim.spec.qos == job.spec.qos:
            if not rules.within or mine <= theirs:
                return False
        elif victim.spec.qos not in own.preempt or (rules.by_priority and mine <= theirs):
            return False
    else:
        return False
    return not is_exempt(state, victim, at)


def is_exempt(state: State, victim: Job, at: int) -> bool:
    """Tell whether nobody may preempt a job: it does not run, its priority is above the bound, or it has run too short
    a time."""
    rules = state.settings.preemption
    if not JobState.PENDING < victim.state <= JobState.SUSPENDED:
        return True
    if 0 <= rules.min_exempt_priority < state.queue.priority(victim):
        return True
    ran = at - victim.started_at - suspended_until(victim, at)
    return ran < exempt_seconds(state, victim)


def exempt_seconds(state: State, victim: Job) -> int:
    """Give how long a run has to last before it may be preempted: what the partition's QOS, the job's QOS (the other
    way round with OverPartQOS) or the cluster say, the first that says something."""
    there = _partition_of(state, victim)
    of_partition = _qos(state, there.qos) if there is not None and there.qos else _NO_QOS
    of_job = _qos(state, victim.spec.qos)
    first, second = of_partition, of_job
    if "OverPartQOS" in of_job.flags:
        first, second = of_job, of_partition
    for value in (first.preempt_exempt_seconds, second.preempt_exempt_seconds):
        if value != UNSET:
            return value
    return max(0, state.settings.preemption.exempt_seconds)


def mode_on(state: State, victim: Job) -> str:
    """Give what becomes of a victim: OFF, CANCEL, REQUEUE or SUSPEND."""
    rules = state.settings.preemption
    there = _partition_of(state, victim)
    own = ""
    if rules.rule == "qos":
        own = _qos(state, victim.spec.qos).preempt_mode
    elif there is not None:
        own = there.preempt_mode
    words = [word for word in own.upper().split(",") if word not in _MODIFIERS]
    return words[0] if words else rules.mode


def grace_on(state: State, victim: Job) -> int:
    """Give the seconds between a victim's warning and its end."""
    if state.settings.preemption.rule == "qos":
        return _qos(state, victim.spec.qos).grace_seconds
    there = _partition_of(state, victim)
    return there.grace_seconds if there is not None else 0


def weight_of(state: State, victim: Job) -> int:
    """Give what victims are ordered by, least first: the tier of their partition, or the priority of their QOS."""
    if state.settings.preemption.rule == "qos":
        return _qos(state, victim.spec.qos).priority
    there = _partition_of(state, victim)
    return there.priority_tier if there is not None else 0


def qos_ranks(qos: dict[str, Qos]) -> dict[str, int]:
    """Give each QOS a rank above those of all QOS that it may preempt: how the queue puts those first that may preempt
    others. QOS that may preempt each other in a circle have the same rank.

    Tarjan's strongly connected components (SIAM J. Comput. 1972), each found after those below it: as long as there are
    names in Preempt= lists, where following every path would take as long as there are paths.
    """
    ranks: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    for start, first in qos.items():
        walk = [] if start in lowest else [(start, len(lowest), iter(first.preempt))]
        while walk:
            name, number, rest = walk[-1]
            if name not in lowest:
                lowest[name] = number
                open_.append(name)
            below = next((other for other in rest if other in qos and other not in ranks), None)
            if below is not None and below not in lowest:
                walk.append((below, len(lowest), iter(qos[below].preempt)))
            elif below is not None:
                lowest[name] = min(lowest[name], lowest[below])
            else:
                walk.pop()
                if walk:
                    lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[name])
                if lowest[name] == number:
                    circle = open_[open_.index(name) :]
                    del open_[-len(circle) :]
                    others = {other for one in circle for other in qos[one].preempt}.difference(circle)
                    rank = max((ranks[other] + 1 for other in others if other in ranks), default=0)
                    ranks.update(dict.fromkeys(circle, rank))
    return {name: ranks[name] for name in qos}


def _partition_of(state: State, job: Job) -> PartitionSpec | None:
    return state.partitions.get(job.alloc.partition) if job.alloc is not None else None


def _qos(state: State, name: str) -> Qos:
    return state.accounts.qos.get(name, _NO_QOS)

"""Which running job charges whom with what: from records to the meters of `State.usage`."""

from __future__ import annotations

from ctld.core.model import Job
from ctld.core.record import billing_mode, licensed, tres
from ctld.core.state import State
from ctld.core.usage import Charge, scaled
from muster.states import JobState
from muster.usage import billing

_PENDING = int(JobState.PENDING)
_SUSPENDED = int(JobState.SUSPENDED)


def charge(state: State, old: Job | None, new: Job | None, *, live: bool) -> None:
    """Bring the meters up when a run starts, ends or changes; with `live` false a running job is only put back in."""
    ran = old is not None and _PENDING < old.state <= _SUSPENDED
    runs = new is not None and _PENDING < new.state <= _SUSPENDED
    if not (ran or runs) or not (state.accounts or state.accounts.qos):
        return
    if ran and runs and old is not None and new is not None and _charges_the_same(old, new):
        return
    job = new or old
    assert job is not None, "there is a record to exchange"
    state.usage.exchange(job.id, charge_of(state, job) if runs else None, state.at, rolls=live)


def recharge(state: State) -> None:
    """Put all running jobs in anew, after the meters were brought to now, or were read from a checkpoint."""
    usage = state.usage
    usage.configure(state.settings.priority.half_life_seconds, state.accounts)
    usage.still()
    for job_id in state.running:
        charge(state, None, state.jobs[job_id], live=False)


def charge_of(state: State, job: Job) -> Charge | None:
    """Give what a running job adds to which meters each second; None when it charges nobody."""
    assert job.alloc is not None, "a running job has nodes"
    accounts, spec = state.accounts, job.spec
    partition = state.partitions.get(job.alloc.partition)
    association = accounts.find(spec.user, spec.account, job.alloc.partition)
    of_job = accounts.qos.get(spec.qos)
    of_partition = accounts.qos.get(partition.qos) if partition is not None else None
    qos = dict.fromkeys(one.id for one in (of_job, of_partition) if one is not None)
    factor = of_job.usage_factor if of_job is not None and of_job.usage_factor >= 0 else 1.0
    if association is None and not qos:
        return None
    amounts = {**tres(state, job.alloc.shares), **licensed(job)}
    rate = billing(amounts, partition.billing_weights if partition is not None else {}, billing_mode(state.settings))
    amounts["billing"] = int(rate)
    return Charge(
        tuple(one.id for one in accounts.path(association.id)) if association is not None else (),
        tuple(qos),
        scaled(rate * factor),
        0 if job.state == _SUSPENDED else scaled(factor),
        tuple((name, scaled(amount * factor)) for name, amount in amounts.items() if amount and factor),
    )


def _charges_the_same(old: Job, new: Job) -> bool:
    return old.alloc is new.alloc and old.spec is new.spec and old.state == new.state

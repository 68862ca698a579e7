"""What is tried for a job now: liked features come first, and few switches are held to until its patience is over."""

from __future__ import annotations

from ctld.core.model import Job
from ctld.sched.demand import Demand


def tries(demand: Demand, job: Job, at: int) -> tuple[Demand, ...]:
    """Give the demands to try for a start now, the best first; the last is what the job waits for."""
    own = due(demand, job, at)
    return (own,) if demand.preferred is None else (due(demand.preferred, job, at), own)


def due(demand: Demand, job: Job, at: int) -> Demand:
    """Give the demand, without few switches where the job has waited for them long enough."""
    return demand.eventual if demand.manner.switches and at >= patience_end(demand, job, at) else demand


def patience_end(demand: Demand, job: Job, at: int) -> int:
    """Give the time from which a job takes more switches than it asked for."""
    return (job.eligible_at or at) + demand.manner.switch_wait

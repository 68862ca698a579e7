"""Why a job waits: one typed reason for every pending job, at any time."""

from __future__ import annotations

from ctld.core.model import Job
from ctld.core.plan import Plan, Wait
from ctld.core.state import State
from ctld.sched.memory import PRIORITY
from muster.ids import UnixTime
from muster.states import Reason

_HOLDS = {"user": Reason.HELD_USER, "admin": Reason.HELD_ADMIN}
_WORDS = {reason.value: reason for reason in Reason}


def lasting_reason(job: Job, at: UnixTime) -> Wait:
    """Give the reason of a pending job that does not depend on what is free: holds, dependencies, begin time.

    Priority when there is none of these.
    """
    text = job.state_text
    stored = _WORDS.get(job.reason)
    if job.hold or not job.priority:
        if stored is not None and stored is not Reason.NONE:
            return Wait(stored, text)
        return Wait(_HOLDS.get(job.hold, Reason.HELD_ADMIN), text)
    if stored is Reason.DEPENDENCY_NEVER and job.clauses:
        return Wait(stored, text)
    if job.clauses:
        return Wait(Reason.DEPENDENCY, text)
    if job.begin_at > at:
        return Wait(Reason.BEGIN_TIME, text)
    if job.completing:
        return Wait(Reason.CLEANING, text)
    return PRIORITY


def reason_of(state: State, overlay: Plan | None, job: Job, at: UnixTime) -> Wait:
    """Give the reason that is shown for a pending job: what lasts, else what the last pass found, else Priority.

    `overlay` is the newest plan (None before the first pass).
    """
    lasting = lasting_reason(job, at)
    if lasting is not PRIORITY or overlay is None:
        return lasting
    wait = overlay.waits.get(job.id)
    if wait is not None:
        return wait
    jobs = state.queue.class_of(job.id)
    if jobs is None:
        return PRIORITY
    return overlay.class_waits.get(jobs.id, PRIORITY)

"""`apply(state, event)`: what each event does to the state. It never refuses, and is the only way that state
changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctld.core import events
from ctld.core.apply import accounts, jobs, nodes, reservations, runs, steps
from ctld.core.events import Event
from ctld.core.state import State

# Any: each function takes its own class of event, which the key of its row names.
_APPLY: dict[type, Callable[[State, Any], None]] = {
    events.ConfigApplied: nodes.config_applied,
    events.AccountsApplied: accounts.applied,
    events.UsageReset: accounts.usage_reset,
    events.AccrualChanged: jobs.accrual_changed,
    events.JobSubmitted: jobs.submitted,
    events.JobStarted: runs.started,
    events.ArrayMemberSplit: jobs.member_split,
    events.KillOrdered: runs.kill_ordered,
    events.JobPreempted: runs.preempted,
    events.JobBooked: jobs.booked,
    events.JobSuspended: runs.suspended,
    events.JobResumed: runs.resumed,
    events.StepKillOrdered: steps.kill_ordered,
    events.JobFinished: runs.finished,
    events.ArrayTasksCancelled: jobs.tasks_cancelled,
    events.JobRequeued: runs.requeued,
    events.NodesReleased: runs.released,
    events.JobHeld: jobs.held,
    events.JobReleased: jobs.unheld,
    events.JobChanged: jobs.changed,
    events.JobEligible: jobs.eligible,
    events.DependencyChanged: jobs.dependency_changed,
    events.JobWarned: runs.warned,
    events.JobStopped: runs.stopped,
    events.JobsPurged: jobs.purged,
    events.StepCreated: steps.created,
    events.StepReported: steps.reported,
    events.StepFinished: steps.finished,
    events.NodeRegistered: nodes.registered,
    events.NodeChanged: nodes.changed,
    events.ReservationCreated: reservations.created,
    events.ReservationChanged: reservations.changed,
    events.ReservationDeleted: reservations.deleted,
    events.JobReservationLost: reservations.lost,
}


def apply(state: State, event: Event) -> None:
    """Change the state by one event, records and derived parts together."""
    # First, since usage is charged up to now: time that goes back charges nothing twice.
    state.at = max(state.at, event.at)
    _APPLY[type(event)](state, event)

"""`decide(state, command, at)`: the events that a command leads to, or a refusal that changes nothing.

Pure: it reads the state and changes nothing. All events of one decision are computed against the state in
front of them; what follows from them for jobs that wait for others comes behind (`dependency.follow`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctld.core import commands
from ctld.core.commands import Command
from ctld.core.decide import (
    accounts,
    cancel,
    config,
    dependency,
    finish,
    hold,
    nodes,
    plan,
    requeue,
    reservations,
    steps,
    submit,
    suspend,
    tick,
    update,
)
from ctld.core.events import Event
from ctld.core.state import State
from muster.ids import UnixTime

# Any: each function takes its own class of command, which the key of its row names.
_DECIDE: dict[type, Callable[[State, Any, UnixTime], list[Event]]] = {
    commands.ApplyConfig: config.apply_config,
    commands.ApplyAccounts: accounts.apply_accounts,
    commands.ResetUsage: accounts.reset_usage,
    commands.GrantAccrual: accounts.grant_accrual,
    commands.Submit: submit.submit,
    commands.Cancel: cancel.cancel,
    commands.CancelStep: steps.cancel_step,
    commands.Hold: hold.hold,
    commands.Release: hold.release,
    commands.Requeue: requeue.requeue,
    commands.UpdateJob: update.update,
    commands.NoteStopped: cancel.note_stopped,
    commands.Suspend: suspend.suspend,
    commands.Resume: suspend.resume,
    commands.RegisterNode: nodes.register_node,
    commands.LoseNodes: nodes.lose_nodes,
    commands.UpdateNode: nodes.update_node,
    commands.ApplyPlan: plan.apply_plan,
    commands.FinishBatch: finish.finish_batch,
    commands.LoseBatch: finish.lose_batch,
    commands.ReleaseNode: finish.release_node,
    commands.CreateStep: steps.create_step,
    commands.FinishStep: steps.finish_step,
    commands.CreateReservation: reservations.create,
    commands.UpdateReservation: reservations.update,
    commands.DeleteReservation: reservations.delete,
    commands.Tick: tick.tick,
}


def decide(state: State, command: Command, at: UnixTime) -> list[Event]:
    """Give the events that a command leads to at this time; none when there is nothing to do.

    Raises:
        MusterError: the command is refused; nothing changes.
    """
    events = _DECIDE[type(command)](state, command, at)
    if not events or _follows_itself(command):
        return events
    return [*events, *dependency.follow(state, events, at)]


def _follows_itself(command: Command) -> bool:
    """Tell whether the decision has judged dependencies itself, so that judging again would say things
    twice."""
    if isinstance(command, commands.UpdateJob):
        return command.dependency is not None
    return isinstance(command, commands.Submit | commands.Tick)

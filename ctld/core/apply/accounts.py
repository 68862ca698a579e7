"""Events of associations and QOS."""

from __future__ import annotations

from ctld.core.accounts import Accounts
from ctld.core.apply.charging import recharge
from ctld.core.apply.indexes import recount
from ctld.core.events import AccountsApplied, UsageReset
from ctld.core.state import State


def applied(state: State, event: AccountsApplied) -> None:
    """Take the tree and the QOS in the place of those that were."""
    state.usage.settle(state.at)
    state.accounts = Accounts(event.associations, event.qos)
    state.usage.reset_at = state.usage.reset_at or event.at
    recharge(state)
    recount(state)


def usage_reset(state: State, event: UsageReset) -> None:
    """Set usage to nothing."""
    state.usage.reset(event.at)

"""Events of associations and QOS."""

from __future__ import annotations

from ctld.core.accounts import Accounts
from ctld.core.apply.indexes import recount
from ctld.core.events import AccountsApplied
from ctld.core.state import State


def applied(state: State, event: AccountsApplied) -> None:
    """Take the tree and the QOS in the place of those that were."""
    state.accounts = Accounts(event.associations, event.qos)
    recount(state)

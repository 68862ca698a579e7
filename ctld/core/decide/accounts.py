"""A new association tree: numbers that mean the same as before, parents before children, no circle."""

from __future__ import annotations

from msgspec import structs

from ctld.core.accounts import Association, Qos
from ctld.core.apply.indexes import PENDING
from ctld.core.commands import ApplyAccounts, GrantAccrual, ResetUsage
from ctld.core.events import AccountsApplied, AccrualChanged, Event, UsageReset
from ctld.core.state import State
from muster.errors import InvalidInput
from muster.ids import UnixTime


def apply_accounts(state: State, command: ApplyAccounts, at: UnixTime) -> list[Event]:
    """Take the tree and the QOS; nothing when they are those in force.

    Raises:
        InvalidInput: a parent that is not there, a second root, or an account below itself.
    """
    event = AccountsApplied(at, _numbered(state, command), _numbered_qos(state, command.qos))
    now = state.accounts
    if event.associations == tuple(now.associations.values()) and event.qos == tuple(now.qos.values()):
        return []
    return [event]


def reset_usage(state: State, command: ResetUsage, at: UnixTime) -> list[Event]:
    """Forget what was used."""
    return [UsageReset(at)] if state.accounts else []


def grant_accrual(state: State, command: GrantAccrual, at: UnixTime) -> list[Event]:
    """Change of which waiting jobs the age counts."""

    def waiting(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(n for n in numbers if (job := state.jobs.get(n)) is not None and job.state == PENDING)

    begun, stopped = waiting(command.begin), waiting(command.stop)
    return [AccrualChanged(at, begun, stopped)] if begun or stopped else []


def _numbered(state: State, command: ApplyAccounts) -> tuple[Association, ...]:
    known = {(one.user, one.account, one.partition): one.id for one in state.accounts.associations.values()}
    roots = [one for one in command.associations if not one.parent_id]
    if len(roots) > 1:
        raise InvalidInput(f"the association tree has two roots, {roots[0].account} and {roots[1].account}")
    following = max([*known.values(), 0]) + 1
    numbers: dict[int, int] = {0: 0}
    done: list[Association] = []
    waiting = command.associations
    while waiting:
        later: list[Association] = []
        for one in waiting:
            if one.parent_id not in numbers:
                later.append(one)
                continue
            number = known.get((one.user, one.account, one.partition))
            if number is None:
                number, following = following, following + 1
            numbers[one.id] = number
            done.append(structs.replace(one, id=number, parent_id=numbers[one.parent_id]))
        if len(later) == len(waiting):
            names = ", ".join(sorted({one.account for one in later})[:20])
            raise InvalidInput(f"these accounts have no parent, or are below themselves: {names}")
        waiting = tuple(later)
    return tuple(done)


def _numbered_qos(state: State, given: tuple[Qos, ...]) -> tuple[Qos, ...]:
    known = {one.name: one.id for one in state.accounts.qos.values()}
    following = max([*known.values(), 0]) + 1
    done: list[Qos] = []
    for one in given:
        number = known.get(one.name)
        if number is None:
            number, following = following, following + 1
        done.append(structs.replace(one, id=number))
    return tuple(done)

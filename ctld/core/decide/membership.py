"""Who may submit to which account and QOS: what is left out is filled in, and what is enforced is refused."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.accounts import NORMAL, Association
from ctld.core.decide.refusals import invalid
from ctld.core.model import Caller, JobSpec
from ctld.core.state import State


def placed(state: State, spec: JobSpec, caller: Caller, *, qos_given: bool = True) -> JobSpec:
    """Give the spec with its account and QOS: as asked, else the user's defaults.

    Without associations every account is taken as given. With them, AccountingStorageEnforce says whether an unknown
    user or account (`associations`), and a QOS that is unknown or not allowed (`qos`), is refused.

    Raises:
        InvalidInput: `Invalid account or account/partition combination specified`, `Invalid qos specification`.
    """
    accounts = state.accounts
    if not accounts:
        return spec if qos_given else replace(spec, qos=NORMAL)
    enforced = state.settings.accounting_enforce
    account = spec.account.lower() or accounts.default_account(spec.user)
    found = [accounts.find(spec.user, account, partition) for partition in spec.partitions]
    if None in found and "associations" in enforced:
        raise invalid(2045, _why_no_account(state, spec.user, account, spec.partitions[found.index(None)]))
    association = next((one for one in found if one is not None), None)
    qos = spec.qos.lower()
    if not qos_given:
        qos = accounts.default_qos(association.id) if association is not None else NORMAL
    exempt = spec.exempt
    if "qos" in enforced:
        _check_qos(state, qos, association, caller)
        if association is not None and not set(qos.split(",")) <= set(accounts.allowed_qos(association.id)):
            exempt = ("qos",)  # An administrator's.
    return replace(spec, account=account, qos=qos, exempt=exempt)


def _why_no_account(state: State, user: str, account: str, partition: str) -> str:
    accounts = state.accounts
    if not accounts.has_user(user):
        return f"user {user} has no association: an administrator has to add one"
    mine = sorted({one.account for one in accounts.associations.values() if one.user == user})
    if account in mine:
        return f"user {user} may use account {account} in other partitions than {partition}"
    return f"user {user} may use these accounts: {', '.join(mine[:20])}"


def _check_qos(state: State, names: str, association: Association | None, caller: Caller) -> None:
    accounts = state.accounts
    for name in names.split(","):
        if name not in accounts.qos:
            raise invalid(2066, f"there is no QOS {name}; there are: {', '.join(sorted(accounts.qos)[:20])}")
        if association is None or caller.admin:
            continue
        allowed = accounts.allowed_qos(association.id)
        if name not in allowed:
            may = f"may use: {', '.join(allowed[:20])}" if allowed else "may use none"
            raise invalid(2066, f"QOS {name} is not open to {association.user} in {association.account}, who {may}")

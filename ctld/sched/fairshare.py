"""Fair Tree, and the classic fairshare: from shares and usage to a factor between 0 and 1 for each user association.

Fair Tree ranks users by walking the tree, level by level in order of LevelFS (shares over usage, both as parts of their
level): whoever is below the better account ranks before all that is below a worse one, whatever they used themselves
(Cox and Gruntman, Slurm User Group 2014; scheduling.md 4). Accounts of equal LevelFS are one level together, as
documented. The classic formula and its depth-oblivious variant are those of scheduling.md 5.

Pure, and a pass costs about 5 microseconds an association.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctld.core.accounts import PARENT_SHARES, Accounts, Association


@dataclass(frozen=True, slots=True)
class FairShare:
    """What fairshare says of an association (the columns of sshare)."""

    raw_usage: float
    norm_shares: float
    """Fair Tree: of the level; classic: of the whole tree."""
    norm_usage: float
    effective_usage: float
    level_fs: float
    """Fair Tree only; infinity where nothing was used."""
    factor: float
    """Between 0 and 1; of accounts (Fair Tree) 0."""


def fairshare(
    accounts: Accounts, usage: Mapping[int, float], flags: Sequence[str] = (), dampening: float = 1.0
) -> dict[int, FairShare]:
    """Give each association's fairshare, by the variant that PriorityFlags name.

    Args:
        accounts: the tree.
        usage: association id -> decayed billing-seconds.
        flags: NO_FAIR_TREE and DEPTH_OBLIVIOUS choose the classic formula.
        dampening: FairShareDampeningFactor, of the classic formula.
    """
    if "DEPTH_OBLIVIOUS" in flags or "NO_FAIR_TREE" in flags:
        return classic(accounts, usage, dampening=dampening, depth_oblivious="DEPTH_OBLIVIOUS" in flags)
    return fair_tree(accounts, usage)


# ---- Fair Tree -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Level:
    """An association where it competes."""

    one: Association
    shares: float
    usage: float
    level_fs: float
    order: float
    """`level_fs` as it is compared: values that differ in rounding only are equal."""


def fair_tree(accounts: Accounts, usage: Mapping[int, float]) -> dict[int, FairShare]:
    """Rank the users of the tree; see `fairshare`."""
    if accounts.root is None:
        return {}
    children = _competing(accounts)
    levels: dict[int, _Level] = {}
    for parent, below in children.items():
        total = sum(one.shares for one in below if one.shares != PARENT_SHARES)
        of_parent = usage.get(parent, 0.0)
        for one in below:
            levels[one.id] = _level(one, total, usage.get(one.id, 0.0), of_parent)
    ranks = _ranks([levels[one.id] for one in children.get(accounts.root.id, ())], children, levels)
    users = sum(1 for one in accounts.associations.values() if one.user)
    whole = usage.get(accounts.root.id, 0.0)
    found: dict[int, FairShare] = {}
    for number in accounts.associations:
        raw = usage.get(number, 0.0)
        level = levels.get(number)
        norm = min(1.0, raw / whole) if whole else 0.0
        if level is None:
            # The root, and accounts with Fairshare=parent, compete nowhere.
            found[number] = FairShare(raw, 1.0 if number == accounts.root.id else 0.0, norm, norm, 0.0, 0.0)
            continue
        factor = ranks[number] / users if number in ranks else 0.0
        found[number] = FairShare(raw, level.shares, norm, level.usage, level.level_fs, factor)
    return found


def _competing(accounts: Accounts) -> dict[int, list[Association]]:
    """Give who competes below which association: what is below an account with Fairshare=parent competes above it."""
    assert accounts.root is not None, "there is a tree"
    found: dict[int, list[Association]] = {}
    stack = [(accounts.root.id, accounts.root.id)]
    while stack:
        number, place = stack.pop()
        for one in accounts.children(number):
            if one.user:
                found.setdefault(place, []).append(one)
            elif one.shares == PARENT_SHARES:
                stack.append((one.id, place))
            else:
                found.setdefault(place, []).append(one)
                stack.append((one.id, one.id))
    return found


def _level(one: Association, total: int, raw: float, of_parent: float) -> _Level:
    usage = raw / of_parent if of_parent else 0.0
    if one.shares == PARENT_SHARES:
        return _Level(one, 0.0, usage, math.inf, math.inf)
    shares = one.shares / total if total else 0.0
    level_fs = 0.0 if not shares else shares / usage if usage else math.inf
    return _Level(one, shares, usage, level_fs, float(f"{level_fs:.12g}"))


def _ranks(
    top: list[_Level], children: Mapping[int, list[Association]], levels: Mapping[int, _Level]
) -> dict[int, int]:
    """Give each user's rank, the best one the number of users; see scheduling.md 4.1 for the walk."""
    ranks: dict[int, int] = {}
    free = rank = sum(1 for level in levels.values() if level.one.user)
    # A stack of levels that are being walked: (siblings in order, place, LevelFS of the one before, tied).
    stack: list[tuple[list[_Level], int, float | None, bool]] = [(_ordered(top), 0, None, False)]
    while stack:
        siblings, place, before, tied_in = stack.pop()
        if place == len(siblings):
            continue
        here = siblings[place]
        tied = (place == 0 and tied_in) or here.order == before
        if here.one.user:
            if not tied:
                rank = free
            ranks[here.one.id] = rank
            free -= 1
            stack.append((siblings, place + 1, here.order, tied_in))
            continue
        end = place + 1
        while end < len(siblings) and not siblings[end].one.user and siblings[end].order == here.order:
            end += 1
        below = [levels[one.id] for level in siblings[place:end] for one in children.get(level.one.id, ())]
        stack.append((siblings, end, here.order, tied_in))
        stack.append((_ordered(below), 0, None, tied))
    return ranks


def _ordered(siblings: list[_Level]) -> list[_Level]:
    """LevelFS descending, at equal ones users before accounts."""
    return sorted(siblings, key=lambda level: (-level.order, not level.one.user))


# ---- classic ---------------------------------------------------------------------------------------------------


def classic(
    accounts: Accounts, usage: Mapping[int, float], *, dampening: float = 1.0, depth_oblivious: bool = False
) -> dict[int, FairShare]:
    """Give the classic factors 2^-(usage/shares/dampening); see `fairshare`."""
    root = accounts.root
    if root is None:
        return {}
    whole = usage.get(root.id, 0.0)

    def part(number: int) -> float:
        return min(1.0, usage.get(number, 0.0) / whole) if whole else 0.0

    found: dict[int, FairShare] = {}

    def note(one: Association, shares: float, effective: float) -> None:
        factor = 0.0 if shares <= 0 else 2.0 ** -(effective / shares / dampening)
        found[one.id] = FairShare(usage.get(one.id, 0.0), shares, part(one.id), effective, 0.0, factor)

    note(root, 1.0, part(root.id))
    stack = [root]
    while stack:
        parent = stack.pop()
        above = found[parent.id]
        below = accounts.children(parent.id)
        total = sum(one.shares for one in below if one.shares != PARENT_SHARES)
        of_level = sum(part(one.id) for one in below)
        for one in below:
            if one.shares == PARENT_SHARES:
                note(one, above.norm_shares, above.effective_usage)
            else:
                ratio = one.shares / total if total else 0.0
                shares = above.norm_shares * ratio
                own = part(one.id)
                if depth_oblivious:
                    effective = _oblivious(own, shares, above, of_level)
                elif parent is root:
                    effective = own
                else:
                    effective = own + (above.effective_usage - own) * (ratio if total else 1.0)
                note(one, shares, effective)
            if not one.user:
                stack.append(one)
    return found


def _oblivious(own: float, shares: float, above: FairShare, of_level: float) -> float:
    """Give the effective usage of DEPTH_OBLIVIOUS: how the parent stands, and how it stands in its level."""
    if not shares or not above.norm_shares:
        return 0.0
    of_parent = above.effective_usage / above.norm_shares
    of_own = own / shares / (of_level / above.norm_shares) if of_level else 0.0
    if not of_parent or not of_own:
        return of_parent * of_own * shares
    opposed = math.log(of_parent) * math.log(of_own) < 0
    weight = 1.0 / (1.0 + (5.0 * math.log(of_parent)) ** 2) if opposed else 1.0
    return float(of_parent * of_own**weight * shares)

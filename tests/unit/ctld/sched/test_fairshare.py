"""Fair Tree and classic fairshare: the worked trees of scheduling.md 4 and 5, and what must hold of every tree."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctld.core.accounts import PARENT_SHARES, Accounts, Association
from ctld.sched.fairshare import FairShare, classic, fair_tree, fairshare

Row = tuple[str, str, int, float]
"""Name, parent's name, shares, usage. A name in lower case is a user's, else an account's."""


class Tree:
    """A tree by name."""

    def __init__(self, *rows: Row, root_usage: float | None = None) -> None:
        self.ids = {"": 1, **{row[0]: number for number, row in enumerate(rows, 2)}}
        associations = [Association(1, "root")]
        self.usage = {self.ids[name]: usage for name, _, _, usage in rows}
        self.usage[1] = sum(usage for _, parent, _, usage in rows if not parent) if root_usage is None else root_usage
        for name, parent, shares, _ in rows:
            user = name if name == name.lower() else ""
            one = Association(self.ids[name], parent or name, parent_id=self.ids[parent], user=user, shares=shares)
            associations.append(one)
        self.accounts = Accounts(associations)

    def fair_tree(self) -> dict[str, FairShare]:
        found = fair_tree(self.accounts, self.usage)
        return {name: found[number] for name, number in self.ids.items()}

    def factors(self) -> dict[str, float]:
        return {name: one.factor for name, one in self.fair_tree().items() if name and name == name.lower()}

    def classic(self, *, depth_oblivious: bool = False) -> dict[str, FairShare]:
        found = classic(self.accounts, self.usage, depth_oblivious=depth_oblivious)
        return {name: found[number] for name, number in self.ids.items()}


TEST_A = (
    ("PHYSICS", "", 50, 6000.0),
    ("CHEM", "", 30, 3000.0),
    ("BIO", "", 20, 1000.0),
    ("b1", "BIO", 1, 500.0),
    ("b2", "BIO", 1, 500.0),
    ("b3", "BIO", 1, 0.0),
    ("c1", "CHEM", 1, 0.0),
    ("c2", "CHEM", 1, 1500.0),
    ("c3", "CHEM", 2, 1500.0),
    ("p1", "PHYSICS", 10, 4000.0),
    ("p2", "PHYSICS", 10, 1000.0),
    ("p3", "PHYSICS", 20, 1000.0),
)


@pytest.mark.parametrize(
    ("name", "shares", "usage", "level_fs", "factor"),
    [
        ("PHYSICS", 0.5, 0.6, 0.8333333333333334, 0.0),
        ("CHEM", 0.3, 0.3, 1.0, 0.0),
        ("BIO", 0.2, 0.1, 2.0, 0.0),
        ("b3", 1 / 3, 0, math.inf, 1.0),
        ("b1", 1 / 3, 0.5, 0.6666666666666666, 0.8888888888888888),
        ("b2", 1 / 3, 0.5, 0.6666666666666666, 0.8888888888888888),
        ("c1", 0.25, 0, math.inf, 0.6666666666666666),
        ("c3", 0.5, 0.5, 1.0, 0.5555555555555556),
        ("c2", 0.25, 0.5, 0.5, 0.4444444444444444),
        ("p3", 0.5, 1 / 6, 3.0, 0.3333333333333333),
        ("p2", 0.25, 1 / 6, 1.5, 0.2222222222222222),
        ("p1", 0.25, 2 / 3, 0.375, 0.1111111111111111),
    ],
)
def test_three_accounts_of_three_users(name: str, shares: float, usage: float, level_fs: float, factor: float) -> None:
    found = Tree(*TEST_A).fair_tree()[name]
    assert found.norm_shares == pytest.approx(shares, abs=1e-9)
    assert found.effective_usage == pytest.approx(usage, abs=1e-9)
    assert found.level_fs == pytest.approx(level_fs, abs=1e-9)
    assert found.factor == pytest.approx(factor, abs=1e-9)
    assert found.norm_usage == pytest.approx(found.raw_usage / 10000)


def test_accounts_that_are_tied_are_merged() -> None:
    tree = Tree(
        ("A", "", 1, 100.0),
        ("B", "", 1, 100.0),
        ("a1", "A", 1, 60.0),
        ("a2", "A", 1, 40.0),
        ("b1", "B", 1, 80.0),
        ("b2", "B", 1, 20.0),
    )
    assert {name: one.level_fs for name, one in tree.fair_tree().items() if name in ("a1", "a2", "b1", "b2")} == {
        "a1": pytest.approx(0.8333, abs=1e-4),
        "a2": 1.25,
        "b1": 0.625,
        "b2": 2.5,
    }
    assert tree.factors() == {"a2": 3 / 4, "a1": 2 / 4, "b2": 4 / 4, "b1": 1 / 4}


def test_a_user_tied_with_a_sibling_account_shares_its_rank() -> None:
    tree = Tree(("u", "", 1, 60.0), ("A", "", 1, 60.0), ("a1", "A", 2, 20.0), ("a2", "A", 1, 40.0))
    found = tree.fair_tree()
    assert [found[name].level_fs for name in ("u", "A", "a1", "a2")] == pytest.approx([1.0, 1.0, 2.0, 0.5])
    assert tree.factors() == {"u": 1.0, "a1": 1.0, "a2": pytest.approx(1 / 3)}


def test_nothing_used_is_everybody_first() -> None:
    tree = Tree(*((name, parent, shares, 0.0) for name, parent, shares, _ in TEST_A))
    assert set(tree.factors().values()) == {1.0}


def test_no_shares_rank_last_and_parent_shares_of_a_user_first() -> None:
    tree = Tree(("a", "", 0, 0.0), ("b", "", 1, 90.0), ("c", "", PARENT_SHARES, 10.0))
    assert tree.factors() == {"c": 1.0, "b": pytest.approx(2 / 3), "a": pytest.approx(1 / 3)}
    assert tree.fair_tree()["b"].norm_shares == 1.0


def test_an_account_with_parent_shares_vanishes() -> None:
    with_it = Tree(
        ("A", "", PARENT_SHARES, 60.0),
        ("b", "", 2, 40.0),
        ("a1", "A", 1, 20.0),
        ("a2", "A", 1, 40.0),
    )
    without = Tree(("b", "", 2, 40.0), ("a1", "", 1, 20.0), ("a2", "", 1, 40.0))
    assert with_it.factors() == without.factors()
    assert with_it.fair_tree()["a1"].norm_shares == 0.25


# ---- what holds of every tree ----------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Accounts up to three levels deep, users anywhere, usage summed up from the users."""
    rows: list[tuple[str, str, int, int]] = []
    accounts = [""]
    for number in range(draw(st.integers(0, 5))):
        parent = draw(st.sampled_from(accounts))
        rows.append((f"A{number}", parent, draw(st.sampled_from([0, 1, 1, 2, 5])), 0))
        accounts.append(f"A{number}")
    for number in range(draw(st.integers(1, 8))):
        shares = draw(st.sampled_from([0, 1, 1, 2, PARENT_SHARES]))
        rows.append(
            (f"u{number}", draw(st.sampled_from(accounts)), shares, draw(st.sampled_from([0, 0, 100, 300, 777])))
        )
    parents = {name: parent for name, parent, _, _ in rows}
    total = dict.fromkeys(accounts, 0)
    for name, parent, _, usage in rows:
        if not name.startswith("u"):
            continue
        while True:
            total[parent] += usage
            if not parent:
                break
            parent = parents[parent]  # the way up
    return Tree(*((name, parent, shares, float(total.get(name, usage))) for name, parent, shares, usage in rows))


def recursive(tree: Tree) -> dict[str, float]:
    """Scheduling.md 4.1 word for word."""
    accounts, usage = tree.accounts, tree.usage
    state = {"rank": 0, "free": 0}
    users = state["rank"] = state["free"] = sum(1 for one in accounts.associations.values() if one.user)
    factors: dict[int, float] = {}

    def level_fs(one: Association) -> float:
        total = sum(s.shares for s in accounts.children(one.parent_id) if s.shares != PARENT_SHARES)
        if one.shares == PARENT_SHARES:
            return math.inf
        share = one.shares / total if total else 0
        above = usage[one.parent_id]
        used = usage[one.id] / above if above else 0
        return round(0 if not share else share / used if used else math.inf, 9)

    def visit(siblings: list[Association], tied_in: bool) -> None:
        siblings = sorted(siblings, key=lambda one: (-level_fs(one), not one.user))
        before = None
        place = 0
        while place < len(siblings):
            one = siblings[place]
            tied = (place == 0 and tied_in) or level_fs(one) == before
            if one.user:
                if not tied:
                    state["rank"] = state["free"]
                factors[one.id] = state["rank"] / users
                state["free"] -= 1
                place += 1
            else:
                below: list[Association] = []
                while place < len(siblings) and not siblings[place].user and level_fs(siblings[place]) == level_fs(one):
                    below += accounts.children(siblings[place].id)
                    place += 1
                visit(below, tied)
            before = level_fs(one)

    visit(list(accounts.children(1)), False)
    return {name: factors[number] for name, number in tree.ids.items() if number in factors}


@given(trees())
def test_the_walk_is_that_of_the_specification(tree: Tree) -> None:
    assert tree.factors() == recursive(tree)


@given(trees(), st.integers(2, 1000))
def test_scaling_all_usage_changes_nothing_and_somebody_is_first(tree: Tree, times: int) -> None:
    before = tree.factors()
    assert max(before.values()) == 1.0
    assert all(0 < factor <= 1 for factor in before.values())
    tree.usage = {number: usage * times for number, usage in tree.usage.items()}
    assert tree.factors() == before


@given(trees())
def test_all_below_the_better_account_rank_before_all_below_the_worse(tree: Tree) -> None:
    found = tree.fair_tree()
    names = {number: name for name, number in tree.ids.items()}

    def below(number: int) -> list[float]:
        users: list[float] = []
        for one in tree.accounts.children(number):
            users += [found[names[one.id]].factor] if one.user else below(one.id)
        return users

    for number in tree.ids.values():
        accounts = [one for one in tree.accounts.children(number) if not one.user]
        for one in accounts:
            for other in accounts:
                if found[names[one.id]].level_fs > found[names[other.id]].level_fs * (1 + 1e-9):
                    better, worse = below(one.id), below(other.id)
                    if better and worse:
                        assert min(better) > max(worse)


# ---- classic ---------------------------------------------------------------------------------------------------

CLASSIC = (
    ("A", "", 40, 0.45),
    ("D", "", 60, 0.25),
    ("B", "A", 30, 0.2),
    ("C", "A", 10, 0.25),
    ("E", "D", 25, 0.25),
    ("F", "D", 35, 0.0),
    ("u1", "B", 1, 0.2),
    ("u2", "C", 1, 0.25),
    ("u3", "C", 1, 0.0),
    ("u4", "E", 1, 0.25),
    ("u5", "F", 1, 0.0),
)


def test_the_worked_classic_tree() -> None:
    found = Tree(*CLASSIC, root_usage=1.0).classic()
    assert {name: found[name].effective_usage for name in "BCEF"} == {
        "B": pytest.approx(0.3875, abs=1e-9),
        "C": pytest.approx(0.3, abs=1e-9),
        "E": pytest.approx(0.25, abs=1e-9),
        "F": pytest.approx(0.1458333, abs=1e-7),
    }
    assert {name: found[name].factor for name in ("u1", "u2", "u3", "u4", "u5")} == {
        "u1": pytest.approx(0.40847886331027494, abs=1e-9),
        "u2": pytest.approx(0.02209708691207961, abs=1e-9),
        "u3": pytest.approx(0.125, abs=1e-9),
        "u4": pytest.approx(0.5, abs=1e-9),
        # The worked number was computed from an effective usage rounded to eight places.
        "u5": pytest.approx(0.7491535433838041, abs=1e-8),
    }


def test_classic_parent_shares_stand_as_their_parent_does() -> None:
    tree = Tree(("A", "", 1, 30.0), ("B", "", 1, 70.0), ("a", "A", PARENT_SHARES, 30.0), ("b", "B", 0, 70.0))
    found = tree.classic()
    assert (found["a"].norm_shares, found["a"].effective_usage) == (0.5, 0.3)
    assert found["b"].factor == 0.0


def test_depth_oblivious_counts_how_the_parent_stands() -> None:
    found = Tree(*CLASSIC, root_usage=0.7).classic(depth_oblivious=True)
    # Of the first level nothing but its own part counts.
    assert found["A"].effective_usage == pytest.approx(0.45 / 0.7)
    of_parent = found["A"].effective_usage / 0.4
    of_own = (0.2 / 0.7 / 0.3) / ((0.45 / 0.7) / 0.4)
    opposed = 1 / (1 + (5 * math.log(of_parent)) ** 2)
    assert found["B"].effective_usage == pytest.approx(of_parent * of_own**opposed * 0.3)
    assert found["u1"].factor == pytest.approx(found["B"].factor)
    assert found["u3"].effective_usage == 0


def test_flags_choose_the_variant() -> None:
    tree = Tree(*TEST_A)
    user = tree.ids["c2"]
    assert fairshare(tree.accounts, tree.usage)[user] == fair_tree(tree.accounts, tree.usage)[user]
    assert fairshare(tree.accounts, tree.usage, ("NO_FAIR_TREE",))[user] == classic(tree.accounts, tree.usage)[user]
    damped = fairshare(tree.accounts, tree.usage, ("NO_FAIR_TREE",), 2.0)[user]
    assert damped.factor == pytest.approx(math.sqrt(classic(tree.accounts, tree.usage)[user].factor))
    assert fairshare(Accounts(), {}) == {}

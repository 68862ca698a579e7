"""A new association tree: the same associations keep their numbers."""

from __future__ import annotations

import pytest

from ctld.core.accounts import Association, Qos
from ctld.core.apply.sections import dump, load
from ctld.core.commands import ApplyAccounts
from ctld.core.state import State
from muster.errors import InvalidInput
from tests.stage import Stage


def a_tree(*associations: Association, qos: tuple[Qos, ...] = ()) -> ApplyAccounts:
    return ApplyAccounts(associations, qos)


ROOT = Association(1, "root")


def test_the_same_tree_again_is_no_event() -> None:
    stage = Stage(State())
    tree = a_tree(ROOT, Association(2, "a", parent_id=1), qos=(Qos(1, "normal"),))
    assert stage.do(tree)
    assert not stage.do(tree)


def test_associations_keep_their_numbers_and_new_ones_get_new_ones() -> None:
    stage = Stage(State())
    stage.do(a_tree(ROOT, Association(2, "a", parent_id=1), Association(3, "b", parent_id=1)))
    stage.do(
        a_tree(
            ROOT,
            Association(2, "b", parent_id=1),
            Association(3, "c", parent_id=2),
            Association(4, "c", parent_id=3, user="ada"),
        )
    )
    found = {(one.account, one.user): (one.id, one.parent_id) for one in stage.state.accounts.associations.values()}
    assert found == {("root", ""): (1, 0), ("b", ""): (3, 1), ("c", ""): (4, 3), ("c", "ada"): (5, 4)}


def test_children_may_stand_before_their_parents() -> None:
    stage = Stage(State())
    stage.do(a_tree(Association(9, "a", parent_id=5), Association(5, "root")))
    assert [one.account for one in stage.state.accounts.associations.values()] == ["root", "a"]


def test_circles_and_second_roots_are_refused() -> None:
    stage = Stage(State())
    with pytest.raises(InvalidInput, match="below themselves: a, b"):
        stage.do(a_tree(ROOT, Association(2, "a", parent_id=3), Association(3, "b", parent_id=2)))
    with pytest.raises(InvalidInput, match="two roots"):
        stage.do(a_tree(ROOT, Association(2, "other")))


def test_a_checkpoint_keeps_them() -> None:
    stage = Stage(State())
    stage.do(a_tree(ROOT, Association(2, "a", parent_id=1), qos=(Qos(1, "normal"), Qos(2, "high", priority=9))))
    again = load((name, list(records)) for name, records in dump(stage.state))
    assert again.accounts == stage.state.accounts
    assert again.accounts.qos["high"].priority == 9

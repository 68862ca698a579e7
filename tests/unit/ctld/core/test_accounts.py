"""Who is whose parent, and what an association has from above."""

from __future__ import annotations

from ctld.core.accounts import NORMAL, UNSET, Accounts, Association, Limits, Qos

MAXIMA = Limits(max_jobs=4, max_tres_per_job={"cpu": 10, "mem": 5}, grp_jobs=9)
TREE = (
    Association(1, "root", priority=3, qos=("normal", "high")),
    Association(2, "physics", parent_id=1, limits=MAXIMA),
    Association(3, "physics", parent_id=2, user="ada", limits=Limits(max_tres_per_job={"cpu": 2})),
    Association(4, "physics", parent_id=2, user="ada", partition="fast", qos=("+long", "-normal"), default_qos="high"),
    Association(5, "chem", parent_id=1, qos=("long",)),
    Association(6, "chem", parent_id=5, user="ada", default=True),
    Association(7, "chem", parent_id=5, user="bob", priority=7),
)
ACCOUNTS = Accounts(TREE, (Qos(1, "normal"), Qos(2, "high", priority=100)))


def test_finds_the_association_of_the_partition_before_the_general_one() -> None:
    assert ACCOUNTS.find("ada", "physics") is TREE[2]
    assert ACCOUNTS.find("ada", "physics", "fast") is TREE[3]
    assert ACCOUNTS.find("ada", "physics", "slow") is TREE[2]
    assert ACCOUNTS.find("bob", "physics") is None
    assert ACCOUNTS.account("chem") is TREE[4]


def test_the_default_account_is_the_one_marked_else_the_first() -> None:
    assert ACCOUNTS.default_account("ada") == "chem"
    assert ACCOUNTS.default_account("bob") == "chem"
    assert ACCOUNTS.default_account("eve") == ""
    assert not ACCOUNTS.has_user("eve")


def test_a_path_leads_to_the_root() -> None:
    assert [one.id for one in ACCOUNTS.path(4)] == [4, 2, 1]
    assert [one.id for one in ACCOUNTS.children(1)] == [2, 5]


def test_maxima_come_from_above_and_group_limits_do_not() -> None:
    limits = ACCOUNTS.limits(3)
    assert limits.max_jobs == 4
    assert limits.max_tres_per_job == {"cpu": 2, "mem": 5}
    assert limits.grp_jobs == UNSET


def test_qos_lists_replace_or_change_what_comes_from_above() -> None:
    assert ACCOUNTS.allowed_qos(3) == ("normal", "high")
    assert ACCOUNTS.allowed_qos(4) == ("high", "long")
    assert ACCOUNTS.allowed_qos(6) == ("long",)
    assert Accounts((Association(1, "root"),)).allowed_qos(1) == (NORMAL,)


def test_the_default_qos_is_the_nearest_else_one_that_is_allowed() -> None:
    assert ACCOUNTS.default_qos(4) == "high"
    assert ACCOUNTS.default_qos(3) == NORMAL
    assert ACCOUNTS.default_qos(7) == "long"


def test_priorities_come_from_above() -> None:
    assert (ACCOUNTS.priority(3), ACCOUNTS.priority(7)) == (3, 7)
    assert (ACCOUNTS.top_priority, ACCOUNTS.top_qos_priority) == (7, 100)

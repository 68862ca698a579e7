"""No reason is left out: each that the code can give a job that waits is told in words by a test, and by the manual.

In words are those of `CASES` in `test_explained_reasons.py`, and those of limits in `test_explained_limits.py`. With
real daemons `tests/e2e/test_explain.py` shows those of `END_TO_END`, other tests those of `OTHERS_END_TO_END`. The rest
need what a test of seconds does not have: a restart with another configuration, a broken node, or days of usage.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from ctld.core.limits.kinds import AFTER, BEFORE, Kind
from ctld.core.limits.kinds import reason as limit_reason
from muster.states import Reason
from tests.unit.ctld.sched import test_explained_limits
from tests.unit.ctld.sched.test_explained_reasons import CASES

LIMITS_TOLD = {limit_reason(*one) for one in test_explained_limits.CASES}
WAITS = {reason for _, reason, _ in CASES.values()} - LIMITS_TOLD | {Reason.DEADLINE}
"""The deadline is one of those that only a plan that looks ahead finds: it has a test there."""
REFUSED = {
    limit_reason(kind, of_qos)
    for kind, of_qos in (
        (Kind.GRP_SUBMIT_JOBS, False),
        (Kind.GRP_SUBMIT_JOBS, True),
        (Kind.MAX_SUBMIT_JOBS, False),
        (Kind.USER_SUBMIT_JOBS, True),
        (Kind.ACCOUNT_SUBMIT_JOBS, True),
    )
}
"""Nobody waits with these: who would be one job too many is refused."""
NEVER_BROKEN = {limit_reason(*one) for one in test_explained_limits.NEVER} - LIMITS_TOLD
"""Limits of what jobs are not counted by: that they keep nobody is tested there."""
ENDED = {
    Reason.NON_ZERO_EXIT,
    Reason.RAISED_SIGNAL,
    Reason.TIME_LIMIT,
    Reason.OUT_OF_MEMORY,
    Reason.NODE_DOWN,
    Reason.LAUNCH_FAILURE,
}
"""Of jobs that have ended."""
NOT_GIVEN = {Reason.SYSTEM_FAILURE, Reason.INACTIVE_LIMIT}
"""Words that this release has no use for."""
NOT_SHOWN = {Reason.NONE, Reason.ACCOUNTING_POLICY}
"""What stands for no reason; and the reason of a pool without a capacity, in which there is always room."""

END_TO_END = {
    Reason.HELD_USER,
    Reason.BEGIN_TIME,
    Reason.DEPENDENCY,
    Reason.DEPENDENCY_NEVER,
    Reason.ARRAY_LIMIT,
    Reason.PARTITION_TIME_LIMIT,
    Reason.PARTITION_NODE_LIMIT,
    Reason.PARTITION_DOWN,
    Reason.PARTITION_CONFIG,
    Reason.BAD_CONSTRAINTS,
    Reason.MAX_MEMORY,
    Reason.ASSOC_GRP_CPU_LIMIT,
    Reason.QOS_MAX_JOBS_PER_USER_LIMIT,
    Reason.LICENSES,
    Reason.RESOURCES,
    Reason.PRIORITY,
    Reason.DEADLINE,
    Reason.NODE_NOT_AVAIL,
    Reason.RESERVATION,
}
OTHERS_END_TO_END = {
    Reason.HELD_ADMIN: "test_identity",
    Reason.TOPOLOGY_LEVEL: "test_topology",
    Reason.RESERVATION_DELETED: "test_reservations",
}
ROOT = Path(__file__).parents[4]


def reasons_in_the_code() -> set[Reason]:
    """Give the reasons that the controller's code names other than to compare with them, and those of limits."""
    found = {
        limit_reason(kind, of_qos, tres)
        for kind, of_qos in {*test_explained_limits.SAID, (Kind.GRP_SUBMIT_JOBS, True)}
        for tres in (*test_explained_limits.AMOUNTS, *test_explained_limits.NOT_COUNTED)
    }
    for path in (ROOT / "ctld").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        compared = {id(part) for one in ast.walk(tree) if isinstance(one, ast.Compare) for part in ast.walk(one)}
        found |= {
            Reason[one.attr]
            for one in ast.walk(tree)
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "Reason"
            if id(one) not in compared
        }
    return found


def test_every_reason_that_the_code_gives_is_told_in_words() -> None:
    kinds = {**{(kind, False): 0 for kind in AFTER[0]}, **{(kind, True): 0 for kind in AFTER[1]}}
    kinds |= {**{(kind, False): 0 for kind in BEFORE[0]}, **{(kind, True): 0 for kind in BEFORE[1]}}
    assert kinds.keys() == test_explained_limits.SAID.keys()
    told = WAITS | LIMITS_TOLD
    assert reasons_in_the_code() - ENDED - REFUSED - NEVER_BROKEN - NOT_SHOWN == told


def test_every_reason_there_is_has_a_place() -> None:
    places = [WAITS, LIMITS_TOLD, REFUSED, NEVER_BROKEN, ENDED, NOT_GIVEN, NOT_SHOWN]
    assert Counter(reason for place in places for reason in place) == Counter(Reason)


def test_reasons_said_to_be_shown_end_to_end_are() -> None:
    def told(reason: Reason, name: str) -> bool:
        text = (ROOT / "tests" / "e2e" / f"{name}.py").read_text(encoding="utf-8")
        return re.search(rf'"{reason}["\\,]', text) is not None

    places = {**dict.fromkeys(END_TO_END, "test_explain"), **OTHERS_END_TO_END}
    assert [reason for reason, name in places.items() if not told(reason, name)] == []


def test_the_manual_says_of_every_reason_what_helps() -> None:
    text = (ROOT / "docs" / "states.md").read_text(encoding="utf-8")
    assert sorted(reason for reason in WAITS if not re.search(rf"\| [^|]*\b{reason}\b[^|]*\|", text)) == []

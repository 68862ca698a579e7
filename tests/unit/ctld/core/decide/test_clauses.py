from __future__ import annotations

import pytest

from ctld.core.decide.clauses import MAX_CLAUSES, clause_text, parse
from ctld.core.model import Clause
from muster.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "clauses", "any_suffices"),
    [
        ("", (), False),
        ("0", (), False),
        ("afterok:5", (Clause("afterok", 5),), False),
        ("AfterOk:5:6_3", (Clause("afterok", 5), Clause("afterok", 6, 3)), False),
        ("afterok:5_*", (Clause("afterok", 5),), False),
        ("after:5+10", (Clause("after", 5, minutes=10),), False),
        ("afterok:5,singleton", (Clause("afterok", 5), Clause("singleton")), False),
        ("afterok:5?afternotok:6", (Clause("afterok", 5), Clause("afternotok", 6)), True),
        ("5:6", (Clause("afterany", 5), Clause("afterany", 6)), False),
        ("5,5", (Clause("afterany", 5),), False),
        ("afterok:5_*(unfulfilled),singleton(failed)", (Clause("afterok", 5), Clause("singleton")), False),
    ],
)
def test_reads_every_form(text: str, clauses: tuple[Clause, ...], any_suffices: bool) -> None:
    assert parse(text) == (clauses, any_suffices)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("afterwards:5", "unknown type `afterwards`"),
        ("afterok:5,after:6?after:7", "mixes"),
        ("afterok:5+1", "after only"),
        ("singleton:5", "takes no job id"),
        (",afterok:5", "empty part"),
        ("afterok:5_x", "no job id"),
        ("afterok:99999999999", "no job id"),
        ("expand:5", "unknown type `expand`"),
    ],
)
def test_says_what_is_wrong(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    assert (caught.value.sentence, caught.value.slurm_code) == ("Job dependency problem", 2038)
    assert hint in caught.value.hint


def test_a_list_has_a_bound() -> None:
    assert len(parse("afterok:" + ":".join(str(one) for one in range(1, MAX_CLAUSES + 1)))[0]) == MAX_CLAUSES
    with pytest.raises(InvalidInput, match="more than 1000 targets"):
        parse("afterok:" + ":".join(str(one) for one in range(1, MAX_CLAUSES + 2)))


@pytest.mark.parametrize(
    ("clause", "is_array", "text"),
    [
        (Clause("afterok", 5), False, "afterok:5(unfulfilled)"),
        (Clause("afterok", 5), True, "afterok:5_*(unfulfilled)"),
        (Clause("afterany", 5, 3), True, "afterany:5_3(unfulfilled)"),
        (Clause("after", 5, minutes=10), False, "after:5+10(unfulfilled)"),
        (Clause("afterok", 5, failed=True), False, "afterok:5(failed)"),
        (Clause("singleton"), False, "singleton(unfulfilled)"),
    ],
)
def test_prints_what_is_left(clause: Clause, is_array: bool, text: str) -> None:
    assert clause_text(clause, is_array) == text

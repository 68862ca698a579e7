"""Lines of a dump file."""

from __future__ import annotations

import pytest

from muster.config.problems import Problems
from muster.dumpfile import parse


def read(text: str) -> tuple[list[tuple[str, str, dict[str, str]]], list[tuple[str, str, str]]]:
    problems = Problems()
    entries = parse(text, "tux.cfg", problems)
    return (
        [(one.kind, one.name, one.options) for one in entries],
        [(str(place), sentence, hint) for place, sentence, hint in problems.errors],
    )


def test_reads_quoted_and_bare_values() -> None:
    text = """# header
    Cluster - 'tux':Fairshare=1:QOS='normal,high'
    Parent - root
    account - "physics":Description='a: b':GrpTRES=cpu=4,gres/gpu:a100=2:MaxWall=1:00:00
    """
    assert read(text) == (
        [
            ("Cluster", "tux", {"fairshare": "1", "qos": "normal,high"}),
            ("Parent", "root", {}),
            (
                "Account",
                "physics",
                {"description": "a: b", "grptres": "cpu=4,gres/gpu:a100=2", "maxwall": "1:00:00"},
            ),
        ],
        [],
    )


@pytest.mark.parametrize(
    ("line", "sentence", "hint"),
    [
        ("Acount - 'a'", '"Acount" begins no line of a dump file', "did you mean Account?"),
        ("User - 'bob", "a quoted value is not ended", "put the second quotation mark"),
        ("User - ''", "User has no name", ""),
        ("User - bob:Fairshare=1:fairshare=2", "fairshare is given twice", ""),
        ("User - bob:nonsense", '"nonsense" is not Option=value', ""),
    ],
)
def test_a_wrong_line_is_told_with_its_place(line: str, sentence: str, hint: str) -> None:
    _, errors = read(f"Parent - 'root'\n{line}\n")
    assert errors == [("tux.cfg:2", sentence, hint)]

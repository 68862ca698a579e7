"""The format languages: what they read, and that rows are laid out by columns."""

from __future__ import annotations

import pytest

from cli import output

LETTERS: dict[str, tuple[str, str, str]] = {
    "i": ("JOBID", "id", "na"),
    "t": ("TIME", "used", "duration"),
    "z": ("S:C:T", "", "=*"),
}
NAMES: dict[str, tuple[str, str, str]] = {"jobid": LETTERS["i"], "time": LETTERS["t"]}


def shown(text: str, *rows: list[object]) -> str:
    wrong: list[str] = []
    columns = output.parse_letters(text, LETTERS, wrong.append)
    assert wrong == []
    return output.page(columns, ["id", "used"], rows)


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("%i", "JOBID\n7\n"),
        ("%3i|", "JOB|\n7  |\n"),
        ("%.7i", "  JOBID\n      7\n"),
        ("%t", "TIME\n1:01\n"),
        ("%z", "S:C:T\n*\n"),
        ("plain", "plain\nplain\n"),
        ("%all", "JOBID|TIME|S:C:T|\n7|1:01|*|\n"),
        ("%.99999999999i", f"{'JOBID':>65536}\n{'7':>65536}\n"),
    ],
)
def test_letters(text: str, page: str) -> None:
    assert shown(text, [7, 61]) == page


def test_two_percent_signs_are_one_and_an_unknown_letter_stays() -> None:
    unknown: list[str] = []
    columns = output.parse_letters("a%%i%b c", LETTERS, unknown.append)
    assert unknown == ["b"]
    assert output.page(columns, ["id", "used"], [[7, 61]]) == "aJOBID%b c\na7%b c\n"


def test_names_are_read_in_any_case_with_width_side_and_suffix() -> None:
    wrong: list[str] = []
    columns = output.parse_names("JobID:.6|,foo,time:,TIME", NAMES, wrong.append)
    assert wrong == ["foo"]
    assert output.page(columns, ["id", "used"], [[7, 61]]) == (
        " JOBID|TIMETIME                \n     7|1:011:01                \n"
    )


def test_a_table_without_rows_is_its_header_or_nothing() -> None:
    columns = output.parse_letters("%i", LETTERS, print)
    assert output.page(columns, ["id"], []) == "JOBID\n"
    assert output.page(columns, ["id"], [], with_header=False) == ""


def test_what_is_not_set_has_the_word_of_its_kind() -> None:
    columns = output.parse_letters("%i", LETTERS, print)
    assert output.lines(columns, ["id"], [[None], [3]]) == ["N/A", "3"]


def test_equal_values_are_worded_once() -> None:
    asked: list[object] = []

    def word(value: object) -> str:
        asked.append(value)
        return str(value)

    assert output._each(word)([5, 6, 5, 5]) == ["5", "6", "5", "5"]
    assert sorted(asked, key=str) == [5, 6]

"""Options, texts and ends that all commands share."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from cli import base
from muster import errors
from muster.version import VERSION, version_line

LONGS = {
    "account": ("A", base.ARGUMENT),
    "accounts": ("A", base.ARGUMENT),
    "all": ("a", base.NO_ARGUMENT),
    "jobs": ("j", base.OPTIONAL),
    "me": ("me", base.NO_ARGUMENT),
}


def _read(*argv: str) -> tuple[list[tuple[str, str | None]], list[str]]:
    return base.getopt("squeue", argv, "A:aj::h", LONGS)


def test_reads_bundles_glued_values_and_operands_in_any_order() -> None:
    found, rest = _read("x", "-ahA", "lab", "-j5", "y", "-j", "--jobs=7", "--", "-a")
    assert found == [("a", None), ("h", None), ("A", "lab"), ("j", "5"), ("j", None), ("j", "7")]
    assert rest == ["x", "y", "-a"]


def test_takes_a_beginning_that_all_candidates_mean_the_same_by() -> None:
    assert _read("--acc", "lab", "--jo")[0] == [("A", "lab"), ("j", None)]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-Z"], "squeue: invalid option -- 'Z'"),
        (["--foo"], "squeue: unrecognized option '--foo'"),
        (["-A"], "squeue: option requires an argument -- 'A'"),
        (["--account"], "squeue: option '--account' requires an argument"),
        (["--me=1"], "squeue: option '--me' doesn't allow an argument"),
        (["--a"], "squeue: option '--a' is ambiguous; possibilities: '--account' '--accounts' '--all'"),
    ],
)
def test_refuses_in_the_words_of_getopt(argv: list[str], text: str) -> None:
    with pytest.raises(base.Quit) as caught:
        _read(*argv)
    assert caught.value.code == 1
    assert caught.value.lines == (text, 'Try "squeue --help" for more information')


def test_words_a_refusal_of_the_controller_as_the_library_does(capfd: pytest.CaptureFixture[str]) -> None:
    def body(argv: list[str]) -> int:
        raise base.refused("slurm_load_jobs", errors.NotFound("Invalid job id specified", slurm_code=2017))

    assert base.run("squeue", body, []) == 1
    assert capfd.readouterr().err == "slurm_load_jobs error: Invalid job id specified\n"


def test_words_any_other_error_of_the_house_with_its_hint(capfd: pytest.CaptureFixture[str]) -> None:
    def body(argv: list[str]) -> int:
        raise errors.InvalidInput("Invalid thing", "write a better one")

    assert base.run("squeue", body, []) == 1
    assert capfd.readouterr().err == "squeue: error: Invalid thing\nsqueue: write a better one\n"


def test_ends_quietly_when_the_reader_has_left(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    kept = os.dup(1)
    os.dup2(writer, 1)

    def body(argv: list[str]) -> int:
        base.write("x" * 100)
        return 0

    try:
        code = base.run("squeue", body, [])
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(writer)
    assert code == 141
    assert capfd.readouterr().err == ""


def test_a_user_is_a_name_or_a_number() -> None:
    assert base.uid_of("root") == 0
    assert base.uid_of("4711") == 4711
    assert base.uid_of("no-such-user") is None
    assert base.user_name(0) == "root"
    assert base.user_name(4_000_000_001) == "4000000001"


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    assert version_line() == f"slurm 26.05.0 (muster {VERSION})"

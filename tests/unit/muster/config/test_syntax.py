"""Lines, comments, continuation, escapes, pairs and Include."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.config.load import load, parse
from muster.config.problems import Problems
from muster.config.syntax import Line, Source
from muster.errors import ConfigError

HEAD = "ClusterName=c1\nSlurmctldHost=head\n"


def lines_of(text: str) -> list[Line]:
    problems = Problems()
    source = Source(problems)
    source.parse(text, "f", Path())
    problems.raise_if_any()
    return source.lines


def pairs_of(text: str) -> list[tuple[str, str]]:
    return [(pair.key, pair.value) for line in lines_of(text) for pair in line.pairs]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("A=1", [("A", "1")]),
        ("A=1 B=2\tC=3", [("A", "1"), ("B", "2"), ("C", "3")]),
        ("A = 1   B =2 C= 3", [("A", "1"), ("B", "2"), ("C", "3")]),
        ('A="x y" B=2', [("A", "x y"), ("B", "2")]),
        ('A=""', [("A", "")]),
        ("A=1 # B=2", [("A", "1")]),
        ("A=1#B=2", [("A", "1")]),
        ("# all of it", []),
        ("\n  \t\n", []),
        (r"A=a\#b # c", [("A", "a#b")]),
        (r'A="kept for \#12"', [("A", "kept for #12")]),
        (r"A=a\\b", [("A", r"a\b")]),
        (r"A=\x", [("A", "x")]),
        ("A=1 \\\nB=2", [("A", "1"), ("B", "2")]),
        ("A=1 \\  \nB=2", [("A", "1"), ("B", "2")]),
        ("A=ab\\\ncd", [("A", "abcd")]),
        ("A=1 \\ # why\nB=2 # that\nC=3", [("A", "1"), ("B", "2"), ("C", "3")]),
        ("A=1 \\", [("A", "1")]),
        ("A=1\\\\\nB=2", [("A", "1\\"), ("B", "2")]),
        ("A=1\r\nB=2\r\n", [("A", "1"), ("B", "2")]),
        ("A=1 \\\r\nB=2\r\n", [("A", "1"), ("B", "2")]),
        ("A=b=c,d=e", [("A", "b=c,d=e")]),
        ("Prog=/bin/x -a", None),
    ],
)
def test_reads_pairs_as_the_reference_does(text: str, pairs: list[tuple[str, str]] | None) -> None:
    if pairs is None:
        with pytest.raises(ConfigError, match=r"^f:1: Parse error"):
            pairs_of(text)
    else:
        assert pairs_of(text) == pairs


def test_a_comment_begins_inside_quotes_too() -> None:
    with pytest.raises(ConfigError, match="^f:1: Parse error"):
        pairs_of('A="x # y"')


def test_a_logical_line_has_the_number_of_its_first_physical_line() -> None:
    numbers = [line.place.line for line in lines_of("\nA=1 \\\n  B=2 \\\n  C=3\n\nD=4\n")]
    assert numbers == [2, 6]


def test_empty_value_and_operator_are_told_with_a_cure() -> None:
    with pytest.raises(ConfigError, match=r'f:1: A has no value \(write A="" for an empty one\)'):
        pairs_of("A=")
    with pytest.raises(ConfigError, match=r"f:1: A does not take the operator \+= \(write A=\)"):
        pairs_of("A+=1")


def test_keys_are_found_in_any_case() -> None:
    config = parse("CLUSTERNAME=C1\nslurmctldhost=head\nmaxARRAYsize=77\n")
    assert (config.cluster_name, config.controller_host, config.max_array_size) == ("c1", "head", 77)


def test_the_last_of_a_repeated_global_key_wins_with_a_warning() -> None:
    config = parse(HEAD + "KillWait=5\nKillWait=7\n")
    assert config.kill_wait_seconds == 7
    assert config.warnings == ("muster.conf:4: KillWait specified more than once, latest value used",)


def test_prologs_accumulate() -> None:
    config = parse(HEAD + "Prolog=/a\nProlog=/b\nEpilogSlurmctld=/c\n")
    assert (config.prologs, config.controller_epilogs, config.warnings) == (("/a", "/b"), ("/c",), ())


def test_include_is_relative_and_takes_the_cluster_name(tmp_path: Path) -> None:
    (tmp_path / "c1").mkdir()
    (tmp_path / "c1" / "more.conf").write_text("KillWait=9\nINCLUDE last.conf\n")
    # Relative to the main file's directory, also from within an included file.
    (tmp_path / "last.conf").write_text("MinJobAge=8\n")
    (tmp_path / "slurm.conf").write_text("ClusterName=C1\nSlurmctldHost=head\n  include %c/more.conf # site\n")
    config = load(tmp_path, {})
    assert (config.kill_wait_seconds, config.min_job_age_seconds) == (9, 8)


def test_include_with_cluster_name_needs_it_above(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("Include %c.conf\n" + HEAD)
    with pytest.raises(ConfigError, match=r"slurm\.conf:1: Include %c\.conf uses %c before ClusterName is set"):
        load(tmp_path, {})


def test_a_missing_include_fails_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(HEAD + "Include gone.conf\n")
    with pytest.raises(ConfigError, match=r'slurm\.conf:3: "Include" failed, cannot read .*gone\.conf: No such file'):
        load(tmp_path, {})


def test_include_recursion_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(HEAD + "Include slurm.conf\n")
    with pytest.raises(ConfigError, match=r"slurm\.conf:3: Include slurm\.conf is nested more than 16 deep"):
        load(tmp_path, {})


def test_include_fan_out_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(HEAD + "Include empty.conf\n" * 1100)
    (tmp_path / "empty.conf").write_text("")
    with pytest.raises(ConfigError, match="past the bound of 1024 included files"):
        load(tmp_path, {})


def test_a_glob_is_skipped_with_the_reference_text(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(HEAD + "Include conf.d/*.conf\n")
    warning = load(tmp_path, {}).warnings[0]
    assert "slurm.conf:3: Include does not support glob parsing. conf.d/*.conf from " in warning
    assert warning.endswith("will be skipped over")
    (tmp_path / "slurm.conf").write_text(HEAD + "Include conf.d/*.conf\nDebugFlags=GLOB_SILENCE\n")
    assert load(tmp_path, {}).warnings == ()


def test_errors_in_an_included_file_name_that_file(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("\nKillWait=soon\n")
    (tmp_path / "slurm.conf").write_text(HEAD + "Include more.conf\n")
    with pytest.raises(ConfigError, match=r"more\.conf:2: KillWait=\"soon\" is not a whole number"):
        load(tmp_path, {})


def test_bytes_that_are_not_utf8_are_told_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_bytes(HEAD.encode() + b"MailDomain=caf\xe9\n")
    with pytest.raises(ConfigError, match=r"slurm\.conf:3: byte 0xe9 is not UTF-8"):
        load(tmp_path, {})


def test_the_hash_covers_comments_and_includes(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("KillWait=9\n")
    (tmp_path / "slurm.conf").write_text(HEAD + "Include more.conf\n")
    before = load(tmp_path, {}).config_hash
    assert load(tmp_path, {}).config_hash == before
    (tmp_path / "more.conf").write_text("KillWait=9 # so\n")
    assert load(tmp_path, {}).config_hash != before

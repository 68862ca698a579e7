"""Batch scripts: their checks, directives, near misses and late directives."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.batchscript import check_script, find_script, read_script, scan_script, split_words, wrap_script
from muster.options import OptionError, merge, parse_argv, parse_directives, parse_environment

NOON = 1_800_000_000
SHELL = "#!/bin/sh\n"


def words_of(rest: str) -> list[str]:
    return split_words("sbatch", rest, "job.sh", 3)


def directives(text: str) -> list[tuple[int, list[str]]]:
    return scan_script("sbatch", SHELL + text, "job.sh").lines


def warnings_of(text: str) -> list[str]:
    return scan_script("sbatch", SHELL + text, "job.sh").warnings


class TestChecks:
    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b"", ["Batch script is empty!"]),
            (b" \n\t\n", ["Batch script contains only whitespace!"]),
            (
                b"echo\n",
                [
                    "This does not look like a batch script.  The first",
                    "line must start with #! followed by the path to an interpreter.",
                    "For instance: #!/bin/sh",
                ],
            ),
            (
                b"#!/bin/sh\n\0",
                [
                    "The Slurm controller does not allow scripts that",
                    "contain a NULL character '\\0'.",
                ],
            ),
            (
                b"#!/bin/sh\r\necho\n",
                [
                    "Batch script contains DOS line breaks (\\r\\n)",
                    "instead of expected UNIX line breaks (\\n).",
                ],
            ),
        ],
    )
    def test_what_is_no_batch_script_is_refused(self, data: bytes, lines: list[str]) -> None:
        with pytest.raises(OptionError) as caught:
            check_script("sbatch", data, "job.sh")
        assert caught.value.lines == [f"sbatch: error: {line}" for line in lines]
        assert caught.value.exit_code == 1

    def test_the_checks_have_an_order(self) -> None:
        with pytest.raises(OptionError, match="does not look like"):
            check_script("sbatch", b"\0\r\n", "job.sh")
        with pytest.raises(OptionError, match="does not allow"):
            check_script("sbatch", b"#!\0\r\n", "job.sh")

    def test_a_huge_script_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("muster.batchscript.LARGEST_SCRIPT_BYTES", 20)
        (tmp_path / "job.sh").write_text(SHELL + "true\n" * 10)
        with pytest.raises(OptionError) as caught:
            read_script("sbatch", str(tmp_path / "job.sh"), "job.sh")
        assert caught.value.lines == ["sbatch: fatal: Script file job.sh is too large"]

    def test_a_script_is_read_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "job.sh").write_bytes(b"#!/bin/sh\n# \xff\xc3\xa9\n")
        text = read_script("sbatch", str(tmp_path / "job.sh"), "job.sh")
        assert text.encode("utf-8", "surrogateescape") == b"#!/bin/sh\n# \xff\xc3\xa9\n"

    def test_a_missing_script_and_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError) as caught:
            read_script("sbatch", str(tmp_path / "none"), "none")
        assert caught.value.lines == ["sbatch: error: Unable to open file none"]
        with pytest.raises(OptionError, match="Batch script is empty!"):
            read_script("sbatch", str(tmp_path), "folder")

    def test_wrap_builds_the_script(self) -> None:
        assert wrap_script("echo 'x'") == ("#!/bin/sh\n# This script was created by sbatch --wrap.\n\necho 'x'\n")


class TestFinding:
    def test_a_name_is_looked_for_here_and_then_on_the_path(self, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        here.mkdir()
        there.mkdir()
        (there / "job.sh").write_text(SHELL)
        assert find_script("job.sh", str(here), f"/none:{there}") == f"{there}/job.sh"
        (here / "job.sh").write_text(SHELL)
        assert find_script("job.sh", str(here), str(there)) == f"{here}/job.sh"

    def test_a_path_is_taken_as_it_is(self) -> None:
        assert find_script("./job.sh", "/x", "/y") == "./job.sh"
        assert find_script("/z/job.sh", "/x", "/y") == "/z/job.sh"

    def test_a_name_found_nowhere_is_looked_for_here(self, tmp_path: Path) -> None:
        (tmp_path / "job.sh").mkdir()
        assert find_script("job.sh", "/nowhere", str(tmp_path)) == "/nowhere/job.sh"


class TestWords:
    @pytest.mark.parametrize(
        ("rest", "words"),
        [
            (" -J x", ["-J", "x"]),
            ("-J x", ["-J", "x"]),
            ("\t-N2\t-t 5 ", ["-N2", "-t", "5"]),
            (" --comment='a b'", ["--comment=a b"]),
            (' --comment="a b" -H', ["--comment=a b", "-H"]),
            (' pre"mid dle"post', ["premid dlepost"]),
            (r" -J a\ b", ["-J", "a b"]),
            (r" -J a\nb", ["-J", "anb"]),
            (r' -J "a\"b"', ["-J", 'a"b']),
            (r" -J a\#b", ["-J", "a#b"]),
            (" --comment=a#b", ["--comment=a"]),
            (" -J x # rest", ["-J", "x"]),
            (" -J x#rest -N2", ["-J", "x"]),
            (' -J "a#b" -H', ["-J", "a#b", "-H"]),
            (" -J '$HOME'", ["-J", "$HOME"]),
            (" -J ''", ["-J", ""]),
            (' -J "it\'s"', ["-J", "it's"]),
            (" -t 5   # short test", ["-t", "5"]),
            (" # only a remark", []),
            ("", []),
            (" -N2 \\", ["-N2"]),
            (" -d afterok:1:2", ["-d", "afterok:1:2"]),
        ],
    )
    def test_splitting(self, rest: str, words: list[str]) -> None:
        assert words_of(rest) == words

    @pytest.mark.parametrize(
        ("rest", "text"),
        [
            (' -J "a b', 'Unmatched `"` in ["a b]'),
            (" -J 'a", "Unmatched `'` in ['a]"),
            (' pre"mid', 'Unmatched `"` in [pre"mid]'),
            (" -N2 : -N3", "Unexpected `:` in [: -N3]"),
        ],
    )
    def test_what_cannot_be_split(self, rest: str, text: str) -> None:
        with pytest.raises(OptionError) as caught:
            words_of(rest)
        assert caught.value.lines == [f"sbatch: fatal: job.sh: line 3: {text}"]
        assert caught.value.exit_code == 1

    def test_b03_a_name_with_blanks_in_a_directive(self) -> None:
        lines = directives('#SBATCH -o "my file-%j.out"\n')
        assert parse_directives("sbatch", lines, NOON)["output"].text == "my file-%j.out"  # type: ignore[attr-defined]


class TestScan:
    def test_directives_are_found_down_to_the_first_command(self) -> None:
        text = "#SBATCH -N2\n\n  # remark\n#SBATCH-J x\nhostname\n#SBATCH -n4\n"
        assert directives(text) == [(2, ["-N2"]), (5, ["-J", "x"])]

    def test_even_a_colon_is_a_command(self) -> None:
        assert directives(":\n#SBATCH -N2\n") == []

    def test_a_directive_may_be_the_first_line_of_all(self) -> None:
        assert scan_script("sbatch", "#SBATCH -N2", "x").lines == [(1, ["-N2"])]

    def test_a_backslash_at_the_end_does_not_join_lines(self) -> None:
        assert directives("#SBATCH -N2 -J\\\n#SBATCH -n3\n") == [(2, ["-N2", "-J"]), (3, ["-n3"])]

    def test_the_old_word_works_and_is_told(self) -> None:
        found = scan_script("sbatch", SHELL + "#SLURM -N2\n", "job.sh")
        assert found.lines == [(2, ["-N2"])]
        assert found.errors == [
            "Change from #SLURM to #SBATCH in your script and verify the options are valid in sbatch"
        ]

    @pytest.mark.parametrize("word", ["hetjob", "packjob"])
    def test_heterogeneous_jobs_are_refused(self, word: str) -> None:
        with pytest.raises(OptionError) as caught:
            directives(f"#SBATCH -N1\n#SBATCH {word}\n#SBATCH -N2\n")
        assert caught.value.exit_code == 1
        assert "line 3 of the script: heterogeneous jobs" in caught.value.lines[0]
        assert caught.value.lines[1] == (
            "sbatch: error: Batch job submission failed: Requested operation not supported on this system"
        )


class TestN02LateDirectives:
    TEXT = "set -eu\n#SBATCH -t 90\n#SBATCH -A lab\nhostname\n"

    def test_they_have_no_effect_and_are_told_with_their_lines(self) -> None:
        found = scan_script("sbatch", SHELL + self.TEXT, "job.sh")
        assert found.lines == []
        assert found.warnings == ["2 directives after the first command on line 2 are ignored (lines 3, 4)"]
        assert found.late == [3, 4]

    def test_a_single_one(self) -> None:
        assert warnings_of("true\n#SBATCH -t 90\n") == [
            "1 directive after the first command on line 2 is ignored (line 3)"
        ]

    def test_strict_mode_refuses(self) -> None:
        with pytest.raises(OptionError) as caught:
            scan_script("sbatch", SHELL + self.TEXT, "job.sh", strict=True)
        assert caught.value.exit_code == 1
        assert caught.value.lines == [
            "sbatch: error: 2 directives after the first command on line 2 are refused in strict mode"
            " (lines 3, 4); move above the command"
        ]

    @pytest.mark.parametrize("sign", ["<<EOF", "<< 'EOF'", '<<-"EOF"', "<<\\EOF"])
    def test_the_script_that_a_script_writes_is_not_meant(self, sign: str) -> None:
        text = f"cat > inner.sh {sign}\n#!/bin/sh\n#SBATCH -N2\nEOF\nsbatch inner.sh\n"
        assert warnings_of(text) == []
        assert warnings_of(text + "#SBATCH -N3\n") == [
            "1 directive after the first command on line 2 is ignored (line 7)"
        ]

    @pytest.mark.parametrize("line", ["x=$((1<<n))", "let x=1<<2", "cat <<<word", "# see <<EOF"])
    def test_what_only_looks_like_a_here_document(self, line: str) -> None:
        assert len(warnings_of(f"true\n{line}\n#SBATCH -N2\n")) == 1


class TestN03NearMisses:
    @pytest.mark.parametrize("line", ["# SBATCH -t 5", "#SBATCH: -t 5", "#sbatch -t 5", " #SBATCH -t 5", "#Sbatch --x"])
    def test_a_near_miss_is_a_remark_with_a_hint(self, line: str) -> None:
        found = scan_script("sbatch", f"{SHELL}{line}\n#SBATCH -N1\n", "job.sh")
        assert found.lines == [(3, ["-N1"])]
        assert len(found.warnings) == 1
        assert found.warnings[0].startswith(
            "line 2 is a remark, not a directive: write #SBATCH at the start of the line, not '"
        )

    @pytest.mark.parametrize(
        "line",
        [
            "##SBATCH -t 5",
            "# sbatch reads the lines below",
            "# SBATCH",
            "#",
            "#SBATC -t",
            "# -t 5",
            "#     sbatch -N2 job.sh",
        ],
    )
    def test_a_plain_remark_is_passed_over_in_silence(self, line: str) -> None:
        found = scan_script("sbatch", f"{SHELL}{line}\n#SBATCH -N1\n", "job.sh")
        assert found.warnings == []
        assert found.lines == [(3, ["-N1"])]

    def test_a_remark_behind_a_directive_works_and_stray_text_is_named(self) -> None:
        lines = directives("#SBATCH -t 5   # short test\n#SBATCH -J x   (sets the name)\n")
        assert lines[0] == (2, ["-t", "5"])
        with pytest.raises(OptionError) as caught:
            parse_directives("sbatch", lines, NOON)
        assert caught.value.lines == ["sbatch: error: Invalid directive found in batch script: (sets"]


class TestOtherDialects:
    def test_their_lines_are_told_unless_that_is_unwanted(self) -> None:
        text = SHELL + "#PBS -N x\n#BSUB -J y\n#SBATCH -N1\n"
        found = scan_script("sbatch", text, "job.sh")
        assert found.lines == [(4, ["-N1"])]
        assert found.warnings == [
            "2 #PBS or #BSUB lines are not translated by this release of Muster (lines 2, 3);"
            " write #SBATCH, or silence this with --ignore-pbs"
        ]
        assert scan_script("sbatch", text, "job.sh", ignore_pbs=True).warnings == []


def test_n01_from_the_text_of_a_script_to_its_values() -> None:
    text = SHELL + "#SBATCH --nodes=4\n#SBATCH -J inner\nhostname\n"
    script = parse_directives("sbatch", scan_script("sbatch", text, "job.sh").lines, NOON)
    environment = parse_environment("sbatch", {"SBATCH_JOB_NAME": "env"}, NOON)
    argv, rest = parse_argv("sbatch", ["--nodes=2", "job.sh"], NOON)
    assert merge(script, environment, argv) == {"nodes": [2, 2], "job_name": "env"}
    assert rest == ["job.sh"]

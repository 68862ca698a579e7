"""The launchers: what they run, how they name themselves, and that they cost next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster import launchers
from muster.errors import InvalidInput

ECHO = """\
import sys

def main(argv: list[str]) -> int:
    print([sys.argv[0].rpartition("/")[2], *argv, sys.flags.isolated, sys.flags.no_site])
    return 7
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source tree whose squeue prints how it was called."""
    package = tmp_path / "source" / "cli"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "squeue.py").write_text(ECHO)
    (package / "muster.py").write_text("import os\n\n\ndef entry() -> int:\n    return len(os.sep) + 8\n")
    return package.parent


def run(command: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([command, *argv], capture_output=True, text=True, timeout=30, check=False)


def test_a_command_runs_isolated_without_site_and_passes_arguments_and_exit_code_on(
    tmp_path: Path, source: Path
) -> None:
    launchers.write_all(tmp_path / "bin", python=Path(sys.executable), source=source)
    done = run(tmp_path / "bin" / "squeue", "-u", "a b", "*")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "['squeue', '-u', 'a b', '*', 1, 1]\n"


@pytest.mark.parametrize("folder", ["with a blank", "it's", "long" * 40], ids=["blank", "quote", "long"])
def test_a_path_unfit_for_a_shebang_goes_through_the_shell(tmp_path: Path, source: Path, folder: str) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    launchers.write_all(tmp_path / "bin", python=python, source=source)
    done = run(tmp_path / "bin" / "squeue", "x y")
    assert (done.returncode, done.stdout, done.stderr) == (7, "['squeue', 'x y', 1, 1]\n", "")


def test_every_command_and_muster_get_one_executable_file(tmp_path: Path, source: Path) -> None:
    written = launchers.write_all(tmp_path / "bin", python=Path(sys.executable), source=source)
    assert sorted(os.listdir(tmp_path / "bin")) == sorted([*launchers.COMMANDS, "muster"])
    assert all(os.access(path, os.X_OK) for path in written)
    assert run(tmp_path / "bin" / "muster").returncode == 9


def test_writing_again_replaces_what_was_there(tmp_path: Path, source: Path) -> None:
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/false\n")
    launchers.write_all(squeue.parent, python=Path(sys.executable), source=source)
    assert run(squeue).returncode == 7


def test_a_path_with_a_line_break_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'/a\\nb' holds a backslash or a line break"):
        launchers.text("squeue", python=Path(sys.executable), source=Path("/a\nb"))


def test_a_wrong_call_prints_the_usage_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert launchers.main([]) == 2
    assert capsys.readouterr().err == "usage: python -m muster.launchers BINDIR\n"

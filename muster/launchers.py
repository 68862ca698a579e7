"""Writes the commands into a directory of the PATH: `python -m muster.launchers BINDIR`.

A shell loop calls squeue thousands of times, so a command's start is what its users wait for. The
launchers that pip makes run `site` (which reads every .pth file) and import `re`: together they cost
more than the whole command. Ours start Python isolated and without site (`-IS`), put the source tree
first on `sys.path` and import one module; that is 0.3 ms above `python -I -S -c pass`. The price: such a
command sees the standard library and Muster's own code, never site-packages. `muster`, the
administrator's command, uses click and so gets an ordinary launcher.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from muster.errors import InvalidInput

COMMANDS = ("sbatch", "srun", "scancel", "squeue", "sinfo", "scontrol", "sacct", "sprio", "sdiag")
"""The short-lived commands; each is `cli/NAME.py` with `main(argv) -> exit code`."""

WITH_SITE = ("muster",)
"""Commands that need site-packages; each is `cli/NAME.py` with `entry()`."""

SHEBANG_BYTES = 127
"""The longest first line that every Linux takes whole (BINPRM_BUF_SIZE was 128, NUL included, before 5.1)."""


def write_all(bin_dir: Path, *, python: Path, source: Path) -> list[Path]:
    """Write a launcher for every command, each in one atomic step, and return their paths.

    Args:
        bin_dir: where the commands go; made if it is missing.
        python: the interpreter of the environment that holds Muster's dependencies.
        source: the directory with the packages `cli` and `muster`.

    Raises:
        InvalidInput: a path holds a character that no launcher can carry.
    """
    bin_dir.mkdir(parents=True, exist_ok=True)
    written = []
    for name in COMMANDS + WITH_SITE:
        target = bin_dir / name
        draft = bin_dir / f".{name}.{os.getpid()}"
        draft.write_text(text(name, python=python, source=source), encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(target)  # whoever starts the command at this moment finds the old file or the new one
        written.append(target)
    return written


def text(name: str, *, python: Path, source: Path) -> str:
    """Give the launcher of command `name` as the text of its file."""
    for path in (python, source):
        if any(sign in str(path) for sign in "\n\r\\"):
            raise InvalidInput(
                f"the path {str(path)!r} holds a backslash or a line break, which no launcher can carry",
                "move the checkout to a plain path",
            )
    flags, call = ("-I", "entry()") if name in WITH_SITE else ("-IS", "main(sys.argv[1:])")
    return _first_lines(python, flags) + (
        f"import sys\n\nsys.path[:0] = [{str(source)!r}]\n"
        f"from cli.{name} import {call.partition('(')[0]}\n\nsys.exit({call})\n"
    )


def _first_lines(python: Path, flags: str) -> str:
    """Name the interpreter: by a shebang where the kernel can read it, else through /bin/sh."""
    shebang = f"#!{python} {flags}"
    if len(os.fsencode(shebang)) <= SHEBANG_BYTES and not any(sign.isspace() for sign in str(python)):
        return f"{shebang}\n"
    # Read by sh, the second line is `exec PYTHON FLAGS "$0" "$@"`; read by Python, lines two and three are
    # one string. $0 stays the path of this file, so that messages still begin with the command's own name.
    return f"#!/bin/sh\n'''exec' {shlex.quote(str(python))} {flags} \"$0\" \"$@\"\n' '''\n"


def main(argv: list[str]) -> int:
    """Write the launchers of this source tree for this interpreter into the directory given."""
    if len(argv) != 1 or argv[0].startswith("-"):
        print("usage: python -m muster.launchers BINDIR", file=sys.stderr)
        return 2
    source = Path(__file__).resolve().parent.parent
    try:
        written = write_all(Path(argv[0]), python=Path(sys.executable), source=source)
    except (InvalidInput, OSError) as error:
        print(f"launchers: error: {error}", file=sys.stderr)
        return 1
    print(f"{len(written)} commands in {argv[0]}: {' '.join(path.name for path in written)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

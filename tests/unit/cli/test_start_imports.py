"""What a command has loaded when its `main` is about to run: nothing that costs milliseconds.

import-linter sees that a command cannot reach grpc or click at all. It cannot see *when* a module is
imported, and for the small ones of the standard library that is the question: `re` in a rare branch is
fine, `re` at the start costs every call 5 ms. So each command is imported here as its launcher does it,
and `sys.modules` tells.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muster.launchers import COMMANDS

SOURCE = Path(__file__).resolve().parents[3]

FORBIDDEN = (
    "aiohttp",
    "argparse",
    "asyncio",
    "click",
    "collections",
    "cryptography",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "google",
    "grpc",
    "http",
    "inspect",
    "json",
    "logging",
    "msgspec",
    "numpy",
    "pathlib",
    "re",
    "shutil",
    "signal",
    "socket",
    "sqlalchemy",
    "subprocess",
    "tempfile",
    "typing",
)

LOOK = f"""
import sys
sys.path[:0] = [{str(SOURCE)!r}]
from cli.COMMAND import main
print(callable(main), *[name for name in {FORBIDDEN!r} if name in sys.modules])
"""


def modules_of_commands() -> list[str]:
    return [name for name in COMMANDS if (SOURCE / "cli" / f"{name}.py").exists()]


@pytest.mark.parametrize("command", modules_of_commands())
def test_a_command_starts_without_any_slow_module(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOOK.replace("COMMAND", command)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_the_list_of_slow_modules_is_about_modules_that_python_itself_does_not_load() -> None:
    bare = [sys.executable, "-I", "-S", "-c", "import sys; print(*sys.modules)"]
    loaded = subprocess.run(bare, capture_output=True, text=True, timeout=30, check=True).stdout.split()
    assert not set(FORBIDDEN) & set(loaded)

"""The notations are imported by every command, so they must not bring modules that cost start time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEAR = {
    "argparse", "asyncio", "collections", "dataclasses", "datetime", "enum", "functools", "inspect", "json", "logging",
    "pathlib", "re", "shutil", "signal", "socket", "subprocess", "tempfile", "typing",
}  # fmt: skip
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from muster import {name}
print(" ".join(sorted(sys.modules)))
"""


@pytest.mark.parametrize("name", ["hostlist", "idset", "units", "timepoints", "signals"])
def test_a_notation_brings_no_dear_module(name: str) -> None:
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM.format(name=name), str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = set(told.stdout.split())
    assert f"muster.{name}" in loaded
    assert not loaded & DEAR

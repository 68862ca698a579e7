"""Where the recorded workloads are that tests and benchmarks replay; they are no part of the checkout."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def folder() -> Path | None:
    """Find the traces: in MUSTER_TRACES, else in `../shared/traces` beside the checkout's main folder."""
    named = os.environ.get("MUSTER_TRACES")
    found = Path(named) if named else _main_folder().parent / "shared" / "traces"
    return found if found.is_dir() else None


def _main_folder() -> Path:
    """Give the checkout's main folder, also from a linked worktree (whose .git is a file that names it)."""
    link = ROOT / ".git"
    if link.is_file():
        target = Path(link.read_text().partition(":")[2].strip())
        if target.parent.name == "worktrees":
            return target.parents[2]
    return ROOT

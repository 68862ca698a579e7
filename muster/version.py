"""The version of Muster, and the line that `--version` prints (clients of Slurm parse its first two words)."""

from __future__ import annotations

VERSION = "0.1.0"
SLURM_VERSION = "26.05.0"
"""The release whose surface is offered."""


def version_line() -> str:
    """Give `slurm 26.05.0 (muster 0.1.0)`."""
    return f"slurm {SLURM_VERSION} (muster {VERSION})"

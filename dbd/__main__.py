"""`python -m dbd`: the accounting daemon."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dbd.daemon import Accounting, Options
from muster.service import run

_PATH = click.Path(path_type=Path)
_LEVELS = ["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--database", required=True, help="sqlite:///PATH or postgresql://USER@HOST/NAME.")
@click.option("--controller", required=True, help="host:port of ctld.")
@click.option("--certificates", type=_PATH, default=Path("/etc/muster/certs"), show_default=True)
@click.option("--listen", default="127.0.0.1:6819", show_default=True, help="host:port for ctld's questions.")
@click.option("--log", "log_file", type=_PATH, default=None, help="File to log to (default: standard error).")
@click.option("--log-level", type=click.Choice(_LEVELS), default="INFO", show_default=True)
def main(**given: object) -> None:
    """Keep the history of a cluster's jobs: follow ctld, answer sacct."""
    sys.exit(run(Accounting(Options(**given)).live))  # type: ignore[arg-type]  # click has checked them


if __name__ == "__main__":
    main()

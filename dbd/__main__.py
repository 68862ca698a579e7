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
@click.option(
    "--config", type=_PATH, default=None, help="dbd.conf or slurmdbd.conf, or its folder, in place of --database."
)
@click.option("--database", default="", help="sqlite:///PATH or postgresql://USER@HOST/NAME.")
@click.option("--controller", required=True, help="host:port of ctld.")
@click.option("--certificates", type=_PATH, default=Path("/etc/muster/certs"), show_default=True)
@click.option("--listen", default="", help="host:port for ctld's questions (default: DbdPort on the loopback, 6819).")
@click.option("--log", "log_file", type=_PATH, default=None, help="File to log to (default: standard error).")
@click.option("--log-level", type=click.Choice(_LEVELS), default="INFO", show_default=True)
def main(**given: object) -> None:
    """Keep the history of a cluster's jobs: follow ctld, answer sacct."""
    sys.exit(run(Accounting(Options(**given)).live))  # type: ignore[arg-type]  # click has checked them


if __name__ == "__main__":
    main()

"""`python -m ctld`: the central controller daemon."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ctld.daemon import Controller, Options
from muster.service import run

PATH = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", type=PATH, help="muster.conf or slurm.conf, or its folder (else MUSTER_CONF, /etc/muster).")
@click.option("--socket", type=PATH, default=Path("/run/muster/sock"), show_default=True, help="The commands' socket.")
@click.option("--certificates", type=PATH, default=Path("/etc/muster/certs"), show_default=True)
@click.option("--state-dir", type=PATH, help="Where the journal lies (else StateSaveLocation).")
@click.option("--listen", default="", help="host:port for nodes and dbd (default 127.0.0.1:SlurmctldPort).")
@click.option("--accounting", default="", help="host:port of dbd (default as configured).")
@click.option("--log", "log_file", type=PATH, help="Log file (default: standard error).")
def main(**given: object) -> None:
    """Hold the queue and the node table, schedule, and answer the commands."""
    sys.exit(run(Controller(Options(**given)).live))  # type: ignore[arg-type]  # click has checked them


if __name__ == "__main__":
    main()

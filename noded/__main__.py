"""`python -m noded`: the node agent."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from noded.daemon import Options, main
from noded.hardware import Sizes

_FILE = click.Path(path_type=Path)


@click.command(name="noded")
@click.option("--name", required=True, help="Name of the node.")
@click.option("--controller", required=True, metavar="HOST:PORT", help="Where ctld listens for nodes.")
@click.option("--certificates", required=True, type=_FILE, help="Folder of certificates.")
@click.option("--spool", required=True, type=_FILE, help="Folder of this node's steps; kept over restarts.")
@click.option("--socket", required=True, type=_FILE, help="Local socket for commands on this host.")
@click.option("--port", default=0, show_default="a free one", help="Port for other agents.")
@click.option("--addr", default="", help="Address for other agents.  [default: the one that leads to the controller]")
@click.option("--cpus", default=0, show_default="found", help="CPUs of a virtual node.")
@click.option("--sockets", default=0, show_default="found", help="Its sockets.")
@click.option("--cores", default=0, show_default="found", help="Its cores a socket.")
@click.option("--threads", default=0, show_default="found", help="Its threads a core.")
@click.option("--memory", default=0, show_default="found", help="Its memory, MiB.")
@click.option("--tmp", default=0, show_default="found", help="Its temporary disk, MiB.")
@click.option("--gpus", default="", metavar="TYPE:COUNT|FILE", help="Its GPUs.  [default: those that the driver lists]")
@click.option("--config", default="", help="Path for SLURM_CONF in jobs.")
@click.option("--cgroup", default="auto", show_default=True, metavar="auto|off|FOLDER", help="Control groups.")
@click.option("--log", type=_FILE, default=None, help="Log file.  [default: standard error]")
def command(  # noqa: PLR0917 (click gives them by name)
    name: str,
    controller: str,
    certificates: Path,
    spool: Path,
    socket: Path,
    port: int,
    addr: str,
    cpus: int,
    sockets: int,
    cores: int,
    threads: int,
    memory: int,
    tmp: int,
    gpus: str,
    config: str,
    cgroup: str,
    log: Path | None,
) -> None:
    """Run the agent of one node."""
    options = Options(
        name=name,
        controller=controller,
        certificates=certificates,
        spool=spool.absolute(),
        socket=socket.absolute(),
        port=port,
        addr=addr,
        sizes=Sizes(cpus=cpus, sockets=sockets, cores=cores, threads=threads, memory_mib=memory, tmp_mib=tmp),
        gpus=gpus,
        config=config,
        cgroup=cgroup,
        log_file=log,
    )
    sys.exit(main(options))


if __name__ == "__main__":
    command()

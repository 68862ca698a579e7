"""muster: the administrator's command."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from cli.cluster import Cluster, Plan, default_folder
from muster import auth, hostlist
from muster.errors import MusterError, Unavailable
from muster.version import VERSION

FOLDER = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The cluster's folder (~/.muster).",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="muster %(version)s")
def cli() -> None:
    """Start, stop and examine a Muster cluster on this host."""


@cli.command()
@FOLDER
@click.option("--name", default="muster", show_default=True, help="ClusterName.")
@click.option("--nodes", type=click.IntRange(1, 200), default=4, show_default=True, help="Virtual nodes.")
@click.option("--cpus", type=click.IntRange(1, 4096), default=96, show_default=True, help="CPUs of each.")
@click.option("--memory", type=click.IntRange(1), default=262144, show_default=True, help="MiB of each.")
@click.option("--gpus", default="h100:8", show_default=True, help="GPUs of each as TYPE:COUNT; none for none.")
@click.option("--accounting/--no-accounting", default=True, show_default=True, help="Start dbd, too.")
@click.option("--database", default="", help="Database URL for dbd (default: SQLite in the folder).")
@click.option("--config-lines", type=click.File(), help="A file with more lines for muster.conf.")
@click.option("--cgroup", default="off", show_default=True, help="auto, off, or a folder of a cgroup v2 tree.")
def up(folder: Path | None, **given: object) -> None:
    """Start a cluster of virtual nodes, or start again the one that the folder has."""
    cluster = Cluster(folder or default_folder())
    known = cluster.plan()
    lines = given.pop("config_lines")
    plan = Plan(
        name=str(given["name"]),
        nodes=int(str(given["nodes"])),
        cpus=int(str(given["cpus"])),
        memory_mib=int(str(given["memory"])),
        gpus="" if given["gpus"] == "none" else str(given["gpus"]),
        accounting=bool(given["accounting"]),
        database=str(given["database"]),
        cgroup=str(given["cgroup"]),
        extra=lines.read() if lines is not None else "",  # type: ignore[attr-defined]
    )
    if known is not None and _asked_otherwise():
        click.echo(
            f"muster: {cluster.folder} has a cluster already; its own settings hold "
            f"(edit {cluster.config}, or name another --dir)",
            err=True,
        )
    cluster.up(plan, lambda line: click.echo(f"  {line}", err=True))
    click.echo(f"{'cluster up' if known is None else 'cluster up again'}: {cluster.folder}", err=True)
    if _needs_socket(cluster):
        click.echo(f"export MUSTER_SOCKET={shlex.quote(str(cluster.socket))}")


@cli.command()
@FOLDER
@click.option("--keep-jobs", is_flag=True, help="Leave running jobs alive; they are found again by `muster up`.")
def down(folder: Path | None, keep_jobs: bool) -> None:
    """Cancel the jobs and stop the cluster; state and history stay in its folder."""
    cluster = Cluster(folder or default_folder())
    cluster.down(lambda line: click.echo(f"  {line}", err=True), keep_jobs=keep_jobs)
    click.echo(f"cluster down: {cluster.folder}", err=True)


@cli.command()
@FOLDER
def status(folder: Path | None) -> None:
    """Say what runs: daemons, nodes, jobs. Exit code 1 when something does not."""
    cluster = Cluster(folder or default_folder())
    plan = cluster.plan()
    if plan is None:
        raise Unavailable(f"there is no cluster in {cluster.folder}", "`muster up` makes one")
    missing = 0
    for daemon in cluster.daemons(plan):
        pid = cluster.pid(daemon)
        missing += not pid
        click.echo(f"{daemon:10} {'up, pid ' + str(pid) if pid else 'down'}")
    if cluster.pid("ctld"):
        found = cluster.client().call("GET", "/v1/status")
        away = [node["name"] for node in found["nodes"] if not node["connected"]]
        missing += len(away)
        click.echo(f"nodes      {len(found['nodes'])}, not connected: {', '.join(away) or 'none'}")
        click.echo(f"jobs       {found['running']} running, {found['pending']} pending")
        planner = found["planner"]
        said = f"up, pid {planner['pid']}, {planner['planned']} jobs planned" if planner["pid"] else "not running"
        click.echo(f"planner    {said}")
        if found["accounting_configured"]:
            click.echo(f"accounting {'connected' if found['accounting'] else 'not connected'}")
    sys.exit(1 if missing else 0)


@cli.command()
@FOLDER
def doctor(folder: Path | None) -> None:
    """Check this host and the cluster, and name the cure of each fault. Exit code 1 when one is found."""
    from cli.doctor import examine

    faults = 0
    for check in examine(Cluster(folder or default_folder())):
        faults += check.fault
        click.echo(f"{'FAULT' if check.fault else 'ok   '} {check.what}")
        if check.cure:
            click.echo(f"      {check.cure}")
    sys.exit(1 if faults else 0)


@cli.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True}, short_help="Try a configuration."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sim(arguments: tuple[str, ...]) -> None:
    """Replay a recorded workload in virtual time on a configuration; `muster sim --help` says more."""
    # Programs meet only on the wire or as processes: the simulator is a part of the controller.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "ctld.sim", *arguments])


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("nodes", nargs=-1)
def certificates(folder: Path, nodes: tuple[str, ...]) -> None:
    """Make a private authority in FOLDER, unless it is there, and certificates for ctld, dbd and the NODES.

    NODES are node names or host lists (gpu[1-8]). Each node's agent needs ca.crt and compute-NAME.crt and .key;
    ca.key stays where it is.
    """
    names = [name for text in nodes for name in hostlist.expand(text)]
    auth.create_authority(folder)
    made = [auth.issue(folder, "controller", "ctld"), auth.issue(folder, "accounting", "dbd")]
    made += [auth.issue(folder, "compute", name) for name in names]
    for identity in made:
        click.echo(identity.certificate)


def _asked_otherwise() -> bool:
    """Tell whether this `muster up` names settings that an existing cluster does not take."""
    context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    return any(context.get_parameter_source(name) == source for name in context.params if name != "folder")


def _needs_socket(cluster: Cluster) -> bool:
    from muster.client import socket_path

    return os.path.realpath(socket_path()) != os.path.realpath(cluster.socket)


def entry() -> None:
    """Run the command; an error of the house is one line and exit code 1."""
    try:
        cli(standalone_mode=True)
    except MusterError as error:
        click.echo(f"muster: error: {error.sentence}", err=True)
        if error.hint:
            click.echo(f"muster: {error.hint}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    entry()

"""`python -m ctld.sim`, which `muster sim` runs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import click

from ctld.sim import picture, report
from ctld.sim.figures import Figures, figures
from ctld.sim.machine import Machine, from_file, from_nodes, plain
from ctld.sim.reading import FORMS, read_trace
from ctld.sim.replay import Outcome, Progress, replay
from ctld.sim.workload import Trace, first_jobs, with_exact_limits, with_load
from muster.config.nodes import MAX_GPUS, MAX_NODES
from muster.errors import InvalidInput, MusterError

FILE = click.Path(path_type=Path, dir_okay=False)
CONF = click.Path(path_type=Path)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"WORKLOAD is {FORMS}.",
)
@click.argument("workload", type=FILE)
@click.option("--config", type=CONF, help="muster.conf or slurm.conf, or its folder: cluster and policy.")
@click.option("--compare", type=(CONF, CONF), metavar="A.conf B.conf", help="Replay on both, side by side.")
@click.option("--machine", type=click.Choice(["trace", "config"]), help="Whose nodes (default: the configuration's).")
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), help="So many equal nodes instead.")
@click.option("--cpus", type=click.IntRange(1, 1_000_000), help="CPUs of each.")
@click.option("--gpus", type=click.IntRange(0, MAX_GPUS), default=0, help="GPUs of each.")
@click.option("--memory", type=click.IntRange(1), help="MiB of each (else memory is not looked at).")
@click.option("--limits", type=click.Choice(["asked", "exact"]), default="asked", show_default=True,
              help="exact: the true run times as time limits.")  # fmt: skip
@click.option("--scale-load", type=click.FloatRange(0.01, 100), default=1.0, show_default=True,
              help="Leave jobs out, or have some come twice.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses the jobs of --scale-load.")
@click.option("--first", type=click.IntRange(1), help="Only the first so many jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--jobs", "jobs_file", type=FILE, help="Write a csv row for each job (of A, when comparing).")
@click.option("--svg", type=FILE, help="Draw use, queue and nodes over time (needs matplotlib).")
@click.option("--png", type=FILE, help="The same as PNG.")
def main(workload: Path, **given: object) -> None:
    """Replay a recorded WORKLOAD in virtual time and say how it would have been scheduled."""
    try:
        _run(workload, given)
    except MusterError as error:
        click.echo(f"muster sim: error: {error.sentence}", err=True)
        if error.hint:
            click.echo(f"muster sim: {error.hint}", err=True)
        sys.exit(1)


def _run(workload: Path, given: dict[str, object]) -> None:
    drawings = [path for path in (given["svg"], given["png"]) if isinstance(path, Path)]
    for path in drawings:
        picture.check(path)
    trace = _changed(read_trace(workload), given)
    machines = _machines(trace, given)
    outcomes = [replay(machine, trace.jobs, _progress()) for machine in machines]
    found = [figures(machine, outcome) for machine, outcome in zip(machines, outcomes, strict=True)]
    if isinstance(given["jobs_file"], Path):
        _write(given["jobs_file"], lambda path: _write_jobs(path, outcomes[0], machines[0]))
    for path in drawings:
        _write(path, lambda path: picture.draw(path, machines[0], outcomes[0], f"{trace.name} on {machines[0].name}"))

    _print(trace, machines, found, as_json=bool(given["as_json"]))


def _changed(trace: Trace, given: dict[str, object]) -> Trace:
    """Cut, thin, or correct the workload as asked."""
    first, factor, seed = given["first"], given["scale_load"], given["seed"]
    assert isinstance(factor, float) and isinstance(seed, int)
    if isinstance(first, int):
        trace = first_jobs(trace, first)
    if math.isnan(factor):
        raise InvalidInput("--scale-load is no number", "write for example 1.2")
    if factor != 1.0:
        trace = with_load(trace, factor, seed)
    return with_exact_limits(trace) if given["limits"] == "exact" else trace


def _machines(trace: Trace, given: dict[str, object]) -> list[Machine]:
    """Give the cluster to replay on, or both when comparing."""
    config, compare, nodes, cpus = given["config"], given["compare"], given["nodes"], given["cpus"]
    if config is not None and compare is not None:
        raise InvalidInput("--config and --compare were both given", "--compare names both configurations by itself")
    if (nodes is None) != (cpus is None):
        raise InvalidInput("--nodes and --cpus belong together", "for example --nodes 60 --cpus 64 --gpus 8")
    if nodes is not None and given["machine"] is not None:
        raise InvalidInput("--nodes and --machine contradict each other", "give one of them")
    if nodes is None and (given["gpus"] or given["memory"] is not None):
        raise InvalidInput("--gpus and --memory say what each of --nodes has", "add --nodes and --cpus")
    if given["machine"] == "config" and config is None and compare is None:
        raise InvalidInput("--machine config needs a configuration", "name it with --config FILE")
    policies: tuple[Path | None, ...] = (config if isinstance(config, Path) else None,)
    if isinstance(compare, tuple):
        policies = compare
    made = []
    for policy in policies:
        if isinstance(nodes, int) and isinstance(cpus, int):
            gpus, memory = given["gpus"], given["memory"]
            made.append(plain(nodes, cpus, gpus if isinstance(gpus, int) else 0, memory if isinstance(memory, int) else 0, policy))  # fmt: skip  # noqa: E501
        elif policy is not None and given["machine"] != "trace":
            made.append(from_file(policy))
        else:
            made.append(from_nodes(trace.nodes, trace.name, policy))
    return made


def _print(trace: Trace, machines: list[Machine], found: list[Figures], *, as_json: bool) -> None:
    if as_json:
        replays = [
            {"cluster": machine.name, "nodes": len(machine.command.nodes), "cpus": machine.cpus, "gpus": machine.gpus,
             **one.as_json()}
            for machine, one in zip(machines, found, strict=True)
        ]  # fmt: skip
        click.echo(json.dumps({"workload": trace.name, "left_out": dict(trace.dropped), "replays": replays}, indent=2))
        return
    names = [f"{one.name}: {len(one.command.nodes)} nodes, {one.cpus} CPUs, {one.gpus} GPUs" for one in machines]
    if len(found) == 1:
        click.echo(report.table(found[0], name=trace.name, machine=names[0]))
    else:
        click.echo(report.comparison(found[0], found[1], name=trace.name, machines=names))
    if trace.dropped:
        click.echo("\nleft out   " + ", ".join(f"{count} {why}" for why, count in trace.dropped.items()))


def _write_jobs(path: Path, outcome: Outcome, machine: Machine) -> None:
    with path.open("w", newline="") as file:
        report.write_jobs(file, outcome, machine)


def _write(path: Path, write: Callable[[Path], None]) -> None:
    try:
        write(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", "name a file in a folder of yours") from error


def _progress() -> Progress | None:
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, size: int) -> None:
        width = 40
        filled = width * done // max(1, size)
        end = "\n" if done == size else ""
        sys.stderr.write(f"\r[{'#' * filled}{'.' * (width - filled)}] {done}/{size} jobs{end}")
        sys.stderr.flush()

    return show


if __name__ == "__main__":
    main(prog_name="muster sim")

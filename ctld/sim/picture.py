"""A picture of a replay: use of CPUs and GPUs over time, the queue, and which job was on which node when.

Needs matplotlib, which Muster does not bring along: `pip install muster[sim]`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ctld.sim.figures import busy_steps, queue_steps
from ctld.sim.machine import Machine
from ctld.sim.replay import Outcome
from muster.errors import InvalidInput, Unavailable

MOST_BARS = 20_000
"""Bars in the Gantt part: the longest ones, beyond that nothing could be told apart."""
FORMS = (".svg", ".png", ".pdf")


def check(path: Path) -> None:
    """Say before a long replay what would keep the picture from being made.

    Raises:
        InvalidInput: a form that cannot be written. Unavailable: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMS:
        raise InvalidInput(f"{path}: a picture is a {', '.join(FORMS)} file", "give its name such an ending")
    _pyplot()


def draw(path: Path, machine: Machine, outcome: Outcome, title: str) -> None:
    """Write the picture."""
    pyplot = _pyplot()
    figure, (use, queue, gantt) = pyplot.subplots(
        3, 1, figsize=(14, 12), sharex=True, height_ratios=(2, 1, 3), layout="constrained"
    )
    first = outcome.jobs[0].submitted_at if outcome.jobs else 0

    def hours(times: list[int]) -> list[float]:
        return [(at - first) / 3600 for at in times]

    for unit, whole, amounts in (("CPUs", machine.cpus, outcome.cpus), ("GPUs", machine.gpus, outcome.gpus)):
        if whole:
            times, used = busy_steps(outcome, amounts.__getitem__)
            use.step(hours(times), [100 * one / whole for one in used], where="post", linewidth=0.8, label=unit)
    use.set_ylabel("in use, %")
    use.set_ylim(0, 102)
    use.legend(loc="lower right")
    use.set_title(title)
    times, waiting = queue_steps(outcome)
    queue.step(hours(times), waiting, where="post", linewidth=0.8, color="tab:red")
    queue.set_ylabel("waiting jobs")
    _gantt(gantt, machine, outcome, first)
    began = datetime.fromtimestamp(first, UTC).strftime("%Y-%m-%d %H:%M")
    gantt.set_xlabel(f"hours since {began} UTC")
    figure.savefig(path)
    pyplot.close(figure)


def _gantt(axes: Any, machine: Machine, outcome: Outcome, first: int) -> None:
    """A lane for each node; a job's bar is as high as its part of the node."""
    nodes = machine.command.nodes
    bars: list[tuple[int, int, int, int, int]] = []
    for place, shares in enumerate(outcome.shares):
        start, end = outcome.start[place], outcome.end[place]
        if end > start >= 0:
            for share in shares:
                lowest = share.cores[0] if share.cores else 0
                bars.append((end - start, start, share.node, lowest, share.cpus + (place << 20)))
    bars.sort(reverse=True)
    colours = ["tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "tab:cyan"]
    left, width, bottom, height, colour = [], [], [], [], []
    for length, start, node, lowest, packed in bars[:MOST_BARS]:
        place, cpus = packed >> 20, packed & 0xFFFFF
        whole = nodes[node].cpus
        left.append((start - first) / 3600)
        width.append(length / 3600)
        bottom.append(node + 0.95 * min(lowest / whole, 1))
        height.append(0.95 * cpus / whole)
        colour.append(colours[place % len(colours)])
    axes.bar(left, height, width, bottom, align="edge", color=colour, linewidth=0)
    axes.set_ylim(0, len(nodes))
    axes.set_ylabel("node")
    shown = range(0, len(nodes), max(1, len(nodes) // 16))
    axes.set_yticks([node + 0.5 for node in shown], [nodes[node].name for node in shown], fontsize="small")


def _pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise Unavailable(
            "a picture needs matplotlib, which is not installed", "pip install matplotlib, or leave --svg and --png out"
        ) from error
    return pyplot

"""`--place` and `--bundle` (beyond.md B14) by the options that mean the same."""

from __future__ import annotations

from muster.errors import InvalidInput
from muster.placement import parse_bundle

_SAID_BY = {
    "": ("ntasks", "cpus_per_task", "cpus_per_gpu", "ntasks_per_gpu", "tres_per_task"),
    "gpus": ("gpus", "gpus_per_node", "gpus_per_socket", "gpus_per_task", "gres"),
    "mem": ("mem", "mem_per_cpu", "mem_per_gpu"),
}
"""What a bundle, and each of its resources, says already."""


def as_options(values: dict[str, object]) -> None:
    """Replace `place` and `bundle` in the values of a command. A bundle is a task; its memory is asked for by CPU.

    Raises:
        InvalidInput: another option says something else about the same.
    """
    text, place = values.pop("bundle", None), values.pop("place", None)
    if text is not None:
        _bundles(str(text), values)
    if place is not None:
        _place(str(place), values)


def _bundles(text: str, values: dict[str, object]) -> None:
    count, has = parse_bundle(text)
    for key in [key for part in ("", *has) for key in _SAID_BY.get(part, ())]:
        if key in values:
            raise InvalidInput(f"--bundle says what each task has: leave --{key.replace('_', '-')} out")
    cpus = int(has.get("cpus", 1))
    values["ntasks"] = count
    values["cpus_per_task"] = cpus
    if "gpus" in has:
        values["gpus_per_task"] = has["gpus"]
    if "mem" in has:
        values["mem_per_cpu"] = -(-int(has["mem"]) // cpus)


def _place(word: str, values: dict[str, object]) -> None:
    if "ntasks" not in values and not {"gpus", "gpus_per_task"} <= values.keys():
        raise InvalidInput(f"--place={word} says where tasks go: say how many there are with --ntasks or --bundle")
    nodes, cap = values.get("nodes"), values.get("ntasks_per_node")
    if word == "strict-pack":
        if isinstance(nodes, dict) or (isinstance(nodes, list) and nodes[0] > 1):
            raise InvalidInput("--place=strict-pack is one node: leave --nodes out")
        values["nodes"] = [1, 1]
    elif word == "strict-spread":
        if cap not in (None, 1):
            raise InvalidInput(f"--place=strict-spread is one task on a node, --ntasks-per-node={cap} is asked for")
        values["ntasks_per_node"] = 1
    elif word == "pack":
        if values.get("spread_job"):
            raise InvalidInput("--place=pack takes few nodes, --spread-job many: leave one of them out")
        values["use_min_nodes"] = True
    else:
        if values.get("use_min_nodes"):
            raise InvalidInput("--place=spread takes many nodes, --use-min-nodes few: leave one of them out")
        values["spread_job"] = True

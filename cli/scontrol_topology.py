"""`scontrol show topology [NAME] [unit=UNITS] [node=NODES]`: switches and blocks, a line each."""

from __future__ import annotations

from typing import Any

from cli import base
from muster import client, hostlist


def show(arguments: list[str]) -> int:
    """Print what is asked for; nothing where the network is flat, as the reference does."""
    name, units, nodes = "", None, None
    for argument in arguments:
        word, equals, value = argument.partition("=")
        if equals and word.lower() == "unit":
            units = set(hostlist.expand(value))
        elif equals and word.lower() == "node":
            nodes = set(hostlist.expand(value))
        elif not equals and not name:
            name = argument
        else:
            raise base.Quit(1, f"unexpected argument for show topology: {argument}")
    found: list[dict[str, Any]] = client.call("GET", "/v1/topology")["topologies"]
    if name and name not in [one["name"] for one in found]:
        known = ", ".join(one["name"] for one in found) or "none"
        raise base.Quit(1, f"Topology {name} not found; configured: {known}")
    lines = [
        _line(one["kind"], unit)
        for one in found
        if name in ("", one["name"])
        for unit in one["units"]
        if (units is None or unit["name"] in units)
        and (nodes is None or not nodes.isdisjoint(hostlist.expand(unit["nodes"])))
    ]
    if not lines and (units is not None or nodes is not None):
        raise base.Quit(1, "no switch or block of the topology has what was asked for")
    base.write("".join(lines))
    return 0


def _line(kind: str, unit: dict[str, Any]) -> str:
    if kind == "tree":
        below = f" Switches={unit['switches']}" if unit["switches"] else ""
        return f"SwitchName={unit['name']} Level={unit['level']} LinkSpeed=1 Nodes={unit['nodes']}{below}\n"
    if kind == "ring":
        return f"RingName={unit['name']} RingIndex={unit['index']} Nodes={unit['nodes']}\n"
    return f"BlockName={unit['name']} BlockIndex={unit['index']} Nodes={unit['nodes']} BlockSize={unit['size']}\n"

"""What `--json` prints: the payload in the envelope of Slurm's newest data shape."""

from __future__ import annotations

import os

from cli import base
from muster.version import SLURM_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHAPE = "data_parser/v0.0.45"
_FLAGS = ("complex", "fast", "prefer_refs")
"""Flags behind the shape that change nothing here: what they would add or leave out, no answer has."""


def number(value: int) -> dict[str, Any]:
    """Give a number as an object that could also be unset or infinite."""
    return {"set": True, "infinite": False, "number": value}


def list_asked(command: str, shape: str | None) -> bool:
    """Read the value of --json: print the shapes for `list` and give True; False: the payload is wanted.

    Raises:
        Quit: another shape is asked for.
    """
    if shape == "list":
        base.say("Possible data_parser plugins:")
        base.write(SHAPE + "\n")
        return True
    name, *flags = (shape or SHAPE).split("+")
    if name.removeprefix("data_parser/") not in ("v0.0.45", "latest") or any(flag not in _FLAGS for flag in flags):
        raise base.Quit(
            1,
            f"{command}: error: cannot find data_parser plugin {shape}: `{command} --json=list` names those there are",
            f"{command}: error: application/json output not supported by {SHAPE}",
        )
    return False


def page(payload: dict[str, Any], argv: list[str], cluster: str) -> str:
    """Give the whole document: the payload, then meta, errors and warnings."""
    import json

    document = {**payload, "meta": _meta(argv, cluster), "errors": [], "warnings": []}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _meta(argv: list[str], cluster: str) -> dict[str, Any]:
    terminal = os.isatty(1)
    major, minor, micro = SLURM_VERSION.split(".")
    return {
        "plugin": {
            "type": "openapi/slurmctld" if terminal else "",
            "name": "Slurm OpenAPI slurmctld" if terminal else "",
            "data_parser": SHAPE,
            "accounting_storage": "",
        },
        "client": {
            "source": os.ttyname(1) if terminal else "",
            "user": base.user_name(os.getuid()),
            "group": _group_name(os.getgid()),
        },
        "command": argv,
        "slurm": {
            "version": {"major": major, "micro": micro, "minor": minor},
            "release": SLURM_VERSION,
            "cluster": cluster,
        },
    }


def _group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)

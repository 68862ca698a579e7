"""Equal parts of job specs are kept once: a hundred thousand jobs of one user share name, paths and
request."""

from __future__ import annotations

from operator import attrgetter
from typing import TypeVar

from msgspec import structs

from ctld.core.model import JobSpec
from ctld.core.state import State

T = TypeVar("T")

_MOST = 65_536
"""Most parts kept; at the bound the table starts anew (what jobs share already stays shared)."""

_PARTS = (
    "name",
    "user",
    "group",
    "work_dir",
    "request",
    "partitions",
    "account",
    "qos",
    "std_in",
    "std_out",
    "std_err",
    "command",
    "submit_line",
    "submit_host",
    "comment",
    "wckey",
    "export",
    "script_args",
    "signal",
)
_parts_of = attrgetter(*_PARTS)


def interned(state: State, spec: JobSpec) -> JobSpec:
    """Give an equal spec whose parts are shared with those of other jobs where they are equal."""
    table = state.interned
    if len(table) > _MOST:
        table.clear()
    same: dict[str, object] = {}
    for name, value in zip(_PARTS, _parts_of(spec), strict=True):
        if value:
            kept = table.setdefault(value, value)
            if kept is not value:
                same[name] = kept
    for name in ("rlimits", "echo"):
        value = getattr(spec, name)
        kept = table.setdefault((dict, tuple(value.items())), value)
        if kept is not value:
            same[name] = kept
    return structs.replace(spec, **same) if same else spec

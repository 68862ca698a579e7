"""Equal parts of records are kept once: a hundred thousand jobs of one user share name, paths and request.

A record that was read from the journal, or from a request, has a copy of its own of each part, and a number above 256
is an object of 32 bytes too.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import structs

from ctld.core.model import Allocation, Job, JobSpec, NodeShare
from ctld.core.state import State

T = TypeVar("T", bound=int)

_MOST = 65_536
"""Most parts kept; at the bound the table starts anew (what jobs share already stays shared)."""
_MOST_OWN = 4096
"""Most of those that mostly are a job's own, and are shared with the jobs submitted shortly before at best."""


def _places(*names: str) -> tuple[int, ...]:
    return tuple(JobSpec.__struct_fields__.index(name) for name in names)


_PARTS = _places(
    *("user", "group", "uid", "gid", "work_dir", "request", "partitions", "account", "qos", "std_in", "std_out"),
    *("std_err", "command", "submit_line", "submit_host", "sid", "comment", "wckey", "export", "script_args", "signal"),
    "time_limit_minutes",
)
"""No part is a bool, which would equal a number."""
_OWN = _places("name", "script", "environment")
"""Apart, since else each job would bring the table nearer to its bound."""
_TABLES = _places("rlimits", "echo")


def interned(state: State, spec: JobSpec) -> JobSpec:
    """Give an equal spec whose parts are shared with those of other jobs where they are equal."""
    table, recent = _tables(state)
    # A spec that is made by position costs a third of one that is made by names.
    values = list(structs.astuple(spec))
    for places, keep in ((_PARTS, table.setdefault), (_OWN, recent.setdefault)):
        for place in places:
            value = values[place]
            if value:
                values[place] = keep(value, value)
    for place in _TABLES:
        value = values[place]
        values[place] = table.setdefault((dict, tuple(value.items())), value)
    return JobSpec(*values)


def interned_job(state: State, job: Job, spec: JobSpec) -> Job:
    """Give an equal job with this spec, which equals its own, and with what it can share with other jobs."""
    table, recent = _tables(state)
    return structs.replace(
        job,
        spec=spec,
        submitted_at=recent.setdefault(job.submitted_at, job.submitted_at),
        eligible_at=recent.setdefault(job.eligible_at, job.eligible_at),
        started_at=recent.setdefault(job.started_at, job.started_at),
        limit_seconds=table.setdefault(job.limit_seconds, job.limit_seconds),
        alloc=interned_allocation(state, job.alloc) if job.alloc is not None else None,
    )


def interned_number(state: State, number: T) -> T:
    """Give an equal number that other records have too."""
    return state.interned.setdefault(number, number)  # type: ignore[return-value]


def interned_allocation(state: State, alloc: Allocation) -> Allocation:
    """Give an equal allocation with parts that are shared: many jobs have the same cores, each of other nodes."""
    keep = _tables(state)[0].setdefault
    shares = [
        NodeShare(
            keep(share.node, share.node),  # type: ignore[arg-type]
            share.cpus,
            keep(share.cores, share.cores),  # type: ignore[arg-type]
            keep(share.memory_mib, share.memory_mib),  # type: ignore[arg-type]
            keep(share.gpus, share.gpus),  # type: ignore[arg-type]
            share.tasks,
            share.gres,
            share.row,
        )
        for share in alloc.shares
    ]
    texts = (alloc.partition, alloc.planned_by, alloc.reservation, alloc.licenses)
    partition, planned_by, reservation, licenses = map(keep, texts, texts)
    return Allocation(partition, tuple(shares), planned_by, reservation, licenses)  # type: ignore[arg-type]


def _tables(state: State) -> tuple[dict[object, object], dict[object, object]]:
    table, recent = state.interned, state.interned_own
    if len(table) > _MOST:
        table.clear()
    if len(recent) > _MOST_OWN:
        recent.clear()
    return table, recent

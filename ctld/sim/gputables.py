"""Two public GPU traces as csv: Microsoft Philly (submit_time, duration_s, num_gpus, vc) and Alibaba openb pods.

Neither has time limits: the run time is rounded up to the next of the limits that people ask for.
"""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ctld.sim.swf import LATER
from ctld.sim.workload import Asks, Trace, TraceJob, TraceNodes, in_order
from muster.errors import InvalidInput

_HOUR, _DAY = 3600, 86400
USUAL_LIMITS = (900, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 4 * _DAY, 7 * _DAY, 14 * _DAY)
CPUS_OF_A_GPU = 4
"""Philly's rows do not say how many CPUs a job had."""
NODE_GPUS = 8
PHILLY = {"submit_time", "duration_s", "num_gpus", "vc"}
OPENB = {"cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time"}
OPENB_NODES = "openb_node_list_all_node.csv"


def usual_limit(runtime: int) -> int:
    """Round a run time up to a limit that people ask for."""
    place = bisect_left(USUAL_LIMITS, runtime)
    return USUAL_LIMITS[place] if place < len(USUAL_LIMITS) else runtime


def read_philly(lines: Iterable[str], path: Path) -> Trace:
    """Read Philly jobs; those of more than 8 GPUs take whole nodes of 8. The machine's size is not in the file."""
    asks, dropped, jobs = Asks(), Counter[str](), []
    for number, row in enumerate(csv.DictReader(lines), 2):
        try:
            when = datetime.strptime(row["submit_time"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            runtime, gpus = int(float(row["duration_s"])), int(row["num_gpus"])
        except (ValueError, TypeError, OverflowError):
            raise InvalidInput(
                f"{path}:{number}: not a job", "a line has submit_time (2017-10-01 12:00:00), duration_s, num_gpus, vc"
            ) from None
        if gpus < 1 or runtime < 0:
            dropped["no GPUs" if gpus < 1 else "never ran"] += 1
            continue
        nodes = -(-gpus // NODE_GPUS)
        each = -(-gpus // nodes)
        ask = asks.get(
            nodes=[nodes, nodes],
            ntasks=nodes,
            gpus_per_node=str(each),
            cpus_per_task=CPUS_OF_A_GPU * each,
            mem=1,
            account=row["vc"],
        )
        jobs.append(
            TraceJob(str(number - 1), int(when.timestamp()), runtime, ask, usual_limit(runtime), row["vc"] or "user")
        )
    return Trace(path.name, in_order(jobs), (), dropped)


def read_openb(lines: Iterable[str], path: Path) -> Trace:
    """Read Alibaba tasks, and the nodes from the node list beside them. A part of a GPU counts as a whole one."""
    asks, dropped, jobs = Asks(), Counter[str](), []
    nodes = _openb_nodes(path)
    models = {group.gpu_type for group in nodes if group.gpus}
    for number, row in enumerate(csv.DictReader(lines), 2):
        try:
            created, deleted = int(float(row["creation_time"])), int(float(row["deletion_time"]))
            began = int(float(row["scheduled_time"])) if row.get("scheduled_time") else None
            cpus = max(1, -(-int(row["cpu_milli"]) // 1000))
            memory, gpus = max(1, int(row["memory_mib"])), int(row["num_gpu"])
        except (ValueError, TypeError, KeyError, OverflowError):
            raise InvalidInput(
                f"{path}:{number}: not a task",
                "a line has cpu_milli, memory_mib, num_gpu, gpu_spec, creation_time, deletion_time, scheduled_time",
            ) from None
        if began is None:
            dropped["never ran"] += 1
            continue
        allowed = [model for model in (row.get("gpu_spec") or "").split("|") if model in models]
        ask = asks.get(
            nodes=[1, 1],
            ntasks=1,
            cpus_per_task=cpus,
            mem=memory,
            gpus_per_node=str(gpus) if gpus else None,
            constraint="|".join(allowed) if allowed else None,
            account=row.get("qos") or None,
        )
        runtime = max(0, deleted - began)
        jobs.append(
            TraceJob(
                row.get("name") or str(number - 1),
                LATER + created,
                runtime,
                ask,
                usual_limit(runtime),
                row.get("qos") or "user",
                waited=began - created,
            )
        )
    return Trace(path.name, in_order(jobs), nodes, dropped)


def _openb_nodes(path: Path) -> tuple[TraceNodes, ...]:
    """Read sn, cpu_milli, memory_mib, gpu, model; a node's model is one of its features."""
    packed, flat = path.with_name(OPENB_NODES + ".gz"), path.with_name(OPENB_NODES)
    if packed.is_file():
        text = gzip.decompress(packed.read_bytes()).decode()
    elif flat.is_file():
        text = flat.read_text()
    else:
        return ()
    found = []
    for number, row in enumerate(csv.DictReader(text.splitlines()), 2):
        try:
            cpus, memory, gpus = int(row["cpu_milli"]) // 1000, int(row["memory_mib"]), int(row["gpu"])
        except (KeyError, ValueError, TypeError):
            raise InvalidInput(
                f"{flat}:{number}: not a node", "a line has sn, cpu_milli, memory_mib, gpu, model"
            ) from None
        model = row.get("model") or ""
        found.append(TraceNodes(row["sn"], cpus, memory, gpus, model, (model,) if model else ()))
    return tuple(found)

"""Jobs as sbatch lines: `-dt SECOND -e submit_batch_job | -sim-walltime SECONDS OPTIONS SCRIPT` (UB Slurm simulator).

The options go through the same table as those of the sbatch command. The nodes stand in a csv file beside the jobs
(`NAME_nodes.csv`: node_pattern, count, cores, real_memory_mb, gpus, features, partitions).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ctld.sim.swf import LATER
from ctld.sim.workload import Trace, TraceJob, TraceNodes, in_order
from muster.api import JobRequest, decode
from muster.errors import InvalidInput, MusterError
from muster.options import parse_argv
from muster.placement_options import as_options

_LINE = re.compile(r"\s*-dt\s+(\d+(?:\.\d*)?)\s+-e\s+submit_batch_job\s*\|\s*-sim-walltime\s+(-?\d+(?:\.\d*)?)\s+(.*)")
_OF_ONE_JOB = re.compile(r"--uid[= ](\S+)|-J\s+(\S+)")
"""Options that differ from job to job and say nothing about what it needs."""


def read_sbatch_lines(lines: Iterable[str], path: Path) -> Trace:
    """Read the jobs, and the nodes from the csv file beside them."""
    asks: dict[str, JobRequest] = {}
    dropped: Counter[str] = Counter()
    jobs: list[TraceJob] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.match(line)
        try:
            submitted, runtime = (int(float(one)) for one in found.groups()[:2]) if found else (0, 0)
        except (ValueError, OverflowError):
            found = None
        if found is None:
            raise InvalidInput(
                f"{path}:{number}: not a submission",
                "a line is: -dt SECOND -e submit_batch_job | -sim-walltime SECONDS OPTIONS SCRIPT",
            )
        own = {"user": "user", "label": str(number)}
        for user, label in _OF_ONE_JOB.findall(found[3]):
            own["user" if user else "label"] = user or label
        options = _OF_ONE_JOB.sub("", found[3])
        ask = asks.get(options)
        if ask is None:
            ask = asks[options] = _ask(options.split(), path, number)
        if runtime < 0:
            dropped["never ran"] += 1
            continue
        limit = None if ask.time_limit is None else ask.time_limit * 60 if ask.time_limit > 0 else -1
        jobs.append(TraceJob(own["label"], LATER + submitted, runtime, ask, limit, own["user"]))
    return Trace(path.name, in_order(jobs), _nodes(path), dropped)


def _ask(words: list[str], path: Path, number: int) -> JobRequest:
    try:
        values, _ = parse_argv("sbatch", words, LATER)
        as_options(values)
        return decode(msgspec.json.encode(dict(values)), JobRequest)
    except MusterError as error:
        cure = error.hint or "the options are those of sbatch; correct or remove this one"
        raise InvalidInput(f"{path}:{number}: {error.sentence}", cure) from None


def _nodes(path: Path) -> tuple[TraceNodes, ...]:
    stem = path.name.removesuffix(".gz").partition(".")[0]
    candidates = [path.with_name(f"{name}_nodes.csv") for name in (stem, stem.partition("_")[0])]
    beside = next((one for one in candidates if one.is_file()), None)
    if beside is None:
        return ()
    found = []
    with beside.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                features = tuple(word for word in row["features"].split(";") if word)
                found.append(
                    TraceNodes(
                        row["node_pattern"],
                        int(row["cores"]),
                        int(row["real_memory_mb"]),
                        int(row["gpus"]),
                        "",
                        features,
                        tuple(row["partitions"].split(";")),
                    )
                )
            except (KeyError, ValueError, AttributeError):
                raise InvalidInput(
                    f"{beside}:{number}: not a line of nodes",
                    "the columns are node_pattern, count, cores, real_memory_mb, gpus, features, partitions",
                ) from None
    return tuple(found)

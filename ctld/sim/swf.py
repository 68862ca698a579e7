"""Standard Workload Format: 18 numbers a job, -1 for what is not known (the Parallel Workloads Archive defines it).

Requested processors count, allocated ones where nothing was requested; without a requested time the run time is the
limit; runs of less than 0 s or on 0 processors are left out. Files of 21 columns and more with a `nodes:ppn=` text,
and a `.machines` file beside them, say nodes, CPUs and memory of each job (the form that the Alea simulator reads).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ctld.sim.workload import Asks, Trace, TraceJob, TraceNodes, in_order
from muster.api import JobRequest
from muster.errors import InvalidInput
from muster.units import is_number

LATER = 1_000_000_000
"""Start of a trace that does not say when it began: times near 0 mean "not set" in the core."""
_HEADER = re.compile(r";\s*(\w+):\s*(-?\d{1,18})\s*$")
_LEAST_COLUMNS = 11


def read_swf(lines: Iterable[str], path: Path) -> Trace:
    """Read the jobs, and the machine from MaxNodes and MaxProcs of the header or from the `.machines` file."""
    header: dict[str, int] = {}
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(";"):
            found = _HEADER.match(line)
            if found:
                header[found[1].lower()] = int(found[2])
        elif line.strip():
            rows.append((number, line.split()))
    machines = _machines(path)
    start = header.get("unixstarttime", 0)
    offset = start if start > 0 else 0 if rows and _number(rows[0][1], 1, path, rows[0][0]) > LATER else LATER
    reader = _Jobs(path, offset, machines)
    jobs = [job for number, row in rows if (job := reader.job(row, number)) is not None]
    if not jobs:
        raise InvalidInput(f"{path}: no job that ran", "is it a .swf file with jobs?")
    return Trace(path.name, in_order(jobs), tuple(machines.values()) or _nodes(header), reader.dropped)


class _Jobs:
    """Makes jobs of rows."""

    def __init__(self, path: Path, offset: int, machines: dict[str, TraceNodes]) -> None:
        self._path = path
        self._offset = offset
        self._machines = machines
        self._asks = Asks()
        self.dropped: Counter[str] = Counter()

    def job(self, row: list[str], number: int) -> TraceJob | None:
        """Read one row; None: a job that is left out."""
        path = self._path
        if len(row) < _LEAST_COLUMNS:
            raise InvalidInput(
                f"{path}:{number}: {len(row)} columns where the Standard Workload Format has 18",
                "give a .swf file, text or gzip",
            )
        submit, wait, runtime, allocated = (_number(row, place, path, number) for place in (1, 2, 3, 4))
        requested, limit, memory = (_number(row, place, path, number) for place in (7, 8, 9))
        processors = requested if requested > 0 else allocated
        if runtime < 0:
            self.dropped["never ran"] += 1
            return None
        if processors <= 0:
            self.dropped["no processors"] += 1
            return None
        account = f"group{row[12]}" if len(row) > 12 and row[12] != "-1" else None
        if self._machines:
            ask = self._shape(row, processors, memory, account)
        else:
            ask = self._asks.get(ntasks=processors, account=account)
        user = f"user{row[11]}" if len(row) > 11 and row[11] != "-1" else "user"
        limit = limit if limit > 0 else max(1, runtime)
        return TraceJob(row[0], submit + self._offset, runtime, ask, limit, user, waited=wait)

    def _shape(self, row: list[str], processors: int, memory: int, account: str | None) -> JobRequest:
        """Read `2:ppn=8:x86_64:cl_zewura#excl` in column 21, and the memory in bytes in column 10."""
        text = row[20] if len(row) > 20 else f"1:ppn={processors}"
        body, _, word = text.partition("#")
        parts = body.split(":")
        nodes = int(parts[0]) if is_number(parts[0]) and int(parts[0]) else 1
        per_node = next((int(part[4:]) for part in parts if part.startswith("ppn=") and is_number(part[4:])), 0)
        per_node = per_node or -(-processors // nodes)
        clusters = [part[3:] for part in parts if part.startswith("cl_") and part[3:] in self._machines]
        return self._asks.get(
            nodes=[nodes, nodes],
            ntasks=nodes * per_node,
            ntasks_per_node=per_node,
            mem=max(1, -(-memory // (1 << 20))),
            constraint=clusters[0] if clusters else None,
            exclusive="node" if word.startswith("excl") else None,
            account=account,
        )


def _machines(path: Path) -> dict[str, TraceNodes]:
    """Read the companion: id, name, nodes, CPUs, speed, memory in KB; tab separated."""
    beside = path.with_name(path.name.removesuffix(".gz") + ".machines")
    found: dict[str, TraceNodes] = {}
    if not beside.is_file():
        return found
    for number, line in enumerate(beside.read_text().splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) < 6 or not all(is_number(word) for word in (*words[2:4], words[5])):
            raise InvalidInput(
                f"{beside}:{number}: not a machine", "a line has: id, name, nodes, CPUs of each, speed, memory in KB"
            )
        name, nodes, cpus, memory = words[1], int(words[2]), int(words[3]), int(words[5])
        names = f"{name}[1-{nodes}]" if nodes > 1 else f"{name}1"
        found[name] = TraceNodes(names, cpus, memory // 1024, features=(name,))
    return found


def _nodes(header: dict[str, int]) -> tuple[TraceNodes, ...]:
    """Give the nodes of a header: MaxProcs over MaxNodes each; a machine without nodes is one of all processors."""
    nodes, processors = header.get("maxnodes", 0), header.get("maxprocs", 0)
    if nodes <= 0 and processors <= 0:
        return ()
    if nodes <= 0:
        return (TraceNodes("n1", processors),)
    names = f"n[1-{nodes}]" if nodes > 1 else "n1"
    return (TraceNodes(names, max(1, processors // nodes)),)


def _number(row: list[str], place: int, path: Path, number: int) -> int:
    try:
        return int(float(row[place]))
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{path}:{number}: column {place + 1} is {row[place][:40]!r}, not a number", "give a .swf file"
        ) from None

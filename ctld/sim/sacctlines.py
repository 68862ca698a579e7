"""`sacct -P` text: a header line of column names, then a line a job; columns in any order, others are ignored.

`sacct -a -X -P -S 2026-05-01 -o JobID,Submit,Eligible,Start,End,Timelimit,ReqTRES,AllocTRES,NNodes,ReqCPUS,ReqMem,
Partition,QOS,Account,User,State` gives all that is used. Steps are left out, and jobs that never ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ctld.sim.workload import NO_LIMIT, Asks, Trace, TraceJob, in_order
from muster.api import JobRequest
from muster.errors import InvalidInput
from muster.units import is_number, parse_duration, parse_memory_mib

NEEDED = ("JobID", "Submit", "Start")
_UNSET = ("", "Unknown", "None", "N/A", "Partition_Limit", "INVALID")


def is_header(line: str) -> bool:
    """Tell whether a line names the columns of `sacct -P`."""
    names = {name.lower() for name in line.rstrip("\n").split("|")}
    return {"jobid", "submit"} <= names


def read_sacct(lines: Iterable[str], path: Path) -> Trace:
    """Read the jobs; the machine is not in such a file."""
    asks, dropped, jobs = Asks(), Counter[str](), []
    columns: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        cells = line.rstrip("\n").split("|")
        if not columns:
            columns = {name.lower(): place for place, name in enumerate(cells) if name}
            _check(columns, path)
            continue
        if not line.strip():
            continue
        if len(cells) < len(columns):
            raise InvalidInput(
                f"{path}:{number}: {len(cells)} columns where the header has {len(columns)}",
                "write the file with `sacct -P` (columns separated by |), without line breaks in names",
            )
        job = _job(_Row(cells, columns, path, number), asks, dropped)
        if job is not None:
            jobs.append(job)
    if not jobs:
        raise InvalidInput(f"{path}: no job that ran", "widen the time of the `sacct` call with -S and -E")
    return Trace(path.name, in_order(jobs), (), dropped)


class _Row:
    """One line, its cells by name."""

    def __init__(self, cells: list[str], columns: dict[str, int], path: Path, number: int) -> None:
        self._cells = cells
        self._columns = columns
        self._place = f"{path}:{number}"

    def has(self, name: str) -> bool:
        """Tell whether the file has the column."""
        return name.lower() in self._columns

    def text(self, *names: str) -> str:
        """Give the first of these columns that is there and set."""
        for name in names:
            place = self._columns.get(name.lower())
            if place is not None and self._cells[place] not in _UNSET:
                return self._cells[place]
        return ""

    def time(self, name: str) -> int:
        """Read a time point as UTC (0: not set): only differences count."""
        text = self.text(name)
        if not text:
            return 0
        if is_number(text):
            return int(text)
        try:
            return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
        except ValueError:
            raise self.wrong(name, text, "a time is 2026-05-01T13:00:00; unset SLURM_TIME_FORMAT for sacct") from None

    def wrong(self, name: str, text: str, cure: str) -> InvalidInput:
        """Make the error for a cell that cannot be read."""
        return InvalidInput(f"{self._place}: {name} is {text[:40]!r}", cure)

    def seconds(self, *names: str) -> int | None:
        """Read a duration: None not set, -1 unlimited."""
        text = self.text(*names)
        if not text:
            return None
        if text.upper() == "UNLIMITED":
            return NO_LIMIT
        try:
            return parse_duration(text.partition(".")[0])
        except InvalidInput:
            raise self.wrong(names[0], text, "a duration is [days-]hours:minutes:seconds") from None

    def count(self, *names: str) -> int:
        """Read a count (0: not set)."""
        text = self.text(*names)
        if text and not is_number(text):
            raise self.wrong(names[0], text, "write whole numbers, with `sacct --noconvert`")
        return int(text or 0)

    def mib(self, text: str, name: str) -> int:
        """Read an amount of memory; a fraction is rounded up."""
        number, suffix = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "M")
        try:
            if "." in number:
                return -(-int(float(number) * 1024 * parse_memory_mib(f"1{suffix}")) // 1024)
            return parse_memory_mib(number + suffix)
        except (InvalidInput, ValueError, OverflowError):
            raise self.wrong(name, text, "memory is a number with K, M, G or T") from None


def _check(columns: dict[str, int], path: Path) -> None:
    missing = [name for name in NEEDED if name.lower() not in columns]
    if not {"end", "elapsed"} & columns.keys():
        missing.append("Elapsed")
    if missing:
        raise InvalidInput(
            f"{path}:1: no column {' and no column '.join(missing)}",
            "write the file with `sacct -a -X -P -o JobID,Submit,Start,End,Timelimit,NNodes,ReqCPUS,ReqMem,ReqTRES,"
            "Partition,QOS,Account,User,State`",
        )


def _job(row: _Row, asks: Asks, dropped: Counter[str]) -> TraceJob | None:
    label = row.text("JobID")
    if "." in label:
        return None
    submitted, started = row.time("Submit"), row.time("Start")
    elapsed = row.seconds("Elapsed")
    if elapsed is None and row.text("End"):
        elapsed = row.time("End") - started
    runs = row.has("End") and not row.text("End")
    # A job that was cancelled while it waited may have a start, too: that of its end.
    ran = elapsed or (elapsed == 0 and row.text("State").startswith(("COMPLETED", "FAILED")))
    if not submitted or not started or runs or elapsed is None or elapsed < 0 or not ran:
        dropped["still running or never ran" if submitted else "no time of submission"] += 1
        return None
    eligible = row.time("Eligible")
    ready = max(submitted, eligible)
    return TraceJob(
        label,
        submitted,
        elapsed,
        _ask(row, asks),
        row.seconds("Timelimit"),
        row.text("User") or "user",
        eligible if eligible > submitted else 0,
        started - ready,
    )


def _ask(row: _Row, asks: Asks) -> JobRequest:
    """Say what was asked for. Memory stands in ReqTRES for the whole job, in ReqMem for a node (n) or a CPU (c)."""
    tres = _tres(row.text("ReqTRES") or row.text("AllocTRES"))
    nodes = row.count("ReqNodes") or _count(tres.get("node", "")) or row.count("NNodes", "AllocNodes") or 1
    cpus = row.count("ReqCPUS") or _count(tres.get("cpu", "")) or row.count("NCPUS", "AllocCPUS") or nodes
    gpus = {name.partition(":")[2]: _count(count) for name, count in tres.items() if name.startswith("gres/gpu")}
    kinds = {kind: count for kind, count in gpus.items() if kind} or gpus
    per_node = ",".join(
        f"{kind}:{-(-count // nodes)}" if kind else str(-(-count // nodes)) for kind, count in sorted(kinds.items())
    )
    text = row.text("ReqMem")
    options: dict[str, object] = {}
    if text.endswith("c"):
        options["mem_per_cpu"] = row.mib(text[:-1], "ReqMem")
    elif text:
        whole = row.mib(text.removesuffix("n"), "ReqMem")
        # Up to 20.11 ReqMem was for a node and said so; since then it is for the job.
        options["mem"] = whole if text.endswith("n") else -(-whole // nodes)
    elif "mem" in tres:
        options["mem"] = -(-row.mib(tres["mem"], "ReqTRES") // nodes)
    # How many tasks there were is not known: a CPU a task, spread as evenly as the count allows.
    even = cpus % nodes == 0
    return asks.get(
        nodes=[nodes, nodes],
        ntasks=nodes if even else cpus,
        cpus_per_task=cpus // nodes if even else 1,
        gpus_per_node=per_node or None,
        partition=row.text("Partition") or None,
        account=row.text("Account") or None,
        qos=row.text("QOS") or None,
        **options,
    )


def _tres(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _count(text: str) -> int:
    return int(text) if is_number(text) else 0

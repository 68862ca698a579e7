"""sacct: the history of jobs and steps, those that run and wait included."""

from __future__ import annotations

import os
import time

from cli import base
from muster import client, errors
from muster.timepoints import format_time_point, parse_time_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from cli.sacct_fields import Row, Text

    Column = tuple[str, int, Text]
    """(name, width, text of a row)"""
    Selector = tuple[int, int, int]
    """(job, task or -1, step or -1)"""

SHORTS = "aA:bDeE:hj:lLM:nN:o:pPq:r:s:S:Tu:U:vVX"
_NO, _ARG, _OPT = base.NO_ARGUMENT, base.ARGUMENT, base.OPTIONAL
LONGS = {
    "accounts": ("A", _ARG),
    "allclusters": ("L", _NO),
    "allocations": ("X", _NO),
    "allusers": ("a", _NO),
    "array": ("array", _NO),
    "associations": ("associations", _ARG),
    "batch-script": ("batch-script", _NO),
    "brief": ("b", _NO),
    "clusters": ("M", _ARG),
    "completion": ("completion", _NO),
    "constraints": ("constraints", _ARG),
    "delimiter": ("delimiter", _ARG),
    "duplicates": ("D", _NO),
    "endtime": ("E", _ARG),
    "env-vars": ("env-vars", _NO),
    "expand-patterns": ("expand-patterns", _NO),
    "federation": ("federation", _NO),
    "flags": ("flags", _ARG),
    "format": ("o", _ARG),
    "gid": ("gid", _ARG),
    "group": ("gid", _ARG),
    "help": ("h", _NO),
    "helpformat": ("e", _NO),
    "jobs": ("j", _ARG),
    "json": ("json", _OPT),
    "local": ("L", _NO),
    "long": ("l", _NO),
    "name": ("name", _ARG),
    "ncpus": ("ncpus", _ARG),
    "nnodes": ("nnodes", _ARG),
    "noconvert": ("noconvert", _NO),
    "nodelist": ("N", _ARG),
    "noheader": ("n", _NO),
    "parsable": ("p", _NO),
    "parsable2": ("P", _NO),
    "partition": ("r", _ARG),
    "qos": ("q", _ARG),
    "reason": ("reason", _ARG),
    "starttime": ("S", _ARG),
    "state": ("s", _ARG),
    "timelimit-max": ("timelimit-max", _ARG),
    "timelimit-min": ("timelimit-min", _ARG),
    "truncate": ("T", _NO),
    "uid": ("u", _ARG),
    "units": ("U", _ARG),
    "usage": ("usage", _NO),
    "user": ("u", _ARG),
    "verbose": ("v", _NO),
    "version": ("V", _NO),
    "wckeys": ("wckeys", _ARG),
    "whole-hetjob": ("whole-hetjob", _OPT),
    "yaml": ("yaml", _OPT),
}
UNSUPPORTED = (
    "associations", "batch-script", "completion", "constraints", "env-vars", "expand-patterns", "federation", "flags",
    "gid", "json", "ncpus", "nnodes", "reason", "timelimit-max", "timelimit-min", "wckeys", "whole-hetjob", "yaml",
)  # fmt: skip
_LISTS = {"A": "accounts", "r": "partitions", "q": "qos", "name": "names"}

STATES = {
    "pd": "PENDING", "r": "RUNNING", "s": "SUSPENDED", "cd": "COMPLETED", "ca": "CANCELLED", "f": "FAILED",
    "to": "TIMEOUT", "nf": "NODE_FAIL", "pr": "PREEMPTED", "bf": "BOOT_FAIL", "dl": "DEADLINE",
    "oom": "OUT_OF_MEMORY", "rq": "REQUEUED", "rs": "RESIZING", "rv": "REVOKED",
}  # fmt: skip
"""Compact name -> the word that records have."""

_SPECIAL_STEPS = {"batch": 0xFFFFFFFB, "extern": 0xFFFFFFFC, "interactive": 0xFFFFFFFA, "TBD": 0xFFFFFFFD}
_STEP_ORDER = {0xFFFFFFFA: -3, 0xFFFFFFFB: -2, 0xFFFFFFFC: -1}
_NOT_A_NUMBER = "JobID includes unexpected non-numeric characters"
_LARGEST_TASK = 1 << 26


def main(argv: list[str]) -> int:
    """Print history; the exit code is 1 if anything was wrong with the question, 0 also where nothing matches."""
    return base.run("sacct", _main, argv)


def _main(argv: list[str]) -> int:
    found, rest = _options(argv)
    for key, _ in found:
        if _tell(key):
            return 0
    if rest:
        raise base.Quit(1, "sacct: error: Unknown arguments:", *(f"sacct: error:  {word}" for word in rest))
    for key, _ in found:
        if key in UNSUPPORTED:
            raise base.Quit(1, f"sacct: error: --{key} is not supported by this release of Muster")
    if ("v", None) in found:
        base.say_asked("sacct", found)
    asked = _Asked(found)
    answer = _ask(asked.filter)
    _warn(answer)
    if asked.clusters and answer["cluster"] not in asked.clusters:
        answer["jobs"] = []
    context = asked.context
    context.cluster, context.now = answer["cluster"], answer["now"]
    context.end = min(context.end or context.now, context.now)
    base.write(_page(asked, answer["jobs"]))
    return 0


class _Asked:
    """What the command line and the environment ask for."""

    def __init__(self, found: Sequence[tuple[str, str | None]]) -> None:
        from cli.sacct_fields import Context

        values: dict[str, str] = {}
        lists: dict[str, list[str]] = {}
        for key, text in found:
            values[key] = text or ""
            lists.setdefault(key, []).extend(word for word in (text or "").split(",") if word)
        self.with_header = "n" not in values
        self.expand = "array" in values
        self.clusters = [] if "L" in values else lists.get("M", [])
        # The last of -p and -P counts.
        self.parsable = next((key for key, _ in reversed(found) if key in ("p", "P")), "")
        self.delimiter = values.get("delimiter") or "|"
        self.columns = _columns(values, lists)
        self.selectors = [_selector(word) for word in lists.get("j", [])]

        start, end = _window(values, bool(self.selectors))
        context = self.context = Context()
        context.start, context.end = start, end
        context.truncate = "T" in values
        context.noconvert = "noconvert" in values
        context.units = values.get("U", "").upper()
        if "U" in values and context.units not in ("K", "M", "G", "T", "P"):
            raise base.fatal("sacct", f"Invalid --units argument: {values['U']} (it is one of K, M, G, T and P)")

        asked: dict[str, Any] = {"start": start, "end": end}
        for key, name in _LISTS.items():
            if lists.get(key):
                asked[name] = lists[key]
        if lists.get("s"):
            asked["states"] = [_state(word) for word in lists["s"]]
        if values.get("N"):
            asked["nodelist"] = ",".join(lists["N"])
        if self.selectors:
            asked["jobs"] = [{"job_id": job, "task_id": task, "step_id": step} for job, task, step in self.selectors]
        if "u" in values:
            asked["users"] = [_uid(word) for word in lists["u"]]
        elif "a" not in values and not self.selectors and "N" not in values:
            asked["own"] = True
        for key, name in (("X", "allocations_only"), ("D", "duplicates")):
            if key in values:
                asked[name] = True
        self.filter = asked


# ---- the question --------------------------------------------------------------------------------------


def _options(argv: list[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    try:
        return base.getopt("sacct", argv, SHORTS, LONGS)
    except base.Quit as end:
        raise base.Quit(end.code, *end.lines[:1]) from None  # sacct does not point to --help


def _tell(key: str) -> bool:
    """Answer an option that only tells something; the first one ends the command."""
    if key == "V":
        base.print_version()
    elif key == "e":
        from cli.sacct_fields import help_page

        base.write(help_page())
    elif key in ("h", "usage"):
        from cli import sacct_help

        base.write(sacct_help.HELP if key == "h" else sacct_help.USAGE)
    else:
        return False
    return True


def _columns(values: dict[str, str], lists: dict[str, list[str]]) -> list[Column]:
    from cli import sacct_fields

    if "o" in values:
        words = lists["o"]
    elif "b" in values:
        words = sacct_fields.BRIEF.split(",")
    elif "l" in values:
        words = sacct_fields.LONG.split(",")
    else:
        words = [word for word in os.environ.get("SACCT_FORMAT", "").split(",") if word]
        words = words or sacct_fields.DEFAULT.split(",")
    columns: list[Column] = []
    for word in words:
        name, _, width_text = word.strip().partition("%")
        if name.upper() == "ALL":
            columns += [(field, width, text) for field, (width, text) in sacct_fields.FIELDS.items()]
            continue
        field = sacct_fields.canonical(name) if name else ""
        if not field:
            raise base.Quit(1, f'sacct: error: Invalid field requested: "{name}"')
        width, text = sacct_fields.FIELDS[field]
        columns.append((field, _width(width_text) or width, text))
    return columns


def _width(text: str) -> int:
    """Read a width as atoi does: what is no number is 0, which means the field's own."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    size = 0
    for sign in digits:
        if not "0" <= sign <= "9":
            break
        size = min(size * 10 + int(sign), 65536)
    return -size if text[:1] == "-" else size


def _selector(word: str) -> Selector:
    """Read one of -j: `5`, `5.0`, `5.batch`, `100_3`, `100_3.batch`."""
    if not "0" <= word[0] <= "9":
        raise base.fatal("sacct", f"Bad job/step specified: {word}")

    def wrong(why: str) -> base.Quit:
        return base.fatal("sacct", f"Bad job/step specified: {word}: {why}")

    head, dot, step_text = word.partition(".")
    job_text, under, task_text = head.partition("_")
    job = _number(job_text)
    task = -1 if not under or task_text == "*" else _number(task_text)
    if job is None or task is None:
        raise wrong(_NOT_A_NUMBER)
    if job == 0:
        raise wrong("JobID can not be zero")
    if job >= 1 << 32:
        raise wrong("JobID larger than acceptable range")
    step = _SPECIAL_STEPS.get(step_text, _number(step_text)) if dot else -1
    if step is None:
        raise wrong("StepID includes unexpected non-numeric characters")
    return job, task, step


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None


def _window(values: dict[str, str], with_jobs: bool) -> tuple[int, int]:
    """Give start and end; an end of 0 is now, by the controller's clock.

    Without -S the window begins at 00:00 today, with -j at no time at all, and with -s it is this moment; -s together
    with -S alone is the moment that -S names.
    """
    now = int(time.time())
    with_states = bool(values.get("s"))
    start = end = 0
    if "S" in values:
        start = _time(values["S"], now)
        if with_states:
            end = start
    elif not with_jobs:
        start = now if with_states else parse_time_point("00:00", now, past=True)
    if "E" in values:
        end = _time(values["E"], now)
    if start > (end or now):
        raise base.Quit(
            1,
            f"sacct: error: Start time ({format_time_point(start)}) requested is after end time "
            f"({format_time_point(end or now)}).",
        )
    return start, end


def _time(text: str, now: int) -> int:
    try:
        return parse_time_point(text, now, past=True)
    except errors.InvalidInput as problem:
        raise base.Quit(1, problem.sentence) from None


def _state(word: str) -> str:
    long = STATES.get(word.lower(), word.upper())
    if long not in STATES.values():
        raise base.fatal("sacct", f"unrecognized job state value '{word}'")
    return long


def _uid(word: str) -> int:
    uid = base.uid_of(word)
    if uid is None:
        raise base.Quit(1, f"sacct: error: Invalid user id: {word}")
    return uid


def _ask(asked: dict[str, Any]) -> Any:
    try:
        return client.call("POST", "/v1/history", asked)
    except errors.Refused as refused:
        if refused.sentence.startswith("Slurm accounting"):
            raise base.Quit(1, refused.sentence) from None
        raise


def _warn(answer: Any) -> None:
    """Say on standard error what the answer may lack."""
    if answer["away_since"] or answer["missing_before"]:
        base.say(
            f"sacct: warning: accounting is away since {format_time_point(answer['away_since'])} ({answer['why']}): "
            f"jobs that ended before {format_time_point(answer['missing_before'])} may be missing"
        )


# ---- the page ------------------------------------------------------------------------------------------


def _page(asked: _Asked, jobs: list[Any]) -> str:
    rows = [[text(row) for _, _, text in asked.columns] for row in _rows(asked, jobs)]
    lines: list[str] = []
    if asked.parsable:
        end = asked.delimiter if asked.parsable == "p" else ""
        if asked.with_header:
            lines.append(asked.delimiter.join([name for name, _, _ in asked.columns]) + end)
        lines += [asked.delimiter.join(row) + end for row in rows]
    else:
        widths = [width for _, width, _ in asked.columns]
        if asked.with_header:
            names = [name for name, _, _ in asked.columns]
            lines.append("".join(map(_padded, [name[: abs(w)] for name, w in zip(names, widths, strict=True)], widths)))
            lines.append("".join("-" * abs(width) + " " for width in widths))
        lines += ["".join(map(_padded, row, widths)) for row in rows]
    return "".join(line + "\n" for line in lines)


def _padded(text: str, width: int) -> str:
    """Give a column and the blank behind it; too long a text ends with `+`."""
    size = abs(width)
    if len(text) > size:
        text = text[: size - 1] + "+"
    return (text.ljust(size) if width < 0 else text.rjust(size)) + " "


def _rows(asked: _Asked, jobs: list[Any]) -> Iterator[Row]:
    """Give the lines: runs by their submission, each with its steps behind it."""
    from cli.sacct_fields import Row

    jobs.sort(key=_place)
    for entry in jobs:
        steps = sorted(entry.get("steps") or (), key=lambda step: _STEP_ORDER.get(step["step_id"], step["step_id"]))
        for run in _members(entry["run"]) if asked.expand else (entry["run"],):
            wanted = _wanted_steps(asked.selectors, run)
            if wanted is None:
                yield Row(asked.context, run, steps)
            for step in steps:
                if wanted is None or step["step_id"] in wanted:
                    yield Row(asked.context, run, steps, step)


def _place(entry: Any) -> tuple[int, int, bool, int, int]:
    run = entry["run"]
    return (
        run.get("submitted_at", 0),
        run.get("array_job_id", 0) or run["job_id"],
        bool(run.get("array_tasks")),  # what is left of an array stands behind the tasks that have started
        run.get("array_task_id", -1),
        run["run"],
    )


def _wanted_steps(selectors: list[Selector], run: Any) -> set[int] | None:
    """Say which steps of a run are asked for; None: the run and all of them."""
    if not selectors:
        return None
    wanted: set[int] = set()
    for job, task, step in selectors:
        if task >= 0:
            named = run.get("array_job_id", 0) == job and run.get("array_task_id", -1) in (task, -1)
        else:
            named = job in (run["job_id"], run.get("array_job_id", 0))
        if named and step < 0:
            return None
        if named:
            wanted.add(step)
    return wanted


def _members(run: Any) -> list[Any]:
    """Give a record for each task that a pending array stands for; a list that was cut stays one line."""
    listed = str(run.get("array_tasks", "")).partition("%")[0]
    if not listed or listed.endswith("..."):
        return [run]
    from muster.idset import parse_array

    return [{**run, "array_task_id": task} for task in parse_array(listed, _LARGEST_TASK)[0]]

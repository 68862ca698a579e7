"""squeue: the jobs, or with -s the steps, that the controller knows."""

from __future__ import annotations

import os
import sys
import time

from cli import base, output
from muster import client, errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORTS = "A:ahi:j::lL:M:n:o:O:p:Pq:rR:s::S:t:u:U:vVw:"
_NO, _ARG, _OPT = base.NO_ARGUMENT, base.ARGUMENT, base.OPTIONAL
LONGS = {
    "account": ("A", _ARG),
    "accounts": ("A", _ARG),
    "all": ("a", _NO),
    "array": ("r", _NO),
    "clusters": ("M", _ARG),
    "expand-patterns": ("expand-patterns", _NO),
    "federation": ("federation", _NO),
    "format": ("o", _ARG),
    "Format": ("O", _ARG),
    "help": ("help", _NO),
    "helpFormat": ("helpFormat", _NO),
    "helpformat": ("helpformat", _NO),
    "helpstate": ("helpstate", _NO),
    "hide": ("hide", _NO),
    "iterate": ("i", _ARG),
    "jobs": ("j", _OPT),
    "json": ("json", _OPT),
    "licenses": ("L", _ARG),
    "local": ("local", _NO),
    "long": ("l", _NO),
    "me": ("me", _NO),
    "name": ("n", _ARG),
    "names": ("n", _ARG),
    "node": ("w", _ARG),
    "nodelist": ("w", _ARG),
    "nodes": ("w", _ARG),
    "noconvert": ("noconvert", _NO),
    "noheader": ("h", _NO),
    "notme": ("notme", _NO),
    "only-job-state": ("only-job-state", _NO),
    "partition": ("p", _ARG),
    "partitions": ("p", _ARG),
    "priority": ("P", _NO),
    "qos": ("q", _ARG),
    "reservation": ("R", _ARG),
    "running-over": ("running-over", _ARG),
    "running-under": ("running-under", _ARG),
    "sibling": ("sibling", _NO),
    "sort": ("S", _ARG),
    "start": ("start", _NO),
    "states": ("t", _ARG),
    "steps": ("s", _OPT),
    "usage": ("usage", _NO),
    "user": ("u", _ARG),
    "users": ("u", _ARG),
    "verbose": ("v", _NO),
    "version": ("V", _NO),
    "yaml": ("yaml", _OPT),
}
ENVIRONMENT = (
    ("SQUEUE_ACCOUNT", "A"),
    ("SQUEUE_ALL", "a"),
    ("SQUEUE_ARRAY", "r"),
    ("SQUEUE_NAMES", "n"),
    ("SQUEUE_PARTITION", "p"),
    ("SQUEUE_QOS", "q"),
    ("SQUEUE_SORT", "S"),
    ("SQUEUE_STATES", "t"),
    ("SQUEUE_USERS", "u"),
    ("SLURM_CLUSTERS", "M"),
)
UNSUPPORTED = {
    "federation": "--federation",
    "json": "--json",
    "L": "--licenses",
    "notme": "--notme",
    "P": "--priority",
    "running-over": "--running-over",
    "running-under": "--running-under",
    "sibling": "--sibling",
    "yaml": "--yaml",
}

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
STEPS = "%.15i %.8j %.9P %.8u %.9M %N"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
ONLY_STATE = "%.18i %.2t"

STATES = (
    "pending,running,suspended,completed,cancelled,failed,timeout,node_fail,preempted,boot_fail,deadline,out_of_memory,"
    "completing,configuring,expediting,resizing,resv_del_hold,requeued,requeue_fed,requeue_hold,revoked,signaling,"
    "special_exit,stage_out,stopped"
)
COMPACT_STATES = "pd r s cd ca f to nf pr bf dl oom cg cf rs rd rq rf rh rv si se so st all"

USAGE = """\
Usage: squeue [-A account] [--clusters names] [-i seconds] [--job jobid]
              [-n name] [-o format] [--only-job-state] [-p partitions]
              [--qos qos] [--sort fields] [--start] [--step step_id]
              [-t states] [-u user_name] [--usage] [-w nodes] [--local]
              [--expand-patterns] [-ahjlrs]
"""
_ID_CHARACTERS = 31
"""As far as Slurm prints the id of a pending array unless SLURM_BITSTR_LEN is set."""


def main(argv: list[str]) -> int:
    """Print the queue; the exit code is 1 if anything was wrong with the question."""
    return base.run("squeue", _main, argv)


def _main(argv: list[str]) -> int:
    asked = _Asked(argv)
    if asked.done:
        return 0
    while True:
        asked.show()
        if not asked.every_seconds:
            return 0
        base.write("\n")
        time.sleep(asked.every_seconds)


class _Asked:
    """What the command line and the environment ask for."""

    def __init__(self, argv: list[str]) -> None:
        found, rest = base.getopt("squeue", argv, SHORTS, LONGS)
        self.done = any(base.tell(key, _TOLD) for key, _ in found)
        if self.done:
            return
        values: dict[str, str | None] = {}
        for name, key in ENVIRONMENT:
            text = os.environ.get(name)
            if text is not None:
                values[key] = text
        values.update({"A" if key == "U" else key: text for key, text in found})  # -U: an old letter of -A
        for key in values:
            if key in UNSUPPORTED:
                raise base.Quit(1, f"squeue: error: {UNSUPPORTED[key]} is not supported by this release of Muster")
        _take_positional(values, rest)
        if "v" in values:
            base.say_asked("squeue", values.items())
        self.values = values
        self.is_steps = "s" in values
        self.every_seconds = _seconds(values["i"]) if "i" in values else 0
        self.with_header = "h" not in values
        self.query = self._query()
        self.columns = self._columns()
        if self.is_steps:
            from cli.squeue_columns import STEP_LETTERS as letters
            from cli.squeue_columns import STEP_SORT_FIELDS as special

            order = values.get("S") or "P,i"
        else:
            from cli.squeue_columns import JOB_LETTERS as letters
            from cli.squeue_columns import SORT_FIELDS as special

            order = values.get("S") or ("S" if "start" in values else "P,t,-p")
        self.order = _order(order, letters, special)

    def show(self) -> None:
        """Ask, sort, print."""
        if self.with_header and ("l" in self.values or self.every_seconds):
            base.write(time.strftime("%a %b %d %H:%M:%S %Y\n"))
        fields = output.wanted(self.columns)
        fields += [field for field, _ in self.order if field not in fields]
        rows: list[list[Any]] = []
        prefix = ""
        if self.query is not None:
            answer = _ask(self.is_steps, {"fields": ",".join(fields), **self.query})
            rows = answer["rows"]
            prefix = base.cluster_line("squeue", self.values.get("M"), answer["cluster"], self.with_header)
        _sort(rows, fields, self.order)
        if "id" in fields and not self.is_steps and "SLURM_BITSTR_LEN" not in os.environ:
            _cut_ids(rows, fields.index("id"))
        base.write(prefix + output.page(self.columns, fields, rows, with_header=self.with_header))

    def _query(self) -> dict[str, str] | None:
        """Give the filters as the controller takes them; None: nothing can match."""
        values = self.values
        query: dict[str, str] = {}
        for key, name in (
            ("A", "accounts"),
            ("n", "names"),
            ("p", "partitions"),
            ("q", "qos"),
            ("R", "reservations"),
            ("w", "nodes"),
        ):
            text = values.get(key)
            if text:
                query[name] = text
        jobs = values.get("j")
        if jobs:
            query["ids"] = _ids(jobs)
        steps = values.get("s")
        if steps:
            query["steps"] = _ids(steps)
        users = values.get("u")
        if "me" in values:
            query["users"] = str(os.getuid())
        elif users:
            uids = _uids(users)
            if not uids:
                return None
            query["users"] = ",".join(uids)
        if "start" in values:
            query["states"] = "PENDING"
        elif values.get("t"):
            query["states"] = _states(values["t"] or "")
        if "a" in values and "hide" not in values:
            query["all"] = "1"
        if "r" in values:
            query["expand"] = "1"
        size = os.environ.get("SLURM_BITSTR_LEN")
        if size is not None:
            query["task_list_bytes"] = size
        return query

    def _columns(self) -> list[output.Column]:
        values = self.values
        if "l" in values and "o" in values:
            raise base.fatal(
                "squeue",
                "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            )
        from cli import squeue_columns

        letters = squeue_columns.STEP_LETTERS if self.is_steps else squeue_columns.JOB_LETTERS
        names = squeue_columns.STEP_NAMES if self.is_steps else squeue_columns.JOB_NAMES
        by_letters, by_names = values.get("o"), values.get("O")
        if by_letters is None and by_names is None and "l" not in values:
            by_letters, by_names = os.environ.get("SQUEUE_FORMAT"), os.environ.get("SQUEUE_FORMAT2")
        if by_names is not None:
            columns = output.parse_names(by_names, names, _wrong)
        else:
            columns = output.parse_letters(by_letters or self._default(), letters, _wrong)
        for column in columns:
            if "noconvert" in values and column.kind == "memory":
                column.kind = "memory_m"
            if "expand-patterns" in values and column.field in ("std_out", "std_err", "std_in"):
                column.field += "_path"
        return columns

    def _default(self) -> str:
        if self.is_steps:
            return STEPS
        if "start" in self.values:
            return START
        if "only-job-state" in self.values:
            return ONLY_STATE
        return LONG if "l" in self.values else DEFAULT


def _help(key: str) -> str:
    from cli.squeue_help import text_of

    return text_of(key)


_TOLD = {
    "usage": lambda: USAGE,
    "helpstate": lambda: STATES.replace(",", "\n") + "\n",
    "help": lambda: _help("help"),
    "helpformat": lambda: _help("helpformat"),
    "helpFormat": lambda: _help("helpFormat"),
}


def _take_positional(values: dict[str, str | None], rest: list[str]) -> None:
    """Take the word behind a bare -j or -s as its list; refuse any other."""
    for key in ("j", "s"):
        if rest and key in values and values[key] is None:
            values[key] = rest.pop(0)
    if rest:
        base.write(USAGE)
        raise base.Quit(1, f"squeue: error: Unrecognized option: {rest[0]}")


def _seconds(text: str | None) -> int:
    if text and text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31:
        return int(text)
    raise base.Quit(1, f"squeue: error: --iterate={text}: a number of seconds, at least 1, must be given")


def _ids(text: str) -> str:
    """Check a list of ids as far as Slurm names the one that is wrong."""
    depth = start = 0
    for place, sign in enumerate(text + ","):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth <= 0:
            word = text[start:place]
            start = place + 1
            head = word.replace("_", ".").partition(".")[0]
            if word and not (head.isascii() and head.isdigit() and int(head[:12])):
                raise base.Quit(1, f"squeue: error: Invalid job id: {word}")
    return text


def _uids(text: str) -> list[str]:
    uids = []
    for name in text.split(","):
        uid = base.uid_of(name)
        if uid is None:
            base.error("squeue", f"Invalid user: {name}")
            base.say("")
        else:
            uids.append(str(uid))
    return uids


def _states(text: str) -> str:
    known = set(STATES.split(",")) | set(COMPACT_STATES.split())
    for word in text.lower().split(","):
        if word not in known:
            raise base.Quit(
                1,
                f"squeue: error: Invalid job state specified: {word}",
                f"squeue: error: Valid job states include: {STATES}",
                "",
            )
    return text


def _wrong(what: str) -> None:
    base.error("squeue", f"Invalid job format specification: {what}")


def _order(text: str, letters: dict[str, Any], special: dict[str, str]) -> list[tuple[str, bool]]:
    """Read -S: (field, falling) of each letter."""
    order = []
    for part in text.split(","):
        letter = part.lstrip("+-#")
        source = letters.get(letter)
        if source is None:
            raise base.Quit(1, f"squeue: error: Invalid sort specification: {letter}")
        field = special.get(letter) or source[1]
        if field:
            order.append((field, part.startswith("-")))
    return order


def _sort(rows: list[list[Any]], fields: list[str], order: list[tuple[str, bool]]) -> None:
    """Sort by the last key first: each pass keeps the order of the one before."""
    for field, falling in reversed(order):
        place = fields.index(field)
        if field == "nodelist":
            from muster.hostlist import natural_key

            rows.sort(key=lambda row: natural_key(row[place]), reverse=falling)
            continue
        values = [row[place] for row in rows]
        if field == "limit":  # -1 is no limit, the longest of all
            values = [value if value >= 0 else 1 << 40 for value in values]
        elif field == "left":
            values = [1 << 40 if value is None else value for value in values]
        keys: list[Any] = values
        if len({type(value) for value in values}) > 1:  # what is not set, numbers, texts
            keys = [
                (0, 0) if value is None else (1, value) if isinstance(value, int) else (2, value) for value in values
            ]
        # With reverse=True too, sorted() leaves equal rows in their order.
        rows[:] = [rows[place] for place in sorted(range(len(rows)), key=keys.__getitem__, reverse=falling)]


def _cut_ids(rows: list[list[Any]], place: int) -> None:
    for row in rows:
        value = row[place]
        if isinstance(value, str) and len(value) > _ID_CHARACTERS and "[" in value:
            row[place] = value[:_ID_CHARACTERS]


def _ask(is_steps: bool, query: dict[str, str]) -> Any:
    route = "/v1/steps" if is_steps else "/v1/jobs"
    try:
        return client.ask(route, query)
    except errors.MusterError as problem:
        if problem.slurm_code == 2018:
            raise base.Quit(1, f"squeue: error: {problem.sentence}") from None
        if isinstance(problem, errors.InvalidInput) and "ids" in query:
            raise base.Quit(1, f"squeue: error: Invalid job id: {query['ids']}") from None
        raise base.refused("slurm_load_jobs", problem) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""sinfo: partitions and nodes, one line for all nodes that look the same in the columns shown."""

from __future__ import annotations

import os
import sys
import time

from cli import base, output
from cli.sinfo_states import chooser
from muster import client, errors, hostlist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


SHORTS = "adehi:lM:n:No:O:p:rRsS:t:TvVF"
_NO, _ARG, _OPT = base.NO_ARGUMENT, base.ARGUMENT, base.OPTIONAL
LONGS = {
    "all": ("a", _NO),
    "clusters": ("M", _ARG),
    "dead": ("d", _NO),
    "exact": ("e", _NO),
    "federation": ("federation", _NO),
    "format": ("o", _ARG),
    "Format": ("O", _ARG),
    "future": ("F", _NO),
    "help": ("help", _NO),
    "helpFormat": ("helpFormat", _NO),
    "helpformat": ("helpformat", _NO),
    "helpstate": ("helpstate", _NO),
    "hide": ("hide", _NO),
    "iterate": ("i", _ARG),
    "json": ("json", _OPT),
    "list-reasons": ("R", _NO),
    "local": ("local", _NO),
    "long": ("l", _NO),
    "nodes": ("n", _ARG),
    "Node": ("N", _NO),
    "noconvert": ("noconvert", _NO),
    "noheader": ("h", _NO),
    "partition": ("p", _ARG),
    "reservation": ("T", _NO),
    "responding": ("r", _NO),
    "sort": ("S", _ARG),
    "states": ("t", _ARG),
    "summarize": ("s", _NO),
    "usage": ("usage", _NO),
    "verbose": ("v", _NO),
    "version": ("V", _NO),
    "yaml": ("yaml", _OPT),
}
ENVIRONMENT = (
    ("SINFO_ALL", "a"),
    ("SINFO_FUTURE", "F"),
    ("SINFO_PARTITION", "p"),
    ("SINFO_SORT", "S"),
    ("SLURM_CLUSTERS", "M"),
)
UNSUPPORTED = {"federation": "--federation", "json": "--json", "yaml": "--yaml"}
DEFAULT = "%9P %.5a %.10l %.6D %.6t %N"
LONG = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N"
SUMMARY = "%9P %.5a %.10l %.16F %N"
NODES = "%9N %.6D %.9P %6t"
NODES_LONG = "%9N %.6D %.9P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
REASONS = "%20E %9u %19H %N"
REASONS_LONG = "%20E %12U %19H %6t %N"

USAGE = """\
Usage: sinfo [-adeFhlNRrsT] [-i seconds] [-t states] [-p partition] [-n nodes]
             [-S fields] [-o format] [-O Format] [-M names] [--local]
"""
HELP = """\
Usage: sinfo [OPTIONS]
  -a, --all                  show all partitions (including hidden ones)
  -d, --dead                 show only non-responding nodes
  -e, --exact                group nodes only on exact match of configuration
  -F, --future               report information about nodes in state "FUTURE"
  -h, --noheader             no headers on output
      --hide                 do not show hidden partitions
  -i, --iterate=seconds      specify an iteration period
  -l, --long                 long output - displays more information
  -M, --clusters=names       cluster to issue commands to
  -n, --nodes=NODES          report on specific node(s)
  -N, --Node                 Node-centric format
      --noconvert            don't convert units from their original type
  -o, --format=format        format specification
  -O, --Format=format        format specification by names
  -p, --partition=PARTITION  report on specific partition
  -r, --responding           report only responding nodes
  -R, --list-reasons         list reason nodes are down or drained
  -s, --summarize            report state summary only
  -S, --sort=fields          comma separated list of fields to sort on
  -t, --states=node_state    specify the what states of nodes to view
  -T, --reservation          show only reservation information
  -v, --verbose              say what is asked, and of which controller
  -V, --version              output version information and exit

Help options:
  --help                     show this help message
  --helpformat               print the letters of --format
  --helpFormat               print the names of --Format
  --helpstate                print the words of --states
  --usage                    display brief usage message
"""


def main(argv: list[str]) -> int:
    """Print partitions and nodes; the exit code is 1 if the question was wrong or nobody answers."""
    return base.run("sinfo", _main, argv)


def _main(argv: list[str]) -> int:
    found, _ = base.getopt("sinfo", argv, SHORTS, LONGS)  # stray words are ignored, as in the reference
    if any(base.tell(key, _TOLD) for key, _ in found):
        return 0
    values: dict[str, str | None] = {}
    for name, key in ENVIRONMENT:
        text = os.environ.get(name)
        if text is not None:
            values[key] = text
    values.update(found)
    for key, option in UNSUPPORTED.items():
        if key in values:
            raise base.Quit(1, f"sinfo: error: {option} is not supported by this release of Muster")
    if "v" in values:
        base.say_asked("sinfo", values.items())
    every = values.get("i")
    if every is not None and not (every.isascii() and every.isdigit() and int(every)):
        raise base.Quit(1, f"sinfo: error: --iterate={every}: a number of seconds, at least 1, must be given")
    if "T" in values:
        return _reservations(values, int(every) if every else 0)
    columns = _columns(values)
    only = chooser(values.get("t") or ("down,drain,fail" if "R" in values else None))
    while True:
        if "h" not in values and ("l" in values or every):
            base.write(time.strftime("%a %b %d %H:%M:%S %Y\n"))
        base.write(_page(values, columns, only))
        if not every:
            return 0
        base.write("\n")
        time.sleep(int(every))


def _reservations(values: dict[str, str | None], every_seconds: int) -> int:
    """Print the reservations, each column as wide as it has to be."""
    from muster.timepoints import format_time_point
    from muster.units import format_duration

    while True:
        try:
            answer = client.call("GET", "/v1/reservations")
        except errors.MusterError as problem:
            raise base.refused("slurm_load_reservations", problem, colon=": ") from None
        rows: list[tuple[str, ...]] = [
            (
                one["name"],
                one["state"],
                format_time_point(one["start_at"]),
                format_time_point(one["end_at"]),
                format_duration(one["duration"]),
                one["nodes"],
            )
            for one in answer["reservations"]
        ]
        if not rows:
            base.write("No reservations in the system\n")
        else:
            if "h" not in values:
                rows.insert(0, ("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"))
            base.write(_table(rows))
        if not every_seconds:
            return 0
        base.write("\n")
        time.sleep(every_seconds)


_LEAST_WIDTHS = (9, 8, 19, 19, 11)
"""Of all columns but the last."""


def _table(rows: list[tuple[str, ...]]) -> str:
    """Give rows with the name to the left and all else to the right, as Slurm prints reservations."""
    widths = [max([least, *[len(row[place]) for row in rows]]) for place, least in enumerate(_LEAST_WIDTHS)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:-1], widths[1:], strict=True)]
        lines.append("  ".join([*cells, row[-1]]) + "\n")
    return "".join(lines)


def _states() -> str:
    from cli.sinfo_states import WORDS

    return f"sinfo: valid states: {WORDS}\n"


def _letters() -> str:
    from cli.sinfo_columns import LETTERS

    return "".join([f"%{letter}\n" for letter in LETTERS])


def _names() -> str:
    from cli.sinfo_columns import NAMES

    return "".join([f"{name}\n" for name in NAMES])


_TOLD = {
    "usage": lambda: USAGE, "help": lambda: HELP, "helpstate": _states, "helpformat": _letters, "helpFormat": _names,
}  # fmt: skip


def _columns(values: dict[str, str | None]) -> list[output.Column]:
    from cli.sinfo_columns import LETTERS, NAMES

    long = "l" in values
    by_letters, by_names = values.get("o"), values.get("O")
    if long and by_letters is not None:
        raise base.fatal(
            "sinfo", "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry."
        )
    if by_names is not None:
        return output.parse_names(by_names, NAMES, _wrong_name)
    if by_letters is None and not any(key in values for key in "lNRs"):
        by_letters = os.environ.get("SINFO_FORMAT")
    if by_letters is not None:
        return output.parse_letters(by_letters, LETTERS, _wrong_letter)
    if "s" in values:
        layout = SUMMARY
    elif "N" in values:
        layout = NODES_LONG if long else NODES
    elif "R" in values:
        layout = REASONS_LONG if long else REASONS
    else:
        layout = LONG if long else DEFAULT
    columns = output.parse_letters(layout, LETTERS, _wrong_letter)
    # The first column of these layouts grows with what it holds.
    columns[0].grows = columns[0].field in ("p.marked_name", "nodelist")
    return columns


def _wrong_letter(what: str) -> None:
    base.say(f"Invalid node format specification: {what}")


def _wrong_name(what: str) -> None:
    base.error("sinfo", f"Invalid job format specification: {what}")


def _page(
    values: dict[str, str | None], columns: list[output.Column], only: tuple[Callable[..., bool], bool] | None
) -> str:
    from cli import sinfo_lines

    shown = [column.field for column in columns if column.field]
    node_fields = sinfo_lines.node_fields(shown)
    partition_fields = sinfo_lines.PARTITION_FIELDS
    target = f"/v1/overview?node_fields={','.join(node_fields)}&partition_fields={','.join(partition_fields)}"
    try:
        answer = client.call("GET", target)
    except errors.MusterError as problem:
        raise base.refused("slurm_load_partitions", problem, colon=": ") from None
    prefix = base.cluster_line("sinfo", values.get("M"), answer["cluster"], "h" not in values)
    nodes = [dict(zip(node_fields, row, strict=True)) for row in answer["rows"]]
    partitions = [dict(zip(partition_fields, row, strict=True)) for row in answer["partitions"]]
    names = values.get("p")
    if names:
        wanted = names.split(",")
        partitions = [each for each in partitions if each["name"] in wanted]
    elif "a" not in values or "hide" in values:
        partitions = [each for each in partitions if not each["hidden"]]
    for each in partitions:
        each["cluster"] = answer["cluster"]
    passes = _node_filter(values, only)
    made = sinfo_lines.group(
        partitions,
        nodes,
        passes,
        shown,
        exact="e" in values,
        by_node="N" in values,
        with_empty="R" not in values and "N" not in values,
    )
    sinfo_lines.sort(made, values.get("S") or ("N" if "N" in values else "#P,-t"))
    rows = [sinfo_lines.row(line, shown) for line in made]
    _widen(columns, shown, rows)
    return prefix + output.page(columns, shown, rows, with_header="h" not in values)


def _node_filter(
    values: dict[str, str | None], only: tuple[Callable[..., bool], bool] | None
) -> Callable[[dict[str, Any]], bool]:
    asked = values.get("n")
    named = frozenset(hostlist.expand(asked)) if asked else None
    responding = 1 if "r" in values else 0 if "d" in values else -1
    future = "F" in values or (only is not None and only[1])

    def passes(node: dict[str, Any]) -> bool:
        if named is not None and node["name"] not in named:
            return False
        if responding >= 0 and node["responding"] != responding:
            return False
        if node["state_base"] == "FUTURE" and not future:
            return False
        return only is None or only[0](node["state_base"], node["state_complete"].split("+")[1:])

    return passes


def _widen(columns: list[output.Column], shown: list[str], rows: list[list[Any]]) -> None:
    for column in columns:
        if column.grows and column.field in shown:
            place = shown.index(column.field)
            column.width = max([9, *(len(row[place]) for row in rows)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""sprio: what the priorities of waiting jobs are made of."""

from __future__ import annotations

import os

from cli import base, output
from muster import client, errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORTS = "hj:lM:no:p:S:u:vVw"
_NO, _ARG = base.NO_ARGUMENT, base.ARGUMENT
LONGS = {
    "cluster": ("M", _ARG),
    "clusters": ("M", _ARG),
    "federation": ("federation", _NO),
    "format": ("o", _ARG),
    "help": ("help", _NO),
    "jobs": ("j", _ARG),
    "local": ("local", _NO),
    "long": ("l", _NO),
    "noheader": ("h", _NO),
    "norm": ("n", _NO),
    "partition": ("p", _ARG),
    "sibling": ("sibling", _NO),
    "sort": ("S", _ARG),
    "usage": ("usage", _NO),
    "user": ("u", _ARG),
    "users": ("u", _ARG),
    "verbose": ("v", _NO),
    "version": ("V", _NO),
    "weights": ("w", _NO),
}
ENVIRONMENT = (("SPRIO_FORMAT", "o"), ("SPRIO_CLUSTERS", "M"), ("SLURM_CLUSTERS", "M"))
UNSUPPORTED = {"federation": "--federation", "sibling": "--sibling"}

LETTERS: dict[str, output.Source] = {
    "i": ("JOBID", "id", "na"),
    "r": ("PARTITION", "partition", "null"),
    "u": ("USER", "user", "null"),
    "o": ("ACCOUNT", "account", "null"),
    "n": ("QOSNAME", "qos", "null"),
    "c": ("CLUSTER", "cluster", "null"),
    "s": ("SLUID", "", "=(null)"),
    "a": ("AGE", "norm_age", "norm"),
    "A": ("AGE", "age", "whole"),
    "b": ("ASSOC", "norm_assoc", "norm"),
    "B": ("ASSOC", "assoc", "whole"),
    "f": ("FAIRSHARE", "norm_fairshare", "norm"),
    "F": ("FAIRSHARE", "fairshare", "whole"),
    "j": ("JOBSIZE", "norm_job_size", "norm"),
    "J": ("JOBSIZE", "job_size", "whole"),
    "p": ("PARTITION", "norm_partition", "norm"),
    "P": ("PARTITION", "of_partition", "whole"),
    "q": ("QOS", "norm_qos", "norm"),
    "Q": ("QOS", "of_qos", "whole"),
    "N": ("NICE", "nice", "na"),
    "S": ("SITE", "site", "na"),
    "t": ("TRES", "norm_tres", "plain"),
    "T": ("TRES", "tres", "plain"),
    "y": ("PRIORITY", "priority", "priority"),
    "Y": ("PRIORITY", "priority", "na"),
}
_WEIGHTED = (
    ("age", "A"), ("assoc", "B"), ("fairshare", "F"), ("job_size", "J"), ("of_partition", "P"), ("of_qos", "Q"),
)  # fmt: skip
"""Weight, and the letter that the default layout shows when it is set (in lower case with -n)."""

USAGE = """\
Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]
             [--usage] [-hlnvVw]
"""


def main(argv: list[str]) -> int:
    """Print the factors; the exit code is 1 if anything was wrong with the question, 255 without a controller."""
    return base.run("sprio", _main, argv)


def _main(argv: list[str]) -> int:
    found, rest = base.getopt("sprio", argv, SHORTS, LONGS)
    if any(base.tell(key, _TOLD) for key, _ in found):
        return 0
    values: dict[str, str | None] = {key: text for name, key in ENVIRONMENT if (text := os.environ.get(name))}
    values.update(found)
    for key in values:
        if key in UNSUPPORTED:
            raise base.Quit(1, f"sprio: error: {UNSUPPORTED[key]} is not supported by this release of Muster")
    if rest:
        base.write(USAGE)
        raise base.Quit(1, f"sprio: error: Unrecognized option: {rest[0]}")
    if "l" in values and "o" in values:
        if ("o", values["o"]) in found:
            raise base.fatal("sprio", "Options -o(--format) and -l(--long) are incompatible.")
        del values["o"]
    if "v" in values:
        base.say_asked("sprio", values.items())
    answer = _ask(_query(values))
    if answer["type"] != "priority/multifactor":
        raise base.Quit(
            1,
            "You are not running a supported priority plugin",
            f"({answer['type']}).",
            "Only 'priority/multifactor' is supported.",
        )
    columns = output.parse_letters(values.get("o") or _layout(values, answer["weights"]), LETTERS, _wrong)
    base.write(_page(values, columns, answer))
    return 0


def _help() -> str:
    from cli.sprio_help import HELP

    return HELP


_TOLD = {"usage": lambda: USAGE, "help": _help}


def _query(values: dict[str, str | None]) -> dict[str, str]:
    """Give the filters as the controller takes them."""
    query = {"all": "1"}
    ids, users, partitions = values.get("j"), values.get("u"), values.get("p")
    if ids:
        for word in ids.split(","):
            head = word.partition("_")[0]
            if not (head.isascii() and head.isdigit() and int(head[:12])):
                raise base.Quit(1, f"sprio: error: Invalid job id: {word}")
        query["ids"] = ids
    if partitions:
        query["partitions"] = partitions
    if users:
        uids = []
        for name in users.split(","):
            uid = base.uid_of(name)
            if uid is None:
                raise base.Quit(1, f"sprio: error: Invalid user: {name}")
            uids.append(str(uid))
        query["users"] = ",".join(uids)
    return query


def _ask(query: dict[str, str]) -> Any:
    try:
        return client.ask("/v1/priorities", query)
    except errors.MusterError as problem:
        end = base.refused("Couldn't get priority factors from controller", problem, colon=": ")
        end.code = 255
        raise end from None


def _layout(values: dict[str, str | None], weights: dict[str, Any]) -> str:
    """Give the default layout: with -l all, else a column for each factor that has a weight."""
    norm = "n" in values
    if "l" in values:
        if norm:
            return "%.15i %9r %.8u %.8o %.10y %.10S %.10a %.10b %.10f %.10j %.10p %.10n %.10q %.11N %.20t"
        return "%.15i %9r %.8u %.8o %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10n %.10Q %.11N %.20T"
    layout = "%.15i %9r " + ("%.10y %.10S" if norm else "%.10Y %.10S")
    for name, letter in _WEIGHTED:
        if weights[name]:
            layout += f" %.10{letter.lower() if norm else letter}"
    if weights["tres"]:
        layout += " %20t" if norm else " %20T"
    return layout


def _page(values: dict[str, str | None], columns: list[output.Column], answer: Any) -> str:
    with_header = "h" not in values
    text = base.cluster_line("sprio", values.get("M"), answer["cluster"], with_header)
    fields = [*answer["fields"], "cluster"]
    if "w" in values:
        rows = [_weights(answer["weights"], fields)]
        for column in columns:
            # The row holds texts; what has no weight of its own, as a normalized factor, stays empty.
            column.kind = {"whole": "na", "norm": "=", "priority": "="}.get(column.kind, column.kind)
    else:
        rows = [[*row, answer["cluster"]] for row in answer["rows"]]
        _sort(rows, fields, values.get("S") or "i")
        rows = [_texts(row, fields) for row in rows]
    return text + output.page(columns, fields, rows, with_header=with_header)


def _weights(weights: dict[str, Any], fields: list[str]) -> list[Any]:
    """Give the row of -w: what each weighted column is multiplied with."""
    texts: dict[str, Any] = {name: str(weights[name]) for name, _ in _WEIGHTED}
    texts.update(id="Weights", site="1", tres=",".join([f"{name}={weight:g}" for name, weight in weights["tres"]]))
    return [texts.get(field, "") for field in fields]


def _texts(row: list[Any], fields: list[str]) -> list[Any]:
    """Give a row with its TRES as texts."""
    for field, digits in (("tres", 0), ("norm_tres", 2)):
        place = fields.index(field)
        row[place] = ",".join([f"{name}={value:.{digits}f}" for name, value in row[place]])
    return row


def _sort(rows: list[list[Any]], fields: list[str], order: str) -> None:
    """Sort by the last key first: each pass keeps the order of the one before."""
    for part in reversed(order.split(",")):
        letter = part.lstrip("+-")
        source = LETTERS.get(letter)
        if source is None or not source[1]:
            raise base.Quit(1, f"sprio: error: Invalid sort specification: {letter}")
        place = fields.index("id_sort" if letter == "i" else source[1])
        rows.sort(key=lambda row, place=place: row[place], reverse=part.startswith("-"))  # type: ignore[misc]


def _wrong(what: str) -> None:
    base.error("sprio", f"Invalid job format specification: {what}")

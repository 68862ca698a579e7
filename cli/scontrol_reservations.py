"""`scontrol create|update|delete reservation` and the records of `show reservation`: KEY=VALUE words to requests."""

from __future__ import annotations

import time

from cli import base, submitting
from muster.errors import InvalidInput, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEYS = (
    ("accounts", 1, "accounts"), ("allowedpartitions", 2, "allowed_partitions"), ("burstbuffer", 2, "BurstBuffer"),
    ("comment", 3, "comment"), ("corecnt", 7, "core_counts"), ("duration", 1, "duration"), ("endtime", 1, "end"),
    ("features", 2, "features"), ("flags", 2, "flags"), ("groups", 1, "groups"), ("licenses", 2, "licenses"),
    ("maxstartdelay", 2, "MaxStartDelay"), ("nodecnt", 7, "node_count"), ("nodes", 5, "nodes"),
    ("partitionname", 1, "partition"), ("qos", 1, "qos"), ("reservationname", 1, "name"), ("skip", 2, "skip"),
    ("starttime", 2, "start"), ("trespernode", 5, "tres_per_node"), ("tres", 1, "tres"), ("users", 1, "users"),
)  # fmt: skip
"""(key, shortest beginning, field of the request); fields with a capital are not there yet."""
_ADDABLE = ("users", "accounts", "flags")
NULL = "(null)"


def create(words: list[str]) -> int:
    """Make a reservation; a name is made up where none is given."""
    request, floating = _request(words, "No reservation created.")
    for fields, text in (
        (("start",), "A start time must be given."),
        (("end", "duration"), "An end time or duration must be given."),
        (_SIZES, "CoreCnt, Nodes, NodeCnt, TRES or Watts must be specified."),
        (_WHO, "Either Users/Groups, AllowedPartitions, QOS and/or Accounts must be specified."),
    ):
        if not any(request.get(field) not in (None, "") for field in fields):
            if fields is _SIZES and _holds_no_nodes(request):
                continue
            raise base.Quit(1, f"scontrol: error: {text}  No reservation created.")
    if floating is not None:
        request["start_in"] = floating
    try:
        made = submitting.post("/v1/reservations/create", submitting.encode("scontrol", request))
    except MusterError as problem:
        raise _refused("Error creating the reservation: ", problem) from None
    base.write(f"Reservation created: {made['name']}\n")
    return 0


_SIZES = ("core_counts", "nodes", "node_count", "tres", "tres_per_node")
_WHO = ("users", "groups", "allowed_partitions", "qos", "accounts")


def update(words: list[str]) -> int:
    """Change a reservation."""
    request, floating = _request(words, "No reservation update.")
    if floating is not None:
        request["start_in"] = floating
    if set(request) <= {"name"}:
        raise base.Quit(1, "No changes specified")
    try:
        submitting.post("/v1/reservations/update", submitting.encode("scontrol", request))
    except MusterError as problem:
        raise _refused("slurm_update error: ", problem) from None
    base.write("Reservation updated.\n")
    return 0


def delete(name: str, asked: str) -> int:
    """Delete a reservation; `asked` is the argument as given."""
    try:
        submitting.post("/v1/reservations/delete", submitting.encode("scontrol", {"name": name}))
    except MusterError as problem:
        raise _refused(f"delete_reservation {asked}: ", problem) from None
    return 0


def _refused(what: str, problem: MusterError) -> base.Quit:
    # The door refuses in its own words; Slurm's for a caller without rights are others.
    sentence = "Invalid user id" if problem.code == "DENIED" else problem.sentence
    lines = [what + sentence]
    if problem.hint and problem.code != "DENIED":
        lines.append(f"scontrol: {problem.hint}")
    return base.Quit(1, *lines)


def _holds_no_nodes(request: dict[str, Any]) -> bool:
    flags = str(request.get("flags", "")).upper()
    return bool(request.get("licenses")) and ("ANY_NODES" in flags or "LICENSE_ONLY" in flags)


def _request(words: list[str], ending: str) -> tuple[dict[str, Any], int | None]:
    """Read the words; also gives how far from now StartTime lies, for a reservation that floats.

    Args:
        ending: what stands behind the sentence about a key that is not known.
    """
    request: dict[str, Any] = {}
    now = int(time.time())
    for word in words:
        head, equals, value = word.partition("=")
        sign = head[-1:] if head[-1:] in ("+", "-") else ""
        field = _field(head.removesuffix(sign).lower()) if equals else ""
        if not field or (sign and field not in _ADDABLE):
            raise base.Quit(1, f"scontrol: error: Unknown parameter {word}.  {ending}")
        if field[0].isupper():
            raise base.Quit(1, f"scontrol: error: {field} is not supported by this release of Muster.  {ending}")
        request[field] = _value(field, value, word, now, ending)
        if sign:
            request.setdefault("add" if sign == "+" else "remove", []).append(field)
    start = request.get("start")
    floats = "TIME_FLOAT" in str(request.get("flags", "")).upper()
    return request, max(0, start - now) if floats and start is not None else None


def _field(key: str) -> str:
    for long, least, field in _KEYS:
        if key == long or (len(key) >= least and long.startswith(key)):
            return field
    return ""


def _value(field: str, value: str, word: str, now: int, ending: str) -> Any:
    if field in ("start", "end"):
        from muster.timepoints import parse_time_point

        try:
            return parse_time_point(value, now)
        except InvalidInput as wrong:
            what = "start" if field == "start" else "end"
            raise base.Quit(1, wrong.sentence, f"scontrol: error: Invalid {what} time {value}.  {ending}") from None
    if field == "duration":
        return _duration(value, ending)
    if field == "skip":
        return value.lower() in ("yes", "1", "true", "")
    if field == "node_count":
        return _number(value, word, ending)
    if field == "core_counts":
        return [_number(each, word, ending) for each in value.split(",")]
    return value


def _duration(text: str, ending: str) -> int:
    """Read a length: minutes, or d-h:m:s; seconds, -1 for UNLIMITED."""
    from muster.units import parse_duration

    try:
        seconds = parse_duration(text)
    except InvalidInput:
        raise base.Quit(1, f"scontrol: error: Invalid duration {text}.  {ending}") from None
    return -1 if seconds is None else seconds


def _number(text: str, word: str, ending: str) -> int:
    digits = text.strip().lower()
    scale = 1024 if digits.endswith("k") else 1
    digits = digits.removesuffix("k")
    if digits.isascii() and digits.isdigit() and 0 < int(digits[:12]) < 1 << 31:
        return int(digits[:12]) * scale
    raise base.Quit(1, f"scontrol: error: Invalid number in {word}: write one from 1 on.  {ending}")


def record(one: dict[str, Any], oneliner: bool) -> str:
    """Give the record of a reservation, as `show reservation` prints it."""
    from muster.timepoints import format_time_point
    from muster.units import format_duration

    def null(field: str) -> str:
        return str(one[field] or NULL)

    lines = [
        f"ReservationName={one['name']} StartTime={format_time_point(one['start_at'])}"
        f" EndTime={format_time_point(one['end_at'])} Duration={format_duration(one['duration'])}",
        f"Nodes={null('nodes')} NodeCnt={one['node_count']} CoreCnt={one['core_count']} Features={null('features')}"
        f" PartitionName={null('partition')} Flags={one['flags']}",
    ]
    lines += [f"  NodeName={name} CoreIDs={cores}" for name, cores in one["core_ids"]]
    lines += [
        f"TRES={null('tres')}",
        f"AllowedPartitions={null('allowed_partitions')} QOS={null('qos')}",
        f"Users={null('users')} Groups={null('groups')} Accounts={null('accounts')} Licenses={null('licenses')}"
        f" State={one['state']} BurstBuffer={NULL}",
        f"MaxStartDelay={NULL}",
    ]
    if one["comment"]:
        lines.append(f"Comment={one['comment']}")
    if oneliner:
        return " ".join([line.lstrip(" ") for line in lines]) + "\n"
    return "\n   ".join(lines) + "\n\n"

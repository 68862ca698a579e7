"""`scontrol update`: what is to change of a job or a node, from KEY=VALUE words to one request."""

from __future__ import annotations

import time

from cli import base, submitting
from cli.scontrol_actions import for_job, outcomes, unsupported
from muster.errors import InvalidInput, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ENTITIES = (
    ("jobid", 3, "job"), ("jobname", 4, "jobname"), ("stepid", 3, "step"), ("nodename", 3, "node"),
    ("partitionname", 3, "partition"), ("reservationname", 3, "reservation"), ("slurmctlddebug", 9, "SlurmctldDebug"),
)  # fmt: skip
"""(key, shortest beginning, entity)."""
_JOB_KEYS = (
    ("arraytaskthrottle", 10), ("comment", 3), ("dependency", 1), ("eligibletime", 2), ("jobname", 4), ("name", 2),
    ("nice", 4), ("partition", 2), ("priority", 2), ("requeue", 4), ("reservationname", 3),
    ("deadline", 3), ("timemin", 5), ("contiguous", 3), ("prefer", 3), ("segmentsize", 7), ("switches", 5),
    ("topology", 3),
    ("sitefactor", 5), ("starttime", 2), ("timelimit", 5),
)  # fmt: skip
_NODE_KEYS = (("activefeatures", 7), ("availablefeatures", 9), ("features", 1), ("reason", 1), ("state", 1),
              ("weight", 1))  # fmt: skip
_NODE_STATES = (
    "DRAIN", "DOWN", "FAIL", "RESUME", "UNDRAIN", "IDLE", "NORESP", "FUTURE", "POWER_UP", "POWER_DOWN",
    "POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "CANCEL_REBOOT",
)  # fmt: skip
_NO_REASON = "You must specify a reason when DOWNING or DRAINING a node. Request denied"
_LARGEST_PRIORITY = 4294967293
_COMPUTED = 4294967295
"""Takes back a priority given by hand."""
_LARGEST_NICE = 2147483645


def update(arguments: list[str], quiet: bool) -> int:
    """Change what the words say and give the exit code."""
    if not arguments:
        raise base.Quit(1, "too few arguments for update keyword")
    pairs = _pairs(arguments)
    entity, name, rest = _entity(pairs)
    if entity in ("job", "jobname"):
        return _update_job(entity, name, rest, quiet)
    if entity == "node":
        return _update_node(name, rest)
    if entity == "reservation":
        from cli import scontrol_reservations

        return scontrol_reservations.update([f"ReservationName={name}", *(word for _, _, word in rest)])
    raise unsupported(f"update of a {entity}" if entity != "SlurmctldDebug" else "update of SlurmctldDebug")


def _pairs(arguments: list[str]) -> list[tuple[str, str, str]]:
    """Cut the words into (key in lower case, value, word as typed); `update job 5 ...` is `update job=5 ...`."""
    words = list(arguments)
    if len(words) > 1 and "=" not in words[0] and _long_key(words[0].lower()):
        words[:2] = [f"{words[0]}={words[1]}"]
    return [(word.partition("=")[0].lower(), word.partition("=")[2], word) for word in words]


def _long_key(key: str) -> str:
    for long, least, entity in _ENTITIES:
        if len(key) >= least and long.startswith(key):
            return entity
    return ""


def _entity(pairs: list[tuple[str, str, str]]) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Give what is to be changed, its name, and the other pairs; the first key that identifies something counts."""
    places = [(_long_key(key), at) for at, (key, _, _) in enumerate(pairs)]
    found = [(entity, at) for entity, at in places if entity]
    # With an id, JobName is the new name.
    found.sort(key=lambda one: (one[0] == "jobname", one[1]))
    if not found:
        raise base.Quit(
            1,
            "No valid entity in update command",
            'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"',
        )
    entity, at = found[0]
    return entity, pairs[at][1], pairs[:at] + pairs[at + 1 :]


def _match(key: str, keys: tuple[tuple[str, int], ...], word: str) -> str:
    for long, least in keys:
        if len(key) >= least and long.startswith(key):
            return long
    raise base.Quit(1, f"Update of this parameter is not supported: {word}", "Request aborted")


# ---- jobs ------------------------------------------------------------------------------------------------------


def _update_job(entity: str, name: str, pairs: list[tuple[str, str, str]], quiet: bool) -> int:
    body: dict[str, Any] = {"ids": name} if entity == "job" else {"job_name": name}
    for key, value, word in pairs:
        body.update(_job_field(_match(key, _JOB_KEYS, word), value, word))
    if len(body) == 1:
        raise base.Quit(1, "No changes specified")
    code = 0
    for one, problem in outcomes("/v1/jobs/update", body, name):
        code = 1
        if not quiet:
            for line in for_job(one, problem):
                base.say(line)
    return code


def _job_field(key: str, value: str, word: str) -> dict[str, Any]:
    if key == "reservationname":
        return {"reservation": value}
    if key in ("comment", "dependency", "partition", "prefer", "switches", "topology"):
        return {key: value}
    if key == "segmentsize":
        return {"segment": value}
    if key == "contiguous":
        words = {"1": True, "yes": True, "0": False, "no": False}
        if value.lower() not in words:
            raise base.Quit(1, f"scontrol: error: Invalid value in {word}: write yes or no")
        return {key: words[value.lower()]}
    if key in ("name", "jobname"):
        return {"name": value}
    if key in ("starttime", "eligibletime"):
        return {"begin": _time(value)}
    if key == "deadline":
        return {"deadline": _time(value)}
    if key == "timemin":
        found = _limit(value)
        if "time_limit_minutes" not in found:
            raise base.Quit(1, f"scontrol: error: Invalid value in {word}: write a time, not a change")
        return {"time_min_minutes": found["time_limit_minutes"]}
    if key == "timelimit":
        return _limit(value)
    if key == "arraytaskthrottle":
        return {"array_limit": _number(value, word, 0, 2147483647)}
    if key == "nice":
        return {"nice": _number(value, word, -_LARGEST_NICE, _LARGEST_NICE) if "=" in word else 100}
    if key == "sitefactor":
        return {"site_factor": _number(value, word, -_LARGEST_NICE, _LARGEST_NICE)}
    if key == "priority":
        if value.lower() in ("infinite", "unlimited", "-1"):
            return {"priority": _COMPUTED}
        return {"priority": _number(value, word, 0, _LARGEST_PRIORITY)}
    return {"requeue": bool(_number(value, word, 0, 1))}


def _number(text: str, word: str, least: int, most: int) -> int:
    digits = text[1:] if text[:1] in "+-" else text
    if digits.isascii() and digits.isdigit() and len(digits) <= 18 and least <= int(text) <= most:
        return int(text)
    raise base.Quit(1, f"scontrol: error: Invalid value in {word}: write a number from {least} to {most}")


def _time(text: str) -> int:
    from muster.timepoints import parse_time_point

    try:
        return parse_time_point(text, int(time.time()))
    except InvalidInput as wrong:
        raise base.Quit(1, wrong.sentence, "No changes specified") from None


def _limit(text: str) -> dict[str, int]:
    """Read a limit; with + or - in front it is a change of the limit in force."""
    from muster.units import parse_limit_minutes

    sign = text[:1] if text[:1] in ("+", "-") and text != "-1" else ""
    try:
        minutes = parse_limit_minutes(text[len(sign) :], zero_is_unlimited=not sign)
    except InvalidInput:
        raise base.Quit(1, "scontrol: error: Invalid TimeLimit value") from None
    if not sign:
        return {"time_limit_minutes": -1 if minutes is None else minutes}
    if minutes is None:
        raise base.Quit(1, "scontrol: error: Invalid TimeLimit value")
    return {"time_limit_change_minutes": -minutes if sign == "-" else minutes}


# ---- nodes -----------------------------------------------------------------------------------------------------


def _update_node(name: str, pairs: list[tuple[str, str, str]]) -> int:
    body: dict[str, Any] = {"nodes": name}
    for key, value, word in pairs:
        long = _match(key, _NODE_KEYS, word)
        if long == "state":
            body["state"] = _node_state(value)
        elif long == "weight":
            body["weight"] = _number(value, word, 0, 4294967295)
        else:
            body["features" if long.endswith("features") else long] = value
    if len(body) == 1:
        raise base.Quit(1, "No changes specified")
    if body.get("state") in ("DOWN", "DRAIN", "FAIL") and not body.get("reason"):
        raise base.Quit(1, _NO_REASON)
    try:
        submitting.post("/v1/nodes/update", submitting.encode("scontrol", body))
    except MusterError as problem:
        # The door refuses in its own words; Slurm's for this are others.
        sentence = "Invalid user id" if problem.code == "DENIED" else problem.sentence
        lines = [f"slurm_update error: {sentence}"]
        if problem.hint and problem.code != "DENIED":
            lines.append(f"scontrol: {problem.hint}")
        raise base.Quit(1, *lines) from None
    return 0


def _node_state(text: str) -> str:
    """Read a state by its name or a beginning of three letters or more."""
    word = text.upper()
    for state in _NODE_STATES:
        if word == state or (len(word) >= 3 and state.startswith(word)):
            return state
    raise base.Quit(
        1,
        f"Invalid input: State={text}",
        "Request aborted",
        "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN",
        "Not all states are valid given a node's prior state",
    )

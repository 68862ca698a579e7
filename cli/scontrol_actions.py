"""The keywords of scontrol that change something: hold, release, requeue, update, write, shutdown.

`cli/scontrol.py` reads the options, spells the keyword out and calls `run`.
"""

from __future__ import annotations

import os

from cli import base, submitting
from muster import client
from muster.errors import Denied, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Problem = Mapping[str, Any]
    Told = Callable[[str, Problem], list[str]]

KEYWORDS = (
    "create",
    "delete",
    "hold",
    "holdu",
    "release",
    "requeue",
    "requeuehold",
    "resume",
    "shutdown",
    "suspend",
    "uhold",
    "update",
    "write",
)
"""What `run` carries out; every other keyword it refuses by name."""
_UNKNOWN_JOB = 2017


def run(keyword: str, arguments: list[str], quiet: bool) -> int:
    """Carry out one keyword.

    Args:
        keyword: in lower case and in full.
        arguments: the words behind it.
        quiet: -Q; errors show only in the exit code.

    Returns:
        0, or 1 if anything was refused; what is wrong has been said.
    """
    try:
        return _run(keyword, arguments, quiet)
    except base.Quit as end:
        if not quiet:
            for line in end.lines:
                base.say(line)
        return end.code


def _run(keyword: str, arguments: list[str], quiet: bool) -> int:
    if keyword in ("hold", "holdu", "uhold", "release"):
        return _hold(keyword, arguments, quiet)
    if keyword in ("requeue", "requeuehold"):
        return _requeue(keyword, arguments, quiet)
    if keyword in ("suspend", "resume"):
        return _suspend(keyword, arguments, quiet)
    if keyword == "update":
        from cli import scontrol_update

        return scontrol_update.update(arguments, quiet)
    if keyword == "create":
        return _create(arguments)
    if keyword == "delete":
        return _delete(arguments)
    if keyword == "write":
        return _write(arguments)
    if keyword == "shutdown":
        return _shutdown(arguments)
    raise unsupported(keyword)


def _create(arguments: list[str]) -> int:
    """Make what the first word names: `reservation KEY=VALUE...`, or `ReservationName=x KEY=VALUE...`."""
    head, equals, name = arguments[0].partition("=")
    entity = _entity(head)
    if not entity:
        raise base.Quit(1, f"scontrol: error: Invalid creation entity: {arguments[0]}")
    if entity != "reservation":
        raise unsupported(f"create {entity}")
    from cli import scontrol_reservations

    rest = arguments[1:]
    return scontrol_reservations.create([f"ReservationName={name}", *rest] if equals else rest)


def _delete(arguments: list[str]) -> int:
    """Delete what is named: `ReservationName=x`, `reservation=x`, `reservation x`."""
    head, equals, name = arguments[0].partition("=")
    entity = _entity(head)
    if not entity or (not equals and len(arguments) != 2) or (equals and len(arguments) > 1):
        raise base.Quit(1, f"Invalid deletion entity: {arguments[0]}")
    if entity != "reservation":
        raise unsupported(f"delete {entity}")
    from cli import scontrol_reservations

    return scontrol_reservations.delete(name if equals else arguments[1], " ".join(arguments))


def _entity(word: str) -> str:
    """Give what a word of create or delete names; empty for nothing."""
    word = word.lower()
    for entity, least in (("partitionname", 3), ("reservationname", 3), ("nodename", 3)):
        if len(word) >= least and entity.startswith(word):
            return entity.removesuffix("name")
    return ""


def unsupported(what: str) -> base.Quit:
    """Give the end that refuses a keyword or entity of Slurm that is not there yet."""
    return base.Quit(1, f"scontrol: error: {what} is not supported by this release of Muster")


def _hold(keyword: str, arguments: list[str], quiet: bool) -> int:
    if not arguments:
        raise base.Quit(1, f"too few arguments for keyword:{keyword}")
    path = "/v1/jobs/release" if keyword == "release" else "/v1/jobs/hold"
    body: dict[str, Any] = {"as_user": True} if keyword in ("uhold", "holdu") else {}

    def told(name: str, problem: Problem) -> list[str]:
        lines = for_job(name, problem)
        return lines if "_" in name else [lines[0], f"slurm_suspend error:{problem['sentence']}", *lines[1:]]

    return _each(path, body, arguments, told, quiet)


def _requeue(keyword: str, arguments: list[str], quiet: bool) -> int:
    if not arguments:
        raise base.Quit(1, f"too few arguments for keyword:{keyword}")
    first = arguments[0].lower()
    if first == "incomplete" or first.startswith("state="):
        raise unsupported(f"{keyword} {arguments[0]}")
    body: dict[str, Any] = {"hold": True} if keyword == "requeuehold" else {}
    return _each("/v1/jobs/requeue", body, arguments, for_job, quiet)


def _suspend(keyword: str, arguments: list[str], quiet: bool) -> int:
    if not arguments:
        raise base.Quit(1, f"too few arguments for keyword:{keyword}")
    return _each(f"/v1/jobs/{keyword}", {}, arguments, for_job, quiet)


def _each(path: str, body: dict[str, Any], arguments: list[str], told: Told, quiet: bool) -> int:
    """Ask for each argument, a list of ids or jobname=NAME; go on past those that fail, and give 1 if any did."""
    code = 0
    for argument in arguments:
        for name, problem in outcomes(path, {**body, "ids": argument}, argument):
            code = 1
            if not quiet:
                for line in told(name, problem):
                    base.say(line)
    return code


def outcomes(path: str, body: Mapping[str, Any], asked: str) -> list[tuple[str, Problem]]:
    """Ask for a change of some jobs; give (id, problem) of each that was refused. `asked`: the ids as typed.

    Raises:
        Quit: the controller cannot be reached.
    """
    try:
        results = submitting.post(path, submitting.encode("scontrol", body))["results"]
    except MusterError as problem:
        if problem.slurm_code in (1800, 1802):
            raise base.refused("slurm_update", problem) from None
        said = {"sentence": problem.sentence, "slurm_code": problem.slurm_code, "hint": problem.hint}
        return [(asked.partition("=")[2] or asked, said)]
    return [(one["id"], one["error"]) for one in results if "error" in one]


def for_job(name: str, problem: Problem) -> list[str]:
    """Word a refusal for a job as Slurm does, and below it what would help."""
    head, underscore, task = name.partition("_")
    if underscore:
        lines = [f"{head}_[{task.strip('[]')}]: {problem['sentence']}"]
    else:
        lines = [f"{problem['sentence']} for job {name}"]
    if problem["hint"] and problem["slurm_code"] != _UNKNOWN_JOB:
        lines.append(f"scontrol: {problem['hint']}")
    return lines


def _shutdown(arguments: list[str]) -> int:
    if len(arguments) > 1:
        raise base.Quit(1, "too many arguments for keyword:shutdown")
    if arguments and arguments[0].lower() not in ("slurmctld", "controller"):
        raise base.Quit(1, f"scontrol: error: shutdown stops the controller, not {arguments[0]!r}")
    try:
        submitting.post("/v1/shutdown", b"")
    except MusterError as problem:
        raise base.refused("slurm_shutdown", problem) from None
    return 0


def _write(arguments: list[str]) -> int:
    if len(arguments) < 2:
        raise base.Quit(1, "too few arguments for keyword:write")
    if not "batch_script".startswith(arguments[0].lower()):
        raise unsupported(f"write {arguments[0]}")
    if len(arguments) > 3:
        raise base.Quit(1, "too many arguments for keyword:write")
    job = arguments[1]
    try:
        found = client.call("GET", f"/v1/jobs/{client.quote(job)}/script")
    except MusterError as problem:
        code = 0 if problem.slurm_code == _UNKNOWN_JOB and not isinstance(problem, Denied) else 1
        raise base.Quit(code, f"job script retrieval failed: {problem.sentence}") from None
    target = arguments[2] if len(arguments) > 2 else f"slurm-{job}.sh"
    data = _script_bytes(found)
    if target == "-":
        base.write(data.decode("utf-8", "surrogateescape"))
        return 0
    try:
        # Scripts may hold what is nobody else's business.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
        with open(descriptor, "wb") as file:
            file.write(data)
    except OSError as problem:
        raise base.Quit(1, f"scontrol: error: cannot write {target}: {problem.strerror}") from None
    base.write(f"batch script for job {job} written to {target}\n")
    return 0


def _script_bytes(found: Mapping[str, Any]) -> bytes:
    if "script" in found:
        return str(found["script"]).encode()
    import binascii

    return binascii.a2b_base64(found["script_base64"])

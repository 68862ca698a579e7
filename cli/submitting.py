"""What the commands that submit share: exit codes, information texts, the framed request, the estimate's line."""

from __future__ import annotations

import os
import time

from cli import base
from muster import client, tinyjson
from muster.errors import MusterError, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


_RETRY_SECONDS = 0.1


def error_exit(command: str, variable: str = "SLURM_EXIT_ERROR") -> int:
    """Give the exit code that a variable sets for a refusal, else 1; a value of no use is told."""
    text = os.environ.get(variable)
    if text is None:
        return 1
    digits = text.strip()
    code = int(digits) & 0xFF if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
    if not code:
        base.error(command, f"{variable} has zero value")
        return 1
    return code


def show_information(command: str, given: Mapping[str, object]) -> int:
    """Print what --help, --usage or --version ask for; the exit code is 0."""
    if "version" in given:
        return base.print_version()
    from muster import options_help

    base.write(options_help.help_text(command) if "help" in given else options_help.usage_text(command))
    return 0


def encode(command: str, request: Mapping[str, Any]) -> bytes:
    """Give a request as JSON.

    Raises:
        Quit: a text in it is no UTF-8, which JSON cannot carry; it is named.
    """
    try:
        return tinyjson.dumps(request).encode()
    except UnicodeEncodeError:
        raise base.Quit(1, f"{command}: error: {_not_utf8(command, request)} is not valid UTF-8 text") from None


def frame(command: str, request: Mapping[str, Any], script: bytes, variables: Mapping[str, str]) -> bytes:
    """Give the body that carries a request, a script and an environment; the last two may be any bytes.

    Raises:
        Quit: see `encode`.
    """
    json = encode(command, request)
    entries = "".join([f"{name}={text}\0" for name, text in variables.items()]).encode("utf-8", "surrogateescape")
    return b"MSTR1 %d %d %d\n" % (len(json), len(script), len(entries)) + json + script + entries


def _not_utf8(command: str, request: Mapping[str, Any]) -> str:
    words = {"work_dir": "the name of the working directory", "command": "the path of the script"}
    for key, value in request.items():
        if key != "submit_line" and any("\ud800" <= letter <= "\udfff" for letter in str(value)):
            dashes = "" if command == "scontrol" else "--"
            return words.get(key) or f"the value of {dashes}{key.replace('_', '-')}"
    return "the command line"


def post(path: str, body: object) -> Any:
    """Ask for a change; a controller that is stopping has taken nothing, so it is asked again while patience lasts."""
    deadline = time.monotonic() + client.patience()
    while True:
        try:
            return client.call("POST", path, body)
        except Unavailable as problem:
            # With a cause, it is our own end that failed, and the client was patient already.
            if problem.slurm_code != 1800 or problem.__cause__ is not None or time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def refusal_lines(command: str, what: str, problem: MusterError) -> list[str]:
    """Give the lines of a refused submission: Slurm's own ones, and below them what would help.

    Args:
        command: the name that messages begin with.
        what: what stands before the sentence, such as `sbatch: error: Batch job submission failed: `.
        problem: the refusal.
    """
    lines: list[str] = []
    hint = problem.hint
    if problem.slurm_code == 2000 and hint.startswith("invalid partition specified: "):
        first, opening, rest = hint.partition(" (")
        lines.append(f"{command}: error: {first}")
        hint = rest.removesuffix(")") if opening else ""
    elif problem.slurm_code == 2014:
        first, colon, rest = hint.partition(": ")
        if colon and first.endswith("can not be satisfied"):
            lines.append(f"{command}: error: {first}")
            hint = rest
    elif problem.slurm_code == 2050:
        # The limit in the way, on a line of its own as Slurm prints it.
        first, colon, rest = hint.partition(": ")
        if colon:
            lines.append(f"{command}: error: {first}")
            hint = rest
    lines.append(what + problem.sentence)
    if hint:
        lines.append(f"{command}: {hint}")
    return lines


def say_options(command: str, values: Mapping[str, Any]) -> None:
    """Print what was asked for, as -v does."""
    bar = f"{command}: {'-' * 20} {'-' * 20}"
    base.say(f"{command}: defined options")
    base.say(bar)
    for key in sorted(values):
        base.say(f"{command}: {key.replace('_', '-'):<20}: {values[key]}")
    base.say(bar)
    base.say(f"{command}: end of defined options")


def estimate_line(command: str, found: Mapping[str, Any], *, cluster: str = "") -> str:
    """Give the line that --test-only prints."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(found["start_at"]))
    where = f" on cluster {cluster}" if cluster else ""
    return (
        f"{command}: Job {found['job_id']} to start at {at}{where} a using {found['cpus']} processors "
        f"on nodes {found['nodes']} in partition {found['partition']}"
    )

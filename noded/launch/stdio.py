"""Opening a step's files as its user: names from patterns, missing folders made, append or truncate."""

from __future__ import annotations

import os

from muster import patterns
from muster.ids import BATCH_STEP, step_word
from noded.launch.spawn import User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noded.launch.spec import Launch


class CannotOpen(Exception):
    """A file of the job cannot be opened; the sentence names it and says why."""


class Files:
    """The descriptors of one task. (A plain class: dataclasses would be the zygote's largest import.)"""

    __slots__ = ("stderr", "stdin", "stdout")

    def __init__(self, stdin: int, stdout: int, stderr: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


def pattern_values(launch: Launch, place: int = 0) -> dict[str, str | int]:
    """Give the values of a file pattern's codes for a task of this node."""
    job = launch["job"]
    array = job["array_job_id"]
    values = patterns.batch_values(
        job_id=launch["job_id"],
        job_name=job["name"],
        user=launch["user"],
        array_job_id=array or None,
        array_index=job["array_task_id"] if array else None,
        restarts=job["restarts"],
        node=launch["node_name"].partition(".")[0],
    )
    if launch["step_id"] != BATCH_STEP:
        values["J"] = f"{launch['job_id']}.{step_word(launch['step_id'])}"
        values["s"] = step_word(launch["step_id"])
    values["n"] = launch["node_id"]
    values["t"] = launch["ranks"][place]
    return values


def open_batch(launch: Launch, user: User) -> Files:
    """Open the files of a batch script (submit.md 5); raises CannotOpen."""
    default = patterns.DEFAULT_ARRAY_OUTPUT if launch["job"]["array_job_id"] else patterns.DEFAULT_OUTPUT
    values = pattern_values(launch)
    with user.act():
        stdin = open_input(launch["std_in"] or "/dev/null", values, launch["work_dir"])
        output = launch["std_out"] or default
        stdout = open_output(output, values, launch)
        error = launch["std_err"]
        same = not error or patterns.expand(error, values) == patterns.expand(output, values)
        stderr = stdout if same else open_output(error, values, launch)
    return Files(stdin, stdout, stderr)


def open_output(pattern: str, values: dict[str, str | int], launch: Launch) -> int:
    """Open a file for writing, making the folders above it; `none` is /dev/null. Call it as the user."""
    if patterns.is_none(pattern):
        return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
    path = os.path.join(launch["work_dir"], patterns.expand(pattern, values))
    # Appending for truncated files too: a script and its steps may share one file, and must not overwrite each other.
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | (0 if launch["append"] else os.O_TRUNC)
    before = os.umask(launch["umask"])
    try:
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            return os.open(path, flags, 0o666)
    except OSError as error:
        raise CannotOpen(f"cannot open the output file {path}: {error.strerror}") from error
    finally:
        os.umask(before)


def open_input(pattern: str, values: dict[str, str | int], work_dir: str) -> int:
    """Open a file for reading; `none` is /dev/null. Call it as the user."""
    name = "/dev/null" if patterns.is_none(pattern) else patterns.expand(pattern, values)
    path = os.path.join(work_dir, name)
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotOpen(f"cannot open the input file {path}: {error.strerror}") from error

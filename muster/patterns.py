"""File-name patterns of -o, -e and -i: `%j`, `%5a`, `%x` and so on.

Used where a job is shown and, on the nodes, where its files are opened.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_OUTPUT = "slurm-%j.out"
DEFAULT_ARRAY_OUTPUT = "slurm-%A_%a.out"

# The array index of a job that is no array (the reference's "not set").
NO_INDEX = 4294967294

CODES = "AabJjNnrSstux"
_PADDED = "AabJjnrst"
_LARGEST_WIDTH = 10
_TASK_CODES = "tnNu"


def expand(pattern: str, values: Mapping[str, str | int]) -> str:
    """Put the values in the place of the codes.

    `%<width><code>` pads numbers with zeros, to 10 places at most. A code without a value, and an unknown one, stay
    as they are written. A backslash anywhere turns all this off, and the backslashes are dropped.

    Args:
        pattern: the text of the option.
        values: by code letter, as `batch_values` makes them; `%%` needs none.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    if "%" not in pattern:
        return pattern
    made: list[str] = []
    at = 0
    while (start := pattern.find("%", at)) >= 0:
        made.append(pattern[at:start])
        end = start + 1
        while end < len(pattern) and "0" <= pattern[end] <= "9":
            end += 1
        width = min(int(pattern[start + 1 : end][:9] or "0"), _LARGEST_WIDTH)
        code = pattern[end : end + 1]
        at = end + 1
        if code == "%" and end == start + 1:
            made.append("%")
        elif code and code in values:
            made.append(_padded(code, str(values[code]), width))
        else:
            made.append(pattern[start:at])
    made.append(pattern[at:])
    return "".join(made)


def _padded(code: str, text: str, width: int) -> str:
    if code not in _PADDED or not width:
        return text
    if code == "J":
        job, dot, step = text.partition(".")
        return f"{job.zfill(width)}{dot}{step}"
    return text.zfill(width) if text.isdigit() else text


def batch_values(
    *,
    job_id: int,
    job_name: str,
    user: str,
    array_job_id: int | None = None,
    array_index: int | None = None,
    restarts: int = 0,
    node: str = "",
) -> dict[str, str | int]:
    """Give the values for the files of a batch script; without `node` the code `%N` stays as it is.

    Args:
        job_id: the job's own id.
        job_name: `%x`; a slash in it makes a folder.
        user: name of the owner.
        array_job_id: id of the array, or None for a plain job.
        array_index: index in the array, or None for a plain job.
        restarts: how often the job was requeued.
        node: short host name of the first node.
    """
    index = NO_INDEX if array_index is None else array_index
    values: dict[str, str | int] = {
        "A": job_id if array_job_id is None else array_job_id,
        "a": index,
        "b": index % 10,
        "J": str(job_id),
        "j": job_id,
        "n": 0,
        "r": restarts,
        "s": "batch",
        "t": 0,
        "u": user,
        "x": job_name,
    }
    if node:
        values["N"] = node
    return values


def codes_of(pattern: str) -> str:
    """Give the known code letters that a pattern uses, each once, in order; none when a backslash turns them off."""
    if "\\" in pattern:
        return ""
    used = ""
    at = 0
    while (start := pattern.find("%", at)) >= 0:
        end = start + 1
        while end < len(pattern) and "0" <= pattern[end] <= "9":
            end += 1
        code = pattern[end : end + 1]
        if code and code in CODES and code not in used:
            used += code
        at = end + 1
    return used


def needs_task_codes(pattern: str) -> bool:
    """Tell whether the file is one for each task or node (`%t %n %N %u`), and so is opened on the task's node."""
    return any(code in _TASK_CODES for code in codes_of(pattern))


def is_none(pattern: str) -> bool:
    """Tell whether the pattern is the word `none` (any case): no file at all."""
    return pattern.lower() == "none"


def stream_mode(text: str, ntasks: int) -> tuple[str, int]:
    """Read a special value of srun's -o, -e and -i.

    Returns:
        ("all", -1) for `all` and `-`; ("none", -1); ("task", n) for the number of a task below `ntasks`;
        ("file", -1) for everything else, which is a pattern.
    """
    word = text.lower()
    if word in ("all", "-"):
        return "all", -1
    if word == "none":
        return "none", -1
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < ntasks:
        return "task", int(text)
    return "file", -1

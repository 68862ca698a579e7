"""Texts that name jobs and steps: `5`, `5_3`, `5_*`, `5_[1-3,7]`, each with `.0`, `.batch`, `.extern` behind.

What is wrong with a text is said for the part that is wrong (`StepID larger than acceptable range`), in the
words that Slurm's clients know.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctld.core.model import Ranges
from muster.errors import InvalidInput, Refused
from muster.ids import BATCH_STEP, EXTERN_STEP, INTERACTIVE_STEP, PENDING_STEP, JobId, StepId
from muster.slurm_errors import slurm_text

MAX_ID = 0x7FFFFFFF
"""Largest job id that a text may name."""
MAX_TASK = 4_000_000
"""Largest array index that a text may name (one less than the largest MaxArraySize)."""
MAX_TEXT = 8192
"""Most characters of one id text."""
MAX_IDS = 10_000
"""Most ids in one list."""

_STEP_WORDS = {
    "batch": BATCH_STEP,
    "extern": EXTERN_STEP,
    "interactive": INTERACTIVE_STEP,
    "tbd": PENDING_STEP,
}


@dataclass(frozen=True, slots=True)
class Selector:
    """What a text names: a job, some members of an array (`tasks`), or one step."""

    job_id: JobId
    tasks: Ranges | None = None
    """Members of the array `job_id`; None: the job, or the whole array."""
    step_id: StepId | None = None


def parse_selector(text: str) -> Selector:
    """Read one job or step id.

    Raises:
        InvalidInput: with Slurm's words for the part that is wrong, and its number.
        Refused: for components of heterogeneous jobs (`5+1`), which are not supported.
    """
    if len(text) > MAX_TEXT:
        raise _wrong(2139, text[:40] + "...")
    head, dot, step_text = text.partition(".")
    step_id = _step(step_text, text) if dot else None
    if "+" in head:
        raise _heterogeneous(text)
    job_text, underscore, task_text = head.partition("_")
    job_id = _job(job_text, text)
    tasks = _tasks(task_text, text) if underscore else None
    return Selector(job_id, tasks, step_id)


def parse_selectors(text: str) -> list[Selector]:
    """Read a comma separated list of ids; commas inside brackets belong to one id.

    Raises:
        InvalidInput: see `parse_selector`; also for an empty list.
    """
    found: list[Selector] = []
    for item in split_list(text):
        if len(found) >= MAX_IDS:
            raise InvalidInput(
                slurm_text(2139),
                f"one list takes {MAX_IDS} ids; name the rest in a second one",
                slurm_code=2139,
            )
        found.append(parse_selector(item))
    if not found:
        raise _wrong(2136, text)
    return found


def split_list(text: str) -> list[str]:
    """Cut a list at commas and blanks that do not stand inside brackets; empty items fall away."""
    items: list[str] = []
    start = depth = 0
    for place, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif depth <= 0 and char in ", \t\n":
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item for item in items if item]


def _job(text: str, whole: str) -> JobId:
    number = _number(text, whole, empty=2136, negative=2138, large=2139, letters=2140, most=MAX_ID)
    if not number:
        raise _wrong(2137, whole)
    return JobId(number)


def _tasks(text: str, whole: str) -> Ranges | None:
    if text == "*":
        return None
    if not text.startswith("["):
        index = _task(text, whole)
        return (index, index)
    if not text.endswith("]"):
        raise _wrong(2144, whole, "the [ has no ]")
    found: list[tuple[int, int]] = []
    for item in text[1:-1].split(","):
        span, colon, step_text = item.partition(":")
        first_text, dash, last_text = span.partition("-")
        first = _task(first_text, whole)
        last = _task(last_text, whole) if dash else first
        if last < first:
            raise _wrong(2144, whole, f"the range {item} ends before it begins")
        if colon:
            step = _task(step_text, whole)
            if not step:
                raise _wrong(2144, whole, "a step must be at least 1")
            if len(found) + (last - first) // step > MAX_TASK:
                raise _wrong(2143, whole, f"it names more than {MAX_TASK} single members")
            found += [(index, index) for index in range(first, last + 1, step)]
        else:
            found.append((first, last))
    return _merged(found)


def _merged(spans: list[tuple[int, int]]) -> Ranges:
    flat: list[int] = []
    for low, high in sorted(spans):
        if flat and low <= flat[-1] + 1:
            flat[-1] = max(flat[-1], high)
        else:
            flat += (low, high)
    return tuple(flat)


def _task(text: str, whole: str) -> int:
    return _number(text, whole, empty=2141, negative=2142, large=2143, letters=2144, most=MAX_TASK)


def _step(text: str, whole: str) -> StepId:
    if "+" in text:
        raise _heterogeneous(whole)
    word = _STEP_WORDS.get(text.lower())
    if word is not None:
        return word
    return StepId(_number(text, whole, empty=2150, negative=2151, large=2152, letters=2153, most=INTERACTIVE_STEP - 1))


def _number(text: str, whole: str, *, empty: int, negative: int, large: int, letters: int, most: int) -> int:
    if not text:
        raise _wrong(empty, whole)
    if text[0] == "-" and text[1:].isdigit():
        raise _wrong(negative, whole)
    if not (text.isascii() and text.isdigit()):
        raise _wrong(letters, whole)
    if len(text) > 10 or int(text) > most:
        raise _wrong(large, whole, f"the largest is {most}")
    return int(text)


def _wrong(code: int, whole: str, more: str = "") -> InvalidInput:
    shown = whole if len(whole) <= 60 else whole[:60] + "..."
    hint = f"in `{shown}`" + (f": {more}" if more else "")
    return InvalidInput(slurm_text(code), hint, slurm_code=code)


def _heterogeneous(whole: str) -> Refused:
    return Refused(
        slurm_text(2036),
        f"`{whole[:60]}` names a component of a heterogeneous job, and those are not supported",
        slurm_code=2036,
    )


def selector_text(job_id: int, tasks: Ranges | None) -> str:
    """Print an id with its members, as it would be typed: `5`, `5_3`, `5_[1-3,7]`."""
    if tasks is None:
        return str(job_id)
    if len(tasks) == 2 and tasks[0] == tasks[1]:
        return f"{job_id}_{tasks[0]}"
    return f"{job_id}_[{range_text(tasks)}]"


def range_text(tasks: Ranges) -> str:
    """Print ranges as `0-3,7`."""
    pairs = zip(tasks[::2], tasks[1::2], strict=True)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs)

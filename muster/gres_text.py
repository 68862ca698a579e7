"""Texts of generic resources: requests (`gpu:a100:2`), `--gpus` (`a100:2`), per-task lists, and counting them.

Parse at the door: every request becomes a list of (name, type or "", count). Texts of errors are the reference's.
"""

from __future__ import annotations

from muster.errors import InvalidInput

INVALID = "Invalid generic resource (gres) specification"
MIXED = "Invalid GRES specification (with and without type identification)"
# Resources that have no meaning per task (the reference refuses exactly these).
NOT_PER_TASK = ("mem", "energy", "node", "billing", "fs", "vmem", "pages", "bb")

_FACTORS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_LARGEST_COUNT = 1 << 62


def parse_gres(text: str) -> list[tuple[str, str, int]]:
    """Read `--gres`: a comma list of `[gres/]name[:type][:count]`; count is 1 by default, K M G T P are powers of 1024.

    `none` and the empty text give nothing. Entries keep their order; equal ones are not added up.

    Raises:
        InvalidInput: not of that form, or one name both with and without a type.
    """
    if text.lower() in ("", "none"):
        return []
    entries = [_entry(part, named=True) for part in text.split(",")]
    _refuse_mixture(entries)
    return entries


def parse_gpus(text: str) -> list[tuple[str, int]]:
    """Read `--gpus` and its like: a comma list of `[type:]count`, or a bare type for one of it.

    Raises:
        InvalidInput: not of that form, or counts both with and without a type.
    """
    entries = [_entry(part, named=False) for part in text.split(",")]
    _refuse_mixture(entries)
    return [(kind, count) for _, kind, count in entries]


def parse_tres_per_task(text: str) -> list[tuple[str, str, int]]:
    """Read `--tres-per-task`: `cpu=2,gres/gpu:a100=1,license/x=1` (`:` in place of `=` is taken as well).

    Returns:
        (name, type or "", count); names as in the text: `cpu`, `gres/gpu`, `license/x`.

    Raises:
        InvalidInput: not of that form, or a resource that cannot be asked for per task.
    """
    entries: list[tuple[str, str, int]] = []
    for part in text.split(","):
        words = part.replace("=", ":").split(":")
        name = words[0]
        if name.partition("/")[0] in NOT_PER_TASK:
            raise InvalidInput(f"Invalid TRES for --tres-per-task: {name}")
        is_gres = name.startswith("gres/")
        if name != "cpu" and not (is_gres and len(name) > 5) and not (name.startswith("license/") and name[8:]):
            raise InvalidInput(f"Invalid TRES for --tres-per-task: {name}")
        count = _count(words[-1]) if len(words) > 1 else None
        kind = words[1] if is_gres and len(words) == 3 else ""
        if count is None or count < 1 or len(words) > (3 if is_gres else 2) or (len(words) == 3 and not kind):
            raise InvalidInput(f"Invalid TRES for --tres-per-task: {part}")
        entries.append((name, kind, count))
    _refuse_mixture(entries)
    return entries


def gres_count(text: str, name: str = "gpu", kind: str = "") -> int:
    """Count the devices that a text of the system names.

    Takes allocations (`cpu=8,gres/gpu=2,gres/gpu:h200=2`), node texts (`gpu:h200:4(S:0-1)`) and used ones
    (`gpu:h200:3(IDX:0-2)`). A general entry and typed entries speak of the same devices, so they are never added:
    the general one counts where there is one.

    Args:
        text: the text; empty, `(null)` and `N/A` count nothing.
        name: the resource.
        kind: only devices of this type; "" for all.
    """
    general: int | None = None
    typed = 0
    for part in split_outside_parentheses(text):
        body = part.partition("(")[0].strip().removeprefix("gres/").replace("=", ":")
        words = body.split(":")
        if words[0] != name:
            continue
        last = _count(words[-1]) if len(words) > 1 else None
        count = 1 if last is None else last
        entry_kind = ":".join(words[1:] if last is None else words[1:-1])
        if kind:
            typed += count if entry_kind == kind else 0
        elif entry_kind:
            typed += count
        else:
            general = (general or 0) + count
    return typed if general is None or kind else general


def split_outside_parentheses(text: str) -> list[str]:
    """Split at the commas that do not stand in parentheses: `gpu:a:2(IDX:0,3),mps:1` has two parts."""
    parts: list[str] = []
    depth = start = 0
    for index, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part for part in parts if part]


def _entry(part: str, *, named: bool) -> tuple[str, str, int]:
    """Read one part; without a name it is `[type:]count` of GPUs."""
    words = part.removeprefix("gres/").replace("=", ":").split(":") if named else part.split(":")
    name = words.pop(0) if named else "gpu"
    count = _count(words[-1]) if words else None
    if count is None:
        count = 1
        if words and words[-1][:1] in ("", "-", "+"):
            raise InvalidInput(INVALID)
    else:
        words.pop()
    kind = words[0] if words else ""
    if not name or len(words) > 1 or (words and not kind) or any(c.isspace() for c in part):
        raise InvalidInput(INVALID)
    return name, kind, count


def _count(text: str) -> int | None:
    """Read `12` or `4k`; None when it is no number, and then it is the name of a type."""
    factor = _FACTORS.get(text[-1:].lower(), 1)
    digits = text if factor == 1 else text[:-1]
    if not (digits.isascii() and digits.isdigit()):
        return None
    if len(digits) > 18 or int(digits) * factor > _LARGEST_COUNT:
        raise InvalidInput(INVALID)
    return int(digits) * factor


def _refuse_mixture(entries: list[tuple[str, str, int]]) -> None:
    typed = {name for name, kind, _ in entries if kind}
    if any(name in typed and not kind for name, kind, _ in entries):
        raise InvalidInput(MIXED)

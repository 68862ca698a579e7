"""Durations, memory, counts and run lengths: every text form that Slurm's users type and read.

Parse at the door, print at the door, integers in between: seconds, minutes, MiB, bytes, milliseconds. A value that
cannot be read is an error everywhere, never "unlimited" and never "no change".

Imported by short-lived commands: nothing but builtins here.
"""

from __future__ import annotations

from muster.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MINUTE, HOUR, DAY = 60, 3_600, 86_400
YEAR = 365 * DAY

UNLIMITED_WORDS = ("-1", "infinite", "unlimited")

_MAX_DURATION = 0xFFFFFFFD * 60
"""Seconds; Slurm keeps limits as 32-bit minutes, of which the two largest mean "no limit" and "not set"."""
_MAX_NUMBER_DIGITS = 18
_MAX_MEMORY_MIB = 1 << 52
_MEMORY_UNITS = "KMGTP"
_DURATION_FORMS = "write minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED"


# ---- durations -----------------------------------------------------------------------------------------


def parse_duration(text: str) -> int | None:
    """Read a duration as seconds, not rounded; None is "no limit" (`-1`, `INFINITE`, `UNLIMITED`, any case).

    Forms: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`; `D-` is whole days. Fields may exceed their natural range
    (`90:00`). Raises InvalidInput for anything else.
    """
    if text.lower() in UNLIMITED_WORDS:
        return None
    days_text, dash, clock = text.partition("-")
    if not dash:
        days_text, clock = "0", text
    fields = clock.split(":") if clock or not dash else ["0"]
    if len(fields) > 3 or not is_number(days_text) or not all(is_number(field) for field in fields):
        raise InvalidInput(f"Invalid duration: {_shown(text)}", _DURATION_FORMS)
    numbers = [int(field) for field in fields]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours = 0
        minutes, seconds = (*numbers, 0)[:2]
    total = int(days_text) * DAY + hours * HOUR + minutes * MINUTE + seconds
    if total > _MAX_DURATION:
        raise InvalidInput(
            f"Invalid duration: {_shown(text)}",
            f"the longest is {_MAX_DURATION // MINUTE} minutes; write UNLIMITED for no limit",
        )
    return total


def parse_limit_minutes(text: str, *, zero_is_unlimited: bool = False) -> int | None:
    """Read a time limit as minutes, rounded up; None is "no limit".

    `zero_is_unlimited` is for the limits of jobs, where `0` and `00:00:00` mean no limit. Raises InvalidInput.
    """
    seconds = parse_duration(text)
    if seconds is None or (seconds == 0 and zero_is_unlimited):
        return None
    return -(-seconds // MINUTE)


def format_duration(seconds: int | None) -> str:
    """Give `[D-]HH:MM:SS` as scontrol and sacct do; None is `UNLIMITED`, a negative one `INVALID`."""
    if seconds is None:
        return "UNLIMITED"
    if seconds < 0:
        return "INVALID"
    days, rest = divmod(seconds, DAY)
    clock = f"{rest // HOUR:02d}:{rest // MINUTE % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def format_duration_short(seconds: int | None) -> str:
    """Give `M:SS`, `H:MM:SS` or `D-HH:MM:SS` as squeue does.

    None is `UNLIMITED`; a negative one or more than a year is `INVALID`.
    """
    if seconds is None:
        return "UNLIMITED"
    return "INVALID" if not 0 <= seconds <= YEAR else _short(seconds)


def format_duration_sinfo(seconds: int | None, *, is_set: bool = True) -> str:
    """Give a partition's limit as sinfo does: squeue's form, `infinite` for None, `n/a` where none is set."""
    if not is_set:
        return "n/a"
    return "infinite" if seconds is None else _short(max(0, seconds))


def format_cpu_time(total_ms: int) -> str:
    """Give processor time as sacct's TotalCPU does: `[D-]HH:MM:SS`, or `MM:SS.mmm` under an hour.

    The milliseconds are shown only where there are some: whole seconds read `00:00:07`.
    """
    seconds, milliseconds = divmod(max(0, total_ms), 1000)
    if milliseconds and seconds < HOUR:
        return f"{seconds // 60:02d}:{seconds % 60:02d}.{milliseconds:03d}"
    return format_duration(seconds)


def _short(seconds: int) -> str:
    days, rest = divmod(seconds, DAY)
    hours, minutes, rest = rest // HOUR, rest // MINUTE % 60, rest % 60
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# ---- memory --------------------------------------------------------------------------------------------


def parse_memory_mib(text: str) -> int:
    """Read a size as MiB: a whole number and K, M (the default), G or T, optionally followed by B, any case.

    K is rounded up to whole MiB. Raises InvalidInput, also for fractions.
    """
    bare = text.upper()
    if bare.endswith("B") and bare[-2:-1] in ("K", "M", "G", "T"):
        bare = bare[:-1]
    unit = bare[-1:] if bare[-1:] in ("K", "M", "G", "T") else ""
    digits = bare.removesuffix(unit) if unit else bare
    if not is_number(digits):
        raise InvalidInput(
            f"Invalid memory size: {_shown(text)}", "write a whole number and K, M (the default), G or T"
        )
    number = int(digits)
    mib = -(-number // 1024) if unit == "K" else number << {"": 0, "M": 0, "G": 10, "T": 20}[unit]
    if mib > _MAX_MEMORY_MIB:
        raise InvalidInput(f"Invalid memory size: {_shown(text)}", f"the largest is {_MAX_MEMORY_MIB}M")
    return mib


def format_memory_mib(mib: int, noconvert: bool = False) -> str:
    """Give memory as squeue and scontrol do: `4G`, `2.50G`, `1000M`, `0`; `noconvert` keeps M (`2560M`).

    The unit grows only while the number is exact to a half of the next unit.
    """
    if mib == 0:
        return "0"
    number, unit = float(mib), 1
    while not noconvert and number >= 1024 and int(number) % 512 == 0 and unit < len(_MEMORY_UNITS) - 1:
        number /= 1024
        unit += 1
    return _scaled(number) + _MEMORY_UNITS[unit]


def format_bytes_sacct(nbytes: int, units: str | None = None, noconvert: bool = False) -> str:
    """Give a step's measured bytes as sacct and sstat do.

    `13344K` by default, plainly where the number is no half or whole KiB (`6977`); `13.03M` with a unit of
    K, M, G, T or P (any case); plain bytes with `noconvert`. Raises InvalidInput for another unit.
    """
    if nbytes == 0:
        return "0"
    if units:
        unit = units.upper()
        if unit not in ("K", "M", "G", "T", "P"):
            raise InvalidInput(f"Invalid unit: {_shown(units)}", "write one of K, M, G, T and P")
        return _scaled(nbytes / 1024 ** (_MEMORY_UNITS.index(unit) + 1)) + unit
    if noconvert or nbytes < 1024 or nbytes % 512:
        return str(nbytes)
    return _scaled(nbytes / 1024) + "K"


def _scaled(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.2f}"


# ---- counts and run lengths ----------------------------------------------------------------------------


def parse_count(text: str, suffixes: str = "KM") -> int:
    """Read a count: a whole number, or one with a suffix (K ×1024, M ×1048576, ...), any case.

    `suffixes` says which may stand there: node counts take K and M, GRES counts `KMGTP`. Raises InvalidInput.
    """
    unit = text[-1:].upper()
    power = _MEMORY_UNITS.index(unit) + 1 if unit and unit in suffixes and unit in _MEMORY_UNITS else 0
    digits = text[:-1] if power else text
    if not is_number(digits):
        raise InvalidInput(f"Invalid count: {_shown(text)}", f"write a whole number, or one with {'/'.join(suffixes)}")
    return int(digits) << 10 * power


def format_runs(values: Iterable[int]) -> str:
    """Give the run-length text of values in node order: 72, 72, 36 reads `72(x2),36`."""
    parts: list[str] = []
    current, times = 0, 0
    for value in values:
        if times and value == current:
            times += 1
            continue
        if times:
            parts.append(_run(current, times))
        current, times = value, 1
    if times:
        parts.append(_run(current, times))
    return ",".join(parts)


def parse_runs(text: str, max_values: int = 1_048_576) -> list[int]:
    """Read run-length text back to its values; raises InvalidInput, also for more than `max_values`."""
    values: list[int] = []
    for part in text.split(",") if text else []:
        value, repeated, rest = part.partition("(x")
        times = rest.removesuffix(")") if repeated else "1"
        if not is_number(value) or not is_number(times) or (repeated and not rest.endswith(")")):
            raise InvalidInput(f"Invalid run lengths: {_shown(part)} in {_shown(text)}", "write 72(x2),36")
        if int(times) > max_values - len(values):
            raise InvalidInput(f"Invalid run lengths: {_shown(text)}", f"more than {max_values} values")
        values += [int(value)] * int(times)
    return values


def _run(value: int, times: int) -> str:
    return f"{value}(x{times})" if times > 1 else str(value)


def is_number(text: str) -> bool:
    """Tell whether the text is a whole number of a size that any field holds (str.isdigit also takes other scripts)."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_DIGITS


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 60 else f"'{text[:60]}...'"

"""Readers of values: text as written into the value that a record keeps; ValueError says in one clause what is wrong.

A reader takes the text and its row of the table, and gives plain integers, strings, tuples and dicts. None stands
for unlimited. Units: MiB for memory, and what the row's kind says for time (Slurm's manual, slurm.conf(5)).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.errors import InvalidInput
from muster.tres import TRES_FORMS, is_tres
from muster.units import parse_count, parse_duration, parse_memory_mib

if TYPE_CHECKING:
    from muster.config.keys import Key

INFINITE_WORDS = ("unlimited", "infinite")
_YES = ("yes", "up", "true", "1")
_NO = ("no", "down", "false", "0")
_MIB = {"k": 1 / 1024, "": 1, "m": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")


def read_text(text: str, key: Key) -> str:
    """The text itself."""
    return text


def read_flag(text: str, key: Key) -> bool:
    """yes/up/true/1 or no/down/false/0, in any case."""
    word = text.lower()
    if word in _YES or word in _NO:
        return word in _YES
    raise ValueError(f'"{text}" is not a valid option for "{key.name}"')


def read_number(text: str, key: Key) -> int | None:
    """A decimal within the row's bounds; unlimited is None, where the row allows it."""
    if text.lower() in INFINITE_WORDS or (key.endless and text == "-1"):
        if key.endless:
            return None
        raise ValueError(f"{key.name}={text} must be a number")
    if not is_digits(text) or len(text) > 20:
        raise ValueError(f'{key.name}="{text[:40]}" is not a whole number')
    return _within(int(text), text, key)


def read_float(text: str, key: Key) -> float | None:
    """A decimal fraction; unlimited is None, where the row allows it."""
    if key.endless and text.lower() in INFINITE_WORDS:
        return None
    return _fraction(text, key)


def read_minutes(text: str, key: Key) -> int | None:
    """Slurm's six time forms, seconds rounded up to a minute; unlimited is None."""
    seconds = read_duration(text, key)
    return None if seconds is None else -(-seconds // 60)


def read_duration(text: str, key: Key) -> int | None:
    """Slurm's six time forms in seconds: `min`, `min:sec`, `hr:min:sec`, `day-hr`, `day-hr:min`, `day-hr:min:sec`."""
    try:
        return parse_duration(text)
    except InvalidInput as why:
        raise ValueError(f'Bad value "{text[:40]}" for {key.name}; {why.hint}') from why


def read_memory(text: str, key: Key) -> int | None:
    """Memory in MiB; a suffix K, M, G or T overrides the default unit. Unlimited is None, where the row allows it."""
    if key.endless and text.lower() in INFINITE_WORDS:
        return None
    try:
        return _within(parse_memory_mib(text), text, key)
    except InvalidInput as why:
        raise ValueError(f'{key.name}="{text[:40]}" is not an amount of memory; {why.hint}') from why


def read_count(text: str, key: Key) -> int:
    """A count with an optional suffix K, M, G, T or P of powers of 1024."""
    try:
        return _within(parse_count(text, "KMGTP"), text, key)
    except InvalidInput as why:
        raise ValueError(f'{key.name}="{text[:40]}" is not a count') from why


def read_list(text: str, key: Key) -> tuple[str, ...]:
    """A comma list; empty items and blanks around items are dropped."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def read_flags(text: str, key: Key) -> tuple[str, ...]:
    """A comma list of the row's words, in the row's spelling; `none` alone is the empty list."""
    by_lower = {word.lower(): word for word in key.choices}
    found: list[str] = []
    for item in read_list(text, key):
        word = by_lower.get(item.lower())
        if word is None and item.lower() == "none":
            continue
        if word is None:
            raise ValueError(f"{key.name} invalid: {item}")
        if word not in found:
            found.append(word)
    return tuple(found)


def read_word(text: str, key: Key) -> str:
    """One of the row's words, in the row's spelling."""
    for word in key.choices:
        if word.lower() == text.lower():
            return word
    raise ValueError(f'Bad value "{text}" for {key.name} (use {", ".join(key.choices)})')


def read_plugin(text: str, key: Key) -> str:
    """A plugin type of the row's words (`prefix/name`, the prefix may be left out); `none` is the empty text."""
    name = text.rpartition("/")[2].lower()
    if name in ("none", ""):
        return ""
    for word in key.choices:
        if word.rpartition("/")[2] == name:
            return word
    raise ValueError(f'{key.name}="{text}" is not known (use {", ".join(key.choices)})')


def read_options(text: str, key: Key) -> dict[str, str]:
    """A comma list of `name` or `name=value`; names in lower case, a bare name has the empty value.

    Unknown options are kept: Slurm ignores them silently, and whoever reads the dict asks by name.
    """
    found: dict[str, str] = {}
    for item in read_list(text, key):
        name, _, value = item.partition("=")
        if not name.strip():
            raise ValueError(f'{key.name} has an option without a name: "{item}"')
        found[name.strip().lower()] = value.strip()
    return found


def read_weights(text: str, key: Key) -> dict[str, float]:
    """`tres=weight` pairs by TRES name; a weight of memory is per MiB (`Mem=0.25G` is 0.25 for each GiB)."""
    found: dict[str, float] = {}
    for item in read_list(text, key):
        name, equals, written = item.partition("=")
        name = tres_name(name.strip())
        matched = re.fullmatch(r"(.*?)([KMGTPkmgtp]?)", written.strip(), re.DOTALL)
        if not equals or not name or matched is None:
            raise ValueError(f'{key.name}: "{item}" is not name=weight')
        if not is_tres(name.partition(":")[0]):
            raise ValueError(f'{key.name}: "{item[:60]}" is no TRES; {TRES_FORMS}')
        suffix = matched[2].lower()
        if suffix and name != "mem" and not name.startswith("bb/"):
            raise ValueError(f"{key.name}: the weight of {name} takes no unit, only that of mem does")
        found[name] = _fraction(matched[1], key) / _MIB[suffix]
    return found


def read_ports(text: str, key: Key) -> tuple[int, int]:
    """`port` or `first-last`."""
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    for part in (first, last):
        if not is_digits(part) or len(part) > 5 or not 0 < int(part) < 65536:
            raise ValueError(f'{key.name}="{text}" is not a port (1 to 65535) or a range of ports')
    if int(first) > int(last):
        raise ValueError(f"{key.name}={text} ends before it begins")
    return int(first), int(last)


def read_port(text: str, key: Key) -> int:
    """One port."""
    first, last = read_ports(text, key)
    if first != last:
        raise ValueError(f'{key.name}="{text}" must be one port')
    return first


def read_directory(text: str, key: Key) -> str:
    """An absolute path."""
    if not text.startswith("/") or "\0" in text:
        raise ValueError(f'{key.name}="{text}" must be an absolute path')
    return text


def read_codes(text: str, key: Key) -> tuple[int, ...]:
    """Exit codes and ranges of them (`1,3-5`), 0 to 255, sorted."""
    codes: set[int] = set()
    for item in read_list(text, key):
        first, _, last = item.partition("-")
        last = last or first
        if not (is_digits(first) and is_digits(last) and len(first) < 4 and len(last) < 4 and int(last) < 256):
            raise ValueError(f'{key.name}: "{item}" is not an exit code (0 to 255) or a range of them')
        if int(first) > int(last):
            raise ValueError(f"{key.name}: {item} ends before it begins")
        codes.update(range(int(first), int(last) + 1))
    return tuple(sorted(codes))


def read_level(text: str, key: Key) -> str:
    """A log level's word, or 0 to 9 for the words in order of detail."""
    word = text.lower()
    if word in _LEVELS:
        return word
    if len(word) == 1 and is_digits(word):
        return _LEVELS[int(word)]
    raise ValueError(f'Bad value "{text}" for {key.name} (use {", ".join(_LEVELS)} or 0 to 9)')


READERS: dict[str, Callable[[str, Key], object]] = {
    "text": read_text,
    "flag": read_flag,
    "number": read_number,
    "float": read_float,
    "minutes": read_minutes,
    "duration": read_duration,
    "memory": read_memory,
    "count": read_count,
    "list": read_list,
    "flags": read_flags,
    "word": read_word,
    "plugin": read_plugin,
    "options": read_options,
    "weights": read_weights,
    "ports": read_ports,
    "port": read_port,
    "directory": read_directory,
    "codes": read_codes,
    "level": read_level,
}


def tres_name(written: str) -> str:
    """A TRES name as Muster keeps it: base names in lower case, the type after `gres/gpu:` in its own."""
    kind, colon, variant = written.partition(":")
    name = kind.lower()
    return f"{'mem' if name == 'memory' else name}{colon}{variant}"


def is_digits(text: str) -> bool:
    """Whether the text is a run of ASCII digits (str.isdigit also takes other scripts)."""
    return text.isascii() and text.isdigit()


def _within(value: int, text: str, key: Key) -> int:
    if value < key.low:
        raise ValueError(f"{key.name}={text} is below {key.low}")
    if value > key.high:
        raise ValueError(f"{key.name}={text} is above {key.high}")
    return value


def _fraction(text: str, key: Key) -> float:
    if re.fullmatch(r"[-+]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][-+]?\d{1,2})?", text.strip(), re.ASCII) is None:
        raise ValueError(f'{key.name}: "{text[:40]}" is not a number')
    return float(text)

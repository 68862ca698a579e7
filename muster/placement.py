"""Texts that say how a job's nodes lie to each other: `--switches`, `--segment`, `--topology`, `--bundle`.

Commands check them with what the controller reads them with. Nothing is imported that a command has not loaded anyway.
"""

from __future__ import annotations

from muster.errors import InvalidInput
from muster.gres_text import parse_gpus
from muster.units import is_number, parse_duration, parse_memory_mib

PLACES = ("pack", "spread", "strict-pack", "strict-spread")
"""What `--place` takes."""
_WISHES = ("required", "preferred", "unconstrained")
_LARGEST = 2147483647


def parse_switches(text: str) -> tuple[int, int]:
    """Read `N` or `N@TIME`: most leaf switches, and seconds to wait for so few; -1 where no time is given, or no end.

    Raises:
        InvalidInput: not of that form.
    """
    number, at, wait = text.strip().partition("@")
    count = _count(number, f"--switches={text[:60]} has no number of switches of at least 1")
    if not at:
        return count, -1
    seconds = parse_duration(wait)
    return count, -1 if seconds is None else min(seconds, _LARGEST)


def parse_segment(text: str) -> tuple[int, str]:
    """Read `N` or `N:required:LEVEL`: nodes of a segment, and the level of the topology in one domain of which each has
    to lie (empty: the lowest that is large enough).

    Raises:
        InvalidInput: not of that form.
    """
    number, colon, rest = text.strip().partition(":")
    wrong = f"write --segment=N or --segment=N:required:LEVEL, not {text[:60]}"
    mode, _, level = rest.partition(":")
    if colon and (mode.lower() != "required" or not level.strip()):
        raise InvalidInput(wrong)
    return _count(number, wrong), level.strip()


def parse_topology(text: str) -> tuple[str, str]:
    """Read `required:LEVEL`, `preferred:LEVEL` or `unconstrained`: the word and the level.

    Raises:
        InvalidInput: anything else.
    """
    mode, colon, level = text.strip().partition(":")
    mode, level = mode.strip().lower(), level.strip()
    if mode not in _WISHES or bool(level) == (mode == "unconstrained") or bool(colon) != bool(level):
        raise InvalidInput(f"write required:LEVEL, preferred:LEVEL or unconstrained, not '{text[:80]}'")
    return mode, level


def parse_bundle(text: str) -> tuple[int, dict[str, int | str]]:
    """Read `cpus=8,gpus=1,mem=16G:4`: how many bundles (1 where no number follows), and what each has: CPUs, MiB of
    memory, and GPUs as `--gpus-per-task` writes them (`1`, `a100:2`).

    Raises:
        InvalidInput: not of that form, or a resource that no bundle can have.
    """
    parts, number = text.strip(), "1"
    head, colon, tail = parts.rpartition(":")
    # The last part of `gpus=a100:2` is a count of GPUs, that of `gpus=2:4` and `gpus=a100:2:4` one of bundles.
    of_gpus = "gpus=" in head.rpartition(",")[2] and not is_number(head.rpartition("=")[2].rpartition(":")[2])
    if colon and not of_gpus:
        parts, number = head, tail
    count = _count(number, f"--bundle={text[:60]} does not end with a number of bundles of at least 1")
    found: dict[str, int | str] = {}
    for part in parts.split(","):
        name, equals, value = part.strip().partition("=")
        if name not in ("cpus", "gpus", "mem") or not equals or name in found:
            raise InvalidInput(
                f"write --bundle=cpus=N,gpus=[TYPE:]N,mem=SIZE:BUNDLES, each once at most, not {text[:60]}"
            )
        if name == "cpus":
            found[name] = _count(value, f"cpus={value[:40]} of --bundle is no number of at least 1")
        elif name == "mem":
            found[name] = parse_memory_mib(value)
            if not found[name]:
                raise InvalidInput(f"mem={value[:40]} of --bundle is no size of at least 1M")
        else:
            parse_gpus(value)
            found[name] = value
    return count, found


def _count(text: str, wrong: str) -> int:
    if not is_number(text) or not 1 <= int(text) <= _LARGEST:
        raise InvalidInput(wrong)
    return int(text)

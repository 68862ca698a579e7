"""Licences: counters of the whole cluster. A request is a list of alternatives, each of names with counts; its text
is `a:2,b:1` (all of them) or `a:2|b:1` (any one)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ctld.core.cluster import Settings
from muster.errors import InvalidInput
from muster.slurm_errors import slurm_text
from muster.units import parse_count

Wanted = tuple[tuple[tuple[str, int], ...], ...]
"""Alternatives, in the order in which they are tried; () asks for nothing."""
MAX_NAMES = 64


def parse(text: str, settings: Settings) -> Wanted:
    """Read the text of --licenses.

    Raises:
        InvalidInput: no such list, a licence that is not configured, or (unless allow_zero_lic) more than there are.
    """
    if not text.strip():
        return ()
    if "|" in text and "," in text:
        raise _bad("`,` (all of them) and `|` (any one of them) cannot stand in one list")
    by_any = "|" in text
    found: dict[str, int] = {}
    for item in text.split("|" if by_any else ","):
        name, count = _item(item.strip())
        _check(name, count, settings)
        if name in found:
            raise _bad(f"{name} is named twice")
        found[name] = count
        if len(found) > MAX_NAMES:
            raise _bad(f"more than {MAX_NAMES} names")
    pairs = [(name, count) for name, count in found.items() if count]
    return tuple((pair,) for pair in pairs) if by_any else (tuple(pairs),) if pairs else ()


def with_more(wanted: Wanted, name: str, count: int, settings: Settings) -> Wanted:
    """Add to every alternative."""
    total = max([count, *(dict(one).get(name, 0) + count for one in wanted)])
    _check(name, total, settings)
    more = [dict(one) for one in wanted] or [{}]
    for one in more:
        one[name] = one.get(name, 0) + count
    return tuple(tuple(one.items()) for one in more)


def text_of(wanted: Wanted) -> str:
    """Print a request, so that equal ones are equal texts."""
    return "|".join(",".join(f"{name}:{count}" for name, count in one) for one in wanted)


def wanted_of(text: str) -> Wanted:
    """Read what `text_of` printed."""
    if not text:
        return ()
    return tuple(tuple(_pair(item) for item in one.split(",")) for one in text.split("|"))


def held(text: str) -> dict[str, int]:
    """Read what an allocation holds."""
    return dict(_pair(item) for item in text.split(",")) if text else {}


class Licences:
    """Those in use, with those of a plan's starts: for the pass that makes it and the writer who checks it."""

    def __init__(self, there: Mapping[str, int], used: dict[str, int]) -> None:
        self._there = there
        self._used = used
        self._copied = False

    def free(self, wanted: str, given: str = "") -> str | None:
        """Give the first alternative that is free, as the text that an allocation holds; None: none is. With `given`
        only that one is looked at."""
        one_only = held(given)
        for one in wanted_of(wanted):
            if one_only and dict(one) != one_only:
                continue
            if all(self._used.get(name, 0) + count <= self._there.get(name, 0) for name, count in one):
                return text_of((one,))
        return None

    def take(self, wanted: str) -> str:
        """Give what a start holds, of licences that are free."""
        found = self.free(wanted)
        assert found is not None, "who is started has been asked whether its licences are free"
        if not self._copied:
            self._copied, self._used = True, dict(self._used)
        for name, count in held(found).items():
            self._used[name] = self._used.get(name, 0) + count
        return found


def as_tres(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Count licences as limits and records name them: `license/a`."""
    return {f"license/{name}": count for name, count in pairs}


def _pair(item: str) -> tuple[str, int]:
    name, _, count = item.rpartition(":")
    return name, int(count)


def _item(item: str) -> tuple[str, int]:
    name, colon, number = item.replace("*", ":").partition(":")
    try:
        count = parse_count(number) if colon else 1
    except InvalidInput:
        raise _bad(f"`{item[:60]}` is not name or name:count") from None
    if not name:
        raise _bad(f"`{item[:60]}` names no licence")
    return name, count


def _check(name: str, count: int, settings: Settings) -> None:
    there = settings.licenses.get(name)
    if there is None:
        known = ", ".join(sorted(settings.licenses)[:20])
        raise _bad(f"there is no licence {name[:60]}{f'; there are: {known}' if known else ''}")
    if count > there and not settings.allow_zero_licenses:
        raise _bad(f"{count} of licence {name} are asked for, there are {there}")


def _bad(hint: str) -> InvalidInput:
    return InvalidInput(slurm_text(2048), hint, slurm_code=2048)

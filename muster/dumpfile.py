"""The flat file of `sacctmgr dump`: lines `Kind - 'name':Option=value:...`, in the order of the tree.

A value may stand in single or double quotes and then holds colons; a piece between colons that is no `Name=value` of
its own belongs to the value before it (`MaxWall=1:00:00`, `GrpTRES=gres/gpu:a100=4`). What the options mean is for the
reader: here they are texts by lower-case name. `#` begins a comment line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.config.problems import Place, Problems, nearest

KINDS = ("Cluster", "Parent", "Account", "User", "QOS")
_LINE = re.compile(r"\s*(\w+)\s*-\s*(.*?)\s*$")
_OPTION = re.compile(r"\s*([A-Za-z]+)\s*=\s*(.*?)\s*$", re.DOTALL)
_TYPED_GRES = re.compile(r"gres/[\w.-]+$", re.IGNORECASE)
_MOST_BYTES = 64 << 10
"""Longest line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line: what it is about, and its options by lower-case name."""

    kind: str
    name: str
    options: dict[str, str]
    place: Place


def parse(text: str, file: str, problems: Problems) -> list[Entry]:
    """Read the lines; what is wrong with them goes to `problems`, each with its line."""
    entries: list[Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = _entry(line, Place(file, number), problems)
        if entry is not None:
            entries.append(entry)
    return entries


def _entry(line: str, place: Place, problems: Problems) -> Entry | None:
    matched = _LINE.match(line) if len(line) <= _MOST_BYTES else None
    kinds = {kind.lower(): kind for kind in KINDS}
    if matched is None or matched[1].lower() not in kinds:
        word = matched[1] if matched is not None else line.strip()[:40]
        hint = nearest(word, KINDS) or "a line is Kind - 'name':Option=value:..., of " + ", ".join(KINDS)
        problems.error(place, f'"{word}" begins no line of a dump file', hint)
        return None
    pieces = _pieces(matched[2])
    if pieces is None:
        problems.error(place, "a quoted value is not ended", "put the second quotation mark")
        return None
    name, *rest = pieces
    if not name:
        problems.error(place, f"{kinds[matched[1].lower()]} has no name")
        return None
    options: dict[str, str] = {}
    last = ""
    for piece in rest:
        option = _OPTION.match(piece)
        if last and (option is None or _TYPED_GRES.search(options[last])):
            options[last] += f":{piece}"
        elif option is None:
            problems.error(place, f'"{piece[:60]}" is not Option=value')
        elif option[1].lower() in options:
            problems.error(place, f"{option[1]} is given twice")
        else:
            last = option[1].lower()
            options[last] = option[2]
    return Entry(kinds[matched[1].lower()], name.strip(), options, place)


def _pieces(text: str) -> list[str] | None:
    """Cut at the colons outside quotation marks, which go; None when a mark is not closed."""
    pieces = [""]
    quote = ""
    for char in text:
        if quote:
            if char == quote:
                quote = ""
            else:
                pieces[-1] += char
        elif char in "'\"":
            quote = char
        elif char == ":":
            pieces.append("")
        else:
            pieces[-1] += char
    return None if quote else pieces

"""Slurm's file syntax: physical lines into logical lines into key=value pairs, Include files followed.

Rules (Slurm's slurm.conf(5) and parse_config.c as observed): a `#` that is not escaped starts a comment, also
inside quotes; a trailing backslash joins the next line, comments being stripped from each physical line first;
`\\c` stands for c; a value is "quoted text" or a run without blanks.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from muster.config.problems import Place, Problems

MAX_INCLUDE_DEPTH = 16
MAX_INCLUDE_FILES = 1024
MAX_FILE_BYTES = 64 << 20
GLOB_TEXT = "does not support glob parsing"

_COMMENT = re.compile(r"(?:\\.|[^\\#]+)*", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]*$")
_ESCAPE = re.compile(r"\\(.)")
_INCLUDE = re.compile(r"[ \t]*include[ \t]+(?!=)(\S.*)$", re.IGNORECASE)
_PAIR = re.compile(r'[ \t]*([A-Za-z0-9_.]+)[ \t]*([-+*/]?)=[ \t]*(?:"([^"]*)"|([^" \t][^ \t]*))(?=[ \t]|$)')
_EMPTY_PAIR = re.compile(r"[ \t]*([A-Za-z0-9_.]+)[ \t]*[-+*/]?=[ \t]*$")


@dataclass(frozen=True, slots=True)
class Pair:
    """One `key=value` as written, the quotes of the value removed."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Line:
    """A logical line: its first physical line and its pairs, at least one."""

    place: Place
    pairs: tuple[Pair, ...]


@dataclass(slots=True)
class Source:
    """Reads one file with its Includes; `texts` holds the text of each in order of reading."""

    problems: Problems
    lines: list[Line] = field(default_factory=list)
    cluster_name: str = ""
    texts: list[str] = field(default_factory=list)
    _files: int = 0

    def read(self, path: Path) -> None:
        """Read `path` and what it includes; what is wrong goes to `problems`."""
        text = read_text(path, self.problems, Place(str(path)))
        if text is not None:
            self.parse(text, str(path), path.parent)

    def parse(self, text: str, name: str, directory: Path, depth: int = 0) -> None:
        """Parse text that stands for the file `name`; relative Includes are looked up in `directory`."""
        self.texts.append(text)
        for number, logical in logical_lines(text):
            place = Place(name, number)
            included = _INCLUDE.match(logical)
            if included is not None:
                self._include(_unescaped(included[1]).strip(), place, directory, depth)
                continue
            pairs = parse_pairs(_unescaped(logical), place, self.problems)
            if pairs:
                self.lines.append(Line(place, pairs))
            for pair in pairs:
                if pair.key.lower() == "clustername":
                    self.cluster_name = pair.value.lower()

    def digest(self) -> str:
        """A checksum over everything read, comments included, that nodes compare with the controller's."""
        joined = hashlib.sha256()
        for text in self.texts:
            joined.update(text.encode(errors="surrogatepass"))
        return joined.hexdigest()

    def _include(self, written: str, place: Place, directory: Path, depth: int) -> None:
        written = written.strip('"')
        if "*" in written:
            self.problems.warning(place, f"Include {GLOB_TEXT}. {written} from {place.file} will be skipped over")
            return
        if "%c" in written:
            if not self.cluster_name:
                self.problems.error(
                    place, f"Include {written} uses %c before ClusterName is set", "put ClusterName above this line"
                )
                return
            written = written.replace("%c", self.cluster_name)
        self._files += 1
        if depth + 1 > MAX_INCLUDE_DEPTH or self._files > MAX_INCLUDE_FILES:
            self.problems.error(
                place,
                f"Include {written} is nested more than {MAX_INCLUDE_DEPTH} deep"
                if depth + 1 > MAX_INCLUDE_DEPTH
                else f"Include {written} is past the bound of {MAX_INCLUDE_FILES} included files",
                "a file may include itself by way of another",
            )
            return
        target = directory / written
        text = read_text(target, self.problems, place, '"Include" failed, ')
        if text is not None:
            # Includes of an included file are relative to the directory of the main file, as Slurm has it.
            self.parse(text, str(target), directory, depth + 1)


def read_text(path: Path, problems: Problems, place: Place, prefix: str = "") -> str | None:
    """The text of a file, or None and an error that says why not."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as why:
        reason = why.strerror if isinstance(why, OSError) and why.strerror else "the name cannot be used"
        problems.error(place, f"{prefix}cannot read {path}: {reason}")
        return None
    if len(raw) > MAX_FILE_BYTES:
        problems.error(place, f"{prefix}{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        line = raw.count(b"\n", 0, why.start) + 1
        problems.error(Place(str(path), line), f"byte {raw[why.start]:#04x} is not UTF-8", "save the file as UTF-8")
        return None


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Logical lines with the number of their first physical line; escapes still stand, empty lines are left out."""
    found: list[tuple[int, str]] = []
    held = ""
    first = 0
    for number, physical in enumerate(text.split("\n"), 1):
        if not first:
            first = number
        matched = _COMMENT.match(physical.rstrip("\r"))
        stripped = matched[0] if matched is not None else ""
        # The pattern stops in front of a lone backslash at the end, which is the continuation mark.
        if len(stripped) < len(physical.rstrip("\r")) and physical[len(stripped)] == "\\":
            stripped += "\\"
        if _CONTINUED.search(stripped) is not None:
            held += stripped.rstrip(" \t")[:-1]
            continue
        held += stripped
        if held.strip():
            found.append((first, held))
        held, first = "", 0
    if held.strip():
        found.append((first, held))
    return found


def parse_pairs(text: str, place: Place, problems: Problems) -> tuple[Pair, ...]:
    """The pairs of an unescaped logical line; what is left over is an error and ends the line."""
    pairs: list[Pair] = []
    at = 0
    while text[at:].strip():
        matched = _PAIR.match(text, at)
        if matched is None:
            rest = text[at:].strip()
            empty = _EMPTY_PAIR.match(text, at)
            if empty is not None:
                problems.error(place, f"{empty[1]} has no value", f'write {empty[1]}="" for an empty one')
            elif '"' in rest:
                hint = "a value stands between two quotes with a blank after them and none inside"
                problems.error(place, f"Parse error: {_short(rest)}", hint)
            else:
                problems.error(place, f"Parse error: {_short(rest)}", "lines are key=value pairs, blanks between them")
            break
        at = matched.end()
        if matched[2]:
            problems.error(place, f"{matched[1]} does not take the operator {matched[2]}=", f"write {matched[1]}=")
            continue
        pairs.append(Pair(matched[1], matched[3] if matched[3] is not None else matched[4]))
    return tuple(pairs)


def _short(rest: str) -> str:
    return f'"{rest[:80]}..."' if len(rest) > 80 else f'"{rest}"'


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)

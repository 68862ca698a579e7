"""The format languages of squeue and sinfo, -o and -O: read, laid out, printed column by column.

A table is worked on by columns, not by rows: `zip`, `map` and `%` run in C, so that a hundred thousand rows take a
fraction of a second.
"""

from __future__ import annotations

from muster.timepoints import format_time_point
from muster.units import format_duration_short, format_memory_mib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Source = tuple[str, str, str]
    """(header, field of the wire, kind of its values)"""
    Columns = Sequence[Any]
    """A column of values as they came, one for each row."""

WIDTH_OF_NAMES = 20
"""Width of a column of -O that names none."""
WIDEST = 65536
"""Widest column; a larger number means this."""


class Column:
    """One column: what it shows, how wide (0: as wide as needed), which way, and the text behind it."""

    __slots__ = ("field", "grows", "header", "kind", "right", "suffix", "width")

    def __init__(self, source: Source, width: int = 0, right: bool = False, suffix: str = "") -> None:
        self.header, self.field, self.kind = source
        self.width = width
        self.right = right
        self.suffix = suffix
        self.grows = False
        """The width is at least this, and grows with the values."""

    @property
    def template(self) -> str:
        """The column for the % operator: padded and cut."""
        if self.kind == "text":
            return self.suffix.replace("%", "%%")
        sign = "" if self.right else "-"
        width = f"{sign}{self.width}.{self.width}" if self.width else ""
        return f"%{width}s" + self.suffix.replace("%", "%%")


def text_column(text: str) -> Column:
    """Give a column that is only this text."""
    return Column(("", "", "text"), suffix=text)


def parse_letters(text: str, letters: Mapping[str, Source], wrong: Callable[[str], None]) -> list[Column]:
    """Read `-o`: text, then `%[[.]size]letter` each with the text behind it; `%all` is every letter.

    An unknown letter is told to `wrong`, and its part is printed as it stands.
    """
    if text == "%all":
        return [Column(source, suffix="|") for source in letters.values()]
    parts = text.split("%")
    columns = [text_column(parts[0])] if parts[0] else []
    for part in parts[1:]:
        if not part:
            continue  # as in the reference, %% is %
        right = part[0] == "."
        place = int(right)
        while place < len(part) and "0" <= part[place] <= "9":
            place += 1
        width = _width(part[right:place])
        letter = part[place : place + 1]
        source = letters.get(letter)
        if source is None:
            wrong(letter)
            columns.append(text_column("%" + part))
        else:
            columns.append(Column(source, width, right, part[place + 1 :]))
    return columns


def parse_names(text: str, names: Mapping[str, Source], wrong: Callable[[str], None]) -> list[Column]:
    """Read `-O`: a comma list of `name[:[.]size[suffix]]`, names in any case.

    Without `:` a column is 20 wide; with `:` and no size, as wide as each value. An unknown name is told to `wrong`
    and has no column.
    """
    columns = []
    for part in text.split(","):
        name, colon, layout = part.partition(":")
        name = name.strip()
        source = names.get(name.lower())
        if source is None:
            wrong(name)
            continue
        right = layout[:1] == "."
        place = int(right)
        while place < len(layout) and "0" <= layout[place] <= "9":
            place += 1
        width = _width(layout[right:place]) if colon else WIDTH_OF_NAMES
        columns.append(Column(source, width, right, layout[place:]))
    return columns


def header(columns: Sequence[Column]) -> str:
    """Give the header line; names are padded and cut as values are."""
    return _template(columns) % tuple(column.header for column in columns if column.kind != "text")


def lines(columns: Sequence[Column], fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Give the lines of rows whose values come in the order of `fields`."""
    if not rows:
        return []
    shown = [column for column in columns if column.kind != "text"]
    template = _template(columns)
    if not shown:
        return [template % ()] * len(rows)
    by_field = dict(zip(fields, zip(*rows, strict=True), strict=True))
    texts = [KINDS[column.kind](by_field[column.field] if column.field else rows) for column in shown]
    return list(map(template.__mod__, zip(*texts, strict=True)))


def page(
    columns: Sequence[Column], fields: Sequence[str], rows: Sequence[Sequence[Any]], *, with_header: bool = True
) -> str:
    """Give header and lines as one text that ends with a newline; empty without either."""
    made = [header(columns)] if with_header else []
    made += lines(columns, fields, rows)
    return "\n".join(made) + "\n" if made else ""


def wanted(columns: Sequence[Column]) -> list[str]:
    """Give the fields that the columns show, each once."""
    return list(dict.fromkeys(column.field for column in columns if column.field))


def _width(digits: str) -> int:
    return min(int(digits[:9] or "0"), WIDEST)


def _template(columns: Sequence[Column]) -> str:
    return "".join([column.template for column in columns])


# ---- kinds of values -------------------------------------------------------------------------------------------


def _or(word: str) -> Callable[[Columns], Columns]:
    """Give what prints a column as it is, and `word` where nothing is set."""

    def texts(values: Columns) -> Columns:
        if None not in values:
            return values
        return [word if value is None else value for value in values]

    return texts


def _each(text_of: Callable[[Any], str]) -> Callable[[Columns], Columns]:
    """Give what prints each value by a function; equal ones are printed once."""

    def texts(values: Columns) -> Columns:
        made = {value: text_of(value) for value in set(values)}
        return list(map(made.__getitem__, values))

    return texts


def _constant(text: str) -> Callable[[Columns], Columns]:
    return lambda values: [text] * len(values)


def _user(uid: int | None) -> str:
    if uid is None:
        return "Unknown"
    from cli.base import user_name

    return user_name(uid)


def _duration(seconds: int | None) -> str:
    return format_duration_short(None if seconds is None or seconds == -1 else seconds)


def _left(seconds: int | None) -> str:
    return format_duration_short(seconds)


KINDS: dict[str, Callable[[Columns], Columns]] = {
    "null": _or("(null)"),
    "plain": _or(""),
    "na": _or("N/A"),
    "lower_na": _or("n/a"),
    "time": _each(lambda when: format_time_point(when, unset="N/A")),
    "duration": _each(_duration),
    "duration_na": _each(lambda seconds: _duration(seconds) if seconds else "N/A"),
    "left": _each(_left),
    "memory": _each(lambda mib: format_memory_mib(mib or 0)),
    "memory_m": _each(lambda mib: format_memory_mib(mib or 0, noconvert=True)),
    "priority": _each(lambda number: f"{number / 4294967296:16.14f}"),
    "norm": _each(lambda number: f"{number:.7f}"),
    "whole": _each(lambda number: f"{number:.0f}"),
    "none": _or("none"),
    "any": _or("*"),
    "bound": _each(lambda number: "UNLIMITED" if number < 0 else str(number)),
    "state": _each(lambda word: word.lower() if word else "n/a"),
    "time_unknown": _each(lambda when: format_time_point(when, unset="Unknown")),
    "user": _each(_user),
    "user_long": _each(lambda uid: "Unknown" if uid is None else f"{_user(uid)}({uid})"),
    "=(null)": _constant("(null)"),
    "=N/A": _constant("N/A"),
    "=": _constant(""),
    "=OFF": _constant("OFF"),
    "=all": _constant("all"),
    "=0": _constant("0"),
    "=No": _constant("No"),
    "=*": _constant("*"),
    "=0:00:00": _constant("00:00:00"),
}
"""Kind -> what prints a column of it; a kind with `=` shows the same text in every row."""

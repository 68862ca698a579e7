"""The bracketed host list notation: `n[1-3,07],login` to host names and back.

A list is kept as ranges of hosts, in order and with duplicates, so the cost of parsing, sorting and merging
goes with the number of *ranges*; only several brackets in one item, or text after the last bracket, force
expansion. Every bound is checked before anything is built, so a hostile text is refused at once.

Imported by short-lived commands: nothing but builtins here.
"""

from __future__ import annotations

from muster.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_HOSTS_PER_RANGE = 65_536
"""Hosts in one range, and expansions of a bracket that is not the last of its item."""
MAX_RANGES_PER_BRACKET = 262_144
MAX_HOSTS = 1_048_576
"""Hosts in one list, duplicates included."""

_MAX_DIGITS = 18
"""A longer run of digits is text: no machine is numbered so, and int() of huge texts is slow or refused."""
_DIGITS = "0123456789"
_SEPARATORS = ", \t\n"

if TYPE_CHECKING:
    Range = tuple[str, int, int, int]
    """(prefix, first number, last number, digits written); (name, -1, -1, 0) is a host without a number."""
    NaturalKey = tuple[tuple[int, int, str], ...]


class HostlistError(InvalidInput):
    """A host list that cannot be read.

    `range_message` is the line that Slurm's library prints before the command's own message (empty where it
    prints none); the sentence is the same. `fatal` tells the one error that ends a Slurm command at once.
    """

    code = "INVALID_INPUT"

    def __init__(self, sentence: str, hint: str = "", *, range_message: str = "", fatal: bool = False) -> None:
        super().__init__(sentence, hint)
        self.range_message = range_message
        self.fatal = fatal


def expand(text: str) -> list[str]:
    """Give the host names of a list in written order, duplicates kept; raises HostlistError."""
    return list(Hostlist.parse(text))


def compress(names: Iterable[str]) -> str:
    """Give the ranged text of plain host names, order and duplicates kept."""
    return str(Hostlist.of(names))


def sort_compress(names: Iterable[str] | str) -> str:
    """Give the ranged text in natural order, duplicates kept; takes names, or a list's text."""
    return str(_as_hostlist(names).sorted())


def uniq(names: Iterable[str] | str) -> str:
    """Give the ranged text in natural order without duplicates; takes names, or a list's text."""
    return str(_as_hostlist(names).uniq())


def count(text: str) -> int:
    """Count the hosts of a list, duplicates included, without expanding it."""
    return len(Hostlist.parse(text))


def contains(text: str, name: str) -> bool:
    """Tell whether a host stands in the list by exact text: `n01` is not in `n[1-3]`."""
    return name in Hostlist.parse(text)


def natural_key(name: str) -> tuple[NaturalKey, int, int, int]:
    """Give the sort key of a host name: the prefix in natural order, then the number.

    Hosts with a number come before the single host of the same prefix. Among numbers, shorter texts come
    first (`9`, `10`, `010`): Slurm's rule "by number when the widths agree, else by width", as a total order.
    """
    prefix, number, _, width = _split(name)
    if not width:
        return _text_key(name), 1, 0, 0
    return _text_key(prefix), 0, width, number


class Hostlist:
    """Hosts in order, kept as ranges. Read-only: each operation gives a new list."""

    __slots__ = ("_count", "ranges")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        merged: list[Range] = []
        total = 0
        for new in ranges:
            total += new[2] - new[1] + 1
            if merged and new[3]:
                last = merged[-1]
                if last[0] == new[0] and last[3] and last[2] + 1 == new[1]:
                    width = _common_width(last[1], last[3], new[1], new[3])
                    if width:
                        merged[-1] = (last[0], last[1], new[2], width)
                        continue
            merged.append(new)
        if total > MAX_HOSTS:
            raise _too_many_in_all()
        self.ranges: tuple[Range, ...] = tuple(merged)
        self._count = total

    @staticmethod
    def parse(text: str) -> Hostlist:
        """Read a list; separators are comma, blank, tab and newline. Raises HostlistError."""
        return Hostlist(_parse(text))

    @staticmethod
    def of(names: Iterable[str]) -> Hostlist:
        """Make a list of plain names (brackets in them are ordinary text)."""
        return Hostlist(map(_split, names))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for prefix, low, high, width in self.ranges:
            if not width:
                yield prefix
            elif width == 1:
                for number in range(low, high + 1):
                    yield f"{prefix}{number}"
            else:
                for number in range(low, high + 1):
                    yield f"{prefix}{number:0{width}d}"

    def __getitem__(self, index: int) -> str:
        place = index + self._count if index < 0 else index
        if place >= 0:
            for one in self.ranges:
                size = one[2] - one[1] + 1
                if place < size:
                    return _name(one[0], one[1] + place, one[3])
                place -= size
        raise IndexError(f"host {index} of a list of {self._count}")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) >= 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hostlist):
            return NotImplemented
        if self.ranges == other.ranges:
            return True
        # The same hosts can be split differently: nid0[1-2] and nid[01-02].
        return self._count == other._count and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((self._count, self[0] if self._count else ""))

    def __str__(self) -> str:
        items: list[str] = []
        ranges, place = self.ranges, 0
        while place < len(ranges):
            prefix, low, high, width = ranges[place]
            end = place + 1
            if not width:
                items.append(prefix)
            else:
                while end < len(ranges) and ranges[end][3] and ranges[end][0] == prefix:
                    end += 1
                if end == place + 1 and low == high:
                    items.append(_name(prefix, low, width))
                else:
                    inner = ",".join([_range_text(*one[1:]) for one in ranges[place:end]])
                    items.append(f"{prefix}[{inner}]")
            place = end
        return ",".join(items)

    def __repr__(self) -> str:
        return f"Hostlist({str(self)!r})"

    def find(self, name: str) -> int:
        """Give the place of the first host of exactly this text, or -1."""
        before = 0
        for prefix, low, high, width in self.ranges:
            if not width:
                if name == prefix:
                    return before
            elif name.startswith(prefix):
                tail = name[len(prefix) :]
                if len(tail) >= width and len(tail) <= _MAX_DIGITS and _is_number(tail):
                    number = int(tail)
                    # The zero padding counts: the text must be what this range prints.
                    if low <= number <= high and len(tail) == max(width, len(str(number))):
                        return before + number - low
            before += high - low + 1
        return -1

    def without(self, name: str) -> Hostlist:
        """Give the list less the first host of this text (a range may split); unchanged without one."""
        place = self.find(name)
        if place < 0:
            return self
        kept: list[Range] = []
        for prefix, low, high, width in self.ranges:
            size = high - low + 1
            if 0 <= place < size:
                if place:
                    kept.append((prefix, low, low + place - 1, width))
                if place < size - 1:
                    kept.append((prefix, low + place + 1, high, width))
            else:
                kept.append((prefix, low, high, width))
            place -= size
        return Hostlist(kept)

    def sorted(self) -> Hostlist:
        """Give the hosts in natural order (see natural_key), duplicates kept."""
        ordered: list[Range] = []
        for group in _overlapping_groups(_comparable(self.ranges)):
            if len(group) == 1:
                ordered.append(group[0])
                continue
            prefix, width = group[0][0], group[0][3]
            if not width:
                ordered += group
                continue
            # Hosts named twice stay twice, side by side: n[1-3],n[2-5] reads n[1-2,2-3,3-5].
            numbers = sorted([number for one in group for number in range(one[1], one[2] + 1)])
            ordered += [(prefix, number, number, width) for number in numbers]
        return Hostlist(ordered)

    def uniq(self) -> Hostlist:
        """Give the hosts in natural order, each once."""
        ordered: list[Range] = []
        for group in _overlapping_groups(_comparable(self.ranges)):
            first = group[0]
            ordered.append((first[0], first[1], max([one[2] for one in group]), first[3]))
        return Hostlist(ordered)


def _as_hostlist(names: Iterable[str] | str) -> Hostlist:
    return Hostlist.parse(names) if isinstance(names, str) else Hostlist.of(names)


# ---- reading ---------------------------------------------------------------------------------------------


def _parse(text: str) -> list[Range]:
    ranges: list[Range] = []
    total = 0
    for item in _items(text):
        if "[" in item:
            added = _parse_brackets(item, MAX_HOSTS - total)
            ranges += added
            total += sum([one[2] - one[1] + 1 for one in added])
        else:
            ranges.append(_split(item))
            total += 1
        if total > MAX_HOSTS:
            raise _too_many_in_all()
    return ranges


def _items(text: str) -> list[str]:
    """Cut the text at separators that do not stand inside brackets."""
    items: list[str] = []
    for plain in ("\t", "\n", " "):
        if plain in text and "[" not in text:
            text = text.replace(plain, ",")
    if "[" not in text:
        return [item for item in text.split(",") if item]
    start = place = 0
    while place < len(text):
        char = text[place]
        if char == "[":
            close = text.find("]", place)
            if close < 0:
                raise HostlistError(
                    f"Invalid hostlist: {_shown(text[start:])}", f"the [ at character {place + 1} has no ]"
                )
            place = close
        elif char in _SEPARATORS:
            if place > start:
                items.append(text[start:place])
            start = place + 1
        place += 1
    if place > start:
        items.append(text[start:])
    return items


def _parse_brackets(item: str, room: int) -> list[Range]:
    """Expand one item with brackets to ranges; `room` is how many hosts the list may still take."""
    texts: list[str] = []  # what stands before each bracket
    brackets: list[list[tuple[int, int, int]]] = []
    rest = item
    while "[" in rest:
        before, _, rest = rest.partition("[")
        inner, _, rest = rest.partition("]")
        texts.append(before)
        brackets.append(_parse_bracket(inner))
    sizes = [sum([high - low + 1 for low, high, _ in bracket]) for bracket in brackets]
    for size in sizes[:-1]:
        if size > MAX_HOSTS_PER_RANGE:
            raise HostlistError(
                f"Invalid hostlist: {_shown(item)}",
                f"a bracket before the last one gives {size} names, the bound is {MAX_HOSTS_PER_RANGE}",
            )
    hosts = 1
    for size in sizes:
        hosts *= size
    if hosts > room:
        raise _too_many_in_all()

    prefixes = [texts[0]]
    if len(brackets) > 1:
        prefixes = _product(texts, brackets)
    last = brackets[-1]
    if rest:
        return [
            (f"{prefix}{number:0{width}d}{rest}", -1, -1, 0)
            for prefix in prefixes
            for low, high, width in last
            for number in range(low, high + 1)
        ]
    return [(prefix, low, high, width) for prefix in prefixes for low, high, width in last]


def _product(texts: list[str], brackets: list[list[tuple[int, int, int]]]) -> list[str]:
    """Give the texts before the last bracket: the bracket next to it is the outermost loop."""
    tails = [texts[-1]]
    for before, bracket in zip(reversed(texts[:-1]), reversed(brackets[:-1]), strict=True):
        numbers = [f"{number:0{width}d}" for low, high, width in bracket for number in range(low, high + 1)]
        tails = [f"{before}{number}{tail}" for tail in tails for number in numbers]
    return tails


def _parse_bracket(inner: str) -> list[tuple[int, int, int]]:
    if inner.count(",") >= MAX_RANGES_PER_BRACKET:
        message = "Too many ranges, can't process entire list"
        raise HostlistError(message, f"a bracket takes {MAX_RANGES_PER_BRACKET}", range_message=message, fatal=True)
    return [_parse_range(one) for one in inner.split(",")]


def _parse_range(text: str) -> tuple[int, int, int]:
    first, dash, last = text.partition("-")
    if dash and not last:
        last = first  # Slurm takes an empty upper end as the lower one
    if not _is_number(first) or (dash and not _is_number(last)) or max(len(first), len(last)) > _MAX_DIGITS:
        raise _bad_range("Invalid range", text, "write a number, or first-last, between commas without blanks")
    low = int(first)
    high = int(last) if dash else low
    if high < low:
        raise _bad_range("Invalid range", text, "the first number must not be greater than the last")
    if high - low >= MAX_HOSTS_PER_RANGE:
        raise _bad_range("Too many hosts in range", text, f"a range takes {MAX_HOSTS_PER_RANGE} hosts")
    return low, high, len(first)


def _bad_range(what: str, text: str, hint: str) -> HostlistError:
    message = f"{what}: `{_shown(text)}'" if what == "Invalid range" else f"{what} `{_shown(text)}'"
    return HostlistError(message, hint, range_message=message)


def _too_many_in_all() -> HostlistError:
    return HostlistError("Invalid hostlist: too many hosts", f"one list takes {MAX_HOSTS} hosts")


def _shown(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "..."


# ---- parts of names --------------------------------------------------------------------------------------


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _split(name: str) -> Range:
    """Split a name into its prefix and the digits that it ends with."""
    prefix = name.rstrip(_DIGITS)
    width = len(name) - len(prefix)
    if not width or width > _MAX_DIGITS:
        return name, -1, -1, 0
    number = int(name[len(prefix) :])
    return prefix, number, number, width


def _name(prefix: str, number: int, width: int) -> str:
    return f"{prefix}{number:0{width}d}" if width else prefix


def _range_text(low: int, high: int, width: int) -> str:
    return f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"


def _common_width(low: int, width: int, new_low: int, new_width: int) -> int:
    """Give the width that prints both numbers as they were written, or 0 if there is none."""
    if width == new_width or len(str(low)) >= max(width, new_width):
        return new_width
    if len(str(new_low)) >= max(width, new_width):
        return width
    return 0


def _text_key(text: str) -> NaturalKey:
    """Give the natural order of a text: runs of digits by value, those with a leading zero digit by digit."""
    key: list[tuple[int, int, str]] = []
    place = 0
    while place < len(text):
        char = text[place]
        if char in _DIGITS:
            end = place + 1
            while end < len(text) and text[end] in _DIGITS:
                end += 1
            run = text[place:end]
            # 48 and 49 are the codes of "0" and "1": a run keeps the place of digits among other characters.
            key.append((48, 0, run) if char == "0" else (49, len(run), run))
            place = end
        else:
            if char not in " \t":
                key.append((ord(char), 0, ""))
            place += 1
    return tuple(key)


# ---- sorting ---------------------------------------------------------------------------------------------


def _comparable(ranges: Iterable[Range]) -> list[Range]:
    """Give the ranges in natural order, each cut so that all its numbers have as many digits as its width.

    The same host can be written `nid0[1-2]` or `nid[01-02]`; where both ways of splitting meet in one list,
    digits move from the prefix to the number, so that equal hosts have equal ranges. Else the split stays.
    """
    ranges = list(ranges)
    kinds: dict[str, str | None] = {}
    mixed: set[str] = set()
    for prefix, _, _, width in ranges:
        stem = prefix.rstrip(_DIGITS)
        if width or stem != prefix:
            kind = prefix if width else None
            if kinds.setdefault(stem, kind) != kind:
                mixed.add(stem)
    cut: list[Range] = []
    for one in ranges:
        parts = _cut_at_digits(one)
        stem = one[0].rstrip(_DIGITS)
        cut += [_with_digits_of_prefix(part, stem) for part in parts] if stem in mixed else parts
    keys = {prefix: _text_key(prefix) for prefix in {one[0] for one in cut}}
    return sorted(cut, key=lambda one: (keys[one[0]], not one[3], one[3], one[1], one[0]))


def _cut_at_digits(one: Range) -> list[Range]:
    prefix, low, high, width = one
    if not width:
        return [one]
    parts: list[Range] = []
    while True:
        digits = max(width, len(str(low)))
        end = min(high, 10**digits - 1)
        parts.append((prefix, low, end, digits))
        if end == high:
            return parts
        low = end + 1


def _with_digits_of_prefix(one: Range, stem: str) -> Range:
    prefix, low, high, width = one
    lead = prefix[len(stem) :]
    if not lead or len(lead) + width > _MAX_DIGITS:
        return one
    base = int(lead) * 10**width
    if not width:  # a single host that ends with digits, as text after a bracket leaves it
        return stem, int(lead), int(lead), len(lead)
    return stem, base + low, base + high, len(lead) + width


def _overlapping_groups(ordered: list[Range]) -> Iterator[list[Range]]:
    """Put together the ranges that name some host twice; all others come alone."""
    group: list[Range] = []
    high = -1
    for one in ordered:
        if group and one[0] == group[0][0] and one[3] == group[0][3] and one[1] <= high:
            group.append(one)
            high = max(high, one[2])
        else:
            if group:
                yield group
            group, high = [one], one[2]
    if group:
        yield group

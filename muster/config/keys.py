"""A known key: name, how its value is read, default, tier, and which field of a record it fills; lookup by any case.

A row whose `field` is empty is known without effect in this release: it is accepted, shown, and listed in
`ClusterConfig.without_effect`. Giving a key its effect begins with naming its field here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from muster.config.effects import NEUTRAL, OPTIONS
from muster.config.problems import Place, Problems, nearest
from muster.config.syntax import Pair
from muster.config.values import READERS

UNBOUNDED = (1 << 63) - 1
_EMPTY_KINDS = ("text", "list", "flags", "options", "weights", "codes", "plugin")


@dataclass(frozen=True, slots=True)
class Key:
    """A row of a table of keys.

    Attributes:
        name: as the manual spells it.
        kind: the reader, a name of `values.READERS`.
        default: as one would write it; empty when unset by default.
        tier: 1 to 3 of the specification.
        field: the record's field; empty for a key without effect.
        unit: shown by `scontrol show config` after a number.
        low, high: bounds of a number, both allowed.
        endless: whether UNLIMITED is a value.
        choices: the words of kinds flags, word and plugin.
        alias_of: the key that this old name stands for.
    """

    name: str
    kind: str = "text"
    default: str = ""
    tier: int = 1
    field: str = ""
    unit: str = ""
    low: int = 0
    high: int = UNBOUNDED
    endless: bool = False
    choices: tuple[str, ...] = ()
    alias_of: str = ""

    def read(self, text: str) -> object:
        """The value of the text; ValueError says what is wrong."""
        return READERS[self.kind](text, self)


@dataclass(frozen=True, slots=True)
class Given:
    """A key with its value as written and as read, and where it stands."""

    key: Key
    text: str
    value: object
    place: Place


class Table:
    """Keys of one kind of line or file, found in any case.

    Args:
        what: where such keys stand, for messages.
        rows: the keys.
        records: words that begin lines of other tables in the same file, for the hint at a misspelt one.
        acted_on: fields that change something in this release; None: all.
    """

    def __init__(
        self,
        what: str,
        rows: tuple[Key, ...],
        *,
        records: tuple[str, ...] = (),
        acted_on: frozenset[str] | None = None,
    ) -> None:
        self.what = what
        self.rows = rows
        self._acted_on = acted_on
        self._records = records
        self._by_lower = {row.name.lower(): row for row in rows}

    def has_effect(self, key: Key) -> bool:
        """Whether a key changes something in this release."""
        return bool(key.field) and (self._acted_on is None or key.field in self._acted_on)

    def find(self, name: str) -> Key | None:
        """The row of a key, in any case; an old name gives the row that it stands for."""
        row = self._by_lower.get(name.lower())
        return self._by_lower[row.alias_of.lower()] if row is not None and row.alias_of else row

    def written(self, name: str) -> Key | None:
        """The row of a key under the very name that was written, old or new."""
        return self._by_lower.get(name.lower())

    def read(self, pair: Pair, place: Place, problems: Problems) -> Given | None:
        """Read one pair; None when the key is unknown or its value bad (an error is noted).

        An empty value is kept with value None: it cancels a default.
        """
        key = self.find(pair.key)
        if key is None:
            problems.error(
                place, f"unrecognized key: {pair.key} {self.what}", nearest(pair.key, (*self.names(), *self._records))
            )
            return None
        if not pair.value:
            return Given(key, "", None, place)
        try:
            return Given(key, pair.value, key.read(pair.value), place)
        except ValueError as why:
            problems.error(place, str(why))
            return None

    def names(self) -> list[str]:
        """Every key's name."""
        return [row.name for row in self.rows]

    def defaults(self) -> dict[str, object]:
        """The default of each row with a field, by field: its text read, else the kind's empty value, else None."""
        return {
            row.field: row.read(row.default) if row.default or row.kind in _EMPTY_KINDS else None
            for row in self.rows
            if row.field
        }


def note_unused(given: Given, problems: Problems, *, acted_on: bool) -> None:
    """List a key that changes nothing, unless its value asks for nothing; of one with options those of them."""
    name = given.key.name
    if not acted_on and given.text and given.text.rpartition("/")[2].lower() not in NEUTRAL:
        problems.unused(name, given.place)
    known = OPTIONS.get(given.key.field)
    if known is None:
        return
    value = given.value
    # Options are in the order of the file; those with a value are a dict, and a text is a list that is read later.
    for option in value if isinstance(value, (dict, tuple)) else given.text.split(","):
        if option.strip() and option.strip().lower() not in known:
            problems.unused(f"{name}={option.strip()}", given.place)


def read_line(table: Table, pairs: tuple[Pair, ...], place: Place, problems: Problems) -> dict[str, Given]:
    """The given keys of one line by canonical name; a key given twice on a line keeps its last value."""
    found: dict[str, Given] = {}
    for pair in pairs:
        given = table.read(pair, place, problems)
        if given is None:
            continue
        if given.key.name in found:
            problems.warning(place, f"{given.key.name} specified more than once, latest value used")
        found[given.key.name] = given
        note_unused(given, problems, acted_on=table.has_effect(given.key))
    return found


def field_values(given: dict[str, Given]) -> dict[str, Any]:
    """What the given keys set, by field; cancelled (empty) ones are left out, so that defaults hold.

    Any: values are as varied as the fields that they go to; tests convert whole records back through their types.
    """
    return {item.key.field: item.value for item in given.values() if item.key.field and item.text}

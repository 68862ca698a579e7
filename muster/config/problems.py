"""What is wrong with the configuration, collected so that one reading reports everything, a sentence a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from muster.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, printed `file:line`; line 0 stands for the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(slots=True)
class Problems:
    """Errors (the configuration is refused) and warnings (the daemon logs them once), in order of reading."""

    errors: list[tuple[Place, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    without_effect: list[tuple[str, str, int]] = field(default_factory=list)

    def error(self, place: Place, sentence: str, hint: str = "") -> None:
        """Refuse the configuration, naming the place and where possible a cure."""
        self.errors.append((place, sentence, hint))

    def warning(self, place: Place, sentence: str) -> None:
        """Go on, but tell the administrator."""
        self.warnings.append(f"{place}: {sentence}")

    def unused(self, key: str, place: Place) -> None:
        """Note a known key that changes nothing in this release."""
        self.without_effect.append((key, place.file, place.line))

    def raise_if_any(self) -> None:
        """Raise every error collected so far as one ConfigError, a sentence a line, in order of files and lines."""
        if not self.errors:
            return
        if len(self.errors) == 1:
            place, sentence, hint = self.errors[0]
            raise ConfigError(f"{place}: {sentence}", hint)
        files = {place.file: None for place, _, _ in self.errors}
        order = {file: index for index, file in enumerate(files)}
        # What is missing altogether (line 0) comes after what is wrong in the file.
        ranked = sorted(self.errors, key=lambda error: (order[error[0].file], error[0].line or 1 << 62))
        shown = [
            f"{place}: {sentence} ({hint})" if hint else f"{place}: {sentence}" for place, sentence, hint in ranked
        ]
        raise ConfigError("\n".join(dict.fromkeys(shown)))


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word most like `word`, in any case, or nothing when none is near."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[found[0]]}?" if found else ""

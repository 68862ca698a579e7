"""GPUs from a table: virtual ones for tests and demonstrations, and devices that no library finds.

`type:count` on the command line, or a file with one device a line: its type. Blank lines and `#` comments are
skipped. The order of the lines is the order of the indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muster.errors import InvalidInput

MOST = 1024
"""As many device files as Slurm allows in one line."""


class TableGpus:
    """GPUs as written down."""

    def __init__(self, types: Sequence[str]) -> None:
        self._types = tuple(types)

    def types(self) -> Sequence[str]:
        """Give the type of each."""
        return self._types


def read(text: str) -> TableGpus:
    """Read `--gpus`: `type:count`, a count (of type `gpu`), or the path of a file; InvalidInput says what is wrong."""
    kind, colon, count = text.rpartition(":")
    if count.isascii() and count.isdecimal() and "/" not in text:
        if int(count) > MOST:
            raise InvalidInput(f"--gpus={text}: more than {MOST} GPUs on one node")
        name = kind if colon else "gpu"
        if not _is_type(name):
            raise InvalidInput(f"--gpus={text}: {name!r} is no type of a GPU", "letters, digits, _ . and - only")
        return TableGpus((name,) * int(count))
    try:
        lines = Path(text).read_text().splitlines()
    except OSError as error:
        raise InvalidInput(
            f"--gpus={text}: cannot read the file: {error.strerror}", "give type:count, or a file with a type a line"
        ) from error
    types = []
    for number, line in enumerate(lines, start=1):
        word = line.partition("#")[0].strip()
        if not word:
            continue
        if not _is_type(word):
            raise InvalidInput(f"{text}:{number}: {word!r} is no type of a GPU", "letters, digits, _ . and - only")
        types.append(word)
    if len(types) > MOST:
        raise InvalidInput(f"{text}: more than {MOST} GPUs on one node")
    return TableGpus(types)


def _is_type(word: str) -> bool:
    return bool(word) and all(letter.isascii() and (letter.isalnum() or letter in "_.-") for letter in word)

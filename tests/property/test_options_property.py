"""Our reading of options against the C library's own getopt_long, on the same table."""

from __future__ import annotations

import ctypes
import string
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.options import OptionError, rows_of, scan
from muster.options_table import Row

LIBC = ctypes.CDLL(None)
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(LIBC, "gnu_get_libc_version"),
    reason="the oracle is glibc's getopt_long",
)


class LongOption(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("has_arg", ctypes.c_int),
        ("flag", ctypes.c_void_p),
        ("val", ctypes.c_int),
    )


def kind_of(row: Row) -> int:
    return {"": 0, "=": 1, "[": 2}[row[3][:1]]


def by_the_c_library(command: str, words: list[str]) -> tuple[list[tuple[str, str | None]], list[str]] | None:
    """The options as (long name, text) and the rest, or None when getopt_long refuses a word."""
    longs, shorts = rows_of(command)
    rows = list(longs.values())
    # Rows that mean the same share their value: then a common beginning of theirs is not ambiguous.
    table = (LongOption * (len(rows) + 1))()
    for index, row in enumerate(rows):
        table[index] = LongOption(row[1].encode(), kind_of(row), None, 1000 + index)
    letters = "+" + "".join(row[0] + ":" * kind_of(row) for row in shorts.values())
    argv = (ctypes.c_char_p * (len(words) + 2))(command.encode(), *[word.encode() for word in words], None)
    optind = ctypes.c_int.in_dll(LIBC, "optind")
    optarg = ctypes.c_char_p.in_dll(LIBC, "optarg")
    ctypes.c_int.in_dll(LIBC, "opterr").value = 0
    optind.value = 0  # glibc starts anew
    found: list[tuple[str, str | None]] = []
    while True:
        value = LIBC.getopt_long(len(words) + 1, argv, letters.encode(), table, None)
        if value == -1:
            return found, words[optind.value - 1 :]
        if value == ord("?"):
            return None
        row = rows[value - 1000] if value >= 1000 else shorts[chr(value)]
        found.append((row[1], None if optarg.value is None else optarg.value.decode()))


NAMES = {
    command: [name for name in rows_of(command)[0] if name not in ("help", "usage", "version")]
    for command in ("sbatch", "srun", "salloc")
}
TEXTS = st.text(string.ascii_letters + string.digits + "-=:,% ", max_size=4)


@st.composite
def words_for(draw: st.DrawFn, command: str) -> list[str]:
    """Words that look like options most of the time; those that end the reading early are left out."""
    words: list[str] = []
    for _ in range(draw(st.integers(0, 6))):
        match draw(st.integers(0, 5)):
            case 0 | 1:
                name = draw(st.sampled_from(NAMES[command]))
                name = name[: draw(st.integers(1, len(name)))] if draw(st.booleans()) else name
                word = f"--{name}"
                words.append(f"{word}={draw(TEXTS)}" if draw(st.booleans()) else word)
            case 2 | 3:
                letters = draw(st.text(string.ascii_letters, min_size=1, max_size=3))
                words.append(f"-{letters}{draw(st.sampled_from(['', '5', '=5', '-']))}")
            case 4:
                words.append(draw(TEXTS))
            case _:
                words.append(draw(st.sampled_from(["-", "--", "job.sh", "---", "--=", ""])))
    return words


@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
@given(data=st.data())
def test_we_read_what_the_c_library_reads(command: str, data: st.DataObject) -> None:
    words = data.draw(words_for(command))
    expected = by_the_c_library(command, words)
    try:
        found, rest = scan(command, words, place="as in a script, so that --help does not end it")
    except OptionError:
        assert expected is None
        return
    assert expected == ([(row[1], text) for row, text in found], rest)

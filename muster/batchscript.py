"""Batch scripts: finding and reading them, the checks of their text, and their directive lines.

A directive is a line that begins with `#SBATCH`; they count only down to the first command. Those that come later,
and lines that look like directives and are none, are told to the user as warnings.
"""

from __future__ import annotations

from muster.options import OptionError

LARGEST_SCRIPT_BYTES = 512 * 1024 * 1024
MAGIC = "#SBATCH"
OLD_MAGIC = "#SLURM"
FOREIGN = ("#PBS", "#BSUB")

_BLANKS = " \t\r\v\f"


class Directives:
    """What the scan of a script found.

    Attributes:
        lines: (line number, words) of each directive that counts, for `muster.options.parse_directives`.
        warnings: sentences to print behind `sbatch: warning: `.
        errors: sentences to print behind `sbatch: error: ` though submission goes on.
        late: numbers of the directive lines after the first command.
        first_command: number of the line that ended the scan; 0 when there is none.
    """

    __slots__ = ("errors", "first_command", "late", "lines", "warnings")

    def __init__(self) -> None:
        self.lines: list[tuple[int, list[str]]] = []
        self.warnings: list[str] = []
        self.errors: list[str] = []
        self.late: list[int] = []
        self.first_command = 0


def wrap_script(command: str) -> str:
    """Give the script that `--wrap` makes of a command."""
    return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"


def find_script(name: str, folder: str, search_path: str) -> str:
    """Give the path of a script: as written with a leading `.` or `/`, else in `folder`, else on the search path.

    Args:
        name: the first word that is no option.
        folder: the folder of `--chdir`, or the current one.
        search_path: the text of PATH.

    Returns:
        The first path that can be read; the name itself when there is none, so that opening it says why.
    """
    import os

    if name.startswith(("/", ".")):
        return name
    for place in (folder, *search_path.split(":")):
        path = f"{place.rstrip('/')}/{name}" if place else name
        if os.access(path, os.R_OK) and not os.path.isdir(path):
            return path
    return f"{folder.rstrip('/')}/{name}"


def read_script(command: str, path: str | None, name: str) -> str:
    """Read and check the text of a script; None reads standard input.

    Bytes that are not UTF-8 come through as surrogates (`surrogateescape`).

    Raises:
        OptionError: it cannot be opened, or is no batch script; exit code 1.
    """
    data = b""
    try:
        with open(0 if path is None else path, "rb", closefd=path is not None) as file:
            data = file.read(LARGEST_SCRIPT_BYTES + 1)
    except IsADirectoryError:
        data = b""  # the reference reads a folder as an empty file
    except OSError:
        raise _error(command, f"Unable to open file {name}") from None
    return check_script(command, data, name)


def check_script(command: str, data: bytes, name: str) -> str:
    """Check what was read, in the reference's order and words; gives it as text.

    Raises:
        OptionError: empty, blank, without `#!`, with NUL or DOS line ends, or too large; exit code 1.
    """
    if len(data) > LARGEST_SCRIPT_BYTES:
        raise OptionError([f"{command}: fatal: Script file {name} is too large"], 1)
    if not data:
        raise _error(command, "Batch script is empty!")
    if data.isspace():
        raise _error(command, "Batch script contains only whitespace!")
    if not data.startswith(b"#!"):
        raise _error(
            command,
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
        )
    if b"\0" in data:
        raise _error(
            command,
            "The Slurm controller does not allow scripts that",
            r"contain a NULL character '\0'.",
        )
    if b"\r\n" in data:
        raise _error(
            command,
            r"Batch script contains DOS line breaks (\r\n)",
            r"instead of expected UNIX line breaks (\n).",
        )
    return data.decode("utf-8", "surrogateescape")


def _error(command: str, *texts: str) -> OptionError:
    return OptionError([f"{command}: error: {text}" for text in texts], 1, is_verification=True)


def scan_script(command: str, text: str, name: str, *, strict: bool = False, ignore_pbs: bool = False) -> Directives:
    """Find the directives of a script.

    Args:
        command: `sbatch`, for the error texts.
        text: the script.
        name: its name, for the error texts.
        strict: refuse directives after the first command, where otherwise a warning is given.
        ignore_pbs: say nothing about `#PBS` and `#BSUB` lines.

    Raises:
        OptionError: unmatched quote, a lone `:`, a heterogeneous job, or (strict) a late directive; exit code 1.
    """
    found = Directives()
    lines = text.split("\n")
    foreign: list[int] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(MAGIC):
            if line.startswith(MAGIC + ":"):
                found.warnings.append(_near_miss(number, f"{MAGIC}:"))
                continue
            _directive(command, found, line[len(MAGIC) :], name, number)
        elif line.startswith(OLD_MAGIC):
            found.errors.append(
                "Change from #SLURM to #SBATCH in your script and verify the options are valid in sbatch"
            )
            _directive(command, found, line[len(OLD_MAGIC) :], name, number)
        else:
            bare = line.strip()
            if bare and not bare.startswith("#"):
                found.first_command = number
                break
            if line.startswith(FOREIGN):
                foreign.append(number)
            elif written := _almost_directive(line):
                found.warnings.append(_near_miss(number, written))
    if foreign and not ignore_pbs:
        found.warnings.append(
            f"{_counted(len(foreign), '#PBS or #BSUB line')} {_is_are(foreign)} not translated by this release"
            f" of Muster ({_numbers(foreign)}); write #SBATCH, or silence this with --ignore-pbs"
        )
    if found.first_command:
        found.late = _late_directives(lines, found.first_command)
    if found.late:
        _tell_late(command, found, strict)
    return found


def _tell_late(command: str, found: Directives, strict: bool) -> None:
    what = (
        f"{_counted(len(found.late), 'directive')} after the first command on line {found.first_command}"
        f" {_is_are(found.late)}"
    )
    if strict:
        raise _error(command, f"{what} refused in strict mode ({_numbers(found.late)}); move above the command")
    found.warnings.append(f"{what} ignored ({_numbers(found.late)})")


def _late_directives(lines: list[str], first_command: int) -> list[int]:
    """Find directive lines after the first command, but not those of a script that this one writes (`<<EOF`)."""
    late: list[int] = []
    until = ""
    for number, line in enumerate(lines[first_command - 1 :], first_command):
        if until:
            if line.strip("\t ") == until:
                until = ""
        elif line.startswith(MAGIC):
            late.append(number)
        elif not line.lstrip().startswith("#"):
            until = _here_document_end(line)
    return late


def _here_document_end(line: str) -> str:
    """Give the word that ends the here-document begun on this line, or ""."""
    before, sign, after = line.partition("<<")
    if not sign or after.startswith("<") or "((" in before:
        return ""
    word = after.removeprefix("-").lstrip(_BLANKS)
    if word[:1].isdigit():
        return ""  # a shift in arithmetic
    end = 0
    while end < len(word) and (word[end].isalnum() or word[end] in "_'\"\\"):
        end += 1
    return word[:end].strip("'\"\\")


def _almost_directive(line: str) -> str:
    """Give how a line that looks like a directive begins, or "" for a plain remark; `##SBATCH` is a plain remark."""
    bare = line.lstrip(_BLANKS)
    after = bare[1:].lstrip(_BLANKS)
    if not bare.startswith("#") or after[:6].upper() != MAGIC[1:]:
        return ""
    rest = after[6:]
    blanks = len(bare) - 1 - len(after)
    if blanks and (after[:6] != MAGIC[1:] or blanks > 1):
        # A command line shown in a remark, indented or in small letters: "#     sbatch -N2 job.sh".
        return ""
    # Prose such as "# sbatch reads the lines below" has no option behind the word.
    if not (rest.startswith(":") or rest.lstrip(_BLANKS).startswith("-")):
        return ""
    return line[: len(line) - len(rest)] + (":" if rest.startswith(":") else "")


def _near_miss(number: int, written: str) -> str:
    return f"line {number} is a remark, not a directive: write {MAGIC} at the start of the line, not {written!r}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _is_are(numbers: list[int]) -> str:
    return "is" if len(numbers) == 1 else "are"


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:10])
    more = ", ..." if len(numbers) > 10 else ""
    return f"line {shown}" if len(numbers) == 1 else f"lines {shown}{more}"


def _directive(command: str, found: Directives, rest: str, name: str, number: int) -> None:
    words = split_words(command, rest, name, number)
    if words and words[0] in ("hetjob", "packjob"):
        place = f"line {number} of the script"
        raise OptionError(
            [
                f"{command}: error: {place}: heterogeneous jobs (#SBATCH {words[0]}) are not supported by this"
                " release of Muster; submit one job for each component",
                f"{command}: error: Batch job submission failed: Requested operation not supported on this system",
            ],
            1,
            place=place,
        )
    if words:
        found.lines.append((number, words))


def split_words(command: str, rest: str, name: str, number: int) -> list[str]:
    r"""Split what follows `#SBATCH` into words.

    White space separates; `'...'` and `"..."` group, also inside a word; a backslash takes the next letter as it is,
    also in quotes; a `#` outside quotes ends the line, even inside a word. Nothing is expanded.

    Raises:
        OptionError: a quote without its partner, or a word that begins with `:`; exit code 1.
    """
    words: list[str] = []
    at = 0
    while True:
        while at < len(rest) and rest[at].isspace():
            at += 1
        if at == len(rest) or rest[at] == "#":
            return words
        if rest[at] == ":":
            raise _fatal(command, name, number, ":", rest[at:])
        if rest[at:] == "\\":
            return words
        word, at, is_last = _word(command, rest, at, name, number)
        words.append(word)
        if is_last:
            return words


def _word(command: str, rest: str, start: int, name: str, number: int) -> tuple[str, int, bool]:
    """Read one word; gives it, where it ends, and whether a remark follows it directly."""
    made: list[str] = []
    quote = ""
    at = start
    while at < len(rest):
        letter = rest[at]
        if not quote and letter.isspace():
            break
        at += 1
        if letter == "\\":
            made.append(rest[at : at + 1])  # nothing at the end of the line: lines are not joined
            at = min(at + 1, len(rest))
        elif quote:
            if letter == quote:
                quote = ""
            else:
                made.append(letter)
        elif letter in "\"'":
            quote = letter
        elif letter == "#":
            return "".join(made), at, True
        else:
            made.append(letter)
    if quote:
        raise _fatal(command, name, number, quote, rest[start:])
    return "".join(made), at, False


def _fatal(command: str, name: str, number: int, letter: str, text: str) -> OptionError:
    what = "Unexpected" if letter == ":" else "Unmatched"
    return OptionError(
        [f"{command}: fatal: {name}: line {number}: {what} `{letter}` in [{text}]"],
        1,
        place=f"line {number} of the script",
    )

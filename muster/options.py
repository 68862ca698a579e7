"""Options of sbatch, srun and salloc, read from argv, from the environment and from script directives.

getopt_long's rules: an exact name wins, a unique beginning will do, `--x value` and `--x=value` are the same for a
required value, an optional value only counts when it is glued on, short letters may be bundled, `--` and the first
word that is no option end the options.

The three sources are read apart, merged (command line over environment over script), and only then judged
(`muster.options_check.check`). So the value of a directive or variable is converted after the merge, and one that is
overridden is never looked at; an unknown option is an error at once, wherever it stands.
"""

from __future__ import annotations

from muster.errors import InvalidInput
from muster.options_table import ENVIRONMENT_ONLY, LETTERS, ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.options_table import Row

# Acted on as soon as they are met on the command line: what follows is not even looked at.
IMMEDIATE_EXITS = ("help", "usage", "version")
# In a script these come too late to mean anything, and are passed over.
NOT_IN_SCRIPTS = ("help", "usage", "version", "verbose", "quiet", "wrap")

# Which of several exclusive options are dropped when they come from the environment and a rival was given
# explicitly (on the command line or in the script).
RIVALS = (
    (("mem", "mem_per_cpu", "mem_per_gpu"),) * 2,
    (("cpus_per_task",), ("cpus_per_gpu",)),
    (("gres",), ("gpus_per_node",)),
    (("ntasks_per_gpu",), ("gpus_per_task", "gpus_per_socket", "ntasks_per_node", "tres_per_task")),
    (("exclusive",), ("oversubscribe",)),
    (("core_spec",), ("thread_spec",)),
    (("quiet",), ("verbose",)),
)


class OptionError(InvalidInput):
    """An option or directive is wrong.

    Args:
        lines: what to print on standard error, complete lines with the command's name.
        exit_code: 255 for what getopt and the converters refuse, 1 for the rest.
        is_verification: true when SLURM_EXIT_ERROR may replace the exit code.
        place: where it stands, e.g. `line 3 of the script`; empty for the command line.
    """

    def __init__(self, lines: Sequence[str], exit_code: int, *, is_verification: bool = False, place: str = "") -> None:
        super().__init__(lines[0], place)
        self.lines = list(lines)
        self.exit_code = exit_code
        self.is_verification = is_verification


class Unread:
    """A value whose text is converted only if it survives the merge."""

    __slots__ = ("command", "now", "place", "row", "text")

    def __init__(self, command: str, row: Row, text: str | None, now: int, place: str) -> None:
        self.command = command
        self.row = row
        self.text = text
        self.now = now
        self.place = place

    def read(self) -> object:
        """Convert the text; raises OptionError."""
        return convert(self.command, self.row, self.text, self.now, self.place)


class Values(dict[str, object]):
    """Merged values: a dict that also knows which source each came from ("script", an environment name, "argv")."""

    __slots__ = ("options", "sources")

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, str] = {}
        self.options: dict[str, str] = {}  # key -> long name as the table spells it


class Given(dict[str, object]):
    """What one source said, key -> value (converted, `Unread`, or None for "take it back"), with where it said so."""

    __slots__ = ("options", "places")

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, str] = {}
        self.options: dict[str, str] = {}

    def put(self, row: Row, value: object, place: str) -> None:
        """Store a value; the last one said for a key wins."""
        key = key_of(row)
        self[key] = value
        self.places[key] = place
        self.options[key] = row[1]


_index: dict[str, tuple[dict[str, Row], dict[str, Row]]] = {}


def rows_of(command: str) -> tuple[dict[str, Row], dict[str, Row]]:
    """Give the rows of a command by long name, in the order of the table, and by short letter."""
    known = _index.get(command)
    if known is None:
        letter = LETTERS[command]
        longs = {row[1]: row for row in ROWS if letter in row[2]}
        known = _index[command] = (longs, {row[0]: row for row in longs.values() if row[0]})
    return known


def key_of(row: Row) -> str:
    """Give the key that the value of an option is stored under."""
    return row[5] or row[1].replace("-", "_")


def convert(command: str, row: Row, text: str | None, now: int, place: str = "") -> object:
    """Turn the text of one option into its value; raises OptionError with the reference's text and exit code."""
    from muster.options_convert import CONVERTERS, BadValue

    try:
        return CONVERTERS[row[4]](text, row[1], now)
    except BadValue as exc:
        raise OptionError([f"{command}: {line}" for line in exc.texts], exc.exit_code, place=place) from None


def parse_argv(command: str, argv: Sequence[str], now: int) -> tuple[Given, list[str]]:
    """Read the words after the command's name.

    `--help`, `--usage` and `--version` end the reading: they come back as the only value, with no rest.

    Returns:
        The values by key, and the words from the first one on that is no option.
    """
    given = Given()
    found, rest = scan(command, argv)
    for row, text in found:
        if row[1] in IMMEDIATE_EXITS:
            alone = Given()
            alone.put(row, True, "")
            return alone, []
        value = convert(command, row, text, now)
        if row[4] == "verbose" and isinstance(before := given.get("verbose"), int):
            value = before + 1
        given.put(row, value, "")
    return given, rest


def parse_environment(command: str, environ: Mapping[str, str], now: int) -> Given:
    """Read the variables that act like options of this command.

    A flag is set by an empty text, `yes` or a number other than 0, and taken back by any other text.
    """
    given = Given()
    letter = LETTERS[command]
    for row in rows_of(command)[0].values():
        for name in row[6].split():
            name, colon, letters = name.partition(":")
            if letter not in (letters if colon else _letter_of(name)):
                continue
            text = environ.get(name)
            if name == "SLURM_JOB_NAME" and "SLURM_JOB_ID" in environ:
                continue  # the name of the surrounding job is not that of each of its steps
            if text is not None:
                given.put(row, _variable(command, row, name, text, now), name)
    for name, letters, key, converter, long in ENVIRONMENT_ONLY:
        text = environ.get(name)
        if text is not None and letter in letters:
            row = ("", long, letters, "=TIME", converter, key, name, 1, "")
            given.put(row, _variable(command, row, name, text, now), name)
    return given


def _letter_of(variable: str) -> str:
    head = variable.partition("_")[0]
    if head == "SBATCH":
        return "B"
    return "A" if head == "SALLOC" else "S"


def _variable(command: str, row: Row, name: str, text: str, now: int) -> Unread | None:
    """Give the value of a variable, or None where it takes a flag back."""
    if row[3] == "" and row[4] != "verbose":
        return Unread(command, row, None, now, name) if _is_set(text) else None
    if text == "" and not row[3].startswith("="):
        return Unread(command, row, None, now, name)
    return Unread(command, row, text, now, name)


def _is_set(text: str) -> bool:
    if text == "" or text.lower() == "yes":
        return True
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and int(digits) != 0


def parse_directives(command: str, lines: Sequence[tuple[int, Sequence[str]]], now: int) -> Given:
    """Read the words of the directive lines of a batch script.

    Args:
        command: `sbatch`.
        lines: (line number, words) of each directive, as `muster.batchscript.scan_script` gives them.
        now: seconds since the epoch, for time points such as `now+1hour`.

    Raises:
        OptionError: an unknown option, a missing value or a stray word (255). Bad values are left for later.
    """
    given = Given()
    for number, words in lines:
        place = f"line {number} of the script"
        found, rest = scan(command, words, place=place)
        if rest:
            text = f"{command}: error: Invalid directive found in batch script: {rest[0]}"
            raise OptionError([text], 255, place=place)
        for row, text_or_none in found:
            if row[1] not in NOT_IN_SCRIPTS:
                given.put(row, Unread(command, row, text_or_none, now, place), place)
    return given


def merge(script: Given, environment: Given, argv: Given) -> Values:
    """Put the three sources together: command line over environment over script.

    A variable that contradicts an option given explicitly is dropped without a word: inside a job the system itself
    sets SLURM_MEM_PER_CPU and its like. Raises OptionError for a bad value that has survived.
    """
    merged = Values()
    for source, name in ((script, "script"), (environment, ""), (argv, "argv")):
        for key, value in source.items():
            if value is None:
                merged.pop(key, None)
                continue
            merged[key] = value
            merged.sources[key] = name or source.places[key]
            merged.options[key] = source.options[key]
    _drop_rivals(merged)
    for key, value in merged.items():
        if isinstance(value, Unread):
            merged[key] = value.read()
    return merged


def _drop_rivals(merged: Values) -> None:
    if merged.sources.get("tres_per_task") == "SLURM_TRES_PER_TASK" and "cpus_per_task" in merged:
        # A job gets this variable beside SLURM_CPUS_PER_TASK: its CPUs repeat that one, and do not contradict it.
        rest = [part for part in _text_of(merged["tres_per_task"]).split(",") if not part.startswith("cpu")]
        merged["tres_per_task"] = ",".join(rest)
        if not rest:
            del merged["tres_per_task"]
    explicit = [key for key in merged if merged.sources[key] in ("script", "argv") and _competes(merged, key)]
    for one, other in RIVALS:
        for winners, losers in ((one, other), (other, one)):
            if not any(key in winners for key in explicit):
                continue
            for key in losers:
                if key in merged and key not in explicit and merged.sources[key] not in ("script", "argv"):
                    del merged[key]


def _competes(merged: Values, key: str) -> bool:
    """Tell whether the option stands against others at all: a gres list without GPUs does not."""
    return key != "gres" or "gpu" in _text_of(merged[key]) or _text_of(merged[key]).lower() == "none"


def _text_of(value: object) -> str:
    return str(value.text if isinstance(value, Unread) else value)


def scan(command: str, words: Sequence[str], *, place: str = "") -> tuple[list[tuple[Row, str | None]], list[str]]:
    """Split words into (row, text or None) of each option and the rest, as getopt_long does with a leading `+`.

    Raises:
        OptionError: unknown or ambiguous option, missing or superfluous value; getopt's text, exit code 255.
    """
    longs, shorts = rows_of(command)
    found: list[tuple[Row, str | None]] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return found, list(words[at + 1 :])
        if len(word) < 2 or word[0] != "-":
            break
        at += 1
        if word[1] == "-":
            row, text = _long(command, longs, word, place)
            if text is None and row[3].startswith("="):
                if at == len(words):
                    raise _refusal(command, f"option '--{row[1]}' requires an argument", place)
                text = words[at]
                at += 1
            found.append((row, text))
        else:
            bundle, at = _bundle(command, shorts, words, at, place)
            found += bundle
        if found[-1][0][1] in IMMEDIATE_EXITS and not place:
            return found, []
    return found, list(words[at:])


def _long(command: str, longs: Mapping[str, Row], word: str, place: str) -> tuple[Row, str | None]:
    name, equals, text = word[2:].partition("=")
    row = longs.get(name)
    if row is None:
        candidates = [candidate for long, candidate in longs.items() if long.startswith(name)]
        if not candidates:
            raise _refusal(command, f"unrecognized option '{word}'", place)
        row = candidates[0]
        if any(_target(candidate) != _target(row) for candidate in candidates):
            names = " ".join(f"'--{candidate[1]}'" for candidate in candidates)
            raise _refusal(command, f"option '{word}' is ambiguous; possibilities: {names}", place)
    if not equals:
        return row, None
    if row[3] == "":
        raise _refusal(command, f"option '--{row[1]}' doesn't allow an argument", place)
    return row, text


def _target(row: Row) -> tuple[str, str, str]:
    return row[3][:1], row[4], key_of(row)


def _bundle(
    command: str, shorts: Mapping[str, Row], words: Sequence[str], at: int, place: str
) -> tuple[list[tuple[Row, str | None]], int]:
    """Read the word of short letters before `at`; gives its options and the index of the next word."""
    found: list[tuple[Row, str | None]] = []
    letters = words[at - 1]
    for index in range(1, len(letters)):
        letter = letters[index]
        row = shorts.get(letter)
        if row is None:
            raise _refusal(command, f"invalid option -- '{letter}'", place)
        if row[3] == "":
            found.append((row, None))
            if row[1] in IMMEDIATE_EXITS and not place:
                break
            continue
        text: str | None = letters[index + 1 :] or None
        if text is None and row[3].startswith("="):
            if at == len(words):
                raise _refusal(command, f"option requires an argument -- '{letter}'", place)
            text = words[at]
            at += 1
        found.append((row, text))
        break
    return found, at


def _refusal(command: str, text: str, place: str) -> OptionError:
    return OptionError(
        [f"{command}: {text}", f'Try "{command} --help" for more information'],
        255,
        place=place,
    )

"""What every short-lived command shares: how it reads options, reports, prints and ends.

Texts and exit codes are Slurm's, since scripts match them: `squeue: error: ...` for what the command itself finds
wrong, `slurm_load_jobs error: ...` for what the controller refuses.
"""

from __future__ import annotations

import errno
import os

from muster import client
from muster.errors import MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

NO_ARGUMENT, ARGUMENT, OPTIONAL = 0, 1, 2


class Quit(Exception):
    """End the command: print `lines` on standard error, leave with `code`."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__(*lines)
        self.code = code
        self.lines = lines


def run(command: str, body: Callable[[list[str]], int], argv: list[str]) -> int:
    """Run a command's body and give its exit code; whatever it raises becomes a line of text.

    An error of the house that the body did not word itself reads `<command>: error: <sentence>`.
    """
    try:
        return body(argv)
    except Quit as end:
        for line in end.lines:
            say(line)
        return end.code
    except MusterError as refused:
        error(command, refused.sentence)
        if refused.hint:
            say(f"{command}: {refused.hint}")
        return 1
    except KeyboardInterrupt:
        return 130


def error(command: str, text: str) -> None:
    """Print `<command>: error: <text>` on standard error."""
    say(f"{command}: error: {text}")


def fatal(command: str, text: str) -> Quit:
    """Give the end that prints `<command>: fatal: <text>`; the exit code is 1."""
    return Quit(1, f"{command}: fatal: {text}")


def refused(what: str, problem: MusterError, *, colon: str = " error: ") -> Quit:
    """Give the end that words a refusal as Slurm's library does: `<what> error: <sentence>`, exit code 1.

    When the controller cannot be reached, a second line says what was tried, which Slurm's text does not.
    """
    lines = [f"{what}{colon}{problem.sentence}"]
    if problem.hint and problem.slurm_code in (1800, 1802):
        lines.append(problem.hint)
    return Quit(1, *lines)


_silent = False


def silence() -> None:
    """Print nothing on standard error from now on (scontrol -Q); exit codes stay."""
    global _silent
    _silent = True


def say(line: str) -> None:
    """Print a line on standard error; a closed one is no reason to fail."""
    if _silent:
        return
    try:
        _write_all(2, (line + "\n").encode("utf-8", "surrogateescape"))
    except OSError:
        pass  # nobody reads it, and there is no other place to say so


def say_asked(command: str, values: Iterable[tuple[str, str | None]]) -> None:
    """Say for -v what was asked for, by arguments and by the environment, and which controller is asked."""
    for key, text in values:
        if key != "v":
            say(f"{command}: option {'-' if len(key) == 1 else '--'}{key}{'' if text is None else f' = {text}'}")
    say(f"{command}: asking the controller at {client.socket_path()}")


def write(text: str) -> None:
    """Print text on standard output in one write.

    Raises:
        Quit: the output cannot be written; silently with exit code 141 when its reader has left (`squeue | head`),
            as a command that SIGPIPE ends would.
    """
    try:
        _write_all(1, text.encode("utf-8", "surrogateescape"))
    except OSError as problem:
        if problem.errno == errno.EPIPE:
            raise Quit(141) from None
        raise Quit(1, f"cannot write to standard output: {problem.strerror}") from None


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def getopt(
    command: str, argv: Sequence[str], shorts: str, longs: Mapping[str, tuple[str, int]], *, usage_exit: int = 1
) -> tuple[list[tuple[str, str | None]], list[str]]:
    """Read options by getopt_long's rules, those among the operands too.

    `muster.options.scan` does the same for the table of job options, where the first operand ends the options; query
    commands have lists of their own and permute.

    Args:
        command: the name that messages begin with.
        argv: the words after the command's name.
        shorts: getopt's string: `A:` takes a value, `j::` may have one glued on.
        longs: long name -> (key, NO_ARGUMENT, ARGUMENT or OPTIONAL); the key of a short letter is the letter.
        usage_exit: exit code for an option that is not known or lacks its value.

    Returns:
        (key, value or None) of each option in order, and the operands.

    Raises:
        Quit: with getopt's text and the hint to --help.
    """
    arguments = _short_arguments(shorts)
    found: list[tuple[str, str | None]] = []
    rest: list[str] = []
    at = 0

    def wrong(text: str) -> Quit:
        return Quit(usage_exit, f"{command}: {text}", f'Try "{command} --help" for more information')

    while at < len(argv):
        word = argv[at]
        at += 1
        if word == "--":
            rest += argv[at:]
            break
        if len(word) < 2 or word[0] != "-":
            rest.append(word)
        elif word[1] == "-":
            name, equals, text = word[2:].partition("=")
            exact, (key, takes) = _long(name, word, longs, wrong)
            if equals and takes == NO_ARGUMENT:
                raise wrong(f"option '--{exact}' doesn't allow an argument")
            value = text if equals else None
            if value is None and takes == ARGUMENT:
                if at == len(argv):
                    raise wrong(f"option '--{exact}' requires an argument")
                value = argv[at]
                at += 1
            found.append((key, value))
        else:
            place = 1
            while place < len(word):
                letter = word[place]
                place += 1
                known = arguments.get(letter)
                if known is None:
                    raise wrong(f"invalid option -- '{letter}'")
                value = None
                if known != NO_ARGUMENT:
                    value, place = word[place:] or None, len(word)
                    if value is None and known == ARGUMENT:
                        if at == len(argv):
                            raise wrong(f"option requires an argument -- '{letter}'")
                        value = argv[at]
                        at += 1
                found.append((letter, value))
    return found, rest


def _short_arguments(shorts: str) -> dict[str, int]:
    arguments: dict[str, int] = {}
    letter = ""
    for sign in shorts:
        if sign == ":":
            arguments[letter] += 1
        else:
            letter = sign
            arguments[letter] = NO_ARGUMENT
    return arguments


def _long(
    name: str, word: str, longs: Mapping[str, tuple[str, int]], wrong: Callable[[str], Quit]
) -> tuple[str, tuple[str, int]]:
    """Find a long option by its name or a beginning that all its candidates mean the same by."""
    exact = longs.get(name)
    if exact is not None:
        return name, exact
    candidates = [long for long in longs if long.startswith(name)]
    if not candidates:
        raise wrong(f"unrecognized option '{word}'")
    first = candidates[0]
    if any(longs[other] != longs[first] for other in candidates):
        possible = " ".join(f"'--{other}'" for other in candidates)
        raise wrong(f"option '{word}' is ambiguous; possibilities: {possible}")
    return first, longs[first]


def user_name(uid: int) -> str:
    """Give the name of a user, or the number where this host knows none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def uid_of(text: str) -> int | None:
    """Give the uid of a name or a number (a number need not belong to anybody); None for an unknown name."""
    import pwd

    try:
        return int(pwd.getpwnam(text).pw_uid)
    except (KeyError, ValueError):
        pass  # no name of this host; it may be a number
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 0xFFFFFFFF:
        return int(text)
    return None


def cluster_line(command: str, asked: str | None, name: str, with_header: bool) -> str:
    """Give the line that -M puts first: the cluster's name; nothing where -M was not given.

    Raises:
        Quit: a cluster that is not this one is asked for.
    """
    if not asked:
        return ""
    for word in asked.split(","):
        if word not in (name, "all"):
            raise Quit(
                1,
                f"{command}: error: No cluster '{word}' known by database.",
                f"{command}: this controller speaks for the cluster '{name}' only",
                f"{command}: fatal: Could not get cluster information",
            )
    return f"CLUSTER: {name}\n" if with_header else ""


def tell(key: str, texts: Mapping[str, Callable[[], str]]) -> bool:
    """Answer an option that only tells something: -V, or one that `texts` has a text for; False: it does more."""
    if key == "V":
        print_version()
    elif key in texts:
        write(texts[key]())
    else:
        return False
    return True


def print_version() -> int:
    """Print `slurm 26.05.0 (muster X.Y.Z)`; the exit code is 0."""
    from muster.version import version_line

    write(version_line() + "\n")
    return 0

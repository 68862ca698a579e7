"""Signals by name, number and description, as Linux and glibc have them; and the text of `--signal`.

A literal table in place of the signal module: that one brings enum with it, too dear for a command's start, and
the words must be glibc's whatever C library runs below.

Imported by short-lived commands: nothing but builtins here.
"""

from __future__ import annotations

from muster.errors import InvalidInput

_TABLE: tuple[tuple[str, str], ...] = (
    ("HUP", "Hangup"),
    ("INT", "Interrupt"),
    ("QUIT", "Quit"),
    ("ILL", "Illegal instruction"),
    ("TRAP", "Trace/breakpoint trap"),
    ("ABRT", "Aborted"),
    ("BUS", "Bus error"),
    ("FPE", "Floating point exception"),
    ("KILL", "Killed"),
    ("USR1", "User defined signal 1"),
    ("SEGV", "Segmentation fault"),
    ("USR2", "User defined signal 2"),
    ("PIPE", "Broken pipe"),
    ("ALRM", "Alarm clock"),
    ("TERM", "Terminated"),
    ("STKFLT", "Stack fault"),
    ("CHLD", "Child exited"),
    ("CONT", "Continued"),
    ("STOP", "Stopped (signal)"),
    ("TSTP", "Stopped"),
    ("TTIN", "Stopped (tty input)"),
    ("TTOU", "Stopped (tty output)"),
    ("URG", "Urgent I/O condition"),
    ("XCPU", "CPU time limit exceeded"),
    ("XFSZ", "File size limit exceeded"),
    ("VTALRM", "Virtual timer expired"),
    ("PROF", "Profiling timer expired"),
    ("WINCH", "Window changed"),
    ("IO", "I/O possible"),
    ("PWR", "Power failure"),
    ("SYS", "Bad system call"),
)
"""(name without SIG, glibc's strsignal text) of the signals 1 to 31 on x86 and ARM."""

_ALIASES = {"IOT": 6, "CLD": 17, "POLL": 29}

RTMIN, RTMAX = 34, 64
"""As glibc gives them: it keeps 32 and 33 for its threads."""

NUMBERS: dict[str, int] = {name: number for number, (name, _) in enumerate(_TABLE, start=1)}

OPTION_NAMES = (
    "HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "CHLD", "USR1", "USR2",
    "PIPE", "URG", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "XCPU",
)  # fmt: skip
"""The names that `--signal` knows."""

DEFAULT_WARNING_SECONDS = 60


def parse_signal(text: str) -> int:
    """Read a signal: a number 1-64, or a name with or without SIG, any case. Raises InvalidInput."""
    if text.isascii() and text.isdigit() and len(text) <= 3:
        number = int(text)
        if 1 <= number <= RTMAX:
            return number
    name = text.upper().removeprefix("SIG")
    found = NUMBERS.get(name) or _ALIASES.get(name)
    if not found:
        raise InvalidInput(f"Unknown signal: '{text[:60]}'", "write a name like USR1, or a number from 1 to 64")
    return found


def signal_name(number: int) -> str:
    """Give the name without SIG (`USR1`); `RTMIN+3` for real-time signals, the number for others."""
    if 1 <= number <= len(_TABLE):
        return _TABLE[number - 1][0]
    if RTMIN <= number <= RTMAX:
        return "RTMIN" if number == RTMIN else f"RTMIN+{number - RTMIN}"
    return str(number)


def describe_signal(number: int) -> str:
    """Give glibc's strsignal text: `Killed`, `Real-time signal 19` (for 53), `Unknown signal 125`."""
    if 1 <= number <= len(_TABLE):
        return _TABLE[number - 1][1]
    if RTMIN <= number <= RTMAX:
        return f"Real-time signal {number - RTMIN}"
    return f"Unknown signal {number}"


def parse_signal_option(text: str) -> tuple[bool, bool, int, int]:
    """Read `--signal=[[R][B]:]<sig>[@<seconds>]`: (shell only, with reservation, signal, seconds before the end).

    The seconds are 0 to 65535, 60 if left out. Raises InvalidInput.
    """
    letters, colon, rest = text.partition(":")
    if not colon:
        letters, rest = "", text
    letters = letters.upper()
    if (colon and not letters) or letters.strip("RB") or len(letters) != len(set(letters)):
        raise _bad_option(text, f"'{letters[:60]}' before the colon is not R, B or RB")
    signal_text, at, seconds_text = rest.partition("@")
    if not at:
        seconds_text = str(DEFAULT_WARNING_SECONDS)
    is_number = seconds_text.isascii() and seconds_text.isdigit() and len(seconds_text) <= 18
    if not is_number or int(seconds_text) > 65_535:
        raise _bad_option(text, f"'{seconds_text[:60]}' is not a number of seconds from 0 to 65535")
    try:
        number = parse_signal(signal_text)
    except InvalidInput:
        number = 0
    by_number = signal_text.isdigit()
    if not number or (not by_number and signal_name(number) not in OPTION_NAMES):
        raise _bad_option(text, f"'{signal_text[:60]}' is not a number or one of {' '.join(OPTION_NAMES)}")
    return "B" in letters, "R" in letters, number, int(seconds_text)


def _bad_option(text: str, hint: str) -> InvalidInput:
    return InvalidInput("Invalid --signal specification", f"{hint}, in '{text[:60]}'")

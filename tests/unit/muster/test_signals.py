"""Names, numbers and descriptions of signals, and the text of --signal."""

from __future__ import annotations

import signal

import pytest

from muster import signals
from muster.errors import InvalidInput


@pytest.mark.parametrize("number", sorted(signals.NUMBERS.values()))
def test_the_table_agrees_with_the_system(number: int) -> None:
    name = signal.Signals(number).name
    assert signals.signal_name(number) == name.removeprefix("SIG")
    assert signals.parse_signal(name) == number
    assert signals.describe_signal(number) == signal.strsignal(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [("SIGUSR1", 10), ("usr1", 10), ("10", 10), ("sigKill", 9), ("64", 64), ("SIGCLD", 17), ("IOT", 6)],
)
def test_a_signal_is_read_by_name_or_number(text: str, number: int) -> None:
    assert signals.parse_signal(text) == number


@pytest.mark.parametrize("text", ["", "0", "65", "-9", "NOPE", "SIG", "9x", "٩", "1" * 5000])
def test_an_unknown_signal_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Unknown signal"):
        signals.parse_signal(text)


def test_real_time_and_unknown_signals_have_glibcs_words() -> None:
    assert signals.describe_signal(53) == "Real-time signal 19"
    assert signals.describe_signal(34) == "Real-time signal 0"
    assert signals.describe_signal(125) == "Unknown signal 125"
    assert [signals.signal_name(number) for number in (34, 53, 125)] == ["RTMIN", "RTMIN+19", "125"]


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("B:USR1@600", (True, False, 10, 600)),
        ("USR1", (False, False, 10, 60)),
        ("10@0", (False, False, 10, 0)),
        ("R:sigterm@65535", (False, True, 15, 65_535)),
        ("RB:INT@30", (True, True, 2, 30)),
        ("BR:2", (True, True, 2, 60)),
        ("b:hup", (True, False, 1, 60)),
        ("11@5", (False, False, 11, 5)),
    ],
)
def test_the_signal_option_names_target_signal_and_time(text: str, option: tuple[bool, bool, int, int]) -> None:
    assert signals.parse_signal_option(text) == option


@pytest.mark.parametrize(
    "text",
    ["", ":USR1", "X:USR1", "BB:USR1", "USR1@", "USR1@x", "USR1@65536", "USR1@-1", "0", "65", "NOPE", "SEGV", "B:",
     "@5", "USR1@5@6", "B:R:USR1"],
)  # fmt: skip
def test_a_bad_signal_option_is_refused_in_slurms_words(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        signals.parse_signal_option(text)
    assert caught.value.sentence == "Invalid --signal specification"
    assert caught.value.hint

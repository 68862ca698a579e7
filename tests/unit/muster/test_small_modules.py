"""The smallest modules of the language that all programs share: frames, ids, states, TRES, log lines, the clock."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import frames, log, states
from muster.clock import SystemClock
from muster.ids import BATCH_STEP, EXTERN_STEP, INTERACTIVE_STEP, PENDING_STEP, step_word
from muster.states import JobState
from muster.tres import format_tres

some_frames = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 0xFFFFFFFF), st.binary(max_size=50)), max_size=8)


@given(some_frames, st.integers(1, 64))
def test_frames_come_out_of_any_pieces_as_they_went_in(sent: list[tuple[int, int, bytes]], piece: int) -> None:
    stream = b"".join(frames.pack(*frame) for frame in sent)
    reader = frames.Reader()
    heard = []
    for place in range(0, len(stream), piece):
        heard += list(reader.feed(stream[place : place + piece]))
    assert heard == sent


def test_a_length_over_the_bound_is_no_frame() -> None:
    reader = frames.Reader()
    assert list(reader.feed(frames.HEADER.pack(1, 0, frames.MAX_BYTES))) == []
    with pytest.raises(ValueError, match="over the bound"):
        list(frames.Reader().feed(frames.HEADER.pack(1, 0, frames.MAX_BYTES + 1)))
    with pytest.raises(AssertionError):
        frames.pack(1, 0, bytes(frames.MAX_BYTES + 1))


def test_steps_have_their_words() -> None:
    words = [step_word(step) for step in (0, 17, BATCH_STEP, EXTERN_STEP, INTERACTIVE_STEP, PENDING_STEP)]
    assert words == ["0", "17", "batch", "extern", "interactive", "TBD"]


def test_the_first_flag_wins_over_the_state() -> None:
    assert (states.state_word(JobState.FAILED, 0), states.state_compact(JobState.FAILED, 0)) == ("FAILED", "F")
    flags = states.COMPLETING | states.REQUEUED
    assert (states.state_word(JobState.PENDING, flags), states.state_compact(JobState.PENDING, flags)) == (
        "COMPLETING",
        "CG",
    )
    # A flag that no single word shows leaves the state.
    assert states.state_word(JobState.PENDING, states.LAUNCH_FAILED) == "PENDING"
    assert states.state_compact(JobState.PENDING, states.LAUNCH_FAILED) == "PD"


def test_every_state_has_a_compact_word_and_those_behind_suspended_are_ends() -> None:
    assert len(states.COMPACT) == len(JobState) == len(set(states.COMPACT))
    assert [state.name for state in JobState if not states.finished(state)] == ["PENDING", "RUNNING", "SUSPENDED"]


def test_tres_are_printed_in_order_without_what_is_zero() -> None:
    amounts = {"gres/gpu": 4, "mem": 32768, "node": 1, "billing": 8, "cpu": 8, "gres/gpu:a100": 4, "energy": 0}
    assert format_tres(amounts) == "cpu=8,mem=32G,node=1,billing=8,gres/gpu=4,gres/gpu:a100=4"
    assert format_tres(amounts, alphabetical=True) == "billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=32G,node=1"
    assert format_tres({}) == format_tres({"cpu": 0}) == ""


def test_the_clock_is_this_machines() -> None:
    before = int(time.time())
    assert before <= SystemClock().now() <= time.time()


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_log_line_has_time_daemon_level_and_text(tmp_path: Path, root: logging.Logger) -> None:
    logger = log.set_up("ctld", file=tmp_path / "log", level="INFO")
    logging.getLogger("ctld.nodes").warning("NodeName=%s %s", "n1", "is back")
    logger.debug("not shown")
    (line,) = (tmp_path / "log").read_text().splitlines()
    stamp, _, rest = line.partition("] ")
    assert rest == "ctld WARNING: NodeName=n1 is back"
    seconds, _, milliseconds = stamp.removeprefix("[").partition(".")
    assert abs(time.mktime(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) - time.time()) < 60
    assert (len(milliseconds), milliseconds.isdigit()) == (3, True)


def test_a_log_without_a_file_goes_to_standard_error(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    log.set_up("noded", level="DEBUG").debug("seen")
    assert stream.getvalue().endswith("noded DEBUG: seen\n")

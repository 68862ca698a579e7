"""Frames between controller and planner: what goes in comes out, and nothing else passes."""

from __future__ import annotations

from io import BytesIO

import pytest

from ctld.core.plan import LimitNumbers, Wait
from ctld.planner.frames import (
    ENCODE,
    HEADER,
    MOST_BYTES,
    NUMBER,
    PART,
    PRIORITIES,
    Kind,
    Part,
    Priorities,
    event_frame,
    frame,
    opened,
    read,
)
from ctld.sched.calendar import Planned
from muster.errors import Damaged
from muster.ids import UnixTime
from muster.states import Reason


def test_frames_are_read_one_after_the_other_to_the_end_of_the_stream() -> None:
    stream = BytesIO(frame(Kind.SECTION, b"jobs") + frame(Kind.COPIED) + event_frame(7, b"event"))
    assert read(stream) == (Kind.SECTION, b"jobs")
    assert read(stream) == (Kind.COPIED, b"")
    assert read(stream) == (Kind.EVENT, NUMBER.pack(7) + b"event")
    assert read(stream) is None


@pytest.mark.parametrize("left", [0, 3, 5, 8])
def test_a_frame_that_is_cut_off_is_the_end(left: int) -> None:
    assert read(BytesIO(frame(Kind.RECORD, b"12345")[:left])) is None


@pytest.mark.parametrize("head", [(0, 3), (MOST_BYTES + 1, 3), (5, 0), (5, 99)])
def test_what_is_no_frame_is_damage(head: tuple[int, int]) -> None:
    with pytest.raises(Damaged, match="between controller and planner"):
        opened(HEADER.pack(*head))


def test_planned_starts_keep_all_that_they_say() -> None:
    numbers = LimitNumbers("GrpTRES", "cpu", "account a", 100, 96, 8)
    planned = [
        (5, Planned(UnixTime(100), (0, 7), "main", None)),
        (6, Planned(UnixTime(0), (), "main", Wait(Reason.DEPENDENCY, "a text", limit=numbers))),
    ]
    assert PART.decode(ENCODE(Part(planned))).planned == planned


def test_priorities_keep_what_they_say() -> None:
    said = Priorities({5: 1 << 32, 6: 0}, anew=True)
    assert PRIORITIES.decode(ENCODE(said)) == said

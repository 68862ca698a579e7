"""The words for a job's state where they are more than its record's."""

from __future__ import annotations

from msgspec.structs import replace

from ctld.core.model import Kill
from ctld.services.views.jobs import shown_flags
from muster.ids import UnixTime
from muster.states import COMPLETING, JobState, state_compact
from tests.builders import NOON, a_job


def test_a_job_that_was_ordered_to_end_is_completing_until_it_has() -> None:
    running = replace(a_job(), state=JobState.RUNNING)
    assert shown_flags(running) == 0
    killed = replace(running, kill=Kill(state=JobState.CANCELLED, at=UnixTime(NOON)))
    assert shown_flags(killed) == COMPLETING
    assert state_compact(killed.state, shown_flags(killed)) == "CG"
    ended = replace(killed, state=JobState.CANCELLED)
    assert state_compact(ended.state, shown_flags(ended)) == "CA"

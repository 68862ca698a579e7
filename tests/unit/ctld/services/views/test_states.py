"""The words for a node's state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ctld.core.apply.indexes import put
from ctld.core.cluster import Settings
from ctld.core.model import Allocation, NodeShare
from ctld.services.views.nodes import (
    ALLOCATED,
    COMPLETING,
    DOWN,
    DRAIN,
    FAIL,
    FIELDS,
    FUTURE,
    IDLE,
    INVALID,
    MIXED,
    NO_RESPOND,
    PLANNED,
    UNKNOWN,
    NodeView,
    complete_word,
    state_words,
)
from muster.ids import UnixTime
from muster.states import COMPLETING as JOB_COMPLETING
from muster.states import JobState
from tests.builders import NOON, a_job, a_state
from tests.served import links_to


@pytest.mark.parametrize(
    ("base", "flags", "long", "compact"),
    [
        (IDLE, 0, "IDLE", "IDLE"),
        (IDLE, NO_RESPOND, "IDLE*", "IDLE*"),
        (IDLE, PLANNED, "PLANNED", "PLND"),
        (MIXED, PLANNED, "MIXED-", "MIX-"),
        (MIXED, NO_RESPOND | PLANNED, "MIXED*", "MIX*"),
        (ALLOCATED, COMPLETING, "ALLOCATED+", "ALLOC+"),
        (IDLE, COMPLETING, "COMPLETING", "COMP"),
        (IDLE, DRAIN, "DRAINED", "DRAIN"),
        (DOWN, DRAIN | NO_RESPOND, "DRAINED*", "DRAIN*"),
        (MIXED, DRAIN, "DRAINING", "DRNG"),
        (IDLE, DRAIN | COMPLETING, "DRAINING", "DRNG"),
        (ALLOCATED, FAIL, "FAILING", "FAILG"),
        (IDLE, FAIL, "FAIL", "FAIL"),
        (DOWN, NO_RESPOND, "DOWN*", "DOWN*"),
        (IDLE, INVALID | DRAIN, "INVAL", "INVAL"),
        (FUTURE, 0, "FUTURE", "FUTR"),
        (UNKNOWN, NO_RESPOND, "UNKNOWN*", "UNK*"),
    ],
)
def test_one_word_for_a_state_and_its_flags(base: int, flags: int, long: str, compact: str) -> None:
    assert state_words(base, flags) == (long, compact)


def test_the_complete_form_names_all_flags_in_slurms_order() -> None:
    assert complete_word(IDLE, DRAIN | NO_RESPOND) == "IDLE+DRAIN+NOT_RESPONDING"
    assert complete_word(MIXED, PLANNED | COMPLETING) == "MIXED+COMPLETING+PLANNED"


def test_what_is_shown_follows_the_jobs_on_a_node() -> None:
    state = a_state(5)
    share = NodeShare(node=1, cpus=64, cores=(0, 63))
    put(
        state,
        None,
        replace(
            a_job(1), state=int(JobState.RUNNING), started_at=NOON, alloc=Allocation(partition="main", shares=(share,))
        ),
    )
    ended = replace(
        a_job(2),
        state=int(JobState.COMPLETED),
        flags=JOB_COMPLETING,
        started_at=NOON,
        ended_at=UnixTime(NOON + 1),
        completing=(2,),
        alloc=Allocation(partition="main", shares=(replace(share, node=2, cpus=4, cores=(0, 3)),)),
    )
    put(state, None, ended)
    view = NodeView(state, links_to(state, without=(4,)), NOON, planned=(3,))
    words = [FIELDS["state_compact"](view, node) for node in state.nodes]
    assert words == ["IDLE", "ALLOC", "COMP", "PLND", "IDLE*"]
    assert FIELDS["state_complete"](view, state.nodes[2]) == "IDLE+COMPLETING"


def test_a_node_that_never_registered_is_unknown() -> None:
    state = a_state(1, settings=Settings(require_registration=True))
    view = NodeView(state, links_to(state, without=(0,)), NOON)
    assert FIELDS["state"](view, state.nodes[0]) == "UNKNOWN*"

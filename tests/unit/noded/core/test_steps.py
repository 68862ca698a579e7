"""The state machine of steps, without input or output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.ids import BATCH_STEP
from noded.core import steps as core
from noded.core.steps import (
    Acknowledge,
    Begin,
    Instruction,
    Phase,
    Remove,
    ReportEnded,
    ReportGone,
    ReportSignalled,
    Steps,
    Tell,
    failed_result,
)

BATCH = (1, 0, int(BATCH_STEP))
STEP = (1, 0, 0)
OTHER = (1, 0, 1)
RUN = (1, 0)
RESULT = failed_result("", at=7, statuses=[(0, 0)])
KILL = ("end", "", True, 0)


def running(*keys: core.Key) -> Steps:
    """Steps that were launched and have begun."""
    steps = Steps()
    for key in keys:
        assert steps.launch(key) == [Begin(key)]
        assert steps.begun(key) == [Acknowledge(key)]
    return steps


def test_a_step_goes_from_launch_to_forgotten() -> None:
    steps = running(STEP)
    assert steps.here() == [(STEP, True)]
    assert steps.ended(STEP, RESULT) == [ReportEnded(STEP, RESULT, job_gone=False)]
    assert steps.here() == [(STEP, False)]
    assert steps.forget(STEP) == [Remove(STEP)]
    assert steps.here() == []


def test_a_known_launch_is_only_acknowledged() -> None:
    steps = Steps()
    steps.launch(STEP)
    assert steps.launch(STEP) == [Acknowledge(STEP)]
    steps.begun(STEP)
    assert steps.launch(STEP) == [Acknowledge(STEP)]
    steps.ended(STEP, RESULT)
    assert steps.launch(STEP) == [Acknowledge(STEP)]
    steps.forget(STEP)
    assert steps.launch(STEP) == [Acknowledge(STEP)]


def test_the_batch_scripts_end_is_reported_when_nothing_of_the_run_is_left() -> None:
    steps = running(BATCH, STEP, OTHER)
    assert steps.ended(BATCH, RESULT) == [Tell(STEP, KILL), Tell(OTHER, KILL)]
    assert steps.connected() == []
    assert steps.ended(STEP, RESULT) == [ReportEnded(STEP, RESULT, job_gone=False)]
    assert steps.ended(OTHER, RESULT) == [
        ReportEnded(OTHER, RESULT, job_gone=False),
        ReportEnded(BATCH, RESULT, job_gone=True),
    ]
    assert steps.launch((1, 0, 2)) == [ReportGone(RUN)]


def test_ending_everything_tells_all_that_live_of_every_run() -> None:
    steps = running(BATCH, STEP, (2, 0, int(BATCH_STEP)))
    steps.ended(STEP, RESULT)
    order = ("end", "NODE FAILURE", True, 5)
    assert steps.end_all(why="NODE FAILURE", at=5) == [Tell(BATCH, order), Tell((2, 0, int(BATCH_STEP)), order)]
    assert steps.end_all(why="NODE FAILURE", at=9) == []


def test_ending_a_run_tells_all_and_answers_when_none_is_left() -> None:
    steps = running(BATCH, STEP)
    order = ("end", "TIME LIMIT", False, 9)
    assert steps.end_run(RUN, why="TIME LIMIT", now=False, at=9) == [Tell(BATCH, order), Tell(STEP, order)]
    assert steps.end_run(RUN, why="TIME LIMIT", now=False, at=9) == []
    assert steps.end_run(RUN, why="", now=True, at=0) == [Tell(BATCH, KILL), Tell(STEP, KILL)]
    steps.ended(STEP, RESULT)
    assert steps.ended(BATCH, RESULT) == [ReportEnded(BATCH, RESULT, job_gone=True), ReportGone(RUN)]
    assert steps.end_run(RUN, why="", now=True, at=0) == [ReportGone(RUN)]


def test_an_ended_run_begins_nothing_but_the_next_run_does() -> None:
    steps = Steps()
    assert steps.end_run(RUN, why="", now=True, at=0) == [ReportGone(RUN)]
    assert steps.launch(BATCH) == [ReportGone(RUN)]
    assert steps.launch((1, 1, BATCH[2])) == [Begin((1, 1, BATCH[2]))]


def test_orders_for_a_step_that_is_just_beginning_wait_for_it() -> None:
    steps = Steps()
    steps.launch(BATCH)
    assert steps.signal(5, RUN, 10, "batch", 0) == [ReportSignalled(5)]
    assert steps.end_run(RUN, why="SIGNAL", now=False, at=9) == []
    assert steps.begun(BATCH) == [
        Acknowledge(BATCH),
        Tell(BATCH, ("signal", 10, "shell")),
        Tell(BATCH, ("end", "SIGNAL", False, 9)),
    ]


def test_a_signal_is_sent_once_a_serial_and_acknowledged_each_time() -> None:
    steps = running(BATCH, STEP, OTHER)
    assert steps.signal(1, RUN, 10, "steps", 0) == [
        Tell(STEP, ("signal", 10, "all")), Tell(OTHER, ("signal", 10, "all")), ReportSignalled(1),
    ]  # fmt: skip
    assert steps.signal(1, RUN, 10, "steps", 0) == [ReportSignalled(1)]
    assert steps.signal(2, RUN, 10, "step", 1) == [Tell(OTHER, ("signal", 10, "all")), ReportSignalled(2)]
    assert steps.signal(3, RUN, 10, "batch", 0) == [Tell(BATCH, ("signal", 10, "shell")), ReportSignalled(3)]
    assert len(steps.signal(4, RUN, 10, "all", 0)) == 4
    assert steps.signal(5, (9, 0), 10, "all", 0) == [ReportSignalled(5)]


def test_all_steps_of_a_run_stand_still_or_go_on_once_a_serial() -> None:
    steps = running(BATCH, STEP, (2, 0, 0))
    still = [Tell(BATCH, ("suspend", 3)), Tell(STEP, ("suspend", 3)), ReportSignalled(1)]
    assert steps.suspend(1, RUN, go_on=False, seconds=3) == still
    assert steps.suspend(1, RUN, go_on=False, seconds=3) == [ReportSignalled(1)]
    steps.ended(STEP, RESULT)
    assert steps.suspend(2, RUN, go_on=True, seconds=0) == [Tell(BATCH, ("resume",)), ReportSignalled(2)]
    assert steps.suspend(3, (9, 0), go_on=False, seconds=3) == [ReportSignalled(3)]


def test_a_step_cancelled_before_its_launch_is_reported_and_never_begun() -> None:
    steps = Steps()
    (report,) = steps.end_step(STEP, why="", now=True, at=0)
    assert isinstance(report, ReportEnded)
    assert not report.result["tasks"]
    assert steps.end_step(STEP, why="", now=True, at=0) == []
    assert steps.launch(STEP) == [Acknowledge(STEP)]
    steps.forget(STEP)
    assert steps.end_step(STEP, why="", now=True, at=0) == []


def test_a_step_that_the_controller_does_not_know_is_removed_when_it_ends() -> None:
    steps = running(STEP)
    steps.end_run(RUN, why="", now=True, at=0)
    assert steps.forget(STEP) == []
    assert steps.here() == []
    assert steps.ended(STEP, RESULT) == [ReportGone(RUN), Remove(STEP)]


def test_what_a_former_agent_left_is_taken_over() -> None:
    steps = Steps()
    assert steps.recovered(BATCH, RESULT, began=True) == []
    assert steps.recovered(STEP, None, began=True) == []
    assert steps.recovered((2, 0, 0), None, began=False) == [Begin((2, 0, 0))]
    assert steps.all_recovered() == [Tell(STEP, KILL)]
    assert steps.here() == [(BATCH, False), (STEP, True), ((2, 0, 0), True)]
    assert steps.connected() == []
    steps.ended(STEP, RESULT)
    assert steps.connected() == [
        ReportEnded(STEP, RESULT, job_gone=False),
        ReportEnded(BATCH, RESULT, job_gone=True),
    ]


KEYS = [(job, run, step) for job in (1, 2) for run in (0, 1) for step in (0, 1, int(BATCH_STEP))]
ACTIONS = st.tuples(
    st.sampled_from(["launch", "begun", "ended", "end_run", "end_step", "forget", "connected"]),
    st.sampled_from(KEYS),
    st.booleans(),
)


@given(st.lists(ACTIONS, max_size=60))
def test_whatever_happens_a_key_begins_once_and_ends_reported(actions: list[tuple[str, core.Key, bool]]) -> None:
    steps = Steps()
    told: list[Instruction] = []
    for action, key, now in actions:
        phase = steps.phase(key)
        if action == "launch":
            told += steps.launch(key)
        elif action == "begun" and phase is Phase.ORDERED:
            told += steps.begun(key)
        elif action == "ended" and phase is Phase.RUNNING:
            told += steps.ended(key, RESULT)
        elif action == "end_run":
            told += steps.end_run(key[:2], why="", now=now, at=0)
        elif action == "end_step":
            told += steps.end_step(key, why="", now=now, at=0)
        elif action == "forget":
            told += steps.forget(key)
        elif action == "connected":
            told += steps.connected()
    for key in KEYS:
        if steps.phase(key) is Phase.ORDERED:
            told += steps.begun(key)
        if steps.phase(key) is Phase.RUNNING:
            told += steps.ended(key, RESULT)
    begun = [one.key for one in told if isinstance(one, Begin)]
    assert len(begun) == len(set(begun))
    removed = {one.key for one in told if isinstance(one, Remove)}
    reported = {one.key for one in told if isinstance(one, ReportEnded)}
    for key in begun:
        assert key in reported or key in removed
    # Nothing is told to a step before it has begun or after it was removed.
    alive: set[core.Key] = set()
    for one in told:
        if isinstance(one, Acknowledge):
            alive.add(one.key)
        elif isinstance(one, Tell):
            assert one.key in alive

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import structs

from ctld.core import ranges
from ctld.core.apply import apply
from ctld.core.apply.sections import dump, load
from ctld.core.commands import COMPUTED, Cancel, FinishBatch, Hold, Tick, UpdateJob
from ctld.core.events import ArrayTasksCancelled, JobStarted, JobSubmitted
from ctld.core.model import Allocation, Job, NodeShare, Record
from ctld.core.record import run_record
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import ADMIN, NOON, USER, a_job, a_spec, a_state
from tests.stage import Stage, a_result, a_share


def test_equal_parts_of_specs_are_kept_once() -> None:
    state = a_state()
    for job_id in (1, 2):
        spec = a_spec(ntasks=3, name="".join(["lo", "ng"]), rlimits={"nofile": 10})
        apply(state, JobSubmitted(at=NOON, job=a_job(job_id, spec=spec)))
    one, other = state.jobs[1].spec, state.jobs[2].spec
    assert one.request is other.request
    assert one.name is other.name
    assert one.rlimits is other.rlimits


def test_numbers_and_the_newest_scripts_and_environments_are_kept_once() -> None:
    state = a_state()
    for job_id in (1, 2):
        spec = a_spec(uid=int("54321"), time_limit_minutes=int("777"), environment=bytes(range(32)))
        at = UnixTime(int(str(NOON)))
        apply(state, JobSubmitted(at=at, job=a_job(job_id, spec=spec, submitted_at=at, limit_seconds=int("46620"))))
    one, other = state.jobs[1], state.jobs[2]
    assert one.limit_seconds is other.limit_seconds
    assert one.submitted_at is other.submitted_at is other.eligible_at
    assert one.spec.environment is other.spec.environment
    assert one.spec.uid is other.spec.uid
    assert one.spec.time_limit_minutes is other.spec.time_limit_minutes


def test_equal_parts_of_allocations_are_kept_once_also_after_a_restart() -> None:
    state = a_state(2)
    for job_id in (1, 2):
        job = a_job(job_id)
        share = NodeShare(job_id - 1, 4, ranges.from_ints(range(4)), int("2000"))
        apply(state, JobSubmitted(at=NOON, job=job))
        apply(state, JobStarted(NOON, JobId(job_id), Allocation("".join(["ma", "in"]), (share,)), 600))
        started = state.jobs[job_id].alloc
        assert started == Allocation("main", (share,))
    for shown in (state, load((name, map(copied, records)) for name, records in dump(state))):
        one, other = shown.jobs[1].alloc, shown.jobs[2].alloc
        assert one is not None
        assert other is not None
        assert one.partition is other.partition
        assert one.shares[0].cores is other.shares[0].cores
        assert one.shares[0].memory_mib is other.shares[0].memory_mib


def copied(record: Record) -> Record:
    """Give what a file gives back: equal, and with nothing in common."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record))


def test_what_is_kept_to_be_shared_has_a_bound() -> None:
    state = a_state()
    for job_id in range(1, 5000):
        apply(state, JobSubmitted(at=NOON, job=a_job(job_id, name=f"own{job_id}")))
    assert len(state.interned) < 30
    assert len(state.interned_own) < 4200


def test_an_array_counts_each_member() -> None:
    stage = Stage(a_state())
    array = stage.submit(array=(0, 9))
    assert (stage.state.members, stage.state.users) == (10, {1000: 10})
    stage.start(array, task=4)
    assert (stage.state.members, stage.state.users, stage.state.array_running) == (10, {1000: 10}, {array: 1})
    assert len(stage.state.queue) == 1


def test_the_last_members_cancelled_are_still_named_by_the_ended_record() -> None:
    state = a_state()
    job = a_job(1, array=(0, 4))
    apply(state, JobSubmitted(at=NOON, job=job))
    record = run_record(state, job, word="CANCELLED")
    apply(state, ArrayTasksCancelled(at=NOON, job_id=JobId(1), tasks=(0, 1), record=record))
    apply(state, ArrayTasksCancelled(at=NOON, job_id=JobId(1), tasks=(2, 4), record=record))
    ended = state.jobs[1]
    assert (ended.state, ended.array_pending, state.members) == (JobState.CANCELLED, (2, 4), 1)


def test_an_updated_throttle_reaches_the_whole_array() -> None:
    stage = Stage(a_state())
    array = stage.submit(array=(0, 3))
    stage.do(Hold(JobId(array), USER, (1, 1)))
    stage.do(UpdateJob(JobId(array), ADMIN, array_limit=2))
    assert {job.array_limit for job in stage.state.jobs.values()} == {2}


def test_a_purged_member_that_failed_is_remembered_while_others_wait() -> None:
    stage = Stage(a_state())
    array = stage.submit(array=(0, 1))
    stage.start(array, task=0)
    stage.do(FinishBatch(JobId(array + 1), 0, a_result(0, 3 << 8)))
    stage.at += 300
    stage.do(Tick())
    assert (list(stage.state.jobs), stage.state.array_status) == ([array], {array: 3 << 8})
    stage.start(array, task=1)
    stage.do(FinishBatch(JobId(array), 0, a_result(0, 0)))
    stage.at += 300
    stage.do(Tick())
    assert (stage.state.jobs, stage.state.array_status) == ({}, {})


def test_the_time_a_node_was_last_used_is_kept() -> None:
    stage = Stage(a_state())
    job_id = stage.running(a_share(2))
    stage.at += 50
    stage.do(FinishBatch(JobId(job_id), 0, a_result(2, 0)))
    assert [node.last_busy_at for node in stage.state.nodes] == [0, 0, NOON + 50, 0]


def test_a_checkpoint_shares_the_spec_of_an_arrays_members_again() -> None:
    stage = Stage(a_state())
    array = stage.submit(array=(0, 2))
    stage.start(array, task=0)
    # As they come from disk: every record with a spec of its own.
    sections: list[tuple[str, Iterable[object]]] = []
    for name, records in dump(stage.state):
        copies = [
            structs.replace(record, spec=structs.replace(record.spec)) if isinstance(record, Job) else record
            for record in records
        ]
        sections.append((name, copies))
    loaded = load(sections)
    assert loaded.jobs[array].spec is loaded.jobs[array + 1].spec
    assert loaded.next_job_id == stage.state.next_job_id


def test_whose_priority_is_to_be_computed_is_noted() -> None:
    stage = Stage(a_state())
    queue = stage.state.queue
    queue.unrated = {}
    first, second = stage.submit(), stage.submit(array=(0, 3))
    assert list(queue.unrated) == [first, second]
    queue.unrated.clear()
    queue.reprioritise({first: 7, second: 8})
    stage.do(UpdateJob(JobId(first), USER, name="other"))
    stage.do(UpdateJob(JobId(first), USER, nice=5))
    stage.start(second, task=0)
    assert list(queue.unrated) == [first]
    member = next(iter(stage.state.running))
    assert queue.priority(stage.job(member)) == 8
    stage.do(UpdateJob(JobId(first), ADMIN, priority=3))
    assert queue.priority(stage.job(first)) == 3
    stage.do(UpdateJob(JobId(first), ADMIN, priority=COMPUTED))
    assert queue.priority(stage.job(first)) == 7
    stage.do(Hold(JobId(first), USER))
    assert queue.priority(stage.job(first)) == 0
    stage.do(Cancel(JobId(first), USER))
    assert first not in queue.priorities

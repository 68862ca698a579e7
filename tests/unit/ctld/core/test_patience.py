"""Jobs that waited longer than they may stand in front of their tier; the order is otherwise what it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.core.accounts import Accounts, Qos
from ctld.core.apply.indexes import put, rebuild, recount
from ctld.core.cluster import Settings
from ctld.core.invariants import check
from ctld.core.model import Job
from ctld.core.patience import Patience
from ctld.core.queue import Queue
from ctld.core.state import State
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_state

HOUR = 3600


def order(queue: Queue) -> list[int]:
    """Give all jobs in the order in which a pass sees them."""
    keys = sorted(key for members in queue.classes.values() for key in members.order)
    return [key & 0xFFFFFFFF for key in keys]


def a_queue(*jobs: Job, longest: int = -1, by_qos: dict[str, int] | None = None) -> Queue:
    queue = Queue()
    queue.patience = Patience(longest, by_qos)
    for job in jobs:
        queue.add(job)
    return queue


def test_a_job_moves_to_the_front_when_its_wait_is_over_and_not_before() -> None:
    queue = a_queue(a_job(1, priority=2**32 - 1, ntasks=2), a_job(2, priority=1), a_job(3, priority=5), longest=HOUR)
    queue.add(a_job(4, priority=3, submitted_at=NOON - 60))
    version = queue.version
    assert (queue.hasten(NOON + HOUR - 61), queue.version) == (0, version)
    assert order(queue) == [1, 3, 4, 2]
    assert queue.hasten(NOON + HOUR - 60) == 1
    assert queue.version > version
    assert order(queue) == [4, 1, 3, 2]
    assert queue.hasten(NOON + HOUR - 60) == 0


def test_the_bound_of_a_qos_counts_before_the_clusters() -> None:
    jobs = [a_job(number, priority=10 - number, qos=qos) for number, qos in enumerate(("", "calm", "hasty"), 1)]
    queue = a_queue(*jobs, longest=HOUR, by_qos={"calm": 9 * HOUR, "hasty": 60})
    queue.hasten(NOON + 60)
    assert order(queue) == [3, 1, 2]
    queue.hasten(NOON + HOUR)
    assert queue.patience.late == {3: NOON + 60, 1: NOON + HOUR}
    assert a_queue(*jobs).hasten(NOON + 99 * HOUR) == 0


def test_a_new_priority_leaves_a_late_job_where_it_is_until_it_leaves_the_queue() -> None:
    late, other = a_job(1, priority=1), a_job(2, priority=9)
    queue = a_queue(late, other, longest=HOUR)
    queue.hasten(NOON + HOUR)
    queue.add(replace(other, eligible_at=UnixTime(NOON + HOUR)))
    assert queue.reprioritise({1: 3, 2: 2**32 - 1}) == 1
    assert (order(queue), queue.priority(late)) == ([1, 2], 3)
    queue.discard(1)
    queue.add(replace(late, eligible_at=UnixTime(NOON + HOUR)))
    queue.hasten(NOON + HOUR)
    assert order(queue) == [2, 1]


def test_a_release_begins_the_wait_anew_and_an_age_that_does_not_count_is_no_wait() -> None:
    jobs = [a_job(1), a_job(2, accrues_at=NOON + 60), a_job(3, accrues_at=UnixTime(-1))]
    queue = a_queue(*jobs, longest=HOUR)
    queue.hasten(NOON + HOUR + 59)
    assert set(queue.patience.late) == {1}
    queue.hasten(NOON + 99 * HOUR)
    assert set(queue.patience.late) == {1, 2}


def test_a_job_that_comes_and_goes_leaves_nothing_behind() -> None:
    queue = a_queue(longest=HOUR)
    for number in range(5000):
        queue.add(a_job(7, submitted_at=NOON + number))
    assert len(queue.patience._heap) < 1100
    queue.discard(7)
    assert queue.hasten(NOON + 99 * HOUR) == 0
    assert not queue.patience.late


def a_waiting_state(longest: int) -> State:
    state = a_state(settings=Settings(require_registration=False, max_queue_wait_seconds=longest))
    for number in (1, 2, 3):
        put(state, None, a_job(number, priority=number, submitted_at=NOON + number))
    return state


def test_who_is_late_outlives_a_new_configuration_and_a_new_feed() -> None:
    state = a_waiting_state(HOUR)
    state.queue.hasten(NOON + HOUR + 2)
    assert order(state.queue) == [1, 2, 3]
    check(state)
    rebuild(state)
    assert order(state.queue) == [1, 2, 3]
    state.accounts = Accounts((), (Qos(1, "normal", max_queue_wait_seconds=60),))
    recount(state)
    state.queue.hasten(NOON + HOUR + 2)
    assert (order(state.queue), state.queue.patience.late[3]) == ([1, 2, 3], NOON + 3 + 60)
    state.accounts = Accounts()
    state.settings = replace(state.settings, max_queue_wait_seconds=-1)
    rebuild(state)
    assert (order(state.queue), state.queue.patience.late) == ([3, 2, 1], {})


waiting = st.builds(
    lambda number, priority, since, qos, nodes, by_hand: a_job(
        number, priority=priority, submitted_at=NOON + since, qos=qos, nodes_min=nodes, priority_set=by_hand
    ),
    st.integers(1, 40),
    st.integers(1, 2**32 - 1) | st.integers(1, 3),
    st.integers(0, 500),
    st.sampled_from(["", "a", "b"]),
    st.integers(1, 3),
    st.booleans(),
)


@given(
    st.lists(waiting, max_size=30),
    st.integers(-1, 300),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 300)),
    st.lists(st.integers(0, 900), max_size=3).map(sorted),
)
def test_the_order_is_late_jobs_by_their_lateness_and_then_what_it_was(
    jobs: list[Job], longest: int, by_qos: dict[str, int], times: list[int]
) -> None:
    plain, patient = a_queue(*jobs), a_queue(*jobs, longest=longest, by_qos=by_qos)
    assert order(patient) == order(plain)
    for time in times:
        patient.hasten(NOON + time)
    known = {job.id: job for job in jobs}
    now = NOON + max(times, default=-1)
    due = {
        job.id: job.eligible_at + bound for job in known.values() if (bound := by_qos.get(job.spec.qos, longest)) >= 0
    }
    late = sorted((due[job_id], job_id) for job_id in due if due[job_id] <= now)
    front = [job_id for _, job_id in late]
    assert order(patient) == front + [job_id for job_id in order(plain) if job_id not in front]

"""The single writer: order, durability, refusals, and what a bug costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ctld.core import apply as applying
from ctld.core.commands import Cancel, Submit
from ctld.core.events import Event, JobSubmitted, decode
from ctld.core.state import State
from ctld.store.store import Store
from muster.errors import MusterError, Unavailable
from muster.ids import JobId
from tests.builders import NOON, USER, a_spec, a_state
from tests.held import HeldJournal

Seen = list[tuple[int, Event]]


def a_store(*, holding: bool = False) -> tuple[Store, HeldJournal, Seen]:
    journal = HeldJournal()
    journal.holding = holding
    store = Store(a_state(), journal)
    seen: Seen = []
    store.subscribe(seen.extend)
    return store, journal, seen


def submission() -> Submit:
    return Submit(a_spec(), USER)


async def test_an_event_is_applied_at_once_and_delivered_when_durable() -> None:
    store, journal, seen = a_store(holding=True)
    committing = asyncio.create_task(store.commit(submission(), at=NOON))
    await asyncio.sleep(0)
    assert list(store.state.jobs) == [1]
    assert (seen, committing.done()) == ([], False)
    journal.release()
    events = await committing
    assert seen == [(1, events[0])]
    assert isinstance(events[0], JobSubmitted)


async def test_what_is_not_durable_yet_is_delivered_later_and_in_order() -> None:
    store, journal, seen = a_store(holding=True)
    for _ in range(5):
        store.post(submission(), at=NOON)
    journal.release(2)
    assert [number for number, _ in seen] == [1, 2]
    journal.release(2)
    assert len(seen) == 2
    journal.release()
    assert [number for number, _ in seen] == [1, 2, 3, 4, 5]
    assert [event for _, event in seen] == [decode(payload) for payload in journal.events]


async def test_a_refused_command_changes_nothing() -> None:
    store, journal, seen = a_store()
    changes: list[None] = []
    store.on_change(lambda: changes.append(None))
    with pytest.raises(MusterError):
        await store.commit(Cancel(JobId(99), USER), at=NOON)
    assert (journal.last_queued, seen, changes, dict(store.state.jobs)) == (0, [], [], {})


async def test_a_caller_who_is_cancelled_takes_nothing_back() -> None:
    store, journal, seen = a_store(holding=True)
    committing = asyncio.create_task(store.commit(submission(), at=NOON))
    await asyncio.sleep(0)
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    journal.release()
    assert [number for number, _ in seen] == [1]


async def test_settled_waits_for_what_the_state_shows_now_and_for_no_more() -> None:
    store, journal, _ = a_store(holding=True)
    await store.settled()
    store.post(submission(), at=NOON)
    settling = asyncio.create_task(store.settled())
    await asyncio.sleep(0)
    store.post(submission(), at=NOON)
    assert not settling.done()
    journal.release(1)
    await settling


async def test_watchers_hear_of_a_change_before_it_is_durable() -> None:
    store, _, _ = a_store(holding=True)
    changes: list[int] = []
    store.on_change(lambda: changes.append(len(store.state.jobs)))
    store.post(submission(), at=NOON)
    assert changes == [1]


async def test_a_subscriber_with_a_bug_ends_the_daemon_and_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    store, journal, seen = a_store()
    failures: list[Exception] = []
    store.on_failure(failures.append)
    later: Seen = []

    def wrong(batch: Sequence[tuple[int, Event]]) -> None:
        raise KeyError(batch[0][0])

    store.subscribe(wrong)
    store.subscribe(later.extend)
    await store.commit(submission(), at=NOON)
    assert [number for number, _ in seen] == [number for number, _ in later] == [1]
    assert [str(failure) for failure in failures] == ["1"]
    assert "the events 1 to 1" in caplog.text
    with pytest.raises(Unavailable):
        store.post(submission(), at=NOON)
    assert journal.last_queued == 1


async def test_an_event_that_cannot_be_applied_stops_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    store, journal, seen = a_store()
    failures: list[Exception] = []
    store.on_failure(failures.append)

    def broken(state: State, event: Event) -> None:
        state.jobs.clear()
        raise AssertionError("half way")

    assert applying.apply is not broken
    monkeypatch.setattr("ctld.store.store.apply", broken)
    with pytest.raises(AssertionError, match="half way"):
        await store.commit(submission(), at=NOON)
    monkeypatch.undo()
    with pytest.raises(Unavailable, match="bug"):
        await store.commit(submission(), at=NOON)
    assert len(failures) == 1
    assert (journal.last_queued, seen) == (0, [])

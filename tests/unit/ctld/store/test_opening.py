"""From a directory to a store and back: what was acknowledged is there, and damage is named."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from ctld.core.apply.sections import dump
from ctld.core.commands import Cancel, Hold, Submit
from ctld.core.events import JobFinished, encode
from ctld.core.state import State
from ctld.store import checkpoint
from ctld.store.journal import Journal
from ctld.store.opening import Opened, open_directory
from muster.errors import Damaged, Refused, Unavailable
from muster.ids import JobId, UnixTime
from muster.records import RunRecord
from tests.builders import NOON, USER, a_node_spec, a_partition, a_spec


def pictured(state: State) -> dict[str, list[bytes]]:
    return {name: [msgspec.msgpack.encode(record) for record in records] for name, records in dump(state)}


async def configured(opened: Opened) -> None:
    from ctld.core.cluster import Settings
    from ctld.core.commands import ApplyConfig

    command = ApplyConfig(Settings(), (a_node_spec("n1"),), (a_partition(nodes=1),))
    await opened.store.commit(command, at=NOON)


async def submitted(opened: Opened, script: bytes) -> int:
    digest, record = opened.blobs.put(script)
    blobs = [record] if record is not None else []
    events = await opened.store.commit(Submit(a_spec(script=digest), USER), at=NOON, blobs=blobs)
    return int(events[0].job.id)  # type: ignore[union-attr]


async def test_a_directory_opened_again_holds_what_was_acknowledged(tmp_path: Path) -> None:
    opened = open_directory(tmp_path)
    await configured(opened)
    first, second = await submitted(opened, b"#!one\n"), await submitted(opened, b"#!two\n")
    await opened.store.commit(Hold(JobId(first), USER), at=NOON)
    before = pictured(opened.store.state)
    await opened.close()
    again = open_directory(tmp_path)
    assert pictured(again.store.state) == before
    assert again.replayed_bytes > 0
    assert again.blobs.get(again.store.state.jobs[JobId(second)].spec.script) == b"#!two\n"
    await again.close()


async def test_a_checkpoint_and_what_lies_behind_it_are_the_same_state(tmp_path: Path) -> None:
    opened = open_directory(tmp_path)
    await configured(opened)
    job = await submitted(opened, b"#!one\n")
    await opened.checkpoint(lambda: opened.journal.last_durable + 1)
    await submitted(opened, b"#!two\n")
    await opened.store.commit(Cancel(JobId(job), USER), at=NOON)
    before = pictured(opened.store.state)
    await opened.close()
    again = open_directory(tmp_path)
    assert pictured(again.store.state) == before
    assert again.blobs.get(again.store.state.jobs[JobId(job)].spec.script) == b"#!one\n"
    # A checkpoint of what was only just loaded, with nothing behind it.
    await again.checkpoint(lambda: 1)
    await again.close()
    third = open_directory(tmp_path)
    assert (pictured(third.store.state), third.replayed_bytes) == (before, 0)
    await third.close()


async def test_a_checkpoint_shows_one_moment_though_others_go_on(tmp_path: Path) -> None:
    opened = open_directory(tmp_path)
    await configured(opened)
    for number in range(20):
        await submitted(opened, b"#!%d\n" % number)
    writing = asyncio.create_task(opened.checkpoint(lambda: opened.journal.last_durable + 1))
    await asyncio.sleep(0)
    number = opened.journal.last_queued
    while not writing.done():
        await submitted(opened, b"#!%d meanwhile\n" % opened.journal.last_queued)
    await writing
    assert opened.journal.last_queued > number
    before = pictured(opened.store.state)
    await opened.close()
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found.number == number
    again = open_directory(tmp_path)
    assert pictured(again.store.state) == before
    for job in again.store.state.jobs.values():
        assert again.blobs.get(job.spec.script).startswith(b"#!")
    await again.close()


async def test_a_checkpoint_that_is_broken_off_can_be_begun_again(tmp_path: Path) -> None:
    opened = open_directory(tmp_path)
    await configured(opened)
    await submitted(opened, b"#!one\n")
    writing = asyncio.create_task(opened.checkpoint(lambda: 1))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await opened.checkpoint(lambda: 1)
    await opened.close()


async def test_a_directory_serves_one_controller(tmp_path: Path) -> None:
    opened = open_directory(tmp_path)
    with pytest.raises(Refused):
        open_directory(tmp_path)
    await opened.close()
    await open_directory(tmp_path).close()


async def journaled(directory: Path, *payloads: bytes) -> None:
    recovery = Journal.recover(directory)
    list(recovery)
    journal = Journal.start(recovery)
    await journal.append(payloads)
    await journal.close()


async def test_an_event_of_another_release_names_itself(tmp_path: Path) -> None:
    await journaled(tmp_path, msgspec.msgpack.encode({"type": "invented", "at": 5}))
    with pytest.raises(Damaged, match=r"event 1 in .* is none that this release knows"):
        open_directory(tmp_path)
    # The directory is free again for the release that knows it.
    Journal.recover(tmp_path).close()


async def test_an_event_that_does_not_fit_names_itself(tmp_path: Path) -> None:
    record = RunRecord(7, 0, "x", 1, 1, "u", "g", "", "main", "", "COMPLETED")
    stray = JobFinished(at=UnixTime(NOON), job_id=JobId(7), state=3, record=record)
    await journaled(tmp_path, encode(stray))
    with pytest.raises(Damaged, match=r"event 1 in .* \(JobFinished\) does not fit the state before it"):
        open_directory(tmp_path)
    Journal.recover(tmp_path).close()


async def test_a_record_of_another_release_names_its_section(tmp_path: Path) -> None:
    opened = open_directory(tmp_path)
    await configured(opened)
    await opened.close()
    await checkpoint.write_sliced(
        tmp_path, opened.journal.last_durable, [("jobs", [b"\xc0"])], log_id=opened.journal.log_id
    )
    with pytest.raises(Damaged, match=r"record 0 of section jobs in the checkpoint of event \d+ is none"):
        open_directory(tmp_path)
    Journal.recover(tmp_path).close()


async def test_a_section_of_another_release_is_refused(tmp_path: Path) -> None:
    opened = open_directory(tmp_path)
    await configured(opened)
    await opened.close()
    await checkpoint.write_sliced(
        tmp_path, opened.journal.last_durable, [("quotas", [b"\xc0"])], log_id=opened.journal.log_id
    )
    with pytest.raises(Damaged, match="'quotas'"):
        open_directory(tmp_path)


async def test_a_checkpoint_of_a_failed_journal_says_so_and_is_not_begun(tmp_path: Path) -> None:
    class Full:
        def write(self, fd: int, data: bytes, offset: int) -> None:
            raise OSError(28, "No space left on device")

        def sync(self, fd: int) -> None:
            os.fdatasync(fd)

        def free_bytes(self, directory: Path) -> int:
            return 1 << 40

    opened = open_directory(tmp_path)
    await configured(opened)
    opened.journal._disk = Full()
    with pytest.raises(Unavailable):
        await submitted(opened, b"#!one\n")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await opened.checkpoint(lambda: 1)
    await opened.close()

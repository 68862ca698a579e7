"""From the state directory to a live store, and back to a checkpoint."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ctld.core.apply import apply
from ctld.core.apply.sections import SECTION_TYPES, dump, load
from ctld.core.events import decode
from ctld.core.model import Job, Record, Step
from ctld.core.state import State
from ctld.store import checkpoint
from ctld.store.blobs import BlobStore
from ctld.store.journal import Journal
from ctld.store.recovery import Recovery
from ctld.store.store import Store
from muster.errors import Damaged

log = logging.getLogger("ctld.store")

SLICE_JOBS = 5_000
"""Jobs that a checkpoint looks at in one turn of the loop: about 1 ms."""

_ENCODE = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class Opened:
    """What a daemon works with."""

    store: Store
    journal: Journal
    blobs: BlobStore
    directory: Path
    replayed_bytes: int = 0
    """Size of the events that lay behind the checkpoint when this was opened."""

    async def checkpoint(self, held_from: Callable[[], int]) -> None:
        """Write a checkpoint of now, off the loop, and let go what it makes superfluous.

        Args:
            held_from: gives the first number that a follower still needs from the journal.
        """
        journal, blobs, state = self.journal, self.blobs, self.store.state
        began = time.monotonic()
        # No await among these: number, records and blobs must be of one moment.
        number = journal.last_queued
        sections = dump(state)
        jobs = list(state.jobs.values())
        steps = [step for of_job in state.steps.values() for step in of_job.values()]
        blobs.begin_compaction()
        try:
            live = await _live_blobs(jobs, steps)
            await journal.wait_durable(number)
        except BaseException:
            blobs.cancel_compaction()
            raise
        await blobs.compact(live, number=number)
        upto = await checkpoint.write_sliced(self.directory, number, _encoded(sections), log_id=journal.log_id)
        await journal.prune(min(upto, held_from() - 1))
        await blobs.prune(upto)
        log.info("checkpoint of event %d written in %.2f s", number, time.monotonic() - began)

    async def close(self) -> None:
        """Bring the journal to disk and let go of the directory."""
        await self.journal.close()
        self.blobs.close()


def open_directory(directory: Path) -> Opened:
    """Load the newest good checkpoint, replay the journal behind it, and give the live store.

    Raises:
        Damaged: a file is damaged; names it and the record.
        Refused: another controller has the directory.
    """
    began = time.monotonic()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = checkpoint.load(directory)
    after, log_id = (found.number, found.log_id) if found is not None else (0, "")
    blobs = BlobStore(directory)
    recovery = Journal.recover(directory, after=after, log_id=log_id, on_blob=blobs.placed)
    try:
        state = load(_decoded(found)) if found is not None else State()
        replayed, replayed_bytes = _replay(state, recovery)
    except BaseException:
        recovery.close()
        blobs.close()
        raise
    journal = Journal.start(recovery)
    journal.on_durable(blobs.durable)
    log.info(
        "state of event %d loaded in %.2f s: %d jobs, %d events replayed",
        journal.last_durable,
        time.monotonic() - began,
        len(state.jobs),
        replayed,
    )
    return Opened(Store(state, journal), journal, blobs, directory, replayed_bytes)


async def _live_blobs(jobs: Sequence[Job], steps: Sequence[Step]) -> set[bytes]:
    """Give the hashes that these name; a hundred thousand jobs at once would hold the loop for 30 ms."""
    live: set[bytes] = set()
    for begin in range(0, len(jobs), SLICE_JOBS):
        for job in jobs[begin : begin + SLICE_JOBS]:
            live.add(job.spec.script)
            live.add(job.spec.environment)
        await asyncio.sleep(0)
    live.update(step.environment for step in steps)
    live.discard(b"")
    return live


def _replay(state: State, recovery: Recovery) -> tuple[int, int]:
    """Apply what lies behind the checkpoint; give how many events that were, and of how many bytes."""
    count = nbytes = 0
    for number, payload in recovery:
        try:
            event = decode(payload)
        except msgspec.DecodeError as error:
            raise Damaged(
                f"event {number} in {recovery.directory} is none that this release knows: {error}",
                "start the release that wrote it, or a newer one",
            ) from error
        try:
            apply(state, event)
        except Exception as error:
            raise Damaged(
                f"event {number} in {recovery.directory} ({type(event).__name__}) does not fit the state before it: "
                f"{type(error).__name__}: {error}",
                "a bug, or a checkpoint and a journal that do not belong together: keep both, and report it",
            ) from error
        count += 1
        nbytes += len(payload)
    return count, nbytes


def _encoded(sections: list[tuple[str, Iterator[Record]]]) -> Iterable[tuple[str, Iterable[bytes]]]:
    return [(name, map(_ENCODE, records)) for name, records in sections]


def _decoded(found: checkpoint.Checkpoint) -> Iterator[tuple[str, Iterable[Record]]]:
    for name, records in found.sections():
        kind = SECTION_TYPES.get(name)
        if kind is None:
            yield name, ()  # `load` refuses it by name
            continue
        yield name, _records(found, name, msgspec.msgpack.Decoder(kind), records)


def _records(
    found: checkpoint.Checkpoint, name: str, decoder: msgspec.msgpack.Decoder[Record], records: Iterable[bytes]
) -> Iterator[Record]:
    for place, record in enumerate(records):
        try:
            yield decoder.decode(record)
        except msgspec.DecodeError as error:
            raise Damaged(
                f"record {place} of section {name} in the checkpoint of event {found.number} is none that this "
                f"release knows: {error}",
                "start the release that wrote it, or a newer one",
            ) from error

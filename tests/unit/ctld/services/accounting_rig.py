"""A controller's accounting side without the rest: a store into which events are put, and its gRPC server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import msgspec

from ctld.core.events import Event, JobFinished, StepFinished, encode
from ctld.core.state import State
from ctld.services.followers import FollowersService
from ctld.store.memory import MemoryJournal
from ctld.store.ports import JournalPort
from ctld.store.store import Store
from muster import rpc
from muster.auth import Identity, create_authority, issue
from muster.ids import JobId, StepId, UnixTime
from muster.states import JobState
from muster.v1 import accounting_pb2_grpc
from tests.unit.dbd.outcomes import NOON, a_run, a_step


class EventStore(Store):
    """A store that takes events as they are."""

    def __init__(self, journal: JournalPort | None = None, *, cluster: str = "here") -> None:
        state = State()
        super().__init__(state, journal or MemoryJournal())
        state.settings = msgspec.structs.replace(state.settings, cluster=cluster)

    def add(self, *events: Event) -> None:
        """Journal events; nothing is applied."""
        first = self.journal.last_queued + 1
        self.journal.append([encode(event) for event in events])
        self._undelivered.extend(enumerate(events, first))


def finished(job_id: int, *, steps: int = 1, **fields: object) -> JobFinished:
    """The end of a job with its batch step and more."""
    record = a_run(job_id, **fields)
    ends = (a_step(job_id), *(a_step(job_id, step) for step in range(steps - 1)))
    return JobFinished(
        at=UnixTime(record.ended_at), job_id=JobId(job_id), state=int(JobState.COMPLETED), record=record, steps=ends
    )


def step_finished(job_id: int, step_id: int) -> StepFinished:
    """The end of a step of a job that goes on."""
    return StepFinished(
        at=UnixTime(NOON), job_id=JobId(job_id), step_id=StepId(step_id), record=a_step(job_id, step_id)
    )


def certificates(folder: Path) -> Path:
    """An authority and the certificates of ctld, dbd and a node."""
    create_authority(folder)
    issue(folder, "controller", "ctld")
    issue(folder, "accounting", "dbd")
    issue(folder, "compute", "n1")
    return folder


def identity(folder: Path, role: str, name: str) -> Identity:
    """Files of one of them."""
    return issue(folder, role, name)


@asynccontextmanager
async def serving(folder: Path, followers: FollowersService, port: int = 0) -> AsyncIterator[int]:
    """Serve Followers as ctld does; gives the port."""
    server = rpc.server()
    accounting_pb2_grpc.add_FollowersServicer_to_server(followers, server)
    port = rpc.listen(server, identity(folder, "controller", "ctld"), f"127.0.0.1:{port}")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0.2)


def dialling(folder: Path, port: int) -> Callable[[], grpc.aio.Channel]:
    """What dbd's follower dials with."""
    return lambda: rpc.dial(identity(folder, "accounting", "dbd"), f"127.0.0.1:{port}", "controller")

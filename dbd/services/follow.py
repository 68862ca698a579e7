"""Follows a controller for ever: outcomes in, rows committed, number acknowledged.

Nothing is acknowledged before it is committed, and whatever goes wrong on the way (controller, network, database)
ends in the same place: dial again, say where the tables stand, go on from there.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc.aio
import msgspec
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from dbd.ingest import MAX_BATCH, Ingest, Taken
from muster import errors, rpc
from muster.records import RunRecord, StepRecord
from muster.v1 import accounting_pb2, accounting_pb2_grpc

log = logging.getLogger("dbd.follow")

MAX_QUEUED_MESSAGES = 8
"""Messages read ahead of the database; behind them HTTP/2 holds the controller back."""
FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 10.0
SAY_AGAIN_SECONDS = 60.0
"""How often a trouble that lasts is logged."""
ANSWER_SECONDS = 30.0
"""Deadline for the controller's first words, and for an acknowledgement to leave."""

Found = TypeVar("Found")

_RUN: msgspec.msgpack.Decoder[RunRecord] = msgspec.msgpack.Decoder(RunRecord)
_STEP: msgspec.msgpack.Decoder[StepRecord] = msgspec.msgpack.Decoder(StepRecord)


@dataclass(frozen=True, slots=True)
class _Source:
    """What the controller says of itself before the first outcome."""

    cluster: str
    log_id: str
    first: int
    last: int


class Follower:
    """One controller, one writer.

    Args:
        ingest: the tables.
        dial: gives a new channel to the controller.
        thread: the one thread in which the tables are written.
    """

    def __init__(self, ingest: Ingest, dial: Callable[[], grpc.aio.Channel], thread: ThreadPoolExecutor) -> None:
        self._ingest = ingest
        self._dial = dial
        self._thread = thread
        self._retry = FIRST_RETRY_SECONDS
        self._said = ""
        self._said_at = 0.0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
                self._trouble("the controller ended the stream")
            except* grpc.aio.AioRpcError as group:
                self._trouble(f"the controller cannot be followed: {rpc.from_status(_first(group))}")
            except* (errors.MusterError, TimeoutError, asyncio.InvalidStateError, grpc.aio.UsageError) as group:
                self._trouble(f"the controller cannot be followed: {_first(group) or 'no answer'}")
            except* DBAPIError as group:
                lines = str(_first(group).orig).splitlines() or [""]
                self._trouble(f"the database cannot be written: {lines[0]}")
            except* SQLAlchemyError as group:
                self._trouble(f"the database cannot be written: {_first(group)}")
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # grpc.aio turns a cancellation that meets it at the wrong moment into a status of its own.
                raise asyncio.CancelledError
            # Full jitter: many clusters' daemons do not come back in step.
            await asyncio.sleep(random.uniform(0, self._retry))
            self._retry = min(self._retry * 2, MAX_RETRY_SECONDS)

    async def _follow(self) -> None:
        channel = self._dial()
        call = accounting_pb2_grpc.FollowersStub(channel).Follow()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                source = await _source(call)
            cursor = await self._blocking(self._ingest.cursor, source.cluster, source.log_id)
            cursor = await self._check(source, cursor)
            await _acknowledge(call, source.log_id, cursor)
            log.info("following cluster %s, log %s, from event %d on", source.cluster, source.log_id, cursor + 1)
            read_ahead: asyncio.Queue[accounting_pb2.Outcomes | None] = asyncio.Queue(MAX_QUEUED_MESSAGES)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_read(call, read_ahead))
                await self._write(call, source, read_ahead)
        finally:
            call.cancel()
            await channel.close()

    async def _check(self, source: _Source, cursor: int) -> int:
        """Say what was lost, if anything; give the cursor to go on from."""
        if cursor + 1 < source.first:
            log.error(
                "events %d to %d of cluster %s are LOST to accounting: the controller's journal begins with event %d",
                cursor + 1,
                source.first - 1,
                source.cluster,
                source.first,
            )
        elif cursor > source.last:
            log.error(
                "event %d of cluster %s was taken, but the controller's log ends with event %d: was its state "
                "directory restored from an old copy? Going on from there; what differs is overwritten",
                cursor,
                source.cluster,
                source.last,
            )
            cursor = source.last
            await self._blocking(self._ingest.set_back, source.cluster, source.log_id, cursor)
        return cursor

    async def _write(
        self, call: Any, source: _Source, read_ahead: asyncio.Queue[accounting_pb2.Outcomes | None]
    ) -> None:
        """Commit what comes, several messages in one transaction where they wait, and acknowledge."""
        while (message := await read_ahead.get()) is not None:
            batch = [message]
            size = len(message.outcomes)
            ended = False
            while not ended and size < MAX_BATCH // 2 and not read_ahead.empty():
                more = read_ahead.get_nowait()
                ended = more is None
                if more is not None:
                    batch.append(more)
                    size += len(more.outcomes)
            up_to = await self._blocking(self._take, source, batch)
            await _acknowledge(call, source.log_id, up_to)
            self._well()
            if ended:
                return

    def _take(self, source: _Source, batch: list[accounting_pb2.Outcomes]) -> int:
        outcomes = [_taken(one) for message in batch for one in message.outcomes]
        return self._ingest.take(source.cluster, source.log_id, outcomes, batch[-1].up_to)

    def _blocking(self, call: Callable[..., Found], *args: object) -> Awaitable[Found]:
        return asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    def _trouble(self, sentence: str) -> None:
        if sentence != self._said or time.monotonic() - self._said_at > SAY_AGAIN_SECONDS:
            log.warning("%s; trying again", sentence)
            self._said, self._said_at = sentence, time.monotonic()

    def _well(self) -> None:
        self._retry = FIRST_RETRY_SECONDS
        self._said = ""


async def _read(call: Any, read_ahead: asyncio.Queue[accounting_pb2.Outcomes | None]) -> None:
    async for message in call:
        await read_ahead.put(message)
    await read_ahead.put(None)


async def _acknowledge(call: Any, log_id: str, number: int) -> None:
    async with asyncio.timeout(ANSWER_SECONDS):
        await call.write(accounting_pb2.FollowerMessage(log_id=log_id, number=number))


async def _source(call: Any) -> _Source:
    """Read what the controller says first.

    Raises:
        grpc.aio.AioRpcError: it cannot be reached, or refuses.
        Unavailable: it says nothing that this release understands.
    """
    said = dict(await call.initial_metadata() or ())
    if not said:
        await call.read()  # no metadata came because the call has failed: raises why
    try:
        return _Source(
            cluster=said["muster-cluster-bin"].decode(),
            log_id=said["muster-log"],
            first=int(said["muster-first"]),
            last=int(said["muster-last"]),
        )
    except (KeyError, ValueError, AttributeError) as error:
        raise errors.Unavailable("the controller did not say which log it has", "is it of another version?") from error


def _taken(one: accounting_pb2.Outcome) -> Taken:
    return Taken(one.number, _RUN.decode(one.run) if one.run else None, tuple(_STEP.decode(step) for step in one.steps))


def _first(group: BaseExceptionGroup[Any]) -> Any:
    """Give one leaf: the others are about the same loss."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found

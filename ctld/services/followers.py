"""The stream that dbd follows: outcomes from its cursor on, out of the journal first and live then.

A follower's feed is opened before the journal is read, so that every event is in one of the two; what is in both is
left out by its number. A feed that overflows (the follower is slower than the cluster) is dropped, and the follower is
back to reading the journal: nothing queues without bound.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence

from ctld.core.events import Event
from ctld.services.outcomes import Outcome, messages, outcome_in, outcome_of
from ctld.store.store import Store
from ctld.store.threads import in_thread
from muster import errors, rpc
from muster.v1 import accounting_pb2, accounting_pb2_grpc

log = logging.getLogger("ctld.followers")

MAX_QUEUED = 10_000
"""Outcomes that wait for a slow follower before it goes back to reading the journal."""
CHUNK_OUTCOMES = 1_000
CHUNK_EVENTS = 20_000
"""Events that one turn of a thread reads from the journal at most."""
IDLE_SECONDS = 1.0
"""How often a follower hears of events that mean nothing to it, so that its cursor moves and the journal can go."""


class _Feed:
    """Live outcomes for one stream."""

    def __init__(self, after: int) -> None:
        self.after = after
        """Everything up to here was sent."""
        self.up_to = 0
        self.queue: deque[Outcome] = deque()
        self.overflown = False
        self.wake = asyncio.Event()

    def give(self, outcomes: list[Outcome], up_to: int) -> None:
        self.up_to = up_to
        if self.overflown:
            return
        self.queue.extend(outcomes)
        if len(self.queue) > MAX_QUEUED:
            self.queue.clear()
            self.overflown = True
        if outcomes:
            self.wake.set()

    def take(self) -> tuple[list[Outcome], int]:
        self.wake.clear()
        taken = [outcome for outcome in self.queue if outcome.number > self.after]
        self.queue.clear()
        return taken, max(self.up_to, self.after)


class FollowersService(accounting_pb2_grpc.FollowersServicer):
    """Followers and what they have acknowledged.

    Args:
        expected: accounting is configured: until dbd has said where it stands, the whole journal is kept for it.
    """

    def __init__(self, store: Store, cluster: str, *, expected: bool = True) -> None:
        self._journal = store.journal
        self._cluster = cluster
        self._expected = expected
        self._feeds: set[_Feed] = set()
        self._acknowledged: dict[str, int] = {}
        self._away_since: int | None = int(time.time())
        store.subscribe(self._take)

    @property
    def held_from(self) -> int:
        """Number of the first event that a follower still needs from the journal."""
        if self._acknowledged:
            return min(self._acknowledged.values()) + 1
        return 1 if self._expected else self._journal.last_durable + 1

    @property
    def away_since(self) -> int | None:
        """Since when nobody follows (Unix time); None while somebody does."""
        return self._away_since

    async def Follow(  # type: ignore[override]  # the stub leaves the stream's kind open
        self, request_iterator: AsyncIterator[accounting_pb2.FollowerMessage], context: rpc.Context
    ) -> None:
        """Serve one follower until either side goes.

        The initial metadata says of which cluster and log this is and which events are there, so that the follower
        knows which of its cursors is meant, and whether something was lost.
        """
        journal = self._journal
        try:
            peer = rpc.peer(context)
            if peer.role != "accounting":
                raise errors.Denied(f"a host of role {peer.role} may not follow the accounts")
        except errors.MusterError as error:
            await rpc.answer_error(context, error)
            raise
        await context.send_initial_metadata(
            (
                ("muster-cluster-bin", self._cluster.encode()),
                ("muster-log", journal.log_id),
                ("muster-first", str(journal.first_number)),
                ("muster-last", str(journal.last_durable)),
            )
        )
        first = await anext(request_iterator, None)
        if first is None:
            return
        feed = _Feed(self._begin(peer.name, first))
        self._acknowledged[peer.name] = feed.after
        self._feeds.add(feed)
        self._away_since = None
        # Whichever ends first ends the stream: a journal that cannot be read, or a follower that went.
        both = (
            asyncio.create_task(self._write(peer.name, feed, context)),
            asyncio.create_task(self._read(peer.name, request_iterator)),
        )
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feeds.discard(feed)
            if not self._feeds:
                self._away_since = int(time.time())
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            taken = self._acknowledged[peer.name]
            log.warning("accounting (%s) is away; it has taken events up to %d", peer.name, taken)

    async def _read(self, name: str, messages: AsyncIterator[accounting_pb2.FollowerMessage]) -> None:
        async for message in messages:
            if message.log_id == self._journal.log_id:
                self._acknowledged[name] = max(self._acknowledged[name], message.number)

    def _begin(self, name: str, stands: accounting_pb2.FollowerMessage) -> int:
        """Say after which event the stream goes on."""
        journal = self._journal
        after = stands.number if stands.log_id == journal.log_id else 0
        if stands.log_id and stands.log_id != journal.log_id:
            log.info("accounting (%s) comes from log %s and begins with log %s", name, stands.log_id, journal.log_id)
        if after > journal.last_durable:
            log.error(
                "accounting (%s) has taken event %d, but this log ends with event %d: was the state directory "
                "restored from an old copy? It goes on from there",
                name,
                after,
                journal.last_durable,
            )
            return journal.last_durable
        if after + 1 < journal.first_number:
            _note_loss(name, after, journal.first_number)
            return journal.first_number - 1
        log.info("accounting (%s) follows from event %d on", name, after + 1)
        return after

    def _take(self, events: Sequence[tuple[int, Event]]) -> None:
        if not self._feeds:
            return
        outcomes = [found for number, event in events if (found := outcome_of(number, event)) is not None]
        for feed in self._feeds:
            feed.give(outcomes, events[-1][0])

    async def _write(self, name: str, feed: _Feed, context: rpc.Context) -> None:
        try:
            while True:
                feed.overflown = False
                await self._write_past(name, feed, context)
                await self._write_live(feed, context)
        except errors.MusterError as error:
            log.error("accounting (%s): %s", name, error)

    async def _write_past(self, name: str, feed: _Feed, context: rpc.Context) -> None:
        """Send what the journal holds, up to what was durable when this began."""
        events = self._journal.read_events(feed.after + 1)
        ended = False
        while not ended:
            try:
                outcomes, up_to, ended = await in_thread(_read_chunk, events, feed.after)
            except errors.NotFound:
                _note_loss(name, feed.after, self._journal.first_number)
                feed.after = self._journal.first_number - 1
                events = self._journal.read_events(feed.after + 1)
                continue
            await self._send(feed, outcomes, up_to, context)

    async def _write_live(self, feed: _Feed, context: rpc.Context) -> None:
        """Send what comes, until the feed overflows."""
        while not feed.overflown:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await feed.wake.wait()
            except TimeoutError:
                pass  # nothing of interest; the number may have moved all the same
            outcomes, up_to = feed.take()
            if not feed.overflown:
                await self._send(feed, outcomes, up_to, context)

    async def _send(self, feed: _Feed, outcomes: list[Outcome], up_to: int, context: rpc.Context) -> None:
        if up_to <= feed.after:
            return
        for message in messages(outcomes, up_to, log_id=self._journal.log_id, cluster=self._cluster):
            await context.write(message)
        feed.after = up_to


def _read_chunk(events: Iterator[tuple[int, bytes]], after: int) -> tuple[list[Outcome], int, bool]:
    """Read on in the journal: outcomes, the last number read, whether the end was reached. In a thread."""
    outcomes: list[Outcome] = []
    number = after
    for read, (number, payload) in enumerate(events, 1):
        found = outcome_in(number, payload)
        if found is not None:
            outcomes.append(found)
        if read >= CHUNK_EVENTS or len(outcomes) >= CHUNK_OUTCOMES:
            return outcomes, number, False
    return outcomes, number, True


def _note_loss(name: str, after: int, first: int) -> None:
    log.error(
        "accounting (%s) LOST the events %d to %d: they are no longer in the journal. It goes on with event %d",
        name,
        after + 1,
        first - 1,
        first,
    )

"""`POST /v1/history`: what sacct shows, from dbd's tables, the tail of the log, and live jobs.

dbd says what it has taken and up to which event. What came after is in the tail, what has not ended is in the state:
the three are put together by (job, run), so that a job is there in the same second in which it ends, once. While dbd
is away the answer is made of the other two, and says how far back it reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from ctld.core.model import Job, Step
from ctld.core.record import batch_record, run_record, step_record
from ctld.core.state import State
from ctld.services.door import Call, Right, Route
from ctld.services.followers import FollowersService
from ctld.services.outcomes import Outcome
from ctld.services.tail import Tail
from ctld.store.store import Store
from ctld.store.threads import in_thread
from muster import errors, rpc
from muster.auth import Identity
from muster.clock import Clock
from muster.history import Matcher, newest_only
from muster.ids import UnixTime
from muster.records import HistoryFilter, RunRecord, StepRecord
from muster.states import JobState
from muster.v1 import accounting_pb2, accounting_pb2_grpc

QUERY_SECONDS = 10.0

_RUN: msgspec.msgpack.Decoder[RunRecord] = msgspec.msgpack.Decoder(RunRecord)
_STEP: msgspec.msgpack.Decoder[StepRecord] = msgspec.msgpack.Decoder(StepRecord)
_PACK = msgspec.msgpack.Encoder().encode
_JSON = msgspec.json.Encoder()


class Head(msgspec.Struct, frozen=True):
    """What stands in front of the jobs in an answer."""

    cluster: str
    now: int
    away_since: int
    """Since when accounting is away (Unix time); 0: it answered."""
    missing_before: int
    """Runs that ended before this time may be missing (Unix time); 0: none is."""
    why: str
    """What is wrong with accounting, in one sentence."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run and its steps; a list of them follows the head as `jobs`."""

    run: RunRecord
    steps: tuple[StepRecord, ...] = ()


class History:
    """Answers sacct.

    Args:
        followers: knows since when dbd is away.
        address: host:port of dbd; empty: there is no accounting.
    """

    def __init__(
        self, store: Store, followers: FollowersService, identity: Identity, address: str, clock: Clock
    ) -> None:
        self._store = store
        self._followers = followers
        self._clock = clock
        self._tail = Tail(store.journal)
        store.subscribe(self._tail.take)
        self._stub: accounting_pb2_grpc.AccountingAsyncStub | None = None
        self._channel = None
        if address:
            self._channel = rpc.dial(identity, address, "accounting")
            self._stub = accounting_pb2_grpc.AccountingStub(self._channel)

    def routes(self) -> list[Route]:
        """Give the rows of the door's table."""
        return [Route("POST", "/v1/history", Right.ANYONE, "history", self._answer)]

    async def run(self) -> None:
        """Read the tail from the journal, then keep the channel to dbd until cancelled."""
        try:
            await self._tail.fill()
            await asyncio.Event().wait()
        finally:
            if self._channel is not None:
                await self._channel.close()

    async def _answer(self, call: Call) -> bytes:
        if self._stub is None:
            raise errors.Refused(
                "Slurm accounting storage is disabled", "set AccountingStorageType in the configuration"
            )
        store, state = self._store, self._store.state
        asked = call.json(HistoryFilter)
        if asked.own and call.caller.uid != 0:
            asked = msgspec.structs.replace(asked, users=(call.caller.uid,))
        now = self._clock.now()
        matcher = Matcher(asked, now)  # refuses what cannot be read before dbd is asked
        await self._tail.filled.wait()
        open_runs = () if asked.allocations_only else await in_thread(_open_runs, list(state.jobs.values()), asked)
        reply, why = await self._ask(asked, open_runs)

        # What is live is looked at now and what has ended a moment later, once all that is seen here is durable: a
        # job that ends in between is in both, and one is left out; in the other order it could be in neither.
        live = _Live(state, [job for job in state.jobs.values() if why or job.state <= JobState.SUSPENDED])
        await store.settled()
        tail = self._tail.outcomes()
        since = self._followers.away_since
        missing = 0
        if why:
            missing = self._tail.from_time or now
        elif reply.cursor + 1 < self._tail.from_number:
            missing, why = now, f"accounting has taken events up to {reply.cursor} only"
        head = Head(
            cluster=state.settings.cluster,
            now=now,
            away_since=(since or now) if why else 0,
            missing_before=missing,
            why=why,
        )
        return await in_thread(_encode, head, matcher, reply, tail, live)

    async def _ask(
        self, asked: HistoryFilter, open_runs: tuple[tuple[int, int], ...]
    ) -> tuple[accounting_pb2.HistoryReply, str]:
        """Ask dbd; give its reply and why there is none."""
        assert self._stub is not None, "there is accounting"
        stub = self._stub
        whole = msgspec.structs.replace(
            asked,
            cluster=self._store.state.settings.cluster,
            log_id=self._store.journal.log_id,
            open_runs=open_runs,
        )
        query = accounting_pb2.HistoryQuery(filter=_PACK(whole))
        try:
            return await rpc.call(lambda: stub.Query(query, timeout=QUERY_SECONDS)), ""
        except errors.Unavailable as error:
            return accounting_pb2.HistoryReply(), error.sentence.partition(";")[0] or "it does not answer"


@dataclass(frozen=True, slots=True)
class _Live:
    """What is in memory at one moment; records are frozen, so a thread may read them."""

    state: State
    jobs: list[Job]
    steps: dict[int, list[Step]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.jobs:
            if job.id in self.state.steps:
                self.steps[job.id] = list(self.state.steps[job.id].values())

    def entries(self, asked: HistoryFilter) -> Iterator[tuple[RunRecord, list[StepRecord]]]:
        """Give records of the runs in memory."""
        for job in _named(self.jobs, asked):
            if job.array_pending and job.state > JobState.SUSPENDED:
                continue  # members cancelled together: the tail has them under their event's number
            steps: list[StepRecord] = []
            if not asked.allocations_only and job.state in (JobState.RUNNING, JobState.SUSPENDED):
                if job.spec.batch:
                    batch = batch_record(self.state, job, None, ended_at=UnixTime(0), status=0)
                    steps.append(msgspec.structs.replace(batch, state=JobState(job.state).name))
                steps += [step_record(self.state, job, step) for step in self.steps.get(job.id, ())]
            yield run_record(self.state, job), steps


@dataclass(slots=True)
class _Merged:
    """One run as it comes together; what has ended beats what was live."""

    run: RunRecord | None = None
    steps: dict[int, StepRecord] = field(default_factory=dict)


def _named(jobs: list[Job], asked: HistoryFilter) -> Iterator[Job]:
    """Leave out what a filter on users or ids excludes at a glance: a record costs 20 us."""
    users = frozenset(asked.users)
    numbers = {one.job_id for one in asked.jobs}
    for job in jobs:
        if (not users or job.spec.uid in users) and (not numbers or job.id in numbers or job.array_job_id in numbers):
            yield job


def _open_runs(jobs: list[Job], asked: HistoryFilter) -> tuple[tuple[int, int], ...]:
    running = (JobState.RUNNING, JobState.SUSPENDED)
    return tuple((job.id, job.restarts) for job in _named(jobs, asked) if job.state in running)


def _encode(
    head: Head, matcher: Matcher, reply: accounting_pb2.HistoryReply, tail: list[Outcome], live: _Live
) -> bytes:
    """Put the three sources together and print them; in a thread, record by record."""
    asked = matcher.asked
    runs: dict[tuple[int, int, int], _Merged] = {}
    entries: list[tuple[RunRecord, Iterable[StepRecord]]] = []

    def run_at(job_id: int, run: int, part: int = 0) -> _Merged:
        return runs.setdefault((job_id, run, part), _Merged())

    for one in reply.outcomes:
        record = _RUN.decode(one.run) if one.run else None
        steps = [_STEP.decode(step) for step in one.steps]
        if record is not None and not one.number:
            entries.append((record, steps))  # of a former log, whose numbers say nothing here
            continue
        if record is not None:
            run_at(record.job_id, record.run, one.number if record.array_tasks else 0).run = record
        for step in steps:
            run_at(step.job_id, step.run).steps[step.step_id] = step
    for outcome in tail:
        if outcome.run is not None:
            part = outcome.number if outcome.run.array_tasks else 0
            run_at(outcome.run.job_id, outcome.run.run, part).run = outcome.run
        for step in outcome.steps:
            run_at(step.job_id, step.run).steps[step.step_id] = step
    for record, steps in live.entries(asked):
        # An array's pending rest has the number of its last member: it is a part of its own, which no event ends.
        merged = run_at(record.job_id, record.run, -1 if record.array_tasks else 0)
        merged.run = merged.run or record
        for step in steps:
            merged.steps.setdefault(step.step_id, step)

    entries += [(one.run, one.steps.values()) for one in runs.values() if one.run is not None]
    steps_of = {id(run): steps for run, steps in entries}
    chosen = [run for run, _ in entries if matcher.passes(run)]
    if not asked.duplicates:
        chosen = newest_only(chosen)
    jobs = [_JSON.encode(Entry(run, () if asked.allocations_only else tuple(steps_of[id(run)]))) for run in chosen]
    return _JSON.encode(head)[:-1] + b',"jobs":[' + b",".join(jobs) + b"]}"

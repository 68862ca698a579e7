"""Ending and signalling jobs and steps: what scancel asks for, carried out here in one call.

The ids that were given, and of them (or of all jobs) those that pass every filter. Each gets its own outcome, so that
the command can say of each what Slurm's says. Large selections are worked off in slices: others are served in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ctld.core.commands import Cancel, CancelStep, Command, NoteStopped
from ctld.core.decide.refusals import denied, may_change, refused
from ctld.core.decide.selection import Selection, is_rest, select
from ctld.core.jobids import Selector, parse_selectors, selector_text
from ctld.core.model import Caller, Job, Ranges
from ctld.core.state import State
from ctld.services.door import Call
from ctld.services.names import uid_of
from ctld.services.results import Result, answer
from ctld.services.submission import check_cluster
from ctld.services.views.jobs import reservation_of
from ctld.store.store import Store
from muster import hostlist
from muster.api import CancelRequest, decode
from muster.clock import Clock
from muster.errors import InvalidInput, MusterError, NotFound
from muster.ids import BATCH_STEP, EXTERN_STEP, NO_TASK, JobId, step_word
from muster.signals import NUMBERS, parse_signal
from muster.slurm_errors import slurm_text
from muster.states import JobState

SLICE = 200
"""Jobs looked at or cancelled before others are served."""
MOST_SIGNALS_AT_ONCE = 64
STATES = ("PENDING", "RUNNING", "SUSPENDED")
_KILL, _STOP, _CONT = NUMBERS["KILL"], NUMBERS["STOP"], NUMBERS["CONT"]


class Signaller(Protocol):
    """Sends signals to running jobs; see `ctld.loops.dispatch.Dispatcher`."""

    async def signal(self, job: Job, signo: int, scope: str, step_id: int = 0) -> None:
        """Return once every node of the job has carried it out; Unavailable when one cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """One job, array part or step that is to be ended or signalled, and how it was named."""

    text: str
    selector: Selector


class Cancelling:
    """The handler of POST /v1/jobs/cancel."""

    def __init__(self, store: Store, clock: Clock, signaller: Signaller) -> None:
        self._store = store
        self._clock = clock
        self._signaller = signaller

    async def cancel(self, call: Call) -> dict[str, Any]:
        """Answer once what was asked is durable, or signalled: {"results": [one for each job or step]}.

        `?list=1` does nothing and gives the jobs that would be meant, for a command that asks its user first;
        `?cluster=` refuses what is meant for another cluster.

        Raises:
            InvalidInput: an id, signal or state that cannot be read, or neither id nor filter; nothing is done.
            MusterError: the refusal, when exactly one id was named and no filter.
        """
        request = decode(call.body, CancelRequest)
        check_cluster(call.query.get("cluster", ""), self._store.state.settings.cluster)
        signo = parse_signal(request.signal) if request.signal is not None else 0
        filters = await _Filters.of(request, self._store.state)
        targets = _named(request.ids)
        if not targets and not filters.any:
            raise InvalidInput(slurm_text(2173), "name jobs by id, or by user, state, name, partition", slurm_code=2173)
        outcomes: list[Result] = []
        if filters.any:
            targets = await self._filtered(targets, filters, call.caller, outcomes)
        if call.query.get("list") == "1":
            return {"jobs": [one for target in targets if (one := self._listed(target)) is not None]}
        order = _Order(signo, request.batch, request.full)
        outcomes += await self._carry_out(targets, order, call.caller)
        return answer(outcomes, alone=not filters.any)

    async def _filtered(
        self, targets: list[Target], filters: _Filters, caller: Caller, outcomes: list[Result]
    ) -> list[Target]:
        """Give the targets that pass; without ids, all active jobs that the caller may end and that pass."""
        state = self._store.state
        found: list[Target] = []
        if not targets:
            everybody = caller.admin or filters.uid is not None
            for number, job in enumerate(list(_active(state)), 1):
                if number % SLICE == 0:
                    await asyncio.sleep(0)
                job = state.jobs.get(job.id, job)
                if (everybody or job.spec.uid == caller.uid) and filters.passes(job):
                    found.append(_target_of(job))
            return found
        for target in targets:
            try:
                selection = select(state, target.selector.job_id, target.selector.tasks)
            except NotFound as problem:
                outcomes.append(Result(target.text, problem))
                continue
            if filters.passes(selection.any_record):
                found.append(target)
        return found

    def _listed(self, target: Target) -> dict[str, Any] | None:
        """Say what a job is that would be meant; None: there is none that has not ended."""
        try:
            job = select(self._store.state, target.selector.job_id, target.selector.tasks).any_record
        except NotFound:
            return None
        if job.state > JobState.SUSPENDED:
            return None
        partition = job.alloc.partition if job.alloc is not None else ",".join(job.spec.partitions)
        return {"id": target.text, "name": job.spec.name, "partition": partition}

    async def _carry_out(self, targets: list[Target], order: _Order, caller: Caller) -> list[Result]:
        outcomes: list[Result] = []
        written: Awaitable[int] | None = None
        signals: list[tuple[Result, Job, int, str, int]] = []
        for number, target in enumerate(targets, 1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            outcome = Result(target.text)
            outcomes.append(outcome)
            try:
                command, sends = _judge(self._store.state, target.selector, order, caller)
                if command is not None:
                    _, one = self._store.post(command, at=self._clock.now())
                    written = one or written
                signals += [(outcome, *send) for send in sends]
            except MusterError as problem:
                outcome.problem = problem
        if written is not None:
            await written  # the last one: those in front of it are durable then too
        for start in range(0, len(signals), MOST_SIGNALS_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for send in signals[start : start + MOST_SIGNALS_AT_ONCE]:
                    group.create_task(self._send(*send))
        return outcomes

    async def _send(self, outcome: Result, job: Job, signo: int, scope: str, step_id: int) -> None:
        try:
            await self._signaller.signal(job, signo, scope, step_id)
        except MusterError as problem:
            outcome.problem = problem


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to happen to each target."""

    signo: int
    """0: none was named."""
    batch: bool
    full: bool

    @property
    def ends(self) -> bool:
        """A plain cancel. KILL to a job is one too, as in Slurm."""
        return not self.batch and self.signo in (0, _KILL)

    @property
    def scope(self) -> str:
        """Which processes of a job get the signal."""
        return "batch" if self.batch else "all" if self.full else "steps"


def _judge(
    state: State, selector: Selector, order: _Order, caller: Caller
) -> tuple[Command | None, list[tuple[Job, int, str, int]]]:
    """Give the command to commit, and the signals to send as (job, signal, scope, step)."""
    if selector.step_id is not None:
        return _judge_step(state, selector, order, caller)
    if order.ends:
        return Cancel(selector.job_id, caller, selector.tasks), []
    selection = _owned(state, selector, caller)
    running = [job for job in selection.records if job.state in (JobState.RUNNING, JobState.SUSPENDED)]
    signo = order.signo or _KILL
    if not running:
        if signo == _KILL and (selection.rest is not None or selection.any_record.state == JobState.PENDING):
            return Cancel(selector.job_id, caller, selector.tasks), []  # no shell is there to be killed
        over = selection.rest is None and all(job.state > JobState.SUSPENDED for job in selection.records)
        raise refused(2021 if over else 2020, "" if over else f"job {selector.job_id} does not run yet")
    if order.batch and not any(job.spec.batch for job in running):
        raise refused(2039, f"job {selector.job_id} has no batch script")
    noted = None
    if signo in (_STOP, _CONT) and not order.batch and selector.tasks is None:
        noted = NoteStopped(selector.job_id, caller, stopped=signo == _STOP)
    return noted, [(job, signo, order.scope, 0) for job in running]


def _judge_step(
    state: State, selector: Selector, order: _Order, caller: Caller
) -> tuple[Command | None, list[tuple[Job, int, str, int]]]:
    assert selector.step_id is not None
    selection = _owned(state, selector, caller)
    if len(selection.records) != 1 or is_rest(selection.records[0]):
        raise refused(2024 if selection.records else 2017, "a step belongs to one job: name a member of the array")
    job = selection.records[0]
    if job.state > JobState.SUSPENDED:
        raise refused(2021)
    if selector.step_id == EXTERN_STEP:
        raise refused(2036, "jobs have no extern step here")
    steps = state.steps.get(job.id, {})
    if job.state != JobState.PENDING and selector.step_id != BATCH_STEP and selector.step_id not in steps:
        raise NotFound(slurm_text(2017), f"job {job.id} has no step {step_word(selector.step_id)}", slurm_code=2017)
    if order.signo in (0, _KILL):
        return CancelStep(job.id, selector.step_id, caller), []
    if job.state == JobState.PENDING:
        raise refused(2020, f"job {job.id} does not run yet")
    scope = "batch" if selector.step_id == BATCH_STEP else "step"
    return None, [(job, order.signo, scope, 0 if scope == "batch" else int(selector.step_id))]


def _owned(state: State, selector: Selector, caller: Caller) -> Selection:
    selection = select(state, selector.job_id, selector.tasks)
    if not may_change(selection.any_record, caller):
        raise denied(2002, f"job {selector.job_id} belongs to {selection.any_record.spec.user}")
    return selection


def _named(ids: Iterable[str]) -> list[Target]:
    """Read all ids before anything is done.

    Raises:
        InvalidInput: `Invalid job id <text>`, with what is wrong with it as the hint.
    """
    targets: list[Target] = []
    for text in ids:
        try:
            selectors = parse_selectors(text)
        except MusterError as problem:
            shown = text if len(text) <= 60 else text[:60] + "..."
            raise InvalidInput(
                f"Invalid job id {shown}", f"{problem.sentence} {problem.hint}".strip(), slurm_code=2017
            ) from None
        targets += [Target(_text(selector), selector) for selector in selectors]
    return targets


def _text(selector: Selector) -> str:
    text = selector_text(selector.job_id, selector.tasks)
    return text if selector.step_id is None else f"{text}.{step_word(selector.step_id)}"


def _target_of(job: Job) -> Target:
    if job.array_task_id != NO_TASK:
        tasks: Ranges = (job.array_task_id, job.array_task_id)
        selector = Selector(JobId(job.array_job_id), tasks)
    elif is_rest(job):
        # Only the rest: members that run have records of their own, which pass the filters or not.
        selector = Selector(job.id, job.array_pending)
    else:
        selector = Selector(job.id)
    return Target(_text(selector), selector)


def _active(state: State) -> Iterator[Job]:
    """Walk through the jobs that have not ended."""
    jobs = state.jobs
    for ids in (state.running, state.queue, state.deferred):
        for job_id in ids:
            yield jobs[job_id]


class _Filters:
    """What a job must be to be meant; an absent part lets every job pass."""

    def __init__(self, request: CancelRequest, uid: int | None, state: State) -> None:
        self.uid = uid
        self._words: list[tuple[str | None, Callable[[Job], str]]] = [
            (request.name, lambda job: job.spec.name),
            (request.account, lambda job: job.spec.account),
            (request.qos, lambda job: job.spec.qos),
            (request.reservation, reservation_of),
            (request.wckey, lambda job: job.spec.wckey),
        ]
        self._partition = request.partition
        self._state = request.state.upper() if request.state is not None else None
        self._nodes: frozenset[int] | None = None
        if request.nodelist is not None:
            indexes = (state.node_index.get(name) for name in hostlist.expand(request.nodelist))
            self._nodes = frozenset(index for index in indexes if index is not None)
        self.any = (
            uid is not None
            or any(word is not None for word, _ in self._words)
            or any(part is not None for part in (self._partition, self._state, self._nodes))
        )

    @classmethod
    async def of(cls, request: CancelRequest, state: State) -> _Filters:
        """Read the filters; InvalidInput for a user or state that does not exist."""
        uid = None
        if request.user is not None:
            uid = await uid_of(request.user)
            if uid is None:
                raise InvalidInput(f"Invalid user name: {request.user[:60]}", slurm_code=2010)
        if request.state is not None and request.state.upper() not in STATES:
            raise InvalidInput(
                f"Invalid job state specified: {request.state[:60]}",
                "Valid job states are PENDING, RUNNING, and SUSPENDED",
            )
        return cls(request, uid, state)

    def passes(self, job: Job) -> bool:
        """Tell whether a job is meant; one that has ended never is."""
        if job.state > JobState.SUSPENDED:
            return False
        if self.uid is not None and job.spec.uid != self.uid:
            return False
        if self._state is not None and JobState(job.state).name != self._state:
            return False
        if any(word is not None and of(job) != word for word, of in self._words):
            return False
        if self._partition is not None and self._partition not in _partitions(job):
            return False
        if self._nodes is not None:
            return job.alloc is not None and any(share.node in self._nodes for share in job.alloc.shares)
        return True


def _partitions(job: Job) -> tuple[str, ...]:
    return (job.alloc.partition,) if job.alloc is not None else job.spec.partitions

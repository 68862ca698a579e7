"""Replays a workload in virtual time on the controller's own core: decide, apply and the scheduling pass, no daemons.

The clock jumps from instant to instant: a submission, the end of a run, the end of a begin time. What happens in
one second is applied first; then one pass is made, as the scheduling loop of ctld coalesces its wake-ups. Nodes answer
at once and jobs start as they are placed, so that what differs between two replays is what scheduling decided.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ctld.collector import not_collecting
from ctld.core import ranges
from ctld.core.apply import apply
from ctld.core.commands import ApplyPlan, Submit, Tick
from ctld.core.decide import decide, dependency
from ctld.core.decide.ending import as_ordered, end_by_kill
from ctld.core.events import (
    Event,
    JobFinished,
    JobPreempted,
    JobRequeued,
    JobResumed,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    KillOrdered,
)
from ctld.core.jobspec import Names, from_request
from ctld.core.model import UNLIMITED, Caller, NodeShare
from ctld.core.record import TERM
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from ctld.sched.priority import Ranking
from ctld.sim.machine import Machine
from ctld.sim.workload import TraceJob
from muster.errors import MusterError
from muster.ids import UnixTime
from muster.records import RunRecord
from muster.states import JobState

Ints = npt.NDArray[np.int64]
_FIRST_UID = 10_000
_PURGE_EVERY = 256
"""Ended jobs leave memory in batches of about this size."""
_PROGRESS_EVERY = 512
_NO_RECORD = RunRecord(0, 0, "", 0, 0, "", "", "", "", "", "COMPLETED")
"""What accounting would keep of a run; nobody keeps it here."""
_MOST_PASSES = 1000
"""Passes at one instant; more means that a pass never says that it is complete."""


@dataclass(slots=True)
class Outcome:
    """What became of each job, in the order of the workload. Times are seconds since the epoch; -1: it never came."""

    jobs: Sequence[TraceJob]
    start: list[int]
    end: list[int]
    promised: list[int]
    """First planned start."""
    promised_at: list[int]
    """When that was planned."""
    cpus: list[int]
    gpus: list[int]
    backfilled: list[bool]
    lost_seconds: list[int]
    """Of runs that were ended to make room and came again."""
    cancelled: list[bool]
    """Ended to make room, for good."""
    shares: list[tuple[NodeShare, ...]]
    """Where it ran."""
    refused: Counter[str] = field(default_factory=Counter)
    """Why submissions were refused -> how many."""
    started: int = 0
    """Runs begun."""
    passes: int = 0
    stale_starts: int = 0
    """Starts of a pass that the state refused: a fault of Muster, as nothing changes in between here."""
    plan_seconds: float = 0.0
    """CPU time of the passes."""
    cpu_seconds: float = 0.0
    """CPU time in all."""


Progress = Callable[[int, int], None]
"""Told (jobs done, jobs in all) now and then."""


def replay(machine: Machine, jobs: Sequence[TraceJob], progress: Progress | None = None) -> Outcome:
    """Run the whole workload and say what became of it; jobs must be in order of submission."""
    with not_collecting():
        return Replay(machine, jobs, progress).run()


class Replay:
    """One replay: its clock, the core's state, and the ends that are to come."""

    def __init__(self, machine: Machine, jobs: Sequence[TraceJob], progress: Progress | None = None) -> None:
        self._jobs = jobs
        self._progress = progress
        self._state = State()
        self._memory = PlanMemory()
        self._ends: list[tuple[int, int]] = []
        """Heap of (time, job id)."""
        self._end_of: dict[int, int] = {}
        """Job id -> when its run ends by itself; what else the heap has of it is over."""
        self._left: dict[int, int] = {}
        """Suspended job -> seconds that it has still to run."""
        self._begins: list[int] = []
        """Heap of times at which a job becomes eligible, has had its grace, or is planned to give up few switches."""
        self._places: dict[int, int] = {}
        """Job id -> its place in the workload."""
        self._submits: dict[tuple[int, str], Submit] = {}
        self._uids: dict[str, int] = {}
        size = len(jobs)
        self._out = Outcome(
            jobs, [-1] * size, [-1] * size, [-1] * size, [-1] * size, [0] * size, [0] * size,
            [False] * size, [0] * size, [False] * size, [()] * size,
        )  # fmt: skip
        self._done = 0
        self._one_cpu_nodes = all(node.cpus == 1 for node in machine.command.nodes)
        self._ranking = Ranking()
        self._rated_at = UnixTime(jobs[0].submitted_at if jobs else 1)
        """When all priorities were computed last."""
        for command in (machine.command, machine.accounts):
            for event in decide(self._state, command, self._rated_at):
                apply(self._state, event)
        self._rate(self._rated_at)
        self._reachable = (1 << len(self._state.nodes)) - 1

    def run(self) -> Outcome:
        """Go from instant to instant until nothing is left that could happen."""
        jobs, ends, begins = self._jobs, self._ends, self._begins
        cursor, size, out = 0, len(self._jobs), self._out
        began = time.process_time()
        while cursor < size or ends or begins:
            at = jobs[cursor].submitted_at if cursor < size else -1
            if ends and not 0 <= at <= ends[0][0]:
                at = ends[0][0]
            if begins and not 0 <= at <= begins[0]:
                at = begins[0]
            now = UnixTime(at)
            changed = False
            while ends and ends[0][0] <= at:
                ends_at, job_id = heappop(ends)
                changed |= self._end(job_id, ends_at, now)
            while cursor < size and jobs[cursor].submitted_at <= at:
                changed |= self._submit(cursor, now)
                cursor += 1
            resumable = changed and bool(self._state.suspended)
            if resumable or (begins and begins[0] <= at):
                while begins and begins[0] <= at:
                    heappop(begins)
                self._commit_tick(now)
                changed = True
            if changed:
                self._schedule(now)
            if len(self._state.ended) > _PURGE_EVERY:
                self._commit_tick(now)
        out.cpu_seconds = time.process_time() - began
        if self._progress is not None:
            self._progress(size, size)
        return out

    def _schedule(self, now: UnixTime) -> None:
        """Make passes until one has seen the whole queue and nothing more starts."""
        state, out = self._state, self._out
        if not state.queue.classes:
            return
        if now - self._rated_at >= state.settings.priority.calc_period_seconds:
            self._rate(now)
        else:
            self._ranking.follow(state)
        state.queue.hasten(now)
        for _ in range(_MOST_PASSES):
            began = time.process_time()
            made = plan(state, now, reachable=self._reachable, memory=self._memory)
            out.plan_seconds += time.process_time() - began
            out.passes += 1
            for job_id, wait in made.waits.items():
                if wait.start_at:
                    place = self._places[job_id]
                    if out.promised[place] < 0:
                        out.promised[place], out.promised_at[place] = wait.start_at, now
                    if wait.start_at > now and state.jobs[job_id].spec.request.switches:
                        heappush(self._begins, wait.start_at)  # Its patience may end then, and nothing else happen.
            if made.starts or made.preemptions:
                before = out.started
                events = decide(state, ApplyPlan(made), now)
                self._follow(events, now)
                out.stale_starts += len(made.starts) - (out.started - before)
                if any(isinstance(event, JobSuspended) for event in events):
                    continue  # What they leave is free at once.
            if made.complete:
                return
        raise AssertionError("no pass of the scheduler is complete")

    def _rate(self, now: UnixTime) -> None:
        """Compute all priorities, as the controller does every PriorityCalcPeriod; between them, those of new jobs."""
        for _ in self._ranking.passing(self._state, now):
            pass
        self._rated_at = now

    def _submit(self, place: int, now: UnixTime) -> bool:
        job = self._jobs[place]
        key = (id(job.ask), job.user)
        command = self._submits.get(key)
        try:
            if command is None:
                command = self._submits[key] = self._command(job)
            begin_at = UnixTime(job.begin_at)
            if begin_at != command.spec.begin_at:
                command = _with_begin(command, begin_at)
            events = decide(self._state, command, now)
        except MusterError as error:
            self._out.refused[str(error)] += 1
            self._done += 1
            return False
        for event in events:
            if isinstance(event, JobSubmitted):
                self._places[event.job.id] = place
                limit = job.limit_seconds
                if limit is not None and limit != event.job.limit_seconds:
                    # The core keeps seconds; only the command line rounds to minutes.
                    event = JobSubmitted(event.at, replace(event.job, limit_seconds=limit))
                if begin_at > now:
                    heappush(self._begins, begin_at)
            apply(self._state, event)
        return True

    def _command(self, job: TraceJob) -> Submit:
        """Make the submission of a job; jobs that ask alike for one user share it."""
        ask = job.ask
        options: dict[str, object] = {"batch": True, "script": "#!/bin/sh\n", "work_dir": "/", "job_name": "replayed"}
        if self._one_cpu_nodes and ask.ntasks and ask.nodes is None and (ask.cpus_per_task or 1) == 1:
            options["nodes"] = [ask.ntasks, ask.ntasks]
        if job.limit_seconds is not None:
            # 0 and -1 are unlimited.
            options["time_limit"] = -(-job.limit_seconds // 60) if job.limit_seconds >= 0 else UNLIMITED
        uid = self._uids.setdefault(job.user, _FIRST_UID + len(self._uids))
        caller = Caller(uid=uid, gid=uid, host="sim")
        return from_request(replace(ask, **options), caller, Names(job.user, job.user), self._state.settings)

    def _end(self, job_id: int, ends_at: int, now: UnixTime) -> bool:
        """End a run by itself or as ordered; a run that is over already, or stands still, ends nothing."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or job.state not in (JobState.RUNNING, JobState.SUSPENDED):
            return False
        if job.kill is None and self._end_of.get(job_id) != ends_at:
            return False
        job = as_ordered(job)
        ended: Event = (
            JobFinished(now, job.id, int(JobState.COMPLETED), _NO_RECORD)
            if job.kill is None
            else end_by_kill(state, job, now, status=TERM)
        )
        self._follow([ended], now)
        if state.dependants:
            self._follow(dependency.follow(state, [ended], now), now)
        return True

    def _commit_tick(self, now: UnixTime) -> None:
        self._follow(decide(self._state, Tick(), now), now)
        ids = self._state.jobs
        if len(self._places) > 2 * len(ids) + _PURGE_EVERY:
            self._places = {job_id: place for job_id, place in self._places.items() if job_id in ids}

    def _follow(self, events: Sequence[Event], now: UnixTime) -> None:
        """Apply events, and do what nodes do about them."""
        state, out = self._state, self._out
        for event in events:
            job = state.jobs.get(event.job_id) if isinstance(event, JobRequeued) else None
            apply(state, event)
            if isinstance(event, JobStarted):
                self._started(event)
            elif isinstance(event, JobFinished):
                self._finished(event)
            elif isinstance(event, KillOrdered):
                heappush(self._ends, (now, event.job_id))
            elif isinstance(event, JobPreempted):
                heappush(self._begins, event.preempted.ends_at)
            elif isinstance(event, JobSuspended):
                self._left[event.job_id] = self._end_of.pop(event.job_id, now) - now
            elif isinstance(event, JobResumed):
                self._will_end(event.job_id, now + self._left.pop(event.job_id))
            elif isinstance(event, JobRequeued) and job is not None:
                place = self._places[event.job_id]
                out.lost_seconds[place] += now - job.started_at
                heappush(self._begins, max(now, event.begin_at))

    def _finished(self, event: JobFinished) -> None:
        place = self._places[event.job_id]
        if self._out.start[place] >= 0:
            self._out.end[place] = event.at
        self._out.cancelled[place] = event.state == JobState.PREEMPTED
        self._end_of.pop(event.job_id, None)
        self._done += 1
        if self._progress is not None and self._done % _PROGRESS_EVERY == 0:
            self._progress(self._done, len(self._jobs))

    def _will_end(self, job_id: int, ends_at: int) -> None:
        self._end_of[job_id] = ends_at
        heappush(self._ends, (ends_at, job_id))

    def _started(self, event: JobStarted) -> None:
        out, job_id = self._out, event.job_id
        place = self._places[job_id]
        job = self._jobs[place]
        out.start[place] = event.at
        out.started += 1
        alloc = event.alloc
        out.shares[place] = alloc.shares
        if len(alloc.shares) == 1:
            share = alloc.shares[0]
            out.cpus[place], out.gpus[place] = share.cpus, ranges.count(share.gpus) if share.gpus else 0
        else:
            out.cpus[place] = sum(share.cpus for share in alloc.shares)
            out.gpus[place] = sum(ranges.count(share.gpus) for share in alloc.shares)
        out.backfilled[place] = alloc.planned_by == "Backfill"
        limit = event.limit_seconds
        runtime = job.runtime if limit < 0 or job.runtime <= limit else limit
        self._will_end(job_id, event.at + runtime)


def _with_begin(command: Submit, begin_at: UnixTime) -> Submit:
    return Submit(replace(command.spec, begin_at=begin_at), command.by)

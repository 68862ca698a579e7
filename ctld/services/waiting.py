"""Waiting for a job's start or end: a call that is answered as soon as it happens, or after a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ctld.core.decide.refusals import unknown_job
from ctld.core.events import (
    ArrayTasksCancelled,
    Event,
    JobFinished,
    JobRequeued,
    JobsPurged,
    JobStarted,
    NodesReleased,
)
from ctld.core.jobids import parse_selector
from ctld.core.model import Job, Ranges
from ctld.core.ranges import contains, intersection
from ctld.core.state import State
from ctld.loops.wire import nodelist
from ctld.services.changes import Changes
from ctld.services.door import Call
from ctld.store.store import Store
from muster.errors import InvalidInput
from muster.ids import NO_TASK
from muster.states import JobState

MOST_SECONDS = 60.0

_Moving = JobStarted | JobFinished | JobRequeued | NodesReleased | ArrayTasksCancelled


class Waiting:
    """The handler of GET /v1/jobs/{job}/wait, and who waits for which job."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = Changes()
        store.subscribe(self._notice)

    async def wait(self, call: Call) -> dict[str, Any]:
        """Answer once the job has started or ended, or when the time is over: see `_standing`.

        `?for=end` (an array: all its members, and nothing is left on their nodes) or `?for=start`; `&seconds=` up to
        60, how long to wait at most; 0 answers at once.

        Raises:
            NotFound: no such job, or it has left memory.
        """
        goal, seconds = _asked(call)
        selector = parse_selector(call.parts["job"])
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = _standing(self._store.state, selector.job_id, selector.tasks)
            left = deadline - asyncio.get_running_loop().time()
            if found[goal] or left <= 0:
                await self._store.settled()
                return found
            await self._changes.of(selector.job_id, left)

    def _notice(self, batch: Sequence[tuple[int, Event]]) -> None:
        if not self._changes:
            return
        jobs = self._store.state.jobs
        for _, event in batch:
            if isinstance(event, JobsPurged):
                for job_id in event.job_ids:
                    self._changes.wake(job_id)
            elif isinstance(event, _Moving):
                self._changes.wake(event.job_id)
                job = jobs.get(event.job_id)
                if job is not None and job.array_job_id:
                    self._changes.wake(job.array_job_id)


def _asked(call: Call) -> tuple[str, float]:
    goal = {"end": "ended", "start": "started"}.get(call.query.get("for", "end"))
    if goal is None:
        raise InvalidInput(f"a job has no {call.query['for'][:40]!r} to wait for", "ask with for=start or for=end")
    return goal, call.seconds("seconds", most=MOST_SECONDS)


def _standing(state: State, job_id: int, tasks: Ranges | None) -> dict[str, Any]:
    """Say how a job stands: started, ended, base state (of its last record), the highest exit code of its records (a
    signal counts as 1), the wait status of the record with that, reason and nodes."""
    records = _records(state, job_id, tasks)
    if not records:
        raise unknown_job(state, job_id)
    whole = tasks is None and job_id in state.by_array
    # Members of an array that have left memory are remembered by their worst status.
    statuses = [job.exit_status for job in records] + ([state.array_status.get(job_id, 0)] if whole else [])
    worst = max(statuses, key=_exit_code)
    last = records[-1]
    return {
        "job_id": job_id,
        "started": any(job.state != JobState.PENDING for job in records),
        "ended": all(job.state > JobState.SUSPENDED and not job.completing for job in records),
        "state": JobState(last.state).name,
        "exit_code": _exit_code(worst),
        "exit_status": worst,
        "reason": last.state_text or last.reason,
        "nodes": nodelist(state, last.alloc.shares) if last.alloc is not None else "",
    }


def _records(state: State, job_id: int, tasks: Ranges | None) -> list[Job]:
    members = state.by_array.get(job_id)
    if members is None:
        job = state.jobs.get(job_id) if tasks is None else None
        return [] if job is None else [job]
    jobs = [state.jobs[one] for one in sorted(members)]
    return jobs if tasks is None else [job for job in jobs if _is_meant(job, tasks)]


def _is_meant(job: Job, tasks: Ranges) -> bool:
    if job.array_task_id != NO_TASK:
        return contains(tasks, job.array_task_id)
    return bool(intersection(job.array_pending, tasks))


def _exit_code(status: int) -> int:
    return status >> 8 & 0xFF if not status & 0x7F else 1

"""Walks through the jobs of a class in order."""

from __future__ import annotations

from collections.abc import Container, Iterator

from ctld.core import ranges
from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.core.queue import JobClass, order_key
from ctld.core.state import State
from muster.ids import NO_TASK
from muster.states import Reason


class Cursor:
    """Walks through a class in order, past jobs that cannot start now for reasons of their own."""

    __slots__ = ("_jobs", "_pairs", "_promised", "_running", "_tasks", "_waits", "job", "key", "room", "task")

    def __init__(self, state: State, jobs: JobClass, waits: dict[int, Wait], promised: Container[int] = ()) -> None:
        self._running = state.array_running
        self._pairs = jobs.pairs()
        self._jobs = state.jobs
        self._waits = waits
        self._promised = promised
        self._tasks: Iterator[int] = iter(())
        self.key = 0
        """Order key of the job; 0 when the class is exhausted."""
        self.job: Job
        self.task = NO_TASK
        """Member to start, of an array."""
        self.room = 0
        """Members that may start yet under the array's own limit; below 0: no limit."""
        self.next_job()

    def next_job(self) -> None:
        """Step to the next job that may start."""
        for priority, job_id in self._pairs:
            job = self._jobs[job_id]
            if job.booking is not None and job_id in self._promised:
                continue
            if job.completing:
                self._waits[job_id] = Wait(Reason.CLEANING)
                continue
            self.task, self.room = NO_TASK, -1
            if job.array_pending:
                if job.array_limit:
                    self.room = job.array_limit - self._running.get(job.array_job_id or job.id, 0)
                    if self.room <= 0:
                        self._waits[job_id] = Wait(Reason.ARRAY_LIMIT)
                        continue
                self._tasks = ranges.numbers(job.array_pending)
                self.task = next(self._tasks)
            self.job, self.key = job, order_key(priority, job_id)
            return
        self.key = 0

    def started(self) -> None:
        """Step on after a start: to the next member of the array, or the next job."""
        if self.task != NO_TASK:
            self.task = next(self._tasks, NO_TASK)
            self.room -= 1
            if self.task != NO_TASK:
                if self.room:
                    return
                self._waits[self.job.id] = Wait(Reason.ARRAY_LIMIT)
        self.next_job()

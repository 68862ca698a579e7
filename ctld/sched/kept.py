"""What earlier preemptions have promised, in the profiles of a calendar: bookings of waiting jobs, and the CPUs that
come back to suspended ones. What victims still hold is not taken twice."""

from __future__ import annotations

from collections.abc import Iterator

from ctld.core import ranges
from ctld.core.apply.indexes import held_shares
from ctld.core.booked import is_ending, threads
from ctld.core.decide.plan import run_limit_seconds
from ctld.core.model import Allocation, Job, NodeShare
from ctld.core.state import State
from ctld.core.times import limit_end
from ctld.sched.fleet import Fleet
from ctld.sched.profiles import Profiles
from ctld.sched.promised import Promised
from ctld.sched.releases import FAR, Row, end_of, held_until


class Kept:
    """Takes promises off profiles at one time."""

    def __init__(self, state: State, fleet: Fleet, at: int, profiles: Profiles) -> None:
        self._state = state
        self._fleet = fleet
        self._at = at
        self._profiles = profiles
        self._booked: list[tuple[NodeShare, int]] = []
        """Shares of bookings, with the time to which they are kept."""

    def keep(self, promised: Promised) -> None:
        """Take what was promised."""
        if promised.promises is None:
            return
        for start in promised.starts:
            self._book(self._state.jobs[start.job_id], start.partition, start.shares, self._at)
        for job_id in promised.waits:
            job = self._state.jobs[job_id]
            if job.booking is not None:
                begins = promised.waits[job_id].start_at or self._at + 1
                self._book(job, job.booking.partition, job.booking.shares, begins)
        for job_id in self._state.suspended:
            job = self._state.jobs[job_id]
            if job.preempted is not None and job.kill is None and job.alloc is not None:
                self._return(job, job.alloc)

    def _book(self, job: Job, partition: str, shares: tuple[NodeShare, ...], begins: int) -> None:
        end = end_of(begins, run_limit_seconds(job, self._state.partitions[partition]))
        for share in shares:
            counts = self._fleet.counts_of(share, partition)
            row = (end, share.node, share.cpus, share.memory_mib, counts)
            self._profiles.take(row, self._at, end)
            for until, held in self._held_of(share, memory=share.memory_mib):
                self._profiles.give(held, self._at, min(until, begins))
            self._booked.append((share, end))

    def _return(self, job: Job, alloc: Allocation) -> None:
        """Keep the CPUs of a job that goes on when nobody else has its cores, for as long as it has left then."""
        at, profiles, none = self._at, self._profiles, (0,) * self._fleet.width
        taken: list[tuple[int, Row]] = []
        for share in alloc.shares:
            mine, each = ranges.to_bitmap(share.cores), threads(self._state, share.node)
            for until, held in self._held_of(share, memory=0):
                taken.append((until, (FAR, share.node, held[2], 0, none)))
            for other, until in self._booked:
                if other.node == share.node:
                    count = (mine & ranges.to_bitmap(other.cores)).bit_count() * each
                    taken.append((until, (FAR, share.node, count, 0, none)))
        resumes = max([at, *(until for until, row in taken if row[2])])
        end = FAR if resumes >= FAR or job.limit_seconds < 0 else max(resumes + limit_end(job, at) - at, resumes + 1)
        for share in alloc.shares:
            profiles.take((end, share.node, share.cpus, 0, none), at, end)
        for until, row in taken:
            profiles.give(row, at, min(until, end))
        for share in held_shares(job):  # What it has kept meanwhile was thought to be held for ever.
            row = (FAR, share.node, share.cpus, share.memory_mib, self._fleet.counts_of(share, alloc.partition))
            profiles.give(row, end, FAR)

    def _held_of(self, share: NodeShare, memory: int) -> Iterator[tuple[int, Row]]:
        """Give what others hold now of a share (of its memory only what comes free soon), and until when."""
        state, node = self._state, share.node
        cores, gpus = ranges.to_bitmap(share.cores), ranges.to_bitmap(share.gpus)
        for job_id in state.node_jobs[node]:
            job = state.jobs[job_id]
            until = max(held_until(state, job), self._at + 1)
            for held in held_shares(job):
                if held.node != node:
                    continue
                cpus = (cores & ranges.to_bitmap(held.cores)).bit_count() * threads(state, node)
                shared = gpus & ranges.to_bitmap(held.gpus)
                counts = self._fleet.counts_of(NodeShare(node, 0, (), 0, ranges.from_bitmap(shared)))
                mib = min(memory, held.memory_mib) if is_ending(job) else 0
                memory -= mib
                yield until, (until, node, cpus, mib, counts)

"""What earlier preemptions have promised: at the start of a pass those jobs start whose victims have gone, and for the
others is kept what is free already."""

from __future__ import annotations

from collections.abc import Iterator

from ctld.core import ranges
from ctld.core.apply.indexes import held_shares, startable
from ctld.core.booked import Promises, Room, threads
from ctld.core.decide.plan import run_limit_seconds
from ctld.core.licenses import Licences
from ctld.core.limits.gate import Gate
from ctld.core.model import Booking, Job, NodeShare
from ctld.core.plan import Preempt, Start, Wait
from ctld.core.state import State
from ctld.sched.fleet import Fleet
from ctld.sched.licenses import NO_LICENCE
from ctld.sched.place import Scratch
from ctld.sched.releases import Row, end_of
from muster.ids import UnixTime
from muster.states import Reason


class Promised:
    """The promises of a state in a pass, and those that the pass makes."""

    def __init__(
        self, state: State, fleet: Fleet, at: int, closed: int, *, gate: Gate | None, licences: Licences
    ) -> None:
        """Args:
        closed: bitmap of the nodes that cannot be used now.
        gate: the limits, where any hold; what starts now is counted in, as it is among the licences.
        licences: those that are free.
        """
        self.promises = Promises(state) if state.booked or state.suspended else None
        self.starts: list[Start] = []
        self.waits: dict[int, Wait] = {}
        """By job id, of those whose victims have not gone, or that something else keeps from starting."""
        self.rows: list[Row] = []
        """What those will hold, as shares that come free at their ends; what those that start now hold."""
        self.started_rows: list[Row] = []
        self._state = state
        self._fleet = fleet
        self._at = at
        self._closed = closed
        self._gate = gate
        self._licences = licences
        if self.promises is not None:
            for job_id in state.booked:
                self._look(state.jobs[job_id], self.promises)

    def __contains__(self, job_id: object) -> bool:
        """Whether the pass has nothing more to do for a job."""
        return job_id in self.waits or any(start.job_id == job_id for start in self.starts)

    def keep_from(self, scratch: Scratch) -> None:
        """Take off what is promised, what starts now included."""
        if self.promises is None or not self.promises:
            return
        for node in self.promises.nodes:
            self._take(scratch, node, self.promises.kept(node))

    def add(self, scratch: Scratch, preempt: Preempt) -> Wait:
        """Keep what a preemption of this pass books; gives what the job waits for."""
        state = self._state
        leaving = {victim.job_id: victim for victim in preempt.victims}
        grace = max(victim.grace_seconds for victim in preempt.victims)
        start = self._at + grace + state.settings.kill_wait_seconds
        for share in preempt.shares:
            memory = share.memory_mib
            for job_id in state.node_jobs[share.node]:
                victim = leaving.get(state.jobs[job_id].id)
                if victim is not None and victim.mode != "SUSPEND":
                    memory -= sum(one.memory_mib for one in held_shares(state.jobs[job_id]) if one.node == share.node)
            cores = ranges.to_bitmap(share.cores) & scratch.cores[share.node]
            gpus = ranges.to_bitmap(share.gpus) & scratch.gpus[share.node]
            self._take(scratch, share.node, Room(cores, gpus, max(0, memory), 0))
        job = state.jobs[preempt.job_id]
        return self._wait(job, preempt.partition, preempt.shares, start)

    def _look(self, job: Job, promises: Promises) -> None:
        booking = job.booking
        assert booking is not None, "a booked job has a booking"
        if not any(owner == job.id for owner, _ in promises.bookings.get(booking.shares[0].node, ())):
            return  # It cannot be kept any more: the job is looked at like any other.
        if startable(job) and all(self._is_free(share, promises.kept(share.node, job.id)) for share in booking.shares):
            limited = self._start(job, booking)
            if limited is not None:
                self._wait(job, booking.partition, booking.shares, self._at + 1)
                self.waits[job.id] = limited
            return
        self._wait(job, booking.partition, booking.shares, max(self._at + 1, booking.starts_at))

    def _start(self, job: Job, booking: Booking) -> Wait | None:
        """Start a job, or say which limit keeps it from starting."""
        name, shares, licenses = booking.partition, booking.shares, job.spec.request.licenses
        limit = run_limit_seconds(job, self._state.partitions[name])
        if self._gate is not None:
            limited = self._gate.after(job, name, shares, limit)
            if limited is not None:
                return limited
        if licenses and self._licences.free(licenses) is None:
            return NO_LICENCE
        held = self._licences.take(licenses) if licenses else ""
        self.starts.append(Start(job.id, name, shares, booking.task_id, licenses=held))
        if self._gate is not None:
            self._gate.took(job, name, shares, limit)
        self.started_rows += self._rows(job, name, shares, self._at)
        return None

    def _wait(self, job: Job, partition: str, shares: tuple[NodeShare, ...], start: int) -> Wait:
        self.rows += self._rows(job, partition, shares, start)
        wait = Wait(Reason.RESOURCES, "", UnixTime(start), tuple(share.node for share in shares))
        self.waits[job.id] = wait
        return wait

    def _rows(self, job: Job, partition: str, shares: tuple[NodeShare, ...], start: int) -> Iterator[Row]:
        end = end_of(start, run_limit_seconds(job, self._state.partitions[partition]))
        for share in shares:
            yield end, share.node, share.cpus, share.memory_mib, self._fleet.counts_of(share, partition)

    def _is_free(self, share: NodeShare, kept: Room) -> bool:
        free, node = self._state.free, share.node
        cores, gpus = ranges.to_bitmap(share.cores), ranges.to_bitmap(share.gpus)
        return (
            not self._closed >> node & 1
            and cores & free.cores[node] & ~kept.cores == cores
            and gpus & free.gpus[node] & ~kept.gpus == gpus
            and share.cpus <= int(free.cpus[node])
            and (
                share.memory_mib <= int(free.memory[node]) - kept.memory_mib
                or not self._state.settings.memory_consumable
            )
        )

    def _take(self, scratch: Scratch, node: int, room: Room) -> None:
        scratch.cores[node] &= ~room.cores
        scratch.gpus[node] &= ~room.gpus
        view = scratch.view
        view.cpus[node] -= room.cores.bit_count() * threads(self._state, node)
        view.memory[node] -= room.memory_mib
        counts = self._fleet.free_counts(
            node, scratch.cores[node], scratch.gpus[node], more=scratch.more[node], rows=scratch.rows_on(node)
        )
        for column, count in zip(view.gpus, counts, strict=True):
            column[node] = count

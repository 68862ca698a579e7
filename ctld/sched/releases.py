"""What running jobs will give back, and when: their shares in order of their ends.

Kept between passes and changed by what came and went, as the state's log of runs tells: a pass costs what changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

import numpy as np

from ctld.core.apply.indexes import held_shares
from ctld.core.changes import ChangeLog
from ctld.core.model import UNLIMITED, Job
from ctld.core.state import State
from ctld.core.times import grace_end, limit_end
from ctld.sched.fleet import Column, Fleet, Ints, View
from muster.states import JobState

FAR = 1 << 62
"""The end of a job without limit."""
Row = tuple[int, int, int, int, tuple[int, ...]]
"""A share that comes free: end, node, CPUs, memory in MiB, GPUs by column."""
_BULK = 64
"""From so many changes on the columns are built anew instead of shifted."""


def end_of(at: int, limit_seconds: int) -> int:
    """Give the time at which a job that starts at `at` has to end."""
    return FAR if limit_seconds == UNLIMITED else at + limit_seconds


class Releases:
    """The shares of all jobs that hold nodes, by end."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.on_node: dict[int, dict[int, Row]] = {}
        """Node -> job id -> its share there."""
        self._log: ChangeLog | None = None
        """Of the state that is followed, and how far it was read."""
        self._read = 0
        self._known: dict[int, tuple[Job, list[Row]]] = {}
        self._rows: list[Row] = []
        self._columns: Ints = np.zeros((4 + fleet.width, 0), np.int64)
        """For large fleets: end, node, CPUs, memory, GPUs by column; sorted by end."""
        self._gone: list[Row] = []
        self._come: list[Row] = []
        """What `_columns` does not show yet."""

    def follow(self, state: State) -> Iterable[int]:
        """Bring the shares up to the state; give the nodes whose shares changed."""
        known, jobs, log = self._known, state.jobs, state.run_log
        changed = log.since(self._read) if log is self._log else None
        self._log, self._read = log, log.end
        if changed is not None and not changed:
            return ()
        running, completing = state.running, state.completing
        gone: list[Row] = []
        come: list[Row] = []
        for job_id in {*known, *running, *completing} if changed is None else set(changed):
            job = jobs[job_id] if job_id in running or job_id in completing else None
            entry = known.get(job_id)
            if entry is not None:
                if entry[0] is job:
                    continue
                gone += entry[1]
                for row in entry[1]:
                    del self.on_node[row[1]][job_id]
                del known[job_id]
            if job is not None:
                rows = list(_rows_of(state, self.fleet, job))
                known[job_id] = (job, rows)
                come += rows
                for row in rows:
                    self.on_node.setdefault(row[1], {})[job_id] = row
        if len(gone) + len(come) > _BULK:
            self._rows = sorted([row for _, rows in known.values() for row in rows])
            self._gone, self._come = [], []
            self._columns = np.zeros((4 + self.fleet.width, 0), np.int64)
        else:
            for row in gone:
                del self._rows[bisect_left(self._rows, row)]
            for row in come:
                insort(self._rows, row)
            self._gone += gone
            self._come += come
        return {row[1] for row in (*gone, *come)}

    def _shift(self) -> None:
        """Bring the columns up to the rows."""
        gone, come = self._gone, self._come
        self._gone, self._come = [], []
        if len(gone) + len(come) > _BULK or not self._columns.shape[1]:
            self._columns = _columns_of(self._rows, len(self._columns))
            return
        columns = self._columns
        again = set(gone).intersection(come)
        if again:  # What came and went meanwhile, or went and came.
            for row in again:
                for _ in range(min(gone.count(row), come.count(row))):
                    gone.remove(row)
                    come.remove(row)
        places = []
        for row in gone:
            flat = np.array((*row[:4], *row[4]), np.int64)
            first, last = np.searchsorted(columns[0], (row[0], row[0] + 1))
            same = np.flatnonzero((columns[:, first:last] == flat[:, None]).all(0)) + first
            places.append(next(int(place) for place in same if place not in places))
        if places:
            columns = np.delete(columns, places, 1)
        if come:
            flat_rows = _columns_of(sorted(come), len(columns))
            columns = np.insert(columns, np.searchsorted(columns[0], flat_rows[0]), flat_rows, 1)
        self._columns = columns

    @property
    def rows(self) -> list[Row]:
        """All shares, by end; not to be changed."""
        return self._rows

    def timeline(self, at: int, more: Iterable[Row] = ()) -> Timeline:
        """Give the shares from `at` on, with `more` of them."""
        if not self.fleet.small and (self._gone or self._come or not self._columns.shape[1]):
            self._shift()
        return Timeline(self.fleet, self._rows, self._columns, at, list(more))


class Timeline:
    """Shares that come free, in order. An end that has passed counts as the next second."""

    def __init__(self, fleet: Fleet, rows: list[Row], columns: Ints, at: int, more: list[Row]) -> None:
        self.soonest = at + 1
        """The earliest time of a future start."""
        self._fleet = fleet
        if fleet.small:
            self._rows = sorted([*rows, *more]) if more else rows
            self._size = len(self._rows)
        else:
            if more:
                columns = np.concatenate((columns, _columns_of(more, len(columns))), 1)
                columns = columns[:, np.argsort(columns[0], kind="stable")]
            self._columns = columns
            self._size = columns.shape[1]

    def __len__(self) -> int:
        return self._size

    def rows(self) -> Iterator[Row]:
        """Walk through the shares (small fleets)."""
        soonest = self.soonest
        for row in self._rows:
            yield row if row[0] >= soonest else (soonest, *row[1:])

    def end(self, place: int) -> int:
        """Give the end of the share at a place."""
        end = self._rows[place][0] if self._fleet.small else int(self._columns[0, place])
        return max(end, self.soonest)

    def until(self, time: int) -> int:
        """Count the shares that come free up to a time."""
        if time < self.soonest:
            return 0
        if self._fleet.small:
            return bisect_right(self._rows, time, key=lambda row: row[0])
        return int(np.searchsorted(self._columns[0], time, "right"))

    def release(self, view: View, low: int, high: int) -> None:
        """Add the shares [low, high) to a view."""
        if self._fleet.small:
            for _, node, cpus, memory, gpus in self._rows[low:high]:
                view.cpus[node] += cpus
                view.memory[node] += memory
                for column, count in zip(view.gpus, gpus, strict=True):
                    column[node] += count
            return
        part = self._columns[:, low:high]
        columns: list[Column] = [view.cpus, view.memory, *view.gpus]
        for column, amounts in zip(columns, part[2:], strict=True):
            # Amounts are far below 2**53, so sums in doubles are exact.
            column += np.bincount(part[1], amounts, self._fleet.size).astype(np.int64)

    def last_ends(self, until: int) -> list[int]:
        """Give for each node the last end not after `until` (large fleets)."""
        last = np.zeros(self._fleet.size, np.int64)
        high = int(np.searchsorted(self._columns[0], until, "right"))
        ends = np.maximum(self._columns[0, :high], self.soonest)
        last[self._columns[1, :high]] = ends  # In order: the last assignment stays.
        listed: list[int] = last.tolist()
        return listed


def _columns_of(rows: list[Row], height: int) -> Ints:
    if not rows:
        return np.zeros((height, 0), np.int64)
    return np.array([(*row[:4], *row[4]) for row in rows], np.int64).T.copy()


def held_until(state: State, job: Job) -> int:
    """Give the time at which what a job holds comes free: 0 for what an ended one still holds, which is about to be
    released. A killed run has KillWait left."""
    ended = job.id in state.completing
    end = 0 if ended else limit_end(job)
    if end < 0 or (job.state == JobState.SUSPENDED and not ended):  # Nobody knows how long it stands still.
        end = FAR
    if grace_end(job) and not ended:
        end = min(end, grace_end(job) + state.settings.kill_wait_seconds)
    if job.kill is not None and not ended:
        end = min(end, job.kill.at + (0 if job.kill.now else state.settings.kill_wait_seconds))
    return end


def _rows_of(state: State, fleet: Fleet, job: Job) -> Iterator[Row]:
    """Give a job's shares with the time at which each comes free."""
    if job.alloc is None:
        return
    end = held_until(state, job)
    for share in held_shares(job):
        gpus = fleet.counts_of(share, job.alloc.partition)
        yield (end, share.node, share.cpus, share.memory_mib, gpus)

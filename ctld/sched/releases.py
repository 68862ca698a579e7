"""What running jobs will give back, and when: their shares in order of their ends.

Kept between passes and changed by what came and went, as the state's log of runs tells: a pass costs what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import takewhile

import numpy as np

from ctld.core.apply.indexes import held_shares
from ctld.core.changes import ChangeLog
from ctld.core.model import UNLIMITED, Job
from ctld.core.state import State
from ctld.core.times import grace_end, limit_end
from ctld.sched.fleet import Column, Fleet, Ints, View
from ctld.sched.sorted_rows import SortedRows, columns_of
from muster.states import JobState

FAR = 1 << 62
"""The end of a job without limit."""
Row = tuple[int, int, int, int, tuple[int, ...]]
"""A share that comes free: end, node, CPUs, memory in MiB, GPUs by column."""
_BULK = 64
"""With more changes than these, and than a quarter of all jobs, everything is sorted anew."""
_BEFORE = -1
"""Before every end."""


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
        self._rows = SortedRows(4 + fleet.width)

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
        if len(gone) + len(come) > max(_BULK, len(known) // 4):
            self._rows = SortedRows(4 + self.fleet.width, (row for _, rows in known.values() for row in rows))
        else:
            for row in gone:
                self._rows.remove(row)
            for row in come:
                self._rows.add(row)
        return {row[1] for row in (*gone, *come)}

    @property
    def rows(self) -> list[Row]:
        """All shares, by end."""
        return list(self._rows)

    def timeline(self, at: int, more: Iterable[Row] = ()) -> Timeline:
        """Give the shares from `at` on, with `more` of them."""
        return Timeline(self.fleet, self._rows, at, sorted(more))


class Timeline:
    """Shares that come free, in order. An end that has passed counts as the next second. It holds until the next call
    of `Releases.follow`."""

    def __init__(self, fleet: Fleet, rows: SortedRows, at: int, more: list[Row]) -> None:
        self.soonest = at + 1
        """The earliest time of a future start."""
        self._fleet = fleet
        self._rows = rows
        self._more = more
        self._shown = columns_of([] if fleet.small else more, 4 + fleet.width)
        """For large fleets: by end, `more` and all shares of the first blocks, so many as were asked for."""
        self._loaded = 0
        self._covered = _BEFORE
        """There is no share with an end up to this that `_shown` has not."""

    def rows(self) -> Iterator[Row]:
        """Walk through the shares."""
        soonest = self.soonest
        for row in merge(self._rows, self._more) if self._more else self._rows:
            yield row if row[0] >= soonest else (soonest, *row[1:])

    def marks(self) -> Iterator[int]:
        """Give some ends, ascending, ever further apart: the last is that of everything."""
        blocks, last = self._rows, 0
        place, stride = 0, 1
        while place < len(blocks):
            mark = max(blocks.last(place), self.soonest)
            if mark > last:
                yield mark
                last = mark
            stride = min(2 * stride, max(1, len(blocks) - 1 - place))
            place += stride
        if self._more and max(self._more[-1][0], self.soonest) > last:
            yield max(self._more[-1][0], self.soonest)

    def ends(self, after: int, until: int) -> list[int]:
        """Give the ends behind `after` and up to `until`, each once, ascending."""
        low, soonest = self._raw(after), self.soonest
        if until < soonest:
            return []
        if self._fleet.small:
            rows = merge(self._rows, self._more)
            found = {max(row[0], soonest) for row in takewhile(lambda row: row[0] <= until, rows) if row[0] > low}
            return sorted(found)
        ends = self._part(low, until)[0]
        listed: list[int] = np.unique(np.maximum(ends, soonest)).tolist()
        return listed

    def release(self, view: View, after: int, until: int) -> None:
        """Add to a view the shares that come free behind `after` and up to `until`."""
        if until < self.soonest:
            return
        low = self._raw(after)
        columns: list[Column] = [view.cpus, view.memory, *view.gpus]
        if self._fleet.small:
            for end, node, *amounts, gpus in merge(self._rows, self._more):
                if end > until:
                    break
                if end > low:
                    for column, count in zip(columns, (*amounts, *gpus), strict=True):
                        column[node] += count
            return
        part = self._part(low, until)
        few = part.shape[1] < self._fleet.size
        for column, amounts in zip(columns, part[2:], strict=True):
            if few and not isinstance(column, list):
                np.add.at(column, part[1], amounts)
            else:  # Amounts are far below 2**53, so sums in doubles are exact.
                column += np.bincount(part[1], amounts, self._fleet.size).astype(np.int64)

    def last_ends(self, until: int) -> Ints:
        """Give for each node the last end not after `until` (large fleets)."""
        last = np.zeros(self._fleet.size, np.int64)
        if until >= self.soonest:
            part = self._part(_BEFORE, until)
            last[part[1]] = np.maximum(part[0], self.soonest)  # In order: the last assignment stays.
        return last

    def _raw(self, time: int) -> int:
        """Give the last end that has come by a time."""
        return time if time >= self.soonest else _BEFORE

    def _part(self, after: int, until: int) -> Ints:
        """Give the columns of the shares with an end behind `after` and up to `until`, in order."""
        if until > self._covered and self._loaded < len(self._rows):
            self._cover(until)
        low, high = np.searchsorted(self._shown[0], (after, until), "right")
        return self._shown[:, low:high]

    def _cover(self, until: int) -> None:
        """Have all shares with an end up to `until` among the columns."""
        rows, first = self._rows, self._loaded
        last = min(max(rows.from_end(until) + 1, 2 * first), len(rows))
        shown = np.concatenate([self._shown, *(rows.columns(place) for place in range(first, last))], 1)
        if self._more:
            shown = shown[:, np.argsort(shown[0], kind="stable")]
        self._shown, self._loaded = shown, last
        self._covered = max(until, rows.last(last - 1) - 1)


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

"""What is free on each node over time, exact and by resource: a step function a node.

A node's steps stand in one block of a padded array [nodes x (time and resources) x steps], so that many nodes are
judged in a few calls of numpy and one node is changed in a few microseconds. Times are kept in 32 bits relative to an
origin; what ends 34 years after it or later ends never (`FAR`). Past steps are forgotten when their room is needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ctld.sched.fleet import Column, Fleet, Ints, View
from ctld.sched.needs import Amount
from ctld.sched.releases import FAR, Row
from ctld.sched.steps import PAD, SHUT, Short, cut, insert, least_between, remove

HORIZON = 1 << 30
"""Relative time that stands for FAR: what jobs without limit hold comes free then."""
_FIRST_SLOTS = 8
_SPARE = 3
"""Slots that a node needs for a change: for two steps, and one behind the last that is never used."""
_FEW = 3
"""Up to so many shares of one job are taken one by one."""
_RENUMBER = 1 << 30
"""Changes after which they are counted from 0 again: their numbers are kept in 32 bits."""
_RECENT = 4096
"""Changes after which the sorted moments are made anew."""
_LOG = 1 << 16
"""Changes that are remembered for searches; at the bound the older half is dropped, and a search that did not follow
begins anew."""


class Profiles:
    """Free CPUs, memory and countable devices (the columns of `View.gpus`) of every node, from `now` on."""

    def __init__(self, fleet: Fleet, now: int = 0) -> None:
        """Begin with an empty cluster."""
        self.fleet = fleet
        self.now = now
        """Nothing is asked of earlier times."""
        self.origin = now
        self.log = np.zeros((_LOG, 4), np.int32)
        """Changes: node, start, end (relative), and 1 where more came free, 0 where less."""
        self.log_from = 0
        """Number of the first change that is still there."""
        self.log_to = 0
        """Number of the next change."""
        self.changes = 0
        """Changes so far of this generation."""
        self.changed: Short = np.zeros(fleet.size, np.int32)
        """By node: the number of its last change."""
        self.gains: list[tuple[int, int]] = []
        """Node and (relative) start of all changes that gave something back, in order."""
        self.generation = 0
        """What was remembered of an earlier generation is worth nothing."""
        self._free_now: Short | None = None
        self._moments: Ints = np.zeros(0, np.int64)
        """Every step's (relative time << 32) + node, ascending, as of change `_moments_at`; steps that are gone may
        still be there."""
        self._moments_at = -1
        self.data: Short
        """[node, 0]: relative times at which the steps begin; [node, 1 + r]: what is free of resource r from then on:
        CPUs, memory, devices by column. Unused slots have PAD, and nothing free."""
        self.lengths: Ints
        """Steps of each node."""
        self._closed = np.zeros(fleet.size, np.bool_)
        self.reset(fleet.capacity(), [], now)

    def reset(self, view: View, rows: Sequence[Row], now: int) -> None:
        """Build anew from what is free now and what comes free when; all nodes are open again.

        Args:
            view: what is free now; a node with negative CPUs (CLOSED) stays unusable. Better leave nodes open here
                and `close` them.
            rows: shares that are held now, with their ends; an end that has passed counts as the next second.
            now: the time.
        """
        size = self.fleet.size
        self.now = self.origin = now
        self._closed = np.zeros(size, np.bool_)
        self._free_now = None
        self.forget_log()
        columns = [view.cpus, view.memory, *view.gpus]
        base = np.empty((size, len(columns)), np.int64)
        for at, column in enumerate(columns):
            base[:, at] = column
        base = np.maximum(base, -SHUT)
        if not rows:
            self.lengths = np.ones(size, np.int64)
            self._allocate(len(columns), _FIRST_SLOTS)
            self.data[:, 0, 0] = 0
            self.data[:, 1:, 0] = base
            return
        flat = _flat(rows)
        ends = np.clip(flat[:, 0] - now, 1, HORIZON)
        order = np.lexsort((ends, flat[:, 1]))
        ends, nodes, amounts = ends[order], flat[order, 1], flat[order, 2:]
        fresh = np.ones(len(rows), np.bool_)
        fresh[1:] = (nodes[1:] != nodes[:-1]) | (ends[1:] != ends[:-1])
        firsts = np.flatnonzero(fresh)
        gains = np.add.reduceat(amounts, firsts, axis=0)
        nodes, ends = nodes[firsts], ends[firsts]
        some = gains.any(1)
        if not some.all():
            nodes, ends, gains = nodes[some], ends[some], gains[some]
        counts = np.bincount(nodes, minlength=size)
        offsets = np.cumsum(counts) - counts
        slots = np.arange(len(nodes)) - offsets[nodes] + 1
        sums = np.cumsum(gains, axis=0)
        before = np.zeros((size, len(columns)), np.int64)
        filled = counts > 0
        before[filled] = sums[offsets[filled]] - gains[offsets[filled]]
        self.lengths = counts + 1
        self._allocate(len(columns), int(counts.max()) + 3)
        self.data[:, 0, 0] = 0
        self.data[:, 1:, 0] = base
        self.data[nodes, 0, slots] = ends
        self.data[nodes, 1:, slots] = base[nodes] + sums - before[nodes]

    def take(self, row: Row, start: int, end: int) -> None:
        """Take a share (its own end is not looked at) off a node over [start, end); FAR as the end is for ever. What
        is taken only from FAR on is not kept."""
        self._change(row[1], (-row[2], -row[3], *[-count for count in row[4]]), start, end)

    def take_all(self, rows: Sequence[Row], start: int, end: int) -> None:
        """Take the shares of one job, no two of one node: what `take` does for each, in fewer steps."""
        if len(rows) <= _FEW:
            for row in rows:
                self.take(row, start, end)
            return
        first, last = self.relative(start), self.relative(end)
        if first >= last:
            return
        flat = _flat(rows)
        nodes, amounts = flat[:, 1], -flat[:, 2:].astype(np.int32)
        self._make_room(nodes)
        width = int(self.lengths[nodes].max()) + 2
        block, low, fresh = cut(self.data[nodes, :, :width], first)
        block, high, again = cut(block, last)
        slots = np.arange(width)
        inside = (slots >= low[:, None]) & (slots < high[:, None])
        block[:, 1:] += inside[:, None, :] * amounts[:, :, None]
        self.data[nodes, :, :width] = block
        self.lengths[nodes] += fresh + again.astype(np.int64)
        # Steps at which nothing changes any more.
        index = np.arange(len(nodes))
        for place in (high, low):
            same = (block[index, 1:, place] == block[index, 1:, place - 1]).all(1) & (place > 0)
            for one in np.flatnonzero(same).tolist():
                node = int(nodes[one])
                self.lengths[node] = remove(self.data[node], int(place[one]), int(self.lengths[node]))
        if self._free_now is not None and first <= self.relative(self.now) < last:
            self._free_now[:, nodes] += amounts.T
        self._note_all(nodes[amounts.any(1)], first, last)

    def give(self, row: Row, start: int, end: int) -> None:
        """Give back what was taken, or a part of its time."""
        self._change(row[1], (row[2], row[3], *row[4]), start, end)

    def close(self, nodes: Iterable[int]) -> None:
        """Make nodes unusable at all times, until they are opened; closed ones stay closed."""
        for node in nodes:
            if not self._closed[node]:
                self._closed[node] = True
                self._free_now = None
                self.data[node, 1, : self.lengths[node]] -= SHUT
                self._note(node, 0, PAD, 0)

    def open(self, nodes: Iterable[int]) -> None:
        """Make closed nodes usable again."""
        for node in nodes:
            if self._closed[node]:
                self._closed[node] = False
                self._free_now = None
                self.data[node, 1, : self.lengths[node]] += SHUT
                self._note(node, 0, PAD, 1)

    def advance(self, now: int) -> None:
        """Let time pass: what was before `now` may be forgotten. What is held until a time that has come is free
        then; `take` it for longer when a job stays."""
        if now > self.now:
            self.now = now
            self._free_now = None

    def copy(self) -> Profiles:
        """Give a copy that can be changed."""
        other = Profiles.__new__(Profiles)
        other.fleet, other.now, other.origin = self.fleet, self.now, self.origin
        other.data, other.lengths = self.data.copy(), self.lengths.copy()
        other._closed = self._closed.copy()
        other.log = np.zeros((_LOG, 4), np.int32)
        other.log_from = other.log_to = 0
        other.changes = other.generation = 0
        other.changed = np.zeros(self.fleet.size, np.int32)
        other.gains = []
        other._free_now = None
        other._moments, other._moments_at = self._moments, -1
        return other

    def window(self, start: int, end: int, nodes: Ints | None = None) -> View:
        """Give the least that is free on each node over [start, end); where `nodes` (indexes) are given, all others
        are closed."""
        least = self.least(nodes, self.relative(start), self.relative(end))
        columns: list[Column] = []
        for at in range(least.shape[1]):
            if nodes is None:
                column = least[:, at].astype(np.int64)
            else:
                column = np.full(self.fleet.size, -SHUT if at == 0 else 0, np.int64)
                column[nodes] = least[:, at]
            columns.append(column.tolist() if self.fleet.small else column)
        return View(columns[0], columns[1], columns[2:])

    def fits(self, nodes: Ints, amounts: Amount, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Tell for each of some nodes whether a share is free there all over [start, end)."""
        least = self.least(nodes, self.relative(start), self.relative(end))
        least -= np.array((amounts[0], amounts[1], *amounts[2]), np.int32)
        enough: npt.NDArray[np.bool_] = least.min(1) >= 0
        return enough

    def steps(self, node: int) -> list[tuple[int, tuple[int, ...]]]:
        """Give a node's steps from now on: time (FAR for the last end of jobs without limit), what is free then."""
        length = int(self.lengths[node])
        rows = self.data[node, :, :length].T.tolist()
        now = self.relative(self.now)
        past = sum(row[0] <= now for row in rows) - 1
        return [(self.absolute(max(row[0], now)), tuple(row[1:])) for row in rows[past:]]

    def relative(self, time: int) -> int:
        """Give a time as it stands in `data`; what was before `now` counts as now."""
        return min(max(time, self.now) - self.origin, HORIZON)

    def absolute(self, time: int) -> int:
        """Give a relative time as the rest of the world has it."""
        return FAR if time >= HORIZON else self.origin + time

    def least(self, nodes: Ints | None, start: int, end: int) -> Short:
        """Give the least that is free over [start, end) (relative) as [nodes, resources]."""
        slots = 1 + int(self.lengths.max() if nodes is None else self.lengths[nodes].max(initial=1))
        block = np.ascontiguousarray(self.data[:, :, :slots]) if nodes is None else self.data[nodes, :, :slots]
        times = block[:, 0]
        index = np.arange(len(block))
        if not len(block):
            return np.zeros((0, block.shape[1] - 1), np.int32)
        low = np.maximum((times > start).argmax(1) - 1, 0)  # What was before the first step is forgotten.
        return least_between(block, index, low, np.maximum((times >= end).argmax(1), low + 1))

    @property
    def free_now(self) -> Short:
        """What is free now, as [resource, node]. Not to be changed."""
        if self._free_now is None:
            self._free_now = self.free_at(np.arange(self.fleet.size), self.relative(self.now))
        return self._free_now

    def free_at(self, nodes: Ints, at: int) -> Short:
        """Give what is free on some nodes at a relative time, as [resource, node]."""
        block = self.data[nodes]
        slots = (block[:, 0] <= at).sum(1) - 1
        return np.ascontiguousarray(block[np.arange(len(nodes)), 1:, slots].T)

    def next_steps(self, nodes: Ints, at: int) -> Short:
        """Give for some nodes when their first step after a relative time begins, PAD where none does."""
        times = self.data[nodes, 0]
        slots = (times > at).argmax(1)
        found: Short = times[np.arange(len(nodes)), slots]
        found[found <= at] = PAD
        return found

    def moments(self, after: int, until: int) -> tuple[Ints, Ints]:
        """Give nodes and (relative) times of all steps that begin in (after, until], and perhaps of some that were
        there before; in no particular order."""
        known = self._known_moments()
        first, last = known.searchsorted((after + 1 << 32, until + 1 << 32))
        found = known[first:last]
        nodes, times = found & 0xFFFFFFFF, found >> 32
        recent = self.log[self._moments_at - self.log_from : self.log_to - self.log_from]
        if len(recent):
            more = [recent[(recent[:, at] > after) & (recent[:, at] <= until)][:, (0, at)] for at in (1, 2)]
            nodes = np.concatenate((nodes, *(part[:, 0] for part in more)))
            times = np.concatenate((times, *(part[:, 1] for part in more)))
        return nodes, times

    def reach(self, after: int, count: int) -> int:
        """Give a (relative) time up to which about so many steps begin after `after`."""
        known = self._known_moments()
        place = int(known.searchsorted(after + 1 << 32)) + count
        return int(known[place]) >> 32 if place < len(known) else HORIZON

    def _known_moments(self) -> Ints:
        if self._moments_at < self.log_from or self.log_to - self._moments_at > _RECENT:
            nodes, slots = np.nonzero(self.data[:, 0] <= HORIZON)
            found = (self.data[nodes, 0, slots].astype(np.int64) << 32) + nodes
            found.sort()
            self._moments = found
            self._moments_at = self.log_to
        return self._moments

    def forget_log(self) -> None:
        """Make all searches begin anew."""
        self.log_to += 1
        self.log_from = self.log_to
        self.changes = 0
        self.changed[:] = 0
        self.gains.clear()
        self.generation += 1

    def _change(self, node: int, amounts: tuple[int, ...], start: int, end: int) -> None:
        first, last = self.relative(start), self.relative(end)
        if first >= last:
            return
        length = int(self.lengths[node])
        if length + _SPARE > self.data.shape[2]:
            self._make_room(np.array([node]))
            length = int(self.lengths[node])
        block = self.data[node]
        times = block[0, :length].tolist()
        low = bisect_right(times, first) - 1
        high = bisect_left(times, last, low)
        fresh = times[low] != first
        if fresh:
            low += 1
            insert(block, low, length, first)
            length += 1
            high += 1
        if high == length or times[high - fresh] != last:
            insert(block, high, length, last)
            length += 1
        change = np.array(amounts, np.int32)
        block[1:, low:high] += change[:, None]
        around = block[1:, max(low - 1, 0) : high + 1].T.tolist()
        if around[-1] == around[-2]:
            length = remove(block, high, length)
        if low and around[0] == around[1]:
            length = remove(block, low, length)
        self.lengths[node] = length
        if self._free_now is not None and first <= self.relative(self.now) < last:
            self._free_now[:, node] += change
        if min(amounts) < 0:
            self._note(node, first, last, 0)
        if max(amounts) > 0:
            self._note(node, first, last, 1)

    def _note_all(self, nodes: Ints, start: int, end: int) -> None:
        """Note that less is free on some nodes."""
        count = len(nodes)
        if count > _LOG // 2 or self.changes + count >= _RENUMBER:
            for node in nodes.tolist():
                self._note(node, start, end, 0)
            return
        place = self._place(count)
        self.log[place : place + count, 0] = nodes
        self.log[place : place + count, 1:] = (start, end, 0)
        self.log_to += count
        self.changed[nodes] = np.arange(self.changes + 1, self.changes + count + 1)
        self.changes += count

    def _place(self, count: int) -> int:
        """Give where in the log so many changes have room, at most half of it."""
        place = self.log_to - self.log_from
        if place + count > _LOG:
            half = _LOG // 2
            self.log[:half] = self.log[half:].copy()
            self.log_from += half
            place -= half
        return place

    def _note(self, node: int, start: int, end: int, grown: int) -> None:
        self.log[self._place(1)] = (node, start, end, grown)
        self.log_to += 1
        if self.changes == _RENUMBER:
            self.forget_log()
        self.changes += 1
        self.changed[node] = self.changes
        if grown:
            self.gains.append((node, start))

    def _allocate(self, resources: int, slots: int) -> None:
        shape = (self.fleet.size, 1 + resources, max(_FIRST_SLOTS, 1 << (slots - 1).bit_length()))
        self.data = np.full(shape, -SHUT, np.int32)
        self.data[:, 0] = PAD

    def _make_room(self, nodes: Ints) -> None:
        """Make sure that each of the nodes can have two more steps, with a slot behind them: forget their past; where
        that is not enough that of all nodes with many steps, and make the blocks larger."""
        slots = self.data.shape[2]
        tight = nodes[self.lengths[nodes] + _SPARE > slots]
        if not len(tight):
            return
        self._forget_past(tight)
        if int(self.lengths[tight].max()) + _SPARE > slots:
            self._forget_past(np.flatnonzero(self.lengths > slots // 2))
            old = self.data
            self._allocate(old.shape[1] - 1, 2 * slots)
            self.data[:, :, :slots] = old

    def _forget_past(self, nodes: Ints) -> None:
        times = self.data[nodes, 0]
        past = np.maximum((times <= self.relative(self.now)).sum(1) - 1, 0)
        for node, count in zip(nodes[past > 0].tolist(), past[past > 0].tolist(), strict=True):
            block, length = self.data[node], int(self.lengths[node])
            block[:, : length - count] = block[:, count:length].copy()
            block[0, length - count : length] = PAD
            block[1:, length - count : length] = -SHUT
            self.lengths[node] = length - count


def _flat(rows: Sequence[Row]) -> Ints:
    """Give rows as a table: end, node, CPUs, memory, devices by column."""
    width = 4 + len(rows[0][4])
    flat = np.empty((len(rows), width), np.int64)
    flat[:, :4] = [row[:4] for row in rows]
    flat[:, 4:] = [row[4] for row in rows]
    return flat

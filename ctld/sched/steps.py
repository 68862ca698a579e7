"""The blocks of the profiles: a node's steps, ascending, in the columns of an array [time and resources, steps]."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctld.sched.fleet import Ints

Short: TypeAlias = npt.NDArray[np.int32]

PAD = (1 << 31) - 1
"""Relative time of slots that are not used: after everything."""
SHUT = 1 << 29
"""CPUs that are taken off a node that cannot be used."""


def insert(block: Short, place: int, length: int, time: int) -> None:
    """Make a step begin at a time, with what is free before it."""
    if place < length:
        block[:, place + 1 : length + 1] = block[:, place:length].copy()
    block[1:, place] = block[1:, place - 1]
    block[0, place] = time


def cut(block: Short, time: int) -> tuple[Short, Ints, npt.NDArray[np.bool_]]:
    """Make a step of each node begin at a time, where none does; each node has room for one more.

    Args:
        block: [node, time and resources, steps]; the last slot of each node is not used.

    Gives a new block, the slots of the steps that begin then, and which nodes have one more.
    """
    times = block[:, 0]
    after = (times > time).argmax(1)
    fresh: npt.NDArray[np.bool_] = times[np.arange(len(block)), after - 1] != time
    made = block.copy()
    moved = (np.arange(1, block.shape[2]) >= after[:, None]) & fresh[:, None]
    np.copyto(made[:, :, 1:], block[:, :, :-1], where=moved[:, None, :])
    made[fresh, 0, after[fresh]] = time
    return made, after - ~fresh, fresh


def remove(block: Short, place: int, length: int) -> int:
    """Drop a step; give the new number of steps."""
    block[:, place : length - 1] = block[:, place + 1 : length].copy()
    block[0, length - 1] = PAD
    block[1:, length - 1] = -SHUT
    return length - 1


def least_between(rows: Short, at: Ints, low: Ints, high: Ints) -> Short:
    """Give the least of each resource between two slots, as [question, resource].

    Args:
        rows: [node, resource, steps].
        at: of each question the place of its node in `rows`.
        low, high: its first slot, and the one after its last; there is one at least.
    """
    steps = rows.shape[2]
    bounds = np.empty(2 * len(at), np.int64)
    bounds[::2] = at * steps + low
    bounds[1::2] = at * steps + high
    found = np.empty((len(at), rows.shape[1]), np.int32)
    flat = np.zeros(len(rows) * steps + 1, np.int32)  # The last slot may be followed by nothing.
    for resource in range(rows.shape[1]):
        flat[:-1].reshape(len(rows), steps)[:] = rows[:, resource]
        found[:, resource] = np.minimum.reduceat(flat, bounds)[::2]
    return found


def first_slots(found: npt.NDArray[np.bool_]) -> Ints:
    """Give for each node the first slot of which something holds, the number of slots where it holds of none."""
    slots: Ints = np.where(found[:, -1], found.argmax(1), found.shape[1])
    return slots

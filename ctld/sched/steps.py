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


def least_between(block: Short, at: Ints, low: Ints, high: Ints) -> Short:
    """Give the least of each resource between two slots, as [question, resource].

    Args:
        block: [node, time and resources, steps], in one piece; the last slot of each node is not used.
        at: of each question the place of its node in the block.
        low, high: its first slot, and the one after its last; there is one at least.
    """
    rows, steps = block.shape[1:]
    begins = (at * (rows * steps))[:, None] + np.arange(steps, rows * steps, steps)
    bounds = np.empty((len(at), rows - 1, 2), np.int64)
    np.add(begins, low[:, None], out=bounds[:, :, 0])
    np.add(begins, high[:, None], out=bounds[:, :, 1])
    least: Short = np.minimum.reduceat(block.ravel(), bounds.ravel())[::2].reshape(len(at), rows - 1)
    return least

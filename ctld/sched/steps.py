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


def cut(block: Short, time: int) -> Ints:
    """Make a step of each node begin at a time, where none does; give 1 for those that have one more."""
    times = block[:, 0]
    low = (times <= time).sum(1) - 1
    new: Ints = (times[np.arange(len(block)), low] != time).astype(np.int64)
    some = np.flatnonzero(new)
    if len(some):
        slots = np.arange(block.shape[2])
        source = slots - (slots > low[some, None])
        fresh = np.take_along_axis(block[some], source[:, None, :], 2)
        fresh[np.arange(len(some)), 0, low[some] + 1] = time
        block[some] = fresh
    return new


def remove(block: Short, place: int, length: int) -> int:
    """Drop a step; give the new number of steps."""
    block[:, place : length - 1] = block[:, place + 1 : length].copy()
    block[0, length - 1] = PAD
    block[1:, length - 1] = -SHUT
    return length - 1

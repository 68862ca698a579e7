"""Short pauses of the garbage collector, however much the controller holds.

A full collection looks at every container there is: 160 ms with 100,000 pending jobs, in which nobody is answered.
What has survived one is state that stays, so it is put aside and never looked at again; reference counts still free it
when it goes. What is lost for good are cycles among objects that were alive at such a moment: a few connections.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (700, 10, 5)
"""Allocations in the first generation, then collections of each generation before one of the next: a full collection
comes after 35,000 containers more, which takes about 10 ms."""


def keep_pauses_short() -> None:
    """Put aside what is there now, and from now on what survives a full collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    if put_aside not in gc.callbacks:
        gc.callbacks.append(put_aside)


def put_aside(phase: str, info: dict[str, int]) -> None:
    """Called by the collector before and after each collection."""
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


@contextmanager
def not_collecting() -> Iterator[None]:
    """Look for no cycles meanwhile: for long work that makes none, and much else to look through."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()

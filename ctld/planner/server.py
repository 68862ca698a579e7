"""The planner's work: follow the controller, plan when it says so, answer."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from ctld.collector import not_collecting
from ctld.planner.copy import Copy, Frame
from ctld.planner.frames import ENCODE, ORDER, PART_JOBS, PART_STARTS, Kind, Part, Starts, Summary, frame, read
from ctld.sched.calendar import foresee
from ctld.sched.memory import PlanMemory
from muster.errors import Damaged


class Server:
    """Answers one controller.

    Args:
        stream: what it says.
        send: gives it bytes; blocks until they are taken.
        stopwatch: seconds, for how long a plan took.
    """

    def __init__(
        self, stream: BinaryIO, send: Callable[[bytes], None], stopwatch: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._send = send
        self._stopwatch = stopwatch
        self.copy = Copy()
        self._memory = PlanMemory()

    def run(self) -> None:
        """Work until the controller has gone.

        Raises:
            Damaged: the two are out of step.
        """
        while (found := self._next()) is not None:
            kind, payload = found
            if kind is Kind.EVENT:
                self.copy.follow(payload)
            elif kind is Kind.PRIORITIES:
                self.copy.rank(payload)
            elif kind is Kind.ORDER:
                self._plan(payload)
            elif kind is Kind.COPY:
                gc.unfreeze()
                if not self.copy.begin(payload, self._next):
                    return
                self._memory = PlanMemory()  # Classes have new numbers.
                gc.collect()
                # What was loaded stays: the collector need not walk through it again and again.
                gc.freeze()
            else:
                raise Damaged(f"the controller sent a frame {kind.name}", "a bug")

    def _next(self) -> Frame | None:
        return read(self._stream)

    def _plan(self, payload: bytes) -> None:
        order, state = ORDER.decode(payload), self.copy.state
        began = self._stopwatch()
        state.queue.hasten(order.at)
        bits = np.unpackbits(np.frombuffer(order.reachable, np.uint8), count=len(state.nodes))
        with not_collecting():
            made = foresee(
                state,
                order.at,
                reachable=bits.astype(np.bool_),
                spent=lambda: self._stopwatch() - began > order.most_seconds,
                memory=self._memory,
            )
        seconds = self._stopwatch() - began
        planned = list(made.planned.items())
        for begin in range(0, len(planned), PART_JOBS):
            self._send(frame(Kind.PART, ENCODE(Part(planned[begin : begin + PART_JOBS]))))
        for begin in range(0, len(made.starts), PART_STARTS):
            self._send(frame(Kind.STARTS, ENCODE(Starts(made.starts[begin : begin + PART_STARTS]))))
        self._send(
            frame(
                Kind.SUMMARY,
                ENCODE(
                    Summary(
                        number=self.copy.number,
                        made_at=made.made_at,
                        complete=made.complete,
                        past_window=made.past_window,
                        seconds=seconds,
                        queue=len(state.queue) + len(state.deferred),
                        depth=len(planned),
                        table=sum(one.start_at > 0 for _, one in planned),
                    )
                ),
            )
        )

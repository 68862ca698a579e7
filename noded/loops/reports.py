"""What is still to be said to the controller: everything that piles up while the last message is written is one."""

from __future__ import annotations

import asyncio

from muster.v1 import node_pb2
from noded.core.steps import Key, Result, Run


class Outbox:
    """Reports that wait for the stream.

    It is emptied when a stream ends: on the next one the results that count are reported from the steps' state, and the
    controller repeats the orders whose answers were lost.
    """

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._report = node_pb2.Report()

    def began(self, key: Key, at: int) -> None:
        """Say that a step is here."""
        self._report.began.add(job_id=key[0], run=key[1], step_id=key[2], at=at)
        self.wake.set()

    def ended(self, key: Key, result: Result, *, job_gone: bool) -> None:
        """Say how a step ended."""
        message = self._report.ended.add(
            job_id=key[0],
            run=key[1],
            step_id=key[2],
            started_at=result["started_at"],
            ended_at=result["ended_at"],
            user_ms=result["user_ms"],
            system_ms=result["system_ms"],
            max_rss_bytes=result["max_rss_bytes"],
            oom=result["oom"],
            error=result["error"],
            # Not in results that a stepd of an older release has left.
            node_at_fault=result.get("node_at_fault", False),
            job_gone=job_gone,
        )
        for rank, status in result["tasks"]:
            message.tasks.add(rank=rank, status=status)
        self.wake.set()

    def gone(self, run: Run) -> None:
        """Say that nothing of a run is left."""
        self._report.gone.add(job_id=run[0], run=run[1])
        self.wake.set()

    def signalled(self, serial: int) -> None:
        """Say that a signal order was carried out."""
        self._report.signalled.append(serial)
        self.wake.set()

    def missing(self, blob: bytes) -> None:
        """Ask for a blob; the launch that needs it comes again with it."""
        if blob not in self._report.missing_blobs:
            self._report.missing_blobs.append(blob)
        self.wake.set()

    def take(self) -> node_pb2.Report | None:
        """Give what is to be said now, and begin anew; None: nothing."""
        if not self.wake.is_set():
            return None
        self.wake.clear()
        report, self._report = self._report, node_pb2.Report()
        return report

    def clear(self) -> None:
        """Drop everything."""
        self.wake.clear()
        self._report = node_pb2.Report()

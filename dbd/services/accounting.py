"""Answers the controller's questions about history."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from dbd.queries.jobs import History, find
from muster import errors, rpc
from muster.records import HistoryFilter
from muster.v1 import accounting_pb2, accounting_pb2_grpc

log = logging.getLogger("dbd.accounting")

MAX_REPLY_BYTES = 48 << 20
"""Below what gRPC takes (muster.rpc.MAX_MESSAGE_BYTES)."""

_FILTER = msgspec.msgpack.Decoder(HistoryFilter)
_ENCODE = msgspec.msgpack.Encoder().encode


class AccountingService(accounting_pb2_grpc.AccountingServicer):
    """One question, one answer; the database is asked in a thread of `threads`."""

    def __init__(self, engine: Engine, threads: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._threads = threads

    async def Query(self, request: accounting_pb2.HistoryQuery, context: rpc.Context) -> accounting_pb2.HistoryReply:
        """Give the runs that a filter lets through, and what had been taken when it was asked."""
        try:
            peer = rpc.peer(context)
            if peer.role != "controller":
                raise errors.Denied(f"a host of role {peer.role} may not ask for history")
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, request.filter)
        except errors.MusterError as error:
            await rpc.answer_error(context, error)
            raise

    def _answer(self, packed: bytes) -> accounting_pb2.HistoryReply:
        try:
            asked = _FILTER.decode(packed)
        except msgspec.DecodeError as error:
            raise errors.InvalidInput(f"the filter cannot be read: {error}") from error
        try:
            history = find(self._engine, asked, int(time.time()))
        except DBAPIError as error:
            log.warning("a question is not answered: %s", error.orig)
            raise errors.Unavailable(f"the database does not answer: {_first_line(error)}") from error
        return _reply(asked, history)


def _reply(asked: HistoryFilter, history: History) -> accounting_pb2.HistoryReply:
    reply = accounting_pb2.HistoryReply(log_id=asked.log_id, cursor=history.cursor)
    size = 0
    for found in history.found:
        run = _ENCODE(found.run) if found.run is not None else b""
        steps = [_ENCODE(step) for step in found.steps]
        size += len(run) + sum(map(len, steps))
        if size > MAX_REPLY_BYTES:
            raise errors.TooLarge(
                "Query result exceeds size limit",
                f"more than {MAX_REPLY_BYTES >> 20} MiB: ask for a shorter time, fewer users, or without steps (-X)",
                slurm_code=7006,
            )
        reply.outcomes.append(accounting_pb2.Outcome(number=found.number, run=run, steps=steps))
    return reply


def _first_line(error: DBAPIError) -> str:
    return (str(error.orig).splitlines() or ["no reason given"])[0]

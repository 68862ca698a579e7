"""What events mean to accounting: the ends of runs and steps, as a follower and sacct read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from ctld.core.events import ArrayTasksCancelled, Event, JobFinished, JobRequeued, StepFinished, decode
from muster.records import RunRecord, StepRecord
from muster.v1 import accounting_pb2

MAX_MESSAGE_OUTCOMES = 1_000
MAX_MESSAGE_BYTES = 4 << 20
"""A message to a follower holds no more, so that it is one short transaction there."""

_ENCODE = msgspec.msgpack.Encoder().encode
_KINDS = tuple(
    b"\xa4kind" + msgspec.msgpack.encode(kind.__struct_config__.tag)
    for kind in (JobFinished, JobRequeued, ArrayTasksCancelled, StepFinished)
)
_HEAD_BYTES = 24
"""msgspec writes the tag first: what is no outcome is seen without decoding it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What event `number` says of a run (None: nothing) and of steps."""

    number: int
    at: int
    run: RunRecord | None
    steps: tuple[StepRecord, ...]


def outcome_of(number: int, event: Event) -> Outcome | None:
    """Give what an event means to accounting; None: nothing."""
    if isinstance(event, JobFinished):
        return Outcome(number, event.at, event.record, event.steps)
    if isinstance(event, StepFinished):
        return Outcome(number, event.at, None, (event.record,))
    if isinstance(event, JobRequeued):
        if event.record is None and not event.steps:
            return None  # it had ended before, and was told of then
        return Outcome(number, event.at, event.record, event.steps)
    if isinstance(event, ArrayTasksCancelled):
        return Outcome(number, event.at, event.record, ())
    return None


def outcome_in(number: int, payload: bytes) -> Outcome | None:
    """Give what a journaled event means to accounting; None: nothing."""
    head = payload[:_HEAD_BYTES]
    if not any(kind in head for kind in _KINDS):
        return None
    return outcome_of(number, decode(payload))


def messages(
    outcomes: Iterable[Outcome], up_to: int, *, log_id: str, cluster: str
) -> Iterator[accounting_pb2.Outcomes]:
    """Pack outcomes into messages of bounded size; the last one says `up_to`."""
    message = accounting_pb2.Outcomes(log_id=log_id, cluster=cluster)
    size = 0
    for one in outcomes:
        run = _ENCODE(one.run) if one.run is not None else b""
        steps = [_ENCODE(step) for step in one.steps]
        grown = len(run) + sum(map(len, steps))
        if message.outcomes and (size + grown > MAX_MESSAGE_BYTES or len(message.outcomes) >= MAX_MESSAGE_OUTCOMES):
            yield message
            message = accounting_pb2.Outcomes(log_id=log_id, cluster=cluster)
            size = 0
        message.outcomes.append(accounting_pb2.Outcome(number=one.number, run=run, steps=steps))
        message.up_to = one.number
        size += grown
    message.up_to = up_to
    yield message

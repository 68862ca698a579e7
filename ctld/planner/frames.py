"""What the controller and its planner process say to each other, over a socket pair.

    frame    length u32 (of what follows it), kind u8, payload

To the planner: a copy of the state (COPY, then SECTION and RECORD frames as a checkpoint has them, COPIED), then the
durable events in their order (EVENT), computed priorities, which are no events (PRIORITIES), and orders to plan
(ORDER). Back: the planned starts in parts (PART), those that are planned for now with all that a start takes (STARTS),
then what was planned on what (SUMMARY). Each order is answered once.

Both ends are of one release, so nothing here has a version.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import BinaryIO

import msgspec

from ctld.core.plan import Start
from ctld.sched.calendar import Planned
from muster.errors import Damaged
from muster.ids import UnixTime

HEADER = struct.Struct("<IB")
NUMBER = struct.Struct("<Q")
MOST_BYTES = 1 << 30
"""A longer frame is none: the two are out of step."""
PART_JOBS = 250
"""Planned starts in one frame: the controller reads one in well under a millisecond."""
PART_STARTS = 32
"""Starts for now in one frame: the controller checks and carries them out in one turn of its loop."""


class Kind(IntEnum):
    """What a frame holds."""

    COPY = 1
    """The number of the event that the copy is the state after."""
    SECTION = 2
    """The name of a section of the copy."""
    RECORD = 3
    COPIED = 4
    EVENT = 5
    """Number, then the event as the journal has it."""
    PRIORITIES = 6
    ORDER = 7
    PART = 8
    STARTS = 9
    SUMMARY = 10


class Priorities(msgspec.Struct, frozen=True, array_like=True):
    """Computed priorities that are new or have changed, by job id."""

    values: dict[int, int]
    anew: bool = False
    """What was said before no longer holds: nothing is computed any more, or all of it follows."""


class Order(msgspec.Struct, frozen=True, array_like=True):
    """Plan the whole queue now."""

    at: UnixTime
    reachable: bytes
    """A bit for each node, lowest index first in the highest bit (numpy.packbits): its stream is up."""
    most_seconds: float
    """Stop after so long with what was found."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Some of the planned jobs."""

    planned: list[tuple[int, Planned]]
    """By job id, in the order of the queue."""


class Starts(msgspec.Struct, frozen=True, array_like=True):
    """Some of what is planned for now."""

    starts: tuple[Start, ...]
    """In the order of the queue."""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """The end of an answer."""

    number: int
    """The event that the state planned on was the state after."""
    made_at: UnixTime
    complete: bool
    """False: the time was over before the end of the queue."""
    past_window: int
    """Jobs whose start is further away than is looked."""
    seconds: float
    """How long the planning took."""
    queue: int
    """Jobs that waited."""
    depth: int
    """Of them those that were looked at."""
    table: int
    """Of them those that have a place in the calendar."""


ENCODE = msgspec.msgpack.Encoder().encode
PRIORITIES = msgspec.msgpack.Decoder(Priorities)
ORDER = msgspec.msgpack.Decoder(Order)
STARTS = msgspec.msgpack.Decoder(Starts)
PART = msgspec.msgpack.Decoder(Part)
SUMMARY = msgspec.msgpack.Decoder(Summary)


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """Give a frame as it goes over the wire."""
    return HEADER.pack(len(payload) + 1, kind) + payload


def event_frame(number: int, event: bytes) -> bytes:
    """Give the frame of an encoded event."""
    return HEADER.pack(len(event) + 1 + NUMBER.size, Kind.EVENT) + NUMBER.pack(number) + event


def opened(head: bytes) -> tuple[int, Kind]:
    """Read a header: how many bytes of payload follow it, and of what kind they are.

    Raises:
        Damaged: it is none.
    """
    length, kind = HEADER.unpack(head)
    if not 1 <= length <= MOST_BYTES or not 1 <= kind <= Kind.SUMMARY:
        raise Damaged(f"a frame of kind {kind} and {length} bytes between controller and planner is none", "a bug")
    return length - 1, Kind(kind)


def read(stream: BinaryIO) -> tuple[Kind, bytes] | None:
    """Read one frame from a blocking stream; None at its end, also where that is in the middle of a frame.

    Raises:
        Damaged: what comes is no frame.
    """
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    length, kind = opened(head)
    payload = stream.read(length)
    return (kind, payload) if len(payload) == length else None

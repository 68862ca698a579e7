"""Frames of step input and output, between srun and a stepd, unread by whoever carries them.

A frame is (kind, rank, length) in network order and `length` bytes. srun is told of each task's output, of its end, and
of the end of the step on this node; it sends input.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = struct.Struct("!BII")
MAX_BYTES = 256 << 10
ALL = 0xFFFFFFFF
"""Rank of a frame that means all tasks."""

# From the step.
STDOUT = 1
STDERR = 2
EXITED = 3
"""Body: wait status, 4 bytes."""
DONE = 4
"""Nothing follows: all tasks of this node ended and all their output was sent."""
MESSAGE = 5
"""Body: a line of the stepd's own for srun's stderr, no newline."""
BEGAN = 6
"""Body: pid, 4 bytes."""
FAILED = 7
"""The tasks could not be launched; body: one sentence."""
# To the step.
STDIN = 16
STDIN_END = 17

NUMBER = struct.Struct("!I")


def pack(kind: int, rank: int, data: bytes = b"") -> bytes:
    """Make one frame; data over MAX_BYTES is the caller's error."""
    assert len(data) <= MAX_BYTES
    return HEADER.pack(kind, rank, len(data)) + data


class Reader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Take bytes and give the frames that are whole: (kind, rank, data).

        Raises:
            ValueError: the stream holds no frames (a length over the bound).
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            kind, rank, length = HEADER.unpack_from(buffer)
            if length > MAX_BYTES:
                raise ValueError(f"a frame of {length} bytes is over the bound of {MAX_BYTES}")
            end = HEADER.size + length
            if len(buffer) < end:
                return
            body = bytes(buffer[HEADER.size : end])
            del buffer[:end]
            yield kind, rank, body

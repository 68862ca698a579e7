"""Scripts and environments by content hash, the least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict

MOST_BYTES = 64 << 20
"""What an agent keeps; a blob that was dropped is asked for again."""


class Blobs:
    """A bounded cache."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()

    def put(self, name: bytes, data: bytes) -> None:
        """Keep a blob; others go to make room, but this one stays even if it alone is over the bound."""
        before = self._blobs.pop(name, None)
        if before is not None:
            self._bytes -= len(before)
        self._blobs[name] = data
        self._bytes += len(data)
        while self._bytes > self._most_bytes and len(self._blobs) > 1:
            _, dropped = self._blobs.popitem(last=False)
            self._bytes -= len(dropped)

    def get(self, name: bytes) -> bytes | None:
        """Give a blob; the empty name is empty data, None means it must be asked for."""
        if not name:
            return b""
        data = self._blobs.get(name)
        if data is not None:
            self._blobs.move_to_end(name)
        return data

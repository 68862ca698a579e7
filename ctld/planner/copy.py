"""The planner's own copy of the state, kept up by the frames that the controller sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ctld.core.apply import apply
from ctld.core.apply.sections import SECTION_TYPES, load
from ctld.core.events import decode
from ctld.core.model import Record
from ctld.core.state import State
from ctld.planner.frames import NUMBER, PRIORITIES, Kind
from muster.errors import Damaged

Frame = tuple[Kind, bytes]


class Copy:
    """A state that follows the controller's.

    Attributes:
        state: as it was after event `number`.
        number: the newest event in it.
    """

    def __init__(self) -> None:
        self.state = State()
        self.number = 0

    def begin(self, number: bytes, read: Callable[[], Frame | None]) -> bool:
        """Take a whole copy in place of what there is; False when the stream ended in the middle of it.

        Args:
            number: payload of the COPY frame.
            read: gives the frames behind it.

        Raises:
            Damaged: a section is none that this release knows.
        """
        reading = _Sections(read)
        state = load(reading)
        if reading.ended:
            return False
        self.state = state
        (self.number,) = NUMBER.unpack(number)
        return True

    def follow(self, payload: bytes) -> None:
        """Take the next event in.

        Raises:
            Damaged: it is not the next one.
        """
        (number,) = NUMBER.unpack_from(payload)
        if number != self.number + 1:
            raise Damaged(f"event {number} came where {self.number + 1} was due", "a bug")
        apply(self.state, decode(payload[NUMBER.size :]))
        self.number = number

    def rank(self, payload: bytes) -> None:
        """Take computed priorities in, of which no event speaks."""
        queue, jobs, said = self.state.queue, self.state.jobs, PRIORITIES.decode(payload)
        if said.anew:
            queue.reprioritise({number: job.priority for number in queue if (job := jobs[number]).priority})
            queue.priorities.clear()
        queue.reprioritise(said.values)


class _Sections:
    """Sections of records as `load` takes them, out of frames."""

    def __init__(self, read: Callable[[], Frame | None]) -> None:
        self._read = read
        self._name = ""
        """Of a section whose name was read behind the records of the one before it."""
        self.ended = False
        """The stream ended before the copy did."""

    def __iter__(self) -> Iterator[tuple[str, Iterable[Record]]]:
        self._next()
        while self._name:
            yield self._name, self._records(self._name)

    def _next(self) -> bytes | None:
        """Give the next record of this section; None at its end."""
        found = self._read()
        self._name = ""
        if found is None:
            self.ended = True
        elif found[0] is Kind.RECORD:
            return found[1]
        elif found[0] is Kind.SECTION:
            self._name = found[1].decode()
        elif found[0] is not Kind.COPIED:
            raise Damaged(f"a frame {found[0].name} came in the middle of a copy", "a bug")
        return None

    def _records(self, name: str) -> Iterator[Record]:
        decoder = msgspec.msgpack.Decoder(SECTION_TYPES[name])  # `load` has refused what is not there
        while (record := self._next()) is not None:
            yield decoder.decode(record)

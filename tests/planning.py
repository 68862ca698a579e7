"""A planner without its process: what the controller's side writes is kept, and taken in when a test says so."""

from __future__ import annotations

from io import BytesIO

from ctld.core.apply.sections import dump
from ctld.core.state import State
from ctld.planner.frames import ENCODE, PART, SUMMARY, Kind, Summary, read
from ctld.planner.server import Server
from ctld.sched.calendar import Planned


class Written:
    """A writer that keeps what it was given."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.data += data

    async def drain(self) -> None:
        """There is always room."""

    def kinds(self) -> list[Kind]:
        """Give the kinds of the frames that were written."""
        stream = BytesIO(self.data)
        found = []
        while (frame := read(stream)) is not None:
            found.append(frame[0])
        return found


class Standing:
    """A server that works off what was written, and keeps its answers."""

    def __init__(self) -> None:
        self.written = Written()
        self._answers = BytesIO()
        self._stream = BytesIO()
        self.server = Server(self._stream, self._keep)

    def _keep(self, data: bytes) -> None:
        self._answers.write(data)

    @property
    def state(self) -> State:
        """The copy."""
        return self.server.copy.state

    @property
    def answered(self) -> bytes:
        """The bytes of the last answers."""
        return self._answers.getvalue()

    def work(self) -> list[tuple[dict[int, Planned], Summary]]:
        """Take all in that was written since the last call; give the answers."""
        for one, data in ((self._stream, self.written.data), (self._answers, b"")):
            one.seek(0)
            one.truncate()
            one.write(data)
            one.seek(0)
        self.written.data = b""
        self.server.run()
        self._answers.seek(0)
        answers: list[tuple[dict[int, Planned], Summary]] = []
        planned: dict[int, Planned] = {}
        while (found := read(self._answers)) is not None:
            if found[0] is Kind.PART:
                planned.update(PART.decode(found[1]).planned)
            elif found[0] is Kind.SUMMARY:
                answers.append((planned, SUMMARY.decode(found[1])))
                planned = {}
        return answers


def records_of(state: State) -> dict[str, list[bytes]]:
    """Give all records of a state as they are stored, to compare two."""
    return {name: sorted(ENCODE(record) for record in records) for name, records in dump(state)}

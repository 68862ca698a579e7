"""What was used before now, as limits look at it: the decayed meters of `State.usage`."""

from __future__ import annotations

from ctld.core.limits.book import Key
from ctld.core.state import State
from ctld.core.usage import Spent
from muster.ids import UnixTime


class Meters:
    """Readings of the meters; each is read once a time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._read: dict[tuple[Key, int], Spent] = {}

    def tres_minutes(self, scope: Key, tres: str, at: UnixTime) -> float:
        """Give TRES minutes."""
        return self._of(scope, at).tres.get(tres, 0.0) / 60

    def wall_minutes(self, scope: Key, at: UnixTime) -> float:
        """Give minutes of wall time."""
        return self._of(scope, at).wall / 60

    def _of(self, scope: Key, at: UnixTime) -> Spent:
        found = self._read.get((scope, at))
        if found is None:
            found = self._read[scope, at] = self._reading(scope, at)
        return found

    def _reading(self, scope: Key, at: UnixTime) -> Spent:
        kind, whose = scope
        if kind == "association":
            return self._state.usage.of_association(int(whose), at)
        qos = self._state.accounts.qos.get(str(whose))
        return self._state.usage.of_qos(qos.id if qos is not None else 0, at)

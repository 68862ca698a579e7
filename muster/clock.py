"""Time as an argument: daemons ask a Clock, simulations give their own."""

from __future__ import annotations

import time
from typing import Protocol

from muster.ids import UnixTime


class Clock(Protocol):
    """Says what time it is."""

    def now(self) -> UnixTime:
        """Give the time in whole seconds since the epoch."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> UnixTime:
        """Give the time in whole seconds since the epoch."""
        return UnixTime(int(time.time()))

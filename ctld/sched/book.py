"""The promises that passes keep: one for the first job of each partition that has to wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ctld.core.model import Request
from ctld.core.plan import Wait
from ctld.sched.backfill import Reservation
from ctld.sched.fleet import Ints
from ctld.sched.units import Units
from ctld.sched.wake import Place


@dataclass(slots=True, eq=False)
class Hold:
    """A start that is promised, and what shows whether it still holds and whether an earlier one is possible."""

    job_id: int
    partition: str
    request: Request
    limit_seconds: int
    place: Place
    """Where the job stands."""
    reservation: Reservation | None
    """None: no start is known, whatever comes free."""
    wait: Wait
    units: Units | None = None
    early: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """By place in `units.nodes`: units a second before the start."""
    total: int = 0
    """Sum of `early`."""
    before: tuple[Reservation, ...] = ()
    """The promises to others that it was made beside."""
    touched: set[int] = field(default_factory=set)
    """Nodes that changed since it was looked at."""
    checked: bool = False
    """`units`, `early` and `before` hold."""

    @property
    def nodes(self) -> Iterable[int]:
        """Where it is."""
        return self.reservation.spare if self.reservation is not None else ()

    def copy(self) -> Hold:
        """Give what of it a pass with a fresh memory may know: the promise alone."""
        made = self.reservation
        if made is not None:
            spare = {node: list(left) for node, left in made.spare.items()}
            made = Reservation(made.job_id, made.start_at, made.end_at, list(made.held), spare)
        return Hold(self.job_id, self.partition, self.request, self.limit_seconds, self.place, made, self.wait)

    def touch(self, node: int) -> None:
        """Note that a node changed, if that matters."""
        if self.units is None or self.units.place[node] >= 0:
            self.touched.add(node)

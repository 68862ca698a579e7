"""Who has nodes for himself, now and in a calendar: nodes that are kept for one user (--exclusive=user)."""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core.state import State
from ctld.core.times import limit_end
from ctld.sched.releases import FAR


class Tenants:
    """The users of nodes over time.

    Args:
        watch: some pending job may share nodes with its own user only, so that whoever is planned anywhere is noted.
    """

    def __init__(self, state: State, at: int, *, watch: bool) -> None:
        self._owned: dict[int, tuple[int, int]] = {}
        """Node -> (user, until when it is kept for that user)."""
        self._foreign_to: dict[int, dict[int, int]] = {}
        self._planned: dict[int, list[tuple[int, int, int]]] | None = {} if watch else None
        """Node -> (user, start, end) of what is planned there."""
        for node, owner in enumerate(state.free.owner):
            if owner >= 0:
                ends = [limit_end(state.jobs[job_id], at) for job_id in state.node_jobs[node]]
                self._owned[node] = owner, max((FAR if end < 0 else end for end in ends), default=at)

    def foreign(self, uid: int) -> dict[int, int]:
        """Give the nodes that are kept for others, with the end of that; not to be changed."""
        known = self._foreign_to.get(uid)
        if known is None:
            known = {node: until for node, (owner, until) in self._owned.items() if owner != uid}
            self._foreign_to[uid] = known
        return known

    def others(self, uid: int, end: int) -> list[int]:
        """Give the nodes on which something of other users is planned before `end`."""
        return [
            node
            for node, runs in (self._planned or {}).items()
            if any(who != uid and begins < end for who, begins, _ in runs)
        ]

    def add(self, uid: int, nodes: Sequence[int], start: int, end: int) -> None:
        """Note a planned run."""
        if self._planned is not None:
            for node in nodes:
                self._planned.setdefault(node, []).append((uid, start, end))

    def remove(self, uid: int, nodes: Sequence[int], start: int, end: int) -> None:
        """Undo `add`."""
        if self._planned is not None:
            for node in nodes:
                self._planned[node].remove((uid, start, end))

    def own(self, uid: int, nodes: Sequence[int], end: int) -> None:
        """Keep nodes for a user."""
        for node in nodes:
            until = self._owned[node][1] if node in self._owned else 0
            self._owned[node] = uid, max(until, end)
        self._foreign_to.clear()

"""A controller's reading side on a local socket, in a thread, and the real commands run against it.

Commands run as their launchers start them: `python -I -S`, nothing of this process but MUSTER_SOCKET and TZ.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ctld.core.model import Caller
from ctld.core.plan import Plan
from ctld.core.state import State
from ctld.loops.links import Link, Links
from ctld.loops.priority import Priorities
from ctld.loops.statistics import Statistics
from ctld.sched.foreseen import Foreseen
from ctld.sched.memory import PlanMemory
from ctld.services import priorities, statistics
from ctld.services.door import Door
from ctld.services.views.routes import Context, routes
from ctld.store.memory import MemoryJournal
from ctld.store.store import Store
from muster.ids import UnixTime
from tests.builders import NOON
from tests.serving import answering, command_line

CONFIG = (("ClusterName", "cluster"), ("MaxArraySize", "1001"), ("SelectType", "select/cons_tres"))


@dataclass
class StandingClock:
    """A clock that a test moves."""

    at: UnixTime = NOON

    def now(self) -> UnixTime:
        return self.at


@dataclass
class FixedOverlay:
    """A scheduler and a planner that have planned what the test says."""

    overlay: Plan
    foreseen: Foreseen = field(default_factory=Foreseen)
    memory: PlanMemory = field(default_factory=PlanMemory)


def links_to(state: State, *, without: Sequence[int] = ()) -> Links:
    """Give the links of a state with every node reachable but those named."""
    links = Links()
    for node in state.nodes:
        if node.index not in without:
            link = Link.__new__(Link)
            link.node = node.index
            link.launched = {}
            links.up[node.index] = link
    return links


def door_to(
    state: State,
    links: Links,
    *,
    overlay: Plan | None = None,
    foreseen: Foreseen | None = None,
    clock: StandingClock | None = None,
    seconds: Callable[[], float] = time.perf_counter,
) -> Door:
    """Give a door with the reading routes over a state."""
    clock = clock or StandingClock()
    planned = FixedOverlay(overlay or Plan(made_at=clock.at), foreseen or Foreseen())
    counted = Statistics(clock)
    door = Door(statistics=counted)
    store = Store(state, MemoryJournal())
    store.subscribe(counted.take)
    computed = Priorities(store, clock)
    computed.prime()
    door.add(priorities.routes(priorities.Context(store, computed, clock)))
    door.add(statistics.routes(statistics.Context(store, links, counted, clock, lambda: 3)))
    door.add(
        routes(
            Context(
                store,
                planned,
                planned,
                links,
                clock,
                CONFIG,
                "0.1.0",
                host="head",
                started_at=NOON,
                seconds=seconds,
            )
        )
    )
    return door


@dataclass
class Served:
    """The served state; `run` runs a command against it."""

    state: State
    links: Links
    socket: Path
    clock: StandingClock

    def run(self, command: str, *argv: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of cli/ as its launcher does."""
        return run(command, *argv, socket=self.socket, stdin=stdin, **environment)

    def out(self, command: str, *argv: str, **environment: str) -> str:
        """Run a command that must succeed silently on standard error; give its standard output."""
        done = self.run(command, *argv, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


def run(
    command: str, *argv: str, socket: Path, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of cli/ as its launcher does, with this socket."""
    return subprocess.run(
        command_line(command, *argv),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"MUSTER_SOCKET": str(socket), "TZ": "UTC", "MUSTER_PATIENCE": "0", **environment},
    )


@contextmanager
def served(
    state: State,
    folder: Path,
    *,
    overlay: Plan | None = None,
    foreseen: Foreseen | None = None,
    links: Links | None = None,
    clock: StandingClock | None = None,
) -> Iterator[Served]:
    """Serve a state on a socket in `folder` while the block runs."""
    clock = clock or StandingClock()
    links = links or links_to(state)
    door = door_to(state, links, overlay=overlay, foreseen=foreseen, clock=clock)
    path = folder / "sock"

    async def answer(uid: int, gid: int, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        found = await door.answer(Caller(uid=uid, gid=gid), method, target, body)
        return found.status, found.body

    with answering(path, answer):
        yield Served(state, links, path, clock)

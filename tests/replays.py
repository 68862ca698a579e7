"""Recorded workloads for tests: where they are, and how much of them is replayed.

Without the traces (see `bench.traces`) a test is skipped and says so. MUSTER_FULL_REPLAYS=1 replays them whole.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace as change

from bench import traces
from ctld.sim.figures import Figures, figures
from ctld.sim.machine import Machine
from ctld.sim.reading import read_trace
from ctld.sim.replay import Outcome, replay
from ctld.sim.workload import Trace

FULL = os.environ.get("MUSTER_FULL_REPLAYS", "") not in ("", "0")


def trace(name: str, cut: int) -> Trace:
    """Read a trace, cut behind `cut` jobs unless all is to be replayed; skips the test where it is not there."""
    folder = traces.folder()
    if folder is None or not (folder / name).is_file():
        pytest.skip(f"{name} is not here: name the folder of the traces in MUSTER_TRACES")
    whole = _read(folder / name)
    return whole if FULL else replace(whole, jobs=whole.jobs[:cut])


@cache
def _read(path: Path) -> Trace:
    return read_trace(path)


def with_settings(machine: Machine, **settings: object) -> Machine:
    """Give the machine with other settings."""
    command = replace(machine.command, settings=change(machine.command.settings, **settings))
    return replace(machine, command=command)


def judged(machine: Machine, jobs: Trace) -> tuple[Outcome, Figures]:
    """Replay and work out the figures; every job ran, and nothing that was planned was refused."""
    outcome = replay(machine, jobs.jobs)
    found = figures(machine, outcome)
    assert found.ran == found.jobs, found.refusals
    assert found.stale_starts == 0
    return outcome, found

"""Replays of jobs that ask where their nodes lie: each gets what it waited for, and no promise is broken."""

from __future__ import annotations

from dataclasses import replace as changed

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.sim.machine import Machine, plain
from ctld.sim.replay import replay
from ctld.sim.workload import Asks, TraceJob, in_order
from tests.topologies import a_tree

T = 1_700_000_000
RACK = 3
_ASKS = Asks()


def a_machine(racks: int, *, longest_wait: int) -> Machine:
    """Racks of three equal nodes below one switch."""
    machine = plain(racks * RACK, 2)
    given = replace(
        machine.command.settings,
        topologies=(a_tree((RACK,) * racks, levels=("spine", "rack")),),
        max_switch_wait_seconds=longest_wait,
    )
    return changed(machine, command=changed(machine.command, settings=given))


@st.composite
def jobs(draw: st.DrawFn, nodes: int) -> tuple[TraceJob, ...]:
    """Up to twenty jobs whose limits are their run times."""
    made = []
    for number in range(draw(st.integers(2, 20))):
        wish: dict[str, object] = {}
        kind = draw(st.sampled_from(("", "switches", "required", "preferred", "contiguous")))
        most = RACK if kind == "required" else min(nodes, 5)
        count = draw(st.integers(1, most))
        if kind == "switches":
            wish["switches"] = draw(st.sampled_from(("1", "2", "1@0", "1@0:30", "1@UNLIMITED")))
        elif kind == "contiguous":
            wish["contiguous"] = True
        elif kind:
            wish["topology"] = f"{kind}:rack"
        ask = _ASKS.get(nodes=[count, count], exclusive="node", **wish)
        runtime = draw(st.integers(1, 120))
        made.append(TraceJob(str(number), T + draw(st.integers(0, 200)), runtime, ask, runtime))
    return in_order(made)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_was_asked_for_is_waited_for_and_promises_are_kept(data: st.DataObject) -> None:
    racks, longest = data.draw(st.integers(1, 3)), data.draw(st.sampled_from((0, 45, 300)))
    workload = data.draw(jobs(racks * RACK))
    outcome = replay(a_machine(racks, longest_wait=longest), workload)
    assert outcome.stale_starts == 0
    for place, job in enumerate(workload):
        start, nodes = outcome.start[place], [share.node for share in outcome.shares[place]]
        assert start >= 0, f"job {job.label} never started: {outcome.refused}"
        spans = len({node // RACK for node in nodes})
        if job.ask.topology == "required:rack":
            assert spans == 1
        if job.ask.contiguous:
            assert nodes == list(range(nodes[0], nodes[0] + len(nodes)))
        if job.ask.switches:
            few, _, wait = job.ask.switches.partition("@")
            patience = min(longest, {"": longest, "0": 0, "0:30": 30, "UNLIMITED": longest}[wait])
            assert spans <= int(few) or start >= job.submitted_at + patience
        promised = outcome.promised[place]
        assert not 0 <= promised < start, f"job {job.label} was promised {promised - T} and started at {start - T}"

"""With true limits and first come, first served, a replay keeps every promised start."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ctld.sim.machine import Machine, from_nodes, plain
from ctld.sim.replay import replay
from ctld.sim.workload import Asks, TraceJob, TraceNodes, in_order

T = 1_700_000_000
_ASKS = Asks()


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A few equal nodes, or two kinds of them."""
    if draw(st.booleans()):
        return plain(draw(st.integers(1, 5)), draw(st.integers(1, 4)), gpus=draw(st.integers(0, 2)))
    return from_nodes([TraceNodes("a[1-2]", 2), TraceNodes("b[1-2]", 4, gpus=2)], "two kinds")


@st.composite
def jobs(draw: st.DrawFn, machine: Machine) -> tuple[TraceJob, ...]:
    """Up to thirty jobs whose limits are their run times."""
    made = []
    for number in range(draw(st.integers(2, 30))):
        nodes = min(draw(st.sampled_from((1, 1, 1, 2, 3))), len(machine.command.nodes))
        kind = draw(st.integers(0, 3))
        gpus = str(draw(st.integers(1, 2))) if kind == 0 else None
        whole = "node" if kind == 1 else None
        ask = _ASKS.get(nodes=[nodes, nodes], ntasks=nodes, cpus_per_task=draw(st.integers(1, 4)),
                        gpus_per_node=gpus, exclusive=whole)  # fmt: skip
        runtime = draw(st.integers(1, 120))
        made.append(TraceJob(str(number), T + draw(st.integers(0, 200)), runtime, ask, runtime))
    return in_order(made)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_job_starts_after_its_first_promised_start(data: st.DataObject) -> None:
    machine = data.draw(machines())
    workload = data.draw(jobs(machine))
    outcome = replay(machine, workload)
    assert outcome.stale_starts == 0
    assert sum(start >= 0 for start in outcome.start) == len(workload) - sum(outcome.refused.values())
    late = [
        (job.label, start - T, promised - T)
        for job, start, promised in zip(workload, outcome.start, outcome.promised, strict=True)
        if 0 <= promised < start
    ]
    assert not late

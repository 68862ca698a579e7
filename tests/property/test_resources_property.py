"""Random requests for cores and devices on small nodes: what is given is free, of the right kind, and comes back."""

from __future__ import annotations

from itertools import combinations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.apply import apply
from ctld.core.apply.indexes import rebuild
from ctld.core.cluster import Device, Settings
from ctld.core.commands import ApplyPlan
from ctld.core.decide.plan import apply_plan
from ctld.core.invariants import check
from ctld.core.model import FineRequest, GpuRequest, GresRequest, NodeShare, Request
from ctld.core.state import State
from ctld.sched.cycle import plan
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_node_spec, a_partition, a_state
from tests.placing import everywhere, queued

FLAGS = ("enforce-binding", "disable-binding")


@st.composite
def clusters(draw: st.DrawFn) -> State:
    """Up to two nodes of two sockets with four GPUs near them, shards, cards and a counted resource."""
    count = draw(st.integers(1, 2))
    flags = draw(
        st.sets(st.sampled_from(("cr_one_task_per_core", "cr_core_default_dist_block", "ll_shared_gres")), max_size=2)
    )
    state = a_state(count, gpus=0, settings=Settings(require_registration=False, select_flags=tuple(sorted(flags))))
    near = draw(st.booleans())
    devices = (
        *((Device("gpu", 2, "a", 0, cores=(0, 1)), Device("gpu", 2, "b", 2, cores=(2, 3))) if near else ()),
        Device("shard", 2, "a", 0, each=4),
        Device("nic", 2, "", 0),
        Device("bandwidth", 10),
    )
    for index in range(count):
        spec = a_node_spec(f"n{index + 1}", cpus=8, sockets=2, threads=2, memory_mib=1000, gpus=0)
        spec = replace(spec, gpus=("a", "a", "b", "b"), devices=devices, core_spec_count=draw(st.integers(0, 1)))
        state.nodes[index] = replace(state.nodes[index], spec=spec)
    jobs = draw(st.sampled_from((1, 1, 2)))
    state.partitions["main"] = a_partition(
        nodes=count,
        oversubscribe="FORCE" if jobs > 1 else "NO",
        oversubscribe_jobs=jobs,
        max_cpus_per_node=draw(st.sampled_from((-1, -1, 4))),
    )
    rebuild(state)
    return state


@st.composite
def requests(draw: st.DrawFn) -> Request:
    gres = []
    for name, most in (("shard", 4), ("nic", 2), ("bandwidth", 6)):
        if draw(st.integers(0, 3)) == 0:
            gres.append(GresRequest(name, draw(st.integers(1, most))))
    gpus: tuple[GpuRequest, ...] = ()
    if not any(one.name == "shard" for one in gres) and draw(st.booleans()):
        gpus = (GpuRequest(draw(st.sampled_from(("", "a", "b"))), draw(st.integers(1, 2))),)
    fine = FineRequest(
        gres=tuple(gres),
        gres_flags=(draw(st.sampled_from(FLAGS)),) if len(gpus) > 0 and draw(st.booleans()) else (),
        threads_per_core=draw(st.sampled_from((0, 0, 1, 2))),
        ntasks_per_core=draw(st.sampled_from((0, 0, 1))),
        ntasks_per_socket=draw(st.sampled_from((0, 0, 1))),
    )
    return Request(
        ntasks=draw(st.integers(1, 3)),
        nodes_max=1,
        cpus_per_task=draw(st.integers(1, 2)),
        memory_per_node_mib=10,
        gpus_per_node=gpus,
        fine=None if fine == FineRequest() else fine,
        exclusive="node" if draw(st.integers(0, 7)) == 0 else "",
    )


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.lists(requests(), min_size=1, max_size=8))
def test_what_is_given_is_free_and_of_the_right_kind(state: State, asked: list[Request]) -> None:
    before = state.free.as_lists()
    queued(state, *(a_job(number, request=request, priority=100 - number) for number, request in enumerate(asked, 1)))
    rebuild(state)
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    events = apply_plan(state, ApplyPlan(made), UnixTime(NOON))
    assert len(events) == len(made.starts)
    for event in events:
        apply(state, event)
        check(state)
    for start in made.starts:
        request = state.jobs[start.job_id].spec.request
        for share in start.shares:
            judge(state, request, share)
    for start in made.starts:
        for share in start.shares:
            state.free.give(share, 1000, "", "main")
    assert state.free.as_lists() == before


def judge(state: State, request: Request, share: NodeShare) -> None:
    """Check a share in plain words."""
    spec, fine = state.nodes[share.node].spec, request.fine or FineRequest()
    cores = set(ranges.numbers(share.cores))
    gpus = list(ranges.numbers(share.gpus))
    assert share.cpus == 2 * len(cores)
    used = 1 if fine.threads_per_core == 1 else 2
    assert len(cores) * used >= request.ntasks * request.cpus_per_task
    if fine.ntasks_per_core and not request.exclusive:
        assert len(cores) >= request.ntasks
    if fine.ntasks_per_socket:
        assert request.ntasks <= 2
        assert request.ntasks < 2 or {core // 2 for core in cores} == {0, 1}
    whole = request.exclusive == "node"
    for one in request.gpus_per_node:
        kinds = [spec.gpus[gpu] for gpu in gpus]
        have = len(kinds) if not one.type else kinds.count(one.type)
        assert have == one.count or (whole and have >= one.count)
    if "enforce-binding" in fine.gres_flags and any(one.name == "gpu" for one in spec.devices):
        assert {gpu // 2 for gpu in gpus} <= {core // 2 for core in cores}
    for wanted in fine.gres:
        mine = [one for one in share.gres if one.name == wanted.name]
        have = sum(one.count for one in mine)
        assert have == wanted.count or (whole and have >= wanted.count)
        assert wanted.name != "shard" or len(mine) == 1


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_gpus_chosen_are_a_chain_of_most_links(data: st.DataObject) -> None:
    """The oracle: from the lowest on, no other free GPU has more links to those before it."""
    size = 4
    matrix = [[-1] * size for _ in range(size)]
    for one, other in combinations(range(size), 2):
        matrix[one][other] = matrix[other][one] = data.draw(st.integers(0, 4))
    state = a_state(1, cpus=8, gpus=size)
    devices = tuple(Device("gpu", 1, first=at, links=tuple(row)) for at, row in enumerate(matrix))
    state.nodes[0] = replace(state.nodes[0], spec=replace(state.nodes[0].spec, devices=devices))
    rebuild(state)
    count = data.draw(st.integers(1, size))
    queued(state, a_job(1, gpus_per_node=(GpuRequest("", count),), memory_per_node_mib=1))
    chosen = set(ranges.numbers(plan(state, UnixTime(NOON), reachable=1).starts[0].shares[0].gpus))
    picked = {0}
    while len(picked) < count:
        links = {gpu: sum(matrix[gpu][other] for other in picked) for gpu in range(size) if gpu not in picked}
        picked.add(min(links, key=lambda gpu: (-links[gpu], gpu)))
    assert chosen == picked

"""Arbitrary small clusters and queues."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.core.model import UNLIMITED, GpuRequest, Job, Request
from ctld.core.state import State
from tests.builders import a_job, a_node_spec, a_partition, a_state
from tests.placing import queued

LIMITS = (60, 600, 3600, UNLIMITED)
_SHAPES = ("plain", "tasks", "per_node", "gpu_node", "gpu_task", "gpus", "whole", "user")


@st.composite
def requests(draw: st.DrawFn, by_user: bool = True) -> Request:
    """Any kind of request that the checker of `placing` can judge."""
    fields: dict[str, object] = {}
    if draw(st.booleans()):
        low = draw(st.integers(1, 3))
        fields["nodes_min"] = low
        fields["nodes_max"] = draw(st.sampled_from((low, low, low + 1)))
    shape = draw(st.sampled_from(_SHAPES if by_user else _SHAPES[:-1]))
    fields["cpus_per_task"] = draw(st.integers(1, 5))
    if shape == "tasks":
        fields["ntasks"] = draw(st.integers(fields.get("nodes_min", 1), 9))  # type: ignore[arg-type]
    elif shape == "per_node":
        fields["ntasks_per_node"] = draw(st.integers(1, 3))
    elif shape == "gpu_node":
        fields["gpus_per_node"] = (GpuRequest(draw(st.sampled_from(("", "a", "b"))), draw(st.integers(1, 2))),)
    elif shape == "gpu_task":
        fields["ntasks"] = draw(st.integers(fields.get("nodes_min", 1), 4))  # type: ignore[arg-type]
        fields["gpus_per_task"] = (GpuRequest("", 1),)
    elif shape == "gpus":
        fields["gpus"] = (GpuRequest("", draw(st.integers(fields.get("nodes_min", 1), 5))),)  # type: ignore[arg-type]
        fields["cpus_per_gpu"] = draw(st.integers(0, 2))
    elif shape == "whole":
        fields["exclusive"] = "node"
    elif shape == "user":
        fields["exclusive"] = "user"
    if draw(st.booleans()):
        fields["memory_per_node_mib"] = draw(st.sampled_from((0, 100, 600, 1000)))
    else:
        fields["memory_per_cpu_mib"] = draw(st.integers(1, 200))
    if draw(st.integers(0, 5)) == 0:
        fields["nodelist"] = (draw(st.sampled_from(("n1", "n2"))),)
    if draw(st.integers(0, 5)) == 0:
        fields["exclude"] = (draw(st.sampled_from(("n3", "n4"))),)
    return Request(**fields)  # type: ignore[arg-type]


@st.composite
def clusters(draw: st.DrawFn, by_user: bool = True) -> State:
    """One to five nodes of mixed hardware in two overlapping partitions, with a queue of up to twelve jobs; some of
    them keep their nodes for their user."""
    count = draw(st.integers(1, 5))
    state = a_state(count, gpus=0)
    for index in range(count):
        threads = draw(st.sampled_from((1, 2)))
        spec = a_node_spec(
            f"n{index + 1}",
            cpus=draw(st.sampled_from((4, 8))),
            sockets=draw(st.sampled_from((1, 2))),
            threads=threads,
            memory_mib=draw(st.sampled_from((500, 1000, 2000))),
            gpus=0,
            weight=draw(st.sampled_from((1, 1, 5))),
        )
        kinds = draw(st.sampled_from(((), ("a",) * 4, ("b",) * 2, ("a", "b", "a", "b"))))
        state.nodes[index] = replace(state.nodes[index], spec=replace(spec, gpus=kinds))
    state.free.reset(state.nodes)
    state.partitions["main"] = a_partition(nodes=count)
    half = tuple(range((count + 1) // 2))
    state.partitions["side"] = a_partition("side", nodes=half, priority_tier=draw(st.sampled_from((1, 2))))
    number = draw(st.integers(1, 12))
    return queued(state, *(draw(jobs(one + 1, by_user=by_user)) for one in range(number)))


@st.composite
def jobs(draw: st.DrawFn, number: int, by_user: bool = True) -> Job:
    """A job that waits, or an array."""
    fields: dict[str, object] = {}
    if draw(st.integers(0, 3)) == 0:
        fields["array"] = (0, draw(st.integers(0, 9)))
    if fields and draw(st.sampled_from((True, False))):
        fields["array_limit"] = draw(st.integers(1, 3))
    return a_job(
        number,
        request=draw(requests(by_user=by_user)),
        partitions=draw(st.sampled_from((("main",), ("side",), ("main", "side")))),
        priority=draw(st.integers(1, 4)),
        limit_seconds=draw(st.sampled_from(LIMITS)),
        uid=draw(st.sampled_from((1000, 1001))),
        **fields,  # type: ignore[arg-type]
    )

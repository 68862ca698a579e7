"""What submission refuses as impossible, the scheduler could never start either: it places the job on the empty
cluster, node by node, where submission only compares with each kind of node."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ctld.core.cluster import Node, Settings
from ctld.core.decide.fit import check_fit
from ctld.core.jobspec import shape
from ctld.core.state import State
from muster.api import JobRequest
from muster.errors import InvalidInput, MusterError
from tests.builders import a_node_spec, a_partition
from tests.possible import could_ever

SETTINGS = Settings(require_registration=False)
FEATURES = ("a", "b", "c")


@st.composite
def clusters(draw: st.DrawFn) -> State:
    state = State()
    state.settings = SETTINGS
    for index in range(draw(st.integers(1, 4))):
        spec = a_node_spec(
            f"n{index + 1}",
            cpus=draw(st.sampled_from((2, 4, 8))),
            threads=draw(st.sampled_from((1, 2))),
            memory_mib=draw(st.sampled_from((1000, 4000))),
            gpus=draw(st.sampled_from((0, 2, 4))),
            gpu_type=draw(st.sampled_from(("a100", "h100"))),
            features=tuple(draw(st.sets(st.sampled_from(FEATURES)))),
        )
        state.nodes.append(Node(index=index, spec=spec))
        state.node_index[spec.name] = index
        state.node_jobs.append({})
    state.partitions["main"] = a_partition(nodes=len(state.nodes))
    state.free.reset(state.nodes)
    return state


def maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


@st.composite
def requests(draw: st.DrawFn) -> JobRequest:
    kinds = st.sampled_from(("", "a100:", "h100:"))
    count = st.integers(1, 6)
    gpus = st.builds(lambda kind, number: f"{kind}{number}", kinds, count)
    least = draw(maybe(st.integers(1, 4)))
    fields = {
        "nodes": [least, draw(st.integers(int(least), 5))] if isinstance(least, int) else None,
        "ntasks": draw(maybe(st.integers(1, 16))),
        "ntasks_per_node": draw(maybe(st.integers(1, 8))),
        "cpus_per_task": draw(maybe(st.integers(1, 8))),
        "mincpus": draw(maybe(st.integers(1, 8))),
        "exclusive": draw(st.sampled_from((None, "node"))),
        "mem": draw(maybe(st.sampled_from((0, 500, 1000, 2000, 8000)))),
        "gpus": draw(maybe(gpus)),
        "gpus_per_node": draw(maybe(gpus)),
        "gpus_per_task": draw(maybe(gpus)),
        "ntasks_per_gpu": draw(maybe(st.integers(1, 3))),
        "constraint": draw(maybe(st.sampled_from(("a", "a&b", "a|b", "[a|b]", "a*2", "(a|b)&c", "[a*1&b*1]")))),
        "nodelist": draw(maybe(st.sampled_from(("n1", "n[1-2]")))),
        "exclude": draw(maybe(st.sampled_from(("n1", "n2")))),
        "overcommit": draw(maybe(st.just(True))),
    }
    keep = draw(st.sets(st.sampled_from(sorted(fields)), max_size=5))
    return JobRequest(**{name: value for name, value in fields.items() if name in keep})  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(clusters(), requests())
def test_nothing_is_refused_that_could_start(state: State, asked: JobRequest) -> None:
    try:
        request = shape(asked, SETTINGS)
    except MusterError:
        event("contradicts itself")
        return
    partition = state.partitions["main"]
    refusal = None
    try:
        check_fit(state, request, [partition])
    except InvalidInput as error:
        refusal = error
    event(f"refused with {refusal.slurm_code}" if refusal else "accepted")
    if refusal is not None and refusal.slurm_code == 2014:
        assert could_ever(state, request, partition) is not None, refusal.hint

"""Plans of arbitrary small clusters and queues, judged by a slow, plain oracle."""

from __future__ import annotations

import copy
from itertools import combinations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.commands import ApplyPlan
from ctld.core.decide.plan import apply_plan
from ctld.core.events import JobStarted
from ctld.core.model import UNLIMITED, GpuRequest, Job, Request
from ctld.core.plan import Plan, Start
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import UnixTime
from muster.states import Reason
from tests.builders import NOON, a_job, a_state
from tests.clusters import clusters
from tests.placing import busy, carried_out, ended, everywhere, faults_of, queued, with_the_same_promises

SLOW = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def check_no_oversubscription(state: State, starts: tuple[Start, ...]) -> None:
    """Count every core, GPU and MiB: nothing is taken twice, nor taken that was not free."""
    cores = list(state.free.cores)
    gpus = list(state.free.gpus)
    memory = state.free.memory.tolist()
    cpus = state.free.cpus.tolist()
    for start in starts:
        for share in start.shares:
            node = share.node
            core_bits, gpu_bits = ranges.to_bitmap(share.cores), ranges.to_bitmap(share.gpus)
            assert cores[node] & core_bits == core_bits
            assert gpus[node] & gpu_bits == gpu_bits
            cores[node] &= ~core_bits
            gpus[node] &= ~gpu_bits
            memory[node] -= share.memory_mib
            cpus[node] -= share.cpus
            assert memory[node] >= 0
            assert cpus[node] >= 0


def check_typed(state: State, start: Start) -> None:
    for wanted in state.jobs[start.job_id].spec.request.gpus_per_node:
        for share in start.shares:
            types = state.nodes[share.node].spec.gpus
            have = [types[index] for index in ranges.numbers(share.gpus)]
            assert not wanted.type or have.count(wanted.type) >= wanted.count


def check_array_limits(state: State, made: Plan) -> None:
    for job in state.jobs.values():
        if job.array_limit:
            before = sum(other.alloc is not None for other in state.jobs.values() if other.array_job_id == job.id)
            assert before + sum(start.job_id == job.id for start in made.starts) <= job.array_limit


def judged(state: State, made: Plan) -> None:
    """All that must hold for any plan of this state."""
    check_no_oversubscription(state, made.starts)
    check_array_limits(state, made)
    for start in made.starts:
        assert faults_of(state, start) == []
        check_typed(state, start)
    started = {start.job_id for start in made.starts}
    for job_id in state.queue:
        jobs = state.queue.class_of(job_id)
        assert jobs is not None
        wait = made.waits.get(job_id) or made.class_waits[jobs.id]
        assert wait.reason is not Reason.NONE
        if wait.start_at:
            assert wait.start_at > made.made_at
            assert wait.nodes
        assert job_id not in made.waits or job_id not in started or state.jobs[job_id].array_pending


@SLOW
@given(clusters(), st.data())
def test_a_plan_takes_only_what_is_free_and_gives_each_start_what_it_asked_for(
    state: State, data: st.DataObject
) -> None:
    memory, columns = PlanMemory(), PlanMemory(small=0)
    at = NOON
    for _ in range(4):
        known = with_the_same_promises(memory)
        made = plan(state, at, reachable=everywhere(state), memory=memory)
        judged(state, made)
        fresh = plan(copy.deepcopy(state), at, reachable=everywhere(state), memory=known)
        assert made == fresh
        assert made == plan(state, at, reachable=everywhere(state), memory=columns)
        carried_out(state, made, at)
        at = UnixTime(at + data.draw(st.integers(1, 300)))
        for job_id in list(state.running):
            if data.draw(st.booleans()):
                ended(state, job_id)


@SLOW
@given(clusters())
def test_a_job_that_waits_for_resources_first_of_all_really_has_no_place(state: State) -> None:
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    first = next((job_id for job_id, wait in made.waits.items() if wait.reason is Reason.RESOURCES), None)
    carried_out(state, made)
    if first is None or not made.complete:
        return
    # In partitions of a lower tier, promises to others may have come first.
    job = state.jobs[first]
    tiers = {name: state.partitions[name].priority_tier for name in job.spec.partitions}
    names = tuple(name for name in tiers if tiers[name] == max(tiers.values()))
    job = replace(job, spec=replace(job.spec, partitions=names))
    assert not _finds_a_place(copy.deepcopy(state), job)


@SLOW
@given(clusters())
def test_the_writer_accepts_every_start_of_a_plan_of_its_own_state(state: State) -> None:
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    events = apply_plan(state, ApplyPlan(made), UnixTime(NOON))
    assert [event.alloc.shares for event in events if isinstance(event, JobStarted)] == [
        start.shares for start in made.starts
    ]


@SLOW
@given(clusters(), st.integers(0, 3))
def test_backfilled_starts_never_delay_the_first_blocked_job(state: State, filled: int) -> None:
    """The oracle: with all jobs ending at their limits, the promised job finds its place at the promised time, on
    the cluster with the backfilled jobs still there that outlast it, by plain counting on the promised nodes."""
    for _ in range(filled):
        carried_out(state, plan(state, UnixTime(NOON - 30), reachable=everywhere(state)), NOON - 30)
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    promised = [(job_id, wait) for job_id, wait in made.waits.items() if wait.start_at]
    carried_out(state, made, NOON)
    for job_id, wait in sorted(promised, key=lambda one: one[1].start_at)[:1]:
        later = copy.deepcopy(state)
        for other in list(later.running):
            job = later.jobs[other]
            if job.limit_seconds != UNLIMITED and max(job.started_at + job.limit_seconds, NOON + 1) <= wait.start_at:
                ended(later, other)
        job = later.jobs[job_id]
        assert _finds_a_place(later, job)


def _finds_a_place(state: State, job: Job) -> bool:
    """Tell whether a job alone in the queue starts now (array limits aside)."""
    for other in list(state.queue):
        state.queue.discard(other)
    state.queue.add(replace(job, array_limit=0))
    state.jobs[job.id] = replace(job, array_limit=0)
    return bool(plan(state, UnixTime(NOON + 10**6), reachable=everywhere(state)).starts)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=5),
    st.tuples(st.integers(0, 8), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3)),
    st.booleans(),
    st.integers(0, 6),
)
def test_a_place_is_found_exactly_when_trying_all_sets_of_nodes_finds_one(
    free: list[tuple[int, int]], shape: tuple[int, int, int, int], by_cpu: bool, by_gpu: int
) -> None:
    """The oracle tries every set of nodes and counts tasks on each."""
    ntasks, nodes, more, cpus = shape
    state = a_state(len(free), cpus=8, gpus=8, memory_mib=1000)
    for node, (free_cpus, free_gpus) in enumerate(free):
        if free_cpus < 8:
            busy(state, node + 1, node, 8 - free_cpus, gpus=8 - free_gpus)
    fields: dict[str, object] = {"memory_per_node_mib": 10} if not by_cpu else {"memory_per_cpu_mib": 150}
    if by_gpu:
        fields["gpus_per_task"] = (GpuRequest("", by_gpu),)
    request = Request(nodes_min=nodes, nodes_max=nodes + more, ntasks=ntasks, cpus_per_task=cpus, **fields)  # type: ignore[arg-type]
    queued(state, a_job(100, request=request))
    made = plan(state, UnixTime(NOON), reachable=everywhere(state))
    per_node = []
    for node in range(len(free)):
        tasks = int(state.free.cpus[node]) // cpus
        if by_cpu:
            tasks = min(tasks, 1000 // 150 // cpus)
        if by_gpu:
            tasks = min(tasks, int(state.free.gpu_count[node]) // by_gpu)
        per_node.append(tasks)
    wanted = min(nodes, ntasks) if ntasks else nodes
    possible = any(
        all(chosen) and (sum(chosen) >= ntasks if ntasks else True)
        for size in range(wanted, min(nodes + more, ntasks or nodes + more) + 1)
        for chosen in combinations(per_node, size)
    )
    assert bool(made.starts) == possible
    check_no_oversubscription(state, made.starts)

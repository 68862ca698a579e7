"""Whatever is submitted, started and ended in whatever order: no start takes a group over the limits that hold for it,
and running sums and pools are what counting anew gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ctld.core.accounts import Limits, Qos, Share
from ctld.core.apply import apply
from ctld.core.apply.indexes import put, recount
from ctld.core.commands import ApplyPlan
from ctld.core.decide import decide
from ctld.core.events import JobFinished, JobStarted
from ctld.core.model import UNLIMITED, Job
from ctld.core.record import run_record
from ctld.core.state import State
from ctld.sched import limits
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from ctld.sched.pools import Pools
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import NOON, a_partition
from tests.limited import job_of, limited
from tests.placing import everywhere, with_the_same_promises

TRES = st.dictionaries(st.sampled_from(("cpu", "mem", "node")), st.integers(0, 12), max_size=2)
MINUTES = st.dictionaries(st.just("cpu"), st.integers(0, 300), max_size=1)
COUNT = st.integers(0, 4) | st.just(-1)


@st.composite
def limit_sets(draw: st.DrawFn) -> Limits:
    return Limits(
        grp_tres=draw(TRES),
        grp_tres_run_minutes=draw(MINUTES),
        grp_jobs=draw(COUNT),
        max_jobs=draw(COUNT),
        max_tres_per_job=draw(TRES),
    )


@st.composite
def qualities(draw: st.DrawFn, number: int, name: str) -> Qos:
    return Qos(
        number,
        name,
        limits=draw(limit_sets()),
        per_user=Share(tres=draw(TRES), tres_run_minutes=draw(MINUTES), jobs=draw(COUNT)),
        per_account=Share(tres=draw(TRES), jobs=draw(COUNT)),
        flags=tuple(draw(st.sets(st.sampled_from(("OverPartQOS",))))),
    )


@st.composite
def clusters(draw: st.DrawFn) -> State:
    partitions = (
        a_partition(nodes=3, qos=draw(st.sampled_from(("", "high", "part")))),
        a_partition("other", nodes=3, default=False),
    )
    named = ("root", "physics", "ada", "bob", "chemistry", "eve")
    chosen = draw(st.sets(st.sampled_from(named), max_size=3))
    given_limits = {name: draw(limit_sets()) for name in sorted(chosen)}
    qos = [draw(qualities(number, name)) for number, name in enumerate(("normal", "high", "part"), 1)]
    plain = draw(st.booleans())
    return limited(3, cpus=8, qos=[] if plain else qos, partitions=partitions, **given_limits)  # type: ignore[arg-type]


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    fields: dict[str, object] = {}
    if draw(st.booleans()):
        fields["array"] = (0, draw(st.integers(0, 4)))
    if draw(st.integers(0, 3)) == 0:
        fields["nodes_min"] = fields["nodes_max"] = 2
    return job_of(
        draw(st.sampled_from(("ada", "bob", "eve"))),
        number,
        draw(st.integers(1, 5)),
        qos=draw(st.sampled_from(("normal", "high"))),
        partitions=draw(st.sampled_from((("main",), ("other",), ("main", "other")))),
        limit_seconds=draw(st.sampled_from((60, 1800, 3600))),
        priority=draw(st.integers(1, 5)),
        **fields,
    )


def faults(state: State, job: Job, at: int) -> list[str]:
    """Hold a job that has just been started to its rules in plain words. (Jobs under no limit may come on top.)"""
    running = [state.jobs[number] for number in state.running]
    rules = state.limits.of(job)
    size = tres_of(job)
    found = []
    for rule in (*rules.before, *rules.after):
        if rule.key:
            used = in_use(state, running, rule.key, at)
            if used > rule.limit * (60 if str(rule.key[-1]).endswith(" minutes") else 1):
                found.append(f"{rule} {used}")
        elif size.get(rule.tres, 0) > rule.limit:
            found.append(f"{rule} {size}")
    return found


def tres_of(job: Job) -> dict[str, int]:
    assert job.alloc is not None
    shares = job.alloc.shares
    return {
        "cpu": sum(share.cpus for share in shares),
        "mem": sum(share.memory_mib for share in shares),
        "node": len(shares),
    }


def in_use(state: State, running: list[Job], key: tuple[str | int, ...], at: int) -> int:
    """What running jobs of a group use, in plain words; minutes in seconds."""
    members = [job for job in running if is_of(state, job, key[:-1])]
    what = str(key[-1])
    if what == "jobs":
        return len(members)
    if what == "node":
        return len({share.node for job in members if job.alloc for share in job.alloc.shares})
    if what.endswith(" minutes"):
        name = what.removesuffix(" minutes")
        return sum(tres_of(job)[name] * max(0, job.started_at + job.limit_seconds - at) for job in members)
    return sum(tres_of(job)[what] for job in members)


def is_of(state: State, job: Job, scope: tuple[str | int, ...]) -> bool:
    assert job.alloc is not None
    spec, accounts = job.spec, state.accounts
    if scope[0] == "association":
        own = accounts.find(spec.user, spec.account, job.alloc.partition)
        assert own is not None
        return scope[1] in {one.id for one in accounts.path(own.id)}
    if scope[1] not in (spec.qos, state.partitions[job.alloc.partition].qos):
        return False
    whose = {"qos": (), "qos user": (spec.user,), "qos account": (spec.account,)}[str(scope[0])]
    return scope[2:] == whose


def pools_of(state: State, at: int) -> Pools:
    """The pools counted anew from the running jobs."""
    pools = Pools()
    for number in state.running:
        job = state.jobs[number]
        pools.take(limits.claims_of_running(state, job, UnixTime(at)), at, limits.end_of_running(job, UnixTime(at)))
    return pools


@settings(max_examples=80, deadline=None)
@given(clusters(), st.data())
def test_no_start_takes_a_group_over_its_limits(state: State, data: st.DataObject) -> None:
    at = int(NOON)
    state.at = UnixTime(at)
    memory = PlanMemory()
    for number in range(data.draw(st.integers(1, 8))):
        for extra in range(data.draw(st.integers(0, 3))):
            job = data.draw(jobs(1000 * (number + 1) + extra))
            put(state, None, job)
            state.next_job_id = JobId(job.id + 1)
        at += data.draw(st.sampled_from((0, 30, 600)))
        for victim in data.draw(st.sets(st.sampled_from([*state.running] or [0]), max_size=2)):
            if victim in state.running:
                job = state.jobs[victim]
                record = run_record(state, job, word="COMPLETED", ended_at=UnixTime(at))
                apply(state, JobFinished(UnixTime(at), job.id, int(JobState.COMPLETED), record))
        known = with_the_same_promises(memory)
        made = plan(state, UnixTime(at), reachable=everywhere(state), memory=memory)
        fresh = plan(state, UnixTime(at), reachable=everywhere(state), memory=known)
        assert made.starts == fresh.starts
        started = decide(state, ApplyPlan(made), UnixTime(at))
        assert len(started) == len(made.starts), "what was planned can be started"
        for event in started:
            assert isinstance(event, JobStarted)
            apply(state, event)
            assert faults(state, state.jobs[event.job_id], at) == []
        live = state.load.contents()
        again = state.limits
        recount(state)
        assert state.load.contents() == live
        state.limits = again
        check_pools(state, at)


def check_pools(state: State, at: int) -> None:
    """Pools agree with the running sums for all that a plain pool can say."""
    pools = pools_of(state, at)
    for key, used in state.load.used.items():
        if key[-1] != "submitted":
            assert pools.used(key, at) == used, key
    waiting = [state.jobs[number] for number in state.queue]
    for job in waiting:
        partition = state.partitions[job.spec.partitions[0]]
        claims = limits.claims(state, job, partition, job.limit_seconds)
        assert job.limit_seconds != UNLIMITED
        plain = [claim for claim in claims if not str(claim.key[-1]).endswith(" minutes")]
        short = pools.short(plain, at)
        assert (short is None) == all(pools.used(claim.key, at) + claim.amount <= claim.capacity for claim in plain)

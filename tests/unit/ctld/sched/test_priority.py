"""The multifactor sum: the worked numbers of scheduling.md 2, and one job's terms against many jobs' priorities."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Accounts, Association, Qos
from ctld.core.apply.indexes import put
from ctld.core.cluster import Device, Node, PrioritySettings, Settings
from ctld.core.commands import ApplyAccounts, ApplyConfig, Hold, Release, UpdateJob
from ctld.core.model import FineRequest, GpuRequest, GresRequest, Job
from ctld.core.state import State
from ctld.sched.fairshare import FairShare
from ctld.sched.priority import CHUNK, LARGEST, Ranking, Terms, Weigher, age_factor, size_factor, truncated
from muster.ids import JobId, UnixTime
from tests.builders import ADMIN, NOON, USER, a_job, a_node_spec, a_partition, a_state
from tests.stage import Stage, a_share

DAY = 86400
CLUSTER = {"nodes": 8, "cpus": 512, "minutes": 720, "of_nodes": 64, "of_cpus": 4096}
TREE = (
    Association(1, "root", qos=("normal", "high", "top")),
    Association(2, "physics", parent_id=1, priority=3),
    Association(3, "physics", parent_id=2, user="ada"),
    Association(4, "chem", parent_id=1, priority=12),
    Association(5, "chem", parent_id=4, user="ada"),
)
QOS = (Qos(1, "normal"), Qos(2, "high", priority=25), Qos(3, "top", priority=100))


def share(factor: float) -> FairShare:
    return FairShare(0, 0, 0, 0, 0, factor)


# ---- factors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("favor_small", "relative", "cpus", "factor"),
    [
        (False, False, 512, 0.125),
        (True, False, 512, 0.875),
        (False, True, 512, 0.00017361111111111112),
        (True, True, 512, 0.9998263888888889),
        (False, False, 1000, 0.1845703125),
        (False, False, 0, 0.125),
        (True, False, 0, 0.875),
    ],
)
def test_the_worked_sizes(favor_small: bool, relative: bool, cpus: int, factor: float) -> None:
    found = size_factor(**{**CLUSTER, "cpus": cpus}, favor_small=favor_small, relative=relative)
    assert found == pytest.approx(factor, abs=1e-9)


def test_a_size_stays_between_nothing_and_all() -> None:
    assert size_factor(64, 4096, 1, 64, 4096, favor_small=True, relative=False) == 0
    assert size_factor(80, 9000, 1, 64, 4096, favor_small=False, relative=False) == 1
    assert size_factor(80, 9000, 0, 64, 4096, favor_small=True, relative=True) == 0
    assert size_factor(1, 1, 1, 0, 0, favor_small=False, relative=False) == 0


def test_age_grows_to_its_maximum_and_begins_when_it_accrues() -> None:
    assert age_factor(NOON - int(2.5 * DAY), NOON, 7 * DAY) == 0.35714285714285715
    assert age_factor(NOON - 8 * DAY, NOON, 7 * DAY) == 1
    assert age_factor(NOON + 1, NOON, 7 * DAY) == 0
    assert age_factor(0, NOON, 7 * DAY) == 0


def test_a_sum_is_cut_once_and_clamped() -> None:
    assert (truncated(6826.99), truncated(0.4), truncated(-5e9), truncated(1e12)) == (6826, 1, 1, LARGEST)
    assert LARGEST == 4294967295


# ---- the worked sum --------------------------------------------------------------------------------------------


def the_worked_cluster(**settings: object) -> State:
    """64 nodes of 64 CPUs and 8 GPUs, with the weights of 2.6."""
    weights: dict[str, object] = {
        "age": 1000,
        "fairshare": 10000,
        "job_size": 1000,
        "partition": 1000,
        "qos": 2000,
        "tres": {"cpu": 500.0, "gres/gpu": 3000.0},
    }
    priority = PrioritySettings(**{**weights, **settings})  # type: ignore[arg-type]
    partitions = (
        a_partition(nodes=64, priority_job_factor=10),
        a_partition("best", nodes=64, priority_job_factor=20),
    )
    state = a_state(64, partitions=partitions, settings=Settings(require_registration=False, priority=priority))
    state.accounts = Accounts(TREE, QOS)
    return state


def the_worked_job(**fields: object) -> Job:
    given: dict[str, object] = {
        "nodes_min": 8,
        "ntasks": 512,
        "gpus_per_node": (GpuRequest("", 8),),
        "submitted_at": NOON - int(2.5 * DAY),
        "account": "physics",
        "qos": "high",
        "nice": 100,
        "site_factor": 7,
        **fields,
    }
    return a_job(1, **given)  # type: ignore[arg-type]


def terms_of(state: State, job: Job, factor: float = 0.5) -> Terms:
    (found,) = Weigher(state, NOON, {3: share(factor)}).terms(job)
    return found


def test_the_worked_sum() -> None:
    found = terms_of(the_worked_cluster(), the_worked_job())
    assert found.age == pytest.approx(357.14285714285717, abs=1e-9)
    assert (found.fairshare, found.job_size, found.of_partition, found.of_qos) == (5000, 125, 500, 500)
    assert found.tres == (("cpu", 62.5), ("gres/gpu", 375.0))
    assert (found.site, found.nice) == (7, 100)
    assert found.total() == 6826


def test_nothing_counts_unless_its_weight_is_set() -> None:
    state = a_state(settings=Settings(priority=PrioritySettings()))
    assert not state.settings.priority.computes
    assert Weigher(state, NOON, {}).priority(a_job(1, nice=5)) == 1


def test_flags_take_raw_values() -> None:
    flags = ("NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES")
    found = terms_of(the_worked_cluster(assoc=1, flags=flags), the_worked_job())
    assert (found.assoc, found.of_partition, found.of_qos) == (3, 10_000, 50_000)
    assert found.tres == (("cpu", 500.0 * 512), ("gres/gpu", 3000.0 * 64))
    assert terms_of(the_worked_cluster(assoc=100), the_worked_job()).assoc == 100 * 3 / 12


def test_what_the_partition_does_not_have_and_billing_count_nothing() -> None:
    tres = {"gres/gpu:a100": 5.0, "billing": 7.0, "mem": -2.0}
    found = terms_of(the_worked_cluster(tres=tres), the_worked_job(memory_per_node_mib=128_000))
    assert dict(found.tres) == pytest.approx({"gres/gpu:a100": 0, "billing": 0, "mem": -2 * 8 * 128_000 / 64 / 256_000})


def test_licences_count_by_the_cluster_and_other_resources_by_the_partition() -> None:
    state = the_worked_cluster(tres={"license/a": 8.0, "gres/fpga": 64.0, "gres/fpga:x": 32.0})
    state.settings = replace(state.settings, licenses={"a": 4})
    fpgas = (Device("fpga", 2, "x"),)
    state.nodes = [replace(node, spec=replace(node.spec, devices=fpgas)) for node in state.nodes]
    job = the_worked_job(licenses="a:1", fine=FineRequest(gres=(GresRequest("fpga", 1, "x"),)))
    # 1 of 4 licences; 1 on each of 8 nodes, of 2 on each of 64.
    assert dict(terms_of(state, job).tres) == {"license/a": 2.0, "gres/fpga": 4.0, "gres/fpga:x": 2.0}


def test_several_partitions_and_qos_have_a_value_each_and_the_largest_is_shown() -> None:
    state = the_worked_cluster()
    job = the_worked_job(partitions=("main", "best"), qos="high,top")
    weigher = Weigher(state, NOON, {3: share(0.5)})
    values = {(one.partition, one.qos): one.total() for one in weigher.terms(job)}
    assert values == {
        ("main", "high"): 6826,
        ("main", "top"): 8326,
        ("best", "high"): 7326,
        ("best", "top"): 8826,
    }
    assert weigher.priority(job) == 8826
    assert weigher.priorities([job]).tolist() == [8826]


@pytest.mark.parametrize("flags", [(), ("ACCRUE_ALWAYS",), ("SMALL_RELATIVE_TO_TIME",)])
def test_many_jobs_at_once_have_the_priorities_that_each_has_alone(flags: tuple[str, ...]) -> None:
    rng = random.Random(3)
    state = the_worked_cluster(assoc=77, flags=flags)
    jobs = [
        the_worked_job(
            nodes_min=rng.choice([1, 8]),
            ntasks=rng.choice([8, 16, 48]),
            submitted_at=NOON - rng.randint(-5, 10 * DAY),
            eligible_at=UnixTime(rng.choice([0, NOON - rng.randint(-5, 10 * DAY)])),
            nice=rng.choice([0, 0, -2145483645, 2145483645, 31]),
            site_factor=rng.choice([0, -9, 12345]),
            account=rng.choice(["physics", "chem", "bio"]),
            qos=rng.choice(["normal", "high", "top", "none"]),
            partitions=rng.choice([("main",), ("best", "main")]),
            limit_seconds=rng.choice([-1, 60, 7200]),
        )
        for _ in range(300)
    ]
    weigher = Weigher(state, NOON, {3: share(1 / 3), 5: share(2 / 3)})
    assert weigher.priorities(jobs).tolist() == [weigher.priority(job) for job in jobs]


# ---- age accrual -----------------------------------------------------------------------------------------------


def test_age_counts_from_when_it_could_start_or_always() -> None:
    job = the_worked_job(submitted_at=NOON - 7 * DAY, eligible_at=NOON - DAY)
    assert terms_of(the_worked_cluster(), job).factors.age == pytest.approx(1 / 7)
    assert terms_of(the_worked_cluster(flags=("ACCRUE_ALWAYS",)), job).factors.age == 1


def test_with_limits_a_hold_ends_the_counting_and_a_release_begins_it_anew() -> None:
    settings = Settings(
        require_registration=False, accounting_enforce=("limits",), priority=PrioritySettings(age=7 * DAY)
    )
    stage = Stage(a_state(settings=settings))
    stage.do(ApplyAccounts(TREE, QOS))
    job = stage.submit(account="physics")

    def age() -> float:
        return Weigher(stage.state, UnixTime(stage.at), {}).best(stage.job(job)).age

    stage.at += 100
    assert age() == pytest.approx(100)
    stage.do(Hold(JobId(job), USER))
    assert age() == 0
    stage.at += 100
    stage.do(Release(JobId(job), USER))
    assert age() == 0
    stage.at += 10
    assert age() == pytest.approx(10)


# ---- kept up ---------------------------------------------------------------------------------------------------


def order(state: State) -> list[int]:
    """Job ids in the order in which the queue has them."""
    pairs = [pair for members in state.queue.classes.values() for pair in members.pairs()]
    return [number for _, number in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]


def run(ranking: Ranking, state: State, at: int = NOON) -> None:
    for _ in ranking.passing(state, UnixTime(at)):
        pass


def a_stage(**weights: object) -> Stage:
    settings = Settings(require_registration=False, priority=PrioritySettings(**weights))  # type: ignore[arg-type]
    stage = Stage(a_state(settings=settings))
    stage.do(ApplyAccounts(TREE, QOS))
    return stage


def test_without_weights_the_order_is_that_of_submission() -> None:
    stage = a_stage()
    first, second = stage.submit(), stage.submit(qos="top")
    ranking = Ranking()
    run(ranking, stage.state)
    assert order(stage.state) == [first, second]
    assert stage.state.queue.unrated is None
    assert stage.state.queue.priorities == {}


def test_a_pass_orders_the_queue_and_what_comes_later_is_followed() -> None:
    stage = a_stage(qos=1000)
    low, high = stage.submit(qos="high"), stage.submit(qos="top")
    ranking = Ranking()
    run(ranking, stage.state)
    assert order(stage.state) == [high, low]
    other = stage.submit(qos="top")
    ranking.follow(stage.state)
    assert order(stage.state) == [high, other, low]
    stage.do(UpdateJob(JobId(low), ADMIN, nice=-5000))
    stage.do(UpdateJob(JobId(other), ADMIN, priority=999))
    ranking.follow(stage.state)
    assert order(stage.state) == [low, high, other]
    assert [stage.state.queue.priority(stage.job(number)) for number in (low, high, other)] == [5250, 1000, 999]
    assert [terms.total() for terms in ranking.terms(stage.state, stage.job(low))] == [5250]
    assert ranking.terms(stage.state, stage.job(other)) == []


def test_what_is_held_is_computed_when_it_is_released() -> None:
    stage = a_stage(qos=1000)
    job = stage.submit(qos="top")
    stage.do(Hold(JobId(job), USER))
    ranking = Ranking()
    run(ranking, stage.state)
    assert stage.state.queue.priority(stage.job(job)) == 0
    stage.do(Release(JobId(job), USER))
    ranking.follow(stage.state)
    assert stage.state.queue.priority(stage.job(job)) == 1000


def test_fairshare_puts_the_account_that_used_less_first() -> None:
    stage = a_stage(fairshare=1000)
    stage.running(a_share(cpus=8), account="physics")
    stage.at += 3600
    greedy, modest = stage.submit(account="physics"), stage.submit(account="chem")
    ranking = Ranking()
    run(ranking, stage.state, stage.at)
    assert order(stage.state) == [modest, greedy]
    assert [stage.state.queue.priority(stage.job(number)) for number in (greedy, modest)] == [500, 1000]


def test_values_only_grow_with_incr_only() -> None:
    stage = a_stage(fairshare=1000, flags=("INCR_ONLY",))
    job = stage.submit(account="physics")
    ranking = Ranking()
    run(ranking, stage.state)
    assert stage.state.queue.priority(stage.job(job)) == 1000
    stage.running(a_share(cpus=8), account="physics")
    stage.at += 3600
    run(ranking, stage.state, stage.at)
    assert stage.state.queue.priority(stage.job(job)) == 1000


def test_running_jobs_are_computed_only_where_a_flag_says_so() -> None:
    for flags, expected in (((), 250), (("CALCULATE_RUNNING",), 260)):
        stage = a_stage(qos=1000, flags=flags)
        job = stage.submit(qos="high")
        ranking = Ranking()
        run(ranking, stage.state)
        stage.start(job)
        stage.do(UpdateJob(JobId(job), ADMIN, nice=-10))
        run(ranking, stage.state)
        assert stage.state.queue.priority(stage.job(job)) == expected


def test_other_settings_are_noticed_and_no_weights_give_the_old_order_back() -> None:
    stage = a_stage(qos=1000)
    first, second = stage.submit(), stage.submit(qos="top")
    ranking = Ranking()
    assert ranking.outdated(stage.state)
    run(ranking, stage.state)
    assert not ranking.outdated(stage.state)
    assert order(stage.state) == [second, first]
    nodes = tuple(node.spec for node in stage.state.nodes)
    stage.do(ApplyConfig(Settings(require_registration=False), nodes, tuple(stage.state.partitions.values())))
    assert ranking.outdated(stage.state)
    run(ranking, stage.state)
    assert order(stage.state) == [first, second]
    assert ranking.terms(stage.state, stage.job(first)) == []


def test_a_pass_in_parts_tells_of_each_job_what_it_was_computed_with() -> None:
    stage = a_stage(age=7 * DAY)
    for number in range(1, 601):
        put(stage.state, None, a_job(number))
    ranking = Ranking()
    run(ranking, stage.state, NOON + 100)
    steps = ranking.passing(stage.state, UnixTime(NOON + 400))
    assert next(steps) == CHUNK
    for number in (1, 600):
        (terms,) = ranking.terms(stage.state, stage.job(number))
        assert terms.total() == stage.state.queue.priority(stage.job(number))
    assert {stage.state.queue.priority(stage.job(number)) for number in (1, 600)} == {100, 400}
    assert list(steps)[-1] == 600
    assert {stage.state.queue.priority(job) for job in stage.state.jobs.values()} == {400}


def test_nodes_of_the_future_are_not_of_the_cluster() -> None:
    state = a_state(2, settings=Settings(priority=PrioritySettings(job_size=100)))
    before = Weigher(state, NOON, {}).priority(a_job(1))
    spec = a_node_spec("n9")
    state.nodes.append(Node(index=2, spec=type(spec)(name="n9", cpus=64, state="FUTURE")))
    assert Weigher(state, NOON, {}).priority(a_job(1)) == before == 25

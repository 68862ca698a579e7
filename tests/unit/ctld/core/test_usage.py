"""Usage of associations and QOS: charged along the path, in closed form, the same live and replayed."""

from __future__ import annotations

import random

import pytest

from ctld.core.accounts import Association, Qos
from ctld.core.apply.sections import dump, load
from ctld.core.cluster import PrioritySettings, Settings
from ctld.core.commands import ApplyAccounts, ApplyConfig, Cancel, FinishBatch, ResetUsage, Resume, Suspend
from ctld.core.state import State
from muster.ids import JobId
from muster.usage import run_usage
from tests.builders import ADMIN, a_partition, a_state
from tests.stage import Stage, a_result, a_share

WEEK = 604_800
TREE = (
    Association(1, "root"),
    Association(2, "physics", parent_id=1),
    Association(3, "physics", parent_id=2, user="ada"),
    Association(4, "physics", parent_id=2, user="bob"),
    Association(5, "chem", parent_id=1),
    Association(6, "chem", parent_id=5, user="ada"),
)
QOS = (
    Qos(1, "normal"),
    Qos(2, "double", usage_factor=2.0),
    Qos(3, "free", usage_factor=0.0),
    Qos(4, "lasting", flags=("NoDecay",)),
    Qos(5, "ofpart"),
)


def a_stage(**partition: object) -> Stage:
    stage = Stage(
        a_state(
            partitions=(a_partition(**partition),)  # type: ignore[arg-type]
        )
    )
    stage.do(ApplyAccounts(TREE, QOS))
    return stage


def later(stage: Stage, seconds: int) -> None:
    stage.at += seconds


def raw(stage: Stage) -> list[float]:
    return [stage.state.usage.raw(number, stage.at) for number in range(1, 7)]


def test_a_run_is_charged_to_its_association_and_all_above_it() -> None:
    stage = a_stage()
    stage.running(a_share(cpus=20), account="physics")
    later(stage, 300)
    worked = pytest.approx(5997.937853270348, rel=1e-3)
    assert raw(stage) == [worked, worked, worked, 0, 0, 0]
    spent = stage.state.usage.of_association(3, stage.at)
    assert spent.jobs == 1
    assert (spent.wall, spent.tres["cpu"]) == pytest.approx((300, 5997.937853270348), rel=1e-3)
    assert spent.tres["node"] == pytest.approx(300, rel=1e-3)


def test_an_ended_run_only_decays() -> None:
    stage = a_stage()
    job = stage.running(a_share(cpus=8), account="physics")
    later(stage, 3600)
    stage.do(FinishBatch(JobId(job), 0, a_result()))
    for wait in (0, WEEK):
        later(stage, wait)
        used = pytest.approx(run_usage(8, 0, 3600, 3600 + wait, WEEK), rel=1e-9)
        assert raw(stage) == [used, used, used, 0, 0, 0]
    assert not stage.state.usage.charges


def test_the_usage_factor_multiplies_everything() -> None:
    stage = a_stage()
    stage.running(a_share(cpus=4), account="physics", qos="double")
    stage.running(a_share(first_core=4, cpus=4), account="chem", qos="free")
    later(stage, 100)
    usage = stage.state.usage
    assert usage.raw(3, stage.at) == pytest.approx(2 * usage.of_qos(2, stage.at).tres["cpu"] / 2)
    assert usage.raw(3, stage.at) == pytest.approx(run_usage(8, 0, 100, 100, WEEK))
    assert usage.of_qos(2, stage.at).wall == pytest.approx(run_usage(2, 0, 100, 100, WEEK))
    spent = usage.of_association(6, stage.at)
    assert (spent.raw, spent.wall, dict(spent.tres), spent.jobs) == (0, 0, {}, 1)


def test_suspended_time_is_charged_but_is_no_wall_time() -> None:
    stage = a_stage()
    job = JobId(stage.running(a_share(cpus=4), account="physics", qos="lasting"))
    later(stage, 1000)
    stage.do(Suspend(job, ADMIN))
    later(stage, 500)
    held = stage.state.usage.of_qos(4, stage.at)
    assert (held.wall, held.raw, held.tres["cpu"], held.jobs) == (1000, 6000, 6000, 1)
    again: State = load((name, list(records)) for name, records in dump(stage.state))
    assert again.usage.of_qos(4, stage.at + 100) == stage.state.usage.of_qos(4, stage.at + 100)
    stage.do(Resume(job, ADMIN))
    later(stage, 100)
    spent = stage.state.usage.of_qos(4, stage.at)
    assert (spent.wall, spent.raw) == (1100, 6400)


def test_a_qos_with_no_decay_keeps_all_and_a_reset_spares_it() -> None:
    stage = a_stage()
    job = stage.running(a_share(cpus=4), account="physics", qos="lasting")
    later(stage, 1000)
    stage.do(FinishBatch(JobId(job), 0, a_result()))
    later(stage, WEEK)
    assert stage.state.usage.of_qos(4, stage.at).raw == 4000
    stage.do(ResetUsage())
    assert raw(stage) == [0] * 6
    assert stage.state.usage.of_qos(4, stage.at).raw == 4000
    assert stage.state.usage.reset_at == stage.at


def test_the_qos_of_the_partition_is_charged_too() -> None:
    stage = a_stage(qos="ofpart")
    stage.running(a_share(cpus=4), account="physics")
    later(stage, 100)
    usage = stage.state.usage
    assert usage.of_qos(5, stage.at).raw == usage.of_qos(1, stage.at).raw == usage.raw(3, stage.at) > 0


def test_billing_weights_of_the_partition_count_and_billing_is_cut_to_a_whole_number() -> None:
    stage = a_stage(billing_weights={"cpu": 0.5, "mem": 1 / 1024})
    job = stage.running(a_share(cpus=5, memory_mib=1024), account="physics")
    later(stage, 10)
    usage = stage.state.usage
    assert usage.raw(3, stage.at) == pytest.approx(run_usage(3.5, 0, 10, 10, WEEK))
    assert usage.of_association(3, stage.at).tres["billing"] == pytest.approx(run_usage(3, 0, 10, 10, WEEK))
    later(stage, 10)
    (event, *_) = stage.do(Cancel(JobId(job), ADMIN))
    (event, *_) = stage.do(FinishBatch(JobId(job), 0, a_result()))
    assert event.record.allocated_tres["billing"] == 3  # type: ignore[union-attr]


def test_a_new_configuration_counts_from_now_on() -> None:
    stage = a_stage()
    stage.running(a_share(cpus=4), account="physics")
    later(stage, 1000)
    nodes = tuple(node.spec for node in stage.state.nodes)
    partition = a_partition(billing_weights={"cpu": 2.0})
    settings = Settings(require_registration=False, priority=PrioritySettings(half_life_seconds=0))
    stage.do(ApplyConfig(settings, nodes, (partition,)))
    before = run_usage(4, 0, 1000, 1000, WEEK)
    later(stage, 500)
    assert stage.state.usage.raw(1, stage.at) == pytest.approx(before + 8 * 500)


def test_associations_that_go_take_their_usage_with_them() -> None:
    stage = a_stage()
    stage.running(a_share(cpus=4), account="physics")
    later(stage, 1000)
    stage.do(ApplyAccounts(TREE[:2], QOS[:1]))
    assert set(stage.state.usage.associations) == {1, 2}
    before = stage.state.usage.raw(1, stage.at)
    later(stage, WEEK)
    # Its user is gone: nobody is charged any more.
    assert stage.state.usage.raw(1, stage.at) == pytest.approx(before / 2)
    stage.do(ApplyAccounts(TREE, QOS))
    later(stage, 10)
    assert stage.state.usage.raw(3, stage.at) == pytest.approx(run_usage(4, 0, 10, 10, WEEK))


@pytest.mark.parametrize("seed", range(4))
def test_live_usage_is_the_sum_over_all_runs_and_survives_a_checkpoint(seed: int) -> None:
    rng = random.Random(seed)
    stage = a_stage()
    runs: dict[int, tuple[str, int, int]] = {}
    ended: list[tuple[str, int, int, int]] = []
    for _ in range(60):
        later(stage, rng.choice([0, 1, 60, 3600, 86400]))
        if runs and rng.random() < 0.5:
            job = rng.choice(list(runs))
            account, cpus, started = runs.pop(job)
            ended.append((account, cpus, started, stage.at))
            stage.do(FinishBatch(JobId(job), 0, a_result()))
        else:
            account, cpus = rng.choice(["physics", "chem"]), rng.choice([1, 3, 7])
            free = stage.state.free.cores[0]
            places = [n for n in range(64) if all(free >> (n + i) & 1 for i in range(cpus))]
            if not places:
                continue
            job = stage.running(a_share(first_core=places[0], cpus=cpus), account=account)
            runs[job] = (account, cpus, stage.at)
    later(stage, 12345)
    spans = [*ended, *((account, cpus, started, stage.at) for account, cpus, started in runs.values())]
    for account, number in (("physics", 3), ("chem", 6)):
        expected = sum(run_usage(c, start, end, stage.at, WEEK) for who, c, start, end in spans if who == account)
        assert stage.state.usage.raw(number, stage.at) == pytest.approx(expected, rel=1e-9)
    again: State = load((name, list(records)) for name, records in dump(stage.state))
    assert again.usage.records() == stage.state.usage.records()
    assert again.usage.rates() == stage.state.usage.rates()
    assert [again.usage.raw(n, stage.at) for n in range(1, 7)] == raw(stage)


def test_no_associations_cost_nothing() -> None:
    stage = Stage(a_state())
    stage.running(a_share(cpus=4), account="physics")
    assert not stage.state.usage.charges
    assert stage.state.usage.records() == []

"""Small workloads whose schedule is worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as change

from ctld.sim.figures import figures
from ctld.sim.machine import from_file, from_nodes, plain
from ctld.sim.reading import read_trace
from ctld.sim.replay import Outcome, replay
from ctld.sim.workload import Asks, TraceJob, TraceNodes, with_exact_limits, with_load
from muster.errors import InvalidInput

DATA = Path(__file__).parents[3] / "data" / "sim"
T = 1_700_000_000
_ASKS = Asks()


def job(number: int, at: int, runtime: int, tasks: int, limit: int | None = None, **more: object) -> TraceJob:
    ask = _ASKS.get(ntasks=tasks)
    return TraceJob(str(number), T + at, runtime, ask, limit or runtime, **more)  # type: ignore[arg-type]


def starts(outcome: Outcome) -> list[int]:
    return [start - T for start in outcome.start]


def test_jobs_start_as_others_end_and_run_times_are_capped_at_limits() -> None:
    trace = read_trace(DATA / "small.swf")
    outcome = replay(from_nodes(trace.nodes, trace.name), trace.jobs)
    # 1: four nodes until 100. Then 2 (two nodes, until 150); 3 needs three, at 150. 6 fits beside 2 and is over its
    # limit of 300 s at 400, which leaves 3 enough at 150.
    assert starts(outcome) == [0, 100, 150, 100]
    assert [end - T for end in outcome.end] == [100, 150, 180, 400]
    assert outcome.backfilled == [False, False, False, True]


def test_without_backfill_nothing_passes_the_first_that_waits() -> None:
    jobs = [job(1, 0, 100, 3), job(2, 1, 100, 4), job(3, 2, 10, 1), job(4, 3, 10, 1)]
    machine = plain(4, 1)
    assert starts(replay(machine, jobs)) == [0, 100, 2, 12]
    settings = change(machine.command.settings, backfill=False)
    builtin = replace(machine, command=replace(machine.command, settings=settings))
    assert starts(replay(builtin, jobs)) == [0, 100, 200, 200]


def test_a_configuration_chooses_the_policy(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=c\nSlurmctldHost=h\nSchedulerType=sched/builtin\nNodeName=n[1-4] CPUs=1\n"
        "PartitionName=p Nodes=ALL Default=YES\n"
    )
    machine = from_file(conf)
    assert (machine.cpus, machine.gpus, machine.command.settings.backfill) == (4, 0, False)
    jobs = [job(1, 0, 100, 3), job(2, 1, 100, 4), job(3, 2, 10, 1)]
    assert starts(replay(machine, jobs)) == [0, 100, 200]


def test_begin_times_are_waited_for_and_not_counted_as_waiting() -> None:
    machine = plain(1, 1)
    outcome = replay(machine, [job(1, 0, 10, 1, begin_at=T + 500)])
    assert starts(outcome) == [500]
    assert figures(machine, outcome).waits.wait_mean == 0


def test_a_job_that_can_never_run_is_counted_with_the_reason() -> None:
    machine = plain(2, 4)
    outcome = replay(machine, [job(1, 0, 10, 1), TraceJob("2", T, 10, _ASKS.get(nodes=[1, 1], ntasks=9))])
    found = figures(machine, outcome)
    assert (found.ran, found.refused, found.never_started) == (1, 1, 0)
    assert "CPUs of 9" in next(iter(outcome.refused))


def test_limits_in_seconds_stay_seconds() -> None:
    outcome = replay(plain(1, 1), [job(1, 0, 90, 1), job(2, 0, 5, 1)])
    assert outcome.promised == [-1, T + 90]
    assert starts(outcome) == [0, 90]


def test_gpus_memory_and_features_count() -> None:
    trace = read_trace(DATA / "site_week.events")
    machine = from_nodes(trace.nodes, trace.name)
    assert (machine.cpus, machine.gpus) == (24, 4)
    outcome = replay(machine, trace.jobs)
    assert outcome.refused == {} and outcome.gpus == [0, 2, 2]
    assert [[machine.command.nodes[share.node].name for share in one] for one in outcome.shares][1:] == [
        ["b1", "b2"]
    ] * 2


def test_the_same_replay_twice_is_the_same() -> None:
    trace = read_trace(DATA / "small.swf")
    machine = from_nodes(trace.nodes, trace.name)
    one, other = replay(machine, trace.jobs), replay(machine, trace.jobs)
    assert (one.start, one.end, one.shares, one.promised) == (other.start, other.end, other.shares, other.promised)


def test_progress_ends_at_the_end() -> None:
    told: list[tuple[int, int]] = []
    replay(plain(1, 1), [job(1, 0, 5, 1)], lambda done, size: told.append((done, size)))
    assert told[-1] == (1, 1)


def test_exact_limits_are_the_true_run_times() -> None:
    trace = with_exact_limits(read_trace(DATA / "small.swf"))
    assert [one.limit_seconds for one in trace.jobs] == [100, 50, 30, 500]


@pytest.mark.parametrize(("factor", "least", "most"), [(0.5, 70, 130), (1.0, 200, 200), (2.25, 420, 480)])
def test_load_is_scaled_by_leaving_out_and_doubling(factor: float, least: int, most: int) -> None:
    trace = read_trace(DATA / "small.swf")
    many = replace(trace, jobs=tuple(job(number, number, 10, 1) for number in range(200)))
    scaled = with_load(many, factor, seed=3)
    assert least <= len(scaled.jobs) <= most
    assert scaled == with_load(many, factor, seed=3)
    times = [one.submitted_at for one in scaled.jobs]
    assert times == sorted(times)


def test_a_trace_without_nodes_needs_a_cluster() -> None:
    with pytest.raises(InvalidInput, match="which nodes there were"):
        from_nodes((), "x")


def test_nodes_of_a_trace_make_partitions_with_the_largest_as_default() -> None:
    groups: Sequence[TraceNodes] = (
        TraceNodes("a[1-2]", 2, partitions=("small",)),
        TraceNodes("b[1-3]", 2, partitions=("large",)),
    )
    machine = from_nodes(groups, "x")
    assert {part.name: (part.nodes, part.default) for part in machine.command.partitions} == {
        "small": ((0, 1), False),
        "large": ((2, 3, 4), True),
    }


def test_priorities_of_the_configuration_order_the_queue(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    lines = (
        "ClusterName=c\nSlurmctldHost=h\nNodeName=n[1-4] CPUs=1\nPartitionName=p Nodes=ALL Default=YES\n"
        "SchedulerType=sched/builtin\n"
    )
    jobs = [job(1, 0, 100, 4), job(2, 1, 100, 1), job(3, 2, 100, 4)]
    conf.write_text(lines)
    assert starts(replay(from_file(conf), jobs)) == [0, 100, 200]
    conf.write_text(lines + "PriorityType=priority/multifactor\nPriorityWeightJobSize=1000\n")
    assert starts(replay(from_file(conf), jobs)) == [0, 200, 100]


def test_age_is_computed_again_every_period(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=ALL Default=YES\n"
        "PriorityWeightAge=1000\nPriorityMaxAge=1-0\nPriorityCalcPeriod=1\n"
    )
    jobs = [job(1, 0, 3600, 1), job(2, 10, 60, 1), job(3, 3599, 60, 1)]
    assert starts(replay(from_file(conf), jobs)) == [0, 3600, 3660]


def test_associations_of_the_configuration_hold(tmp_path: Path) -> None:
    conf, tree = tmp_path / "slurm.conf", tmp_path / "tree.cfg"
    tree.write_text("Cluster - 'c'\nParent - 'root'\nAccount - 'a'\nParent - 'a'\nUser - 'anna':DefaultAccount='a'\n")
    lines = "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=ALL Default=YES\n"
    conf.write_text(lines + "AccountingStorageEnforce=associations\n")
    jobs = [job(1, 0, 5, 1, user="anna"), job(2, 0, 5, 1, user="ben")]
    assert not replay(from_file(conf), jobs).refused  # Nobody says who may.
    conf.write_text(lines + f"AccountingStorageEnforce=associations\nAssociationFile={tree}\n")
    outcome = replay(from_file(conf), jobs)
    assert starts(outcome)[0] == 0 and outcome.start[1] < 0
    assert sum(outcome.refused.values()) == 1


def preempting(folder: Path, mode: str) -> Outcome:
    """A job of 100 s on all four CPUs, and at 10 one of 30 s that may take its place."""
    conf = folder / "slurm.conf"
    conf.write_text(
        "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=4 RealMemory=100\n"
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE,GANG\n"
        f"SchedulerParameters=requeue_delay=0\nPartitionName=low Nodes=n1 {mode}\n"
        "PartitionName=high Nodes=n1 PriorityTier=2\n"
    )
    jobs = [
        TraceJob("low", T, 100, _ASKS.get(ntasks=4, mem=1, partition="low"), 600),
        TraceJob("high", T + 10, 30, _ASKS.get(ntasks=4, mem=1, partition="high"), 600),
    ]
    return replay(from_file(conf), jobs)


@pytest.mark.parametrize(
    ("mode", "begun", "ended", "lost"),
    [
        ("PreemptMode=OFF", [0, 100], [100, 130], [0, 0]),
        ("PreemptMode=REQUEUE", [40, 10], [140, 40], [10, 0]),
        ("PreemptMode=REQUEUE GraceTime=15", [55, 25], [155, 55], [25, 0]),
        ("PreemptMode=CANCEL", [0, 10], [10, 40], [0, 0]),
        ("PreemptMode=CANCEL GraceTime=15", [0, 25], [25, 55], [0, 0]),
        # It stands still from 10 to 40.
        ("PreemptMode=SUSPEND", [0, 10], [130, 40], [0, 0]),
    ],
)
def test_victims_make_room_as_the_configuration_says(
    tmp_path: Path, mode: str, begun: list[int], ended: list[int], lost: list[int]
) -> None:
    outcome = preempting(tmp_path, mode)
    assert (starts(outcome), [end - T for end in outcome.end]) == (begun, ended)
    assert outcome.lost_seconds == lost
    assert outcome.cancelled == ["CANCEL" in mode, False]
    assert outcome.stale_starts == 0


def test_what_a_cancelled_job_had_run_is_lost(tmp_path: Path) -> None:
    outcome = preempting(tmp_path, "PreemptMode=CANCEL")
    found = figures(from_file(tmp_path / "slurm.conf"), outcome)
    assert (found.ran, found.cancelled, found.never_started) == (2, 1, 0)
    assert found.efficiency == pytest.approx(30 / (30 + 10))

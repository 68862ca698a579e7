"""Figures against numbers worked out by hand."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ctld.core.model import NodeShare
from ctld.sim import picture, report
from ctld.sim.figures import busy_steps, efficiency, figures, queue_steps, size_class
from ctld.sim.machine import from_file, plain
from ctld.sim.replay import Outcome
from ctld.sim.workload import Asks, TraceJob
from muster.errors import InvalidInput, Unavailable

T = 1_000_000
_ASKS = Asks()


def an_outcome() -> Outcome:
    """Three jobs on 10 CPUs: submitted at 0, 50 and 100; started at 0, 60 and never."""
    jobs = [
        TraceJob("a", T, 80, _ASKS.get(ntasks=4, account="x"), 100, "anna", waited=7),
        TraceJob("b", T + 50, 5, _ASKS.get(ntasks=2, account="x"), 100, "ben"),
        TraceJob("c", T + 100, 5, _ASKS.get(ntasks=2, account="y"), 100, "ben"),
    ]
    return Outcome(
        jobs,
        start=[T, T + 60, -1],
        end=[T + 80, T + 65, -1],
        promised=[-1, T + 75, T + 900],
        promised_at=[-1, T + 50, T + 100],
        cpus=[4, 2, 0],
        gpus=[0, 0, 0],
        backfilled=[False, True, False],
        lost_seconds=[0, 5, 0],
        cancelled=[False, False, False],
        shares=[(NodeShare(0, 4, (0, 3)),), (NodeShare(0, 2, (4, 5)),), ()],
        passes=9,
        plan_seconds=0.5,
        cpu_seconds=1.0,
    )


def test_figures_of_three_jobs() -> None:
    found = figures(plain(1, 10), an_outcome())
    assert (found.jobs, found.ran, found.refused, found.never_started) == (3, 2, 0, 1)
    assert (found.span, found.makespan) == (100, 80)
    # 80 s x 4 CPUs + 5 s x 2 CPUs of 100 s x 10 CPUs.
    assert found.utilisation_cpu == pytest.approx(0.33)
    assert found.utilisation_gpu is None
    assert (found.waits.wait_mean, found.waits.wait_median, found.waits.wait_max) == (5, 5, 10)
    # (10 + 5) / max(5, 10) = 1.5; the other did not wait.
    assert found.waits.slowdown_mean == pytest.approx(1.25)
    assert found.recorded_wait_mean == 7
    assert found.backfilled == 0.5
    # 330 CPU-seconds of use, 10 lost.
    assert found.efficiency == pytest.approx(330 / 340)
    # Planned for 75, started at 60: kept; 15 s away is within a minute.
    assert (found.promised, found.promise_kept, found.promise_close, found.promise_error_mean) == (1, 1.0, 1.0, 15.0)
    assert {name: one.jobs for name, one in found.by_account.items()} == {"x": 2}
    assert {name: one.jobs for name, one in found.by_size.items()} == {"2-8 CPUs": 2}
    assert found.over_max_queue_wait is None


def test_a_late_start_breaks_the_promise() -> None:
    outcome = an_outcome()
    outcome.promised[1] = T + 55
    found = figures(plain(1, 10), outcome)
    assert found.promise_kept == 0.0 and found.promise_error_mean == 5.0


def test_jobs_over_max_queue_wait_are_counted(tmp_path: Path) -> None:
    conf = tmp_path / "muster.conf"
    conf.write_text(
        "ClusterName=c\nSlurmctldHost=h\nSchedulerParameters=max_queue_wait=0:09\nNodeName=n1 CPUs=10\n"
        "PartitionName=p Nodes=ALL Default=YES\n"
    )
    assert figures(from_file(conf), an_outcome()).over_max_queue_wait == 1


def test_efficiency_of_the_worked_example() -> None:
    """64 GPUs, 10 productive hours, 5 min start, 15 min lost and 2 min restart, 1 min cleanup (beyond.md B4)."""
    eta = efficiency(64 * 10, 64 * 5 / 60, 64 * 17 / 60, 64 * 1 / 60)
    assert eta == pytest.approx(0.96308, abs=1e-5)
    assert efficiency(0, 0, 0, 0) == 1


@pytest.mark.parametrize(
    ("cpus", "gpus", "name"),
    [(1, 0, "1 CPU"), (2, 0, "2-8 CPUs"), (9, 0, "9-64 CPUs"), (600, 0, "513+ CPUs"), (64, 1, "1 GPU"),
     (64, 8, "5-8 GPUs"), (4, 65, "65+ GPUs")],
)  # fmt: skip
def test_size_classes(cpus: int, gpus: int, name: str) -> None:
    assert size_class(cpus, gpus) == name


def test_nothing_ran() -> None:
    outcome = Outcome([], [], [], [], [], [], [], [], [], [], [])
    found = figures(plain(1, 1), outcome)
    assert found.jobs == 0 and found.waits.wait_mean == 0
    assert "jobs" in report.table(found, name="w", machine="m")


def test_steps_of_use_and_queue() -> None:
    outcome = an_outcome()
    assert busy_steps(outcome, outcome.cpus.__getitem__) == ([T, T + 60, T + 65, T + 80], [4, 6, 4, 0])
    assert queue_steps(outcome) == ([T + 50, T + 60], [1, 0])


def test_the_table_names_what_it_shows() -> None:
    text = report.table(figures(plain(1, 10), an_outcome()), name="w", machine="m")
    lines = {
        line.rsplit("  ", 1)[0].strip(): line.rsplit("  ", 1)[-1].strip() for line in text.splitlines() if "  " in line
    }
    assert lines["CPU utilisation"] == "33.00 %"
    assert "GPU utilisation" not in lines  # There are none.
    assert lines["wait, mean"] == "00:00:05"
    assert lines["never started"] == "1"


def test_a_comparison_says_what_changed() -> None:
    one = figures(plain(1, 10), an_outcome())
    outcome = an_outcome()
    outcome.start[1], outcome.end[1] = T + 150, T + 155
    other = figures(plain(1, 10), outcome)
    text = report.comparison(one, other, name="w", machines=["a", "b"])
    row = next(line for line in text.splitlines() if line.startswith("wait, mean"))
    assert row.split()[-3:] == ["00:00:05", "00:00:50", "+00:00:45"]
    used = next(line for line in text.splitlines() if line.startswith("CPU utilisation"))
    assert used.endswith("-1.00 %")
    assert "mean wait, user ben" in text


def test_each_job_is_a_row() -> None:
    file = io.StringIO()
    report.write_jobs(file, an_outcome(), plain(1, 10))
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [(row["job"], row["wait_s"], row["nodelist"], row["backfilled"]) for row in rows] == [
        ("a", "0", "n1", "0"),
        ("b", "10", "n1", "1"),
        ("c", "", "", "0"),
    ]
    assert rows[1]["first_planned_start"] == "1970-01-12T13:47:55"


def test_a_picture_has_a_known_ending(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"\.svg"):
        picture.check(tmp_path / "x.gif")


def test_a_picture_without_matplotlib_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Unavailable, match="matplotlib") as caught:
        picture.check(tmp_path / "x.svg")
    assert "pip install" in caught.value.hint


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "x.svg"
    picture.draw(file, plain(1, 10), an_outcome(), "w")
    assert "<svg" in file.read_text()
    picture.draw(tmp_path / "y.svg", plain(2, 4, 1), replace(an_outcome(), gpus=[1, 1, 0]), "w")

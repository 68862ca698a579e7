"""The real `muster sim` command on small workloads."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
DATA = Path(__file__).parents[2] / "data" / "sim"


def sim(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "muster", "sim", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


def test_prints_a_table_and_writes_each_job(tmp_path: Path) -> None:
    done = sim(DATA / "small.swf", "--jobs", tmp_path / "jobs.csv")
    assert done.returncode == 0, done.stderr
    assert "bounded slowdown, mean" in done.stdout
    assert "left out   1 never ran, 1 no processors" in done.stdout
    rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert [(row["job"], row["wait_s"]) for row in rows] == [("1", "0"), ("2", "90"), ("3", "130"), ("6", "50")]
    assert done.stderr == ""


def test_prints_json_of_two_configurations(tmp_path: Path) -> None:
    confs = []
    for kind in ("builtin", "backfill"):
        conf = tmp_path / f"{kind}.conf"
        conf.write_text(
            f"ClusterName=c\nSlurmctldHost=h\nSchedulerType=sched/{kind}\nNodeName=n[1-4] CPUs=1\n"
            "PartitionName=p Nodes=ALL Default=YES\n"
        )
        confs.append(conf)
    done = sim(DATA / "small.swf", "--compare", *confs, "--json")
    assert done.returncode == 0, done.stderr
    one, other = json.loads(done.stdout)["replays"]
    # Without backfill job 6 stands behind job 3 until 150.
    assert (one["cluster"], one["cpus"], one["backfilled"]) == (str(confs[0]), 4, 0.0)
    assert one["waits"]["wait_max"] == 130 and other["waits"]["wait_max"] == 130
    assert one["waits"]["wait_mean"] - other["waits"]["wait_mean"] == (100 - 50) / 4
    shown = sim(DATA / "small.swf", "--compare", *confs).stdout
    assert next(line for line in shown.splitlines() if line.startswith("wait, mean")).endswith("-00:00:12")


def test_takes_equal_nodes_from_the_command_line() -> None:
    done = sim(DATA / "jobs.sacct", "--nodes", 2, "--cpus", 16, "--gpus", 4, "--limits", "exact", "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["replays"]
    # The GPUs were typed h100, these are not: that job is refused and counted.
    assert (one["gpus"], one["ran"], one["refused"]) == (8, 2, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((DATA / "none.swf",), "there is no file"),
        ((DATA / "jobs.sacct",), "does not say which nodes there were"),
        ((DATA / "small.swf", "--nodes", 4), "--nodes and --cpus belong together"),
        ((DATA / "small.swf", "--config", "/nonexistent.conf"), "/nonexistent.conf"),
        ((DATA / "small.swf", "--svg", "x.gif"), "x.gif"),
        ((DATA / "small.swf", "--jobs", "/nonexistent/x.csv"), "cannot be written"),
        ((DATA / "small.swf", "--scale-load", "nan"), "--scale-load is no number"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_cure(arguments: tuple[object, ...], words: str) -> None:
    done = sim(*arguments)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith("muster sim: error: ") and words in lines[0]
    assert "Traceback" not in done.stderr

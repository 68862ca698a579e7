"""`make demo`, `muster up`, `status`, `doctor` and `down` as a new user meets them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster
from tests.e2e.conftest import SOURCE, left_behind


@pytest.fixture
def home() -> Iterator[Path]:
    """A home whose cluster is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="md"))
    yield folder
    cluster = Cluster(folder / ".muster")
    plan = cluster.plan()
    for daemon in reversed(cluster.daemons(plan)) if plan is not None else ():
        cluster.stop(daemon, seconds=5)
    shutil.rmtree(folder, ignore_errors=True)


def run(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a module of ours with this home."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, "-m", *argv],
        env=environment,
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_demonstration_runs_the_training_job_and_leaves_the_cluster_up(home: Path) -> None:
    shown = run(home, "cli.demo")
    assert shown.returncode == 0, shown.stderr + shown.stdout
    assert shown.stderr == ""
    for text in (
        "Submitted batch job 1\n",
        "gpu*         up   infinite      4   idle node[1-4]",
        "trained: 30 steps",
        "   JobState=COMPLETED Reason=None",
        "1.batch           batch",
        "COMPLETED      0:0",
        "muster status | doctor | down",
    ):
        assert text in shown.stdout
    status = run(home, "cli.muster", "status")
    assert status.returncode == 0
    assert "nodes      4, not connected: none" in status.stdout
    again = run(home, "cli.muster", "up", "--nodes", "2")
    assert again.returncode == 0
    assert "has a cluster already" in again.stderr
    down = run(home, "cli.muster", "down")
    assert down.returncode == 0, down.stderr
    assert run(home, "cli.muster", "status").returncode == 1
    assert left_behind(home) == []


def test_doctor_names_a_fault_and_its_cure(home: Path) -> None:
    nothing = run(home, "cli.muster", "doctor")
    assert nothing.returncode == 1
    assert "FAULT no cluster in" in nothing.stdout
    assert "`muster up` makes one" in nothing.stdout
    assert run(home, "cli.muster", "up", "--nodes", "1", "--no-accounting").returncode == 0
    cluster = Cluster(home / ".muster")
    cluster.stop("node1")
    found = run(home, "cli.muster", "doctor")
    assert found.returncode == 1
    assert "FAULT node1 does not run" in found.stdout
    assert "`muster up` starts it" in found.stdout
    assert "ok    ctld runs" in found.stdout


def test_a_broken_configuration_is_named_by_file_and_line(home: Path) -> None:
    assert run(home, "cli.muster", "up", "--nodes", "1", "--no-accounting").returncode == 0
    assert run(home, "cli.muster", "down").returncode == 0
    cluster = Cluster(home / ".muster")
    text = cluster.config.read_text()
    cluster.config.write_text(text + "PartitonName=x\n")
    failed = run(home, "cli.muster", "up")
    assert failed.returncode == 1
    line = text.count("\n") + 1
    assert f"muster.conf:{line}:" in failed.stderr
    assert "PartitionName" in failed.stderr


def test_down_without_a_cluster_says_so(home: Path) -> None:
    failed = run(home, "cli.muster", "down")
    assert failed.returncode == 1
    assert failed.stderr.startswith("muster: error: there is no cluster in ")

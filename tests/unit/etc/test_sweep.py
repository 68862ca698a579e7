"""The example sweep: every member writes its own result, and the best is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SWEEP = Path(__file__).resolve().parents[3] / "etc" / "examples" / "sweep.py"


def sweep(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SWEEP, *options], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_members_write_their_results_and_the_best_is_found(tmp_path: Path) -> None:
    for member in (0, 90, 199):
        done = sweep(tmp_path, "--member", str(member), "--results", "out")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"member {member}: learning rate ")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.json", "199.json", "90.json"]
    tried = [json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()]
    winner = min(tried, key=lambda result: float(result["loss"]))
    assert 0 < winner["loss"] < max(result["loss"] for result in tried)
    best = sweep(tmp_path, "--best", "out")
    assert best.returncode == 0
    assert best.stdout == (
        f"best of 3: learning rate {winner['learning_rate']:.4f}, momentum {winner['momentum']:.1f},"
        f" loss {winner['loss']:.6g}\n"
    )


def test_members_of_one_learning_rate_differ_in_momentum(tmp_path: Path) -> None:
    for member in range(0, 200, 40):  # the same learning rate, so the momentum must differ
        sweep(tmp_path, "--member", str(member), "--results", "out")
    tried = [json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()]
    assert len({result["learning_rate"] for result in tried}) == 1
    assert sorted(result["momentum"] for result in tried) == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_a_member_beyond_the_grid_is_refused(tmp_path: Path) -> None:
    done = sweep(tmp_path, "--member", "200")
    assert done.returncode == 2
    assert "--member must be from 0 to 199, not 200" in done.stderr


def test_no_results_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    done = sweep(tmp_path, "--best", "nowhere")
    assert (done.returncode, done.stderr) == (1, "sweep.py: ValueError: no results in nowhere\n")

"""The demonstration runs on its own kind of cluster only."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from cli.demo import fitting
from muster.errors import Refused


def test_the_demonstration_makes_its_cluster_or_takes_up_one_that_is_large_enough(tmp_path: Path) -> None:
    made = Cluster(tmp_path / "c")
    assert fitting(made) == Plan()
    larger = made.make(Plan(nodes=6))
    assert fitting(made) == larger


@pytest.mark.parametrize("other", [Plan(nodes=1), Plan(cpus=8), Plan(gpus="")])
def test_the_demonstration_refuses_a_cluster_that_its_job_does_not_fit(tmp_path: Path, other: Plan) -> None:
    made = Cluster(tmp_path / "c")
    made.make(other)
    with pytest.raises(Refused, match=rf"{other.nodes} nodes with {other.cpus} CPUs and {other.gpus or 'no GPUs'}"):
        fitting(made)

"""What srun says by itself, before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.served import run


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--gpus-per-task=1", "--gpus-per-task"),
        ("-G2", "--gpus"),
        ("--mem-per-cpu=1G", "--mem-per-cpu"),
        ("-O", "--overcommit"),
        ("--switches=1", "--switches"),
        ("--topology=required:rack", "--topology"),
        ("--bundle=cpus=2:2", "--bundle"),
        ("--nodes=1,2", "a list of node counts in --nodes"),
    ],
)
def test_an_option_that_a_step_would_not_get_is_refused_by_name(tmp_path: Path, option: str, named: str) -> None:
    done = run("srun", option, "hostname", socket=tmp_path / "none", SLURM_JOB_ID="5")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"srun: error: {named} is not supported for a step by this release of Muster\n")


def test_variables_of_the_surrounding_job_refuse_no_step(tmp_path: Path) -> None:
    done = run("srun", "hostname", socket=tmp_path / "none", SLURM_JOB_ID="5", SLURM_GPUS_PER_TASK="1")
    assert "not supported" not in done.stderr
    assert "Unable to contact slurm controller" in done.stderr


def test_kinds_of_process_management_are_listed(tmp_path: Path) -> None:
    done = run("srun", "--mpi=list", socket=tmp_path / "none")
    assert (done.returncode, done.stdout, done.stderr) == (0, "MPI plugin types are...\n\tnone\n", "")


def test_verbose_shows_the_options_in_force(tmp_path: Path) -> None:
    done = run("srun", "-v", "-n2", "hostname", socket=tmp_path / "none")
    assert "srun: ntasks              : 2\n" in done.stderr


def test_parsable_is_sbatchs_alone(tmp_path: Path) -> None:
    done = run("srun", "--parsable", "hostname", socket=tmp_path / "none")
    assert done.stderr == "srun: error: --parsable is not supported by this release of Muster\n"

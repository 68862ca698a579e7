"""What is judged after the merge: conflicts, warnings, and what this release does not do."""

from __future__ import annotations

import pytest

from muster.options import Given, OptionError, merge, parse_argv, parse_environment
from muster.options_check import check

NOON = 1_800_000_000


def judged(
    *words: str, command: str = "sbatch", environ: dict[str, str] | None = None
) -> tuple[dict[str, object], list[str]]:
    environment = parse_environment(command, environ or {}, NOON)
    return check(command, merge(Given(), environment, parse_argv(command, words, NOON)[0]))


def refused(*words: str, command: str = "sbatch", environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(OptionError) as caught:
        judged(*words, command=command, environ=environ)
    assert caught.value.exit_code == 1
    return caught.value.lines


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--mem=2G", "--mem-per-cpu=1G"], "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
        (["--mem=2G", "--mem-per-gpu=1G"], "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
        (
            ["--gres=gpu:1", "--gpus-per-node=1"],
            "--gpus-per-node and --gres=gpu are mutually exclusive.",
        ),
        (
            ["-c2", "--cpus-per-gpu=2"],
            "--cpus-per-task, --tres-per-task=cpu:#, and --cpus-per-gpu are mutually exclusive",
        ),
        (
            ["--tres-per-task=cpu=2", "--cpus-per-gpu=2"],
            "--cpus-per-task, --tres-per-task=cpu:#, and --cpus-per-gpu are mutually exclusive",
        ),
        (
            ["--ntasks-per-gpu=2", "--gpus-per-task=1"],
            "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
        ),
        (
            ["--ntasks-per-gpu=2", "--gpus-per-socket=1"],
            "--gpus-per-socket is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
        ),
        (
            ["--ntasks-per-gpu=2", "--ntasks-per-node=1"],
            "--ntasks-per-node is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
        ),
        (
            ["--ntasks-per-gpu=2", "--tres-per-task=gres/gpu=1"],
            "--tres-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
        ),
        (["--exclusive", "-s"], "--exclusive and --oversubscribe options are mutually exclusive"),
        (["-S1", "--thread-spec=1"], "-S/--core-spec and --thred-spec options are mutually exclusive"),
        (["--tres-per-task=mem=2"], "Invalid TRES for --tres-per-task: mem"),
        (["--tres-per-task=cpu=1,bb/x=2"], "Invalid TRES for --tres-per-task: bb/x"),
        (
            ["--tres-per-task=cpu=2", "-c2"],
            "You can not have --tres-per-task=cpu= and --cpus-per-task please use one or the other",
        ),
    ],
)
def test_options_that_exclude_each_other_are_fatal(words: list[str], text: str) -> None:
    assert refused(*words) == [f"sbatch: fatal: {text}"]


def test_two_memory_variables_exclude_each_other() -> None:
    assert refused(environ={"SBATCH_MEM_PER_CPU": "1", "SBATCH_MEM_PER_NODE": "1"}) == [
        "sbatch: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive."
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-Q", "-v"], "don't specify both --verbose (-v) and --quiet (-Q)"),
        (
            ["--ntasks-per-core=2", "--threads-per-core=1"],
            "--ntasks-per-core (2) can not be bigger than --threads-per-core (1)",
        ),
        (
            ["-m", "arbitrary"],
            "With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option",
        ),
        (["-m", "arbitrary", "-w", "n1", "-N1"], "--nodes is incompatible with --distribution=arbitrary"),
        (
            ["-m", "plane=2", "-N4", "-n2"],
            "Too few processes for the requested {plane,node} distribution",
        ),
        (
            ["--begin=now+100", "--deadline=now+50"],
            "Incompatible begin and deadline time specification",
        ),
        (
            ["--gres=gpu:1,gpu:a100:1"],
            "Invalid GRES specification (with and without type identification)",
        ),
        (["--gpus=1,a100:1"], "Invalid GRES specification (with and without type identification)"),
        (["--gres=gpu:a:b:1"], "Invalid generic resource (gres) specification"),
        (["--gpus-per-node=a:b:1"], "Invalid generic resource (gres) specification"),
    ],
)
def test_what_fails_verification_is_an_error_whose_code_may_be_set(words: list[str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        judged(*words)
    assert caught.value.lines == [f"sbatch: error: {text}"]
    assert caught.value.exit_code == 1
    assert caught.value.is_verification


def test_a_fatal_conflict_keeps_its_code() -> None:
    with pytest.raises(OptionError) as caught:
        judged("--mem=1", "--mem-per-cpu=1")
    assert not caught.value.is_verification


def test_more_nodes_than_tasks_are_cut_with_a_warning() -> None:
    values, warnings = judged("-N4", "-n2")
    assert values == {"nodes": [2, 2], "ntasks": 2}
    assert warnings == ["can't run 2 processes on 4 nodes, setting nnodes to 2"]
    assert judged("-N2-4", "-n2") == ({"nodes": [2, 4], "ntasks": 2}, [])


def test_srun_drops_tasks_per_node_that_do_not_match() -> None:
    environ = {"SLURM_NTASKS_PER_NODE": "8", "SLURM_JOB_NUM_NODES": "1"}
    values, warnings = judged("-n4", command="srun", environ=environ)
    assert values == {"nodes": [1, 1], "ntasks": 4}
    assert warnings == [
        "can't honor --ntasks-per-node set to 8 which doesn't match the requested tasks 4 "
        "with the maximum number of requested nodes 1. Ignoring --ntasks-per-node."
    ]
    assert judged("-n4", "--ntasks-per-node=8", "-N1")[1] == []


def test_exactness_of_a_step() -> None:
    assert judged("-c2", command="srun")[0] == {"cpus_per_task": 2, "exact": True}
    assert judged("--cpus-per-gpu=2", command="srun")[0] == {"cpus_per_gpu": 2, "exact": True}
    assert judged("--exclusive", command="srun")[0] == {"exclusive": "node", "exact": True}
    assert judged("--exclusive=allocation", command="srun")[0] == {"exclusive": "node"}
    assert judged("-c2")[0] == {"cpus_per_task": 2}


def test_allocation_is_a_word_of_srun_alone() -> None:
    with pytest.raises(OptionError) as caught:
        judged("--exclusive=allocation")
    assert caught.value.lines == ["sbatch: error: Invalid --exclusive specification"]
    assert caught.value.exit_code == 255


def test_each_option_that_is_not_acted_on_is_refused_by_name() -> None:
    assert refused("--mail-type=END", "--mail-user=me", "-N1") == [
        "sbatch: error: --mail-type is not supported by this release of Muster",
        "sbatch: error: --mail-user is not supported by this release of Muster",
    ]
    assert refused("--pty", command="srun") == ["srun: error: --pty is not supported by this release of Muster"]
    assert refused("-N1", command="salloc") == ["salloc: error: --nodes is not supported by this release of Muster"]
    assert refused("--requeue=expedite") == [
        "sbatch: error: --requeue=expedite is not supported by this release of Muster"
    ]
    assert refused("--bb=x") == ["sbatch: error: --bb is not supported by this release of Muster"]


def test_a_variable_of_the_user_is_refused_too() -> None:
    assert refused(environ={"SBATCH_BURST_BUFFER": "r"}) == [
        "sbatch: error: SBATCH_BURST_BUFFER (--bb) is not supported by this release of Muster"
    ]


def test_a_variable_that_a_job_may_have_set_is_ignored_aloud() -> None:
    values, warnings = judged(command="srun", environ={"SLURM_CPU_BIND": "quiet,mask_cpu:0x1"})
    assert values == {}
    assert warnings == ["SLURM_CPU_BIND is ignored: --cpu-bind is not supported by this release of Muster"]


def test_options_without_effect_are_taken_and_left_out() -> None:
    assert judged("--network=x", "--stepmgr", "--context=y", "-N1") == ({"nodes": [1, 1]}, [])


def test_kinds_of_mpi() -> None:
    assert judged("--mpi=none", command="srun")[0] == {"mpi": "none"}
    assert judged("--mpi=list", command="srun")[0] == {"mpi": "list"}
    assert refused("--mpi=pmix_v5", command="srun") == [
        "srun: error: --mpi=pmix_v5 is not supported by this release of Muster"
    ]
    assert refused("--mpi=x", command="srun") == [
        "srun: error: MPI: Cannot create context for mpi/x",
        "srun: error: MPI: Unable to load any plugin",
        "srun: error: Invalid MPI type 'x', --mpi=list for acceptable types",
    ]


def test_a_plain_dict_can_be_judged() -> None:
    assert check("sbatch", {"ntasks": 2, "requeue": False}) == ({"ntasks": 2, "requeue": False}, [])
    with pytest.raises(OptionError, match="--bb is not supported"):
        check("sbatch", {"bb": "a"})


def test_what_the_user_gave_is_not_changed() -> None:
    values: dict[str, object] = {"nodes": [4, 4], "ntasks": 2}
    check("sbatch", values)
    assert values == {"nodes": [4, 4], "ntasks": 2}

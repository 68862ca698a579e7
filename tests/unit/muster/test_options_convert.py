"""Converters of option texts: values, and the reference's texts and exit codes for what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.options import OptionError, parse_argv

NOON = 1_800_000_000


def value_of(*words: str, command: str = "sbatch") -> object:
    values, _ = parse_argv(command, words, NOON)
    assert len(values) == 1
    return next(iter(values.values()))


def refused(*words: str, command: str = "sbatch") -> tuple[list[str], int]:
    with pytest.raises(OptionError) as caught:
        parse_argv(command, words, NOON)
    return caught.value.lines, caught.value.exit_code


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("--deadline=x", "--deadline"),
        ("--begin=x", "--begin"),
        ("--exclusive=x", "--exclusive"),
        ("--extra-node-info=x", "--extra-node-info"),
        ("--kill-on-invalid-dep=x", "--kill-on-invalid-dep"),
        ("--mail-type=x", "--mail-type"),
        ("--mem=x", "--mem"),
        ("--mem-per-cpu=1.5G", "--mem-per-cpu"),
        ("--mem-per-gpu=-1", "--mem-per-gpu"),
        ("--tmp=x", "--tmp"),
        ("--no-kill=x", "--no-kill"),
        ("--open-mode=x", "--open-mode"),
        ("--oom-kill-step=2", "--oom-kill-step"),
        ("--requeue=x", "--requeue"),
        ("--segment=0", "--segment"),
        ("--signal=x", "--signal"),
        ("--signal=USR1@65536", "--signal"),
        ("--time=x", "--time"),
        ("--time=5m", "--time"),
        ("--time-min=1:2:3:4", "--time-min"),
        ("--wait-all-nodes=x", "--wait-all-nodes"),
        ("--distribution=x", "--distribution"),
        ("--distribution=block:plane", "--distribution"),
        ("--distribution=block,x", "--distribution"),
        ("--propagate=x", "--propagate"),
        ("--propagate=ALL,CORE", "--propagate"),
        ("--priority=x", "--priority"),
        ("--get-user-env=x", "--get-user-env"),
        ("--tres-bind=x", "--tres-bind"),
    ],
)
def test_a_bad_word_is_an_invalid_specification(word: str, text: str) -> None:
    lines, code = refused(word)
    assert lines[-1] == f"sbatch: error: Invalid {text} specification"
    assert code == 255


def test_a_bad_time_point_says_first_where_it_fails() -> None:
    lines, _ = refused("--begin=4pm")
    assert len(lines) == 2
    assert lines[0].startswith("sbatch: error: Invalid time specification (pos=")


def test_a_plane_without_a_size_says_so_first() -> None:
    assert refused("-m", "plane=x") == (
        [
            "sbatch: error: Invalid plane size or size not specified",
            "sbatch: error: Invalid --distribution specification",
        ],
        255,
    )


@pytest.mark.parametrize("text", ["x", "0", "-3", "2x", "", "1.5", "²"])
@pytest.mark.parametrize("option", ["ntasks", "cpus-per-task", "mincpus", "ntasks-per-node", "cpus-per-gpu"])
def test_a_bad_count_is_an_invalid_numeric_value(option: str, text: str) -> None:
    assert refused(f"--{option}={text}") == (
        [f'sbatch: error: Invalid numeric value "{text}" for --{option}.'],
        1,
    )


def test_a_count_can_be_too_large() -> None:
    assert refused("-n", "2147483648") == (
        ["sbatch: error: Numeric argument (2147483648) too large for --ntasks."],
        1,
    )
    assert refused("-n", "9" * 5000)[1] == 1
    assert value_of("-n", "2147483647") == 2147483647


def test_immediate_is_named_without_dashes() -> None:
    assert refused("-Ix", command="srun") == (
        ['srun: error: Invalid numeric value "x" for immediate.'],
        1,
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", [2, 2]),
        ("2-4", [2, 4]),
        ("0", [0, 0]),
        ("1k", [1024, 1024]),
        ("1-2k", [1, 2048]),
        ("1m", [1048576, 1048576]),
        ("1,2,4", {"sizes": [1, 2, 4]}),
        ("1-15:4", {"sizes": [1, 5, 9, 13]}),
        ("2-8:2", {"sizes": [2, 4, 6, 8]}),
        ("1-2,2,7", {"sizes": [1, 2, 7]}),
    ],
)
def test_node_counts(text: str, value: object) -> None:
    assert value_of("-N", text) == value


@pytest.mark.parametrize("text", ["x", "-1", "1-", "1-x", "2.5", "1,x", "1-4:0", "1,0", "4:2", "1-9999999:1", ""])
def test_a_bad_node_count_is_named(text: str) -> None:
    assert refused(f"--nodes={text}") == ([f'sbatch: error: "{text}" is not a valid node count'], 255)


def test_a_node_range_must_not_fall() -> None:
    assert refused("-N2-1") == (
        ["sbatch: error: Maximum node count 1 is less than minimum node count 2"],
        255,
    )


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("10", 10),
        ("4:00", 4),
        ("1:30:00", 90),
        ("2-12", 3600),
        ("2-12:30", 3630),
        ("1-00:00:00", 1440),
        ("0:01", 1),
        ("90:00", 90),
        ("0", -1),
        ("00:00:00", -1),
        ("unlimited", -1),
        ("INFINITE", -1),
        ("-1", -1),
    ],
)
def test_n04_the_forms_of_a_time_limit(text: str, minutes: int) -> None:
    assert value_of("--time", text) == minutes


def test_memory_is_in_mib() -> None:
    assert value_of("--mem=2G") == 2048
    assert value_of("--mem=0") == 0
    assert value_of("--mem-per-cpu=1") == 1
    assert value_of("--tmp=1t") == 1048576


def test_time_points_are_epoch_seconds() -> None:
    assert value_of("--begin=now+60") == NOON + 60
    assert value_of("--deadline=uts1800000001") == 1_800_000_001


def test_nice() -> None:
    assert value_of("--nice") == 100
    assert value_of("--nice=-5") == -5
    assert value_of("--nice=x") == 0
    assert value_of("--nice=12x") == 12
    for text in ("2147483646", "-2147483646", "9" * 30, "-" + "9" * 30):
        assert refused(f"--nice={text}") == (
            ["sbatch: error: Invalid --nice value, out of range (+/- 2147483645)"],
            255,
        )


def test_priority() -> None:
    assert value_of("--priority=7") == 7
    assert value_of("--priority=top") == "TOP"
    assert refused("--priority=-1") == (["sbatch: error: Priority must be >= 0"], 255)
    assert refused("--priority=4294967294")[1] == 255


def test_words() -> None:
    assert value_of("--exclusive") == "node"
    assert value_of("--exclusive=USER") == "user"
    assert value_of("--exclusive=allocation", command="srun") == "allocation"
    assert value_of("--open-mode=append") == "a"
    assert value_of("--open-mode=T") == "t"
    assert value_of("--kill-on-invalid-dep=Yes") is True
    assert value_of("--kill-on-invalid-dep=no") is False
    assert value_of("--no-kill") is True
    assert value_of("--no-kill=off") is False
    assert value_of("--requeue=expedite") == "expedite"
    assert value_of("--get-user-env=L") is True
    assert value_of("--get-user-env=10S") is True
    assert value_of("--propagate") == "ALL"
    assert value_of("--propagate=core,RLIMIT_stack") == "CORE,STACK"
    assert value_of("--signal=B:USR1@600") == "B:USR1@600"
    assert value_of("--signal=SIGUSR1@90") == "SIGUSR1@90"
    assert value_of("--oom-kill-step") == 1
    assert value_of("-B", "2:*:1") == [2, 0, 1]
    assert value_of("-B", "2") == [2, 0, 0]
    assert value_of("--mail-type=begin,END,none,fail") == "FAIL"
    assert value_of("--switches=1@00:15:00") == "1@00:15:00"
    assert value_of("--hint=nomultithread") == "nomultithread"
    assert value_of("--kill-command=USR1", command="salloc") == "USR1"
    assert value_of("-m", "plane=4") == "plane=4"
    assert value_of("-m", "block:cyclic,NoPack") == "block:cyclic,NoPack"
    assert value_of("--tres-bind=gres/gpu:single:2") == "gres/gpu:single:2"


@pytest.mark.parametrize("text", ["none", "closest", "single:2", "per_task:1", "map:0,1*2", "mask:0x3", "verbose,none"])
def test_gpu_binds(text: str) -> None:
    assert value_of(f"--gpu-bind={text}") == text


def test_texts_of_their_own() -> None:
    assert refused("--gpu-bind=x") == (["sbatch: error: Invalid --gpu-bind argument: x"], 255)
    assert refused("--gpu-bind=single:0")[1] == 255
    assert refused("--gres-flags=disable-binding,x") == (
        ["sbatch: error: Invalid --gres-flags specification: x"],
        255,
    )
    assert refused("--acctg-freq=task=30,disk=1") == (
        ["sbatch: error: Invalid --acctg-freq specification: disk=1"],
        255,
    )
    assert refused("--hint=x") == (
        ['sbatch: error: unrecognized --hint argument "x", see --hint=help'],
        1,
    )
    assert refused("--cpu-bind=x", command="srun") == (
        [
            'srun: error: unrecognized --cpu-bind argument "x"',
            "srun: fatal: Failed to parse --cpu-bind= values.",
        ],
        1,
    )


@pytest.mark.parametrize("text", ["q", "none", "quiet,mask_cpu:0x1,0x2", "verbose,map_cpu:0,1", "cores"])
def test_cpu_binds(text: str) -> None:
    assert value_of(f"--cpu-bind={text}", command="srun") == text


def test_a_relative_folder_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert value_of("-D", "a/b") == f"{tmp_path}/a/b"
    assert value_of("-D", "/x") == "/x"


def test_nodes_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("n1 n2 # the old ones\nn[4,6-7],n9\n\n")
    assert value_of("-F", str(file)) == "n1,n2,n[4,6-7],n9"
    assert value_of("-w", str(file)) == "n1,n2,n[4,6-7],n9"
    assert value_of("-w", "n[1-2]") == "n[1-2]"
    file.write_text("# none\n")
    assert refused("-F", str(file)) == ([f"sbatch: error: Node file {file} names no node"], 1)
    assert refused("-F", f"{file}.x") == (
        [f"sbatch: error: Unable to read node file {file}.x: No such file or directory"],
        1,
    )

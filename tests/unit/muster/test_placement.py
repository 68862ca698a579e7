"""Texts about where a job's nodes lie, and the options that --place and --bundle stand for."""

from __future__ import annotations

import pytest

from muster.errors import InvalidInput
from muster.options import OptionError, merge, parse_argv, parse_directives, parse_environment
from muster.options_check import check
from muster.placement import parse_bundle, parse_segment, parse_switches, parse_topology
from muster.placement_options import as_options

NOON = 1_800_000_000


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1", (1, -1)),
        ("2@10", (2, 600)),
        ("2@0:30", (2, 30)),
        ("3@1:00:00", (3, 3600)),
        ("3@UNLIMITED", (3, -1)),
        ("4@0", (4, 0)),
    ],
)
def test_switches_are_a_number_and_a_time_in_minutes(text: str, read: tuple[int, int]) -> None:
    assert parse_switches(text) == read


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1@", "1@x", "1@5m", "@5", "99999999999"])
def test_other_texts_are_no_switches(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_switches(text)


def test_a_segment_is_a_size_and_may_name_a_level() -> None:
    assert parse_segment("8") == (8, "")
    assert parse_segment("8:required:rack") == (8, "rack")
    for text in ("0", "8:rack", "8:preferred:rack", "8:required:", "8:", "x"):
        with pytest.raises(InvalidInput):
            parse_segment(text)


def test_a_topology_is_a_word_and_a_level() -> None:
    assert parse_topology("Required:rack") == ("required", "rack")
    assert parse_topology("preferred:0") == ("preferred", "0")
    assert parse_topology("unconstrained") == ("unconstrained", "")
    for text in ("", "rack", "required", "required:", "unconstrained:rack", "wanted:rack"):
        with pytest.raises(InvalidInput, match="write required:LEVEL, preferred:LEVEL or unconstrained"):
            parse_topology(text)


@pytest.mark.parametrize(
    ("text", "count", "has"),
    [
        ("cpus=8,gpus=1:4", 4, {"cpus": 8, "gpus": "1"}),
        ("cpus=8", 1, {"cpus": 8}),
        ("gpus=a100:2", 1, {"gpus": "a100:2"}),
        ("gpus=a100:2:4", 4, {"gpus": "a100:2"}),
        ("gpus=2,mem=16G:3", 3, {"gpus": "2", "mem": 16384}),
        ("mem=16G,gpus=h100:1", 1, {"mem": 16384, "gpus": "h100:1"}),
    ],
)
def test_bundles_say_what_each_has_and_how_many_there_are(text: str, count: int, has: dict[str, object]) -> None:
    assert parse_bundle(text) == (count, has)


@pytest.mark.parametrize(
    "text", ["", "4", "cpus=8:0", "cpus=0:2", "cpus=1,cpus=2:2", "nodes=2:2", "mem=0:2", "mem=x:2", "cpus:4", "gpus=:2"]
)
def test_other_texts_are_no_bundles(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_bundle(text)


def meant(**values: object) -> dict[str, object]:
    as_options(values)
    return values


def test_a_bundle_is_a_task_with_its_cpus_gpus_and_memory() -> None:
    assert meant(bundle="cpus=8,gpus=a100:1:4") == {"ntasks": 4, "cpus_per_task": 8, "gpus_per_task": "a100:1"}
    assert meant(bundle="cpus=3,mem=1000:2") == {"ntasks": 2, "cpus_per_task": 3, "mem_per_cpu": 334}
    assert meant(bundle="gpus=1:2", mem=5) == {"ntasks": 2, "cpus_per_task": 1, "gpus_per_task": "1", "mem": 5}


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("pack", {"use_min_nodes": True}),
        ("spread", {"spread_job": True}),
        ("strict-pack", {"nodes": [1, 1]}),
        ("strict-spread", {"ntasks_per_node": 1}),
    ],
)
def test_a_place_is_short_for_another_option(word: str, options: dict[str, object]) -> None:
    assert meant(place=word, ntasks=4) == {"ntasks": 4, **options}


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("--bundle=cpus=2:2 -n 3", "--bundle says what each task has: leave --ntasks out"),
        ("--bundle=cpus=2,mem=1G:2 --mem=3G", "--bundle says what each task has: leave --mem out"),
        ("--place=pack -N 2", "--place=pack says where tasks go: say how many there are with --ntasks or --bundle"),
        ("--place=strict-pack -n 4 -N 2-4", "--place=strict-pack is one node: leave --nodes out"),
        (
            "--place=strict-spread -n 4 --ntasks-per-node=2",
            "--place=strict-spread is one task on a node, --ntasks-per-node=2 is asked for",
        ),
        ("--place=pack -n 4 --spread-job", "--place=pack takes few nodes, --spread-job many: leave one of them out"),
        (
            "--place=spread -n 4 --use-min-nodes",
            "--place=spread takes many nodes, --use-min-nodes few: leave one of them out",
        ),
    ],
)
def test_options_that_contradict_are_refused_by_name(argv: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        check("sbatch", parse_argv("sbatch", argv.split(), NOON)[0])
    assert caught.value.lines == [f"sbatch: fatal: {sentence}"]
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ("--topology=rack", ["write required:LEVEL, preferred:LEVEL or unconstrained, not 'rack'"]),
        ("--place=x", ["--place is one of pack, spread, strict-pack, strict-spread"]),
        ("--bundle=4", ["write --bundle=cpus=N,gpus=[TYPE:]N,mem=SIZE:BUNDLES, each once at most, not 4"]),
        ("--segment=8:rack", []),
    ],
)
def test_a_bad_value_says_how_to_write_it(word: str, lines: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        parse_argv("sbatch", [word], NOON)
    option = word.partition("=")[0]
    assert caught.value.lines == [
        *(f"sbatch: error: {line}" for line in lines),
        f"sbatch: error: Invalid {option} specification",
    ]
    assert caught.value.exit_code == 255


def sent(argv: str = "", **environ: str) -> dict[str, object]:
    """What sbatch sends of its placement options."""
    given, _ = parse_argv("sbatch", argv.split(), NOON)
    merged = merge(parse_directives("sbatch", [], NOON), parse_environment("sbatch", environ, NOON), given)
    return check("sbatch", merged)[0]


def test_the_time_to_wait_for_switches_may_stand_in_a_variable_of_its_own() -> None:
    assert sent("--switches=2", SBATCH_WAIT4SWITCH="10") == {"switches": "2@10"}
    assert sent("--switches=2@5", SBATCH_WAIT4SWITCH="10") == {"switches": "2@5"}
    assert sent(SBATCH_REQ_SWITCH="3", SBATCH_WAIT4SWITCH="7") == {"switches": "3@7"}
    assert sent(SBATCH_WAIT4SWITCH="7") == {}


def test_placement_options_are_sent_as_they_are() -> None:
    argv = "--contiguous --spread-job --use-min-nodes --prefer=a&b --segment=4:required:rack --topology=required:pod"
    assert sent(argv) == {
        "contiguous": True,
        "spread_job": True,
        "use_min_nodes": True,
        "prefer": "a&b",
        "segment": "4:required:rack",
        "topology": "required:pod",
    }
    assert sent(SBATCH_SEGMENT_SIZE="4", SBATCH_SPREAD_SEGMENTS="1") == {"segment": 4, "spread_segments": True}

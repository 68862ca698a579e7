from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.cluster import Settings
from ctld.core.commands import Submit
from ctld.core.jobspec import Names, from_request, shape
from ctld.core.model import ArraySpec, GpuRequest, Request, SignalSpec
from muster.api import JobRequest, NodeSizes
from muster.errors import InvalidInput, MusterError, Refused, TooLarge
from tests.builders import USER

SETTINGS = Settings()


def asked(**fields: Any) -> JobRequest:
    fields.setdefault("script", "#!/bin/sh\n")
    fields.setdefault("work_dir", "/home/ada")
    return JobRequest(**fields)


def made(settings: Settings = SETTINGS, **fields: Any) -> Submit:
    return from_request(asked(**fields), USER, Names("ada", "users"), settings, script_hash=b"s")


def counts(**fields: Any) -> tuple[int, int, int, int]:
    """Give (fewest nodes, most nodes, tasks, tasks on a node)."""
    request = shape(asked(**fields), SETTINGS)
    return request.nodes_min, request.nodes_max, request.ntasks, request.ntasks_per_node


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ({}, False),
        ({"nodes": [2, 2]}, False),
        ({"nodes": [2, 2], "cpus_per_task": 2, "gres": "gpu:2"}, False),
        ({"ntasks": 1}, True),
        ({"ntasks_per_node": 2}, True),
        ({"gpus": "4", "ntasks_per_gpu": 1}, True),
        ({"gpus": "4", "gpus_per_task": "2"}, True),
    ],
)
def test_remembers_whether_a_number_of_tasks_was_given(fields: dict[str, Any], given: bool) -> None:
    assert made(replace(SETTINGS, gres_names=("gpu",)), **fields).spec.tasks_given is given


# Nodes, tasks and CPUs.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (1, 1, 1, 0)),
        ({"ntasks": 1}, (1, 1, 1, 0)),
        ({"nodes": [3, 3]}, (3, 3, 3, 0)),
        ({"ntasks": 8}, (1, 0, 8, 0)),
        ({"nodes": [2, 2], "ntasks": 8}, (2, 2, 8, 0)),
        ({"nodes": [2, 4]}, (2, 4, 0, 0)),
        ({"nodes": [2, 2], "ntasks_per_node": 4}, (2, 2, 8, 4)),
        ({"ntasks_per_node": 4}, (1, 1, 4, 4)),
        ({"ntasks": 10, "ntasks_per_node": 4}, (3, 0, 10, 4)),
        # More nodes than tasks: as many nodes as tasks.
        ({"nodes": [4, 4], "ntasks": 2}, (2, 2, 2, 0)),
        ({"nodes": [1, 8], "ntasks": 2}, (1, 2, 2, 0)),
        ({"nodelist": "n[1-2]"}, (2, 0, 0, 0)),
        ({"nodelist": "n[1-2]", "nodes": [3, 3]}, (3, 3, 3, 0)),
        ({"nodelist": "n[1-2]", "nodes": [2, 2], "ntasks": 1}, (2, 2, 1, 0)),
        ({"nodes": NodeSizes([2, 3, 4])}, (2, 4, 0, 0)),
    ],
)
def test_counts_of_nodes_and_tasks_are_made_consistent(
    fields: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    assert counts(**fields) == expected


def test_requests_that_mean_the_same_are_one_shape() -> None:
    assert shape(asked(), SETTINGS) == shape(asked(ntasks=1, nodes=[1, 1]), SETTINGS)
    assert shape(asked(nodes=[2, 2]), SETTINGS) == shape(asked(nodes=[2, 2], ntasks=2), SETTINGS)
    assert shape(asked(nodelist="n2,n1,n2"), SETTINGS) == shape(asked(nodelist="n[1-2]"), SETTINGS)
    assert shape(asked(gres="gpu:2"), SETTINGS) == shape(asked(gpus_per_node="2"), SETTINGS)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"nodes": [0, 0]}, 2006),
        ({"nodes": [3, 2]}, 2006),
        ({"nodelist": "n[1-3]", "nodes": [2, 2]}, 2006),
        ({"ntasks": 0}, 2025),
        ({"ntasks": 9, "ntasks_per_node": 4, "nodes": [2, 2]}, 2025),
        ({"nodes": NodeSizes([1, 4])}, 2036),
        ({"exclusive": "mcs"}, 2036),
        ({"requeue": "expedite"}, 2036),
        ({"nodelist": "n["}, 2018),
    ],
)
def test_counts_that_contradict_each_other_are_refused(fields: dict[str, Any], code: int) -> None:
    with pytest.raises(MusterError) as caught:
        made(**fields)
    assert caught.value.slurm_code == code
    assert caught.value.hint


# GPUs.


def gpus(*pairs: tuple[str, int]) -> tuple[GpuRequest, ...]:
    return tuple(GpuRequest(kind, count) for kind, count in pairs)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu", gpus(("", 1))),
        ("gpu:4", gpus(("", 4))),
        ("gres/gpu:4", gpus(("", 4))),
        ("gpu:a100", gpus(("a100", 1))),
        ("gpu:a100:2", gpus(("a100", 2))),
        ("gpu:h100:1,gpu:a100:2", gpus(("a100", 2), ("h100", 1))),
        ("gpu:0", ()),
        ("none", ()),
    ],
)
def test_reads_gres(gres: str, expected: tuple[GpuRequest, ...]) -> None:
    assert shape(asked(gres=gres), SETTINGS).gpus_per_node == expected


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"gres": "tape:1"}, 2072),
        ({"gres": "gpu:a:b:1"}, 2072),
        ({"gres": "gpu:2x"}, 2072),
        ({"gpus": "a100"}, 2072),
        ({"gpus": ":2"}, 2072),
        ({"gpus": "a100:1,2"}, 2119),
        ({"gpus": "a100:1,a100:2"}, 2102),
        ({"gpus": "6", "gpus_per_node": "4"}, 2072),
        ({"gpus": "8", "gpus_per_node": "4", "nodes": [3, 3]}, 2072),
        ({"gpus": "5", "gpus_per_task": "2"}, 2072),
        ({"gpus": "4", "gpus_per_task": "2", "ntasks": 3}, 2072),
        ({"gpus_per_task": "1"}, 2072),
        ({"ntasks_per_gpu": 2}, 2072),
        ({"ntasks_per_gpu": 2, "ntasks": 3}, 2072),
        ({"ntasks_per_gpu": 2, "gpus": "2", "ntasks": 3}, 2072),
    ],
)
def test_gpu_requests_that_make_no_sense_are_refused(fields: dict[str, Any], code: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        made(**fields)
    assert caught.value.slurm_code == code
    assert caught.value.hint


def test_an_unknown_gres_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="there are: gpu"):
        made(gres="tape:1")


def test_a_total_and_a_number_for_each_node_give_the_nodes() -> None:
    request = shape(asked(gpus="8", gpus_per_node="4"), SETTINGS)
    assert (request.nodes_min, request.nodes_max, request.gpus) == (2, 2, ())
    assert request.gpus_per_node == gpus(("", 4))


def test_a_total_and_a_number_for_each_task_give_the_tasks() -> None:
    request = shape(asked(gpus="8", gpus_per_task="2"), SETTINGS)
    assert (request.ntasks, request.gpus, request.gpus_per_task) == (4, (), gpus(("", 2)))


def test_numbers_for_each_node_and_each_task_give_the_tasks_of_a_node() -> None:
    assert counts(gpus_per_node="4", gpus_per_task="2", nodes=[2, 2]) == (2, 2, 4, 2)


def test_tasks_for_each_gpu_give_the_tasks() -> None:
    assert counts(gpus="4", ntasks_per_gpu=2)[2] == 8
    assert counts(gres="gpu:4", ntasks_per_gpu=2, nodes=[2, 2]) == (2, 2, 16, 8)
    assert shape(asked(ntasks=8, ntasks_per_gpu=2), SETTINGS).ntasks_per_gpu == 2


def test_a_total_alone_leaves_the_number_of_nodes_open() -> None:
    assert counts(gpus="16") == (1, 0, 0, 0)


# Memory and the like.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, (-1, 0, 0)), ({"mem": 0}, (0, 0, 0)), ({"mem": 5}, (5, 0, 0)), ({"mem_per_cpu": 5}, (-1, 5, 0))],
)
def test_memory_not_given_and_all_of_it_differ(fields: dict[str, Any], expected: tuple[int, int, int]) -> None:
    request = shape(asked(**fields), SETTINGS)
    assert (request.memory_per_node_mib, request.memory_per_cpu_mib, request.memory_per_gpu_mib) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"mem": 1, "mem_per_cpu": 1},
        {"cpus_per_task": 2, "cpus_per_gpu": 2},
        {"gres": "gpu:1", "gpus_per_node": "1"},
    ],
)
def test_options_that_exclude_each_other_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="mutually exclusive"):
        made(**fields)


# Arrays.


@pytest.mark.parametrize(
    ("text", "tasks", "size", "step"),
    [
        ("1-1000", (1, 1000), 1000, 1),
        ("0-1000:2", ranges.from_step(0, 1000, 2), 501, 2),
        ("5,5,5", (5, 5), 1, 1),
        ("0-9%0", (0, 9), 10, 1),
        ("3,1-2", (1, 3), 3, 1),
        ("0,5", (0, 0, 5, 5), 2, 5),
        ("0,5,7-8", (0, 0, 5, 5, 7, 8), 4, 1),
    ],
)
def test_n11_arrays_are_kept_as_ranges(text: str, tasks: tuple[int, ...], size: int, step: int) -> None:
    assert made(array=text).spec.array == ArraySpec(tasks=tasks, size=size, step=step)


def test_n11_the_limit_behind_the_percent_sign_comes_along() -> None:
    assert made(array="0-9%4").array_limit == 4
    assert made(array="0-9%0").array_limit == 0


@pytest.mark.parametrize("text", ["1-1001", "1001-1100", "3-1", "x", ""])
def test_n11_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        made(array=text)
    assert (caught.value.sentence, caught.value.slurm_code) == ("Invalid job array specification", 2081)


def test_n11_the_refusal_names_the_limit_and_the_index() -> None:
    with pytest.raises(InvalidInput) as caught:
        made(array="1-1001")
    assert "1001" in caught.value.hint
    assert "1000" in caught.value.hint
    assert "MaxArraySize=1001" in caught.value.hint


def test_n11_a_million_members_are_one_pair_of_numbers() -> None:
    array = made(Settings(max_array_size=4_000_001), array="0-999999").spec.array
    assert array == ArraySpec(tasks=(0, 999_999), size=1_000_000)


def test_only_batch_jobs_can_be_arrays() -> None:
    with pytest.raises(InvalidInput, match="only batch jobs can be arrays"):
        made(array="0-1", batch=False, script="")


# The rest.


def test_what_was_given_is_carried_over() -> None:
    submit = made(
        job_name="train",
        partition="gpu,cpu,gpu",
        account="lab",
        time_limit=90,
        signal="B:USR1@120",
        nice=5,
        dependency="afterok:1",
        hold=True,
        open_mode="a",
        environment=["A=1"],
        script_args=["x"],
        rlimits={"nofile": 1024},
        export="NONE",
        begin=7,
    )
    spec = submit.spec
    assert (spec.name, spec.user, spec.group, spec.uid) == ("train", "ada", "users", 1000)
    assert spec.partitions == ("gpu", "cpu")
    assert (spec.account, spec.qos, spec.time_limit_minutes) == ("lab", "normal", 90)
    assert spec.signal == SignalSpec(signo=10, seconds=120, shell_only=True)
    assert (submit.nice, submit.hold, submit.dependency) == (5, True, "afterok:1")
    assert (spec.open_mode, spec.script_args, spec.rlimits) == ("a", ("x",), {"nofile": 1024})
    assert (spec.export, spec.begin_at, spec.script) == ("NONE", 7, b"s")
    assert spec.request == Request(nodes_max=1, ntasks=1)


@pytest.mark.parametrize(("minutes", "stored"), [(None, 0), (0, -1), (-1, -1), (5, 5)])
def test_no_limit_and_no_limit_asked_for_differ(minutes: int | None, stored: int) -> None:
    assert made(time_limit=minutes).spec.time_limit_minutes == stored


def test_requeue_follows_the_configuration_unless_asked() -> None:
    assert made().spec.requeue
    assert not made(Settings(job_requeue=False)).spec.requeue
    assert made(Settings(job_requeue=False), requeue=True).spec.requeue
    assert not made(batch=False, script="").spec.requeue


@pytest.mark.parametrize(
    ("fields", "name"),
    [({"command": "/home/ada/job.sh"}, "job.sh"), ({}, "sbatch"), ({"batch": False, "script": ""}, "interactive")],
)
def test_a_job_without_a_name_gets_one(fields: dict[str, Any], name: str) -> None:
    assert made(**fields).spec.name == name


def test_priority_top_is_the_highest() -> None:
    assert made(priority="TOP").priority == 4294967293
    assert made(priority=0).priority == 0
    assert made().priority is None


def test_a_script_over_its_bound_is_refused_with_slurms_text() -> None:
    with pytest.raises(TooLarge) as caught:
        made(Settings(max_script_bytes=10), script="#!/bin/sh\n#")
    assert caught.value.sentence == "Pathname of a file, directory or other parameter too long"
    assert "11 bytes" in caught.value.hint


def test_a_batch_job_needs_a_script_and_a_folder() -> None:
    with pytest.raises(InvalidInput, match="Job script not specified"):
        made(script="")
    with pytest.raises(InvalidInput, match="without the current working directory"):
        made(work_dir="")
    assert made(work_dir="", chdir="/tmp").spec.work_dir == "/tmp"


def test_an_unsupported_value_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="--exclusive=topo is not supported"):
        made(exclusive="topo")


# Where nodes lie.


def test_placement_is_read_into_the_shape() -> None:
    request = made(
        switches="2@10",
        topology=" Required:rack",
        segment="4:required:pod",
        contiguous=True,
        spread_job=True,
        spread_segments=True,
        consolidate_segments=True,
        use_min_nodes=True,
        prefer=" a&b ",
        nodes=[8, 8],
    ).spec.request
    assert (request.switches, request.switches_wait_seconds) == (2, 600)
    assert (request.segment, request.segment_level, request.topology) == (4, "pod", "required:rack")
    assert (request.contiguous, request.spread_job, request.use_min_nodes) == (True, True, True)
    assert (request.spread_segments, request.consolidate_segments, request.prefer) == (True, True, "a&b")
    assert made(switches="1").spec.request.switches_wait_seconds == -1
    assert made(segment=4).spec.request.segment == 4


@pytest.mark.parametrize("fields", [{"switches": "x"}, {"topology": "rack"}, {"segment": "4:rack"}, {"segment": 0}])
def test_placement_that_cannot_be_read_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        made(**fields)

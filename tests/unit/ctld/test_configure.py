"""The configuration's records as the core's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctld import configure
from ctld.core.commands import ApplyConfig
from ctld.core.model import UNLIMITED
from muster.config.load import load
from muster.errors import ConfigError


def applied(folder: Path, *lines: str) -> ApplyConfig:
    file = folder / "muster.conf"
    file.write_text("\n".join(["ClusterName=c", "SlurmctldHost=h", *lines, ""]))
    return configure.command(load(file))


def test_nodes_stand_in_natural_order_and_partitions_name_them_by_place(tmp_path: Path) -> None:
    command = applied(
        tmp_path,
        "GresTypes=gpu",
        "NodeName=n10 CPUs=2 RealMemory=500 Gres=gpu:a100:2",
        "NodeName=n9 CPUs=4 Features=fast",
        "PartitionName=p Nodes=n10 MaxTime=60",
        "PartitionName=q Nodes=ALL Default=YES",
    )
    assert [(node.name, node.cpus, node.gpus) for node in command.nodes] == [
        ("n9", 4, ()),
        ("n10", 2, ("a100", "a100")),
    ]
    assert command.nodes[0].features == ("fast",)
    assert [(part.name, part.nodes, part.default, part.max_minutes) for part in command.partitions] == [
        ("p", (1,), False, 60),
        ("q", (0, 1), True, UNLIMITED),
    ]


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("", 120),
        ("AuthInfo=cred_expire=30", 30),
        ("SchedulerParameters=requeue_delay=0", 0),
        ("SchedulerParameters=requeue_delay=7", 7),
    ],
)
def test_a_requeued_job_waits_as_long_as_was_said(tmp_path: Path, line: str, seconds: int) -> None:
    command = applied(tmp_path, line, "NodeName=n1 CPUs=1", "PartitionName=p Nodes=ALL")
    assert command.settings.requeue_delay_seconds == seconds


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("SchedulerParameters=bf_continue", -1),
        ("SchedulerParameters=max_queue_wait=UNLIMITED", -1),
        ("SchedulerParameters=max_queue_wait=90", 5400),
        ("SchedulerParameters=max_queue_wait=2-0,bf_continue", 172_800),
    ],
)
def test_the_longest_wait_is_a_time_as_of_a_job(tmp_path: Path, line: str, seconds: int) -> None:
    command = applied(tmp_path, line, "NodeName=n1 CPUs=1", "PartitionName=p Nodes=ALL")
    assert command.settings.max_queue_wait_seconds == seconds


def test_a_longest_wait_that_is_no_time_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"muster.conf:3: SchedulerParameters: max_queue_wait: .*write minutes, M:S"):
        applied(tmp_path, "SchedulerParameters=max_queue_wait=soon", "NodeName=n1 CPUs=1", "PartitionName=p Nodes=ALL")


def test_words_of_long_keys_reach_the_settings(tmp_path: Path) -> None:
    command = applied(
        tmp_path,
        "SchedulerParameters=max_script_size=1000",
        "DependencyParameters=kill_invalid_depend",
        "SelectTypeParameters=CR_Core_Memory",
        "NodeName=n1 CPUs=1",
        "PartitionName=p Nodes=ALL",
    )
    found = command.settings
    assert (found.cluster, found.max_script_bytes) == ("c", 1000)
    assert (found.kill_invalid_depend, found.memory_consumable) == (True, True)


def test_memory_is_not_counted_where_cores_alone_are(tmp_path: Path) -> None:
    command = applied(tmp_path, "SelectTypeParameters=CR_Core", "NodeName=n1 CPUs=1", "PartitionName=p Nodes=ALL")
    assert (command.settings.memory_consumable, command.settings.max_script_bytes) == (False, 4 << 20)


@pytest.mark.parametrize(
    ("line", "seconds"), [("bf_continue", 300), ("max_switch_wait=0", 0), ("max_switch_wait=6", 6)]
)
def test_jobs_wait_for_few_switches_as_long_as_was_said(tmp_path: Path, line: str, seconds: int) -> None:
    command = applied(tmp_path, f"SchedulerParameters={line}", "NodeName=n1 CPUs=1", "PartitionName=p Nodes=ALL")
    assert command.settings.max_switch_wait_seconds == seconds


def test_features_that_no_node_has_are_let_through_where_that_was_said(tmp_path: Path) -> None:
    plain = applied(tmp_path, "NodeName=n1 CPUs=1", "PartitionName=p Nodes=ALL").settings
    assert (plain.any_constraint, plain.any_prefer) == (False, False)
    words = "SchedulerParameters=ignore_constraint_validation,ignore_prefer_validation"
    lax = applied(tmp_path, words, "NodeName=n1 CPUs=1", "PartitionName=p Nodes=ALL").settings
    assert (lax.any_constraint, lax.any_prefer) == (True, True)

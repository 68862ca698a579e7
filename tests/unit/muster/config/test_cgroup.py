"""cgroup.conf."""

from __future__ import annotations

import pytest

from muster.config.load import parse
from muster.config.records import CgroupConfig
from muster.errors import ConfigError

MAIN = "ClusterName=c1\nSlurmctldHost=head\nNodeName=n[1-4]\n"


def test_defaults() -> None:
    assert parse(MAIN).cgroup == CgroupConfig()


def test_keys_fill_the_record() -> None:
    config = parse(
        MAIN, cgroup="CgroupPlugin=Cgroup/v2\nConstrainRAMSpace=yes AllowedRAMSpace=95.5\nMinRAMSpace=50\n"
    ).cgroup
    assert config == CgroupConfig(
        plugin="cgroup/v2", constrain_ram_space=True, allowed_ram_percent=95.5, min_ram_mib=50
    )


def test_a_line_for_some_nodes_overrides_the_common_ones_wherever_it_stands() -> None:
    config = parse(MAIN, cgroup="NodeName=n[1-2] ConstrainCores=no\nConstrainCores=yes\nConstrainDevices=yes\n")
    assert [config.cgroup_of(f"n{index}").constrain_cores for index in (1, 2, 3)] == [False, False, True]
    assert config.cgroup_of("n1").constrain_devices is True


def test_obsolete_keys_are_warned_of() -> None:
    config = parse(MAIN, cgroup="CgroupAutomount=yes\nTaskAffinity=no\n")
    assert config.warnings == (
        "cgroup.conf:1: CgroupAutomount is obsolete and ignored",
        "cgroup.conf:2: TaskAffinity is obsolete and ignored",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("CgroupPlugin=cgroup/v1", "cgroup.conf:1: CgroupPlugin=cgroup/v1 is not supported, only version 2 is (boot"),
        ("CgroupPlugin=v9", 'cgroup.conf:1: CgroupPlugin="v9" is not known (use autodetect, cgroup/v2, disabled)'),
        ("ConstrainCore=yes", "1: unrecognized key: ConstrainCore in cgroup.conf (did you mean ConstrainCores?)"),
        ("AllowedRAMSpace=-5", "cgroup.conf:1: AllowedRAMSpace=-5 is not a percentage"),
        ("AllowedRAMSpace=all", 'cgroup.conf:1: AllowedRAMSpace: "all" is not a number'),
        ("ConstrainCores=yes NodeName=n1", "cgroup.conf:1: NodeName must be the first key of its line"),
    ],
)
def test_wrong_lines_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(MAIN, cgroup=text + "\n")
    assert sentence in str(caught.value)

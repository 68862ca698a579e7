"""What a running cluster cannot change."""

from __future__ import annotations

import pytest

from muster.config.changes import refuse_fixed_changes
from muster.config.load import parse
from muster.errors import ConfigError

OLD = parse("ClusterName=c1\nSlurmctldHost=a\nNodeName=n1\n")


def test_ordinary_changes_are_allowed() -> None:
    refuse_fixed_changes(OLD, parse("ClusterName=C1\nSlurmctldHost=b\nNodeName=n[1-2]\nKillWait=5\n"))


def test_one_fixed_key_is_named_with_its_cure() -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_fixed_changes(OLD, parse("ClusterName=c1\nSlurmctldHost=a\nSlurmctldPort=7000-7001\n"))
    expected = "muster.conf: SlurmctldPort cannot change from 6817 to 7000-7001 at reconfigure (restart ctld)"
    assert str(caught.value) == expected


def test_all_fixed_keys_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_fixed_changes(OLD, parse("ClusterName=c2\nSlurmctldHost=a\nStateSaveLocation=/x\n"))
    assert str(caught.value).splitlines() == [
        "muster.conf: ClusterName cannot change from c1 to c2 at reconfigure (stop every daemon first)",
        "muster.conf: StateSaveLocation cannot change from /var/spool to /x at reconfigure (restart ctld)",
    ]

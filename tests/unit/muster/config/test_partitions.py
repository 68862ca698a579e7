"""PartitionName lines."""

from __future__ import annotations

import pytest

from muster.config.load import parse
from muster.config.records import ClusterConfig, PartitionConfig
from muster.errors import ConfigError

HEAD = "ClusterName=c1\nSlurmctldHost=head\nNodeName=n[3-4] Features=x\nNodeName=n[1-2]\n"


def cluster(text: str) -> ClusterConfig:
    return parse(HEAD + text)


def partition(text: str) -> PartitionConfig:
    return cluster(f"PartitionName=p {text}\n").partitions[0]


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(HEAD + text)
    return str(caught.value)


def test_a_bare_partition_has_the_defaults() -> None:
    assert partition("") == PartitionConfig(name="p")


def test_nodes_are_in_the_order_of_the_file() -> None:
    assert partition("Nodes=n[1-4],n1").nodes == ("n3", "n4", "n1", "n2")
    assert partition("Nodes=ALL").nodes == ("n3", "n4", "n1", "n2")
    assert partition("Nodes=feature{x},n2").nodes == ("n3", "n4", "n2")
    assert partition('Nodes=""').nodes == ()


def test_default_lines_and_several_names() -> None:
    config = cluster(
        "PartitionName=DEFAULT MaxTime=60 Nodes=n1\nPartitionName=a,b\n"
        "PartitionName=DEFAULT MaxTime=UNLIMITED\nPartitionName=c Nodes=n2\n"
    )
    found = [(each.name, each.max_time_minutes, each.nodes) for each in config.partitions]
    assert found == [("a", 60, ("n1",)), ("b", 60, ("n1",)), ("c", None, ("n2",))]


def test_default_time_is_the_longest_time_unless_given() -> None:
    assert partition("MaxTime=2:30").default_time_minutes == 3
    assert partition("MaxTime=1-0 DefaultTime=1:00:00").default_time_minutes == 60
    assert partition("MaxTime=10 DefaultTime=NONE").default_time_minutes == 10
    assert partition("MaxTime=10 DefaultTime=UNLIMITED").default_time_minutes == 10


def test_the_last_default_partition_wins_with_a_warning() -> None:
    config = cluster("PartitionName=a Default=YES\nPartitionName=b Default=YES\n")
    assert [each.default for each in config.partitions] == [False, True]
    assert config.warnings == ("muster.conf:6: more than one partition has Default=YES: b replaces a",)


def test_a_duplicate_is_ignored_with_a_warning() -> None:
    config = cluster("PartitionName=a MaxTime=5\nPartitionName=a MaxTime=6\n")
    assert [each.max_time_minutes for each in config.partitions] == [5]
    assert config.warnings == ("muster.conf:6: Duplicated PartitionName a, this line is ignored for it",)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("OverSubscribe=NO", ("NO", 1, "NO")),
        ("OverSubscribe=YES", ("YES", 4, "NO")),
        ("OverSubscribe=FORCE:2", ("FORCE", 2, "NO")),
        ("Shared=force", ("FORCE", 4, "NO")),
        ("Shared=EXCLUSIVE", ("NO", 1, "NODE")),
        ("Exclusive=User", ("NO", 1, "USER")),
        ("ExclusiveUser=YES", ("NO", 1, "USER")),
        ("ExclusiveTopo=YES", ("NO", 1, "TOPO")),
    ],
)
def test_sharing_in_its_new_and_old_forms(text: str, found: tuple[str, int, str]) -> None:
    made = partition(text)
    assert (made.oversubscribe, made.oversubscribe_jobs, made.exclusive) == found


def test_the_old_priority_sets_both_new_ones() -> None:
    made = partition("Priority=7 PriorityTier=2")
    assert (made.priority_tier, made.priority_job_factor) == (2, 7)


def test_access_lists() -> None:
    made = partition("AllowGroups=a,b AllowAccounts=ALL DenyQos=q")
    assert (made.allow_groups, made.allow_accounts, made.allow_qos, made.deny_qos) == (("a", "b"), None, None, ("q",))


def test_an_allow_list_overrules_the_deny_list_with_the_reference_text() -> None:
    config = cluster("PartitionName=p AllowAccounts=a DenyAccounts=b\n")
    assert config.partitions[0].deny_accounts == ()
    expected = "Both AllowAccounts and DenyAccounts are defined, DenyAccounts will be ignored"
    assert config.warnings == (f"muster.conf:5: PartitionName=p: {expected}",)


def test_billing_weights_of_memory_are_per_mebibyte() -> None:
    weights = partition('TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu:A100=2,license/a=1.5"').billing_weights
    assert weights == {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu:A100": 2.0, "license/a": 1.5}


def test_limits_that_are_not_given_are_left_to_the_cluster() -> None:
    made = partition("DefMemPerCPU=2G MaxMemPerNode=UNLIMITED OverTimeLimit=UNLIMITED")
    assert (made.def_mem_per_cpu_mib, made.max_mem_per_node_mib, made.def_mem_per_node_mib) == (2048, 0, None)
    assert made.over_time_limit_minutes == -1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Nodes=n9", "muster.conf:5: PartitionName=p: no NodeName line defines n9 (add a NodeName line for it)"),
        ("Nodes=n[1", 'muster.conf:5: PartitionName=p: Invalid hostlist "n[1"'),
        ("Nodes=switch{s}", "muster.conf:5: PartitionName=p: switch{s} cannot be expanded"),
        ("MaxTime=soon", 'muster.conf:5: Bad value "soon" for MaxTime'),
        ("DefaultTime=soon", 'muster.conf:5: PartitionName=p: Bad value "soon" for DefaultTime'),
        ("OverSubscribe=MAYBE", '5: PartitionName=p: Bad value "MAYBE" for OverSubscribe (use NO, YES, FORCE)'),
        ("OverSubscribe=NO:2", '5: PartitionName=p: Bad value "NO:2" for OverSubscribe (use NO, YES, FORCE)'),
        ("Exclusive=MAYBE", '5: PartitionName=p: Bad value "MAYBE" for Exclusive= (use NO, NODE, USER, TOPO)'),
        ("State=IDLE", 'muster.conf:5: Bad value "IDLE" for State (use UP, DOWN, DRAIN, INACTIVE)'),
        ("MinNodes=5 MaxNodes=4", "muster.conf:5: PartitionName=p: MinNodes=5 is above MaxNodes=4"),
        ("PriorityTier=65534", "muster.conf:5: PriorityTier=65534 is above 65533"),
        ("TRESBillingWeights=CPU", 'muster.conf:5: TRESBillingWeights: "CPU" is not name=weight'),
        ("TRESBillingWeights=CPUU=1", 'muster.conf:5: TRESBillingWeights: "CPUU=1" is no TRES; write name=number'),
        ("TRESBillingWeights=CPU=x", 'muster.conf:5: TRESBillingWeights: "x" is not a number'),
        ("TRESBillingWeights=CPU=1G", "5: TRESBillingWeights: the weight of cpu takes no unit, only that of mem does"),
        ("Alternate=q", "muster.conf:5: Alternate=q is not a partition"),
        ("Topology=other", "PartitionName=p: Topology=other is not defined in topology.yaml"),
        ("PreemptMode=PRIORITY", "5: PartitionName=p: PreemptMode=PRIORITY alone names no way to preempt"),
        ("Defualt=YES", "5: unrecognized key: Defualt on a PartitionName line (did you mean Default?)"),
    ],
)
def test_wrong_partition_lines_are_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(f"PartitionName=p {text}\n")

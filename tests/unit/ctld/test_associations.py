"""The association file as the core's records."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctld import associations
from ctld.core.accounts import PARENT_SHARES, Accounts, Association, Limits, Qos, Share
from ctld.core.commands import ApplyAccounts
from muster.config.load import load
from muster.config.problems import Problems
from muster.errors import ConfigError

TREE = """
QOS - 'normal':Description='Normal QOS default'
QOS - 'high':Priority=100:Flags=DenyOnLimit,NoDecay:Preempt=normal:PreemptMode=requeue:GraceTime=60
QOS - 'costly':UsageFactor=2.5:MaxTRESPU=cpu=8:MaxJobsPA=3:MaxQueueWait=1-0
Cluster - 'tux':Fairshare=1:QOS='normal,high'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'Physics':Description='Physics':Organization='lab':Fairshare=50:GrpTRES=cpu=64,mem=2G:GrpWall=1-0:MaxJobs=4
Account - 'chem':Fairshare=parent
Parent - 'physics'
User - 'bob':DefaultAccount='chem':Fairshare=1:GrpCPUs=7:MaxWall=90
User - 'ada':DefaultAccount='physics':Partition='fast':QOS='+high':DefaultQOS=high
Parent - 'chem'
User - 'bob':DefaultAccount='chem':Priority=7
"""


def test_reads_tree_limits_and_qos() -> None:
    problems = Problems()
    made = associations.read(TREE, "tux.cfg", problems)
    assert problems.errors == []
    assert problems.warnings == []
    physics = Limits(grp_tres={"cpu": 64, "mem": 2048}, grp_wall_minutes=1440, max_jobs=4)
    assert made.associations == (
        Association(1, "root", qos=("normal", "high")),
        Association(2, "root", parent_id=1, user="root", default=True),
        Association(3, "physics", parent_id=1, shares=50, description="Physics", organization="lab", limits=physics),
        Association(4, "chem", parent_id=1, shares=PARENT_SHARES),
        Association(
            5,
            "physics",
            parent_id=3,
            user="bob",
            limits=Limits(grp_tres={"cpu": 7}, max_wall_minutes_per_job=90),
        ),
        Association(
            6,
            "physics",
            parent_id=3,
            user="ada",
            partition="fast",
            qos=("+high",),
            default_qos="high",
            default=True,
        ),
        Association(7, "chem", parent_id=4, user="bob", priority=7, default=True),
    )
    assert made.qos == (
        Qos(1, "normal", description="Normal QOS default"),
        Qos(
            2,
            "high",
            priority=100,
            flags=("DenyOnLimit", "NoDecay"),
            preempt=("normal",),
            preempt_mode="REQUEUE",
            grace_seconds=60,
        ),
        Qos(
            3,
            "costly",
            usage_factor=2.5,
            per_user=Share(tres={"cpu": 8}),
            per_account=Share(jobs=3),
            max_queue_wait_seconds=86400,
        ),
    )
    accounts = Accounts(made.associations, made.qos)
    assert accounts.default_account("bob") == "chem"


def test_a_file_without_qos_lines_makes_those_that_it_names() -> None:
    problems = Problems()
    made = associations.read("Cluster - 'tux':QOS='normal,long'\n", "tux.cfg", problems)
    assert [one.name for one in made.qos] == ["normal", "long"]
    assert problems.warnings == ["tux.cfg: no QOS line defines long: they have priority 0 and no limits"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("Account - a:Fairshre=2", "Account takes no fairshre= (did you mean fairshare?)"),
        ("Account - a:Fairshare=many", 'fairshare="many" cannot be read'),
        ("Account - a:GrpTRES=cpu", 'grptres="cpu" cannot be read: Invalid TRES: cpu (write name=number'),
        ("Account - a:GrpTRES=cpus_=4", "Invalid TRES: cpus_=4 (write name=number; names are cpu, mem"),
        ("Account - a:GrpTRES=gres/=4", "Invalid TRES: gres/=4"),
        ("Account - a:GrpTRES=cpu=1e9", "Invalid TRES: cpu=1e9 (write a whole number"),
        ("QOS - q:MaxTRESPU=gpu=4", "Invalid TRES: gpu=4"),
        ("QOS - q:PreemptMode=GANG", "GANG alone would be time slices"),
        ("QOS - q:PreemptMode=CANCEL,REQUEUE", "write only one of OFF, CANCEL, REQUEUE and SUSPEND"),
        ("Parent - nobody", "Parent nobody is no account"),
        ("Account - a:QOS=hig", "QOS hig is not defined (did you mean high?)"),
        ("QOS - q:Flags=NoDecy", 'flags="NoDecy" cannot be read: NoDecy is no flag of a QOS, did you mean NoDecay?'),
        ("Cluster - other", "the Cluster line is not the first"),
    ],
)
def test_mistakes_are_told_with_file_and_line(tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "tree.cfg").write_text(f"QOS - high\nCluster - tux\n{line}\n")
    lines = "ClusterName=tux\nSlurmctldHost=h\nAssociationFile=tree.cfg\nNodeName=n CPUs=1\nPartitionName=p Nodes=n\n"
    (tmp_path / "muster.conf").write_text(lines)
    with pytest.raises(ConfigError) as caught:
        associations.command(load(tmp_path))
    assert f"{tmp_path}/tree.cfg:3: " in str(caught.value)
    assert sentence in f"{caught.value} ({caught.value.hint})"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    lines = "ClusterName=tux\nSlurmctldHost=h\nAssociationFile=tree.cfg\nNodeName=n CPUs=1\nPartitionName=p Nodes=n\n"
    (tmp_path / "muster.conf").write_text(lines)
    with pytest.raises(ConfigError, match="AssociationFile: cannot read .*tree.cfg: No such file"):
        associations.command(load(tmp_path))


@pytest.mark.parametrize(
    ("key", "problem", "remark"),
    [
        ("AssociationFile=tree.cfg", "PartitionName=p: QOS=hihg is not defined", ""),
        ("", "", "PartitionName=p: QOS=Hihg has no effect without AssociationFile"),
    ],
)
def test_the_qos_of_a_partition_must_be_there(tmp_path: Path, key: str, problem: str, remark: str) -> None:
    (tmp_path / "tree.cfg").write_text("QOS - high\nCluster - tux\n")
    lines = f"ClusterName=tux\nSlurmctldHost=h\n{key}\nNodeName=n CPUs=1\nPartitionName=p Nodes=n QOS=Hihg\n"
    (tmp_path / "muster.conf").write_text(lines)
    config = load(tmp_path)
    if problem:
        with pytest.raises(ConfigError, match=problem) as caught:
            associations.command(config)
        assert caught.value.hint == "did you mean high?"
    else:
        assert associations.command(config) == (ApplyAccounts((), ()), (remark,))


def test_flags_of_a_qos_without_effect_are_told() -> None:
    problems = Problems()
    associations.read("QOS - 'low':Flags=NoDecay,NoReserve,Relative:MaxQueueWait=-1\n", "tux.cfg", problems)
    assert problems.warnings == [
        f"tux.cfg:1: Flags={flag} of QOS low has no effect in this release" for flag in ("NoReserve", "Relative")
    ]


@pytest.mark.parametrize(
    ("option", "sentence", "hint"),
    [
        ("GrpTRES=cpu=x", "Invalid TRES: cpu=x", "write a whole number, or one with K/M"),
        ("UsageFactor=much", "write a number that is not negative, or -1 for none", ""),
        ("Priority=-5", "write a whole number, or -1 for none", ""),
        ("MaxWall=soon", "Invalid duration: 'soon'", "write minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED"),
    ],
)
def test_a_value_that_cannot_be_read_is_told_once_with_its_cure(option: str, sentence: str, hint: str) -> None:
    problems = Problems()
    associations.read(f"QOS - 'a':{option}\n", "tux.cfg", problems)
    key, _, value = option.partition("=")
    ((place, said, cure),) = problems.errors
    assert (str(place), said, cure) == ("tux.cfg:1", f'{key.lower()}="{value}" cannot be read: {sentence}', hint)


def _command(tmp_path: Path, tree: str | None, lines: str = "") -> tuple[ApplyAccounts, tuple[str, ...]]:
    key = "" if tree is None else "AssociationFile=tree.cfg\n"
    (tmp_path / "tree.cfg").write_text(tree or "")
    (tmp_path / "muster.conf").write_text(
        f"ClusterName=tux\nSlurmctldHost=h\n{key}{lines}NodeName=n CPUs=1\nPartitionName=p Nodes=n\n"
    )
    return associations.command(load(tmp_path))


@pytest.mark.parametrize("tree", ["", "# nothing\n", "QOS - normal\nQOS - high\n"])
def test_a_file_without_a_tree_lets_nobody_in(tmp_path: Path, tree: str) -> None:
    """What is left of a file that was cut off must not turn every limit off."""
    with pytest.raises(ConfigError, match=r"tree.cfg: there is no Cluster, Account or User line") as caught:
        _command(tmp_path, tree)
    assert caught.value.hint


def test_what_is_enforced_without_a_file_is_told(tmp_path: Path) -> None:
    _, remarks = _command(tmp_path, None, "AccountingStorageEnforce=associations,limits\n")
    assert remarks == ("AccountingStorageEnforce=associations,limits has no effect without AssociationFile",)


def test_limits_of_a_resource_that_is_not_there_are_told(tmp_path: Path) -> None:
    tree = "QOS - q:MaxTRESPU=gres/gpuu:a=4,gres/gpu=2\nCluster - tux\nAccount - a:GrpTRES=gres/tape=2,license/x=1\n"
    _, remarks = _command(tmp_path, tree, "GresTypes=gpu\n")
    file = tmp_path / "tree.cfg"
    assert remarks == (
        f"{file}: limits of gres/gpuu have no effect: GresTypes does not name gpuu",
        f"{file}: limits of gres/tape have no effect: GresTypes does not name tape",
    )


def test_suspension_by_a_qos_needs_gang_as_that_by_a_partition_does(tmp_path: Path) -> None:
    tree = "QOS - q:PreemptMode=SUSPEND\nCluster - tux\n"
    with pytest.raises(ConfigError, match="QOS q: PreemptMode=SUSPEND requires GANG too") as caught:
        _command(tmp_path, tree)
    assert caught.value.hint == "add GANG to the cluster's PreemptMode"
    _command(tmp_path, tree, "PreemptType=preempt/qos\nPreemptMode=REQUEUE,GANG\n")
    _command(tmp_path, tree.replace("SUSPEND", "GANG,SUSPEND"))

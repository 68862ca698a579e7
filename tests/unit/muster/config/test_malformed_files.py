"""Twenty malformed files, each with the sentence that an administrator reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.config.load import load, load_dbd
from muster.errors import ConfigError

GOOD = {
    "slurm.conf": "ClusterName=c1\nSlurmctldHost=head\nGresTypes=gpu\nNodeName=n[1-4] Gres=gpu:1\n",
    "dbd.conf": "DbdHost=db\nStorageType=accounting_storage/postgresql\n",
}

CASES = [
    ("slurm.conf", "PartitonName=x", "unrecognized key: PartitonName in slurm.conf (did you mean PartitionName?)"),
    ("slurm.conf", "SlurmdTimout=300", "unrecognized key: SlurmdTimout in slurm.conf (did you mean SlurmdTimeout?)"),
    ("slurm.conf", "SlurmdTimeout", 'Parse error: "SlurmdTimeout" (lines are key=value pairs, blanks between them)'),
    ("slurm.conf", "SlurmdTimeout=", 'SlurmdTimeout has no value (write SlurmdTimeout="" for an empty one)'),
    ("slurm.conf", "SlurmdTimeout=5m", 'SlurmdTimeout="5m" is not a whole number'),
    ("slurm.conf", "SlurmdTimeout=-5", 'SlurmdTimeout="-5" is not a whole number'),
    ("slurm.conf", "MaxArraySize=5000000", "MaxArraySize=5000000 is above 4000001"),
    ("slurm.conf", "UsePAM=perhaps", '"perhaps" is not a valid option for "UsePAM"'),
    ("slurm.conf", "SlurmctldPort=0", 'SlurmctldPort="0" is not a port (1 to 65535) or a range of ports'),
    ("slurm.conf", "StateSaveLocation=state", 'StateSaveLocation="state" must be an absolute path'),
    ("slurm.conf", "SelectType=select/magic", 'SelectType="select/magic" is not known (use select/cons_tres,'),
    ("slurm.conf", 'NodeName=m1 Reason="no end', 'Parse error: "Reason="no end" (a value stands between two quotes'),
    ("slurm.conf", "NodeName=m[1-", 'NodeName: Invalid hostlist "m[1-"'),
    ("slurm.conf", "NodeName=n4", "Duplicated NodeName n4 in the config file (each node has one NodeName line;"),
    ("slurm.conf", "PartitionName=p Nodes=m1", "PartitionName=p: no NodeName line defines m1"),
    ("slurm.conf", "Include nowhere.conf", '"Include" failed, cannot read'),
    ("gres.conf", "NodeName=n1 Name=gpu Count=2 File=/dev/nvidia0", "Count=2 does not match the 1 devices of File"),
    ("topology.conf", "SwitchName=s Switches=t", "Switch configuration s has invalid child (t)"),
    ("topology.yaml", "topology: t", "the file is not a list"),
    ("cgroup.conf", "CgroupPlugin=cgroup/v1", "CgroupPlugin=cgroup/v1 is not supported, only version 2 is"),
    ("dbd.conf", "PurgeJobAfter=0", 'Bad value "0" for PurgeJobAfter (write a number above zero, then hours, days'),
]


@pytest.mark.parametrize(("name", "line", "sentence"), CASES)
def test_a_malformed_file_is_told_with_its_place(tmp_path: Path, name: str, line: str, sentence: str) -> None:
    for good, text in GOOD.items():
        (tmp_path / good).write_text(text)
    before = GOOD.get(name, "")
    (tmp_path / name).write_text(before + line + "\n")
    with pytest.raises(ConfigError) as caught:
        (load_dbd if name == "dbd.conf" else load)(tmp_path, {})
    number = before.count("\n") + 1
    assert str(caught.value).startswith(f"{tmp_path / name}:{number}: {sentence}")

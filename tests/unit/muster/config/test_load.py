"""Finding the files, and whole sites: the fictive one of tests/data and the commented examples of etc/."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from muster.config.load import load, load_dbd
from muster.config.records import ClusterConfig, DbdConfig, Gres
from muster.config.render import render_config
from muster.errors import ConfigError

ROOT = Path(__file__).parents[4]
SITE = ROOT / "tests" / "data" / "site-a"


@pytest.fixture(scope="module")
def site() -> ClusterConfig:
    return load(SITE, {})


def test_files_are_found_in_the_documented_order(tmp_path: Path) -> None:
    for name in ("muster.conf", "slurm.conf", "other.conf"):
        (tmp_path / name).write_text(f"ClusterName={name}\nSlurmctldHost=head\n")
    other, slurm = str(tmp_path / "other.conf"), str(tmp_path / "slurm.conf")
    assert load(None, {"MUSTER_CONF": other, "SLURM_CONF": slurm}).cluster_name == "other.conf"
    assert load(None, {"SLURM_CONF": slurm}).cluster_name == "slurm.conf"
    assert load(None, {"SLURM_CONF": str(tmp_path)}).cluster_name == "muster.conf"
    assert load(tmp_path, {"MUSTER_CONF": other}).cluster_name == "muster.conf"
    (tmp_path / "muster.conf").unlink()
    assert load(tmp_path, {}).path == slurm


def test_a_missing_file_is_told_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is neither muster\.conf nor slurm\.conf \(name the file with MUSTER"):
        load(tmp_path, {})
    with pytest.raises(ConfigError, match=r"gone\.conf: cannot read .*gone\.conf: No such file or directory"):
        load(tmp_path / "gone.conf", {})


def test_companions_lie_beside_the_main_file(tmp_path: Path) -> None:
    (tmp_path / "main").write_text("ClusterName=c\nSlurmctldHost=h\nNodeName=n1\nGresTypes=gpu\n")
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml\n")
    (tmp_path / "cgroup.conf").write_text("ConstrainCores=yes\n")
    (tmp_path / "topology.yaml").write_text("- topology: t\n  flat: true\n")
    config = load(tmp_path / "main", {})
    assert (config.gres.autodetect, config.cgroup.constrain_cores, config.topology.name) == ("nvml", True, "t")


def test_mistakes_of_all_files_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nSlurmctldHost=h\nKillWait=x\nNodeName=n1 Foo=1\n")
    (tmp_path / "gres.conf").write_text("Name=gpu\n")
    (tmp_path / "cgroup.conf").write_text("\nConstrainCores=perhaps\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {})
    places = [line.split(": ")[0].rpartition("/")[2] for line in str(caught.value).splitlines()]
    assert places == ["slurm.conf:3", "slurm.conf:4", "gres.conf:1", "cgroup.conf:2"]


def test_the_whole_record_agrees_with_its_types(site: ClusterConfig) -> None:
    assert msgspec.convert(msgspec.to_builtins(site), ClusterConfig) == site
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(site), type=ClusterConfig) == site


def test_the_site_has_its_nodes(site: ClusterConfig) -> None:
    nodes = {node.name: node for node in site.nodes}
    assert len(nodes) == 74
    assert list(nodes)[:2] == ["ald-c001", "ald-c002"]
    first, fat, gpu, v1, login = (nodes[f"ald-{name}"] for name in ("c001", "f01", "g1", "v1", "login"))
    assert (first.addr, first.cpus, first.real_memory_mib, first.weight) == ("10.20.1.1", 64, 250000, 10)
    assert (fat.real_memory_mib, fat.features, fat.mem_spec_limit_mib) == (2000000, ("zen3", "ib", "bigmem"), 8000)
    assert (gpu.hostname, gpu.cpus, gpu.gres) == ("gpu1.alder.example", 128, (Gres("gpu", "h100", 4),))
    assert v1.gres == (Gres("gpu", "l40s", 2), Gres("shard", "", 16))
    assert (login.gres, login.cpus, login.state, login.reason) == ((), 64, "DRAIN", "kept for #1234, do not use")
    assert (nodes["ald-c064"].state, nodes["ald-c064"].reason) == ("DRAIN", "cooling loop")
    assert site.spool_dir_of(gpu) == "/var/spool/slurmd/ald-g1"


def test_the_site_has_its_partitions(site: ClusterConfig) -> None:
    partitions = {partition.name: partition for partition in site.partitions}
    assert list(partitions) == ["batch", "fat", "gpu", "debug", "exclusive", "maint"]
    assert (len(partitions["batch"].nodes), partitions["batch"].default) == (68, True)
    assert partitions["fat"].nodes == ("ald-f01", "ald-f02", "ald-f03", "ald-f04")
    assert (partitions["fat"].max_time_minutes, partitions["fat"].default_time_minutes) == (10080, 60)
    assert partitions["gpu"].billing_weights == {"cpu": 0.25, "mem": 0.05 / 1024, "gres/gpu": 16.0}
    assert (partitions["gpu"].allow_accounts, partitions["gpu"].def_mem_per_gpu_mib) == (("ml", "physics"), 204800)
    assert (partitions["debug"].priority_tier, partitions["debug"].oversubscribe_jobs) == (100, 2)
    assert (partitions["exclusive"].exclusive, partitions["exclusive"].default_time_minutes) == ("NODE", None)
    assert (partitions["maint"].state, partitions["maint"].hidden, len(partitions["maint"].nodes)) == ("DOWN", True, 74)


def test_the_site_has_its_global_values(site: ClusterConfig) -> None:
    assert (site.cluster_name, site.controller_host, site.controller_addr) == ("alder", "ald-head1", "10.20.0.1")
    assert site.scheduler_parameters["bf_window"] == "4320"
    assert site.accounting_enforce == ("associations", "limits", "qos", "safe")
    assert site.preempt_exempt_time_seconds == 600
    assert site.job_acct_gather_frequency["task"] == 20
    assert site.epilogs == ("/etc/slurm/epilog.d/10-clean.sh", "/etc/slurm/epilog.d/20-report.sh")
    assert site.topology.kind == "tree"
    assert site.gres.autodetect_on("ald-v1") == "off"
    assert site.gres.for_node("ald-v1")[1].flags == ("nvidia_gpu_env",)
    assert (site.cgroup.constrain_devices, site.cgroup_of("ald-login").constrain_devices) == (True, False)


def test_the_site_is_told_what_changes_nothing(site: ClusterConfig) -> None:
    keys = {key for key, _, _ in site.without_effect}
    assert keys >= {
        "SlurmdUser", "AuthType", "CredType", "AuthAltTypes", "AuthAltParameters", "SlurmctldPidFile",
        "SlurmdPidFile", "LinkSpeed", "CgroupAutomount",
    }  # fmt: skip
    # Read and checked, but not acted on yet.
    assert keys >= {"AccountingStorageTRES", "HealthCheckProgram"}
    assert keys.isdisjoint({"MaxCPUsPerNode", "DefMemPerGPU", "SwitchName", "Switches", "Nodes"})
    main = {key for key, file, _ in site.without_effect if file.endswith("slurm.conf")}
    assert main.isdisjoint({"ClusterName", "NodeName", "PartitionName", "MaxTime", "KillWait", "Gres"})
    assert [warning.rpartition("/")[2] for warning in site.warnings] == [
        "slurm.conf:46: FastSchedule is obsolete and ignored",
        "slurm.conf:47: CacheGroups is obsolete and ignored",
        "scheduling.conf:22: SchedulerPort is obsolete and ignored",
        "accounting.conf:8: JobAcctGatherFrequency specified more than once, latest value used",
        "nic, and GresTypes does not",
        "cgroup.conf:2: CgroupAutomount is obsolete and ignored",
        "slurm.conf:82: PartitionName=debug: DefaultTime=1:00:00 is above MaxTime, which is used",
    ]


def test_the_site_has_its_accounting_daemon() -> None:
    config = load_dbd(SITE, {})
    assert config.purge_after == {"event": (12, "months"), "job": (24, "months"), "step": (90, "days")}
    assert msgspec.convert(msgspec.to_builtins(config), DbdConfig) == config


def test_the_examples_load_without_a_word() -> None:
    config = load(ROOT / "etc", {})
    assert (config.warnings, len(config.nodes)) == ((), 20)
    assert {Path(file).name for _, file, _ in config.without_effect} == {"gres.conf", "cgroup.conf"}
    assert (config.max_array_size, config.max_job_count) == (4000001, 2000000)
    assert (config.gres.autodetect, config.cgroup.constrain_devices) == ("nvml", True)
    accounting = load_dbd(ROOT / "etc", {})
    assert (accounting.host, accounting.warnings, accounting.without_effect) == ("head1", (), ())


def test_the_configuration_is_shown_sorted_with_units(site: ClusterConfig) -> None:
    pairs = render_config(site, {"SLURM_VERSION": "26.05.0", "BOOT_TIME": "now"})
    names = [name for name, _ in pairs]
    assert names == sorted(names, key=str.lower)
    shown = dict(pairs)
    assert len(shown) == len(pairs)
    expected = {
        "AccountingStorageEnforce": "associations,limits,qos,safe",
        "BOOT_TIME": "now",
        "ClusterName": "alder",
        "CompleteWait": "30 sec",
        "CredType": "crypto/munge",
        "DefMemPerNode": "UNLIMITED",
        "Epilog[1]": "/etc/slurm/epilog.d/20-report.sh",
        "EpilogMsgTime": "2000 usec",
        "HealthCheckNodeState": "ANY,CYCLE",
        "JobRequeue": "1",
        "MaxArraySize": "100001",
        "MinJobAge": "600 sec",
        "OverTimeLimit": "5 min",
        "PreemptExemptTime": "00:10:00",
        "PriorityDecayHalfLife": "14-00:00:00",
        "PriorityFavorSmall": "no",
        "PrivateData": "jobs,usage",
        "PrologFlags": "Contain,X11,Alloc",
        "PrologTimeout": "N/A",
        "RebootProgram": "/usr/sbin/shutdown -r now",
        "ResumeRate": "300 nodes/min",
        "SLURM_CONF": str(SITE / "slurm.conf"),
        "SchedulerParameters": "bf_window=4320,bf_continue,bf_max_job_user=50,default_queue_depth=500,defer",
        "SlurmctldHost[0]": "ald-head1(10.20.0.1)",
        "SlurmdTimeout": "600 sec",
        "SlurmdUser": "root(0)",
        "SuspendTime": "INFINITE",
        "TaskProlog": "(null)",
        "VSizeFactor": "0 percent",
    }
    assert {name: shown[name] for name in expected} == expected


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nSlurmctldHost=h\nAccountingStoragePass=hush\n")
    config = load(tmp_path, {})
    assert dict(render_config(config))["AccountingStoragePass"] == "(set)"
    assert "hush" not in repr(config)

"""Global keys: defaults, value types, implications, refused combinations, obsolete keys."""

from __future__ import annotations

import pytest

from muster.config.load import parse
from muster.config.records import ClusterConfig
from muster.config.slurmkeys import GLOBALS
from muster.errors import ConfigError

HEAD = "ClusterName=c1\nSlurmctldHost=head\n"


def config_with(text: str) -> ClusterConfig:
    return parse(HEAD + text)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(HEAD + text)
    return str(caught.value)


def test_defaults_are_those_of_the_manual() -> None:
    config = config_with("")
    assert (config.controller_port, config.slurmd_port) == (6817, 6818)
    assert (config.state_dir, config.spool_dir) == ("/var/spool", "/var/spool/slurmd")
    assert (config.slurmctld_timeout_seconds, config.slurmd_timeout_seconds) == (120, 300)
    assert (config.message_timeout_seconds, config.tcp_timeout_seconds) == (10, 2)
    assert (config.max_job_count, config.max_array_size, config.min_job_age_seconds) == (10000, 1001, 300)
    assert (config.first_job_id, config.max_job_id) == (1, 67043328)
    assert (config.max_step_count, config.max_tasks_per_node, config.max_batch_requeue) == (40000, 512, 5)
    assert (config.kill_wait_seconds, config.batch_start_timeout_seconds) == (30, 10)
    assert config.priority_decay_half_life_seconds == config.priority_max_age_seconds == 7 * 86400
    assert config.priority_calc_period_seconds == 300
    assert config.select_type_parameters == ("CR_Core_Memory",)
    assert (config.job_requeue, config.kill_on_bad_exit, config.job_file_append) == (True, False, False)
    assert (config.preempt_type, config.preempt_mode, config.preempt_exempt_time_seconds) == ("", ("OFF",), 0)
    assert config.job_acct_gather_frequency == {"task": 30, "energy": 0, "network": 0, "filesystem": 0}
    assert config.propagate_limits == ("ALL",)
    assert config.interactive_step_options == "--interactive --preserve-env --pty $SHELL"
    assert (config.accounting_storage_type, config.accounting_storage_port) == ("", 6819)
    assert config.unkillable_step_timeout_seconds == 60
    assert config.prolog_timeout_seconds is None
    assert (config.nodes, config.partitions, config.warnings, config.without_effect) == ((), (), (), ())


def test_every_default_in_the_table_can_be_read() -> None:
    for row in GLOBALS.rows:
        if row.default:
            row.read(row.default)


def test_every_field_of_the_table_is_a_field_of_the_record() -> None:
    fields = {row.field for row in GLOBALS.rows if row.field}
    assert fields <= set(ClusterConfig.__struct_fields__)


def test_a_key_cancelled_by_an_empty_value_has_its_default() -> None:
    assert config_with('KillWait=""\n').kill_wait_seconds == 30


def test_controllers_keep_their_order_and_addresses() -> None:
    config = parse("ClusterName=c\nSlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\n")
    assert [(each.host, each.addr) for each in config.controllers] == [("a", "10.0.0.1"), ("b", "b")]
    assert (config.controller_host, config.controller_addr) == ("a", "10.0.0.1")


def test_old_controller_keys_build_the_list() -> None:
    config = parse("ClusterName=c\nControlMachine=a\nControlAddr=10.0.0.1\nBackupController=b\n")
    assert [(each.host, each.addr) for each in config.controllers] == [("a", "10.0.0.1"), ("b", "b")]
    assert config.without_effect == ()


def test_old_controller_keys_give_way_to_the_new_one() -> None:
    config = config_with("ControlMachine=old\n")
    assert config.controller_host == "head"
    assert config.warnings == ("muster.conf:3: Ignoring ControlMachine since SlurmctldHost is set.",)


@pytest.mark.parametrize("word", ["yes", "UP", "True", "1"])
def test_words_for_yes(word: str) -> None:
    assert config_with(f"PriorityFavorSmall={word}\n").priority_favor_small is True


@pytest.mark.parametrize("word", ["no", "DOWN", "False", "0"])
def test_words_for_no(word: str) -> None:
    assert config_with(f"JobRequeue={word}\n").job_requeue is False


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("90:30", 5430), ("1:00:05", 3605), ("2-12", 216000), ("2-12:30", 217800), ("1-0:0:1", 86401)],
)
def test_the_six_forms_of_time(text: str, seconds: int) -> None:
    assert config_with(f"PriorityMaxAge={text}\n").priority_max_age_seconds == seconds


def test_scheduler_parameters_become_a_dict() -> None:
    config = config_with("SchedulerParameters=bf_window=4320,BF_continue, defer\n".replace(", ", ","))
    assert config.scheduler_parameters == {"bf_window": "4320", "bf_continue": "", "defer": ""}


def test_enforcement_brings_what_it_implies() -> None:
    assert config_with("AccountingStorageEnforce=safe\n").accounting_enforce == ("associations", "limits", "safe")
    assert config_with("AccountingStorageEnforce=1\n").accounting_enforce == ("associations",)
    assert config_with("AccountingStorageEnforce=nojobs\n").accounting_enforce == ("nojobs", "nosteps")
    everything = config_with("AccountingStorageEnforce=all\n")
    assert everything.accounting_enforce == ("associations", "limits", "qos", "safe", "wckeys")
    assert everything.track_wckey is True


def test_gpu_accounting_brings_memory_and_utilisation() -> None:
    config = config_with("GresTypes=gpu\nAccountingStorageTRES=gres/gpu,license/x\n")
    assert config.accounting_tres[-4:] == ("gres/gpu", "gres/gpumem", "gres/gpuutil", "license/x")


def test_an_unknown_resource_in_accounting_is_kept_with_a_warning() -> None:
    config = config_with("AccountingStorageTRES=gres/foo\n")
    assert config.accounting_tres[-1] == "gres/foo"
    assert config.warnings == ("muster.conf:3: AccountingStorageTRES names gres/foo, and GresTypes does not",)


def test_prolog_flags_bring_what_they_imply() -> None:
    assert set(config_with("PrologFlags=X11\n").prolog_flags) == {"X11", "Contain", "Alloc"}
    assert set(config_with("PrologFlags=NoHold\n").prolog_flags) == {"NoHold", "Alloc"}
    assert config_with("").prolog_flags == ()


def test_timeouts_of_scripts_fall_back_on_the_common_one() -> None:
    config = config_with("PrologEpilogTimeout=60\nEpilogTimeout=5\n")
    assert (config.prolog_timeout_seconds, config.epilog_timeout_seconds) == (60, 5)


def test_unkillable_timeout_follows_the_message_timeout() -> None:
    assert config_with("MessageTimeout=30\n").unkillable_step_timeout_seconds == 150


def test_memory_per_cpu_gives_way_to_memory_per_node() -> None:
    config = config_with("DefMemPerNode=4G\nDefMemPerCPU=100\n")
    assert (config.def_mem_per_node_mib, config.def_mem_per_cpu_mib) == (4096, 0)
    assert config.warnings == ("muster.conf:4: DefMemPerCPU ignored, since it's mutually exclusive with DefMemPerNode",)


def test_exceptions_from_propagation_leave_the_rest_propagated() -> None:
    config = config_with("PropagateResourceLimitsExcept=MEMLOCK\n")
    assert (config.propagate_limits, config.propagate_limits_except) == ((), ("MEMLOCK",))


def test_exit_codes_are_expanded() -> None:
    assert config_with("RequeueExit=1,142-144\n").requeue_exit == (1, 142, 143, 144)


def test_weights_of_resources_are_fractions() -> None:
    config = config_with('PriorityWeightTRES="cpu=0.5, GRES/gpu=-3"\n')
    assert config.priority_weight_tres == {"cpu": 0.5, "gres/gpu": -3.0}


def test_licences_have_counts() -> None:
    assert config_with("Licenses=matlab:4,fluent*2,idl\n").licenses == {"matlab": 4, "fluent": 2, "idl": 1}


@pytest.mark.parametrize("item", ["matlab|stata:2", "matlab=4", "matlab;stata", "a b:2"])
def test_a_licence_that_no_job_could_name_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match="is not name or name:count"):
        config_with(f'Licenses="{item}"\n')


def test_known_keys_without_effect_are_listed_with_their_place() -> None:
    config = config_with("TreeWidth=32\nMCSPlugin=mcs/user\nSwitchType=switch/none\n")
    assert config.without_effect == (("TreeWidth", "muster.conf", 3), ("MCSPlugin", "muster.conf", 4))
    assert config.raw["TreeWidth"] == "32"


def test_options_and_values_without_effect_are_listed_one_by_one() -> None:
    config = config_with("SchedulerParameters=bf_continue,requeue_delay=5\nSelectType=select/linear\n")
    assert [key for key, _, _ in config.without_effect] == ["SchedulerParameters=bf_continue", "SelectType"]
    assert config_with("SelectType=select/cons_tres\nResvOverRun=5\n").without_effect == ()
    assert config_with("SchedulerParameters=max_switch_wait=30,requeue_delay=9\n").without_effect == ()


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        ("TopologyParam=TopoOptional,RouteTree,TopoMaxSizeUnroll=-1", ["RouteTree", "TopoMaxSizeUnroll=-1"]),
        ("SelectTypeParameters=CR_Core_Memory,CR_NO_DIST_TOPO_BLOCK,CR_LLN", ["CR_NO_DIST_TOPO_BLOCK"]),
        ("AccountingStorageEnforce=safe,wckeys", ["wckeys"]),
        ("AccountingStorageEnforce=none", []),
    ],
)
def test_words_without_effect_are_listed_beside_those_that_have_one(line: str, listed: list[str]) -> None:
    key = line.partition("=")[0]
    assert [told for told, _, _ in config_with(line + "\n").without_effect] == [f"{key}={word}" for word in listed]


def test_obsolete_keys_are_told_once_and_ignored() -> None:
    config = config_with("FastSchedule=1\nLaunchType=launch/slurm\n")
    assert config.warnings == (
        "muster.conf:3: FastSchedule is obsolete and ignored",
        "muster.conf:4: LaunchType is obsolete and ignored",
    )


def test_what_existing_files_carry_is_understood() -> None:
    config = config_with("SelectType=select/cons_res\nMpiDefault=pmix_v4\n")
    assert (config.select_type, config.mpi_default) == ("select/cons_tres", "pmix")
    assert config.warnings == ("muster.conf:3: select/cons_res is obsolete, select/cons_tres is used",)


def test_old_names_stand_for_the_new_ones() -> None:
    assert config_with("CryptoType=crypto/munge\n").raw["CredType"] == "crypto/munge"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("FastSchedule=2", "muster.conf:3: FastSchedule=2 is no longer supported (remove it; 2 is now"),
        (
            "AccountingStoreJobComment=yes",
            "3: AccountingStoreJobComment is no longer supported (use AccountingStoreFlags",
        ),
        ("ClusterName=" + "x" * 41, "is longer than 40 characters"),
        ("PriorityDecayHalfLife=0", "muster.conf:3: PriorityDecayHalfLife=0 needs a PriorityUsageResetPeriod"),
        ("PreemptType=preempt/qos", "muster.conf:3: PreemptType and PreemptMode values incompatible"),
        ("PreemptMode=CANCEL", "muster.conf:3: PreemptType and PreemptMode values incompatible"),
        ("PreemptType=preempt/qos\nPreemptMode=SUSPEND", "muster.conf:4: PreemptMode=SUSPEND requires GANG too"),
        ("PreemptMode=OFF,GANG", "muster.conf:3: PreemptMode=OFF,GANG names OFF with another mode"),
        ("JobAcctGatherParams=UsePss,NoShared", "3: JobAcctGatherParams=UsePss and NoShared exclude each other"),
        ("PrologFlags=NoHold,Contain", "muster.conf:3: PrologFlags=NoHold does not go with Contain or X11"),
        ("HealthCheckNodeState=START_ONLY,IDLE", "3: HealthCheckNodeState=START_ONLY or REBOOT_ONLY must stand alone"),
        (
            "LaunchParameters=enable_nss_slurm,disable_send_gids",
            "3: LaunchParameters=enable_nss_slurm and disable_send",
        ),
        ("CommunicationParameters=DisableIPv4", "3: CommunicationParameters turns off both IPv4 and IPv6"),
        ("NamespaceType=namespace/tmpfs", "muster.conf:3: NamespaceType needs PrologFlags=Contain"),
        ("PropagateResourceLimits=NONE\nPropagateResourceLimitsExcept=CPU", "4: PropagateResourceLimits and Propagate"),
        ("SelectTypeParameters=CR_CPU,CR_Core", "3: SelectTypeParameters invalid: CR_CPU and CR_Core exclude"),
        ("SelectTypeParameters=CR_Foo", "muster.conf:3: SelectTypeParameters invalid: CR_Foo"),
        ("PrologFlags=Foo", "muster.conf:3: PrologFlags invalid: Foo"),
        ("PriorityFlags=Foo", "muster.conf:3: PriorityFlags invalid: Foo"),
        ("PrivateData=jobs,foo", "muster.conf:3: PrivateData invalid: foo"),
        ("ReconfigFlags=Foo", "muster.conf:3: ReconfigFlags invalid: Foo"),
        ("DebugFlags=Foo", "muster.conf:3: DebugFlags invalid: Foo"),
        ("AccountingStorageEnforce=foo", "muster.conf:3: AccountingStorageEnforce invalid: foo"),
        ("MpiDefault=openmpi", "muster.conf:3: MpiDefault=openmpi is not known (use none, pmi2 or pmix)"),
        ("SchedulerParameters=defer,bf_window=long", '3: SchedulerParameters: bf_window="long" is not a whole number'),
        ("SchedulerParameters=bf_max_job_test", '3: SchedulerParameters: bf_max_job_test="" is not a whole number'),
        ("SchedulerParameters=bf_interval=0x5", '3: SchedulerParameters: bf_interval="0x5" is not a whole number'),
        ("SchedulerParameters=bf_resolution=0", "3: SchedulerParameters: bf_resolution=0 is not within 1 to 3600"),
        ("AuthInfo=cred_expire=soon", 'muster.conf:3: AuthInfo: cred_expire="soon" is not a whole number'),
        ("SlurmctldParameters=rl_refill_rate=0", "3: SlurmctldParameters: rl_refill_rate=0 is not within 1 to"),
        ("SlurmctldParameters=node_reg_mem_percent=100.5", "node_reg_mem_percent=100.5 is not within 0 to 100"),
        ("SlurmctldParameters=node_reg_mem_percent=most", 'node_reg_mem_percent="most" is not a number'),
        ("FirstJobId=100\nMaxJobId=50", "muster.conf:3: FirstJobId=100 is above MaxJobId=50"),
        ("AccountingStorageType=accounting_storage/mysql", "3: AccountingStorageType=accounting_storage/mysql is not"),
    ],
)
def test_fatal_combinations_are_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(text + "\n")


def test_required_keys_are_asked_for() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("KillWait=1\n")
    assert str(caught.value).splitlines() == [
        "muster.conf: ClusterName needs to be specified (add a line such as ClusterName=mycluster)",
        "muster.conf: No SlurmctldHost defined. (add a line such as SlurmctldHost=head1)",
    ]


def test_every_mistake_is_reported_in_the_order_of_the_lines() -> None:
    lines = refusal("KillWait=x\nClusterNam=y\nSlurmdTimeout=70000\nlonely\nUsePAM=maybe\n").splitlines()
    assert lines == [
        'muster.conf:3: KillWait="x" is not a whole number',
        "muster.conf:4: unrecognized key: ClusterNam in slurm.conf (did you mean ClusterName?)",
        "muster.conf:5: SlurmdTimeout=70000 is above 65533",
        'muster.conf:6: Parse error: "lonely" (lines are key=value pairs, blanks between them)',
        'muster.conf:7: "maybe" is not a valid option for "UsePAM"',
    ]

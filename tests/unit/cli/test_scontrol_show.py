"""scontrol show and ping against a served state: Slurm's own examples line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ctld.core.apply.indexes import put
from ctld.core.cluster import NodeFacts, Settings
from ctld.core.model import Allocation, GpuRequest, NodeShare, Request, Step
from ctld.core.state import State
from muster.gres_text import gres_count
from muster.ids import JobId, StepId, UnixTime
from muster.states import JobState
from tests.builders import NOON, a_job, a_node_spec, a_partition, a_spec, a_state
from tests.served import Served, StandingClock, links_to, run, served

TRAIN2 = """\
JobId=102 JobName=train2
   UserId=alice(1000) GroupId=users(100) MCS_label=N/A
   Priority=128 Nice=0 Account=physics QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:04 TimeLimit=00:30:00 TimeMin=N/A
   SubmitTime=2025-06-15T15:06:40 EligibleTime=2025-06-15T15:06:40
   AccrueTime=2025-06-15T15:06:40
   StartTime=2025-06-15T15:06:40 EndTime=2025-06-15T15:36:40 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2025-06-15T15:06:40 Scheduler=Main
   Partition=gpu AllocNode:Sid=login1:3929
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=node[1-2]
   BatchHost=node1
   NumNodes=2 NumCPUs=4 NumTasks=4 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   ReqTRES=cpu=4,mem=2G,node=2,billing=4,gres/gpu=4
   AllocTRES=cpu=4,mem=2G,node=2,billing=4,gres/gpu=4
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=1G MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=NO Exclusive=NO Contiguous=0 Licenses=(null) LicensesAlloc=(null) Network=(null)
   Command=(null)
   SubmitLine=sbatch -J train2 -N2 -n4 -t 30 --mem=1G --gres=gpu:2 --wrap srun train
   WorkDir=/home/alice
   StdErr=
   StdIn=/dev/null
   StdOut=/home/alice/slurm-102.out
   TresPerNode=gres/gpu:2

"""
NODE6 = """\
NodeName=node6 Arch=x86_64 CoresPerSocket=1 
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.80
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:8
   NodeAddr=10.0.0.6 NodeHostName=node6 Port=6818 Version=26.05.3
   OS=Linux 6.18.0 #1 SMP PREEMPT_DYNAMIC 
   RealMemory=256000 AllocMem=0 FreeMem=22042 Sockets=64 Boards=1
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu 
   BootTime=2025-06-15T15:06:41 SlurmdStartTime=2025-06-15T15:06:42
   LastBusyTime=2025-06-15T15:06:43 ResumeAfterTime=None SuspendTime=INFINITE
   CfgTRES=cpu=64,mem=250G,billing=64,gres/gpu=8
   AllocTRES=
   CurrentWatts=0 AveWatts=0
   Reason=hw fault [root@2025-06-15T15:06:44]

"""  # noqa: W291 (Slurm ends three of these lines with a blank)
GPU = """\
PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=01:00:00 DisableRootJobs=NO Exclusive=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED
   Nodes=node[1-8]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=512 TotalNodes=8 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
   TRES=cpu=512,mem=2000G,node=8,billing=512,gres/gpu=64

"""


def a_cluster() -> State:
    """The cluster of Slurm's documented examples: node1 to node8, each 64 CPUs, 250G and 8 GPUs."""
    state = a_state(8, partitions=(a_partition("gpu", nodes=8, default=True, default_minutes=60),))
    state.settings = Settings(require_registration=False)
    for index in range(8):
        described = replace(a_node_spec(f"node{index + 1}", sockets=64), port=6818, addr=f"10.0.0.{index + 1}")
        state.nodes[index] = replace(state.nodes[index], spec=described)
        state.node_index[described.name] = index
    facts = NodeFacts(
        hostname="node6",
        version="26.05.3",
        arch="x86_64",
        os="Linux 6.18.0 #1 SMP PREEMPT_DYNAMIC",
        boot_at=UnixTime(NOON + 1),
        agent_started_at=UnixTime(NOON + 2),
    )
    state.nodes[5] = replace(
        state.nodes[5],
        facts=facts,
        drain=True,
        reason="hw fault",
        reason_uid=0,
        reason_at=UnixTime(NOON + 4),
        last_busy_at=UnixTime(NOON + 3),
    )
    spec = a_spec(
        name="train2",
        user="alice",
        group="users",
        gid=100,
        account="physics",
        partitions=("gpu",),
        nodes_min=2,
        nodes_max=2,
        ntasks=4,
        memory_per_node_mib=1024,
        gpus_per_node=(GpuRequest("", 2),),
        work_dir="/home/alice",
        submit_host="login1",
        sid=3929,
        submit_line="sbatch -J train2 -N2 -n4 -t 30 --mem=1G --gres=gpu:2 --wrap srun train",
    )
    shares = (
        NodeShare(node=0, cpus=2, cores=(60, 61), memory_mib=1024, gpus=(0, 1), tasks=2),
        NodeShare(node=1, cpus=2, cores=(60, 61), memory_mib=1024, gpus=(0, 1), tasks=2),
    )
    job = replace(
        a_job(102, spec=spec, priority=128, limit_seconds=1800),
        state=int(JobState.RUNNING),
        started_at=NOON,
        alloc=Allocation(partition="gpu", shares=shares),
    )
    put(state, None, job)
    state.steps[102] = {
        0: Step(
            job_id=JobId(102),
            step_id=StepId(0),
            name="work",
            uid=1000,
            created_at=NOON,
            shares=shares,
            ntasks=4,
        )
    }
    array = a_spec(
        name="sweep",
        user="alice",
        partitions=("gpu",),
        array=(2, 3),
        std_out="logs/%x-%A_%a.txt",
        comment="two words",
        work_dir="/home/alice",
        nodelist=("node01", "node02"),
        command="/home/alice/s.sh",
        script_args=("a", "b"),
    )
    put(state, None, replace(a_job(110, spec=array, priority=0), hold="user", array_limit=1))
    put(
        state,
        None,
        replace(
            a_job(111, spec=array),
            array_job_id=110,
            array_task_id=1,
            array_pending=(),
            state=int(JobState.FAILED),
            started_at=NOON,
            ended_at=UnixTime(NOON + 1),
            state_text="no such directory /a b",
            exit_status=1 << 8,
            alloc=Allocation(partition="gpu", shares=(replace(shares[0], node=2),)),
        ),
    )
    state.next_job_id = JobId(200)
    return state


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    state = a_cluster()
    links = links_to(state)
    links.pulse(5).load_x100 = 80
    links.pulse(5).free_memory_mib = 22042
    clock = StandingClock(UnixTime(NOON + 4))
    with served(state, tmp_path_factory.mktemp("scontrol"), links=links, clock=clock) as serving:
        yield serving


def pairs(line: str) -> dict[str, str]:
    """Read a line as test suites do: words of KEY=VALUE."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


@pytest.mark.parametrize(
    "argv", [("show", "job", "102"), ("sho", "jobid=102"), ("show", "jobs=102"), ("show=job", "102")]
)
def test_a_running_job_reads_as_slurms_example(cluster: Served, argv: tuple[str, ...]) -> None:
    assert cluster.out("scontrol", *argv) == TRAIN2


def test_one_line_holds_the_same_pairs(cluster: Served) -> None:  # B-18
    line = cluster.out("scontrol", "-o", "show", "job", "102")
    assert line == TRAIN2.rstrip("\n").replace("\n   ", " ") + "\n"
    assert cluster.out("scontrol", "show", "job", "102", "--oneliner") == line
    assert pairs(line)["Account"] == "physics"
    assert pairs(line)["Licenses"] == "(null)"


def test_details_name_cpus_and_devices_of_each_group_of_nodes(cluster: Served) -> None:  # B-18, N-12
    shown = cluster.out("scontrol", "-d", "show", "job", "102")
    assert "   DerivedExitCode=0:0\n" in shown
    assert (
        "   JOB_GRES=gpu:4\n     Nodes=node[1-2] CPU_IDs=60-61 Mem=1024 GRES=gpu:2(IDX:0-1)\n   MinCPUsNode=1" in shown
    )
    found = pairs(cluster.out("scontrol", "-od", "show", "job", "102"))
    assert gres_count(found["AllocTRES"]) == 4
    assert gres_count(found["GRES"]) == 2


def test_a_job_shows_where_its_nodes_have_to_lie(tmp_path: Path) -> None:
    state = a_state()
    shape = Request(
        switches=2, switches_wait_seconds=90, segment=4, segment_level="rack", spread_segments=True, contiguous=True,
        consolidate_segments=True, spread_job=True, use_min_nodes=True, prefer="avx", topology="required:pod",
    )  # fmt: skip
    put(state, None, a_job(1, spec=a_spec(request=shape)))
    put(state, None, a_job(2, spec=a_spec(switches=1)))
    with served(state, tmp_path) as serving:
        lines = [line.strip() for line in serving.out("scontrol", "show", "job", "1").splitlines()]
        at = lines.index("Prefer=avx")
        assert lines[at - 1].startswith("Features=(null)")
        assert "Contiguous=1" in lines[at + 1].split()
        at = lines.index("SegmentSize=4 SegmentLevel=rack SpreadSegments=Yes ConsolidateSegments=Yes")
        assert lines[at + 1 : at + 5] == [
            "Switches=2@00:01:30",
            "Topology=required:pod",
            "SpreadJob=Yes",
            "UseMinNodes=Yes",
        ]
        assert "Switches=1@00:05:00" in serving.out("scontrol", "show", "job", "2")  # max_switch_wait


def test_an_array_shows_all_its_records_and_a_member_one(cluster: Served) -> None:
    whole = cluster.out("scontrol", "-o", "show", "job", "110").splitlines()
    assert [line.split(" JobName")[0] for line in whole] == [
        "JobId=110 ArrayJobId=110 ArrayTaskId=2-3%1 ArrayTaskThrottle=1",
        "JobId=111 ArrayJobId=110 ArrayTaskId=1 ArrayTaskThrottle=0".removesuffix(" ArrayTaskThrottle=0"),
    ]
    held = pairs(whole[0])
    assert (held["JobState"], held["Reason"], held["Priority"]) == ("PENDING", "JobHeldUser", "0")
    assert (held["ReqNodeList"], held["NumNodes"], held["AllocTRES"]) == ("node[01-02]", "1-1", "(null)")
    assert "Command=/home/alice/s.sh a b SubmitLine=" in whole[0]
    assert "Comment=two words StdErr= " in whole[0]
    failed = pairs(cluster.out("scontrol", "-o", "show", "job", "110_1"))
    assert (failed["JobId"], failed["ExitCode"], failed["Reason"]) == ("111", "1:0", "no_such_directory_/a_b")
    assert failed["StdOut"] == "/home/alice/logs/sweep-110_1.txt"  # B-06


@pytest.mark.parametrize(
    ("argv", "out", "err"),
    [
        (("show", "job", "999"), "", "slurm_load_jobs error: Invalid job id specified\n"),
        (("show", "job", "150"), "", "slurm_load_jobs error: Invalid job id specified\n"),
        (("show", "job", "5,6"), "", "scontrol_print_job error: Invalid job id specified\n"),
        (("show", "job", "abc"), "", "scontrol_print_job error: Invalid job id specified\n"),
        (("show", "job", "110_7"), "", "Job 110_7 not found\n"),
        (("show", "node", "zz"), "Node zz not found\n", ""),
        (("show", "partition", "zz"), "Partition zz not found\n", ""),
        (("show", "reservation", "zz"), "Reservation zz not found\n", ""),
        (("show", "step", "102.7"), "Job step 102.7 not found\n", ""),
        (("show", "step", "110"), "Job step 110. not found\n", ""),
        (
            ("show", "step", "999"),
            "",
            "scontrol: error: scontrol_print_step: slurm_get_job_steps(999) failed: Invalid job id specified\n",
        ),
        (("show", "foo"), "", "invalid entity:foo for keyword:show\n"),
        (("show", "job", "5", "6"), "", "too many arguments for keyword:show\n"),
        (("show",), "", "too few arguments for keyword:show\n"),
        (("update",), "", "too few arguments for update keyword\n"),
        (("frobnicate",), "", "invalid keyword: frobnicate\n"),
        (("-Q", "frobnicate"), "", ""),
        (("-Q", "show", "job", "999"), "", ""),
    ],
)
def test_what_is_not_there_is_told_in_slurms_words(cluster: Served, argv: tuple[str, ...], out: str, err: str) -> None:
    done = cluster.run("scontrol", *argv)
    assert (done.returncode, done.stdout, done.stderr) == (1, out, err)


def test_a_node_reads_as_slurms_example(cluster: Served) -> None:
    assert cluster.out("scontrol", "show", "node", "node6") == NODE6
    line = cluster.out("scontrol", "-o", "show", "node=node6")
    assert line == NODE6.rstrip("\n").replace("\n   ", " ") + "\n"
    assert "CoresPerSocket=1  CPUAlloc" in line


def test_a_list_of_nodes_is_one_word_and_details_count_devices(cluster: Served) -> None:  # N-12
    shown = cluster.out("scontrol", "-d", "-o", "show", "node", "node[1-2]").splitlines()
    assert [line.split()[0] for line in shown] == ["NodeName=node1", "NodeName=node2"]
    assert "GresDrain=N/A GresUsed=gpu:2(IDX:0-1)" in shown[0]
    found = pairs(shown[0])
    assert (found["State"], found["CPUAlloc"], found["AllocMem"]) == ("MIXED", "2", "1024")
    assert found["AllocTRES"] == "cpu=2,mem=1G,gres/gpu=2"
    assert len(cluster.out("scontrol", "show", "nodes").split("\n\n")) == 9


def test_a_partition_reads_as_slurms_example(cluster: Served) -> None:
    assert cluster.out("scontrol", "show", "partition", "gpu") == GPU
    assert cluster.out("scontrol", "show", "partitions") == GPU


def test_a_partition_tells_by_which_topology_its_nodes_are_chosen(tmp_path: Path) -> None:
    partitions = (a_partition("tight", topology="net", default_topology="required:rack", lln=True), a_partition("main"))
    with served(a_state(partitions=partitions), tmp_path) as serving:
        lines = [line.strip() for line in serving.out("scontrol", "show", "partition", "tight").splitlines()]
        at = lines.index("Topology=net")
        assert lines[at - 1].startswith("OverTimeLimit=")
        assert lines[at + 1] == "DefaultTopology=required:rack"
        assert lines[at + 2].startswith("State=UP")
        assert any(" LLN=YES " in line for line in lines)
        plain = serving.out("scontrol", "show", "partition", "main")
        assert "Topology=" not in plain
        assert " LLN=NO " in plain


def test_steps_are_records_too_the_batch_script_first(cluster: Served) -> None:
    assert cluster.out("scontrol", "show", "step") == (
        "StepId=102.batch UserId=1000 StartTime=2025-06-15T15:06:40 TimeLimit=UNLIMITED\n"
        "   State=RUNNING Partition=gpu NodeList=node1\n"
        "   Nodes=1 CPUs=0 Tasks=1 Name=batch Network=(null)\n"
        "   TRES=(null)\n   ResvPorts=(null)\n   CPUFreqReq=Default\n   SrunHost:Pid=(null):0\n\n"
        "StepId=102.0 UserId=1000 StartTime=2025-06-15T15:06:40 TimeLimit=UNLIMITED\n"
        "   State=RUNNING Partition=gpu NodeList=node[1-2]\n"
        "   Nodes=2 CPUs=4 Tasks=4 Name=work Network=(null)\n"
        "   TRES=cpu=4,gres/gpu=4,mem=2G,node=2\n   ResvPorts=(null)\n   CPUFreqReq=Default Dist=Block\n"
        "   SrunHost:Pid=login1:0\n\n"
    )


def test_the_configuration_is_lines_that_tools_grep(cluster: Served) -> None:
    lines = cluster.out("scontrol", "show", "config", "ignored").splitlines()
    assert lines[0] == "Configuration data as of 2025-06-15T15:06:44"
    assert "ClusterName             = cluster" in lines
    assert "NEXT_JOB_ID             = 200" in lines
    assert "SLURM_VERSION           = 26.05.0" in lines
    assert lines[-2:] == ["", "Slurmctld(primary) at head is UP"]
    assert lines[1:-2] == sorted(lines[1:-2], key=str.lower)


def test_an_empty_cluster_says_that_there_is_nothing(tmp_path: Path) -> None:
    with served(a_state(), tmp_path) as serving:
        assert serving.out("scontrol", "show", "job") == "No jobs in the system\n"
        assert serving.out("scontrol", "show", "res") == "No reservations in the system\n"
        assert serving.out("scontrol", "show", "lic") == "No licenses configured in Slurm.\n"


def test_ping_tells_who_is_up_and_what_is_down(cluster: Served, tmp_path: Path) -> None:
    assert cluster.out("scontrol", "ping") == "Slurmctld(primary) at head is UP\n"
    done = run("scontrol", "ping", socket=tmp_path / "nobody")
    first, *rest = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.startswith("Slurmctld(primary) at ")
    assert first.endswith(" is DOWN")
    assert rest == ["*" * 41, "** RESTORE SLURMCTLD DAEMON TO SERVICE **", "*" * 41]


def test_without_a_controller_the_library_says_so(tmp_path: Path) -> None:
    for entity, what in (("job", "jobs"), ("node", "node"), ("partition", "partitions"), ("config", "ctl_conf")):
        done = run("scontrol", "show", entity, socket=tmp_path / "nobody")
        assert done.returncode == 1
        assert done.stderr.splitlines()[0] == (
            f"slurm_load_{what} error: Unable to contact slurm controller (connect failure)"
        )


# ---- host lists: no controller is asked ---------------------------------------------------------------------------


def hosts(tmp_path: Path, *argv: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
    done = run("scontrol", "show", *argv, socket=tmp_path / "nobody", stdin=stdin, **environment)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-002]", "node001 node002"),  # N-05
        ("b04-[09-10]", "b04-09 b04-10"),
        ("host[001,003-004,006]", "host001 host003 host004 host006"),
        ("c[1-2]", "c1 c2"),
        ("r[1-2]n[1,3-4]", "r1n1 r1n3 r1n4 r2n1 r2n3 r2n4"),  # B-16
        ("a,b[2-3],a", "a b2 b3 a"),
    ],
)
def test_hostnames_expands_and_hostlist_gives_the_text_back(tmp_path: Path, text: str, names: str) -> None:
    for word in ("hostnames", "hostname"):
        assert hosts(tmp_path, word, text) == (0, names.replace(" ", "\n") + "\n", "")
    if "][" not in text and text.count("[") == 1 and "," not in text.partition("[")[0]:
        assert hosts(tmp_path, "hostlist", names.replace(" ", ",")) == (0, text + "\n", "")


def test_hostlist_reads_files_and_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("n3\nn1\nn2\nn1\n")
    assert hosts(tmp_path, "hostlist", str(path)) == (0, "n[3,1-2,1]\n", "")
    assert hosts(tmp_path, "hostlistsorted", "-", stdin="n3\nn1\nn2\nn1\n") == (0, "n[1,1-3]\n", "")
    assert hosts(tmp_path, "hostlist", "/no/such/file") == (1, "", "Can not open /no/such/file\n")
    path.write_bytes(b"n1\n" * 400_000)
    assert hosts(tmp_path, "hostlist", str(path)) == (1, "", f"File {path} is too large\n")


def test_hostnames_takes_the_jobs_nodes_and_tells_what_is_wrong(tmp_path: Path) -> None:
    assert hosts(tmp_path, "hostnames", SLURM_NODELIST="n[1-2]") == (0, "n1\nn2\n", "")
    assert hosts(tmp_path, "hostnames", SLURM_JOB_NODELIST="n[1-2]") == (
        0,
        "",
        "scontrol: error: host list is empty\n",
    )
    assert hosts(tmp_path, "hostnames", "") == (0, "", "")
    assert hosts(tmp_path, "hostlist", "") == (0, "\n", "")
    code, out, err = hosts(tmp_path, "hostlist")
    assert (code, err) == (1, "invalid encode argument\n")
    assert out.startswith("Usage: scontrol ")


def test_a_list_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert hosts(tmp_path, "hostnames", "n[1") == (0, "", "Invalid hostlist: n[1\n")
    code, out, err = hosts(tmp_path, "hostlist", "n[5-3]")
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert first.startswith("scontrol: error: ")
    assert first.endswith("Invalid range: `5-3'")
    assert second == "Invalid hostlist: n[5-3]"


def test_the_version_is_told_without_a_controller(tmp_path: Path) -> None:
    assert run("scontrol", "version", socket=tmp_path / "x").stdout.startswith("slurm 26.05.0 (muster ")
    assert run("scontrol", "-V", socket=tmp_path / "x").stdout.startswith("slurm 26.05.0 (muster ")

"""sinfo against a served state: layouts byte for byte, grouping, filters, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ctld.core.apply.indexes import put
from ctld.core.model import Allocation, NodeShare
from ctld.core.state import State
from muster.ids import UnixTime
from muster.states import JobState
from tests.builders import NOON, a_job, a_partition, a_state
from tests.served import Served, links_to, run, served

WORDS = (
    "unknown,down,idle,allocated,mixed,future,drain,drained,draining,no_respond,reserved,planned,blocked,cloud,"
    "completing,powering_down,powered_down,power_down,powering_up,power_up,inval,fail,maint,reboot,reboot^,external,"
    "dynamic_future,dynamic_norm"
)


def take(state: State, job_id: int, node: int, cpus: int, gpus: tuple[int, ...] = ()) -> None:
    """Have a job run on a node."""
    share = NodeShare(node=node, cpus=cpus, cores=(0, cpus - 1), memory_mib=1000, gpus=gpus)
    job = replace(
        a_job(job_id, partitions=("gpu",)),
        state=int(JobState.RUNNING),
        started_at=NOON,
        alloc=Allocation(partition="gpu", shares=(share,)),
    )
    put(state, None, job)


def a_cluster() -> State:
    """n1 and n2 are partly used, n3 wholly, n4 is drained, n5 down, n6 draining, n7 and n8 idle, n8 not reached."""
    state = a_state(
        8,
        gpu_type="h200",
        partitions=(
            a_partition("gpu", nodes=8, default=True),
            a_partition("small", nodes=(6, 7), max_minutes=240, max_nodes=1, state="DRAIN", max_cpus_per_node=48),
            a_partition("empty", nodes=()),
            a_partition("dark", nodes=1, hidden=True),
        ),
    )
    take(state, 1, 0, 4, (0, 2))
    take(state, 2, 1, 4)
    take(state, 3, 2, 64)
    take(state, 4, 5, 4)
    marks: dict[int, dict[str, object]] = {
        3: {"drain": True, "reason": "hw fault", "reason_uid": 0, "reason_at": UnixTime(NOON)},
        4: {"down": True, "reason": "Not responding", "reason_uid": 0, "reason_at": UnixTime(NOON + 60)},
        5: {"drain": True, "reason": "later", "reason_uid": 4_000_000_001, "reason_at": UnixTime(NOON)},
    }
    for index, fields in marks.items():
        state.nodes[index] = replace(state.nodes[index], **fields)
    return state


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    state = a_cluster()
    links = links_to(state, without=(7,))
    links.pulse(0).load_x100 = 80
    links.pulse(0).free_memory_mib = 22042
    with served(state, tmp_path_factory.mktemp("sinfo"), links=links) as serving:
        yield serving


def test_the_default_layout_groups_nodes_and_sorts_states_as_slurm_does(cluster: Served) -> None:
    assert cluster.out("sinfo") == (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "gpu*         up   infinite      1  idle* n8\n"
        "gpu*         up   infinite      1   drng n6\n"
        "gpu*         up   infinite      1  drain n4\n"
        "gpu*         up   infinite      2    mix n[1-2]\n"
        "gpu*         up   infinite      1  alloc n3\n"
        "gpu*         up   infinite      1   idle n7\n"
        "gpu*         up   infinite      1   down n5\n"
        "small     drain    4:00:00      1  idle* n8\n"
        "small     drain    4:00:00      1   idle n7\n"
        "empty        up   infinite      0    n/a \n"
    )


def test_the_summary_counts_allocated_idle_other_and_all(cluster: Served) -> None:
    assert cluster.out("sinfo", "-s") == (
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\n"
        "gpu*         up   infinite          3/2/3/8 n[1-8]\n"
        "small     drain    4:00:00          0/2/0/2 n[7-8]\n"
        "empty        up   infinite          0/0/0/0 \n"
    )


@pytest.mark.parametrize(
    ("argv", "header"),
    [
        (
            ("-l",),
            "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION NODELIST",
        ),
        (("-N",), "NODELIST   NODES PARTITION STATE "),
        (
            ("-N", "-l"),
            "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              ",
        ),
        (("-R",), "REASON               USER      TIMESTAMP           NODELIST"),
        (("-R", "-l"), "REASON               USER         TIMESTAMP           STATE  NODELIST"),
    ],
)
def test_headers_are_byte_exact(cluster: Served, argv: tuple[str, ...], header: str) -> None:
    lines = cluster.out("sinfo", *argv).split("\n")
    assert lines[1 if "-l" in argv else 0] == header


def test_each_node_has_a_line_for_each_partition(cluster: Served) -> None:
    assert cluster.out("sinfo", "-hN", "-n", "n[6-8]") == (
        "n6             1      gpu* drng  \n"
        "n7             1      gpu* idle  \n"
        "n7             1     small idle  \n"
        "n8             1      gpu* idle* \n"
        "n8             1     small idle* \n"
    )


def test_reasons_name_who_and_when(cluster: Served) -> None:
    assert cluster.out("sinfo", "-hR") == (
        "later                400000000 2025-06-15T15:06:40 n6\n"
        "hw fault             root      2025-06-15T15:06:40 n4\n"
        "Not responding       root      2025-06-15T15:07:40 n5\n"
    )
    assert cluster.out("sinfo", "-hR", "-o", "%E|%U", "-n", "n6") == "later|4000000001(4000000001)\n"


def test_the_first_column_grows_with_its_names(tmp_path: Path) -> None:
    state = a_state(1, partitions=(a_partition("a-long-partition", nodes=1, default=True),))
    with served(state, tmp_path) as serving:
        assert serving.out("sinfo") == (
            "PARTITION         AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
            "a-long-partition*    up   infinite      1   idle n1\n"
        )


@pytest.mark.parametrize(
    ("states", "nodes"),
    [
        ("idle", "n[4,7-8]"),  # drained idle nodes too
        ("idle+drain", "n4"),
        ("idle&~drain", "n[7-8]"),
        ("!idle", "n[1-3,5-6]"),
        ("MIX,down", "n[1-2,5-6]"),
        ("drain", "n[4,6]"),
        ("drained", "n4"),
        ("drng", "n6"),
        ("not_responding", "n8"),
        ("planned", ""),
    ],
)
def test_states_join_by_comma_plus_and_tilde(cluster: Served, states: str, nodes: str) -> None:  # B-21
    assert cluster.out("sinfo", "-h", "-p", "gpu", "-t", states, "-o", "%N") == nodes + "\n"


def test_an_unknown_state_is_an_error_that_lists_the_words(cluster: Served) -> None:  # B-21
    done = cluster.run("sinfo", "-t", "idle,foo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f'sinfo: error: Bad state string: "idle,foo"\nsinfo: error: valid states: {WORDS}\n'


def test_sizes_that_differ_show_the_least_with_a_plus(tmp_path: Path) -> None:
    state = a_state(2)
    state.nodes[1] = replace(state.nodes[1], spec=replace(state.nodes[1].spec, cpus=32, cores_per_socket=32))
    with served(state, tmp_path) as serving:
        assert serving.out("sinfo", "-ho", "%c %m %z %D") == "32+ 256000 1:32+:1 2\n"
        assert serving.out("sinfo", "-heo", "%c %z %N") == "64 1:64:1 n1\n32 1:32:1 n2\n"


def test_gpus_are_shown_once_and_used_ones_by_index(cluster: Served) -> None:  # N-12
    assert cluster.out("sinfo", "-h", "-n", "n1", "-p", "gpu", "-o", "%G") == "gpu:h200:8\n"
    assert cluster.out("sinfo", "-h", "-n", "n1", "-p", "gpu", "-O", "gres:,gresused:") == (
        "gpu:h200:8gpu:h200:3(IDX:0-2)\n"
    )
    assert cluster.out("sinfo", "-h", "-n", "n7", "-p", "gpu", "-O", "gresused:") == "gpu:h200:0(IDX:N/A)\n"


def test_cpus_of_drained_and_down_nodes_are_other(cluster: Served) -> None:
    assert cluster.out("sinfo", "-h", "-p", "gpu", "-o", "%C") == "76/248/188/512\n"
    assert cluster.out("sinfo", "-h", "-n", "n4", "-p", "gpu", "-o", "%C %O %e") == "0/0/64/64 N/A N/A\n"
    assert cluster.out("sinfo", "-h", "-n", "n1", "-p", "gpu", "-o", "%C %O %e") == "4/60/0/64 0.80 22042\n"


def test_names_have_no_blanks_between_and_strangers_are_told(cluster: Served) -> None:
    assert cluster.out("sinfo", "-p", "small", "-O", "partition:,available:,nodes:.6,size:.9") == (
        "PARTITIONAVAIL NODES JOB_SIZE\nsmalldrain     2        1\n"
    )
    done = cluster.run("sinfo", "-p", "small", "-O", "foo")
    assert (done.returncode, done.stdout) == (0, "\n\n")
    assert done.stderr == "sinfo: error: Invalid job format specification: foo\n"
    done = cluster.run("sinfo", "-p", "small", "-o", "%q%N")
    assert (done.returncode, done.stdout) == (0, "%qNODELIST\n%qn[7-8]\n")
    assert done.stderr == "Invalid node format specification: q\n"


def test_partitions_are_chosen_and_hidden_ones_asked_for(cluster: Served) -> None:
    assert cluster.out("sinfo", "-p", "nowhere") == "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
    assert cluster.out("sinfo", "-hp", "dark", "-o", "%R") == "dark\n"
    assert cluster.out("sinfo", "-hp", "small,dark", "-o", "%R %B").splitlines() == ["small 48", "dark UNLIMITED"]
    assert cluster.out("sinfo", "-ah", "-o", "%R").split() == ["gpu", "small", "empty", "dark"]
    assert cluster.out("sinfo", "-h", "-o", "%R", SINFO_PARTITION="small") == "small\n"
    assert cluster.out("sinfo", "-p", "gpu", "-hd", SINFO_FORMAT="%N") == "n8\n"
    assert cluster.out("sinfo", "-p", "gpu", "-hro", "%N") == "n[1-7]\n"
    assert cluster.out("sinfo", "-h", "stray", "-n", "zz", "-p", "gpu") == "gpu*         up   infinite      0    n/a \n"


def test_lines_are_sorted_as_asked(cluster: Served) -> None:
    assert cluster.out("sinfo", "-hp", "gpu", "-S", "N", "-o", "%t %N").splitlines()[0] == "mix n[1-2]"
    assert cluster.out("sinfo", "-hp", "gpu", "-S", "t", "-o", "%t").split()[0] == "down"
    assert cluster.out("sinfo", "-h", "-S", "-P", "-o", "%P").split() == ["small", "gpu*", "empty"]


def test_without_a_controller_the_library_says_so(tmp_path: Path) -> None:
    done = run("sinfo", socket=tmp_path / "nobody")
    assert done.returncode == 1
    assert done.stderr.startswith("slurm_load_partitions: Unable to contact slurm controller (connect failure)\n")


def test_options_that_are_not_there_are_refused_by_name(cluster: Served) -> None:
    assert cluster.run("sinfo", "--json").stderr == "sinfo: error: --json is not supported by this release of Muster\n"
    assert cluster.run("sinfo", "-Z").stderr.startswith("sinfo: invalid option -- 'Z'\n")
    assert cluster.out("sinfo", "-T") == "No reservations in the system\n"

"""sdiag against a served state: the text with Slurm's labels, JSON, sorting, and who may reset."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctld.core.apply.indexes import put
from ctld.core.model import Allocation, NodeShare
from muster.states import JobState
from tests.builders import NOON, a_job, a_state
from tests.served import Served, StandingClock, run, served


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Served]:
    state = a_state()
    alloc = Allocation("main", (NodeShare(0, 4, (0, 3)),))
    running = a_job(1, state=int(JobState.RUNNING), started_at=NOON, alloc=alloc)
    for job in (running, a_job(2), a_job(3, array=(0, 9))):
        put(state, None, job)
    clock = StandingClock(NOON)
    with served(state, tmp_path, clock=clock) as serving:
        clock.at = NOON + 120  # type: ignore[assignment]
        yield serving


TEXT = """\
*******************************************************
sdiag output at Sun Jun 15 15:08:40 2025 (1750000120)
Data since      Sun Jun 15 15:06:40 2025 (1750000000)
*******************************************************
Server thread count:  1
RPC queue enabled:    0
Agent queue size:     0
Agent count:          0
Agent thread count:   0
DBD Agent queue size: 3

Jobs submitted: 0
Jobs started:   0
Jobs completed: 0
Jobs canceled:  0
Jobs failed:    0

Job states ts:  Sun Jun 15 15:08:40 2025 (1750000120)
Jobs pending:   11
Jobs running:   1

Main schedule statistics (microseconds):
\tLast cycle:   0
\tMax cycle:    0
\tTotal cycles: 0
\tMean cycle:   0
\tMean depth cycle:  0
\tCycles per minute: 0
\tLast queue length: 0

Main scheduler exit:
\tEnd of job queue: 0
\tHit default_queue_depth: 0
\tHit sched_max_job_start: 0
\tBlocked on licenses: 0
\tHit max_rpc_cnt: 0
\tTimeout (max_sched_time): 0

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 0
\tTotal backfilled jobs (since last stats cycle start): 0
\tTotal backfilled heterogeneous job components: 0
\tTotal cycles: 0
\tLast cycle when: N/A
\tLast cycle: 0
\tMax cycle:  0
\tLast depth cycle: 0
\tLast depth cycle (try sched): 0
\tLast queue length: 0
\tLast table size: 0

Backfill exit
\tEnd of job queue: 0
\tHit bf_max_job_start: 0
\tHit bf_max_job_test: 0
\tSystem state changed: 0
\tHit table size limit (bf_node_space_size): 0
\tTimeout (bf_max_time): 0

Latency for 1000 calls to gettimeofday(): N microseconds

Remote Procedure Call statistics by message type
\tREQUEST_PARTITION_INFO                  ( 2009) count:1      ave_time:N      total_time:N

Remote Procedure Call statistics by user
\tUSER count:1      ave_time:N      total_time:N

Pending RPC statistics
\tNo pending RPCs
"""


def test_the_text_has_slurms_labels(cluster: Served) -> None:
    cluster.out("scontrol", "show", "partition")
    found = cluster.out("sdiag")
    found = re.sub(r"(\(\): |total_time:)\d+", r"\1N", found)
    found = re.sub(r"ave_time:\d+ *", "ave_time:N      ", found)
    user = re.search(r"\t\S+ +\( *(\d+)\) (?=count.*\n\nPending)", found)
    assert user is not None
    assert int(user[1]) == os.getuid()
    assert found.replace(user[0], "\tUSER ") == TEXT


def test_calls_are_sorted_as_asked(cluster: Served) -> None:
    for command in ("scontrol show node", "scontrol ping", "scontrol ping", "squeue -h", "squeue -h", "squeue -h"):
        cluster.out(*command.split())

    def order(*options: str) -> list[str]:
        text = cluster.out("sdiag", *options).partition("by message type\n")[2].partition("\n\n")[0]
        return [line.split()[0].removeprefix("REQUEST_") for line in text.splitlines()]

    def times(position: int, option: str) -> list[int]:
        text = cluster.out("sdiag", option).partition("by message type\n")[2].partition("\n\n")[0]
        return [int(re.findall(r"_time:(\d+)", line)[position]) for line in text.splitlines()]

    assert order()[:2] == ["JOB_INFO", "PING"]
    assert [name for name in order("-i") if name != "STATS_INFO"] == ["PING", "JOB_INFO", "NODE_INFO"]
    for position, option in ((1, "-t"), (0, "-T")):
        found = times(position, option)
        assert found == sorted(found, reverse=True)


def test_json_has_slurms_shape(cluster: Served) -> None:
    cluster.out("scontrol", "ping")
    found = json.loads(cluster.out("sdiag", "--json"))
    assert list(found) == ["statistics", "meta", "errors", "warnings"]
    statistics = found["statistics"]
    assert statistics["req_time"] == {"set": True, "infinite": False, "number": NOON + 120}
    assert (statistics["jobs_pending"], statistics["jobs_running"]) == (11, 1)
    assert statistics["dbd_agent_queue_size"] == 3
    [ping] = statistics["rpcs_by_message_type"]
    assert (ping["type_id"], ping["message_type"], ping["count"]) == (1008, "REQUEST_PING", 1)
    assert statistics["rpcs_by_user"][0]["user_id"] == os.getuid()
    assert found["meta"]["command"] == ["sdiag", "--json"]
    assert found["meta"]["slurm"]["cluster"] == "cluster"
    done = cluster.run("sdiag", "--json=list")
    assert (done.returncode, done.stdout) == (0, "data_parser/v0.0.45\n")
    done = cluster.run("sdiag", "--json=v0.0.1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("error: application/json output not supported by data_parser/v0.0.45\n")


def test_only_administrators_reset(cluster: Served) -> None:
    done = cluster.run("sdiag", "-r")
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr == "slurm_reset_statistics: Access/permission denied\n"


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        (["-x"], 1, ["sdiag: invalid option -- 'x'", 'Try "sdiag --help" for more information']),
        (["--yaml"], 1, ["sdiag: error: --yaml is not supported by this release of Muster, --json is"]),
        (["extra"], 1, ["sdiag: error: Unrecognized option: extra"]),
    ],
)
def test_wrong_questions_are_told(cluster: Served, words: list[str], code: int, lines: list[str]) -> None:
    done = cluster.run("sdiag", *words)
    assert (done.returncode, done.stderr.splitlines()) == (code, lines)


def test_it_tells_of_itself_and_speaks_to_one_cluster(cluster: Served) -> None:
    assert cluster.out("sdiag", "--usage").startswith("Usage: sdiag")
    assert "--sort-by-time2" in cluster.out("sdiag", "-h")
    assert cluster.out("sdiag", "-V").startswith("slurm 26.05")
    assert cluster.out("sdiag", "-a", "-M", "cluster").startswith("****")
    assert cluster.run("sdiag", "-M", "other").returncode == 1


def test_without_a_controller(tmp_path: Path) -> None:
    done = run("sdiag", socket=tmp_path / "none")
    assert done.returncode == 255
    assert done.stderr.startswith("slurm_get_statistics: Unable to contact slurm controller (connect failure)\n")

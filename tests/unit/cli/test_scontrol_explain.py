"""scontrol explain job, against a served state: the text, JSON, arrays, and jobs that do not wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ctld.core.apply.indexes import put
from ctld.core.model import Allocation, Job, NodeShare
from ctld.core.state import State
from ctld.sched.cycle import plan
from muster.ids import UnixTime
from muster.states import JobState
from tests.builders import NOON, a_job, a_state
from tests.placing import everywhere
from tests.served import Served, StandingClock, run, served

HOUR = 3600


def on(job: Job, *shares: NodeShare) -> Job:
    return replace(
        job, state=int(JobState.RUNNING), started_at=NOON, alloc=Allocation("main", shares), array_pending=()
    )


def a_cluster() -> State:
    state = a_state(2, cpus=8, memory_mib=8000, gpus=0)
    jobs = [
        on(a_job(1, limit_seconds=HOUR), NodeShare(0, 8, (0, 7), 8000)),
        on(a_job(2), NodeShare(1, 6, (0, 5), 1000)),
        a_job(7, name="wide", nodes_min=2, nodes_max=2, memory_per_node_mib=4000, limit_seconds=HOUR),
        a_job(8, array=(0, 9), array_limit=3, memory_per_node_mib=8000, priority=5, limit_seconds=HOUR),
        replace(a_job(9, hold="user", priority=0), eligible_at=UnixTime(0)),
        replace(on(a_job(10), NodeShare(1, 1, (7, 7))), state=int(JobState.FAILED), ended_at=UnixTime(NOON + 60)),
    ]
    for job in jobs:
        put(state, None, job)
    return state


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    state = a_cluster()
    overlay = plan(state, NOON, reachable=everywhere(state))
    folder = tmp_path_factory.mktemp("explain")
    with served(state, folder, overlay=overlay, clock=StandingClock(UnixTime(NOON + 90))) as serving:
        yield serving


TEXT = """\
Job 7 (wide) of ada: PENDING, Resources
  2 nodes with 1 CPUs, 4000 MiB each are needed: of 2 that could serve 1 are left with 4000 MiB of memory free; \
7000 on the one that has most

Planned start: 2025-06-15T16:06:40 on n[1-2]
Priority:      100
Waited:        00:01:30
  hold         ok    it is not held

Partition main: place 1 of 2
  partition    ok    partition main is UP
  nodes        waits 2 nodes with 1 CPUs, 4000 MiB each are needed: of 2 that could serve 1 are left with 4000 MiB \
of memory free; 7000 on the one that has most
  Nodes (2 needed):
        2 in the cluster
        2 in partition main
        2 that answer and are not down or drained
        2 that can give 1 CPUs, 4000 MiB when they are empty
        1 with 4000 MiB of memory free; 7000 on the one that has most
        1 with 1 CPUs free; 2 on the one that has most

What it needs is held by
  job 1 of ada: RUNNING on n1 until 2025-06-15T16:06:40 at the latest
"""


def test_the_text_goes_from_the_reason_to_the_numbers(cluster: Served) -> None:
    assert cluster.out("scontrol", "explain", "job", "7") == TEXT
    assert cluster.out("scontrol", "expl", "job=7") == TEXT
    assert cluster.out("scontrol", "-M", "cluster", "explain", "jobid", "7") == TEXT


def test_json_has_the_same_numbers(cluster: Served) -> None:
    found = json.loads(cluster.out("scontrol", "explain", "job", "7", "--json"))
    assert list(found) == ["explanations", "meta", "errors", "warnings"]
    [one] = found["explanations"]
    assert (one["job_id"], one["reason"], one["start_at"], one["nodes"]) == (7, "Resources", NOON + HOUR, "n[1-2]")
    [partition] = one["partitions"]
    assert partition["filters"][4] == {
        "name": "memory",
        "nodes": 1,
        "sentence": "with 4000 MiB of memory free; 7000 on the one that has most",
        "asked": 4000,
        "most": 7000,
    }
    assert (partition["place"], partition["waiting"], partition["nodes_needed"]) == (1, 2, 2)
    [blocker] = one["blockers"]
    assert (blocker["id"], blocker["nodes"], blocker["ends_at"], one["blocking"]) == (1, "n1", NOON + HOUR, 1)
    assert found["meta"]["command"] == ["scontrol", "explain", "job", "7", "--json"]


def test_the_rest_of_an_array_is_explained_once(cluster: Served) -> None:
    text = cluster.out("scontrol", "explain", "job", "8")
    assert text.startswith(
        "Job 8_[0-9%3] (job) of ada: PENDING, Priority\n  1 of 2 jobs stand before it in partition main"
    )
    assert "  array        ok    0 of at most 3 members of its array run (ArrayTaskThrottle)\n" in text
    assert "  job 2 of ada: RUNNING on n2 without a time limit\n" in text
    assert "  job 7 of ada: waits, and is promised n[1-2] from 2025-06-15T16:06:40 on\n" in text
    assert cluster.out("scontrol", "explain", "job", "8_4").startswith("Job 8_[4%3] (job) of ada: PENDING, Priority\n")


def test_a_held_job_is_looked_at_all_the_same(cluster: Served) -> None:
    text = cluster.out("scontrol", "explain", "job", "9")
    assert text.startswith(
        "Job 9 (job) of ada: PENDING, JobHeldUser\n"
        "  its priority is 0: it was held by its owner; `scontrol release 9` lets it go\n"
        "\nPlanned start: not known yet\nPriority:      0\nWaited:        not counted: it could not start yet\n"
    )
    assert "Partition main: not in line\n" in text


def test_jobs_that_do_not_wait_say_what_they_do(cluster: Served) -> None:
    assert cluster.out("scontrol", "explain", "job", "1") == (
        "Job 1 (job) of ada: RUNNING\n  it does not wait: it is RUNNING on n1 in partition main, started by Main\n"
    )
    assert cluster.out("scontrol", "explain", "job", "10") == (
        "Job 10 (job) of ada: FAILED\n  it does not wait: it ended FAILED after 60 seconds\n"
    )


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["explain"], ["too few arguments for keyword:explain"]),
        (["explain", "job", "7", "8"], ["too many arguments for keyword:explain"]),
        (["explain", "node", "n1"], ["invalid entity:node for keyword:explain", "it is: scontrol explain job ID"]),
        (["explain", "job"], ["invalid entity:job for keyword:explain", "it is: scontrol explain job ID"]),
        (["explain", "job", "abc"], ["scontrol: error: Invalid job id: abc"]),
        (["explain", "job", "7,8"], ["scontrol: error: Invalid job id: 7,8"]),
        (["explain", "job", "999"], ["slurm_load_jobs error: Invalid job id specified"]),
        (["--json", "show", "job", "7"], ["scontrol: error: --json is not supported by this release of Muster"]),
    ],
)
def test_wrong_questions_are_told(cluster: Served, words: list[str], lines: list[str]) -> None:
    done = cluster.run("scontrol", *words)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (1, "", lines)


def test_asking_changes_nothing(cluster: Served) -> None:
    before = cluster.out("squeue", "-a")
    version = cluster.state.queue.version
    for number in ("7", "8", "9"):
        cluster.out("scontrol", "explain", "job", number)
    assert (cluster.out("squeue", "-a"), cluster.state.queue.version) == (before, version)


def test_without_a_controller(tmp_path: Path) -> None:
    done = run("scontrol", "explain", "job", "1", socket=tmp_path / "none")
    assert done.returncode == 1
    assert done.stderr.startswith("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")

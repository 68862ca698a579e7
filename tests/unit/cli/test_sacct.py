"""sacct against a served history: layouts byte for byte, the question it asks, errors and exit codes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctld.services.door import Call, Right, Route
from ctld.services.followers import FollowersService
from ctld.services.history import Entry, Head, History
from muster.auth import create_authority, issue
from muster.ids import BATCH_STEP, EXTERN_STEP
from muster.records import HistoryFilter, RunRecord, StepRecord
from tests.serving import Ran, Served, serving
from tests.unit.dbd.outcomes import NOON, a_run, a_step

UTC = {"TZ": "UTC"}
MINUTE = 60


class Answers:
    """A history route that answers what the test says, and notes what it was asked."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.entries: list[Entry] = []
        self.head = Head("here", NOON + 600, 0, 0, "")
        self.asked = HistoryFilter()
        served.door.add([Route("POST", "/v1/history", Right.ANYONE, "history", self.answer)])

    async def answer(self, call: Call) -> bytes:
        self.asked = call.json(HistoryFilter)
        jobs = b",".join(msgspec.json.encode(entry) for entry in self.entries)
        return msgspec.json.encode(self.head)[:-1] + b',"jobs":[' + jobs + b"]}"

    def holds(self, run: RunRecord, *steps: StepRecord) -> None:
        self.entries.append(Entry(run, steps))

    def run(self, *words: str, **environment: str) -> Ran:
        return self.served.run("sacct", *words, env={**UTC, **environment})

    def out(self, *words: str, **environment: str) -> str:
        ran = self.run(*words, **environment)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.out


@pytest.fixture
def history(tmp_path: Path) -> Iterator[Answers]:
    with serving(tmp_path) as served:
        yield Answers(served)


def the_reference(history: Answers) -> None:
    """One job of each kind of end, in no order."""
    one: dict[str, Any] = {"allocated_cpus": 1, "allocated_nodes": 1}
    history.holds(
        a_run(1030, name="trainarr", array_job_id=1020, array_tasks="5-9%2", state="PENDING", ended_at=0,
              started_at=0, nodelist="", submitted_at=NOON + 20, allocated_tres={}),
    )  # fmt: skip
    history.holds(
        a_run(1018, state="FAILED", exit_status=3 << 8, submitted_at=NOON, **one),
        a_step(1018, 0, state="FAILED", exit_status=7 << 8),
        a_step(1018, state="FAILED", exit_status=3 << 8),
    )
    history.holds(a_run(1019, state="CANCELLED", cancelled_by=1000, submitted_at=NOON + 10, **one))


def test_the_default_layout_is_that_of_the_reference(history: Answers) -> None:
    the_reference(history)
    assert history.out() == (
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "1018              train        gpu    physics          1     FAILED      3:0 \n"
        "1018.batch        batch               physics          1     FAILED      3:0 \n"
        "1018.0               sh               physics          1     FAILED      7:0 \n"
        "1019              train        gpu    physics          1 CANCELLED+      0:0 \n"
        "1020_[5-9%2]   trainarr        gpu    physics          0    PENDING      0:0 \n"
    )


def test_no_header_and_brief(history: Answers) -> None:
    the_reference(history)
    assert history.out("-nb", "-j", "1019") == "1019         CANCELLED+      0:0 \n"


def test_parsable_has_canonical_names_and_no_dashes(history: Answers) -> None:
    the_reference(history)
    wanted = "JobID|State|JobIDRaw\n1019|CANCELLED by 1000|1019\n"
    words = ["-j", "1019", "-o", "jobid,STATE", "-o", "jobidr"]
    assert history.out("-P", *words) == wanted
    assert history.out("-P", "-p", *words) == wanted.replace("\n", "|\n")
    assert history.out("-Pn", "--delimiter=; ", *words) == "1019; CANCELLED by 1000; 1019\n"


def test_widths_turn_and_cut(history: Answers) -> None:
    the_reference(history)
    out = history.out("-j", "1019", "-o", "jobid%6,state%-12,state%-30,jobname%3,jobid%0")
    assert out == (
        " JobID State        State                          Job JobID        \n"
        "------ ------------ ------------------------------ --- ------------ \n"
        "  1019 CANCELLED b+ CANCELLED by 1000              tr+ 1019         \n"
    )


def test_a_step_selects_only_its_row(history: Answers) -> None:
    the_reference(history)
    assert history.out("-nPj", "1018.batch,1018.0", "-o", "jobid") == "1018.batch\n1018.0\n"
    assert history.out("-nPj", "1018.0,1018", "-o", "jobid") == "1018\n1018.batch\n1018.0\n"


def test_steps_stand_in_order_and_leave_the_fields_of_jobs_empty(history: Answers) -> None:
    history.holds(
        a_run(5, priority=7, requested_memory_mib=2048),
        a_step(5, 1),
        a_step(5, 0),
        a_step(5, int(EXTERN_STEP)),
        a_step(5, int(BATCH_STEP)),
    )
    fields = "jobid,user,uid,gid,group,partition,qos,timelimit,reqmem,reqtres,derivedexitcode,reason,priority,restarts"
    assert history.out("-nP", "-o", fields).splitlines() == [
        "5|ada|1000|1000|ada|gpu|normal|UNLIMITED|2G||0:0|None|7|0",
        *(f"5.{step}|||||||||||||" for step in ("batch", "extern", "0", "1")),
    ]


def test_arrays_show_their_tasks_before_the_rest_and_expand(history: Answers) -> None:
    common: dict[str, Any] = {"array_job_id": 100, "submitted_at": NOON}
    history.holds(a_run(100, array_tasks="4-6%2", state="PENDING", ended_at=0, started_at=0, nodelist="", **common))
    history.holds(a_run(102, array_task_id=3, **common), a_step(102))
    history.holds(a_run(101, array_task_id=0, **common))
    assert history.out("-nPo", "jobid,jobidraw,nodelist").splitlines() == [
        "100_0|101|n1",
        "100_3|102|n1",
        "100_3.batch|102.batch|n1",
        "100_[4-6%2]|100|None assigned",
    ]
    assert history.out("-nP", "--array", "-Xo", "jobid,jobidraw").splitlines()[-3:] == [
        "100_4|100",
        "100_5|100",
        "100_6|100",
    ]


TIMES = "start,end,elapsed,elapsedraw,cputime,cputimeraw,planned,nodelist,alloccpus,exitcode"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (
            {"state": "COMPLETED", "allocated_cpus": 4, "started_at": NOON, "ended_at": NOON + 90_061},
            "2025-06-15T15:06:40|2025-06-16T16:07:41|1-01:01:01|90061|4-04:04:04|360244|00:00:10|n1|4|0:0",
        ),
        (
            {"state": "RUNNING", "allocated_cpus": 2, "started_at": NOON, "ended_at": 0},
            "2025-06-15T15:06:40|Unknown|00:10:00|600|00:20:00|1200|00:00:10|n1|2|0:0",
        ),
        (
            {"state": "PENDING", "started_at": 0, "ended_at": 0, "nodelist": ""},
            "Unknown|Unknown|00:00:00|0|00:00:00|0|00:10:10|None assigned|0|0:0",
        ),
        (
            {"state": "CANCELLED", "started_at": 0, "ended_at": NOON, "nodelist": "", "exit_status": 0},
            "None|2025-06-15T15:06:40|00:00:00|0|00:00:00|0|00:00:10|None assigned|0|0:0",
        ),
        (
            {"state": "OUT_OF_MEMORY", "started_at": NOON, "ended_at": NOON + 1, "exit_status": 125},
            "2025-06-15T15:06:40|2025-06-15T15:06:41|00:00:01|1|00:00:00|0|00:00:10|n1|0|0:125",
        ),
    ],
)
def test_times_of_each_kind_of_run(history: Answers, fields: dict[str, Any], wanted: str) -> None:
    history.holds(a_run(5, submitted_at=NOON - 10, eligible_at=NOON - 10, **fields))
    assert history.out("-nP", "-o", TIMES) == wanted + "\n"


def test_truncate_clips_to_the_window_and_a_running_job_ends_now(history: Answers) -> None:
    history.holds(a_run(5, state="RUNNING", started_at=NOON, ended_at=0))
    window = ["-S", f"uts{NOON + 60}", "-E", f"uts{NOON + 120}"]
    assert history.out("-nP", "-o", "start,end,elapsed", *window) == "2025-06-15T15:06:40|Unknown|00:10:00\n"
    assert history.out("-nPT", "-o", "start,end,elapsed", *window) == (
        "2025-06-15T15:07:40|2025-06-15T15:08:40|00:01:00\n"
    )
    out = history.out("-nPT", "-o", "end,elapsed", "-S", f"uts{NOON}")
    assert out == "2025-06-15T15:16:40|00:10:00\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], "|4G|||billing=4,cpu=4,gres/gpu=4,mem=2G,node=1\n13344K|||13344K|mem=2G\n"),
        (["--units=M"], "|4096M|||billing=4,cpu=4,gres/gpu=4,mem=2048M,node=1\n13.03M|||13.03M|mem=2048M\n"),
        (["-U", "g"], "|4G|||billing=4,cpu=4,gres/gpu=4,mem=2G,node=1\n0.01G|||0.01G|mem=2G\n"),
        (["--noconvert"], "|4096M|||billing=4,cpu=4,gres/gpu=4,mem=2048M,node=1\n13664256|||13664256|mem=2048M\n"),
    ],
)
def test_sizes_in_their_units(history: Answers, words: list[str], wanted: str) -> None:
    step = a_step(5, 0, max_rss_bytes=13_664_256, max_rss_node="n1", allocated_tres={"mem": 2048})
    history.holds(a_run(5, requested_memory_mib=4096), step)
    assert history.out("-nP", "-o", "maxrss,reqmem,maxdiskread,averss,alloctres", *words) == wanted


def test_measured_usage(history: Answers) -> None:
    history.holds(
        a_run(5),
        a_step(5, 0, user_ms=1_000, system_ms=234, max_rss_bytes=1_740_800, max_rss_node="n2", max_rss_task=3),
        a_step(5, 1, user_ms=22_000, system_ms=0, tasks=2),
    )
    fields = "jobid,totalcpu,usercpu,systemcpu,avecpu,maxrss,maxrssnode,maxrsstask,tresusageinmax,tresusageintot,ntasks"
    assert history.out("-nPo", fields).splitlines() == [
        "5|00:23.234|00:00:23|00:00.234|||||||",
        "5.0|00:01.234|00:00:01|00:00.234|00:00:01|1700K|n2|3|cpu=00:00:01,mem=1700K|cpu=00:00:01,mem=1700K|1",
        "5.1|00:00:22|00:00:22|00:00:00|00:00:11|||||cpu=00:00:22|2",
    ]


def test_steps_of_a_lost_node_have_no_exit_code(history: Answers) -> None:
    history.holds(
        a_run(5, state="NODE_FAIL", exit_status=256, failed_node="n7"), a_step(5, state="CANCELLED", exit_status=0)
    )
    assert history.out("-nPo", "state,exitcode,failednode") == "NODE_FAIL|1:0|n7\nCANCELLED||\n"


def test_every_field_prints(history: Answers) -> None:
    the_reference(history)
    lines = history.out("-Po", "ALL").splitlines()
    assert lines[0].startswith("Account|AdminComment|AllocCPUS")
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert len(lines) == 6
    assert history.out("-l").count("\n") == 7


def test_the_environment_names_fields_and_the_form_of_times(history: Answers) -> None:
    the_reference(history)
    out = history.out("-nP", "-j1019", SACCT_FORMAT="jobid,start", SLURM_TIME_FORMAT="%Y/%m")
    assert out == "1019|2025/06\n"
    assert history.out("-nPb", "-j1019", SACCT_FORMAT="user") == "1019|CANCELLED by 1000|0:0\n"


# ---- the question --------------------------------------------------------------------------------------


def test_asks_with_every_filter(history: Answers) -> None:
    history.out(
        "-u", "root,4711", "-A", "a,b", "-A", "c", "-r", "gpu", "-q", "high", "--name", "x,y", "-N", "n[1-3,5],m1",
        "-DX", "-s", "cd,Failed", "-S", f"uts{NOON}", "-E", f"uts{NOON + 5}", "-j", "5,100_3", "-j", "6.batch",
    )  # fmt: skip
    asked = history.asked
    assert asked.users == (0, 4711)
    assert (asked.accounts, asked.partitions, asked.qos, asked.names) == (
        ("a", "b", "c"),
        ("gpu",),
        ("high",),
        ("x", "y"),
    )
    assert (asked.nodelist, asked.states) == ("n[1-3,5],m1", ("COMPLETED", "FAILED"))
    assert (asked.start, asked.end) == (NOON, NOON + 5)
    assert [(one.job_id, one.task_id, one.step_id) for one in asked.jobs] == [
        (5, -1, -1),
        (100, 3, -1),
        (6, -1, 0xFFFFFFFB),
    ]
    assert (asked.duplicates, asked.allocations_only, asked.own) == (True, True, False)


def test_asks_for_ones_own_jobs_unless_told_otherwise(history: Answers) -> None:
    history.out()
    assert history.asked.own
    for words in (["-a"], ["-j", "5"], ["-N", "n1"], ["-u", "root"]):
        history.out(*words)
        assert not history.asked.own, words


def test_the_window_follows_the_rules_of_the_reference(history: Answers) -> None:
    def window(*words: str) -> tuple[int, int]:
        history.out(*words)
        return history.asked.start, history.asked.end

    now = int(time.time())
    midnight = now - now % 86_400
    assert window() in ((midnight, 0), (midnight + 86_400, 0))
    assert window("-j5") == (0, 0)
    assert window("-j5", "-scd") == (0, 0)
    start, end = window("-s", "r")
    assert 0 <= start - now <= 60
    assert end == 0
    assert window("-S", f"uts{NOON}") == (NOON, 0)
    assert window("-S", f"uts{NOON}", "-s", "cd") == (NOON, NOON)
    assert window("-S", f"uts{NOON}", "-E", f"uts{NOON + 9}", "-s", "cd") == (NOON, NOON + 9)


# ---- errors and ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-o", "jobid,nope"], ['sacct: error: Invalid field requested: "nope"']),
        (["-s", "xyz"], ["sacct: fatal: unrecognized job state value 'xyz'"]),
        (["-u", "no-such-user"], ["sacct: error: Invalid user id: no-such-user"]),
        (["-S", "foo"], ["Invalid time specification (pos=0): foo"]),
        (["foo"], ["sacct: error: Unknown arguments:", "sacct: error:  foo"]),
        (["-j", "abc"], ["sacct: fatal: Bad job/step specified: abc"]),
        (
            ["-j", "100_[1-2]"],
            ["sacct: fatal: Bad job/step specified: 100_[1-2]: JobID includes unexpected non-numeric characters"],
        ),
        (
            ["-j", "5.x"],
            ["sacct: fatal: Bad job/step specified: 5.x: StepID includes unexpected non-numeric characters"],
        ),
        (["-Z"], ["sacct: invalid option -- 'Z'"]),
        (["--json"], ["sacct: error: --json is not supported by this release of Muster"]),
        (
            ["-S", "2026-01-02", "-E", "2026-01-01"],
            ["sacct: error: Start time (2026-01-02T00:00:00) requested is after end time (2026-01-01T00:00:00)."],
        ),
        (["--units=X"], ["sacct: fatal: Invalid --units argument: X (it is one of K, M, G, T and P)"]),
    ],
)
def test_refuses_in_the_words_of_the_reference(history: Answers, words: list[str], lines: list[str]) -> None:
    ran = history.run(*words)
    assert (ran.code, ran.out, ran.lines) == (1, "", lines)


def test_nothing_that_matches_is_a_header_and_exit_code_0(history: Answers) -> None:
    assert history.out("-j", "4711").count("\n") == 2
    assert history.out("-nj", "4711") == ""
    the_reference(history)
    assert history.out("-nM", "elsewhere") == ""
    assert history.out("-nXM", "here").count("\n") > 2


def test_says_when_there_is_no_controller(tmp_path: Path, history: Answers) -> None:
    ran = history.run(MUSTER_SOCKET=str(tmp_path / "none"), MUSTER_PATIENCE="0")
    assert ran.code == 1
    assert ran.lines[0] == "sacct: error: Unable to contact slurm controller (connect failure)"


def test_tells_fields_version_and_help(history: Answers) -> None:
    fields = history.out("-e").splitlines()
    assert fields[0] == "Account             AdminComment        AllocCPUS           AllocNodes         "
    assert history.out("-V").startswith("slurm 26.05.0 (muster ")
    assert "--allocations" in history.out("--help")
    assert history.out("--usage").startswith("Usage: sacct")


def test_while_accounting_is_away_it_prints_what_the_controller_has_and_warns(tmp_path: Path) -> None:
    create_authority(tmp_path / "certs")
    identity = issue(tmp_path / "certs", "controller", "ctld")
    with serving(tmp_path) as served:

        def begin() -> asyncio.Task[None]:
            followers = FollowersService(served.store, "here")
            history = History(served.store, followers, identity, "127.0.0.1:1", served.clock)
            served.door.add(history.routes())
            return asyncio.get_running_loop().create_task(history.run())

        task = served.do(begin)
        ran = served.run("sacct", "-a", env=UTC)
        assert ran.code == 0
        assert ran.out.splitlines()[0].startswith("JobID ")
        assert ran.err.startswith("sacct: warning: accounting is away since 2")
        assert "may be missing" in ran.err
        served.do(task.cancel)


def test_says_that_accounting_is_off(tmp_path: Path) -> None:
    create_authority(tmp_path / "certs")
    identity = issue(tmp_path / "certs", "controller", "ctld")
    with serving(tmp_path) as served:

        def begin() -> None:
            followers = FollowersService(served.store, "here", expected=False)
            served.door.add(History(served.store, followers, identity, "", served.clock).routes())

        served.do(begin)
        assert served.run("sacct") == (1, "", "Slurm accounting storage is disabled\n")

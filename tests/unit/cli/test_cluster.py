"""The cluster of one folder: how it is made, which process is whose, and how daemons are stopped."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import cluster as clusters
from cli import doctor
from cli.cluster import Cluster, Plan
from muster.config.load import load
from muster.errors import InvalidInput, Refused, Unavailable

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
GENTLE = "import time; print(flush=True); time.sleep(60)"


class Staged(Cluster):
    """A cluster whose daemons are small programs of the test."""

    programs: dict[str, str]

    def command(self, daemon: str, plan: Plan) -> list[str]:
        return [sys.executable, "-c", self.programs[daemon]]


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    made = Staged(tmp_path / "c")
    made.programs = {"ctld": GENTLE, "dbd": GENTLE, "node1": STUBBORN}
    yield made
    for daemon in ("ctld", "dbd", "node1"):
        pid = made.pid(daemon)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def running(made: Staged, daemon: str, plan: Plan) -> int:
    """Start a daemon and return once it is in its sleep."""
    pid = made.start(daemon, plan)
    while not made.log(daemon).read_bytes():
        assert made.pid(daemon)
    return pid


def test_a_cluster_is_made_once(tmp_path: Path) -> None:
    made = Cluster(tmp_path / "c")
    assert made.plan() is None
    plan = made.make(Plan(nodes=3, cpus=8, memory_mib=1000, gpus="h100:2"))
    assert made.make(Plan(nodes=9)) == plan == Cluster(tmp_path / "c").plan()
    config = load(made.config)
    assert [(node.name, node.port) for node in config.nodes] == [
        (name, plan.ports[name]) for name in ("node1", "node2", "node3")
    ]
    assert (config.nodes[0].cpus, config.nodes[0].real_memory_mib) == (8, 1000)
    assert {path.name for path in (made.folder / "certs").glob("*.crt")} == {
        "ca.crt", "controller-ctld.crt", "accounting-dbd.crt", "compute-node1.crt", "compute-node2.crt",
        "compute-node3.crt",
    }  # fmt: skip
    assert not (made.folder / "cluster.json.new").exists()


def test_a_folder_with_blanks_gives_a_configuration_that_is_read_back(tmp_path: Path) -> None:
    made = Cluster(tmp_path / "my c")
    made.make(Plan(nodes=2, cpus=8, memory_mib=1000, gpus=""))
    read = load(made.config)
    assert (read.state_dir, read.spool_dir) == (f"{made.folder}/state", f"{made.folder}/spool/%n")


@pytest.mark.parametrize("name", ['a"b', "a#b", "a%n", "a?b", "a\\b", "a\nb"])
def test_a_folder_whose_name_the_configuration_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="in its name") as caught:
        Cluster(tmp_path / name)
    assert "\n" not in caught.value.sentence


def test_a_folder_that_cannot_be_made_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot write in the folder .*file/c"):
        Cluster(tmp_path / "file" / "c").up(Plan(nodes=1), lambda line: None)


def test_certificates_that_were_removed_are_made_again(tmp_path: Path) -> None:
    made = Cluster(tmp_path / "c")
    plan = made.make(Plan(nodes=1))
    shutil.rmtree(made.folder / "certs")
    assert [check.fault for check in doctor._certificates(made, plan)] == [True] * 3
    made.make(plan)
    assert [check.fault for check in doctor._certificates(made, plan)] == [False]


def test_ports_are_free_in_a_row_and_below_the_ephemeral_ones() -> None:
    names = ["ctld", "dbd", *(f"node{number}" for number in range(1, 9))]
    ports = clusters._free_ports(names)
    first = ports["ctld"]
    assert [ports[name] for name in names] == list(range(first, first + 10))
    assert first >= 20_000
    assert first + 10 < 32_000
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports["node3"]))
        assert ports["node3"] not in clusters._free_ports(names).values()


def test_a_folder_with_too_long_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="too long a name"):
        Cluster(tmp_path / ("ü" * 50))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"colour": "red"}', "5"])
def test_a_damaged_plan_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"cluster\.json is not what `muster up` wrote"):
        Cluster(tmp_path).plan()


def test_a_daemon_is_started_once(staged: Staged) -> None:
    plan = staged.make(Plan(nodes=1))
    pid = staged.start("ctld", plan)
    assert staged.start("ctld", plan) == pid == staged.pid("ctld")
    assert staged.stop("ctld")
    assert staged.pid("ctld") == 0
    assert staged.stop("ctld"), "what does not run is stopped"


def test_a_pid_of_another_process_does_not_count(staged: Staged) -> None:
    plan = staged.make(Plan(nodes=1))
    (staged.folder / "run" / "ctld.pid").write_text(f"{os.getpid()} 12345\n")
    assert staged.pid("ctld") == 0
    # Nor is it signalled: this test would not go on.
    assert staged.stop("ctld")
    pid = staged.start("ctld", plan)
    assert staged.pid("ctld") == pid != os.getpid()


@pytest.mark.parametrize("text", ["", "garbage", "12", "x y", "999999999 5", "1 0"])
def test_a_pid_file_that_says_nothing_counts_as_none(staged: Staged, text: str) -> None:
    staged.make(Plan(nodes=1))
    (staged.folder / "run" / "ctld.pid").write_text(text)
    assert staged.pid("ctld") == 0


def test_a_dead_process_that_nobody_waited_for_does_not_run(staged: Staged) -> None:
    plan = staged.make(Plan(nodes=1))
    pid = running(staged, "ctld", plan)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert staged.pid("ctld") == 0
    os.waitpid(pid, 0)


def test_a_daemon_that_does_not_stop_is_killed_and_gone(staged: Staged) -> None:
    plan = staged.make(Plan(nodes=1))
    pid = running(staged, "node1", plan)
    assert not staged.stop("node1", seconds=0.1)
    assert staged.pid("node1") == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_daemon_sees_nothing_of_the_jobs_environment(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("MUSTER_SOCKET", "/x")
    monkeypatch.setenv("MUSTER_HOME", str(staged.folder))
    staged.programs["ctld"] = (
        "import os, time; print([n for n in os.environ if n.startswith(('SLURM', 'MUSTER'))], flush=True)\n"
        "time.sleep(60)"
    )
    running(staged, "ctld", staged.make(Plan(nodes=1)))
    assert staged.log("ctld").read_text() == "['MUSTER_HOME']\n"


def test_a_daemon_that_ends_while_it_starts_is_said_with_its_last_line(staged: Staged) -> None:
    staged.programs["ctld"] = "import sys; print('ctld: error: wrong file'); sys.exit(1)"
    with pytest.raises(Unavailable, match="ctld ended while it was starting: ctld: error: wrong file") as caught:
        staged.up(Plan(nodes=1), lambda line: None)
    assert str(staged.log("ctld")) in caught.value.hint
    os.waitpid(-1, os.WNOHANG)


def test_two_of_up_and_down_keep_each_other_out(staged: Staged) -> None:
    staged.make(Plan(nodes=1))
    with (staged.folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="is at work"):
            staged.up(Plan(), lambda line: None)
        with pytest.raises(Refused, match="is at work"):
            staged.down(lambda line: None)


def test_down_stops_everything_and_says_what_had_to_be_killed(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = staged.make(Plan(nodes=1))
    staged.programs["node1"] = GENTLE
    for daemon in ("ctld", "dbd", "node1"):
        running(staged, daemon, plan)
    said: list[str] = []
    staged.down(said.append)
    assert said[0].startswith("jobs cannot be cancelled: cannot reach")
    assert said[1:] == ["node1: stopped", "dbd: stopped", "ctld: stopped"]
    assert [staged.pid(daemon) for daemon in ("ctld", "dbd", "node1")] == [0, 0, 0]


def test_there_is_nothing_to_stop_where_no_cluster_is(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no cluster"):
        Cluster(tmp_path).down(lambda line: None)


def test_the_doctor_names_each_key_that_others_can_read(tmp_path: Path) -> None:
    made = Cluster(tmp_path / "c")
    plan = made.make(Plan(nodes=1))
    good = "certificates are there and their keys private"
    assert [check.what for check in doctor._certificates(made, plan)] == [good]
    key = made.folder / "certs" / "compute-node1.key"
    key.chmod(0o644)
    (made.folder / "certs" / "accounting-dbd.crt").write_text("garbage")
    found = list(doctor._certificates(made, plan))
    assert all(check.fault and check.cure for check in found)
    assert [word for check in found for word in ("accounting-dbd.crt", f"{key} can be read") if word in check.what] == [
        "accounting-dbd.crt",
        f"{key} can be read",
    ]


def test_the_doctor_goes_on_without_a_cluster(tmp_path: Path) -> None:
    found = list(doctor.examine(Cluster(tmp_path / "none")))
    assert found[0].what.startswith("Python 3.")
    assert found[-1].fault
    assert "no cluster in" in found[-1].what


def test_the_doctor_names_daemons_that_do_not_run_and_a_configuration_that_is_wrong(tmp_path: Path) -> None:
    made = Cluster(tmp_path / "c")
    made.make(Plan(nodes=1))
    made.config.write_text(made.config.read_text() + "Colour=red\n")
    faults = {check.what: check.cure for check in doctor.examine(made) if check.fault}
    assert any("Colour" in what for what in faults)
    assert [name for name in ("ctld", "dbd", "node1") if f"{name} does not run" in faults] == ["ctld", "dbd", "node1"]


@pytest.mark.parametrize(("name", "cure"), [("node1", "`muster up` starts it"), ("node2", "--name node2")])
def test_the_doctor_tells_nodes_that_up_starts_from_others(tmp_path: Path, name: str, cure: str) -> None:
    node = {"name": name, "connected": False}
    (found,) = doctor._node(node, Cluster(tmp_path), Plan(nodes=1))
    assert found.fault
    assert cure in found.cure


def test_the_command_says_errors_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"colour": "red"}))
    done = subprocess.run(
        [sys.executable, "-m", "cli.muster", "status", "--dir", str(tmp_path)],
        cwd=clusters.SOURCE, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("muster: error: ")
    assert "Traceback" not in done.stderr

"""Ending runs and steps: what is told to them, what they may do against it, and that nothing of them is left."""

from __future__ import annotations

import os
import pwd
import re
import resource
import shutil
import signal
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from muster.v1 import node_pb2
from noded.cgroup import v2
from tests.fake_controller import BATCH, Agent, FakeController, eventually, world

World = tuple[FakeController, Callable[..., Agent]]
AT = 1_750_000_000
ESCAPES = {
    "setsid": "setsid sleep 1000 & echo $! > pid.new",
    "a double fork": "(setsid sh -c 'sleep 1000 & echo $! > pid.new' &) ; while [ ! -s pid.new ]; do sleep 0.01; done",
    "a stopped task": "sleep 1000 & echo $! > pid.new; kill -STOP $!",
    "a deaf task": "sh -c 'trap : TERM; echo $$ > pid.new; while :; do sleep 0.1; done' & while [ ! -s pid.new ]; do sleep 0.01; done",  # noqa: E501
}  # fmt: skip


def has_cgroups() -> bool:
    """Tell whether a tree of version 2 can be written here (without making anything)."""
    return os.geteuid() == 0 and any(
        os.access(f"{mount}/cgroup.procs", os.W_OK) and os.path.exists(f"{mount}/cgroup.controllers")
        for mount in v2.MOUNTS
    )


root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts as other users")
WITH_CGROUP = pytest.param(
    "auto",
    marks=[pytest.mark.cgroup, pytest.mark.skipif(not has_cgroups(), reason="needs a writable cgroup v2 tree")],
)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can pass through, as a spool's must be."""
    with tempfile.TemporaryDirectory(prefix="muster-test-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def alive(pid: int) -> bool:
    """Tell whether a process lives (one that has ended and was not waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("cgroup", ["off", WITH_CGROUP])
@pytest.mark.parametrize("what", ESCAPES)
@pytest.mark.parametrize("how", ["the script ends", "the run is ended"])
async def test_nothing_escapes(cluster: World, tmp_path: Path, what: str, how: str, cgroup: str) -> None:
    controller, make = cluster
    make("n1", "--cgroup", cgroup)
    last = "exit 0" if how == "the script ends" else "sleep 1000"
    text = f"#!/bin/bash\n{ESCAPES[what]}\nmv pid.new pid\n{last}\n"
    await controller.launch(controller.batch(1, text, tmp_path))
    await eventually((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    if how == "the run is ended":
        assert alive(pid)
        await controller.order(end_run=[node_pb2.EndRun(job_id=1, run=0, why="TIME LIMIT", at=AT)])
    ended = await controller.batch_result(1)
    assert ended.job_gone
    assert not alive(pid)
    if how == "the run is ended":
        await controller.until(lambda: (1, 0) in controller.gone)


async def test_a_job_that_stopped_its_supervisor_is_ended(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    text = "#!/bin/bash\nkill -STOP $PPID\necho $PPID > pid.new\nmv pid.new pid\nsleep 1000\n"
    await controller.launch(controller.batch(1, text, tmp_path))
    await eventually((tmp_path / "pid").exists)
    stat = f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat"
    await eventually(lambda: Path(stat).read_text().rpartition(")")[2].split()[0] == "T")
    await controller.order(end_run=[node_pb2.EndRun(job_id=1, run=0, why="TIME LIMIT", at=AT)])
    assert (await controller.batch_result(1)).job_gone


async def test_steps_that_an_agent_without_free_descriptors_cannot_watch_are_reported_later(
    cluster: World, tmp_path: Path
) -> None:
    controller, make = cluster
    agent = make()
    await controller.launch(controller.batch(1, "#!/bin/sh\n", tmp_path))
    await controller.batch_result(1)
    assert agent.process is not None
    most = len(os.listdir(f"/proc/{agent.process.pid}/fd")) + 6
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (most, most))
    text = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n"
    await controller.launch(*(controller.batch(number, text, tmp_path) for number in range(2, 14)))
    await eventually(lambda: "cannot be watched yet" in agent.log.read_text())
    (tmp_path / "go").touch()
    for number in range(2, 14):
        assert (await controller.batch_result(number)).job_gone


async def test_a_node_whose_spool_was_cleaned_runs_what_comes_then(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    await controller.launch(controller.batch(1, "#!/bin/sh\nexit 3\n", tmp_path))
    assert [one.status for one in (await controller.batch_result(1)).tasks] == [3 << 8]
    (steps,) = tmp_path.glob("**/steps")

    def cleaned() -> bool:
        # The agent removes the first step's folder meanwhile.
        shutil.rmtree(steps, ignore_errors=True)
        return not steps.exists()

    await eventually(cleaned)
    await controller.launch(controller.batch(2, "#!/bin/sh\nexit 4\n", tmp_path))
    assert [one.status for one in (await controller.batch_result(2)).tasks] == [4 << 8]


@pytest.mark.parametrize(
    ("why", "now", "cause"),
    [
        ("TIME LIMIT", False, "DUE TO TIME LIMIT"),
        ("SIGNAL", False, "DUE to SIGNAL Terminated"),
        ("SIGNAL", True, "DUE to SIGNAL Killed"),
        ("PREEMPTION", False, "DUE TO PREEMPTION"),
        ("JOB REQUEUE", False, "DUE TO JOB REQUEUE"),
        (
            "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
            True,
            "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
        ),
    ],
)
async def test_the_jobs_output_says_why(cluster: World, tmp_path: Path, why: str, now: bool, cause: str) -> None:
    controller, make = cluster
    make()
    await controller.launch(controller.batch(1, "#!/bin/sh\ntouch ready\nsleep 1000\n", tmp_path))
    await eventually((tmp_path / "ready").exists)
    order = node_pb2.EndRun(job_id=1, run=0, why=why, now=now, at=AT)
    await controller.order(end_run=[order, order])
    ended = await controller.batch_result(1)
    assert ended.tasks[0].status == (signal.SIGKILL if now else signal.SIGTERM)
    lines = (tmp_path / "slurm-1.out").read_text().splitlines()
    assert len([line for line in lines if "***" in line]) == 1
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
    assert re.fullmatch(
        rf"\[{stamp}\.\d{{3}}\] error: \*\*\* JOB 1 ON n1 CANCELLED AT {stamp} {cause} \*\*\*", lines[0]
    )


async def test_a_trapped_term_ends_the_job_with_its_own_code(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    text = "#!/bin/bash\ntrap 'exit 4' TERM\ntouch ready\nwhile :; do sleep 0.05; done\n"
    await controller.launch(controller.batch(1, text, tmp_path))
    await eventually((tmp_path / "ready").exists)
    await controller.order(end_run=[node_pb2.EndRun(job_id=1, run=0, why="TIME LIMIT", at=AT)])
    assert (await controller.batch_result(1)).tasks[0].status == 4 << 8


async def test_the_steps_end_before_the_batch_script_is_reported(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    os.mkfifo(tmp_path / "gate")
    await controller.launch(
        controller.batch(1, "#!/bin/sh\nread go < gate\nexit 0\n", tmp_path),
        controller.step(1, 0, ["sleep", "1000"], tmp_path, std_out="none", std_err="none"),
    )
    await controller.until(lambda: len(controller.began) == 2)
    descriptor = os.open(tmp_path / "gate", os.O_RDWR)
    os.write(descriptor, b"go\n")
    ended = await controller.batch_result(1)
    os.close(descriptor)
    assert ended.job_gone
    assert ended.tasks[0].status == 0
    order = [(message.job_id, message.step_id) for report in controller.reports for message in report.ended]
    assert order == [(1, 0), (1, BATCH)]
    assert controller.ended[1, 0, 0][0].tasks[0].status == signal.SIGKILL


async def test_ending_one_step_leaves_the_script(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    await controller.launch(
        controller.batch(1, "#!/bin/sh\nwhile [ ! -e stop ]; do sleep 0.02; done\nexit 6\n", tmp_path),
        controller.step(1, 0, ["sleep", "1000"], tmp_path, std_out="none", std_err="none"),
    )
    await controller.until(lambda: len(controller.began) == 2)
    await controller.order(end_step=[node_pb2.EndStep(job_id=1, run=0, step_id=0, why="SIGNAL", now=True, at=AT)])
    assert (await controller.result((1, 0, 0))).tasks[0].status == signal.SIGKILL
    # One whose launch never came is reported too, and not begun when it comes.
    await controller.order(end_step=[node_pb2.EndStep(job_id=1, run=0, step_id=1, now=True)])
    never = await controller.result((1, 0, 1))
    assert "before it began" in never.error
    await controller.launch(controller.step(1, 1, ["touch", "ran"], tmp_path))
    (tmp_path / "stop").touch()
    assert (await controller.batch_result(1)).tasks[0].status == 6 << 8
    assert not (tmp_path / "ran").exists()


async def test_signals_go_where_their_scope_says(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    trap = "trap 'echo {0} >> got' USR1; touch {0}.ready; while [ ! -e stop ]; do sleep 0.02; done"
    child = f'bash -c "{trap.format("child")}" &\n'
    await controller.launch(
        controller.batch(1, f"#!/bin/bash\n{child}{trap.format('shell')}\n", tmp_path),
        controller.step(1, 0, ["bash", "-c", trap.format("step0")], tmp_path, std_out="none", std_err="none"),
        controller.step(1, 1, ["bash", "-c", trap.format("step1")], tmp_path, std_out="none", std_err="none"),
    )
    names = ["child", "shell", "step0", "step1"]
    await eventually(lambda: all((tmp_path / f"{name}.ready").exists() for name in names))
    expected = {"batch": ["shell"], "steps": ["step0", "step1"], "step": ["step1"], "all": names}
    for serial, (scope, receivers) in enumerate(expected.items(), start=1):
        order = node_pb2.SignalOrder(serial=serial, job_id=1, run=0, signo=signal.SIGUSR1, scope=scope, step_id=1)
        await controller.order(signal=[order])
        await controller.order(signal=[order])
        await controller.until(lambda serial=serial: controller.signalled.count(serial) == 2)  # type: ignore[misc]
        await eventually(
            lambda receivers=receivers: (  # type: ignore[misc]
                (tmp_path / "got").exists() and sorted((tmp_path / "got").read_text().split()) == receivers
            )
        )
        (tmp_path / "got").unlink()
    (tmp_path / "stop").touch()
    await controller.batch_result(1)


async def test_a_missing_folder_is_told_and_a_closed_one_fails_with_53(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    (tmp_path / "file").touch()
    text = "#!/bin/sh\npwd\n"
    await controller.launch(
        controller.batch(1, text, tmp_path / "gone", std_out=f"{tmp_path}/one.out"),
        controller.batch(2, text, tmp_path, std_out="file/two.out"),
        controller.batch(3, text, tmp_path, std_in="missing"),
        controller.batch(4, text, tmp_path, std_out="made/%j/out"),
        controller.batch(5, "no interpreter line\n", tmp_path),
        controller.batch(6, "#!/no/such/shell\n", tmp_path),
    )
    statuses = {job: (await controller.batch_result(job)).tasks[0].status for job in range(1, 7)}
    assert statuses == {1: 0, 2: 53, 3: 53, 4: 0, 5: 8 << 8, 6: 2 << 8}
    said = (tmp_path / "one.out").read_text()
    assert f"error: couldn't chdir to `{tmp_path}/gone': No such file or directory: going to /tmp instead" in said
    assert said.endswith("\n/tmp\n")
    assert (tmp_path / "made/4/out").read_text() == f"{tmp_path}\n"
    assert "error: execve(): " in (tmp_path / "slurm-5.out").read_text()
    assert (
        (tmp_path / "slurm-6.out")
        .read_text()
        .endswith("error: execve(): bad interpreter(/no/such/shell): No such file or directory\n")
    )


@pytest.mark.root
@root
async def test_a_job_runs_as_its_user(open_folder: Path) -> None:
    user = pwd.getpwnam("nobody")
    groups = sorted(os.getgrouplist(user.pw_name, user.pw_gid))
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    text = "#!/bin/sh\nid -u; id -g; id -G; umask; ulimit -Sn; ulimit -Sc; echo $SLURM_TASK_PID $$; touch made\n"
    async with world(open_folder) as (controller, make):
        make()
        await controller.launch(
            controller.batch(1, text, home, uid=user.pw_uid, rlimits={"nofile": 333, "core": 0}),
            controller.batch(2, text, home, uid=user.pw_uid, std_out=f"{closed}/out"),
            controller.batch(3, text, closed, uid=user.pw_uid, std_out=f"{home}/three.out"),
        )
        assert (await controller.batch_result(1)).tasks[0].status == 0
        assert (await controller.batch_result(2)).tasks[0].status == 53
        assert (await controller.batch_result(3)).tasks[0].status != 53
    lines = (home / "slurm-1.out").read_text().splitlines()
    assert lines[:2] == [str(user.pw_uid), str(user.pw_gid)]
    assert sorted(map(int, lines[2].split())) == groups
    assert lines[3:6] == ["0022", "333", "0"]
    assert len(set(lines[6].split())) == 1
    for name in ("slurm-1.out", "made"):
        found = (home / name).stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (user.pw_uid, user.pw_gid, 0o644)
    assert "Permission denied: going to /tmp instead" in (home / "three.out").read_text()
    assert os.listdir(closed) == []


async def test_the_login_environment_is_below_the_submitters(cluster: World, tmp_path: Path) -> None:
    controller, make = cluster
    make()
    environment = b"PATH=/usr/bin:/bin\0SHELL=/own/shell\0"
    text = "#!/bin/sh\necho $SHELL; echo $HOME; echo $SLURM_GET_USER_ENV\n"
    await controller.launch(controller.batch(1, text, tmp_path, environment=environment, get_user_env=True))
    await controller.batch_result(1)
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert (tmp_path / "slurm-1.out").read_text().split() == ["/own/shell", home, "1"]

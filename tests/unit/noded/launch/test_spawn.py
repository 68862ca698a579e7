"""Starting tasks, and ending all that they began."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from noded.launch import spawn
from noded.launch.spawn import User

ENVIRONMENT = {b"PATH": b"/usr/bin:/bin"}


@pytest.fixture
def user() -> User:
    return User(os.getuid(), os.getgid(), "me")


@pytest.fixture
def output(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT, 0o644)
    yield descriptor
    os.close(descriptor)


def run(argv: list[str], user: User, output: int, folder: Path, **more: object) -> int:
    """Start a program and give its wait status."""
    arguments: dict[str, object] = {"environment": dict(ENVIRONMENT), "work_dir": str(folder), "umask": 0o022, **more}
    nothing = os.open("/dev/null", os.O_RDONLY)
    try:
        pid = spawn.start(argv, stdin=nothing, stdout=output, stderr=output, user=user, **arguments)  # type: ignore[arg-type]
    finally:
        os.close(nothing)
    return os.waitpid(pid, 0)[1]


def test_a_task_gets_its_folder_umask_limits_and_pid(user: User, output: int, tmp_path: Path) -> None:
    text = 'pwd; umask; ulimit -Sn; test "$SLURM_TASK_PID" = $$; echo $?; exit 3'
    status = run(["sh", "-c", text], user, output, tmp_path, umask=0o077, rlimits={"nofile": 64, "strange": 1})
    assert os.waitstatus_to_exitcode(status) == 3
    assert (tmp_path / "output").read_text().split() == [str(tmp_path), "0077", "64", "0"]


def test_a_limit_over_the_hard_one_becomes_the_hard_one(user: User, output: int, tmp_path: Path) -> None:
    hard = str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    run(["sh", "-c", "ulimit -Sn"], user, output, tmp_path, rlimits={"nofile": -1})
    assert (tmp_path / "output").read_text().strip() == hard


def test_a_task_leads_a_session_and_takes_default_signals(user: User, output: int, tmp_path: Path) -> None:
    run(["sh", "-c", "ps -o sid= -p $$; echo $$; grep SigIgn /proc/$$/status"], user, output, tmp_path)
    session, pid, _, ignored = (tmp_path / "output").read_text().split()
    assert session == pid
    assert not int(ignored, 16) & 1 << (signal.SIGPIPE - 1)


def test_no_descriptor_is_inherited(user: User, output: int, tmp_path: Path) -> None:
    run(["sh", "-c", "ls /proc/self/fd"], user, output, tmp_path)
    assert (tmp_path / "output").read_text().split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("argv", "number"),
    [(["/no/such"], 2), (["no-such-program"], 2), (["/etc/passwd"], 13), (["./text"], 8), (["./orphan"], 2)],
)
def test_what_cannot_be_executed_raises_its_errno(
    user: User, output: int, tmp_path: Path, argv: list[str], number: int
) -> None:
    for name, content in (("text", "no interpreter\n"), ("orphan", "#!/no/such/shell\n")):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    with pytest.raises(OSError) as caught:  # noqa: PT011 (its errno is what counts)
        run(argv, user, output, tmp_path)
    assert caught.value.errno == number
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_programs_are_found_on_the_tasks_own_path(user: User, output: int, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mine").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "bin/mine").chmod(0o755)
    run(["mine"], user, output, tmp_path, environment={b"PATH": b"/usr/bin:bin"})
    assert (tmp_path / "output").read_text() == "mine\n"
    with pytest.raises(FileNotFoundError):
        run(["mine"], user, output, tmp_path, environment={})

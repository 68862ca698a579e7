"""Starting a task as its user, and finding and ending all that a step has begun.

A stepd is a subreaper: whatever its tasks start stays below it, also after `setsid` and double forks. With a cgroup
(`cgroup` in the launch) the kernel holds the set as well and kills it at once; without one the tree below the stepd is
walked until it is empty.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)

_RLIMITS = {
    name[len("RLIMIT_") :].lower(): getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")
}
KILL_SECONDS = 60.0
"""How long SIGKILL may take to empty a step before the stepd gives up and says so."""


def become_subreaper() -> None:
    """Have orphans below this process become its children (prctl(2))."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class User:
    """The identity of a step's tasks; does nothing where the agent itself runs as that user."""

    def __init__(self, uid: int, gid: int, name: str) -> None:
        self.uid = uid
        self.gid = gid
        self._switch = os.geteuid() == 0 and (uid != 0 or gid != os.getegid())
        self.groups: Sequence[int] = os.getgrouplist(name, gid) if self._switch and name else [gid]

    def arguments(self) -> dict[str, object]:
        """Give subprocess.Popen's arguments for this identity."""
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups} if self._switch else {}

    @contextlib.contextmanager
    def act(self) -> Iterator[None]:
        """Be this user inside the block, as far as files go (effective ids and groups)."""
        if not self._switch:
            yield
            return
        before = os.getgroups()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(before)


@contextlib.contextmanager
def inside(cgroup: str) -> Iterator[None]:
    """Be in the step's cgroup while tasks are started: they are born in it, so none can slip out before it is moved.

    Afterwards this process goes back to `stepds` beside the jobs' folders, so that ending the step spares it.
    """
    if not cgroup:
        yield
        return
    os.makedirs(cgroup, exist_ok=True)
    root = os.path.dirname(os.path.dirname(cgroup))
    _move_to(cgroup)
    try:
        yield
    finally:
        _move_to(f"{root}/stepds")


def _move_to(cgroup: str) -> None:
    with open(f"{cgroup}/cgroup.procs", "wb", buffering=0) as file:
        file.write(b"0")


@contextlib.contextmanager
def soft_limits(wanted: dict[str, int]) -> Iterator[list[str]]:
    """Have these soft limits while a task is started (it inherits them); give sentences for those that cannot be had.

    Set in the parent and put back: a function run between fork and exec would cost a copy of the address space.
    """
    changed: list[tuple[int, tuple[int, int]]] = []
    refused: list[str] = []
    for name, value in wanted.items():
        number = _RLIMITS.get(name)
        if number is None:
            continue
        soft, hard = resource.getrlimit(number)
        asked = resource.RLIM_INFINITY if value < 0 else value
        if asked == soft:
            continue
        if hard != resource.RLIM_INFINITY and (asked == resource.RLIM_INFINITY or asked > hard):
            asked = hard
        try:
            resource.setrlimit(number, (asked, hard))
        except (OSError, ValueError) as error:
            refused.append(f"cannot set RLIMIT_{name.upper()} to {value}: {error}")
        else:
            changed.append((number, (soft, hard)))
    try:
        yield refused
    finally:
        for number, limits in changed:
            resource.setrlimit(number, limits)


def start(
    argv: Sequence[str],
    *,
    environment: dict[bytes, bytes],
    work_dir: str,
    stdin: int,
    stdout: int,
    stderr: int,
    umask: int,
    user: User,
    terminal: bool = False,
) -> int:
    """Start one task in a session of its own and give its pid; raises OSError as execve(2) does.

    Args:
        argv: program and arguments; a program without a slash is looked up in the environment's PATH.
        environment: the whole environment.
        work_dir: an existing folder.
        stdin, stdout, stderr: descriptors.
        umask: of the task.
        user: its identity.
        terminal: stdout is a terminal (unbuffered steps); nothing else differs.
    """
    program = _look_up(argv[0], environment, work_dir)
    process = subprocess.Popen(
        list(argv),
        executable=program,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        cwd=work_dir,
        umask=umask,
        start_new_session=True,
        close_fds=True,
        **user.arguments(),  # type: ignore[call-overload]
    )
    pid: int = process.pid
    # The stepd waits by itself (for orphans too); Popen must not think it still has a child.
    process.returncode = 0
    return pid


def _look_up(program: str, environment: dict[bytes, bytes], work_dir: str) -> str:
    if "/" in program:
        return program
    path = environment.get(b"PATH")
    if path is None:
        raise FileNotFoundError(2, "No such file or directory", program)
    for folder in os.fsdecode(path).split(":"):
        candidate = os.path.join(work_dir, folder or ".", program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(2, "No such file or directory", program)


def descendants(pid: int) -> list[int]:
    """Give all processes below `pid`, by /proc/PID/task/*/children."""
    found: list[int] = []
    todo = [pid]
    while todo:
        parent = todo.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{parent}/task/{thread}/children", "rb", buffering=0) as file:
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            found += children
            todo += children
    return found


def members(cgroup: str) -> list[int]:
    """Give all processes of the step: of its cgroup where it has one, and below this process."""
    found = descendants(os.getpid())
    if cgroup:
        try:
            with open(f"{cgroup}/cgroup.procs", "rb", buffering=0) as file:
                found += [int(word) for word in file.read().split() if int(word) not in found]
        except OSError:
            pass
    return found


def send(pids: Sequence[int], signo: int) -> None:
    """Send a signal to each; those that are gone are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signo)


def kill_all(cgroup: str) -> bool:
    """End everything that the step has begun, with SIGKILL, and return when it is gone (False: it will not go).

    Children are not waited for here beyond what `os.waitpid` gives: the caller has taken the exit status of its tasks.
    """
    deadline = time.monotonic() + KILL_SECONDS
    pause = 0.001
    while True:
        if cgroup:
            with contextlib.suppress(OSError), open(f"{cgroup}/cgroup.kill", "wb", buffering=0) as file:
                file.write(b"1")
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if not cgroup or not members(cgroup):
                return True
        send(members(cgroup), signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(0.05, pause * 2)

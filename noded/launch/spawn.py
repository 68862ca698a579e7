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
import time
from collections.abc import Iterator, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)

_RLIMITS = {
    name[len("RLIMIT_") :].lower(): getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")
}
_ABOVE_ALL_DESCRIPTORS = 1 << 30
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

    def become(self) -> None:
        """Be this user for good."""
        if self._switch:
            os.setgroups(self.groups)
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)

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
    rlimits: Mapping[str, int] | None = None,
    cgroup: str = "",
) -> int:
    """Start one task in a session of its own and give its pid; raises OSError as execve(2) does.

    A plain fork, not subprocess: the child puts itself into the step's cgroup before it runs anything of the user's (so
    nothing can slip out before it is moved), and knows its own pid for the environment. vfork, which subprocess would
    use, is not to be had together with another identity anyway.

    Args:
        argv: program and arguments; a program without a slash is looked up in the environment's PATH.
        environment: the whole environment; SLURM_TASK_PID is added.
        work_dir: an existing folder.
        stdin, stdout, stderr: descriptors above 2.
        umask: of the task.
        user: its identity.
        rlimits: soft limits by lower-case name (-1: unlimited); one over the hard limit becomes the hard limit.
        cgroup: folder of the step's cgroup, or empty.
    """
    program = _look_up(argv[0], environment, work_dir)
    stepd = os.getpid()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            if cgroup:
                _write(f"{cgroup}/cgroup.procs", b"0")
            with contextlib.suppress(OSError):
                _write("/proc/self/oom_score_adj", b"0")
            for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
                os.dup2(source, target)
            os.closerange(3, writing)
            os.closerange(writing + 1, _ABOVE_ALL_DESCRIPTORS)
            _limit(rlimits or {})
            os.umask(umask)
            user.become()
            # After the identity: a change of it would clear this. A task does not outlive who watches over it.
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != stepd:
                os._exit(1)
            os.chdir(work_dir)
            for signo in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(signo, signal.SIG_DFL)
            environment[b"SLURM_TASK_PID"] = b"%d" % os.getpid()
            os.execve(program, list(argv), environment)
        except OSError as error:
            code = error.errno or 1
        finally:
            os.write(writing, b"%d" % code)
            os._exit(255)
    os.close(writing)
    said = os.read(reading, 16)
    os.close(reading)
    if said:
        os.waitpid(pid, 0)
        raise OSError(int(said), os.strerror(int(said)), program)
    return pid


def _limit(wanted: Mapping[str, int]) -> None:
    for name, value in wanted.items():
        number = _RLIMITS.get(name)
        if number is None:
            continue
        soft, hard = resource.getrlimit(number)
        asked = resource.RLIM_INFINITY if value < 0 else value
        if hard != resource.RLIM_INFINITY and (asked == resource.RLIM_INFINITY or asked > hard):
            asked = hard
        if asked != soft:
            resource.setrlimit(number, (asked, hard))


def _write(path: str, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(data)


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

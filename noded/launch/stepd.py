"""The supervisor of one step: starts its tasks, carries their output, ends them when told, writes the result to disk.

It lives in a session of its own, outlives the agent, and polls nothing: it sleeps until a task ends, output comes, an
order arrives on its control socket, or a deadline passes. The result is on disk before anybody can learn of it.

Orders (datagrams of marshal, from the agent):
    ("end", why, now, at)     TERM (CONT first), KILL after KillWait; `now`: KILL at once. `why` empty: no line
    ("signal", signo, scope)  scope shell (the script's process only), all, or tasks
    ("suspend", seconds)      TSTP, STOP after so many seconds
    ("resume",)               CONT
    ("attach",)               with one descriptor: srun's connection for frames
"""

from __future__ import annotations

import array
import contextlib
import marshal
import os
import select
import signal
import socket
import time

from muster.ids import BATCH_STEP, step_word
from muster.signals import describe_signal
from noded.launch import env, spawn, stdio, stepdir
from noded.launch.streams import ATTACH_SECONDS, Streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noded.launch.spec import Launch

_SIGNAL_NO_FILES = 53
"""Slurm's exit of a job whose files cannot be opened: 0:53."""
_MAX_ORDER = 65536


class Stepd:
    """One step on this node."""

    def __init__(self, folder: str, launch: Launch) -> None:
        self.folder = folder
        self.launch = launch
        self.batch = launch["step_id"] == BATCH_STEP
        self.started_at = int(time.time())
        self.tasks: dict[int, int] = {}
        """pid -> place of the task on this node."""
        self.ended: dict[int, int] = {}
        """place -> wait status."""
        self.user_ms = 0
        self.system_ms = 0
        self.max_rss_bytes = 0
        self.error = ""
        self.killing = False
        self.kill_at = 0.0
        """Monotonic time of SIGKILL; 0: none set."""
        self.stop_at = 0.0
        """Monotonic time of SIGSTOP; 0: none set."""
        self.shell = 0
        """pid of the batch script."""
        self.streams = Streams(launch)
        self._message_descriptor = -1
        self._work_dir_message = ""

    def run(self, control: socket.socket) -> None:
        """Live from the launch to the result; `control` brings the orders."""
        launch = self.launch
        spawn.become_subreaper()
        try:
            self._start(spawn.User(launch["uid"], launch["gid"], launch["user"]))
        except stdio.CannotOpen as error:
            self.error = str(error)
            self.ended = dict.fromkeys(range(len(launch["ranks"])), _SIGNAL_NO_FILES)
            # What could be started before is not left to run without the others.
            self._end("", now=True, at=0)
        except OSError as error:
            self.error = f"the step's tasks cannot be started: {error}"
            self._end("", now=True, at=0)
        self._supervise(control)
        self._finish(control)

    # Starting.

    def _start(self, user: spawn.User) -> None:
        launch = self.launch
        work_dir = self._work_dir(user)
        inherited = launch["environment"]
        if launch["get_user_env"]:
            inherited = _login_environment(launch["user"], user) + inherited
        shared = env.job_environment(launch, inherited)
        if launch["cgroup"]:
            os.makedirs(launch["cgroup"], exist_ok=True)
        for place in range(len(launch["ranks"])):
            files = self._files(user, place)
            argv = [f"{self.folder}/{stepdir.SCRIPT}", *launch["argv"]] if self.batch else launch["argv"]
            try:
                pid = spawn.start(
                    argv,
                    environment=env.task_environment(launch, shared, place),
                    work_dir=work_dir,
                    stdin=files.stdin,
                    stdout=files.stdout,
                    stderr=files.stderr,
                    umask=launch["umask"],
                    user=user,
                    rlimits=launch["rlimits"],
                    cgroup=launch["cgroup"],
                )
            except OSError as error:
                self._not_started(place, argv[0], error, files.stderr)
            else:
                self.tasks[pid] = place
                if self.batch:
                    self.shell = pid
            finally:
                for descriptor in {files.stdin, files.stdout, files.stderr}:
                    os.close(descriptor)

    def _work_dir(self, user: spawn.User) -> str:
        wanted = self.launch["work_dir"]
        with user.act():
            try:
                os.stat(wanted + "/.")
            except OSError as error:
                reason = error.strerror
            else:
                return wanted
        self.launch["work_dir"] = "/tmp"
        self._work_dir_message = f"error: couldn't chdir to `{wanted}': {reason}: going to /tmp instead"
        return "/tmp"

    def _files(self, user: spawn.User, place: int) -> stdio.Files:
        if not self.batch:
            return self.streams.task_files(user, place)
        files = stdio.open_batch(self.launch, user)
        self._message_descriptor = os.dup(files.stderr)
        if self._work_dir_message:
            self._say(self._work_dir_message)
        return files

    def _not_started(self, place: int, program: str, error: OSError, stderr: int) -> None:
        """A program that cannot be executed ends with errno as its code, and says so on the task's stderr."""
        interpreter = _interpreter(program) if self.batch else ""
        if interpreter and error.errno == 2:
            line = f"error: execve(): bad interpreter({interpreter}): No such file or directory"
        else:
            line = f"error: execve(): {program}: {os.strerror(error.errno or 0)}"
        with contextlib.suppress(OSError):
            os.write(stderr, f"[{_timestamp()}] {line}\n".encode())
        self.ended[place] = (error.errno or 1) << 8

    # Living.

    def _supervise(self, control: socket.socket) -> None:
        """Sleep and react until every task has ended and srun, if any, can be given what they wrote."""
        poller = select.poll()
        poller.register(control, select.POLLIN)
        watched: dict[int, int] = {}
        for pid in self.tasks:
            descriptor = os.pidfd_open(pid)
            watched[descriptor] = pid
            poller.register(descriptor, select.POLLIN)
        self.streams.watch(poller)
        give_up = 0.0
        while self.tasks or self.streams.waits_for_srun():
            if not self.tasks:
                give_up = give_up or time.monotonic() + ATTACH_SECONDS
                if time.monotonic() >= give_up or self.killing:
                    break
            for descriptor, what in poller.poll(self._timeout(give_up)):
                if descriptor == control.fileno():
                    self._orders(control)
                elif descriptor in watched:
                    poller.unregister(descriptor)
                    os.close(descriptor)
                    self._reap(watched.pop(descriptor))
                elif self.streams.owns(descriptor):
                    self.streams.react(descriptor, what)
            if self.stop_at and time.monotonic() >= self.stop_at:
                self.stop_at = 0.0
                spawn.send(spawn.members(self.launch["cgroup"]), signal.SIGSTOP)
            if self.kill_at and time.monotonic() >= self.kill_at:
                self.kill_at = 0.0
                spawn.send(spawn.members(self.launch["cgroup"]), signal.SIGKILL)

    def _timeout(self, give_up: float) -> int | None:
        """Milliseconds to the next deadline; None: there is none."""
        deadlines = [when for when in (self.kill_at, self.stop_at, give_up) if when]
        return max(0, int((min(deadlines) - time.monotonic()) * 1000) + 1) if deadlines else None

    def _reap(self, pid: int) -> None:
        try:
            _, status, usage = os.wait4(pid, 0)
        except ChildProcessError:
            return
        self._count(usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
        place = self.tasks.pop(pid, None)
        if place is None:
            return
        self.ended[place] = status
        self.streams.ended(place, status)
        step = self.launch["step"]
        if status and step is not None and step["kill_on_bad_exit"] and self.tasks and not self.killing:
            self._end("TASK FAILURE", now=False, at=int(time.time()))

    def _count(self, user: float, system: float, rss_kib: int) -> None:
        self.user_ms += int(user * 1000)
        self.system_ms += int(system * 1000)
        self.max_rss_bytes = max(self.max_rss_bytes, rss_kib * 1024)

    def _orders(self, control: socket.socket) -> None:
        while True:
            try:
                data, passed, _, _ = control.recvmsg(_MAX_ORDER, socket.CMSG_SPACE(4))
            except BlockingIOError:
                return
            order = marshal.loads(data)
            if order[0] == "end":
                self._end(order[1], now=order[2], at=order[3])
            elif order[0] == "signal":
                self._signal(order[1], order[2])
            elif order[0] == "suspend":
                self._suspend(order[1])
            elif order[0] == "resume":
                self.stop_at = 0.0
                spawn.send(spawn.members(self.launch["cgroup"]), signal.SIGCONT)
            elif order[0] == "attach":
                for _, _, raw in passed:
                    descriptors = array.array("i", raw)
                    self.streams.attach(socket.socket(fileno=descriptors[0]), self.tasks, self.ended)

    def _signal(self, signo: int, scope: str) -> None:
        if scope == "shell":
            if self.shell in self.tasks:
                spawn.send([self.shell], signo)
        elif scope == "all" or not self.batch:
            spawn.send(spawn.members(self.launch["cgroup"]), signo)

    def _suspend(self, seconds: int) -> None:
        """Let everything stand still; who is told to end goes on to that."""
        if self.killing:
            return
        spawn.send(spawn.members(self.launch["cgroup"]), signal.SIGTSTP)
        self.stop_at = time.monotonic() + seconds

    def _end(self, why: str, *, now: bool, at: int) -> None:
        """Begin the kill sequence; a second order only hastens it, or does nothing."""
        if self.killing and not now:
            return
        if why and not self.killing:
            what = "JOB" if self.batch else "STEP"
            name = str(self.launch["job_id"])
            if not self.batch:
                name += f".{step_word(self.launch['step_id'])}"
            cause = f"DUE TO {why}"
            if why == "SIGNAL":
                # The reference writes "to" small here, and the signal's text.
                cause = f"DUE to SIGNAL {describe_signal(signal.SIGKILL if now else signal.SIGTERM)}"
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at or time.time()))
            self._say(f"error: *** {what} {name} ON {self.launch['node_name']} CANCELLED AT {stamp} {cause} ***")
        self.killing = True
        self.stop_at = 0.0
        members = spawn.members(self.launch["cgroup"])
        if now:
            spawn.send(members, signal.SIGKILL)
            self.kill_at = time.monotonic() + 0.5
            return
        spawn.send(members, signal.SIGCONT)
        spawn.send(members, signal.SIGTERM)
        if not self.kill_at:
            self.kill_at = time.monotonic() + self.launch["kill_wait_seconds"]

    def _say(self, text: str) -> None:
        """Write a line of our own to the job's stderr (batch) or to srun."""
        line = f"[{_timestamp()}] {text}"
        if self.batch:
            if self._message_descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._message_descriptor, line.encode() + b"\n")
        else:
            self.streams.message(line)

    # Ending.

    def _finish(self, control: socket.socket) -> None:
        """End what the tasks left behind, write the result, tell srun."""
        children = self._leftovers()
        if children and not spawn.kill_all(self.launch["cgroup"]):
            self.error = self.error or "processes of the step do not end after SIGKILL"
        self.streams.drain()
        if self.launch["cgroup"]:
            with contextlib.suppress(OSError):
                os.rmdir(self.launch["cgroup"])
        ranks = self.launch["ranks"]
        result = {
            "tasks": [(ranks[place], status) for place, status in sorted(self.ended.items())],
            "started_at": self.started_at,
            "ended_at": int(time.time()),
            "user_ms": self.user_ms,
            "system_ms": self.system_ms,
            "max_rss_bytes": self.max_rss_bytes,
            "oom": False,
            "error": self.error,
        }
        stepdir.write(self.folder, "result", result, from_reserve=True)
        self.streams.finish(self.error)
        control.close()

    def _leftovers(self) -> bool:
        """Tell whether anything of the step still lives (children that have ended are reaped and counted)."""
        while True:
            try:
                pid, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return bool(self.launch["cgroup"]) and bool(spawn.members(self.launch["cgroup"]))
            if pid == 0:
                return True
            self._count(usage.ru_utime, usage.ru_stime, usage.ru_maxrss)


def main(folder: str, control: socket.socket) -> None:
    """Run the step whose launch lies in `folder`, by the orders that come on `control` (bound to `ctl` there)."""
    launch = stepdir.read(folder, "launch")
    assert launch is not None, f"{folder} holds no launch"
    Stepd(folder, launch).run(control)


def _timestamp() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(now))}.{int(now * 1000) % 1000:03d}"


def _interpreter(script: str) -> str:
    try:
        with open(script, "rb") as file:
            first = file.readline(512)
    except OSError:
        return ""
    return os.fsdecode(first[2:].split()[0]) if first.startswith(b"#!") and first[2:].split() else ""


def _login_environment(name: str, user: spawn.User) -> bytes:
    """Give the environment of a login shell of the user, NUL-separated; empty when it cannot be had in 10 s."""
    import subprocess  # rarely wanted, and large for what each fork has to share

    command = ["su", "-", name, "-c", "env -0"] if os.geteuid() == 0 else ["/bin/sh", "-lc", "env -0"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""

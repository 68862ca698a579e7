"""A controller's door on a socket, in a thread, over a state in memory: what the commands are run against."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ctld.core.commands import Command
from ctld.core.model import Caller, Job
from ctld.core.state import State
from ctld.services import actions
from ctld.services.door import Door
from ctld.store.memory import MemoryBlobs, MemoryJournal
from ctld.store.store import Store
from muster.clock import SystemClock
from muster.local_socket import AnswerCall, LocalSocket
from tests.builders import a_state

SOURCE = Path(__file__).resolve().parents[1]
Result = TypeVar("Result")


class RecordedSignals:
    """Stands for the dispatcher: notes the signals, and says that all were carried out."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, str, int]] = []

    async def signal(self, job: Job, signo: int, scope: str, step_id: int = 0) -> None:
        self.sent.append((job.id, signo, scope, step_id))


class Served:
    """The controller as tests see it; its state may be read at any time between calls."""

    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self.state = state
        self.journal = MemoryJournal()
        self.blobs = MemoryBlobs(self.journal)
        self.store = Store(state, self.journal)
        self.signals = RecordedSignals()
        self.clock = SystemClock()
        self.stopped = threading.Event()
        self.calls = 0
        self.caller: Caller | None = None
        """Who the kernel's word is replaced by; None: whoever calls, and never an administrator."""
        self.door = Door()
        self.door.add(
            actions.routes(actions.Context(self.store, self.signals, self.clock, self.blobs, self.stopped.set))
        )
        self.loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, uid: int, gid: int, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        self.calls += 1
        caller = self.caller or Caller(uid=uid, gid=gid, host="here")
        answer = await self.door.answer(caller, method, target, body)
        return answer.status, answer.body

    def do(self, action: Callable[[], Result]) -> Result:
        """Run a function in the controller's loop."""
        assert self.loop is not None

        async def act() -> Result:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self.loop).result(20)

    def post(self, *commands: Command) -> None:
        """Commit commands, as a node or the scheduler would."""
        for command in commands:
            self.do(lambda command=command: self.store.post(command, at=self.clock.now()))  # type: ignore[misc]

    def job(self, job_id: int) -> Job:
        return self.state.jobs[job_id]

    def run(
        self,
        command: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str | bytes = "",
    ) -> Ran:
        """Run a command as its launcher would, against this controller."""
        return Ran(self.start(command, *words, env=env, cwd=cwd), stdin)

    def start(
        self, command: str, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Begin to run `cli/COMMAND.py`, or with `scontrol_actions:run` that function with a keyword."""
        surroundings = {"PATH": os.environ.get("PATH", "/bin:/usr/bin"), "HOME": "/", "MUSTER_SOCKET": str(self.path)}
        return subprocess.Popen(
            command_line(command, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**surroundings, **(env or {})},
            cwd=cwd,
        )


class Ran:
    """How a command ended."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: str | bytes = b"") -> None:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = process.communicate(given, timeout=30)
        self.code = process.returncode
        self.out = out.decode()
        self.err = err.decode("utf-8", "backslashreplace")
        self.lines = self.err.splitlines()

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}--- err\n{self.err}"

    def __eq__(self, other: object) -> bool:
        """Compare with (exit code, standard output, standard error)."""
        return (self.code, self.out, self.err) == other

    __hash__ = None  # type: ignore[assignment]


def command_line(command: str, *words: str) -> list[str]:
    """Give what a launcher runs for `cli/COMMAND.py`, or with `scontrol_actions:run` that function with a keyword."""
    module, _, function = command.partition(":")
    call = "run(sys.argv[1], sys.argv[2:], False)" if function else "main(sys.argv[1:])"
    code = f"import sys; sys.path[:0] = [{str(SOURCE)!r}]; from cli.{module} import {function or 'main'}"
    return [sys.executable, "-I", "-S", "-c", f"{code}; sys.exit({call})", *words]


@contextmanager
def answering(path: Path, answer: AnswerCall) -> Iterator[asyncio.AbstractEventLoop]:
    """Serve a local socket in a thread, and give its loop; the thread must have ended by itself after the block."""
    ready: Future[asyncio.AbstractEventLoop] = Future()
    done = threading.Event()

    async def live() -> None:
        socket = LocalSocket(path, answer)
        await socket.open()
        ready.set_result(asyncio.get_running_loop())
        await asyncio.to_thread(done.wait)
        await socket.close()

    def serve() -> None:
        try:
            asyncio.run(live())
        except BaseException as problem:
            if not ready.done():
                ready.set_exception(problem)
            raise

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield ready.result(20)
    finally:
        done.set()
        thread.join(20)
    assert not thread.is_alive(), "the controller's thread goes on"


@contextmanager
def serving(folder: Path, state: State | None = None) -> Iterator[Served]:
    """Serve a controller's changing side until the block ends."""
    served = Served(folder / "sock", state if state is not None else a_state())
    with answering(served.path, served.answer) as loop:
        served.loop = loop
        yield served


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return once the condition holds."""
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def raw(path: Path, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes to a socket and give the answer; `half_close` says that no more will come."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        try:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered and closed before the end of what we send
        answer = b""
        while not _is_whole(answer):
            try:
                part = connection.recv(1 << 16)
            except ConnectionResetError:
                break
            if not part:
                break
            answer += part
    return answer


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n") if end else ():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return False


def request(method: str, target: str, body: bytes, *headers: str) -> bytes:
    """Give an HTTP request that asks for the connection to be closed."""
    lines = [f"{method} {target} HTTP/1.1", "Host: muster", "Connection: close", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def started(served: Served, job_id: int, *, nodes: Sequence[int] = (0,)) -> None:
    """Start a pending job on one CPU of each node, as the scheduler would."""
    from ctld.core.commands import ApplyPlan
    from ctld.core.model import NodeShare
    from ctld.core.plan import Plan, Start
    from muster.ids import JobId

    shares = tuple(NodeShare(node=node, cpus=1, cores=(job_id, job_id)) for node in nodes)
    at = served.clock.now()
    served.post(ApplyPlan(Plan(at, (Start(JobId(job_id), "main", shares),))))
    assert served.job(job_id).state == 1, served.job(job_id)


def ended(served: Served, job_id: int, status: int = 0) -> None:
    """End the batch script of a running job."""
    from ctld.core.commands import FinishBatch
    from ctld.core.model import StepResult, TaskResult
    from muster.ids import JobId

    job = served.job(job_id)
    assert job.alloc is not None
    result = StepResult(node=job.alloc.shares[0].node, tasks=(TaskResult(0, status),))
    served.post(FinishBatch(JobId(job_id), job.restarts, result))


def fields(answer: dict[str, Any]) -> list[tuple[str, int]]:
    """Give (id, Slurm's number or 0) of each outcome of an answer."""
    return [(one["id"], one.get("error", {}).get("slurm_code", 0)) for one in answer["results"]]

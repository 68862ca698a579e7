"""A controller that only speaks: takes agents' streams over real gRPC, sends what a test says, keeps what it hears."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from muster import auth, rpc
from muster.ids import BATCH_STEP
from muster.v1 import node_pb2, node_pb2_grpc

ROOT = Path(__file__).resolve().parent.parent
Key = tuple[int, int, int]
BATCH = int(BATCH_STEP)
ENVIRONMENT = b"PATH=/usr/bin:/bin\0HOME=/tmp\0"


class FakeController(node_pb2_grpc.NodesServicer, node_pb2_grpc.RelayServicer):
    """What it heard, by node and by key."""

    def __init__(self, certificates: Path) -> None:
        auth.create_authority(certificates)
        self.certificates = certificates
        self.identity = auth.issue(certificates, "controller", "main")
        self.port = 0
        self.registrations: list[node_pb2.Register] = []
        self.began: list[Key] = []
        self.ended: dict[Key, list[node_pb2.StepEnded]] = {}
        self.gone: list[tuple[int, int]] = []
        self.signalled: list[int] = []
        self.missing: list[bytes] = []
        self.heartbeats = 0
        self.reports: list[node_pb2.Report] = []
        self.calls: list[node_pb2.CallRequest] = []
        self.forgets = True
        """Results are acknowledged at once."""
        self.refusal: node_pb2.Refusal | None = None
        self.send_blobs = True
        self._blobs: dict[bytes, bytes] = {}
        self._streams: dict[str, Any] = {}
        self._server: Any = None
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()

    async def open(self, port: int = 0) -> None:
        """Listen on loopback, on the same port when opened again."""
        self._server = rpc.server()
        node_pb2_grpc.add_NodesServicer_to_server(self, self._server)
        node_pb2_grpc.add_RelayServicer_to_server(self, self._server)
        self.port = rpc.listen(self._server, self.identity, f"127.0.0.1:{port or self.port}")
        await self._server.start()

    async def close(self) -> None:
        """Drop all streams and stop listening."""
        await self._server.stop(None)
        self._streams.clear()

    async def Connect(  # type: ignore[override]
        self, request_iterator: AsyncIterator[node_pb2.NodeMessage], context: rpc.Context
    ) -> None:
        """Serve one agent."""
        first = (await anext(request_iterator)).register
        if self.refusal is not None:
            await context.write(node_pb2.ControllerMessage(refusal=self.refusal))
            return
        registered = node_pb2.Registered(cluster="test", kill_wait_seconds=1, heartbeat_seconds=1)
        await context.write(node_pb2.ControllerMessage(registered=registered))
        self._streams[first.name] = context
        self.registrations.append(first)
        await self._notify()
        try:
            async for message in request_iterator:
                await self._hear(first.name, message)
        finally:
            if self._streams.get(first.name) is context:
                del self._streams[first.name]

    async def Call(self, request: node_pb2.CallRequest, context: rpc.Context) -> node_pb2.CallReply:
        """Answer a relayed call with its own path."""
        self.calls.append(request)
        return node_pb2.CallReply(status=200, body=b'{"path":"' + request.path.encode() + b'"}')

    async def order(self, node: str = "n1", **orders: Any) -> None:
        """Send orders to a node that is (or will be) connected."""
        await self.until(lambda: node in self._streams)
        # One write at a time: gRPC takes no more on a stream.
        async with self._writing:
            await self._streams[node].write(node_pb2.ControllerMessage(orders=node_pb2.Orders(**orders)))

    async def launch(self, *launches: node_pb2.Launch, node: str = "n1") -> None:
        """Send launches, with their blobs."""
        blobs = []
        if self.send_blobs:
            names = {name for launch in launches for name in (launch.script, launch.environment) if name}
            blobs = [node_pb2.Blob(hash=name, data=self._blobs[name]) for name in names]
        await self.order(node, blobs=blobs, launch=launches)

    def blob(self, data: bytes) -> bytes:
        """Keep a blob and give its name."""
        name = blake2b(data, digest_size=16).digest()
        self._blobs[name] = data
        return name

    def batch(self, job_id: int, script: str, work_dir: Path, *, run: int = 0, **fields: Any) -> node_pb2.Launch:
        """Make the launch of a batch script."""
        launch = self._launch(job_id, run, BATCH, work_dir, fields)
        launch.script = self.blob(script.encode())
        launch.here.ranks.extend((0, 0))
        return launch

    def step(
        self, job_id: int, step_id: int, argv: list[str], work_dir: Path, *, run: int = 0, tasks: int = 1, **fields: Any
    ) -> node_pb2.Launch:
        """Make the launch of a step."""
        step = {"std_in_mode": "none", **fields.pop("step", {})}
        launch = self._launch(job_id, run, step_id, work_dir, fields)
        launch.argv.extend(argv)
        launch.here.ranks.extend((0, tasks - 1))
        launch.step.CopyFrom(node_pb2.StepFacts(name="step", ntasks=tasks, num_nodes=1, nodelist="n1", **step))
        return launch

    def _launch(self, job_id: int, run: int, step_id: int, work_dir: Path, fields: dict[str, Any]) -> node_pb2.Launch:
        user = pwd.getpwuid(fields.pop("uid", os.getuid()))
        launch = node_pb2.Launch(
            job_id=job_id,
            run=run,
            step_id=step_id,
            uid=user.pw_uid,
            gid=user.pw_gid,
            user=user.pw_name,
            group="g",
            work_dir=str(work_dir),
            environment=self.blob(fields.pop("environment", ENVIRONMENT)),
            open_mode=fields.pop("open_mode", "t"),
            umask=0o022,
            kill_wait_seconds=fields.pop("kill_wait_seconds", 1),
            **fields,
        )
        launch.here.node_name = "n1"
        launch.here.cpus = 1
        launch.job.CopyFrom(
            node_pb2.JobFacts(
                name="job", partition="main", cluster="test", array_task_id=-1, nodelist="n1", num_nodes=1
            )
        )
        return launch

    async def until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until something heard makes the condition true; fails after `seconds`."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def result(self, key: Key, seconds: float = 30.0) -> node_pb2.StepEnded:
        """Wait for a step's end and give it."""
        await self.until(lambda: key in self.ended, seconds)
        return self.ended[key][0]

    async def batch_result(self, job_id: int, run: int = 0) -> node_pb2.StepEnded:
        """Wait for a batch script's end and give it."""
        return await self.result((job_id, run, BATCH))

    async def _hear(self, node: str, message: node_pb2.NodeMessage) -> None:
        if message.WhichOneof("body") == "heartbeat":
            self.heartbeats += 1
        report = message.report
        self.reports.append(report)
        self.began += [(began.job_id, began.run, began.step_id) for began in report.began]
        self.gone += [(gone.job_id, gone.run) for gone in report.gone]
        self.signalled += report.signalled
        self.missing += report.missing_blobs
        for ended in report.ended:
            self.ended.setdefault((ended.job_id, ended.run, ended.step_id), []).append(ended)
        if report.ended and self.forgets:
            forget = [node_pb2.RunHere(job_id=e.job_id, run=e.run, step_id=e.step_id) for e in report.ended]
            # The stream may just have been lost: the agent says it all again.
            with suppress(Exception):
                await self.order(node, forget=forget)
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class Agent:
    """One noded as a process."""

    def __init__(self, folder: Path, controller: FakeController, name: str, *arguments: str) -> None:
        self.name = name
        self.folder = folder
        self.spool = folder / name
        self.socket = folder / f"{name}.sock"
        self.log = folder / f"{name}.log"
        self._controller = controller
        self._arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        auth.issue(controller.certificates, "compute", name)

    def start(self) -> None:
        """Start it (again)."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "noded", "--name", self.name, "--controller",
                    f"localhost:{self._controller.port}", "--certificates", str(self._controller.certificates),
                    "--spool", str(self.spool), "--socket", str(self.socket), "--addr", "127.0.0.1", *self._arguments,
                ],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        """End it with SIGKILL, at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """End it as an administrator does, and give its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def zygote(self) -> int:
        """Give the pid of its zygote; 0: there is none."""
        assert self.process is not None
        for pid in children(self.process.pid):
            with suppress(OSError):
                if b"noded.launch.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return 0

    def folders(self) -> list[str]:
        """Give the names of the steps' folders."""
        try:
            return sorted(os.listdir(self.spool / "steps"))
        except FileNotFoundError:
            return []

    def said(self) -> str:
        """Give its log."""
        return self.log.read_text()


def children(pid: int) -> list[int]:
    """Give a process's children."""
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def processes_of(folder: Path) -> Iterator[str]:
    """Give a line for each living process that belongs to agents below a folder, by command line or environment."""
    mark = os.fsencode(folder)
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            line = Path(f"/proc/{name}/cmdline").read_bytes()
            if mark in line or mark in Path(f"/proc/{name}/environ").read_bytes():
                yield f"{name}: {line.replace(bytes(1), b' ').decode(errors='replace')}"


async def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition of the machine (a file, a process) is true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true")
        await asyncio.sleep(0.01)


Body = Callable[[], Awaitable[None]]


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[FakeController, Callable[..., Agent]]]:
    """Give a controller that listens and a maker of agents; afterwards nothing of them may be left."""
    controller = FakeController(folder / "certificates")
    await controller.open()
    agents: list[Agent] = []

    def make(name: str = "n1", *arguments: str) -> Agent:
        agent = Agent(folder, controller, name, *arguments)
        agents.append(agent)
        agent.start()
        return agent

    try:
        yield controller, make
    except BaseException:
        for agent in agents:
            print(f"--- log of {agent.name}", agent.said(), sep="\n")
        raise
    finally:
        for agent in agents:
            if agent.process is not None and agent.process.poll() is None:
                # Not in this loop's way: the agent may still be talking to us.
                await asyncio.to_thread(agent.stop)
        await controller.close()
        try:
            await eventually(lambda: not list(processes_of(folder)), 10)
        except TimeoutError:
            left = list(processes_of(folder))
            for line in left:
                with suppress(OSError):
                    os.kill(int(line.partition(":")[0]), 9)
            raise AssertionError("left behind: " + "; ".join(left)) from None

"""A simulated compute node: the machine with its disk and processes, and the agent that may die while those live.

The agent runs noded's real `Steps`; what noded's loops and stepd do around it is repeated here in its simplest form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ctld.core import ranges
from ctld.core.cluster import NodeSpec
from ctld.loops.links import HEARTBEAT_SECONDS
from muster.ids import BATCH_STEP
from muster.v1 import node_pb2
from noded.core.steps import (
    Acknowledge,
    Begin,
    Instruction,
    Key,
    Order,
    Remove,
    ReportEnded,
    ReportGone,
    ReportSignalled,
    Result,
    Steps,
    Tell,
    failed_result,
)
from tests.sim.network import DOWN, UP, Stream
from tests.sim.timeline import Timer

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

SIGKILL, SIGTERM = 9, 15
LOST = "the step's supervisor was killed"
CANNOT_START = "the step's process could not be started"


@dataclass(slots=True)
class Folder:
    """A step's folder: outlives the agent, and with some nodes a reboot."""

    launch: node_pb2.Launch
    script: bytes
    has_pid: bool = False
    result: Result | None = None


@dataclass(slots=True)
class Process:
    """A stepd with its tasks."""

    key: Key
    cores: int
    gpus: int
    on_term: str
    began_at: int
    end: Timer | None = None
    kill: Timer | None = None
    is_ending: bool = False


@dataclass(slots=True)
class Outbox:
    """As noded.loops.reports.Outbox, with a callback in place of an event."""

    ring: Callable[[], None]
    report: node_pb2.Report = field(default_factory=node_pb2.Report)
    empty: bool = True

    def add(self) -> node_pb2.Report:
        """Give the report, to be added to."""
        if self.empty:
            self.empty = False
            self.ring()
        return self.report

    def take(self) -> node_pb2.Report | None:
        """Give what is to be said, and begin anew."""
        if self.empty:
            return None
        report, self.report, self.empty = self.report, node_pb2.Report(), True
        return report


class Node:
    """A machine."""

    def __init__(self, cluster: Cluster, index: int, spec: NodeSpec, rng: random.Random) -> None:
        self.cluster = cluster
        self.index = index
        self.spec = spec
        self.rng = rng
        self.powered = True
        self.reachable = True
        self.spool_survives = rng.random() < 0.5
        self.folders: dict[Key, Folder] = {}
        self.processes: dict[Key, Process] = {}
        self.booted_at = -rng.uniform(1000, 100_000)
        self.agent: Agent | None = None

    def start_agent(self) -> None:
        """Start the agent, unless one runs or the machine is off."""
        if self.powered and self.agent is None:
            self.agent = Agent(self)
            self.agent.open()

    def kill_agent(self) -> None:
        """End the agent; processes live on."""
        agent, self.agent = self.agent, None
        if agent is not None:
            agent.die()

    def power_off(self) -> None:
        """End everything at once."""
        self.cluster.truth.note_trouble(self.index)
        self.powered = False
        self.kill_agent()
        for process in self.processes.values():
            self._stop_timers(process)
        self.processes.clear()

    def boot(self) -> None:
        """Come back."""
        if self.powered:
            return
        self.powered = True
        self.booted_at = self.cluster.timeline.seconds
        if not self.spool_survives:
            self.folders.clear()
        self.start_agent()

    # Processes.

    def spawn(self, key: Key) -> bool:
        """Begin a step as the zygote does; False: it cannot be begun."""
        folder = self.folders[key]
        if folder.has_pid:
            return True
        cluster, launch = self.cluster, folder.launch
        plan = cluster.plan_of(key, launch, folder.script)
        if plan is None:
            return False
        folder.has_pid = True
        cores = ranges.to_bitmap(tuple(launch.here.cores))
        gpus = ranges.to_bitmap(tuple(launch.here.gpus))
        self._check_alone(key, cores, gpus)
        cluster.truth.note_begun(key, self.index)
        process = Process(key, cores, gpus, plan.on_term, int(cluster.wall()))
        self.processes[key] = process
        process.end = cluster.timeline.after(plan.seconds, self._ends_by_itself, key, plan.status, plan.waits)
        if key[2] == BATCH_STEP:
            cluster.users.script_begun(key, plan)
        return True

    def order(self, key: Key, order: Order) -> None:
        """Give a stepd an order."""
        process = self.processes.get(key)
        if process is None or order[0] != "end":
            return
        now = order[2]
        after = self.cluster.timeline.after
        if process.is_ending and not now:
            return
        process.is_ending = True
        if now:
            after(self.rng.uniform(0.0005, 0.01), self._exit, process, SIGKILL)
            return
        if process.on_term == "die":
            after(self.rng.uniform(0.0005, 0.01), self._exit, process, SIGTERM)
        elif process.on_term == "trap":
            after(self.rng.uniform(0.1, 3), self._exit, process, 3 << 8)
        process.kill = after(self.folders[key].launch.kill_wait_seconds, self._exit, process, SIGKILL)

    def lose_stepd(self, key: Key) -> None:
        """The kernel kills a stepd: nothing is written, and its tasks end with it."""
        process = self.processes.pop(key, None)
        if process is None:
            return
        self._stop_timers(process)
        self.cluster.truth.note_ended(key, self.index, SIGKILL, by_itself=False)
        if self.agent is not None:
            self.cluster.timeline.after(0.05, self.agent.stepd_ended, key)

    def _ends_by_itself(self, key: Key, status: int, waits: bool) -> None:
        process = self.processes[key]
        if waits and self.cluster.users.has_open_steps(key):
            process.end = self.cluster.timeline.after(1.0, self._ends_by_itself, key, status, waits)
            return
        self._exit(process, status)

    def _exit(self, process: Process, status: int) -> None:
        key = process.key
        if self.processes.get(key) is not process:
            return
        self._stop_timers(process)
        del self.processes[key]
        folder = self.folders[key]
        ranks = list(ranges.numbers(tuple(folder.launch.here.ranks)))
        now = int(self.cluster.wall())
        folder.result = {
            **failed_result("", at=now, statuses=[(rank, status if rank == ranks[-1] else 0) for rank in ranks]),
            "started_at": process.began_at,
            "user_ms": 7,
            "max_rss_bytes": 1 << 20,
        }
        self.cluster.truth.note_ended(key, self.index, status, by_itself=not process.is_ending)
        if self.agent is not None:
            self.cluster.timeline.after(0.0005, self.agent.stepd_ended, key)

    def _stop_timers(self, process: Process) -> None:
        for timer in (process.end, process.kill):
            if timer is not None:
                timer.cancel()

    def _check_alone(self, key: Key, cores: int, gpus: int) -> None:
        """In the real world too, nothing is used by two runs (one that is being ended may be late)."""
        for other in self.processes.values():
            if other.key[:2] != key[:2] and not other.is_ending:
                overlap = other.cores & cores or other.gpus & gpus
                assert not overlap, f"{self.spec.name}: {other.key} and {key} use the same cores or GPUs"


class Agent:
    """A noded process."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.steps = Steps()
        self.alive = True
        self.started_at = node.cluster.wall()
        self._cluster = node.cluster
        self._rng = node.rng
        self._outbox = Outbox(self._ring)
        self._stream: Stream | None = None
        self._registered = False
        self._blobs: dict[bytes, bytes] = {}
        self._asked: dict[Key, Timer] = {}
        """Steps that the zygote has yet to begin."""
        self._watched: set[Key] = set()

    # Life.

    def open(self) -> None:
        """Take over what a former agent left, and dial."""
        node = self.node
        for key, folder in sorted(node.folders.items()):
            if key in node.processes:
                self._watched.add(key)
                self.steps.recovered(key, None, began=True)
            elif folder.result is not None:
                self.steps.recovered(key, folder.result, began=True)
            elif folder.has_pid:
                self.steps.recovered(key, None, began=True)
                self._watched.add(key)
                self._later(self._rng.uniform(0, 0.2), self.stepd_ended, key)
            else:
                self._carry_out(self.steps.recovered(key, None, began=False))
        self._carry_out(self.steps.all_recovered())
        self._later(self._rng.uniform(0, 0.5), self._dial)

    def die(self) -> None:
        """End; what the zygote had been asked it may still do."""
        self.alive = False
        for key, timer in self._asked.items():
            timer.cancel()
            if self.node.powered and self._rng.random() < 0.5:
                self.node.spawn(key)
        if self._stream is not None:
            self._stream.abandon(DOWN)

    def lose_zygote(self) -> None:
        """The zygote dies: what it had not begun, the next one begins."""
        for key, timer in self._asked.items():
            timer.cancel()
            self._ask(key, 0.3)

    def forget_blobs(self) -> None:
        """Drop what is cached."""
        self._blobs.clear()

    def disconnect(self, *, slowly: bool) -> None:
        """Break the stream."""
        if self._stream is not None:
            self._stream.drop(slowly=slowly)

    def repeat(self, report: node_pb2.Report) -> None:
        """Say again what was said long ago."""
        if self._stream is not None and self._registered:
            self._stream.send(UP, node_pb2.NodeMessage(report=report))

    # The stream.

    def _dial(self) -> None:
        stream = self._cluster.dial(self.node)
        if stream is None:
            self._later(self._rng.uniform(0.5, 3), self._dial)
            return
        self._stream, self._registered = stream, False
        stream.receive[DOWN] = lambda message: self._hear(stream, message)
        stream.ended[DOWN] = lambda: self._hung_up(stream)
        spec = self.node.spec
        register = node_pb2.Register(
            protocol=1,
            name=spec.name,
            hostname=spec.name,
            boot_at=int(self._cluster.wall() - (self._cluster.timeline.seconds - self.node.booted_at)),
            boot_id=f"{spec.name}@{self.node.booted_at}",
            agent_started_at=int(self.started_at),
            cpus=spec.cpus,
            sockets=spec.sockets,
            cores_per_socket=spec.cores_per_socket,
            threads_per_core=spec.threads_per_core,
            memory_mib=spec.memory_mib,
            gpus=spec.gpus,
        )
        for (job_id, run, step_id), running in self.steps.here():
            register.runs.add(job_id=job_id, run=run, step_id=step_id, running=running)
        stream.send(UP, node_pb2.NodeMessage(register=register))

    def _hung_up(self, stream: Stream) -> None:
        if self.alive and self._stream is stream:
            self._stream, self._registered = None, False
            self._later(self._rng.uniform(0.05, 2), self._dial)

    def _hear(self, stream: Stream, message: node_pb2.ControllerMessage) -> None:
        if not self.alive or self._stream is not stream:
            return
        kind = message.WhichOneof("body")
        if kind == "registered":
            self._registered = True
            self._later(HEARTBEAT_SECONDS, self._beat, stream)
            self._outbox.take()
            self._carry_out(self.steps.connected())
        elif kind == "refusal":
            stream.drop()
        elif self._registered:
            self._obey(message.orders)

    def _beat(self, stream: Stream) -> None:
        if self._stream is stream and not stream.broken:
            stream.send(UP, node_pb2.NodeMessage(heartbeat=node_pb2.Heartbeat()))
            self._later(HEARTBEAT_SECONDS, self._beat, stream)

    def _ring(self) -> None:
        self._later(0.0005, self._send)

    def _send(self) -> None:
        if self._stream is None or not self._registered:
            return
        report = self._outbox.take()
        if report is not None:
            self._cluster.heard.append((self.node.index, report))
            self._stream.send(UP, node_pb2.NodeMessage(report=report))

    # Orders, as noded.loops.steps obeys them.

    def _obey(self, orders: node_pb2.Orders) -> None:
        for blob in orders.blobs:
            self._blobs[blob.hash] = blob.data
        steps, carry_out = self.steps, self._carry_out
        for launch in orders.launch:
            self._launch(launch)
        for end in orders.end_run:
            carry_out(steps.end_run((end.job_id, end.run), why=end.why, now=end.now, at=end.at))
        for end_step in orders.end_step:
            key = (end_step.job_id, end_step.run, end_step.step_id)
            carry_out(steps.end_step(key, why=end_step.why, now=end_step.now, at=end_step.at))
        for signal in orders.signal:
            run = (signal.job_id, signal.run)
            carry_out(steps.signal(signal.serial, run, signal.signo, signal.scope, signal.step_id))
        for done in orders.forget:
            carry_out(steps.forget((done.job_id, done.run, done.step_id)))

    def _launch(self, message: node_pb2.Launch) -> None:
        key = (message.job_id, message.run, message.step_id)
        script = b""
        if key not in self.steps:
            missing = [name for name in (message.script, message.environment) if name and name not in self._blobs]
            if missing:
                self._outbox.add().missing_blobs.extend(missing)
                return
            script = self._blobs[message.script] if message.script else b""
            if self._cluster.faults.small_caches:
                self._blobs.clear()
        for instruction in self.steps.launch(key):
            if isinstance(instruction, Begin):
                self.node.folders[key] = Folder(message, script)
            self._carry_out([instruction])

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        add = self._outbox.add
        for instruction in instructions:
            match instruction:
                case Begin(key):
                    self._ask(key, self._rng.uniform(0.0005, 0.01))
                case Acknowledge((job_id, run, step_id)):
                    add().began.add(job_id=job_id, run=run, step_id=step_id)
                case Tell(key, order):
                    self.node.order(key, order)
                case ReportEnded(key, result, job_gone):
                    _add_ended(add(), key, result, job_gone=job_gone)
                case ReportGone((job_id, run)):
                    self._check_gone(job_id, run)
                    add().gone.add(job_id=job_id, run=run)
                case ReportSignalled(serial):
                    add().signalled.append(serial)
                case Remove(key):
                    assert key not in self.node.processes, f"the folder of living {key} is removed"
                    self.node.folders.pop(key, None)

    def _check_gone(self, job_id: int, run: int) -> None:
        left = [key for key in self.node.processes if key[:2] == (job_id, run)]
        assert not left, f"{self.node.spec.name} says that {job_id}.{run} is gone, and {left} live"

    # What happens to steps.

    def _ask(self, key: Key, delay: float) -> None:
        self._asked[key] = self._later(delay, self._zygote_begins, key)

    def _zygote_begins(self, key: Key) -> None:
        del self._asked[key]
        if not self.node.spawn(key):
            self._ended(key, failed_result(CANNOT_START, at=int(self._cluster.wall())))
            return
        self._watched.add(key)
        self._carry_out(self.steps.begun(key))
        if key not in self.node.processes:
            self.stepd_ended(key)

    def stepd_ended(self, key: Key) -> None:
        """A stepd is gone: look for its result."""
        if not self.alive or key not in self._watched:
            return
        self._watched.discard(key)
        folder = self.node.folders[key]
        if folder.result is None:
            ranks = ranges.numbers(tuple(folder.launch.here.ranks))
            lost = failed_result(LOST, at=int(self._cluster.wall()), statuses=[(rank, SIGKILL) for rank in ranks])
            self._ended(key, lost)
        else:
            self._ended(key, folder.result)

    def _ended(self, key: Key, result: Result) -> None:
        self._carry_out(self.steps.ended(key, result))

    def _later(self, delay: float, action: Callable[..., None], *args: object) -> Timer:
        def act() -> None:
            if self.alive:
                action(*args)

        return self._cluster.timeline.after(delay, act)


def _add_ended(report: node_pb2.Report, key: Key, result: Result, *, job_gone: bool) -> None:
    message = report.ended.add(
        job_id=key[0],
        run=key[1],
        step_id=key[2],
        started_at=result["started_at"],
        ended_at=result["ended_at"],
        user_ms=result["user_ms"],
        max_rss_bytes=result["max_rss_bytes"],
        error=result["error"],
        job_gone=job_gone,
    )
    for rank, status in result["tasks"]:
        message.tasks.add(rank=rank, status=status)

"""Carrying out what `noded.core.steps` decides: folders, the zygote, stepds and their ends.

A stepd is watched by its pidfd. Its result is on disk before it ends; one that ends without a result was killed, and
what it had begun is ended here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import marshal
import os
import signal
import socket
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from muster.ids import step_word
from muster.v1 import node_pb2
from noded.core.steps import (
    Acknowledge,
    Begin,
    Instruction,
    Key,
    Order,
    Phase,
    Remove,
    ReportEnded,
    ReportGone,
    ReportSignalled,
    Result,
    Steps,
    Tell,
    failed_result,
)
from noded.launch import remains, stepdir
from noded.launch.blobs import Blobs
from noded.launch.parent import Zygote
from noded.launch.spec import Launch
from noded.launch.watch import Watch
from noded.loops.reports import Outbox
from noded.ports import Cgroups
from noded.services.wire import Surroundings, stepd_launch

log = logging.getLogger("noded.steps")

_SIGKILL = 9
_AGAIN_SECONDS = 0.01
"""A stepd's queue of orders is full: how long until the next try."""
_MOST_TRIES = 1000
_CROWDED_SECONDS = 1.0
"""No descriptor is free: how long until the next try."""
_SPOOL_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ENOENT, errno.ENOTDIR)
"""What does not pass by itself: the node has to be looked at."""


class StepKeeper:
    """All steps of this node."""

    def __init__(self, spool: Path, cgroups: Cgroups, outbox: Outbox, around: Surroundings) -> None:
        self.steps = Steps()
        self.around = around
        self._folder = f"{spool}/steps"
        self._cgroups = cgroups
        self._outbox = outbox
        self._blobs = Blobs()
        self.watch = Watch()
        self._zygote = Zygote(spool, self._begun, self.watch)
        self._launches: dict[Key, node_pb2.Launch] = {}
        """Of steps that are to be written now."""
        self._watched: dict[Key, int] = {}
        """pidfd of each living stepd."""
        self._owners: dict[Key, int] = {}
        """uid of each step."""
        self._waiting: dict[Key, list[asyncio.Future[None]]] = {}
        self._background: set[asyncio.Task[None]] = set()

    @property
    def zygote_pid(self) -> int:
        """The zygote's pid; 0 while there is none."""
        return self._zygote.pid

    async def open(self) -> None:
        """Take over what a former agent left, and start the zygote."""
        os.makedirs(self._folder, mode=0o711, exist_ok=True)
        try:
            stepdir.make_reserve(os.path.dirname(self._folder))
        except OSError as error:
            log.error("no room for the results of steps that end on a full disk: %s", error)
        await self._zygote.wait_for_former()
        self._zygote.start()
        for name in sorted(os.listdir(self._folder)):
            self._recover(name)
        self._carry_out(self.steps.all_recovered())

    async def close(self) -> None:
        """Let everything go; steps live on."""
        for descriptor in self._watched.values():
            self.watch.remove(descriptor)
            os.close(descriptor)
        self._watched.clear()
        for task in tuple(self._background):
            task.cancel()
        self._zygote.close()
        self.watch.close()

    # What the controller orders.

    def end_all(self) -> None:
        """End all steps: the controller knows no node of this name."""
        self._carry_out(self.steps.end_all(why="NODE FAILURE", at=int(time.time())))

    def obey(self, orders: node_pb2.Orders) -> None:
        """Carry out one message of orders."""
        for blob in orders.blobs:
            self._blobs.put(blob.hash, blob.data)
        steps, carry_out = self.steps, self._carry_out
        for launch in orders.launch:
            self._launch(launch)
        for run in orders.end_run:
            carry_out(steps.end_run((run.job_id, run.run), why=run.why, now=run.now, at=run.at))
        for step in orders.end_step:
            key = (step.job_id, step.run, step.step_id)
            carry_out(steps.end_step(key, why=step.why, now=step.now, at=step.at))
        for ordered in orders.signal:
            run_key = (ordered.job_id, ordered.run)
            if ordered.scope in ("suspend", "resume"):
                go_on = ordered.scope == "resume"
                carry_out(steps.suspend(ordered.serial, run_key, go_on=go_on, seconds=ordered.seconds))
                continue
            carry_out(steps.signal(ordered.serial, run_key, ordered.signo, ordered.scope, ordered.step_id))
        for done in orders.forget:
            carry_out(steps.forget((done.job_id, done.run, done.step_id)))

    def connected(self) -> None:
        """Report on a fresh stream what is owed."""
        self._carry_out(self.steps.connected())

    # For step input and output.

    async def attach(self, key: Key, uid: int, connection: socket.socket, greeting: bytes, *, seconds: float) -> str:
        """Hand a connection to a step's stepd, which has a copy of it then.

        Args:
            key: the step.
            uid: who asks; must be the step's owner, or root.
            connection: a stream of frames.
            greeting: sent on it first, once the stepd is known to listen.
            seconds: how long to wait for the step's launch.

        Returns:
            Empty, or a sentence on why not.
        """
        name = f"StepId={key[0]}.{step_word(key[2])}"
        try:
            async with asyncio.timeout(seconds):
                while self.steps.phase(key) in (None, Phase.ORDERED):
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.setdefault(key, []).append(future)
                    await future
        except TimeoutError:
            return f"{name} was not launched here within {seconds:g} s"
        finally:
            if not self._waiting.get(key, [None]):
                del self._waiting[key]
        if uid not in (0, self._owners.get(key)):
            return f"{name} belongs to another user"
        if self.steps.phase(key) is not Phase.RUNNING:
            return f"{name} has ended"
        try:
            with _control(self._path(key)) as control:
                connection.sendall(greeting)
                socket.send_fds(control, [marshal.dumps(("attach",))], [connection.fileno()])
        except OSError as error:
            return f"{name} cannot be reached: {error.strerror or error}"
        return ""

    # Instructions.

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Begin(key):
                    self._begin(key)
                case Acknowledge(key):
                    self._outbox.began(key, int(time.time()))
                case Tell(key, order):
                    self._tell(key, order)
                case ReportEnded(key, result, job_gone):
                    self._outbox.ended(key, result, job_gone=job_gone)
                case ReportGone(run):
                    self._outbox.gone(run)
                case ReportSignalled(serial):
                    self._outbox.signalled(serial)
                case Remove(key):
                    self._remove(key)

    def _launch(self, message: node_pb2.Launch) -> None:
        key = (message.job_id, message.run, message.step_id)
        if key not in self.steps:
            missing = [name for name in (message.script, message.environment) if self._blobs.get(name) is None]
            if missing:
                for name in missing:
                    self._outbox.missing(name)
                return
            self._launches[key] = message
        self._carry_out(self.steps.launch(key))
        self._launches.pop(key, None)

    def _begin(self, key: Key) -> None:
        """Write the step's folder (unless a former agent has) and ask the zygote."""
        folder = self._path(key)
        message = self._launches.get(key)
        if message is not None:
            try:
                self._write(key, folder, message)
            except OSError as error:
                log.error("JobId=%d StepId=%s cannot be begun: %s", key[0], step_word(key[2]), error)
                sentence = f"the step's folder cannot be written: {error}"
                self._ended(
                    key, failed_result(sentence, at=int(time.time()), node_at_fault=error.errno in _SPOOL_FAULTS)
                )
                return
        self._zygote.begin(folder)

    def _write(self, key: Key, folder: str, message: node_pb2.Launch) -> None:
        environment = self._blobs.get(message.environment)
        assert environment is not None
        cgroup = self._cgroups.create(key[0], key[2])
        self._owners[key] = message.uid
        # Somebody may have cleaned the spool.
        os.makedirs(self._folder, mode=0o711, exist_ok=True)
        # Others pass through it to the script; they do not list it.
        os.mkdir(folder, 0o711)
        if message.script:
            script = self._blobs.get(message.script)
            assert script is not None
            descriptor = os.open(
                f"{folder}/{stepdir.SCRIPT}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500
            )
            try:
                _write_all(descriptor, script)
                if message.uid != os.geteuid():
                    os.fchown(descriptor, message.uid, message.gid)
            finally:
                os.close(descriptor)
        stepdir.write(folder, "launch", stepd_launch(message, environment, cgroup, self.around))

    def _tell(self, key: Key, order: Order, tries: int = 0) -> None:
        """Give a stepd an order; one that has gone needs none."""
        if key not in self._watched:
            return
        try:
            with _control(self._path(key)) as control:
                control.send(marshal.dumps(order))
            if order[0] == "end":
                # A job may have stopped its own supervisor, where both are of one user.
                signal.pidfd_send_signal(self._watched[key], signal.SIGCONT)
        except BlockingIOError:
            if tries < _MOST_TRIES:
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._tell, key, order, tries + 1)
            else:
                log.error("JobId=%d StepId=%s does not take its orders", key[0], step_word(key[2]))
        except (ConnectionRefusedError, FileNotFoundError, ProcessLookupError):
            return

    def _remove(self, key: Key) -> None:
        self._owners.pop(key, None)
        try:
            stepdir.remove(self._path(key))
        except OSError as error:
            log.error("cannot remove %s: %s", self._path(key), error)

    # What happens to stepds.

    def _begun(self, folder: str, pid: int) -> None:
        """The zygote says that a step has begun; pid 0: that it had before, or could not be."""
        key = stepdir.key_of(os.path.basename(folder))
        assert key is not None
        if key in self._watched or self.steps.phase(key) is not Phase.ORDERED:
            return
        try:
            if pid == 0:
                pid, _ = stepdir.stepd_of(folder)
            if pid == 0:
                self._ended(key, failed_result("the step's process could not be started", at=int(time.time())))
                return
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._carry_out(self.steps.begun(key))
            self._stepd_ended(key)
            return
        except OSError as error:
            # No descriptor is free. The step lives all the same.
            log.error("JobId=%d StepId=%s cannot be watched yet: %s", key[0], step_word(key[2]), error)
            asyncio.get_running_loop().call_later(_CROWDED_SECONDS, self._begun, folder, pid)
            return
        self._watch(key, descriptor)
        self._carry_out(self.steps.begun(key))
        self._wake(key)

    def _watch(self, key: Key, descriptor: int) -> None:
        self._watched[key] = descriptor
        self.watch.add(descriptor, partial(self._stepd_ended, key))

    def _stepd_ended(self, key: Key) -> None:
        descriptor = self._watched.pop(key, -1)
        if descriptor >= 0:
            self.watch.remove(descriptor)
            os.close(descriptor)
        try:
            result: Result | None = stepdir.read(self._path(key), "result")
        except OSError as error:
            log.error("JobId=%d StepId=%s: its result cannot be read yet: %s", key[0], step_word(key[2]), error)
            asyncio.get_running_loop().call_later(_CROWDED_SECONDS, self._stepd_ended, key)
            return
        if result is not None:
            self._ended(key, result)
            return
        task = asyncio.get_running_loop().create_task(self._lost(key))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _lost(self, key: Key) -> None:
        """A stepd was killed: end what it leaves behind, then say so."""
        name = f"JobId={key[0]} StepId={step_word(key[2])}"
        log.error("%s: its stepd ended without a result: what is left of the step is ended", name)
        self._cgroups.kill(key[0], key[2])
        launch: Launch | None = stepdir.read(self._path(key), "launch")
        if launch is not None:
            await asyncio.to_thread(remains.end, launch)
        self._ended(key, lost_result(launch, "the step's supervisor was killed"))

    def _ended(self, key: Key, result: Result) -> None:
        self._cgroups.remove(key[0], key[2])
        self._carry_out(self.steps.ended(key, result))
        self._wake(key)

    def _wake(self, key: Key) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    # After a restart of the agent.

    def _recover(self, name: str) -> None:
        folder = f"{self._folder}/{name}"
        if stepdir.is_leaving(name):
            stepdir.remove(folder)
            return
        key = stepdir.key_of(name)
        if key is None:
            log.warning("%s is no step's folder: left alone", folder)
            return
        launch: Launch | None = stepdir.read(folder, "launch")
        pid, alive = stepdir.stepd_of(folder)
        if launch is not None:
            self._owners[key] = launch["uid"]
        result: Result | None = stepdir.read(folder, "result")
        if alive and (descriptor := _pidfd_of(folder, pid)) >= 0:
            log.info("JobId=%d StepId=%s: taken over, stepd %d", key[0], step_word(key[2]), pid)
            self._watch(key, descriptor)
            self.steps.recovered(key, None, began=True)
            return
        # It may have ended between the two looks at it.
        result = result or stepdir.read(folder, "result")
        if result is not None:
            self.steps.recovered(key, result, began=True)
        elif pid or os.path.exists(f"{folder}/pid"):
            self.steps.recovered(key, None, began=True)
            self._stepd_ended(key)
        elif launch is not None:
            self._carry_out(self.steps.recovered(key, None, began=False))
        else:
            # The former agent was still writing it: the controller will say again what it wants.
            stepdir.remove(folder)

    def _path(self, key: Key) -> str:
        return f"{self._folder}/{stepdir.name_of(key)}"


def lost_result(launch: Launch | None, error: str) -> Result:
    """Give the result of a step whose stepd was killed: all its tasks count as killed."""
    ranks = launch["ranks"] if launch is not None else [0]
    return failed_result(error, at=int(time.time()), statuses=[(rank, _SIGKILL) for rank in ranks])


class _control:
    """A datagram socket connected to the `ctl` in a step's folder, whose path may be longer than sockets' are."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    def __enter__(self) -> socket.socket:
        try:
            descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._socket.connect(f"/proc/self/fd/{descriptor}/ctl")
            finally:
                os.close(descriptor)
        except OSError:
            self._socket.close()
            raise
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _pidfd_of(folder: str, pid: int) -> int:
    """Open the pidfd of a stepd that was alive; -1 when it has ended since."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    # Its lock, held after the pidfd was opened, says that the pid was not given to another process in between.
    if not stepdir.stepd_of(folder)[1]:
        os.close(descriptor)
        return -1
    return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

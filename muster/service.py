"""The life of a daemon: uvloop, signals, readiness for systemd, one TaskGroup.

A daemon is a coroutine function that gets a `Service`. It starts its loops with `service.start`, calls `ready()` when
it can be used, and waits for `stopping`. The first SIGTERM or SIGINT sets `stopping`; the daemon then finishes what it
is writing and returns. An exception in any task ends the daemon with exit code 1 and its traceback in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine

import uvloop

from muster.errors import MusterError

log = logging.getLogger("service")

GRACE_SECONDS = 20.0
"""How long a stopping daemon may take before its tasks are cancelled."""


class Service:
    """What a daemon's main coroutine gets."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._group = tasks
        self._started: set[asyncio.Task[None]] = set()
        self.stopping = asyncio.Event()
        self._failure: BaseException | None = None

    def start(self, loop: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a long-lived loop; its failure ends the daemon, and the daemon's end cancels it."""
        task = self._group.create_task(loop, name=name)
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return task

    def cancel_loops(self) -> None:
        """Cancel what `start` began and still runs."""
        for task in tuple(self._started):
            task.cancel()

    def ready(self) -> None:
        """Tell systemd (Type=notify) that the daemon can be used; nothing without NOTIFY_SOCKET."""
        _notify(b"READY=1")

    def fail(self, error: BaseException) -> None:
        """End the daemon because of an error noticed outside a task (a callback); call it in the loop's thread."""
        self._failure = self._failure or error
        self.stopping.set()

    @property
    def failure(self) -> BaseException | None:
        """What `fail` was called with first."""
        return self._failure


def run(main: Callable[[Service], Awaitable[None]], *, grace_seconds: float = GRACE_SECONDS) -> int:
    """Run a daemon to its end and give its exit code: 0 stopped by a signal, 1 failed (said in the log)."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_live(main, grace_seconds))


def raise_open_files() -> None:
    """Let this process open as many files as the kernel allows it: each waiting caller holds a connection.

    For daemons that start no jobs, which would inherit it.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # above the kernel's own bound: it stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _live(main: Callable[[Service], Awaitable[None]], grace_seconds: float) -> int:
    loop = asyncio.get_running_loop()
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            service = Service(tasks)
            loop.add_signal_handler(signal.SIGTERM, service.stopping.set)
            loop.add_signal_handler(signal.SIGINT, service.stopping.set)
            loop.add_signal_handler(signal.SIGHUP, _say_not_reloaded)
            body = tasks.create_task(_body(main, service), name="main")
            await service.stopping.wait()
            _notify(b"STOPPING=1")
            # Not awaited itself: its exception is the group's, and would be logged twice.
            _, late = await asyncio.wait([body], timeout=grace_seconds)
            if late:
                service.fail(TimeoutError(f"it did not stop within {grace_seconds:g} s; its tasks are cancelled"))
                body.cancel()
            service.cancel_loops()
    except BaseExceptionGroup as group:
        for error in _leaves(group):
            failure = error
            if isinstance(error, MusterError):
                log.error("%s", error)
            else:
                log.critical("the daemon ends because of a bug", exc_info=error)
    if service.failure is not None:
        failure = failure or service.failure
        log.critical("the daemon ends: %s", service.failure)
    return 0 if failure is None else 1


def _say_not_reloaded() -> None:
    """SIGHUP means a reload by custom, and without a handler the end: neither happens, and the log says so."""
    log.warning("SIGHUP: this release reads its configuration at the start only; restart the daemon for a new one")


async def _body(main: Callable[[Service], Awaitable[None]], service: Service) -> None:
    try:
        await main(service)
    finally:
        service.stopping.set()


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


def _notify(state: bytes) -> None:
    """Speak systemd's notification protocol (sd_notify(3)) without its library."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto(state, address)
    except OSError as error:
        # No reason to end: systemd does by itself what it thinks of a silent daemon.
        log.warning("cannot notify NOTIFY_SOCKET=%s: %s", address.replace("\0", "@"), error)

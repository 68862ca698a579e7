"""The agent's side of the zygote: starts it, asks it for steps, and notices when it is gone. Used inside asyncio.

A zygote that was killed is replaced; requests that it had not answered are looked up on disk (`stepdir`): a folder
with a pid was begun, one without was not and is asked for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import marshal
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from noded.launch import stepdir
from noded.launch.watch import Watch

log = logging.getLogger("noded.zygote")

_LENGTH = struct.Struct("<I")
_ROOT = str(Path(__file__).resolve().parent.parent.parent)
_CODE = (
    "import sys; sys.path[:0] = [sys.argv[1]]; "
    "from noded.launch.zygote import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)

Begun = Callable[[str, int], None]
"""(folder, pid of its stepd); pid 0: it had been begun before."""


class Zygote:
    """One zygote at a time."""

    def __init__(self, spool: Path, begun: Begun, watch: Watch) -> None:
        self._watch = watch
        self._lock_path = spool / "zygote.lock"
        self._begun = begun
        self._asked: dict[str, None] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._out = bytearray()
        self._in = bytearray()
        self._closing = False
        self._lock = -1
        """Descriptor of the lock while it is ours; -1: the zygote has it."""
        self._mark = str(spool)
        """In its command line, so that people see whose zygote (and stepds, which keep the line) a process is."""

    @property
    def pid(self) -> int:
        """The zygote's pid; 0 while there is none."""
        return self._process.pid if self._process else 0

    async def wait_for_former(self) -> None:
        """Return once no zygote of a former agent, and no step that it is just beginning, is left undecided."""
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            await asyncio.sleep(0.02)

    def start(self) -> None:
        """Start the process. The lock is taken before: it is held without a gap from here to the zygote's end."""
        if self._lock < 0:
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # The former zygote's end was read on the socket; its lock goes in the same moment.
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        lock = self._lock
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CODE, _ROOT, str(theirs.fileno()), str(lock), self._mark],
            pass_fds=[theirs.fileno(), lock],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Away from a terminal's signals, and not ended with the agent's process group.
            start_new_session=True,
        )
        theirs.close()
        os.close(lock)
        self._lock = -1
        self._socket = ours
        self._out.clear()
        self._in.clear()
        self._watch.add(ours.fileno(), self._ready)

    def begin(self, folder: str) -> None:
        """Have the step in `folder` begun; `begun` is called with its pid."""
        self._asked[folder] = None
        self._send(folder)

    def close(self) -> None:
        """Let the zygote go; steps that it has begun live on."""
        self._closing = True
        self._let_go()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._process is not None:
            self._process.wait()

    def _send(self, folder: str) -> None:
        if self._socket is None:
            return
        data = marshal.dumps((folder,))
        idle = not self._out
        self._out += _LENGTH.pack(len(data)) + data
        if idle:
            self._write()

    def _ready(self) -> None:
        if self._out:
            self._write()
        self._read()

    def _write(self) -> None:
        assert self._socket is not None
        try:
            while self._out:
                sent = self._socket.send(self._out)
                del self._out[:sent]
        except BlockingIOError:
            self._watch.change(self._socket.fileno(), writable=True)
            return
        except OSError:
            return  # the reading side notices the end and starts another
        self._watch.change(self._socket.fileno(), writable=False)

    def _let_go(self) -> None:
        if self._socket is not None:
            self._watch.remove(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._replace()
            return
        self._in += data
        while len(self._in) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._in)
            if len(self._in) < _LENGTH.size + length:
                return
            folder, pid = marshal.loads(bytes(self._in[_LENGTH.size : _LENGTH.size + length]))
            del self._in[: _LENGTH.size + length]
            if self._asked.pop(folder, 0) is None:
                self._begun(folder, pid)

    def _replace(self) -> None:
        """The zygote is gone (and no child of it is between its fork and its pid file): decide what was asked."""
        assert self._process is not None
        self._let_go()
        if self._closing:
            return
        log.error("the zygote (pid %d) is gone: starting another", self._process.pid)
        self._process.wait()
        self.start()
        for folder in tuple(self._asked):
            pid, _ = stepdir.stepd_of(folder)
            if pid:
                del self._asked[folder]
                self._begun(folder, pid)
            else:
                self._send(folder)

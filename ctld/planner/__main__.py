"""`python -m ctld.planner DESCRIPTOR PARENT NAME`: started by the controller, never by hand.

It has nothing to lose and nobody to answer but the controller: it goes when the socket ends, and the kernel kills it
when the controller dies in the middle of a plan. It gives way to everything else on the host, memory included.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

from ctld.planner.server import Server

_PR_SET_PDEATHSIG = 1
_NICE = 5
_OOM_SCORE = 500
"""When memory runs out, this one goes first: the controller starts another one."""
_BUFFER_BYTES = 1 << 18


def main(argv: list[str]) -> int:
    """Work for the process PARENT on the socket DESCRIPTOR until it goes. NAME only tells planners apart in ps."""
    descriptor, parent = int(argv[1]), int(argv[2])
    # Signals for the daemon's process group are the controller's business: it ends this process when it has ended.
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signo, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return 1
    os.nice(_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    channel = socket.socket(fileno=descriptor)
    gone = contextlib.suppress(BrokenPipeError, ConnectionResetError)
    with gone, open(descriptor, "rb", _BUFFER_BYTES, closefd=False) as stream:
        Server(stream, channel.sendall).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

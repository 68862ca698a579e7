"""The zygote: a small process that has imported what a step needs, and forks a stepd for each.

A fork costs about a millisecond where a new interpreter costs ten. It talks to the agent over one stream socket:
frames of (length, marshalled value); down come (folder,) requests, up go (folder, pid) answers. It has no threads and
loads neither grpc nor asyncio.

Who is gone when: the socket's end is held by the zygote and, until it has written its pid, by each new stepd. So when
the agent reads the end of the stream, every step that was begun has its pid on disk. The same holds for the lock on
`zygote.lock`, for which a restarted agent waits before it looks at the folders. The agent takes the lock and hands it
over: were it taken here, a zygote whose agent was killed just after starting it could begin steps behind the back of
the next agent.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
import signal
import socket
import struct
import sys

from noded.launch import stepd, stepdir

_LENGTH = struct.Struct("<I")


def main(agent_descriptor: int, lock: int) -> None:
    """Serve the agent until it goes; `lock` is the descriptor of the lock, which is held."""
    os.set_inheritable(lock, False)
    agent = socket.socket(fileno=agent_descriptor)
    agent.set_inheritable(False)
    # The kernel reaps for us: nobody waits for a stepd by wait(2).
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Stopping the agent from a terminal must not take the steps' parent with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is loaded now is shared by all children: keep the collector from writing to it.
    gc.collect()
    gc.freeze()
    gc.disable()
    # Memory runs out because of jobs, and should be had back from them; spawn.start undoes this for each task.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"-900")
    buffer = bytearray()
    while True:
        chunk = agent.recv(1 << 16)
        if not chunk:
            return
        buffer += chunk
        answers = bytearray()
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if len(buffer) < _LENGTH.size + length:
                break
            (folder,) = marshal.loads(bytes(buffer[_LENGTH.size : _LENGTH.size + length]))
            del buffer[: _LENGTH.size + length]
            pid = _fork(folder, agent, lock)
            answer = marshal.dumps((folder, pid))
            answers += _LENGTH.pack(len(answer)) + answer
        if answers:
            try:
                agent.sendall(answers)
            except OSError:
                return


def _fork(folder: str, agent: socket.socket, lock: int) -> int:
    """Begin the step in `folder` and give its stepd's pid; 0 when it had been begun before, or cannot be begun.

    The control socket is bound here, so that whoever has the pid can give orders: they wait in it for the stepd.
    """
    if os.path.exists(f"{folder}/pid"):
        return 0
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        # By a relative name: those of sockets are short.
        os.chdir(folder)
        if os.path.lexists("ctl"):
            os.unlink("ctl")  # of a zygote that was killed before it could fork
        control.bind("ctl")
        pid = os.fork()
    except OSError as error:
        print(f"zygote: {folder} cannot be begun: {error}", file=sys.stderr)
        control.close()
        return 0
    if pid:
        control.close()
        return pid
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.setsid()
        claimed = stepdir.claim(folder)
        os.close(lock)
        agent.close()
        stepd.main(folder, control)
        os.close(claimed)
    except BaseException:
        # The agent finds no result and reports the step as lost; what happened goes to the agent's log.
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)

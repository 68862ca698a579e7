"""A client process of the kill -9 test: submits single jobs over open connections, and notes what it was told.

A program of its own (`python kill9_client.py SOCKET COUNT SEED NAME FOLDER STEPS`): users' processes outlive the
daemons. It writes to FOLDER/told.NAME, for each job, `<job name> <code> <job id>` once that was acknowledged, or
`<job name> <code> -` when the connection was lost under the request, so that nobody can say.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import threading
import time

CONNECTIONS = 4
BURST = 20
PAUSE_SECONDS = 1.0

SCRIPT = """#!/bin/sh
line="$SLURM_JOB_ID - ${{SLURM_RESTART_COUNT:-0}} {code}"
echo "$line" >> own/{name}
echo "$line" >> ledger
{body}exit {code}
"""
STEP = """srun -n {tasks} sh -c 'echo "$SLURM_JOB_ID $SLURM_STEP_ID $SLURM_PROCID {code}" >> steps
sleep {nap}
exit {code}' 2>> own/{name}.err
code=$?
[ $code = {code} ] || echo "$SLURM_JOB_ID $code" >> wrong
"""


class Lost(Exception):
    """The connection went while a request was under way."""


class Door:
    """One connection to the daemon's socket, opened anew when it was lost."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket: socket.socket | None = None

    def post(self, target: str, body: bytes) -> tuple[int, bytes]:
        """Send one request; a connection that cannot be made is tried until it can.

        Raises:
            Lost: the request was sent, at least in part, and no answer came.
        """
        while self.socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(60.0)
            try:
                made.connect(self.path)
                self.socket = made
            except OSError:
                made.close()
                time.sleep(0.05)
        head = f"POST {target} HTTP/1.1\r\nHost: muster\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        try:
            self.socket.sendall(head + body)
            return self._receive(self.socket)
        except OSError as error:
            self.socket.close()
            self.socket = None
            raise Lost(str(error)) from error

    def _receive(self, connection: socket.socket) -> tuple[int, bytes]:
        data = b""
        while True:
            got = connection.recv(65536)
            if not got:
                raise ConnectionResetError("closed")
            data += got
            head, found, rest = data.partition(b"\r\n\r\n")
            if found and len(rest) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
                return int(head.split()[1]), rest


def main(path: str, count: int, seed: int, *, name: str, folder: str, steps: int) -> None:
    """Submit the jobs and return when each was answered, or lost."""
    dice = random.Random(seed)
    numbers = iter(range(count))
    told = open(f"{folder}/told.{name}", "a", buffering=1)  # noqa: SIM115 (for the whole process)
    lock = threading.Lock()
    environment = "".join(f"{key}={os.environ[key]}\0" for key in ("PATH", "HOME", "LANG")).encode()

    def next_job() -> tuple[str, int, bytes] | None:
        with lock:
            number = next(numbers, None)
            if number is None:
                return None
            code = dice.choice((0, 0, 0, 1, 3, 7, 255))
            nap = dice.choice((0, 0, 0, 0, 0, 0, 0, 0.2, 0.5, 1, 2))
            job = f"{name}{number}"
            tasks = dice.randint(1, 3)
            fields = {"code": code, "name": job, "nap": nap, "tasks": tasks}
            with_step = number * steps // count != (number + 1) * steps // count
            body = STEP.format(**fields) if with_step else f"sleep {nap}\n" if nap else ""
            script = SCRIPT.format(body=body, **fields).encode()
        request = {
            "job_name": job, "work_dir": folder, "output": "none", "mem": 100, "time_limit": 10,
            "ntasks": tasks if with_step else 1,
        }  # fmt: skip
        if with_step and tasks > 1 and number % 2:
            request["nodes"] = [2, 2]
        text = json.dumps(request).encode()
        return job, code, b"MSTR1 %d %d %d\n" % (len(text), len(script), len(environment)) + text + script + environment

    def serve() -> None:
        door = Door(path)
        sent = 0
        while (job := next_job()) is not None:
            try:
                status, answer = door.post("/v1/jobs", job[2])
            except Lost:
                told.write(f"{job[0]} {job[1]} -\n")
                continue
            if status == 200:
                told.write(f"{job[0]} {job[1]} {json.loads(answer)['job_id']}\n")
            elif status == 503:
                # An agent whose controller is away: whether that had taken it cannot be known.
                told.write(f"{job[0]} {job[1]} -\n")
                time.sleep(0.2)
            else:
                sys.exit(f"{job[0]} was refused: {status} {answer.decode()}")
            sent += 1
            if sent % BURST == 0:
                time.sleep(PAUSE_SECONDS * dice.random() * 2)

    threads = [threading.Thread(target=serve) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        name=sys.argv[4],
        folder=sys.argv[5],
        steps=int(sys.argv[6]),
    )

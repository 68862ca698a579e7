"""Ending what a killed stepd has left behind.

Its tasks end with it (their parent-death signal); what they had begun is found by the variables that every process of
a step inherits. A process that has changed its environment's memory is only found through the step's cgroup.
"""

from __future__ import annotations

import os
import signal
import time

from noded.launch.env import step_number
from noded.launch.spawn import send
from noded.launch.spec import Launch

SECONDS = 60.0
"""How long SIGKILL may take to end what is found."""


def end(launch: Launch) -> bool:
    """Kill the processes of a step until none is found; False when some will not go. Blocks: call it in a thread."""
    wanted = {
        b"SLURM_JOB_ID=%d" % launch["job_id"],
        b"SLURM_STEP_ID=%s" % step_number(launch["step_id"]).encode(),
        b"SLURMD_NODENAME=" + os.fsencode(launch["node_name"]),
        b"MUSTER_SOCKET=" + os.fsencode(launch["socket"]),
    }
    deadline = time.monotonic() + SECONDS
    pause = 0.002
    while found := _find(wanted, launch["uid"]):
        send(found, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(0.1, pause * 2)
    return True


def _find(wanted: set[bytes], uid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != uid:
                continue
            with open(f"/proc/{name}/environ", "rb", buffering=0) as file:
                environment = file.readall()
        except OSError:
            continue
        if wanted <= set(environment.split(b"\0")):
            found.append(int(name))
    return found

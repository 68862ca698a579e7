"""kill -9 at random moments: whatever was acknowledged is found."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from ctld.store.journal import Journal

ROOT = Path(__file__).resolve().parents[4]
ROUNDS = 12

WRITER = """
import asyncio, os, sys
from hashlib import blake2b
from pathlib import Path
from ctld.store.journal import Journal

async def submit(journal, client):
    while True:
        payload = b"client %d behind %d " % (client, journal.last_queued) + bytes(client * 97)
        data = b"#!/bin/sh %d" % journal.last_queued * 200
        number = await journal.append([payload, b"second"], [(blake2b(data, digest_size=16).digest(), data)])
        os.write(1, b"%d\\n" % number)

async def main():
    recovery = Journal.recover(Path(sys.argv[1]))
    for _ in recovery:
        pass
    journal = Journal.start(recovery, segment_bytes=200_000)
    await asyncio.gather(*(submit(journal, client) for client in range(16)))

asyncio.run(main())
"""


def run_and_kill(directory: Path, moment: float) -> list[int]:
    """Write until `moment` seconds after the first acknowledgement, kill -9; returns what was acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert writer.stdout is not None
    pipe = writer.stdout.fileno()
    output = b""
    try:
        assert select.select([pipe], [], [], 30)[0], "the writer acknowledged nothing in 30 s"
        end = time.monotonic() + moment
        while (left := end - time.monotonic()) > 0:
            if select.select([pipe], [], [], left)[0]:
                output += os.read(pipe, 65536)
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        output += writer.stdout.read()
        writer.stdout.close()
        writer.wait()
    return [int(line) for line in output.split(b"\n")[:-1]]


def test_every_acknowledged_event_survives_kill_9(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    acknowledged: list[int] = []
    for _ in range(ROUNDS):
        acknowledged += run_and_kill(tmp_path, draw.uniform(0.0, 0.15))
        recovery = Journal.recover(tmp_path)
        found = dict(recovery)
        recovery.close()
        assert list(found) == list(range(1, len(found) + 1))
        assert len(found) % 2 == 0, "half of an append came back"
        missing = [number for number in acknowledged if found.get(number) != b"second"]
        assert not missing, f"seed {seed}: acknowledged but lost: {missing[:10]}"
        assert all(found[n].startswith(b"client") for n in range(1, len(found), 2))
    assert len(acknowledged) == len(set(acknowledged)) > ROUNDS

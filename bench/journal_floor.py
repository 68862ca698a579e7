"""How near the journal comes to the disk: 16 concurrent appends of 6 KiB against a bare append+fdatasync loop.

    python bench/journal_floor.py [--seconds 3] [--dir FOLDER]

Prints the bare loop (4 KiB, one at a time), acknowledged appends a second, their ratio (the bar for a submission is
0.25), and the CPU of one append call in the loop.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from hashlib import blake2b
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ctld.store.blobs import BlobStore
from ctld.store.journal import Journal

CONNECTIONS = 16


def bare_loop(folder: Path, seconds: float) -> float:
    """Appends of 4 KiB a second, each synced."""
    fd = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    data = bytes(4096)
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        os.write(fd, data)
        os.fdatasync(fd)
        done += 1
    os.close(fd)
    return done / (time.perf_counter() - begun)


async def journal_rate(folder: Path, seconds: float) -> float:
    """Acknowledged appends a second, each of a 200-byte event, a 2 KiB script and a 4 KiB environment of its own."""
    blobs = BlobStore(folder)
    recovery = Journal.recover(folder, on_blob=blobs.placed)
    for _ in recovery:
        pass
    journal = Journal.start(recovery)
    journal.on_durable(blobs.durable)
    end = time.perf_counter() + seconds
    done = 0

    async def submit(client: int) -> None:
        nonlocal done
        serial = 0
        script, environment, event = os.urandom(2040), os.urandom(4088), os.urandom(200)
        while time.perf_counter() < end:
            serial += 1
            suffix = b"%03d%05d" % (client, serial)
            records = [blobs.put(script + suffix)[1], blobs.put(environment + suffix)[1]]
            await journal.append([event], [record for record in records if record])
            done += 1

    begun = time.perf_counter()
    await asyncio.gather(*(submit(client) for client in range(CONNECTIONS)))
    rate = done / (time.perf_counter() - begun)
    await journal.close()
    blobs.close()
    return rate


async def append_cost(folder: Path, calls: int) -> tuple[float, float]:
    """Microseconds of CPU of one append in the loop: of an event alone, and with 2 + 4 KiB of blobs."""
    recovery = Journal.recover(folder)
    for _ in recovery:
        pass
    journal = Journal.start(recovery)
    script, environment = os.urandom(2048), os.urandom(4096)
    pair = [(blake2b(data, digest_size=16).digest(), data) for data in (script, environment)]
    costs = []
    for blobs in ((), pair):
        spent = 0.0
        for _ in range(calls // 100):
            begun = time.thread_time()
            for _ in range(100):
                written = journal.append([script[:200]], blobs)
            spent += time.thread_time() - begun
            await written
        costs.append(spent / calls * 1e6)
    await journal.close()
    return costs[0], costs[1]


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=3.0)
    asked.add_argument("--dir", default=None, help="where to write (default: the temporary folder)")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        bare = bare_loop(Path(folder), options.seconds)
        rate = asyncio.run(journal_rate(Path(folder) / "journal", options.seconds))
        bare = max(bare, bare_loop(Path(folder), options.seconds))
        alone, with_blobs = asyncio.run(append_cost(Path(folder) / "cost", 20_000))
    print(f"bare 4 KiB append+fdatasync  {bare:9.0f} /s ({1000 / bare:.3f} ms)")
    print(f"16 x 6 KiB appends           {rate:9.0f} /s")
    print(f"ratio                        {rate / bare:9.2f}")
    print(f"append, event of 200 B       {alone:9.1f} us CPU")
    print(f"append, with 2 + 4 KiB blobs {with_blobs:9.1f} us CPU")


if __name__ == "__main__":
    main()

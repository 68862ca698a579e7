"""What the core's state holds of memory: a mix of nodes, pending and running jobs, replayed from its events.

Two processes: one makes the mix and writes its events as the journal has them, the other, fresh, reads and applies
them one by one, so that what jobs share is only what the product shares by itself. Each job has a specification of its
own, with its own name, script and environment, as one of some 200 users who submit from a few folders each. What counts
is by how much the resident memory of that process grows.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from bench import foreseen, mix
from bench.measure import ROOT, Taken, note, rounded, rss_bytes
from ctld.core import events
from ctld.core.accounts import Association
from ctld.core.apply import apply
from ctld.core.decide.numbering import first_priority
from ctld.core.model import Job, JobSpec
from ctld.core.state import State
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import JobId, UnixTime
from tests.builders import NOON
from tests.placing import everywhere

MB = 1_000_000
USERS = 5 * mix.ACCOUNTS
_LENGTH = struct.Struct("<II")
_SEED = 5


def core_memory(nodes: int, pending: int) -> Taken:
    """MB that the state takes; beside it what the first pass makes for itself, and CPU time a submission."""
    with tempfile.NamedTemporaryFile(prefix="muster-events") as file:
        made = foreseen.real(mix.made(nodes, pending))
        running = len(made.running)
        for event, priority in _history(made):
            payload = events.encode(event)
            file.write(_LENGTH.pack(len(payload), priority) + payload)
        file.flush()
        note(f"{nodes} nodes, {pending} pending, {running} running")
        done = subprocess.run(
            [sys.executable, "-m", "bench.core_memory", file.name], cwd=ROOT, capture_output=True, text=True, check=True
        )
    found: dict[str, float] = json.loads(done.stdout)
    if (found["pending"], found["running"]) != (pending, running):
        raise SystemExit(f"bench: {found} is another state than the one of {pending} pending and {running} running")
    return Taken(rounded(found.pop("mb")), 0.0, {name: rounded(value) for name, value in found.items()})


def _history(state: State) -> Iterator[tuple[events.Event, int]]:
    """Give the events that lead to this state, those of running jobs first, with the priority computed for the job
    that comes with one (0: none does)."""
    at, dice = UnixTime(NOON - 7 * 86_400), random.Random(_SEED)
    specs = tuple(node.spec for node in state.nodes)
    yield events.ConfigApplied(at, state.settings, specs, tuple(state.partitions.values())), 0
    rows = dict(state.accounts.associations)
    for user in range(USERS):
        account = user % mix.ACCOUNTS
        number = 2 + 2 * mix.ACCOUNTS + user
        rows[number] = Association(number, f"a{account}", 2 + account, f"u{account}-{user // mix.ACCOUNTS}")
    yield events.AccountsApplied(at, tuple(rows.values()), tuple(state.accounts.qos.values())), 0
    started = sorted(state.running, key=lambda job_id: state.jobs[job_id].started_at)
    for number, job_id in enumerate([*started, *state.queue], 1):
        job = state.jobs[job_id]
        at = UnixTime(min(max(at, NOON - 2 * 86_400 + number), job.started_at or NOON))
        yield events.JobSubmitted(at, _submitted(dice, number, job, at)), job.priority
        if job.alloc is not None:
            yield events.JobStarted(job.started_at, JobId(number), job.alloc, job.limit_seconds), 0


def _submitted(dice: random.Random, number: int, job: Job, at: UnixTime) -> Job:
    """Give a job of the mix as sbatch brings it."""
    spec, user = job.spec, dice.randrange(USERS // mix.ACCOUNTS)
    name, project = f"{spec.user}-{user}", dice.randrange(4)
    uid = spec.uid + mix.ACCOUNTS * user
    request, memory = spec.request, max(0, spec.request.memory_per_cpu_mib)
    home = f"/home/{name}"
    asked = JobSpec(
        name=f"simulate-{number}",
        uid=uid,
        gid=uid,
        user=name,
        group=name,
        work_dir=f"{home}/project{project}",
        request=request,
        partitions=spec.partitions,
        account=spec.account,
        script=sha256(b"script %d" % number).digest(),
        environment=sha256(b"environment %d" % number).digest(),
        std_out=f"{home}/project{project}/%x-%j.out",
        command=f"{home}/project{project}/run.sh",
        submit_line=f"sbatch --partition={spec.partitions[0]} --cpus-per-task={request.cpus_per_task} run.sh",
        submit_host=f"login{1 + user % 4}",
        sid=10_000 + uid,
        time_limit_minutes=job.limit_seconds // 60,
        rlimits={"nofile": 1024, "stack": 8_388_608, "core": 0},
        echo={"SLURM_CPUS_PER_TASK": str(request.cpus_per_task), "SLURM_MEM_PER_CPU": str(memory)},
    )
    return Job(JobId(number), asked, at, first_priority(number, 0), eligible_at=at, limit_seconds=job.limit_seconds)


def _measure(path: Path) -> dict[str, float]:
    """Apply the events of a file and give what that took."""
    trim = ctypes.CDLL(None).malloc_trim
    gc.collect()
    trim(0)
    before = rss_bytes(os.getpid())
    state, took = State(), 0.0
    priorities: dict[int, int] = {}
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            length, priority = _LENGTH.unpack(head)
            event = events.decode(file.read(length))
            begin = time.process_time()
            apply(state, event)
            if priority and isinstance(event, events.JobSubmitted):
                took += time.process_time() - begin
                priorities[event.job.id] = priority
    state.queue.reprioritise(priorities)
    del event, priorities
    gc.collect()
    trim(0)
    grown = rss_bytes(os.getpid()) - before
    begin = time.process_time()
    memory = PlanMemory()
    plan(state, UnixTime(NOON), reachable=everywhere(state), memory=memory)
    planned = time.process_time() - begin
    gc.collect()
    trim(0)
    return {
        "mb": grown / MB,
        "bytes_a_job": grown / max(1, len(state.jobs)),
        "pass_mb": (rss_bytes(os.getpid()) - before - grown) / MB,
        "pass_s": planned,
        "us_a_submission": took * 1e6 / max(1, len(state.jobs)),
        "pending": len(state.queue),
        "running": len(state.running),
        "classes": len(state.queue.classes),
    }


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]))))

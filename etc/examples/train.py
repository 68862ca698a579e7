"""A small, real data-parallel training program that needs nothing but Python: the body of llm-pretrain.sbatch.

Every rank computes the gradients of its share of a batch, the ranks add them up over TCP, and all take the same
step; rank 0 writes checkpoints. It learns a linear function of eight numbers, so it is done in seconds, but its
shape is that of a large training run under srun:

* The ranks find each other at MASTER_ADDR:MASTER_PORT, from SLURM_PROCID, SLURM_NTASKS and SLURM_JOB_ID.
* A checkpoint is on disk whole or not at all, and a restarted run goes on from the latest one.
* When the batch script touches CKPT_DIR/checkpoint-now, all ranks stop together after writing a checkpoint.

The sums travel as whole numbers (fixed point), and whole numbers add up the same in any order: four ranks reach
exactly the weights that one rank reaches.

Exit codes, so that a batch script can act on them:
    0    trained to the last step
    2    wrong options or environment
    3    the ranks did not find each other in time
    4    a rank was lost in the middle (srun's message names the one that failed first)
    5    the checkpoint directory cannot be read or written
    75   stopped early, with a checkpoint: start again to go on (rank 0 only; the others end with 0, so that
         `srun --kill-on-bad-exit` has nobody to kill)
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

DONE, USAGE, NO_RENDEZVOUS, LOST_RANK, NO_CHECKPOINT, STOPPED = 0, 2, 3, 4, 5, 75

FEATURES = 8
BATCH = 64  # samples a step, shared out among the ranks; the same whatever the number of ranks
LEARNING_RATE = 0.05
TRUTH = [0.5, -1.25, 2.0, 0.75, -0.5, 1.5, -2.0, 0.25]  # what the training should find
FIXED_POINT = 2**32

HELLO = struct.Struct("!8sqII")  # magic, job id, rank, ranks
START = struct.Struct(f"!q{FEATURES}d")  # the step to go on from, and the weights
SUMS = struct.Struct(f"!{FEATURES + 1}q")  # gradients and loss of some samples, added up
VERDICT = struct.Struct(f"!B{FEATURES + 1}q")  # go on, stop or lost; then the sums of all, or the lost rank
MAGIC = b"train-01"
GO, STOP, LOST = 1, 2, 3
KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class World:
    """Who this process is among the ranks, and where they meet."""

    rank: int
    ranks: int
    job_id: int
    node: str
    master: str
    port: int


@dataclass
class Model:
    """What a checkpoint holds: the number of steps taken, and the weights after them."""

    step: int
    weights: list[float]


class Failed(Exception):
    """Ends this rank with one sentence and an exit code."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def main(argv: list[str]) -> int:
    """Train, and return the exit code that the docstring above lists."""
    asked = parse(argv)
    try:
        world = read_world()
    except Failed as failed:
        print(f"train.py: {failed}", file=sys.stderr)
        return failed.code
    try:
        return train(world, asked)
    except Failed as failed:
        say(world, str(failed))
        return failed.code


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="train.py", description="Train a tiny model on all ranks of a job step.")
    parser.add_argument("--ckpt-dir", type=Path, default=Path("checkpoints"), help="where checkpoints are kept")
    parser.add_argument("--resume-from-latest", action="store_true", help="go on from the newest good checkpoint")
    parser.add_argument("--steps", type=int, default=30, help="steps in all (default: 30)")
    parser.add_argument(
        "--step-seconds", type=float, default=0.05, help="least time a step takes, as if the model were large"
    )
    parser.add_argument("--ckpt-every", type=int, default=10, help="steps between checkpoints (default: 10)")
    parser.add_argument("--rendezvous-seconds", type=float, default=60, help="how long the ranks wait to meet")
    parser.add_argument("--lost-seconds", type=float, default=120, help="silence after which a rank is lost")
    asked = parser.parse_args(argv)
    if asked.steps < 1 or asked.ckpt_every < 1 or asked.step_seconds < 0:
        parser.error("--steps and --ckpt-every must be at least 1, --step-seconds at least 0")
    if asked.rendezvous_seconds <= 0 or asked.lost_seconds <= 0:
        parser.error("--rendezvous-seconds and --lost-seconds must be above 0")
    return asked


def read_world() -> World:
    """Read the rank's place from what srun sets; without srun this is a run of one rank.

    Raises:
        Failed: a variable is not a whole number, or the rank is not below the number of ranks.
    """

    def number(name: str, default: int) -> int:
        text = os.environ.get(name, "") or str(default)
        if not text.isdecimal():
            raise Failed(USAGE, f"{name}={text!r} is not a whole number")
        return int(text)

    rank, ranks, job_id = number("SLURM_PROCID", 0), number("SLURM_NTASKS", 1), number("SLURM_JOB_ID", 0)
    if rank >= ranks:
        raise Failed(USAGE, f"SLURM_PROCID={rank} is not below SLURM_NTASKS={ranks}: start me with srun")
    return World(
        rank=rank,
        ranks=ranks,
        job_id=job_id,
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        master=os.environ.get("MASTER_ADDR", ""),
        # Two jobs on one host need two ports; below 32768 no outgoing connection takes one by chance.
        port=number("MASTER_PORT", 12000 + job_id % 20000),
    )


def train(world: World, asked: argparse.Namespace) -> int:
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    say(
        world,
        f"process {os.getpid()} is number {os.environ.get('SLURM_LOCALID', '0')} on node"
        f" {os.environ.get('SLURM_NODEID', '0')}, " + (f"GPUs {gpus}" if gpus else "no GPU"),
    )
    if world.rank == 0:
        return lead(world, asked)
    return follow(world, asked)


def lead(world: World, asked: argparse.Namespace) -> int:
    """Be rank 0: gather every rank's sums, tell all the result, keep the checkpoints."""
    stop_file: Path = asked.ckpt_dir / "checkpoint-now"
    try:
        asked.ckpt_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(NO_CHECKPOINT, f"cannot use the checkpoint directory: {error}") from error
    model = latest_checkpoint(world, asked.ckpt_dir) if asked.resume_from_latest else None
    if model is None:
        model = Model(0, [0.0] * FEATURES)
        say(world, "starts from the beginning")
    others = gather_ranks(world, asked)
    start = START.pack(model.step, *model.weights)
    for rank, link in others.items():
        try:
            link.sendall(start)
        except OSError as error:
            raise Failed(NO_RENDEZVOUS, f"rank {rank} went away before the first step ({error})") from error
    while model.step < asked.steps:
        began = time.monotonic()
        sums = sums_of_share(model, world)
        for rank, link in others.items():
            theirs = SUMS.unpack(receive(others, rank, link, SUMS.size))
            sums = [mine + their for mine, their in zip(sums, theirs, strict=True)]
        loss = take_step(model, sums)
        stop = stop_file.exists()
        if stop or model.step % asked.ckpt_every == 0 or model.step == asked.steps:
            say(world, f"step {model.step}/{asked.steps}  loss {loss:.6f}")
            save_checkpoint(world, asked.ckpt_dir, model, loss)
        if stop:
            stop_file.unlink(missing_ok=True)  # done as asked; the run that goes on from here is not asked again
        pause(began, asked.step_seconds)
        verdict = VERDICT.pack(STOP if stop else GO, *sums)
        for rank, link in others.items():
            send(others, rank, link, verdict)
        if stop and model.step < asked.steps:
            for link in others.values():
                wait_for_the_end_of(link)
            say(world, f"was asked to stop; step {model.step} is safe, exit code {STOPPED}")
            return STOPPED
    worst = max(abs(found - true) for found, true in zip(model.weights, TRUTH, strict=True))
    say(world, f"trained: {model.step} steps, every weight within {worst:.3f} of the truth")
    return DONE


def follow(world: World, asked: argparse.Namespace) -> int:
    """Be any other rank: send the sums of the own share, take the step that all take."""
    link = meet_leader(world, asked)
    start = START.unpack(hear(link, START.size, NO_RENDEZVOUS))
    model = Model(start[0], list(start[1:]))
    while model.step < asked.steps:
        began = time.monotonic()
        share = SUMS.pack(*sums_of_share(model, world))
        pause(began, asked.step_seconds)
        try:
            link.sendall(share)
        except OSError:
            pass  # rank 0 closed the line; what it said last is still to be read and tells why
        kind, *sums = VERDICT.unpack(hear(link, VERDICT.size, LOST_RANK))
        if kind == LOST:
            raise Failed(LOST_RANK, f"rank {sums[0]} was lost, says rank 0; giving up")
        take_step(model, sums)
        if kind == STOP:
            break
    say(world, f"leaves after step {model.step}")
    sys.stdout.flush()
    # The kernel closes the line only now, with this process as good as gone: rank 0 waits for that before it ends
    # with STOPPED, and srun, which then kills whoever is left, finds nobody.
    os._exit(DONE)


# ---- the model ---------------------------------------------------------------------------------------------------


def sums_of_share(model: Model, world: World) -> list[int]:
    """Add up gradients and squared error over this rank's samples of the step, in fixed point."""
    sums = [0] * (FEATURES + 1)
    for sample in range(world.rank, BATCH, world.ranks):
        draw = random.Random(model.step * BATCH + sample)  # each sample is the same for whoever computes it
        inputs = [draw.uniform(-1, 1) for _ in range(FEATURES)]
        target = sum(true * x for true, x in zip(TRUTH, inputs, strict=True)) + draw.gauss(0, 0.01)
        error = sum(weight * x for weight, x in zip(model.weights, inputs, strict=True)) - target
        for index, x in enumerate(inputs):
            sums[index] += round(2 * error * x * FIXED_POINT)
        sums[FEATURES] += round(error * error * FIXED_POINT)
    return sums


def take_step(model: Model, sums: list[int]) -> float:
    """Move the weights against the mean gradient, in place, and return the mean squared error before it."""
    for index in range(FEATURES):
        model.weights[index] -= LEARNING_RATE * FEATURES * sums[index] / FIXED_POINT / BATCH
    model.step += 1
    return sums[FEATURES] / FIXED_POINT / BATCH


def pause(began: float, seconds: float) -> None:
    time.sleep(max(0.0, began + seconds - time.monotonic()))


# ---- checkpoints -------------------------------------------------------------------------------------------------


def save_checkpoint(world: World, folder: Path, model: Model, loss: float) -> None:
    """Write the model so that a crash at any instant leaves the old checkpoint or the new one.

    Raises:
        Failed: the directory cannot be written.
    """
    target = folder / f"step-{model.step:08d}.json"
    draft = folder / f".{target.name}.{os.getpid()}"
    content = {"step": model.step, "loss": loss, "weights": [weight.hex() for weight in model.weights]}
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)  # without it the new name may be lost with the power
        finally:
            os.close(directory)
        for old in sorted(folder.glob("step-*.json"))[:-KEPT_CHECKPOINTS]:
            old.unlink()
    except OSError as error:
        raise Failed(NO_CHECKPOINT, f"cannot write a checkpoint: {error}") from error
    say(world, f"wrote {target}")


def latest_checkpoint(world: World, folder: Path) -> Model | None:
    """Load the newest checkpoint that is whole, or None; a damaged one is named and passed over."""
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            model = Model(int(content["step"]), [float.fromhex(weight) for weight in content["weights"]])
            if len(model.weights) != FEATURES:
                raise ValueError(f"it has {len(model.weights)} weights, not {FEATURES}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            say(world, f"passes over {path}: {error}")
            continue
        say(world, f"resumes from {path}, step {model.step}")
        return model
    return None


# ---- the ranks and their lines -----------------------------------------------------------------------------------


def master_address(world: World) -> str:
    """Give the address where rank 0 listens.

    The nodes of a demo cluster all live on this host and no name service knows them; then rank 0 is where srun is.
    """
    if world.master:
        try:
            return str(socket.getaddrinfo(world.master, world.port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
        except OSError:
            pass
    fallback = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or "127.0.0.1"
    if world.ranks > 1:
        why = f"MASTER_ADDR={world.master} does not resolve" if world.master else "MASTER_ADDR is not set"
        say(world, f"{why}, so the ranks meet at {fallback}")
    return fallback


def gather_ranks(world: World, asked: argparse.Namespace) -> dict[int, socket.socket]:
    """Wait until every other rank has connected; the result is in the order of the ranks."""
    others: dict[int, socket.socket] = {}
    if world.ranks == 1:
        return others
    address = master_address(world)
    deadline = time.monotonic() + asked.rendezvous_seconds
    # A host may know its own name as 127.0.1.1 while the others know its real address, so only a rendezvous that
    # can have no other host in it listens on loopback alone.
    here = address if address == "127.0.0.1" else ""
    try:
        listener = socket.create_server((here, world.port), backlog=world.ranks)
    except OSError as error:
        raise Failed(NO_RENDEZVOUS, f"cannot listen on port {world.port}: {error}; set MASTER_PORT") from error
    with listener:
        say(world, f"waits for {world.ranks - 1} ranks on port {world.port}")
        while len(others) < world.ranks - 1:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                link, peer = listener.accept()
            except TimeoutError:
                missing = [rank for rank in range(1, world.ranks) if rank not in others]
                raise Failed(
                    NO_RENDEZVOUS, f"ranks {missing} did not come within {asked.rendezvous_seconds:g} s"
                ) from None
            rank = greet(world, link, deadline)
            if rank is None or rank in others:
                say(world, f"turns away a stranger from {peer[0]}")
                link.close()
                continue
            tune(link, asked.lost_seconds)
            others[rank] = link
    say(world, f"all {world.ranks} ranks are here")
    return dict(sorted(others.items()))


def greet(world: World, link: socket.socket, deadline: float) -> int | None:
    """Read who connected; None if it is not a rank of this job."""
    try:
        link.settimeout(min(5.0, max(0.001, deadline - time.monotonic())))
        magic, job_id, rank, ranks = HELLO.unpack(read_exactly(link, HELLO.size))
    except OSError:
        return None
    ours = magic == MAGIC and job_id == world.job_id and ranks == world.ranks and 0 < rank < ranks
    return int(rank) if ours else None


def meet_leader(world: World, asked: argparse.Namespace) -> socket.socket:
    """Connect to rank 0, which may start later than this rank."""
    address = master_address(world)
    deadline = time.monotonic() + asked.rendezvous_seconds
    while True:
        try:
            link = socket.create_connection((address, world.port), timeout=5)
            link.sendall(HELLO.pack(MAGIC, world.job_id, world.rank, world.ranks))
        except OSError as error:
            if time.monotonic() > deadline:
                raise Failed(NO_RENDEZVOUS, f"no rank 0 at {address}:{world.port}: {error}") from error
            time.sleep(0.05)
        else:
            tune(link, asked.lost_seconds)
            return link


def tune(link: socket.socket, lost_seconds: float) -> None:
    link.settimeout(lost_seconds)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def read_exactly(link: socket.socket, size: int) -> bytes:
    """Read `size` bytes; the end of the line before that is an OSError, like every other loss."""
    content = b""
    while len(content) < size:
        part = link.recv(size - len(content))
        if not part:
            raise ConnectionResetError("the other side is gone")
        content += part
    return content


def receive(others: dict[int, socket.socket], rank: int, link: socket.socket, size: int) -> bytes:
    """Read from one rank, as rank 0; if it is gone, tell the others and give up."""
    try:
        return read_exactly(link, size)
    except OSError as error:
        give_up(others, rank, error)


def send(others: dict[int, socket.socket], rank: int, link: socket.socket, content: bytes) -> None:
    try:
        link.sendall(content)
    except OSError as error:
        give_up(others, rank, error)


def give_up(others: dict[int, socket.socket], lost: int, error: OSError) -> NoReturn:
    for link in others.values():
        try:
            link.sendall(VERDICT.pack(LOST, lost, *[0] * FEATURES))
        except OSError:
            continue  # this one is gone too, and needs no telling
    raise Failed(LOST_RANK, f"rank {lost} is lost ({error}); giving up")


def hear(link: socket.socket, size: int, code: int) -> bytes:
    """Read from rank 0; if it is gone, end with exit code `code`."""
    try:
        return read_exactly(link, size)
    except OSError as error:
        raise Failed(code, f"rank 0 is lost ({error}); giving up") from error


def wait_for_the_end_of(link: socket.socket) -> None:
    try:
        link.recv(1)
    except OSError:
        return  # an end by reset is an end


def say(world: World, text: str) -> None:
    sys.stdout.write(f"[rank {world.rank}/{world.ranks} on {world.node}] {text}\n")  # one write: lines stay whole
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

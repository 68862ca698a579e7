"""The example training program with real processes: it learns, resumes, stops when asked, and fails out loud."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "etc" / "examples"
DONE, USAGE, NO_RENDEZVOUS, LOST_RANK, NO_CHECKPOINT, STOPPED = 0, 2, 3, 4, 5, 75

Rank = subprocess.Popen[str]
Start = Callable[..., list[Rank]]


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Start]:
    """Start ranks as srun would; whatever still runs when the test ends is killed."""
    running: list[Rank] = []

    def start_ranks(*options: str, ranks: int = 4, only: range | None = None, master: str = "127.0.0.1") -> list[Rank]:
        started = []
        for rank in only or range(ranks):
            environment = {
                "PATH": os.environ["PATH"],
                "SLURM_PROCID": str(rank),
                "SLURM_NTASKS": str(ranks),
                "SLURM_JOB_ID": "42",
                "SLURM_LOCALID": str(rank % 2),
                "SLURM_NODEID": str(rank // 2),
                "SLURMD_NODENAME": f"node{rank // 2 + 1}",
                "MASTER_ADDR": master,
                "MASTER_PORT": str(port),
            }
            command = [sys.executable, str(EXAMPLES / "train.py"), "--step-seconds=0", *options]
            started.append(
                subprocess.Popen(
                    command, env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
            )
        running.extend(started)
        return started

    yield start_ranks
    for process in running:
        process.kill()
        process.communicate()


def ends(ranks: list[Rank]) -> list[tuple[int, str]]:
    """Wait for all, and give exit code and output of each."""
    outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs, strict=True)]


def checkpoint(folder: Path, step: int) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / f"step-{step:08d}.json").read_text())
    return content


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_four_ranks_reach_exactly_the_weights_of_one(tmp_path: Path, start: Start) -> None:
    many = ends(start("--ckpt-dir=many"))
    assert [code for code, _ in many] == [DONE] * 4, many
    assert ends(start("--ckpt-dir=one", ranks=1))[0][0] == DONE
    assert checkpoint(tmp_path / "many", 30) == checkpoint(tmp_path / "one", 30)
    assert "trained: 30 steps, every weight within 0.001 of the truth" in many[0][1]
    assert "[rank 3/4 on node2] process" in many[3][1]


def test_a_resumed_run_ends_like_one_that_was_never_interrupted(tmp_path: Path, start: Start) -> None:
    ends(start("--ckpt-dir=whole", "--steps=30"))
    ends(start("--ckpt-dir=parts", "--steps=20"))
    resumed = ends(start("--ckpt-dir=parts", "--steps=30", "--resume-from-latest"))
    assert "resumes from parts/step-00000020.json, step 20" in resumed[0][1]
    assert checkpoint(tmp_path / "parts", 30) == checkpoint(tmp_path / "whole", 30)


def test_a_killed_rank_ends_the_others_with_code_4(start: Start) -> None:
    ranks = start("--ckpt-dir=ckpt", "--steps=100000", "--step-seconds=0.01")
    assert ranks[0].stdout is not None
    while "step 10/" not in ranks[0].stdout.readline():
        assert ranks[0].poll() is None
    ranks[2].kill()
    ended = ends(ranks)
    assert [code for code, _ in ended] == [LOST_RANK, LOST_RANK, -9, LOST_RANK]
    assert "rank 2 is lost" in ended[0][1]
    assert "rank 2 was lost, says rank 0" in ended[3][1]


def test_a_killed_rank_0_ends_the_others_with_code_4(start: Start) -> None:
    ranks = start("--ckpt-dir=ckpt", "--steps=100000", "--step-seconds=0.01")
    assert ranks[0].stdout is not None
    while "step 10/" not in ranks[0].stdout.readline():
        assert ranks[0].poll() is None
    ranks[0].kill()
    assert [code for code, _ in ends(ranks)] == [-9, LOST_RANK, LOST_RANK, LOST_RANK]


def test_the_file_of_the_trap_stops_all_ranks_at_a_checkpoint(tmp_path: Path, start: Start) -> None:
    ranks = start("--ckpt-dir=ckpt", "--steps=100000", "--ckpt-every=100000", "--step-seconds=0.01")
    assert ranks[0].stdout is not None
    while "ranks are here" not in ranks[0].stdout.readline():
        assert ranks[0].poll() is None
    asked = tmp_path / "ckpt" / "checkpoint-now"
    asked.touch()
    ended = ends(ranks)
    assert [code for code, _ in ended] == [STOPPED, DONE, DONE, DONE], ended
    assert not asked.exists()
    assert len(list((tmp_path / "ckpt").glob("step-*.json"))) == 1
    more = ends(start("--ckpt-dir=ckpt", "--steps=1", "--resume-from-latest"))
    assert [code for code, _ in more] == [DONE] * 4
    assert "resumes from ckpt/step-" in more[0][1]


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path: Path, start: Start) -> None:
    ends(start("--ckpt-dir=ckpt", "--steps=20", ranks=1))
    newest = tmp_path / "ckpt" / "step-00000020.json"
    newest.write_bytes(newest.read_bytes()[:40])
    (_, output) = ends(start("--ckpt-dir=ckpt", "--resume-from-latest", ranks=1))[0]
    assert "passes over ckpt/step-00000020.json" in output
    assert "resumes from ckpt/step-00000010.json, step 10" in output


def test_ranks_that_do_not_all_come_end_with_code_3(start: Start) -> None:
    ended = ends(start("--rendezvous-seconds=1", only=range(3)))
    assert [code for code, _ in ended] == [NO_RENDEZVOUS] * 3, ended
    assert "ranks [3] did not come within 1 s" in ended[0][1]


def test_a_rank_0_that_never_starts_ends_the_others_with_code_3(start: Start) -> None:
    ended = ends(start("--rendezvous-seconds=0.5", only=range(1, 3)))
    assert [code for code, _ in ended] == [NO_RENDEZVOUS] * 2, ended


def test_a_master_that_no_name_service_knows_is_replaced_aloud(start: Start) -> None:
    ended = ends(start("--ckpt-dir=ckpt", master="node1.invalid", ranks=2))
    assert [code for code, _ in ended] == [DONE, DONE], ended
    for _, output in ended:
        assert "MASTER_ADDR=node1.invalid does not resolve, so the ranks meet at 127.0.0.1" in output


def test_a_stranger_on_the_port_is_turned_away(start: Start, port: int) -> None:
    leader = start("--ckpt-dir=ckpt", ranks=2, only=range(1))
    assert leader[0].stdout is not None
    while "waits for 1 ranks" not in leader[0].stdout.readline():
        assert leader[0].poll() is None
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ended = ends([*leader, *start("--ckpt-dir=ckpt", ranks=2, only=range(1, 2))])
    assert [code for code, _ in ended] == [DONE, DONE], ended
    assert "turns away a stranger from 127.0.0.1" in ended[0][1]


def test_a_checkpoint_directory_that_cannot_be_made_is_code_5(tmp_path: Path, start: Start) -> None:
    (tmp_path / "file").touch()
    ((code, output),) = ends(start("--ckpt-dir=file/ckpt", ranks=1))
    assert code == NO_CHECKPOINT
    assert "cannot use the checkpoint directory: [Errno 20] Not a directory" in output


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID='x' is not a whole number"),
        ({"SLURM_PROCID": "4", "SLURM_NTASKS": "4"}, "SLURM_PROCID=4 is not below SLURM_NTASKS=4"),
    ],
)
def test_a_wrong_environment_is_code_2_and_named(variables: dict[str, str], sentence: str) -> None:
    command = [sys.executable, str(EXAMPLES / "train.py")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == USAGE
    assert sentence in done.stderr


def test_the_batch_script_is_good_bash() -> None:
    for script in EXAMPLES.glob("*.sbatch"):
        assert subprocess.run(["bash", "-n", script], timeout=30, check=False).returncode == 0


def test_the_batch_script_turns_usr1_into_a_checkpoint_and_requeues_itself(tmp_path: Path, port: int) -> None:
    """The real script and the real program; srun and scontrol are one-line stand-ins."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, line in {
        "srun": f'shift; exec "{sys.executable}" "{EXAMPLES}/train.py" --steps 100000 --step-seconds 0.01 "${{@:3}}"',
        "scontrol": 'if [ "$1" = show ]; then echo 127.0.0.1; else echo "scontrol $*"; fi',
    }.items():
        (tools / name).write_text(f"#!/bin/bash\n{line}\n")
        (tools / name).chmod(0o755)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_NAME": "llm-pretrain",
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_NODELIST": "node[1-2]",
    }
    script = EXAMPLES / "llm-pretrain.sbatch"
    folder = tmp_path / "checkpoints" / "llm-pretrain-42"
    with subprocess.Popen(["bash", script], env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE) as job:
        wait_for(lambda: list(folder.glob("step-*")))
        job.send_signal(10)
        output, _ = job.communicate(timeout=30)
    assert job.returncode == STOPPED
    assert "was asked to stop" in output
    assert output.endswith("scontrol requeue 42\n")

"""The life of a daemon, each in a process of its own: what ends it, and with which exit code."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FRAME = """
import asyncio, logging, sys
from muster import log, service
from muster.errors import InvalidInput
log.set_up("testd")

async def wait_forever():
    await asyncio.Event().wait()

{body}

sys.exit(service.run(main, grace_seconds={grace}))
"""
WAITS = """
async def main(service):
    service.start(wait_forever(), "loop")
    print("ready", flush=True)
    service.ready()
    await service.stopping.wait()
    print("stopping", flush=True)
"""


def begin(body: str, *, grace: float = 20.0, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", FRAME.format(body=body, grace=grace)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONASYNCIODEBUG": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_has_the_daemon_finish_and_exit_0(number: int) -> None:
    process = begin(WAITS)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    code, out, err = ended(process)
    assert (code, out) == (0, "stopping\n")
    assert "CRITICAL" not in err


def test_a_failing_loop_ends_the_daemon_with_exit_1_and_its_traceback() -> None:
    code, _, err = ended(
        begin(
            """
async def fail():
    raise KeyError("the bug")

async def main(service):
    service.start(fail(), "loop")
    await service.stopping.wait()
"""
        )
    )
    assert code == 1
    assert err.count("KeyError: 'the bug'") == 1
    assert "CRITICAL" in err


def test_an_error_of_the_house_is_a_line_and_no_traceback() -> None:
    code, _, err = ended(begin('\nasync def main(service):\n    raise InvalidInput("wrong file", "mend it")\n'))
    assert code == 1
    assert err.count("wrong file (mend it)") == 1
    assert "Traceback" not in err


def test_an_error_while_stopping_is_said_once() -> None:
    process = begin(WAITS + '    raise KeyError("late")\n')
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    code, _, err = ended(process)
    assert (code, err.count("KeyError: 'late'")) == (1, 1)


def test_fail_has_the_daemon_finish_and_exit_1() -> None:
    code, out, err = ended(
        begin(
            """
async def main(service):
    asyncio.get_running_loop().call_soon(service.fail, OSError(28, "No space left on device"))
    asyncio.get_running_loop().call_soon(service.fail, KeyError("second"))
    await service.stopping.wait()
    print(service.failure, flush=True)
"""
        )
    )
    assert (code, out) == (1, "[Errno 28] No space left on device\n")
    assert "the daemon ends: [Errno 28] No space left on device" in err


def test_a_daemon_that_does_not_stop_is_cancelled_and_has_failed() -> None:
    process = begin(WAITS + "    await wait_forever()\n", grace=0.2)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    code, _, err = ended(process)
    assert code == 1
    assert "did not stop within 0.2 s" in err


def test_a_daemon_that_returns_ends_with_its_loops() -> None:
    body = '\nasync def main(service):\n    service.start(wait_forever(), "loop")\n'
    assert ended(begin(body))[0] == 0


def test_sighup_ends_nothing_and_says_that_nothing_is_read_anew() -> None:
    process = begin(WAITS)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert "restart the daemon" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    code, out, _ = ended(process)
    assert (code, out) == (0, "stopping\n")


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_when_the_daemon_is_ready_and_when_it_stops(tmp_path: Path, abstract: bool) -> None:
    name = f"\0muster-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(20)
        channel.bind(name)
        process = begin(WAITS, NOTIFY_SOCKET=name.replace("\0", "@"))
        assert channel.recv(100) == b"READY=1"
        process.terminate()
        assert channel.recv(100) == b"STOPPING=1"
        assert ended(process)[0] == 0


def test_a_systemd_that_does_not_listen_is_no_reason_to_end(tmp_path: Path) -> None:
    process = begin(WAITS, NOTIFY_SOCKET=str(tmp_path / "nobody"))
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    code, _, err = ended(process)
    assert code == 0
    assert "cannot notify" in err


def test_open_files_are_raised_to_what_is_allowed() -> None:
    code, out, _ = ended(
        begin(
            """
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, most), most))
service.raise_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == most, flush=True)

async def main(service):
    pass
"""
        )
    )
    assert (code, out) == (0, "True\n")

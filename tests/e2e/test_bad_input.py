"""Bad input from every side: a clear sentence, a failing exit code, daemons alive, nothing lost.

Each test ends with the same question: do all daemons still run, is a job that was submitted before still there?
At the end that job is released and runs.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.cluster import Cluster
from tests.e2e.conftest import SMALL, SOURCE, User, running, until

LONG = 300
GARBAGE = random.Random(2)
"""The same bytes in every run, so that what fails can be run again."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A small cluster, for the tests of this module."""
    yield from running(replace(SMALL, name="bad"))


@pytest.fixture(scope="module")
def witness(cluster: Cluster, bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A held job, submitted before anything bad comes, and its output file."""
    folder = tmp_path_factory.mktemp("witness")
    user = User(cluster, bin_dir, folder)
    return user.submit("-H", "-J", "witness", "-o", "said", script="#!/bin/sh\necho still here\n"), folder / "said"


@pytest.fixture(autouse=True)
def unharmed(user: User, witness: tuple[int, Path]) -> Iterator[None]:
    """Every daemon lives on as the same process, and the job from before is there."""
    plan = user.cluster.plan()
    assert plan is not None
    before = {daemon: user.cluster.pid(daemon) for daemon in user.cluster.daemons(plan)}
    assert all(before.values())
    yield
    assert {daemon: user.cluster.pid(daemon) for daemon in user.cluster.daemons(plan)} == before
    rows = user.cluster.client().call("GET", f"/v1/jobs?fields=name,reason&ids={witness[0]}")["rows"]
    assert [tuple(row) for row in rows] in ([("witness", "JobHeldUser")], [("witness", "JobHeldAdmin")])
    assert [node["connected"] for node in user.cluster.client().call("GET", "/v1/status")["nodes"]] == [True, True]
    for daemon in before:
        assert "a bug in" not in user.cluster.log(daemon).read_text(errors="replace")


# Scripts.


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (b"", "Batch script is empty!"),
        (b" \n\t\n", "Batch script contains only whitespace!"),
        (b"echo no interpreter\n", "This does not look like a batch script."),
        (b"#!/bin/sh\r\necho dos\r\n", "Batch script contains DOS line breaks"),
        (b"#!/bin/sh\necho \0 nul\n", "The Slurm controller does not allow scripts that"),
        (b'#!/bin/sh\n#SBATCH -J "open\n', 'Unmatched `"` in ["open]'),
        (b"#!/bin/sh\n#SBATCH --no-such-option\n", "unrecognized option '--no-such-option'"),
        (b"#!/bin/sh\n#SBATCH -J x stray\n", "Invalid directive found in batch script: stray"),
        (b"#!/bin/sh\n#SBATCH -n many\n", "Invalid numeric value"),
        (b"#!/bin/sh\n#SBATCH -N 5-2\n", "Maximum node count 2 is less than minimum node count 5"),
        (b"#!/bin/sh\n#SBATCH -J \xff\xfe\ntrue\n", "is not valid UTF-8 text"),
    ],
)
def test_malformed_scripts(user: User, script: bytes, said: str) -> None:
    (user.folder / "job.sh").write_bytes(script)
    done = user.run("sbatch", "job.sh")
    assert done.code != 0
    assert done.out == ""
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_script_that_is_no_utf8_is_taken_as_it_is(user: User) -> None:
    (user.folder / "job.sh").write_bytes(b"#!/bin/sh\nprintf '\xff\xfe' > bytes\n")
    job = int(user.ok("sbatch", "--parsable", "-o", "/dev/null", "job.sh"))
    assert user.ended(job) == "COMPLETED"
    assert (user.folder / "bytes").read_bytes() == b"\xff\xfe"


@pytest.mark.parametrize("name", ["nothing.sh", "folder"])
def test_scripts_that_cannot_be_read(user: User, name: str) -> None:
    (user.folder / "folder").mkdir()
    done = user.run("sbatch", f"./{name}")
    assert done.code == 1
    assert done.err.startswith("sbatch: error: ")


def test_a_script_over_max_script_size_is_refused_with_the_bound(user: User) -> None:
    (user.folder / "job.sh").write_bytes(b"#!/bin/sh\n" + b"# filler\n" * (5 << 20 >> 3))
    done = user.run("sbatch", "job.sh")
    assert (done.code, done.out) == (1, "")
    first = "sbatch: error: Batch job submission failed: Pathname of a file, directory or other parameter too long"
    assert done.err.splitlines()[0] == first
    assert "max_script_size" in done.err
    # The largest script that is taken is far above aiohttp's and gRPC's own bounds.
    (user.folder / "job.sh").write_bytes(b"#!/bin/sh\n" + b"#" * ((4 << 20) - 100) + b"\n")
    for door in (user.cluster.socket, user.cluster.node_socket("node1")):
        job = user.ok("sbatch", "--parsable", "-o", "/dev/null", "job.sh", env={"MUSTER_SOCKET": str(door)}).strip()
        assert user.ended(job) == "COMPLETED"


# Options, host lists, ids.


@pytest.mark.parametrize(
    "options",
    [
        ("--nodes=1-x",),
        ("--mem=1.5G",),
        ("--mem=12Q",),
        ("--mem=99999999999999999999G",),
        ("--mem=1G", "--mem-per-cpu=1G"),
        ("--time=5m",),
        ("--begin=whenever",),
        ("--gres=gpu:-1",),
        ("--gres=nosuchthing:1",),
        ("--gpus=gpu:",),
        ("--dependency=afterok:x",),
        ("--array=1-",),
        ("--array=" + "1," * 33000 + "x",),
        ("--signal=NOSUCH",),
        ("--nodelist=n[1-",),
        ("--nodelist=n[1-999999999]",),
        ("--nodelist=nosuchnode",),
        ("--exclude=n[[1]]",),
        ("--partition=nosuch",),
        ("--constraint=a&&b",),
        ("--nice=99999999999",),
        ("--priority=-4",),
        ("--open-mode=sideways",),
        ("--exclusive=me",),
        ("--cpus-per-task=0",),
        ("--ntasks=99999999999",),
        ("--export-file=/nonexistent",),
        ("--clusters=elsewhere",),
        ("--bb=stage",),
        ("--job-name=" + "x" * 5000,),
    ],
    ids=lambda options: options[0][:30],
)
def test_malformed_options(user: User, options: tuple[str, ...]) -> None:
    done = user.run("sbatch", *options, "--wrap", "true")
    assert done.code != 0, done
    assert done.out == ""
    assert done.err.startswith(("sbatch: ", "unrecognized", "Invalid time"))
    assert len(done.err) < 2000
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("squeue", "-t", "asleep"), "Invalid job state specified: asleep"),
        (("squeue", "-j", "abc"), "Invalid job id: abc"),
        (("squeue", "-w", "n[1-"), "n[1-"),
        (("squeue", "-S", "?"), "Invalid sort specification"),
        (("squeue", "--bogus"), "unrecognized option '--bogus'"),
        (("sinfo", "-t", "asleep"), 'Bad state string: "asleep"'),
        (("scancel", "abc"), "Invalid job id abc"),
        (("scancel", "-s", "BOGUS", "1"), "Unknown job signal: BOGUS"),
        (("scancel", "-t", "bogus"), "Invalid job state specified: bogus"),
        (("scancel",), "No job identification provided"),
        (("scontrol", "bogus"), "invalid keyword: bogus"),
        (("scontrol", "show", "bogus"), "invalid entity:bogus for keyword:show"),
        (("scontrol", "show", "job", "999999"), "Invalid job id specified"),
        (("scontrol", "update"), "too few arguments"),
        (("scontrol", "update", "JobId=999999", "Nice=1"), "Invalid job id specified"),
        (("scontrol", "update", "NodeName=nosuch", "State=DRAIN", "Reason=x"), "Invalid node name specified"),
        (("scontrol", "update", "NodeName=node1", "State=BOGUS"), "BOGUS"),
        (("scontrol", "show", "hostlist", "n[1-"), "Invalid hostlist: n[1-"),
        (("scontrol", "hold", "999999"), "Invalid job id specified"),
        (("srun", "-N", "x", "true"), '"x" is not a valid node count'),
        (("srun", "--jobid=999999", "true"), "Invalid job id specified"),
    ],
)
def test_malformed_arguments_of_other_commands(user: User, argv: tuple[str, ...], said: str) -> None:
    done = user.run(*argv)
    assert done.code != 0, done
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_bad_host_list_of_hostnames_is_named(user: User) -> None:
    for text in ("n[1-", "n[1-999999999]", "n[2-1]", "n]1["):
        done = user.run("scontrol", "show", "hostnames", text)
        assert done.out == "", text
        assert text in done.err


# The sockets: HTTP.


def exchange(path: Path, data: bytes, *, half_close: bool = True) -> bytes:
    """Send bytes to a socket and give all that comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        try:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass  # it answers before it has read everything, and says why
        answer = b""
        try:
            while not whole(answer) and (piece := connection.recv(1 << 16)):
                answer += piece
        except ConnectionResetError:
            pass  # what came before is the answer
        return answer


def whole(answer: bytes) -> bool:
    """Tell whether an answer has come in full; the server may go on reading a request that it has refused."""
    head, end, said = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
    return bool(end) and length.isdigit() and len(said) >= int(length)


def post(target: str, body: bytes, *headers: str, length: int | None = None, method: str = "POST") -> bytes:
    """Give the bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x", "Connection: close", *headers]
    if not any(line.startswith("Transfer-Encoding") for line in headers):
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


GOOD = {"script": "#!/bin/sh\ntrue\n", "work_dir": "/", "output": "/dev/null"}


def body(**more: object) -> bytes:
    return json.dumps({**GOOD, **more}).encode()


REFUSED = {
    "no JSON": (post("/v1/jobs", b"garbage"), 400),
    "no UTF-8": (post("/v1/jobs", b'{"job_name": "\xff\xfe"}'), 400),
    "a JSON bomb of lists": (post("/v1/jobs", b"[" * 1_000_000), 400),
    "a JSON bomb of objects": (post("/v1/jobs", b'{"echo":' * 200_000), 400),
    "a JSON bomb that is skipped": (post("/v1/jobs", b'{"nosuch":' + b"[" * 1_000_000), 400),
    "a number of a million digits": (post("/v1/jobs", b'{"ntasks": ' + b"9" * 1_000_000 + b"}"), 400),
    "an unknown field": (post("/v1/jobs", body(colour="red")), 400),
    "a field of the wrong kind": (post("/v1/jobs", body(ntasks="four")), 400),
    "a number out of bounds": (post("/v1/jobs", body(ntasks=1 << 40)), 400),
    "a name over its bound": (post("/v1/jobs", body(job_name="x" * 5000)), 413),
    "a NUL in a path": (post("/v1/jobs", body(chdir="/tmp\0x")), 400),
    "an entry without a name": (post("/v1/jobs", body(environment=["novalue"])), 400),
    "an environment of 17 MiB": (
        post("/v1/jobs", body(environment=[f"A{n}=" + "x" * 100_000 for n in range(175)])),
        413,
    ),
    "a frame whose lengths lie": (post("/v1/jobs", b"MSTR1 5 5000 5\n{}"), 400),
    "a frame of negative lengths": (post("/v1/jobs", b"MSTR1 -1 2 3\nxxxx"), 400),
    "a frame of huge lengths": (post("/v1/jobs", b"MSTR1 99999999999999999999 0 0\n{}"), 400),
    "the wrong method": (post("/v1/jobs/cancel", b"", method="PUT"), 404),
    "another wrong method": (post("/v1/jobs", b"", method="DELETE"), 404),
    "an unknown route": (post("/v1/nosuch", b"{}"), 404),
    "a route with dots": (post("/v1/../../etc/passwd", b"", method="GET"), 404),
    "a query of a thousand fields": (
        post("/v1/jobs?" + "&".join(f"f{n}=1" for n in range(1000)), b"", method="GET"),
        400,
    ),
    "an unknown field of a listing": (post("/v1/jobs?fields=nosuch", b"", method="GET"), 400),
    "a body of 40 MiB": (post("/v1/jobs", b"x" * (40 << 20)), 413),
    "a body said to be 40 MiB": (post("/v1/jobs", b"x", length=40 << 20), 413),
    "a chunked body without end": (
        post("/v1/jobs", (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 40, "Transfer-Encoding: chunked"),
        413,
    ),
    "an id that is a path": (post("/v1/jobs/..%2F..%2Fetc/wait", b"", method="GET"), 400),
    "ids without end": (post("/v1/jobs/cancel", json.dumps({"ids": ["1," * 600_000]}).encode()), 413),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("door", ["controller", "agent"])
def test_malformed_requests_get_a_sentence(user: User, what: str, door: str) -> None:
    request, status = REFUSED[what]
    path = user.cluster.socket if door == "controller" else user.cluster.node_socket("node1")
    answer = exchange(path, request, half_close=False)
    head, _, said = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode(), answer[:500]
    error = json.loads(said)["error"]
    assert len(error["sentence"]) > 5
    assert "Traceback" not in error["sentence"]
    assert "internal error" not in error["sentence"]


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 5000,
        GARBAGE.randbytes(5000),
        b"GET\r\n\r\n",
        b"POST /v1/jobs HTTP/9.9\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: five\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nxxxxxxx",
        b"POST /v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v1/ping HTTP/1.1\r\n" + b"".join(b"H%d: %s\r\n" % (n, b"x" * 100) for n in range(100_000)),
        b"GET /v1/ping HTTP/1.1\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=lambda data: repr(data[:40]),
)
@pytest.mark.parametrize("door", ["controller", "agent"])
def test_what_is_no_http_is_turned_away(user: User, data: bytes, door: str) -> None:
    path = user.cluster.socket if door == "controller" else user.cluster.node_socket("node1")
    answer = exchange(path, data)
    assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0] or b" 404 " in answer.split(b"\r\n")[0], answer[:200]


def test_a_request_cut_off_submits_nothing(user: User) -> None:
    whole = post("/v1/jobs", body(job_name="cut"))
    for kept in (1, len(whole) // 4, len(whole) // 2, len(whole) - 1):
        for path in (user.cluster.socket, user.cluster.node_socket("node2")):
            exchange(path, whole[:kept])
    assert user.ok("squeue", "-h", "-t", "all", "-n", "cut") == ""


def test_half_open_connections_do_not_hold_up_others(user: User) -> None:
    opened = []
    try:
        for number in range(LONG):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(10)
            connection.connect(str(user.cluster.socket if number % 2 else user.cluster.node_socket("node1")))
            connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"[: number % 50])
            opened.append(connection)
        assert user.ended(user.submit("-o", "/dev/null")) == "COMPLETED"
    finally:
        for connection in opened:
            connection.close()


def test_an_environment_of_nearly_16_mib_goes_through_both_doors(user: User) -> None:
    entries = [f"A{number}=" + "x" * 100_000 for number in range(150)]
    request = post("/v1/jobs", body(environment=entries, hold=True, job_name="large"))
    for path in (user.cluster.socket, user.cluster.node_socket("node1")):
        answer = exchange(path, request, half_close=False)
        assert b" 200 " in answer.split(b"\r\n")[0], answer[:300]
    assert user.ok("squeue", "-h", "-n", "large", "-o", "%T").split() == ["PENDING"] * 2
    user.ok("scancel", "-n", "large")


# The socket for step input and output, and the ports.


def a_step(user: User) -> int:
    """Have a job with a step, for those who knock at its door."""
    job = user.submit("-o", "/dev/null", script="#!/bin/sh\nsrun sleep 300\n")
    until(lambda: f"{job}.0" in user.ok("squeue", "-h", "-s", "-o", "%i").split(), "the step", user.describe)
    return job


def test_garbage_on_the_step_socket_leaves_the_step_alone(user: User) -> None:
    job = a_step(user)
    address = Path(f"{user.cluster.node_socket('node1')}.io")
    header = {"job": job, "run": 0, "step": 0, "node": "node1"}
    lines = [
        b"",
        b"\n",
        b"garbage\n",
        b"\0" * 10_000,
        b"x" * 100_000,
        b"[" * 4000 + b"\n",
        json.dumps({**header, "job": "x"}).encode() + b"\n",
        json.dumps({**header, "job": 1 << 70}).encode() + b"\n",
        json.dumps({**header, "job": 999999}).encode() + b"\n",
        json.dumps({**header, "step": -1}).encode() + b"\n",
        json.dumps({**header, "node": "nosuch", "addr": "127.0.0.1:1"}).encode() + b"\n",
        json.dumps({**header, "node": "node2", "addr": "not an address"}).encode() + b"\n",
        json.dumps(header).encode() + b"\n" + GARBAGE.randbytes(50_000),
        json.dumps(header).encode() + b"\n" + b"\xff" * 50_000,
    ]
    for line in lines:
        answer = exchange_within(address, line, seconds=2.0)
        assert answer == b"" or answer.startswith((b'{"error":', b'{"ok":true}')), (line[:80], answer[:200])
    assert f"{job}.0" in user.ok("squeue", "-h", "-s", "-o", "%i").split()
    assert user.ok("srun", "--overlap", "--jobid", str(job), "echo", "still") == "still\n"
    user.ok("scancel", str(job))


def exchange_within(path: Path, data: bytes, *, seconds: float) -> bytes:
    """As `exchange`, but give up reading after a while: a step that waits for its launch may keep the line open."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(str(path))
        answer = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                answer += piece
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass  # what came so far is the answer
        return answer


def test_garbage_on_the_ports_between_daemons(user: User) -> None:
    plan = user.cluster.plan()
    assert plan is not None
    for port in plan.ports.values():
        for data in (
            b"",
            b"GET / HTTP/1.0\r\n\r\n",
            GARBAGE.randbytes(100_000),
            b"\x16\x03\x01\xff\xff" + b"\0" * 70_000,
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                try:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass
                except OSError:
                    pass  # cut off, as it should be
    assert user.ended(user.submit("-N2", "-o", "/dev/null", script="#!/bin/sh\nsrun true\n")) == "COMPLETED"


# Configurations.


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NosuchKey=1", "NosuchKey"),
        ("MaxJobCout=5", "MaxJobCount"),
        ("KillWait=soon", "soon"),
        ("MinJobAge=-5", "-5"),
        ("NodeName=x[1- CPUs=1", "x[1-"),
        ("NodeName=x CPUs=many", "many"),
        ("PartitionName=p Nodes=nosuch", "nosuch"),
        ("PartitionName=p Nodes=ALL MaxTime=5m", "5m"),
        ("Include /nonexistent/file", "/nonexistent/file"),
        ("just words", "just words"),
    ],
)
def test_a_malformed_configuration_is_named_by_file_and_line(user: User, line: str, said: str) -> None:
    folder = user.folder / "state"
    folder.mkdir()
    config = user.folder / "muster.conf"
    known = user.cluster.config.read_text().replace(f"{user.cluster.folder}/state", str(folder))
    config.write_text(f"{known}{line}\n")
    argv = [
        *(sys.executable, "-m", "ctld", "--config", str(config), "--socket", str(user.folder / "sock")),
        *("--listen", "127.0.0.1:0", "--certificates", str(user.cluster.folder / "certs")),
    ]
    done = subprocess.run(argv, cwd=SOURCE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, None)
    number = known.count("\n") + 1
    assert f"{config}:{number}" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    shutil.rmtree(folder)


def test_the_job_from_before_runs_at_last(user: User, witness: tuple[int, Path], bin_dir: Path) -> None:
    job, path = witness
    copy = user.submit("-d", f"afterok:{job}", "-o", "/dev/null")
    user.ok("scontrol", "release", str(job))
    assert user.ended(job) == "COMPLETED"
    assert path.read_text() == "still here\n"
    assert user.ended(copy) == "COMPLETED"
    # For the check after this test: a witness again.
    user.ok("scontrol", "requeue", str(job))
    user.ok("scontrol", "hold", str(job))
    deadline = time.monotonic() + 30
    while user.state(job) != "PENDING" and time.monotonic() < deadline:
        time.sleep(0.05)
